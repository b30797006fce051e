//! Processor time: directed yield, positions, start and end of slices.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground};
use abi::error::Error;
use abi::id::EnvId;
use abi::limits::SLICES;
use abi::published::{EnvRecord, SliceRecord, Table};
use abi::setup::{EnvSetup, FLAG_BORROW, FLAG_SLICE_END, FLAG_SLICE_START, field};
use abi::upcall::{EVENT_SLICE_END, EVENT_SLICE_START};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

/// Yields until `holds`, for ten seconds at most.
pub fn until(mut holds: impl FnMut() -> bool, what: &str) -> Result<(), Failure> {
    let deadline = now_ns() + 10_000_000_000;
    while !holds() {
        if now_ns() > deadline {
            return Err(format!("waited in vain for {what}"));
        }
        let _ = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
    }
    Ok(())
}

/// Yields until a server that takes any message accepts: from saying so to that it takes a call.
pub fn until_accepts(server: EnvId) -> Result<(), Failure> {
    until(|| call::transfer(server, [0; 6]).is_ok(), "the server to accept")
}

/// The first word of an environment's application page.
pub fn counter(env: EnvId) -> u64 {
    published::application_word(env.index(), 0).unwrap_or(0)
}

fn record(env: EnvId) -> EnvRecord {
    published::env(env).unwrap_or_default()
}

/// aegis95 T16, thesis98 Z-46: with C runnable, `Yield(B)` runs B.
pub fn yield_directed(ground: &Ground) -> Result<String, Failure> {
    const ROUNDS: u64 = 1000;
    let b = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [1, 0, 0, 0, 0, 0], &[])?;
    let c = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [1, 0, 0, 0, 0, 0], &[])?;
    assistant::start(b)?;
    assistant::start(c)?;
    until(|| counter(b.env) > 0 && counter(c.env) > 0, "both to start")?;
    let (b_before, c_before) = (counter(b.env), counter(c.env));
    let mut missed = 0;
    for _ in 0..ROUNDS {
        let before = counter(b.env);
        call::yield_to(b.env).map_err(|why| format!("{why:?}"))?;
        missed += u64::from(counter(b.env) == before);
    }
    let (b_ran, c_ran) = (counter(b.env) - b_before, counter(c.env) - c_before);
    for child in [b, c] {
        call::env_destroy(OWN, child.env, 0).map_err(|why| format!("{why:?}"))?;
        assistant::wait(child.env)?;
    }
    let dead = call::yield_to(b.env);
    expect!(matches!(dead, Err((Error::NoSuchEnv, _))), "yield to the dead: {dead:?}");
    // A slice may end between the yield and B's first instruction.
    expect!(missed * 100 <= ROUNDS, "B did not run in {missed} of {ROUNDS} yields to it");
    expect!(c_ran * 10 < b_ran, "B ran {b_ran} times, C {c_ran}");
    Ok(format!("(B {b_ran}, C {c_ran})"))
}

/// A position taken is refused; one asked for is the one given (aegis95 T15's first half).
pub fn slice_positions(ground: &Ground) -> Result<String, Failure> {
    let child = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    let free = |position: usize| {
        published::record::<SliceRecord>(Table::Slices, position)
            .is_some_and(|slice| slice.env == 0)
    };
    let position = (0..SLICES).rev().find(|&at| free(at)).ok_or("no free position")? as u32;
    let got = call::slice_alloc(OWN, 0, Which::This(position), child.env)
        .map_err(|why| format!("{why:?}"))?;
    expect!(got == u64::from(position), "asked for {position}, got {got}");
    let again = call::slice_alloc(OWN, 0, Which::This(position), child.env);
    expect!(matches!(again, Err((Error::Taken, _))), "the second time: {again:?}");
    let beyond = call::slice_alloc(OWN, 0, Which::This(SLICES as u32), child.env);
    expect!(beyond.is_err(), "beyond the vector: {beyond:?}");
    call::slice_free(OWN, 0, position).map_err(|why| format!("{why:?}"))?;
    expect!(free(position as usize), "freed, and still taken");
    call::env_destroy(OWN, child.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(child.env)?;
    Ok(String::new())
}

fn set_flags(flags: u64) -> Result<(), Failure> {
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup).map_err(|why| format!("{why:?}"))?;
    Ok(())
}

/// xok97 T36: the program hears of the start and the end of its slices.
pub fn slice_events(ground: &Ground) -> Result<String, Failure> {
    let rival = assistant::spawn(ground.image, roles::SPIN, [0; 6], &[])?;
    assistant::start(rival)?;
    set_flags(FLAG_SLICE_START | FLAG_SLICE_END)?;
    faults::forget_bits();
    let before = faults::seen().events;
    let deadline = now_ns() + 10_000_000_000;
    let mut ends = 0;
    while ends < 5 && now_ns() < deadline {
        // The handler counts; what it tells us of an end is answered as agreed: by a yield.
        if faults::seen().event_bits & EVENT_SLICE_END != 0 {
            ends += 1;
            let bits = faults::seen().event_bits;
            faults::forget_bits();
            let _ = call::yield_to(EnvId::NONE);
            if bits & EVENT_SLICE_START == 0 && ends > 1 {
                break;
            }
        }
    }
    set_flags(FLAG_BORROW)?;
    let events = faults::seen().events - before;
    call::env_destroy(OWN, rival.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(rival.env)?;
    xok::upcall::take_events();
    expect!(ends >= 5, "{ends} slice ends with a start before each, {events} events in all");
    Ok(format!("({events} events)"))
}

/// xok97 T36: two environments scheduled as a gang by directed yield alone.
pub fn gang_of_two(ground: &Ground) -> Result<String, Failure> {
    const ROUNDS: u64 = 200;
    let first = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [1, 0, 0, 0, 0, 0], &[])?;
    let second = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [1, 0, 0, 0, 0, 0], &[])?;
    let other = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [1, 0, 0, 0, 0, 0], &[])?;
    let all = [first, second, other];
    for child in all {
        assistant::start(child)?;
    }
    until(|| all.iter().all(|child| counter(child.env) > 0), "all to start")?;
    let others = counter(other.env);
    let before = (counter(first.env), counter(second.env), record(first.env).switches);
    for _ in 0..ROUNDS {
        call::yield_to(first.env).map_err(|why| format!("{why:?}"))?;
        call::yield_to(second.env).map_err(|why| format!("{why:?}"))?;
    }
    let ran = (counter(first.env) - before.0, counter(second.env) - before.1);
    let others = counter(other.env) - others;
    for child in all {
        call::env_destroy(OWN, child.env, 0).map_err(|why| format!("{why:?}"))?;
        assistant::wait(child.env)?;
    }
    expect!((ran.0 + ran.1) * 100 >= 198 * ROUNDS, "they ran {ran:?} times in {ROUNDS} rounds");
    let apart = ran.0.abs_diff(ran.1);
    expect!(apart <= ROUNDS / 10, "out of step: {ran:?}");
    // A slice may end in between: then it is whoever's turn it is.
    expect!(others <= ROUNDS / 10, "a third, which nobody yields to, ran {others} times");
    Ok(format!("{ran:?}"))
}
