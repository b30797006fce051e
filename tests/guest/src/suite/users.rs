//! Users and processors that run ahead: who is taken, and what happens between their turns.
//!
//! The machine says by its command line what is done there (`mitigations=`, `kernel/src/mitigate`).

use super::roles::{self, SERVE_SUMS};
use super::sched::until_accepts;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use abi::call::Call;
use abi::error::Error;
use abi::id::AccountId;
use abi::limits::RESOURCES;
use abi::published::{AccountRecord, COMMAND_LINE, CpuRecord, FEATURE_USERS, Table};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::published;

/// Transfers there and back.
const ROUNDS: u64 = 200;

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

fn first_account() -> AccountId {
    AccountId(published::record::<AccountRecord>(Table::Accounts, 1).unwrap_or_default().id)
}

/// An account below the first, which may have some of everything.
fn make_account() -> Result<AccountId, Refused> {
    let make = Call::AccountAlloc { which: Which::Any, parent: first_account() };
    let account = AccountId(call::make(make, OWN)?);
    for resource in 0..RESOURCES as u16 {
        call::make(Call::AccountLimit { account, resource, limit: 10_000, reserve: 0 }, OWN)?;
    }
    Ok(account)
}

fn command_line_has(word: &str) -> bool {
    let mut buffer = [0; COMMAND_LINE];
    let line = published::command_line(&mut buffer);
    line.split(|&byte| byte == b' ').any(|found| found == word.as_bytes())
}

/// A processor that keeps no two users apart takes no second account; others do, and so does one
/// whose owner says that it may.
pub fn are_taken_or_not(_: &Ground) -> Result<String, Failure> {
    let taken = published::directory().features & FEATURE_USERS != 0;
    expect!(taken != command_line_has("model=open"), "taken: {taken}");
    match make_account() {
        Ok(account) => {
            expect!(taken, "an account was made on a processor that is left open");
            call::make(Call::AccountDestroy { account }, OWN).map_err(said)?;
            let gone = || {
                let record = published::record::<AccountRecord>(Table::Accounts, account.index());
                record.is_none_or(|record| record.id != account.0)
            };
            super::sched::until(gone, "the account to end")?;
            Ok(String::from("(taken)"))
        }
        Err((error, _)) => {
            expect!(!taken && error == Error::NotPresent, "{error:?}, taken: {taken}");
            Ok(String::from("(refused)"))
        }
    }
}

fn barriers() -> u64 {
    let record = |cpu| published::record::<CpuRecord>(Table::Cpus, cpu).unwrap_or_default();
    let cpus = published::table(Table::Cpus).count as usize;
    (0..cpus).map(|cpu| u64::from(record(cpu).barriers)).sum()
}

/// Transfers to a server of this account and back: barriers meanwhile, and switches by short ways.
fn transfers(ground: &Ground, account: AccountId) -> Result<(u64, u64), Failure> {
    let words = [SERVE_SUMS, 0, 0, 0, 0, 0];
    let server = assistant::spawn_paid_by(account, ground.image, roles::SERVE, words, &[])?;
    assistant::start(server)?;
    until_accepts(server.env)?;
    settle();
    let before = (barriers(), short_ways());
    for _ in 0..ROUNDS {
        call::transfer(server.env, [0; 6]).map_err(said)?;
    }
    settle();
    let done = (barriers() - before.0, short_ways() - before.1);
    call::env_destroy(OWN, server.env, 0).map_err(said)?;
    assistant::wait(server.env)?;
    Ok(done)
}

fn short_ways() -> u64 {
    let record = |cpu| published::record::<CpuRecord>(Table::Cpus, cpu).unwrap_or_default();
    (0..published::table(Table::Cpus).count as usize).map(|cpu| record(cpu).short_ways).sum()
}

/// Has processors publish what they have counted: they do when they switch.
fn settle() {
    for _ in 0..3 {
        let _ = call::sleep(now_ns() + 5_000_000, 0, 0, 0);
    }
}

/// Where predictors are to forget between users, they do at each switch to another one's domain,
/// by whatever way; within a user never. Elsewhere nothing is done.
pub fn have_barriers_between_them(ground: &Ground) -> Result<String, Failure> {
    if published::directory().features & FEATURE_USERS == 0 {
        return Ok(String::from("(there is one user only)"));
    }
    let guarded = command_line_has("mitigations=all");
    let (own, short) = transfers(ground, AccountId::NONE)?;
    expect!(own == 0, "{own} barriers within a user");
    let account = make_account().map_err(said)?;
    let (other, between) = transfers(ground, account)?;
    call::make(Call::AccountDestroy { account }, OWN).map_err(said)?;
    let gone = || {
        let record = published::record::<AccountRecord>(Table::Accounts, account.index());
        record.is_none_or(|record| record.id != account.0)
    };
    super::sched::until(gone, "the account to end")?;
    let needed = if guarded { 2 * ROUNDS } else { 0 };
    expect!(other >= needed && (guarded || other == 0), "{other} barriers, {needed} are needed");
    expect!(between >= ROUNDS, "{between} switches by short ways");
    Ok(format!("({other} barriers; {short} and {between} switches by short ways)"))
}
