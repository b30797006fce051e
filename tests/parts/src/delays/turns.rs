//! What servers do for one user takes the turns of others: a program that computes beside it.

use super::{Measured, as_user, now, terminals};
use crate::deputies::{ANN, NOBODY};
use crate::{expect, libc};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::{EnvRecord, InterfaceRecord, Table};
use abi::ring::Piece;
use abi::word::{UserAddress, Which};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xok::accounts;
use xok::published;
use xok::services::{self, Service};

/// Instructions in which the program computes, and the most that it lacks of half of them: it has
/// 0.45 of the processor.
const WINDOW: u64 = 400_000_000;
pub const BOUND: u64 = WINDOW / 20;
/// The same beside requests: a round in which the user has its own turn and a loan is as long as
/// four slices, of which a short window shows more of the one or the other.
const REQUESTS_WINDOW: u64 = 1_000_000_000;
pub const REQUESTS_BOUND: u64 = REQUESTS_WINDOW / 20;
/// Terminals at which ^C is typed.
const TERMINALS: usize = 8;
/// The group of those that have the network, and where its capability is.
const NETWORK_GROUP: u32 = 3003;
const NETWORK_SLOT: u8 = 3;
/// Environments that are entrusted to init, pings that are sent, or requests that are made, before
/// the program begins, and again while it computes.
const AT_LEAST: u64 = 100;

/// What the user does, beside computing.
#[derive(Clone, Copy)]
struct Storm {
    types: bool,
    entrusts: bool,
    pings: bool,
    writes: bool,
    joins: bool,
    opens: bool,
}

const NONE: Storm = Storm {
    types: false,
    entrusts: false,
    pings: false,
    writes: false,
    joins: false,
    opens: false,
};

/// The program's lack beside each storm that has servers work in turns of their own.
pub fn all(door: door::Door) -> Measured {
    beside_each(
        (door, WINDOW),
        &[
            ("beside ^C", Storm { types: true, ..NONE }),
            ("beside what is left to init", Storm { entrusts: true, ..NONE }),
            ("beside both", Storm { types: true, entrusts: true, ..NONE }),
            ("beside pings", Storm { pings: true, ..NONE }),
        ],
    )
}

/// The same beside requests, for which the user's own turns are too short.
pub fn requests(door: door::Door) -> Measured {
    beside_each(
        (door, REQUESTS_WINDOW),
        &[
            ("beside writes", Storm { writes: true, ..NONE }),
            ("beside joins", Storm { joins: true, ..NONE }),
            ("beside all", Storm { writes: true, joins: true, opens: true, ..NONE }),
        ],
    )
}

fn beside_each((door, window): (door::Door, u64), storms: &[(&str, Storm)]) -> Measured {
    let mut all = Vec::new();
    for &(what, storm) in storms {
        let lack = beside(door, window, storm)?;
        all.extend(lack.into_iter().map(|(who, lack)| (format!("{who} {what}"), lack)));
    }
    Ok(all)
}

fn beside(door: door::Door, window: u64, storm: Storm) -> Measured {
    let words = libc::words(libc::shared(1), 2 + TERMINALS);
    let (done, told) = (&words[0], &words[1..=TERMINALS]);
    let mut pids = Vec::new();
    let begins = |word: &AtomicU64, least: u64, act: &dyn Fn() -> Option<i32>| {
        let pid = libc::spawn(|| {
            // What is left of the storm before may be all that the user may have.
            while !libc::become_user_in(NOBODY, NETWORK_GROUP) {
                std::thread::yield_now();
            }
            act().unwrap_or(1)
        });
        while word.load(Ordering::SeqCst) < least && libc::is_alive(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        pid
    };
    // First: what is left to init may be all environments that the user may have.
    let begun = &words[1 + TERMINALS];
    pids.push(begins(begun, 1, &|| {
        begun.store(1, Ordering::SeqCst);
        loop {
            std::hint::spin_loop();
        }
    }));
    if storm.types {
        pids.extend(told.iter().map(|told| begins(told, 1, &|| terminals::type_on(told))));
    }
    if storm.entrusts {
        pids.push(begins(done, AT_LEAST, &|| entrust_on(door, done)));
    }
    if storm.pings {
        let mac = published::record::<InterfaceRecord>(Table::Interfaces, 0).ok_or("none")?.mac;
        let frame = echo_request(mac.to_le_bytes());
        pids.push(begins(done, AT_LEAST, &|| ping_on(door, &frame, done)));
    }
    if storm.writes {
        pids.push(begins(done, AT_LEAST, &|| write_on(done)));
    }
    if storm.joins {
        pids.push(begins(done, done.load(Ordering::SeqCst) + AT_LEAST, &|| join_on(door, done)));
    }
    if storm.opens {
        pids.push(begins(done, done.load(Ordering::SeqCst) + AT_LEAST, &|| open_on(done)));
    }
    let victim = as_user(ANN, || {
        let own = EnvId(std::process::id());
        let ran = || published::env(own).map_or(0, |env| env.run_ns);
        let (begun, before, done_before) = (now(), ran(), done.load(Ordering::SeqCst));
        while now() - begun < window {
            std::hint::spin_loop();
        }
        let lack = (window / 2).saturating_sub(ran() - before);
        let meanwhile = done.load(Ordering::SeqCst) - done_before;
        let goes_on = done_before == 0 || meanwhile >= AT_LEAST;
        expect(goes_on, || format!("the others did {meanwhile} things meanwhile"))?;
        Ok(vec![("lacks".into(), lack)])
    });
    pids.iter().for_each(|&pid| libc::send(pid, 9));
    let ends: Vec<i32> = pids.into_iter().map(libc::wait).collect();
    // All of them by the signal.
    expect(ends.iter().all(|&end| end == 9), || format!("the others ended with {ends:x?}"))?;
    victim
}

/// Writes to a file of its own and removes it.
fn write_on(done: &AtomicU64) -> Option<i32> {
    let name = format!("/tmp/{}", std::process::id());
    loop {
        fs::write(&name, "x").ok()?;
        fs::remove_file(&name).ok()?;
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asks the accounts' server to have its domain paid for by the user that pays for it.
fn join_on(door: door::Door, done: &AtomicU64) -> Option<i32> {
    let server = EnvId(services::get(Service::Accounts) as u32);
    let own = published::env(EnvId(std::process::id()))?;
    let join = [accounts::JOIN, NOBODY.into(), own.domain, 0, 0, 0];
    loop {
        // The server may have something else to do.
        let Ok([answer, ..]) = libc::transfer(door, server, join) else {
            std::thread::yield_now();
            continue;
        };
        if answer != accounts::MADE {
            return Some(2);
        }
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Opens a pseudo-terminal and closes it.
fn open_on(done: &AtomicU64) -> Option<i32> {
    loop {
        fs::File::open("/dev/ptmx").ok()?;
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Makes environments, leaves their records to init, and ends them.
fn entrust_on(door: door::Door, done: &AtomicU64) -> Option<i32> {
    let init: EnvRecord = published::record(Table::Envs, services::INIT_INDEX)?;
    loop {
        let (which, vector) = (Which::Any, Which::Any);
        let (domain, account) = (DomainId::NONE, AccountId::NONE);
        let make = Call::EnvAlloc { which, domain, account, vector };
        let Ok(env) = libc::kernel(door, make) else {
            std::thread::yield_now();
            continue;
        };
        let env = EnvId(env as u32);
        libc::kernel(door, Call::EnvEntrust { env, holder: EnvId(init.id) }).ok()?;
        libc::kernel(door, Call::EnvDestroy { env, word: 0 }).ok()?;
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// An echo request from this machine's interface to itself, in the name of a station.
fn echo_request([link @ .., _, _]: [u8; 8]) -> Vec<u8> {
    const STATION: [u8; 4] = [10, 0, 2, 77];
    let own_address = (services::get(Service::Address) as u32).to_le_bytes();
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend([STATION, own_address].concat());
    let mut message = vec![8, 0, 0, 0, 0, 1, 0, 1];
    for part in [&mut packet, &mut message] {
        let words = part.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let at = if part.len() == 8 { 2 } else { 10 };
        part[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    [&link[..], &link, &[8, 0], &packet, &message, &[0; 18]].concat()
}

/// Sends it again and again.
fn ping_on(door: door::Door, frame: &[u8], done: &AtomicU64) -> Option<i32> {
    let piece = Piece { address: frame.as_ptr() as u64, len: frame.len() as u64 };
    let pending = AtomicU64::new(1);
    let words = [&raw const piece as u64, &raw const pending as u64];
    let [pieces, pending] = words.map(UserAddress);
    let mut sent = 0;
    loop {
        let call = Call::NetTransmit { interface: 0, pieces, count: 1, pending };
        match libc::kernel_by(door, call, NETWORK_SLOT) {
            Ok(_) => sent += 1,
            // As many are under way as may be.
            Err(_) if sent > 0 => std::thread::yield_now(),
            Err(_) => return Some(2),
        }
        done.store(sent, Ordering::SeqCst);
    }
}
