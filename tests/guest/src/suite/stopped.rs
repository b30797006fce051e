//! A crowd that stops where it would go on: each environment does so in a hold of its own.
//!
//! # Safety
//! The naked function uses no stack and never comes back; only environments without handlers run
//! it.
#![allow(unsafe_code)]

use super::stretch::check;
use crate::judge::{Failure, Ground};
use abi::id::{AccountId, DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, Table};
use abi::setup::{EnvSetup, field};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::published;

/// More than would stop within the bound in one hold.
const COUNT: usize = 300;

/// Goes on in the kernel's half, where no handler takes the fault.
#[unsafe(naked)]
extern "C" fn away() -> ! {
    core::arch::naked_asm!("mov rax, 0xffff800000000000", "jmp rax")
}

fn has_stopped(env: EnvId) -> bool {
    let record = published::record::<EnvRecord>(Table::Envs, env.index()).unwrap_or_default();
    record.state == EnvState::Stopped as u32
}

/// Environments without handlers, each of which stops as soon as it is chosen.
pub fn of_crowds_that_stop(_: &Ground) -> Result<String, Failure> {
    let said = |refused: Refused| format!("{refused:?}");
    let setup = EnvSetup { rip: away as *const () as u64, ..EnvSetup::default() };
    let mut envs = Vec::new();
    for _ in 0..COUNT {
        let env = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE).map_err(said)?;
        call::env_set(OWN, env, field::RIP, &setup).map_err(said)?;
        envs.push(env);
    }
    // The first time each runs; then all are chosen one behind the other.
    for _ in 0..2 {
        for &env in &envs {
            call::env_release(OWN, env).map_err(said)?;
        }
        while !envs.iter().all(|&env| has_stopped(env)) {
            let _ = call::sleep(now_ns() + 2_000_000, 0, 0, 0);
        }
    }
    let said_by = check()?;
    for env in envs {
        call::env_destroy(OWN, env, 0).map_err(said)?;
        call::env_forget(env).map_err(said)?;
    }
    Ok(said_by)
}
