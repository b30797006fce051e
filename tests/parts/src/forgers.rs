//! Those who say that they are others: to a socket's other end, to the file server about locks.

use crate::deputies::{ask, node_of, store};
use crate::peers::regions;
use crate::{Seen, expect, libc};
use abi::call::Call;
use abi::error::Error;
use abi::id::{DomainId, EnvId, RegionId};
use abi::published::{RegionRecord, Table};
use abi::region::{COPY_NONE, RegionOperation, WordAt};
use abi::word::UserAddress;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::attributes::Credentials;
use unix::protocol::{
    self, CLAIM, LOCK_EXCLUSIVE, LOCK_UNLOCK, Operation, Request, TRANSPORT_FRAMES,
};
use xok::services::{self, Service};

/// User and group of the peer.
const NOBODY: u32 = 65_534;
/// Where the user's capability lies.
const USER: u8 = 2;
/// Where both sides meet.
const PLACE: &str = "/tmp/forgers";
/// Words of a head in which a process, a user or a group could stand.
const WORDS: [u64; 8] = [32, 40, 48, 56, 2048 + 32, 2048 + 40, 2048 + 48, 2048 + 56];

/// Writes "process `pid` of user 0" wherever it may in the regions that came meanwhile.
fn forge(door: door::Door, known: &std::collections::BTreeSet<u64>, pid: u32) -> u64 {
    let mut done = 0;
    for &region in regions().difference(known) {
        for (offset, role) in WORDS.into_iter().flat_map(|at| [(at, 0), (at, 1)]) {
            let mut write = [WordAt::default(); 4];
            write[0] = WordAt { offset, value: if offset % 64 == 32 { pid.into() } else { 0 } };
            let operation = RegionOperation {
                region,
                writes: 1,
                direction: COPY_NONE,
                role,
                write,
                ..RegionOperation::default()
            };
            let operation = UserAddress(&raw const operation as u64);
            done += u64::from(libc::kernel(door, Call::RegionOperate { operation }).is_ok());
        }
    }
    done
}

/// The hostile side, once it has its end: it forges, says so, and waits until it was looked at.
fn hostile(door: door::Door, mut stream: UnixStream, victim: u32) -> i32 {
    let mut byte = [0];
    // All that both ends have is new since nothing was; what is another's is refused.
    let forged = forge(door, &Default::default(), victim);
    let told = stream.write_all(b"f").and_then(|()| stream.read(&mut byte));
    i32::from(told.is_err() || forged == 0)
}

/// What the victim is told of the peer that has said that it is ready.
fn look(mut stream: UnixStream) -> Option<[u32; 3]> {
    stream.read_exact(&mut [0]).ok()?;
    libc::peer_of(stream.as_raw_fd())
}

fn told(who: &str, seen: Option<[u32; 3]>, peer: i32) -> Result<(), String> {
    let status = libc::wait(peer);
    expect(status == 0, || format!("{who} ended with {status:#x}"))?;
    let right = [peer as u32, NOBODY, NOBODY];
    expect(seen == Some(right), || format!("{who} is said to be {seen:?}, not {right:?}"))
}

/// Neither a client nor a server of another user becomes user 0 by what it writes.
pub fn peers_do_not_say_who_they_are(door: door::Door) -> Seen {
    let own = std::process::id();
    let failed = |error: std::io::Error| error.to_string();
    let _ = std::fs::remove_file(PLACE);
    let listener = UnixListener::bind(PLACE).map_err(failed)?;
    libc::set_mode(PLACE, 0o777);
    let client = libc::spawn(|| match libc::become_user(NOBODY) {
        true => UnixStream::connect(PLACE).map_or(2, |stream| hostile(door, stream, own)),
        false => 3,
    });
    let seen = listener.accept().ok().and_then(|(stream, _)| look(stream));
    told("the client", seen, client)?;
    drop(listener);
    std::fs::remove_file(PLACE).map_err(failed)?;
    let (mut ready, readys) = UnixStream::pair().map_err(failed)?;
    let server = libc::spawn(|| {
        let Some(listener) = libc::become_user(NOBODY).then(|| UnixListener::bind(PLACE)) else {
            return 3;
        };
        let Ok(listener) = listener else { return 4 };
        if (&readys).write_all(b"r").is_err() {
            return 5;
        }
        listener.accept().map_or(2, |(stream, _)| hostile(door, stream, own))
    });
    ready.read_exact(&mut [0]).map_err(failed)?;
    let seen = UnixStream::connect(PLACE).ok().and_then(look);
    told("the server", seen, server)?;
    std::fs::remove_file(PLACE).map_err(failed)?;
    Ok("(both ways)".into())
}

/// Where the locked file is.
const LOCKED: &str = "/tmp/forgers-locked";

/// A region by which its domain asks the file server: one of that size to which the domain is
/// attached as its owner. A region of the domain's groups may be as large, and so may an inbox, to
/// which the server is attached so.
pub fn transport() -> Option<u32> {
    let door = door::Door::find()?;
    let own = xok::published::env_domain(EnvId(std::process::id()))?;
    regions().into_iter().find_map(|id| {
        let at = RegionId(id).index();
        let record: RegionRecord = xok::published::record(Table::Regions, at)?;
        let sized = TRANSPORT_FRAMES.contains(&(record.bytes as usize / 4096));
        let is_used = record.domain == own.0 && record.attached[0] != 0;
        let is_ours = sized && is_used && crate::deputies::look(door, id, 0, 0, 8).is_some();
        is_ours.then_some(id as u32)
    })
}

/// Gives the lock back in the name of each region that there is; how often that was done.
fn unlock_all(door: door::Door, node: u64) -> Option<usize> {
    let server = EnvId(services::get(Service::Files) as u32);
    let region = transport()?;
    let unlock = |description: u64| {
        let request = Request {
            operation: Operation::Lock,
            region,
            arguments: [node, LOCK_UNLOCK | description << 32, 0, i64::MAX as u64],
            who: Credentials::of(NOBODY, NOBODY),
        };
        loop {
            match libc::transfer(door, server, request.to_words()) {
                Err((Error::Busy, _)) => std::thread::yield_now(),
                Ok(reply) => return protocol::answer(&reply).is_ok(),
                Err(_) => return false,
            }
        }
    };
    Some(regions().into_iter().filter(|&id| unlock(id)).count())
}

/// Nobody gives back the lock of a description that it does not share.
pub fn locks_are_their_descriptions(door: door::Door) -> Seen {
    let failed = |error: std::io::Error| error.to_string();
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(LOCKED);
    let file = file.map_err(failed)?;
    file.lock().map_err(failed)?;
    let node = node_of(door, 0, LOCKED).ok_or("it has no handle")?;
    let is_free = || File::open(LOCKED).is_ok_and(|other| other.try_lock().is_ok());
    expect(!is_free(), || "it is not locked".into())?;
    let status = libc::wait(libc::spawn(|| {
        libc::close(file.as_raw_fd());
        // Asked once by its library: so it has a way to the server.
        let asked = libc::become_user(NOBODY) && std::fs::metadata(LOCKED).is_ok();
        let done = if asked { unlock_all(door, node) } else { None };
        done.map_or(2, |count| i32::from(count != 0))
    }));
    let free = is_free();
    expect(!free && status == 0, || format!("status {status:#x}, free: {free}"))?;
    // Who shares it does, whoever it is.
    let status = libc::wait(libc::spawn(|| {
        i32::from(!(libc::become_user(NOBODY) && file.unlock().is_ok()))
    }));
    expect(status == 0 && is_free(), || format!("a child can't: status {status:#x}"))?;
    std::fs::remove_file(LOCKED).map_err(failed)?;
    Ok(String::new())
}

/// How often a lock is waited for.
const ROUNDS: u64 = 8000;
/// A process that waits for a lock that is free has it within this.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until it is so; `false`: in vain.
fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    for times in 1_u32.. {
        if is_so() {
            return true;
        }
        if times.is_multiple_of(256) {
            std::thread::yield_now();
        }
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    false
}

/// A region to which the process is attached as to a description.
fn described(door: door::Door) -> Option<RegionId> {
    let make = Call::RegionAlloc { frames: UserAddress(0), count: 0 };
    let region = libc::kernel_by(door, make, USER).map(RegionId).ok()?;
    let attach = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
    libc::kernel(door, attach).ok().map(|_| region)
}

fn record_of(index: usize) -> RegionRecord {
    xok::published::record(Table::Regions, index).unwrap_or_default()
}

/// The region by which the file server tells of changes, once one process waits for them.
fn changes() -> Option<usize> {
    let server = EnvId(services::get(Service::Files) as u32);
    let domain = xok::published::env_domain(server)?.0;
    let watched = [1, 0, 0, 1];
    let is_it = |record: RegionRecord| record.domain == domain && record.attached[..4] == watched;
    (0..xok::published::table(Table::Regions).count as usize).find(|&at| is_it(record_of(at)))
}

/// Takes the lock, again and again, for a region of its own, as its library would for a
/// description's; once it is waited for, lets go of the region and has another one there.
fn hold(door: door::Door, [held, had]: [&AtomicU64; 2]) -> Option<i32> {
    let own = xok::published::env_domain(EnvId(std::process::id()))?;
    let node = node_of(door, NOBODY, LOCKED)?;
    let mut told = None;
    for round in 1..=ROUNDS {
        let region = described(door)?;
        let wanted = [node, LOCK_EXCLUSIVE | region.0 << 32, 0, i64::MAX as u64];
        let mut take = || {
            store(door, region.0, WordAt { offset: CLAIM, value: own.0 })
                && ask(door, NOBODY, Operation::Lock, wanted).is_ok_and(|[taken, ..]| taken == 0)
        };
        if !comes(&mut take) {
            return Some(2);
        }
        held.store(round, Ordering::SeqCst);
        let is_watched = |at: &mut Option<usize>| {
            *at = at.or_else(changes);
            at.is_some_and(|at| record_of(at).attached[3] != 0)
        };
        if !comes(|| is_watched(&mut told)) {
            return Some(3);
        }
        let detach = |region| libc::kernel(door, Call::RegionDetach { region, role: 0 });
        detach(region).ok()?;
        let other = described(door)?;
        let is_at_place = other.index() == region.index();
        if !comes(|| had.load(Ordering::SeqCst) == round) {
            return Some(if is_at_place { STUCK } else { 4 });
        }
        detach(other).ok()?;
    }
    Some(0)
}

/// What the holder ends with if the lock is waited for that it does not have any more.
const STUCK: i32 = 9;

/// Who waits for a description's lock has it when that has ended, also if another region is where
/// the description's was before the waiter has looked.
pub fn locks_outlive_no_holders_region(door: door::Door) -> Seen {
    let failed = |error: std::io::Error| error.to_string();
    File::create(LOCKED).map_err(failed)?;
    libc::set_mode(LOCKED, 0o666);
    let words = libc::words(libc::shared(1), 2);
    let holder = libc::spawn(|| {
        // Asked once by its library: so it has a way to the server.
        let asked = libc::become_user(NOBODY) && std::fs::metadata(LOCKED).is_ok();
        if asked { hold(door, [&words[0], &words[1]]).unwrap_or(1) } else { 1 }
    });
    let waits = libc::spawn(|| {
        let Ok(file) = OpenOptions::new().write(true).open(LOCKED) else { return 1 };
        for round in 1..=ROUNDS {
            let is_held = comes(|| words[0].load(Ordering::SeqCst) == round);
            if !is_held || file.lock().is_err() || file.unlock().is_err() {
                return 2;
            }
            words[1].store(round, Ordering::SeqCst);
        }
        0
    });
    let held = libc::wait(holder);
    if held != 0 {
        libc::send(waits, 9);
    }
    let waited = libc::wait(waits);
    std::fs::remove_file(LOCKED).map_err(failed)?;
    expect(held != STUCK << 8, || "a lock is waited for that is free".into())?;
    expect([held, waited] == [0; 2], || format!("they ended with {held:#x} and {waited:#x}"))?;
    Ok(String::new())
}
