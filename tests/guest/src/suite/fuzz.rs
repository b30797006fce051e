//! Wild words in every call: errors and faults for the caller, nothing for anyone else.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::TABLE;
use abi::published::EnvState;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::published;

/// Addresses that no call may use.
pub const WILD: [u64; 8] = [
    SCRATCH,
    0x10,
    abi::layout::PUBLISHED,
    abi::layout::DIRECT_MAP + 0x10_0000,
    abi::layout::KERNEL + 0x20_0000,
    abi::layout::OWN_TABLES,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// thesis98 Z-75: wild pointers in every pointer argument of every call.
pub fn wild_pointers(_: &Ground) -> Result<String, Failure> {
    let mut tried = 0;
    for entry in TABLE {
        for (position, (name, kind)) in entry.arguments.iter().enumerate() {
            if *kind != "UserAddress" && *name != "page" {
                continue;
            }
            for address in WILD {
                let mut words = [1; 6];
                words[position] = address;
                let outcome = roles::mirror::wild(u64::from(entry.number), words);
                tried += 1;
                expect!(outcome != Some(0), "{} took {address:#x} as its {name}", entry.name);
            }
        }
    }
    expect!(tried >= 8 * 10, "only {tried} tried");
    Ok(format!("({tried} tried)"))
}

/// Random calls from four environments on all processors, for `fuzz-seconds` (default 5).
pub fn wild_calls(ground: &Ground) -> Result<String, Failure> {
    let seconds = super::predicate::setting("fuzz-seconds=", 5);
    let seed = super::predicate::setting("fuzz-seed=", 1);
    let cpus = published::directory().cpus;
    let end = now_ns() + seconds * 1_000_000_000;
    let mut calls = 0;
    let mut lives = 0;
    let mut running = [None; 4];
    let mut counts = [0; 4];
    loop {
        let over = now_ns() >= end;
        for (number, place) in running.iter_mut().enumerate() {
            if let Some(env) = *place {
                let gone =
                    published::env(env).is_none_or(|record| record.state == EnvState::Dead as u32);
                let stuck = published::env(env).is_some_and(|record| {
                    [EnvState::Held, EnvState::Stopped, EnvState::Donating, EnvState::Sleeping]
                        .iter()
                        .any(|state| record.state == *state as u32)
                });
                // Its page goes with it.
                counts[number] = counts[number].max(super::sched::counter(env));
                if (over || stuck) && !gone {
                    // Its page goes with it; its wild calls may have written there, too.
                    calls += super::sched::counter(env).min(1 << 32);
                    let _ = call::env_destroy(OWN, env, 0);
                }
                if gone || over {
                    // It can write the page itself: any number may stand there.
                    calls = core::mem::take(&mut counts[number]).saturating_add(calls);
                    let _ = assistant::wait(env);
                    *place = None;
                }
            }
            if place.is_none() && !over {
                let words = [seed + lives, end, 0, 0, 0, 0];
                let child = assistant::spawn(ground.image, roles::FUZZ, words, &[])?;
                let cpu = (number as u32 % cpus) as u16;
                call::slice_alloc(OWN, cpu, abi::word::Which::Any, child.env)
                    .map_err(|why| format!("{why:?}"))?;
                assistant::start(child)?;
                *place = Some(child.env);
                lives += 1;
            }
        }
        if over {
            break;
        }
        let _ = call::sleep(now_ns() + 20_000_000, 0, 0, 0);
        xok::upcall::take_pending();
        xok::upcall::take_events();
    }
    expect!(calls > 1000, "only {calls} calls were made");
    Ok(format!("({calls} calls, {lives} lives, {seconds} s, seed {seed}, {cpus} processors)"))
}
