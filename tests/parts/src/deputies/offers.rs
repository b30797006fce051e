//! What a process of another user offers at a listener that it shares, in the keeper's place.

use super::{NOBODY, look, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, libc};
use abi::id::{EnvId, RegionId};
use abi::published::{RegionRecord, Table};
use abi::region::WordAt;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// What holds.
pub const TESTS: [Test; 1] = [("offers_join_no_other_sockets", offers_join_no_other_sockets)];

const LISTENED: u16 = 5609;
const OTHER: u16 = 5610;
/// What is sent to the other socket.
const SECRET: &[u8] = b"a datagram for user 0's other socket";
/// Who reads a shared socket's region, and where its data begin.
pub(super) const READER: u8 = 1;
pub(super) const DATA: u64 = 4096;
/// Bytes of an offer.
pub(super) const OFFER: u64 = 64;
pub(super) const PATIENCE: i32 = 20_000;

/// What user 0's server finds: bits of its status.
const READ_AS_CLIENT: i32 = 1;
const LOST: i32 = 2;
/// Statuses that say that it was not tried.
const NO_SOCKETS: i32 = 4;
const NO_OFFER: i32 = 5;

/// Words by which server and attacker wait for each other.
const IS: usize = 0;
const BEGIN: usize = 1;
const END: usize = 2;

pub(super) fn wait(words: &[AtomicU64], at: usize) {
    while words[at].load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

/// The regions of shared sockets that a domain has made, beside those known.
pub(super) fn rings(of: u64, known: &BTreeSet<u64>) -> Vec<RegionRecord> {
    let bytes = abi::limits::REGION_FRAMES as u32 * 4096;
    let fresh = regions();
    let fresh = fresh.difference(known);
    let record = |&id: &u64| xok::published::record(Table::Regions, RegionId(id).index());
    let records = fresh.filter_map(record);
    records.filter(|one: &RegionRecord| one.domain == of && one.bytes == bytes).collect()
}

/// Offers user 0's other socket at the listener that both have.
fn offer(door: door::Door, server: u64, known: &BTreeSet<u64>, words: &[AtomicU64]) -> i32 {
    if !libc::become_user(NOBODY) {
        return 1;
    }
    let own = |ring: &RegionRecord| look(door, ring.id, READER, 0, 16).is_some();
    let Some(listener) = rings(server, known).into_iter().find(own) else { return 2 };
    libc::count(&words[IS]);
    wait(words, BEGIN);
    let others: Vec<_> = rings(server, known).into_iter().filter(|ring| !own(ring)).collect();
    // It is read by user 0's two processes, and the other way by its keeper alone.
    let read_by = |count| {
        let read = move |ring: &&RegionRecord| ring.attached[usize::from(READER)] == count;
        others.iter().find(read).map(|ring| ring.id)
    };
    let (Some(rx), Some(tx)) = (read_by(2), read_by(1)) else { return 3 };
    let stored = [(DATA, rx), (DATA + 8, tx), (unix::ring::HEAD, OFFER)]
        .into_iter()
        .all(|(offset, value)| store(door, listener.id, WordAt { offset, value }));
    i32::from(!stored) * 4
}

/// User 0's server: a listener that a process of another user has, too, and another socket, which
/// that one does not have.
fn serve(door: door::Door) -> i32 {
    let (known, words) = (regions(), libc::words(libc::shared(1), 3));
    let own = xok::published::env_domain(EnvId(std::process::id())).map_or(0, |own| own.0);
    let Ok(listener) = TcpListener::bind(("0.0.0.0", LISTENED)) else { return NO_SOCKETS };
    let attacker = libc::spawn(|| offer(door, own, &known, words));
    while words[IS].load(Ordering::SeqCst) == 0 && libc::is_alive(attacker) {
        std::thread::yield_now();
    }
    let Ok(other) = UdpSocket::bind(("0.0.0.0", OTHER)) else { return NO_SOCKETS };
    let worker = libc::spawn(|| {
        wait(words, END);
        0
    });
    let sender = libc::spawn(|| {
        let socket = UdpSocket::bind(("0.0.0.0", OTHER + 1));
        i32::from(!socket.is_ok_and(|one| one.send_to(SECRET, ("10.0.2.15", OTHER)).is_ok()))
    });
    let sent = libc::wait(sender) == 0;
    let arrived = sent && libc::wait_for(other.as_raw_fd(), libc::POLLIN, PATIENCE) != 0;
    libc::count(&words[BEGIN]);
    let offered = libc::wait(attacker);
    let nonblocking = listener.set_nonblocking(true).is_ok() && other.set_nonblocking(true).is_ok();
    let mut found = 0;
    if let Ok((mut client, _)) = listener.accept() {
        let mut bytes = [0; 128];
        let count = client.read(&mut bytes).unwrap_or(0);
        if bytes[..count].windows(SECRET.len()).any(|part| part == SECRET) {
            found |= READ_AS_CLIENT;
        }
    }
    let mut bytes = [0; 128];
    if !other.recv(&mut bytes).is_ok_and(|count| &bytes[..count] == SECRET) {
        found |= LOST;
    }
    libc::count(&words[END]);
    libc::wait(worker);
    match (arrived && nonblocking, offered) {
        (false, _) => NO_SOCKETS,
        (true, 0) => found,
        _ => NO_OFFER + (offered >> 8),
    }
}

/// A server of user 0's accepts none of its other sockets as a client's, whatever a process of
/// another user that shares the listener has stored there.
fn offers_join_no_other_sockets(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| serve(door)));
    let (tried, found) = (status & 0xff == 0 && status >> 8 < NO_SOCKETS, status >> 8);
    expect(!tried || found & READ_AS_CLIENT == 0, || {
        "user 0's server reads as a client's what its other socket was sent".into()
    })?;
    expect(status == 0, || format!("the server ended with {status:#x}: {LOST:#x}00 lost it"))?;
    Ok(String::new())
}
