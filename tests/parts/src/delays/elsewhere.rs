//! The file server where other clients call it from another processor, too.
//!
//! No count of instructions is at hand on several processors, so requests are counted: those of
//! another user that the server answers between a client's request and its answer. All processes
//! begin on the first processor; their further threads are at home on the second one.

use super::files::{PAUSE, PLACE, prepare};
use super::{Measured, as_user, failed};
use crate::deputies::{ANN, NOBODY};
use crate::{expect, forgers, libc};
use abi::id::EnvId;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use unix::attributes::Credentials;
use unix::protocol::{Operation, Request};
use xok::services::{self, Service};

/// Programs that ask for little, again and again, from both processors.
const ATTACKERS: usize = 3;
/// Requests of the other user's.
const ANSWERS: usize = 200;
/// Answers of a hundred that are to be in bounds: a busy host stops the guest's processors, and
/// what runs there pays for that time.
const IN_BOUNDS: usize = 70;
/// Requests that may be answered before: 8 or so are, each of 10 us; a client that loses its turn
/// waits for a thousand.
pub const BOUND: u64 = 40;

/// How many requests are answered before a client's.
pub fn all(door: door::Door) -> Measured {
    prepare()?;
    let done = libc::words(libc::shared(1), ATTACKERS);
    let attackers: Vec<i32> =
        done.iter().map(|done| libc::spawn(|| ask_on(door, done).unwrap_or(1))).collect();
    let victim = wait_for_each(done);
    for attacker in attackers {
        libc::send(attacker, 9);
        libc::wait(attacker);
    }
    let done: Vec<u64> = done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
    expect(done.iter().all(|&done| done > 1000), || format!("they have done {done:?}"))?;
    victim
}

fn wait_for_each(done: &[AtomicU64]) -> Measured {
    as_user(ANN, || {
        let file = File::create(format!("{PLACE}/ann")).map_err(failed)?;
        let sum = || done.iter().map(|done| done.load(Ordering::SeqCst)).sum::<u64>();
        let mut all = Vec::new();
        for _ in 0..ANSWERS {
            std::thread::sleep(PAUSE);
            let before = sum();
            file.write_all_at(b"x", 0).map_err(failed)?;
            all.push(sum() - before);
        }
        all.sort_unstable();
        let (at, most) = (ANSWERS * IN_BOUNDS / 100, all[ANSWERS - 1]);
        Ok(vec![(format!("requests before {at} of {ANSWERS}; {most} before one"), all[at - 1])])
    })
}

/// Asks for little, again and again without a pause, from two threads.
fn ask_on(door: door::Door, done: &AtomicU64) -> Option<i32> {
    if !libc::become_user(NOBODY) {
        return None;
    }
    // Asked once by the library: so there is a way to the server.
    fs::write(format!("{PLACE}/asks-{}", std::process::id()), "x").ok()?;
    let region = forgers::transport()?;
    let who = Credentials::of(NOBODY, NOBODY);
    let request = Request { operation: Operation::Space, region, arguments: [0; 4], who };
    let ask = || loop {
        let server = EnvId(services::get(Service::Files) as u32);
        if libc::transfer(door, server, request.to_words()).is_ok() {
            done.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(ask);
        ask()
    })
}
