//! Lives and deaths: hold, release, destroy; registers kept; nothing left behind.

use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::published::EnvState;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

/// Whatever it does, an environment can be held, released and destroyed.
pub fn hold_release_destroy(ground: &Ground) -> Result<String, Failure> {
    let child = assistant::spawn(ground.image, roles::SPIN, [1, 0, 0, 0, 0, 0], &[])?;
    if published::directory().cpus > 1 {
        call::slice_alloc(OWN, 1, abi::word::Which::Any, child.env)
            .map_err(|why| format!("{why:?}"))?;
    }
    assistant::start(child)?;
    until(|| counter(child.env) > 1000, "it to run")?;
    call::env_hold(OWN, child.env).map_err(|why| format!("{why:?}"))?;
    let state = || published::env(child.env).map_or(0, |record| record.state);
    until(|| state() == EnvState::Held as u32, "it to be held")?;
    let before = counter(child.env);
    let _ = call::sleep(now_ns() + 50_000_000, 0, 0, 0);
    expect!(counter(child.env) == before, "held, and it runs");
    call::env_release(OWN, child.env).map_err(|why| format!("{why:?}"))?;
    until(|| counter(child.env) > before, "it to go on")?;
    call::env_destroy(OWN, child.env, 0x1234).map_err(|why| format!("{why:?}"))?;
    let word = assistant::wait(child.env)?;
    expect!(word == 0x1234, "it left {word:#x}");
    expect!(call::env_hold(OWN, child.env).is_err(), "the dead can be held");
    Ok(String::new())
}

/// l4stack 5: callee-saved registers survive blocking calls under preemption.
pub fn registers_across_calls(ground: &Ground) -> Result<String, Failure> {
    let rival = assistant::spawn(ground.image, roles::SPIN, [0; 6], &[])?;
    assistant::start(rival)?;
    let mut wrong = 0;
    for round in 0..50_u64 {
        let deadline = now_ns() + 200_000;
        wrong |= roles::mirror::across_call(abi::call::number::Sleep.into(), deadline, round);
        wrong |= roles::mirror::across_call(abi::call::number::Yield.into(), 0, round);
    }
    call::env_destroy(OWN, rival.env, 0).map_err(|why| format!("{why:?}"))?;
    assistant::wait(rival.env)?;
    expect!(wrong == 0, "changed, by bit: {wrong:#x}");
    Ok(String::new())
}

/// l4stack 4: a fault of the kernel's on user memory, with canaries in every register.
pub fn registers_across_user_fault(_: &Ground) -> Result<String, Failure> {
    for number in [
        abi::call::number::RegionOperate,
        abi::call::number::PredicateSet,
        abi::call::number::TableUpdate,
        abi::call::number::EnvSet,
        abi::call::number::FilterInsert,
        abi::call::number::ConsoleWrite,
    ] {
        let wrong = roles::mirror::across_faulting_call(u64::from(number), SCRATCH + 0x1000);
        expect!(wrong == 0, "call {number} changed registers, by bit: {wrong:#x}");
    }
    Ok(String::new())
}

/// l4stack 20: death in each state leaves nothing (the judge compares the counts).
pub fn deaths_leave_nothing(ground: &Ground) -> Result<String, Failure> {
    let word = published::application_page(1).ok_or("no page")? + 0x818;
    let roles = [
        (roles::SPIN, [0; 6]),
        (roles::SLEEP, [0; 6]),
        (roles::SLEEP_UNTIL_WORD, [word, u64::MAX, 0, 0, 0, 0]),
        (roles::SERVE, [roles::SERVE_SUMS, 1, 0, 0, 0, 0]),
        (roles::HOLD_SELF, [0; 6]),
        (roles::FAULT_WITHOUT_HANDLER, [0; 6]),
        (roles::HOLD_REGIONS, [0; 6]),
    ];
    for (role, words) in roles {
        let child = assistant::spawn(ground.image, role, words, &[])?;
        let unborn = assistant::spawn(ground.image, role, words, &[])?;
        call::domain_destroy(OWN, unborn.domain)
            .map_err(|why| format!("unborn {role}: {why:?}"))?;
        let _ = assistant::wait(unborn.env);
        assistant::start(child)?;
        let _ = call::sleep(now_ns() + 20_000_000, 0, 0, 0);
        let _ = call::env_destroy(OWN, child.env, 0);
        assistant::wait(child.env).map_err(|why| format!("role {role}: {why}"))?;
    }
    Ok(String::new())
}
