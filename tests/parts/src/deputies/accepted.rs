//! A connection that is offered at a listener of two users has one process that accepts it.

use super::offers::{DATA, OFFER, PATIENCE, READER, rings, wait};
use super::{NOBODY, look};
use crate::peers::regions;
use crate::{Seen, Test, expect, libc};
use abi::call::Call;
use abi::id::{DomainId, EnvId, RegionId};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// What holds.
pub const TESTS: [Test; 1] =
    [("a_connection_is_accepted_by_one_process", a_connection_is_accepted_by_one_process)];

/// The first of two ports.
const PORT: u16 = 5611;
/// Bytes that each of the clients sends.
const SENT: usize = 6;
/// What the two clients send.
const CLIENTS: [&[u8; SENT]; 2] = [b"first!", b"second"];
/// The slot in which the attacker has an offer's name.
const SLOT: u8 = 15;
/// Roles of a region.
const ROLES: u16 = 4;

/// Words by which server and attacker wait for each other.
const FOUND: usize = 0;
const TAKEN: usize = 1;
const ACCEPTED: usize = 2;

/// What the attacker answers: a bit for each role in which it came into either region of the
/// connection that the server had accepted, 4 for each of them; or that it was not tried.
const NOT_TRIED: i32 = 100;
/// What the server answers: the attacker's bits; or one of these.
const NO_SOCKETS: i32 = 101;
const ANOTHERS: i32 = 102;
const NO_CLIENT: i32 = 103;

/// What an offer says: the two regions, and the token of their name.
struct Offer {
    regions: [u64; 2],
    token: [u64; 3],
}

/// The offers at a listener, when there are two.
fn offers(door: door::Door, listener: u64) -> Option<[Offer; 2]> {
    let word = |bytes: &[u8], at: usize| {
        bytes[8 * at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    loop {
        let head = look(door, listener, READER, unix::ring::HEAD, 8)?;
        if word(&head, 0) == 2 * OFFER {
            break;
        }
        std::thread::yield_now();
    }
    let bytes = look(door, listener, READER, DATA, 2 * OFFER as usize)?;
    let offer = |at: usize| {
        let [rx, tx, _, _, first, second, seal] =
            [0, 1, 2, 3, 4, 5, 6].map(|part| word(&bytes[at * OFFER as usize..], part));
        Offer { regions: [rx, tx], token: [first, second, seal] }
    };
    Some([offer(0), offer(1)])
}

/// Attaches the attacker to a region of an offer by its token; says in which of the roles.
fn come_in(door: door::Door, offer: &Offer, region: u64, roles: std::ops::Range<u16>) -> i32 {
    let [first, second, seal] = offer.token;
    let slot = SLOT.into();
    if libc::kernel(door, Call::CapabilityEnter { slot, first, second, seal }).is_err() {
        return 0;
    }
    let comes = |role: &u16| {
        let (region, role, domain) = (RegionId(region), *role, DomainId::NONE);
        libc::kernel_by(door, Call::RegionAttach { region, role, domain }, SLOT).is_ok()
    };
    roles.filter(comes).fold(0, |all, role| all | 1 << role)
}

/// Takes a region of the first offer, and tries those of the second one when it is accepted.
fn attack(
    door: door::Door,
    server: u64,
    known: &BTreeSet<u64>,
    taken: usize,
    words: &[AtomicU64],
) -> i32 {
    if !libc::become_user(NOBODY) {
        return NOT_TRIED;
    }
    let own = |id: &u64| look(door, *id, READER, 0, 16).is_some();
    let Some(listener) = rings(server, known).into_iter().map(|ring| ring.id).find(own) else {
        return NOT_TRIED;
    };
    libc::count(&words[FOUND]);
    let Some([first, second]) = offers(door, listener) else { return NOT_TRIED };
    // Users read the first region of an offer and write to the other one.
    let role = 1 - taken as u16;
    if come_in(door, &first, first.regions[taken], role..role + 1) == 0 {
        return NOT_TRIED;
    }
    libc::count(&words[TAKEN]);
    wait(words, ACCEPTED);
    let [rx, tx] = second.regions.map(|region| come_in(door, &second, region, 0..ROLES));
    rx | tx << ROLES
}

/// A client that says which one it is, and stays until the server or the keeper closes.
fn client(port: u16, at: usize) -> i32 {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return 1 };
    let sent = stream.write_all(CLIENTS[at]).is_ok();
    let _ = stream.read(&mut [0]);
    i32::from(!sent)
}

/// User 0's server, with a listener that a process of another user has, too: it accepts of two
/// connections the one that this process has not taken.
fn serve(door: door::Door, taken: usize) -> i32 {
    let (known, words) = (regions(), libc::words(libc::shared(1), 3));
    let own = xok::published::env_domain(EnvId(std::process::id())).map_or(0, |own| own.0);
    let port = PORT + taken as u16;
    let Ok(listener) = TcpListener::bind(("0.0.0.0", port)) else { return NO_SOCKETS };
    let attacker = libc::spawn(|| attack(door, own, &known, taken, words));
    let waits = |at: usize| {
        while words[at].load(std::sync::atomic::Ordering::SeqCst) == 0 && libc::is_alive(attacker) {
            std::thread::yield_now();
        }
    };
    waits(FOUND);
    let clients = [0, 1].map(|at| {
        let client = libc::spawn(|| client(port, at));
        if at == 0 {
            libc::wait_for(listener.as_raw_fd(), libc::POLLIN, PATIENCE);
        }
        client
    });
    waits(TAKEN);
    let mut said = [0; SENT];
    let mut accepted = listener.set_nonblocking(true).and_then(|()| listener.accept());
    let read = match &mut accepted {
        Ok((stream, _)) => stream.read_exact(&mut said).is_ok(),
        Err(_) => false,
    };
    let more = listener.accept().is_ok_and(|_| true);
    libc::count(&words[ACCEPTED]);
    let came_in = libc::wait(attacker) >> 8;
    drop((accepted, listener));
    for client in clients {
        libc::send(client, 9);
        libc::wait(client);
    }
    match (came_in, read) {
        (NOT_TRIED, _) => NOT_TRIED,
        _ if &said == CLIENTS[0] || more => ANOTHERS,
        (_, true) if &said == CLIENTS[1] => came_in,
        _ => NO_CLIENT,
    }
}

/// A process that shares a listener with another user's process has the connections that it takes
/// first, and no others: it comes into none that the other process accepts, before or later.
fn a_connection_is_accepted_by_one_process(door: door::Door) -> Seen {
    for taken in [0, 1] {
        let status = libc::wait(libc::spawn(|| serve(door, taken)));
        let tried = status & 0xff == 0 && ![NOT_TRIED, NO_SOCKETS].contains(&(status >> 8));
        expect(tried, || format!("region {taken}: not tried: {status:#x}"))?;
        let status = status >> 8;
        expect(status != ANOTHERS, || {
            format!("region {taken}: user 0's server has a connection that another process has")
        })?;
        expect(status != NO_CLIENT, || {
            format!("region {taken}: user 0's server accepts nothing beside what was taken")
        })?;
        expect(status == 0, || {
            format!("region {taken}: another process came into what was accepted: {status:#x}")
        })?;
    }
    Ok(String::new())
}
