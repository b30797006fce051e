//! The queue of events, and the end of a slice that waits for a critical section.

use super::roles;
use super::sched::{counter, until};
use super::slices::{FIRST, LATE_NS, end, give, watch};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::limits::SLICE_NS;
use abi::published::{EnvRecord, Table};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::published;

/// How long the end of a slice waits, nanoseconds.
const CRITICAL_NS: u64 = 100_000;

/// thesis98 Z-68: what is too much for the queue is counted, and nothing that was in it is lost.
pub fn queue_overflows(ground: &Ground) -> Result<String, Failure> {
    let own = published::record::<EnvRecord>(Table::Envs, 1).unwrap_or_default();
    let words = [own.id.into(), 0, 0, 0, 0, 0];
    let child = assistant::spawn(ground.image, roles::READ_QUEUE, words, &[])?;
    assistant::start(child)?;
    let post = |bits| call::post(OWN, child.env, bits).map_err(|why| format!("post: {why:?}"));
    until(|| counter(child.env) == 1, "its queue")?;
    for bit in 0..abi::queue::ENTRIES as u64 + roles::TOO_MANY {
        post(1 << bit)?;
    }
    let gone = || published::env(child.env).is_none_or(|record| record.word != 0);
    until(|| counter(child.env) == 2 || gone(), "it to read")?;
    post(roles::LAST)?;
    let left = assistant::wait(child.env)?;
    expect!(left == roles::QUEUE_CONTENT, "it left {left:#x}");
    Ok(String::new())
}

/// xok97 T20, thesis98 Z-53: who is killed in its critical section, or never leaves it, stops
/// nobody, and others go on in theirs.
pub fn critical_sections_die(ground: &Ground) -> Result<String, Failure> {
    const COUNT: u64 = 3;
    let stays = assistant::spawn(ground.image, roles::STAY_IN_SECTION, [0; 6], &[])?;
    let works = [20_000, 0, 0, 0, 0, 0];
    let works = assistant::spawn(ground.image, roles::WORK_IN_SECTIONS, works, &[])?;
    assistant::start(stays)?;
    assistant::start(works)?;
    until(|| counter(stays.env) == 1, "it to be inside")?;
    until(|| counter(works.env) >= COUNT, "the other to leave in time, beside it")?;
    end(stays.env)?;
    let before = counter(works.env);
    until(|| counter(works.env) >= before + COUNT, "the other to go on")?;
    // One's own section, while the other works in its.
    drop(xok::critical::Critical::enter());
    end(works.env)?;
    Ok(String::new())
}

/// The end waits for a section that is short, is forced on one that is not, and is paid for.
pub fn critical_sections_are_paid(ground: &Ground) -> Result<String, Failure> {
    const SHORT: u64 = 40_000;
    for length in [SHORT, u64::MAX] {
        let words = [length, 0, 0, 0, 0, 0];
        let works = assistant::spawn(ground.image, roles::WORK_IN_SECTIONS, words, &[])?;
        let rival = assistant::spawn(ground.image, roles::HOG, [0; 6], &[])?;
        give(works.env, [FIRST])?;
        give(rival.env, [FIRST + 1])?;
        assistant::start(works)?;
        assistant::start(rival)?;
        let runs = watch(14)?;
        let seen = counter(works.env);
        end(works.env)?;
        end(rival.env)?;
        let of = |env| -> Vec<u64> {
            runs.iter().filter(|run| run.env == env).map(|run| run.length()).collect()
        };
        let (inside, beside) = (of(works.env), of(rival.env));
        expect!(inside.len() >= 5 && beside.len() >= 5, "{runs:?}");
        let most = SLICE_NS + if length == SHORT { SHORT } else { CRITICAL_NS } + LATE_NS / 10;
        let longest = inside.iter().copied().max().unwrap_or(0);
        expect!(longest <= most, "{longest} ns at once, sections of {length}: {inside:?}");
        // Each end that waited costs 100 us of the slice that follows.
        let mean = inside.iter().sum::<u64>() / inside.len() as u64;
        expect!(mean <= SLICE_NS + LATE_NS / 10, "{mean} ns in the mean: {inside:?}");
        let told = length != SHORT || seen >= 3;
        expect!(told, "it was told of {seen} ends only: {inside:?}");
        let whole = beside.iter().all(|&run| run.abs_diff(SLICE_NS) <= LATE_NS);
        expect!(whole, "the rival's slices: {beside:?}");
    }
    Ok(String::new())
}
