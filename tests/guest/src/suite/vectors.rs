//! Vector registers and contexts that programs look after themselves.

use super::roles;
use super::sched::{counter, until, until_accepts};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::published::{CpuRecord, Table};
use abi::setup::{
    EnvSetup, FLAG_BORROW, FLAG_NO_VECTOR, FLAG_OWN_VECTOR, FLAG_SLICE_END, FLAG_SLICE_START, field,
};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;
use xok::spawn::Spawned;

fn spawn(ground: &Ground, flags: u64, role: u64, words: [u64; 6]) -> Result<Spawned, Failure> {
    let spawned = assistant::spawn(ground.image, role, words, &[])?;
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    call::env_set(OWN, spawned.env, field::FLAGS, &setup).map_err(|why| format!("{why:?}"))?;
    Ok(spawned)
}

fn end(spawned: Spawned) -> Result<u64, Failure> {
    let _ = call::env_destroy(OWN, spawned.env, 0);
    assistant::wait(spawned.env)
}

/// Sum over the processors.
fn total(counter: fn(&CpuRecord) -> u64) -> u64 {
    let cpus = published::table(Table::Cpus).count as usize;
    (0..cpus).filter_map(|cpu| published::record(Table::Cpus, cpu)).map(|cpu| counter(&cpu)).sum()
}

/// aegis95 T13, thesis98 Z-45: at the end of its slice a program finds its registers as they were,
/// none but those agreed saved; it hears of the next beginning; and its vector registers are kept
/// if it keeps them, else they are not.
pub fn own_context_switch(ground: &Ground) -> Result<String, Failure> {
    let flags = FLAG_SLICE_START | FLAG_SLICE_END | FLAG_OWN_VECTOR;
    let rival = assistant::spawn(ground.image, roles::KEEP_VECTORS, [0; 6], &[])?;
    assistant::start(rival)?;
    for saves in [1, 0] {
        let child = spawn(ground, flags, roles::SEE_ENDS, [saves, 0, 0, 0, 0, 0])?;
        let left = assistant::finish(child)?;
        expect!(left == roles::ENDING_CONTENT, "saving {saves}, it found wrong: {left:#x}");
    }
    let left = end(rival)?;
    expect!(left == 0, "the rival lost its registers by way {left}");
    Ok(String::new())
}

/// aegis95 T12: vector instructions of one that has none are faults, and registers of others are
/// kept and never seen, whatever way the processor changes hands.
pub fn none_or_kept(ground: &Ground) -> Result<String, Failure> {
    const ROUNDS: u64 = 200;
    const SWITCHES: u64 = 100;
    const WHILES: usize = 50;
    let refused = |why| format!("{why:?}");
    let last = assistant::spawn(ground.image, roles::KEEP_VECTORS, [0, 77, 0, 0, 0, 0], &[])?;
    let to_last = [last.env.0.into(), 0, 0, 0, 0, 0];
    let without = spawn(ground, FLAG_BORROW | FLAG_NO_VECTOR, roles::DO_WITHOUT_VECTORS, to_last)?;
    let to_without = [without.env.0.into(), 0, 0, 0, 0, 0];
    let first = assistant::spawn(ground.image, roles::KEEP_VECTORS, to_without, &[])?;
    let all = [last, without, first];
    for child in all {
        assistant::start(child)?;
    }
    let done = || all.iter().all(|child| counter(child.env) >= ROUNDS);
    let waited = until(|| done() || all.iter().any(|one| ended(*one)), "their rounds");
    let counts = all.map(|child| counter(child.env));
    let left = [end(last)?, end(without)?, end(first)?];
    waited?;
    expect!(left == [0; 3], "they left {left:?} after {counts:?} rounds");
    // Two that have none: nothing is stored or loaded between them.
    let two = [(); 2].map(|()| {
        let flags = FLAG_BORROW | FLAG_NO_VECTOR;
        spawn(ground, flags, roles::COUNT_AND_YIELD, [0; 6])
    });
    let [Ok(one), Ok(other)] = two else { return Err(format!("spawning: {two:?}")) };
    call::env_release(OWN, one.env).map_err(refused)?;
    call::env_release(OWN, other.env).map_err(refused)?;
    until(|| counter(one.env) > 0 && counter(other.env) > 0, "both to start")?;
    // A while in which the host let them run.
    let (mut switches, mut moves) = (0, 0);
    for _ in 0..WHILES {
        let before = (total(|cpu| cpu.switches), total(|cpu| cpu.vector_moves));
        let _ = call::sleep(now_ns() + 100_000_000, 0, 0, 0);
        let after = (total(|cpu| cpu.switches), total(|cpu| cpu.vector_moves));
        (switches, moves) = (after.0 - before.0, after.1 - before.1);
        if switches > SWITCHES {
            break;
        }
    }
    end(one)?;
    end(other)?;
    expect!(switches > SWITCHES, "{switches} switches only");
    expect!(moves <= 8, "{moves} stores and loads in {switches} switches");
    Ok(format!("(rounds {counts:?}; {switches} switches, {moves} stores and loads)"))
}

fn ended(child: Spawned) -> bool {
    published::env(child.env)
        .is_none_or(|record| record.state == abi::published::EnvState::Dead as u32)
}

/// A transfer to and from one that has none: what arrives is as after reset.
pub fn of_transfers(ground: &Ground) -> Result<String, Failure> {
    let words = [roles::SERVE_SUMS, 1, 0, 0, 0, 0];
    let flags = FLAG_BORROW | FLAG_NO_VECTOR;
    let server = spawn(ground, flags, roles::SERVE, words)?;
    assistant::start(server)?;
    until_accepts(server.env)?;
    let pattern = core::array::from_fn(|at| 0x7777_0000_1111_u64 + at as u64);
    for round in 0..50 {
        roles::set_vectors(&pattern);
        let reply = call::transfer(server.env, [round, 1, 2, 3, 4, 5]);
        let back = roles::vectors();
        expect!(reply.is_ok_and(|reply| reply[0] == round + 15), "round {round}: {reply:?}");
        expect!(back == [0; 32], "round {round}: {back:x?} came back");
        roles::set_vectors(&pattern);
        let _ = call::yield_to(abi::id::EnvId::NONE);
        expect!(roles::vectors() == pattern, "round {round}: lost at a yield");
    }
    end(server)?;
    Ok(String::new())
}
