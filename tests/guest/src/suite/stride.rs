//! A scheduler that is a program: shares of three to two to one, beside two hogs.

use super::predicate::setting;
use super::roles;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::setup::{EnvSetup, FLAG_GIVEN_TIME, field};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;
use xok::spawn::Spawned;
use xok::stride::Stride;

const TICKETS: [u32; 3] = [3, 2, 1];
/// Turns of the scheduler's beside its home.
const TURNS: u64 = 3;
/// Of all that the clients ran, at most this part may be in the wrong place.
const WRONG: u64 = 100;
/// Slices run that the shares may be off by, which counts when the test is short.
const SLICES_OFF: u64 = 2;
/// How long the scheduler sleeps in the end, in nanoseconds: some rounds of slices.
const QUIET: u64 = 200_000_000;
/// How often progress is told, if it is asked for.
const SAMPLES: u64 = 50;

fn refused(why: call::Refused) -> Failure {
    format!("{why:?}")
}

fn spin(ground: &Ground) -> Result<Spawned, Failure> {
    assistant::spawn(ground.image, roles::SPIN, [0; 6], &[])
}

/// aegis95 T33, thesis98 Z-50: 3 : 2 : 1 by a scheduler without any right, two hogs outside its
/// slices. `stride-ms=` says how long, `stride-samples=1` that progress is to be told.
pub fn three_to_two_to_one(ground: &Ground) -> Result<String, Failure> {
    let length = setting("stride-ms=", 1_000) * 1_000_000;
    let tells = setting("stride-samples=", 0) == 1;
    let clients = [spin(ground)?, spin(ground)?, spin(ground)?];
    let hogs = [spin(ground)?, spin(ground)?];
    let mut stride = Stride::default();
    for (client, tickets) in clients.iter().zip(TICKETS) {
        let setup = EnvSetup { flags: FLAG_GIVEN_TIME, ..EnvSetup::default() };
        call::env_set(OWN, client.env, field::FLAGS, &setup).map_err(refused)?;
        stride.add(client.env, tickets);
    }
    for hog in hogs {
        call::slice_alloc(OWN, 0, Which::Any, hog.env).map_err(refused)?;
    }
    let own = published::env(abi::id::EnvId(1)).ok_or("no record of one's own")?;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let env = abi::id::EnvId(own.id);
        turns.push(call::slice_alloc(OWN, 0, Which::Any, env).map_err(refused)? as u32);
    }
    for spawned in clients.iter().chain(&hogs) {
        assistant::start(*spawned)?;
    }
    let ran = |of: &Spawned| published::env(of.env).map_or(0, |record| record.run_ns);
    let begun = now_ns();
    let mut told = 0;
    loop {
        let passed = now_ns() - begun;
        if tells && passed >= told * (length / SAMPLES) {
            told += 1;
            let [a, b, c] = clients.each_ref().map(ran);
            xok::log!(OWN, "stride {} {a} {b} {c}", passed / 1000);
        }
        if passed >= length {
            break;
        }
        expect!(stride.slice().is_some(), "nobody can run");
    }
    let times = clients.each_ref().map(ran);
    let hogged = hogs.each_ref().map(ran);
    // While the scheduler gives nothing, they have nothing.
    let _ = call::sleep(now_ns() + QUIET, 0, 0, 0);
    let later = clients.each_ref().map(ran);
    for spawned in clients.iter().chain(&hogs) {
        call::env_destroy(OWN, spawned.env, 0).map_err(refused)?;
        assistant::wait(spawned.env)?;
    }
    for turn in turns {
        call::slice_free(OWN, 0, turn).map_err(refused)?;
    }
    let all: u64 = times.iter().sum();
    let whole: u64 = TICKETS.iter().map(|&tickets| u64::from(tickets)).sum();
    let bound = (all / WRONG).max(SLICES_OFF * abi::limits::SLICE_NS);
    for (time, tickets) in times.iter().zip(TICKETS) {
        let due = all * u64::from(tickets) / whole;
        expect!(time.abs_diff(due) <= bound, "{times:?}: {time} ns where {due} are due");
    }
    expect!(later == times, "they ran by themselves: {times:?}, then {later:?}");
    expect!(hogged.iter().all(|&ran| ran > 0), "a hog stood still: {hogged:?}");
    expect!(all > length / 10, "the clients ran {all} ns of {length}");
    Ok(format!("({:?} us, hogs {:?})", times.map(|ns| ns / 1000), hogged.map(|ns| ns / 1000)))
}
