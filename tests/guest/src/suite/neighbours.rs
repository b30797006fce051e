//! Beside one that destroys as much as it can a program has what it has beside one that computes.

use super::roles;
use super::sched::until;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::Call;
use abi::id::{AccountId, DomainId};
use abi::limits::RESOURCES;
use abi::memory::Operation;
use abi::published::{AccountRecord, Table};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space, item};
use xok::published;

/// How long calls are counted, and how long the other one runs before.
const LONG: u64 = 200_000_000;
const BEFORE: u64 = 20_000_000;
/// Pages that are destroyed at once, in tables of their own.
const PAGES: u64 = 2_000;
/// Where: a gibibyte that holds nothing else.
const AREA: u64 = SCRATCH + (64 << 30);

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

/// Makes much, destroys it, and lets others run, for ever. Where nothing is left of its limits, as
/// its account has not yet worked off what it has destroyed, it tries again.
pub fn destroy() -> ! {
    let mut own = Space::own();
    loop {
        let _ = own.allocate(AREA, PAGES, DATA);
        let unmap = item(Operation::Unmap, 3, AREA, 0, 0);
        let _ = call::table_update(OWN, DomainId::NONE, &[unmap]);
        let _ = call::yield_to(abi::id::EnvId::NONE);
    }
}

/// Calls that one makes beside an assistant of another account.
fn calls_beside(ground: &Ground, account: AccountId, role: u64) -> Result<u64, Failure> {
    let other = assistant::spawn_paid_by(account, ground.image, role, [0; 6], &[])?;
    assistant::start(other)?;
    let _ = call::sleep(now_ns() + BEFORE, 0, 0, 0);
    let (began, mut calls) = (now_ns(), 0);
    while now_ns() < began + LONG {
        call::timer_set(0).map_err(said)?;
        calls += 1;
    }
    let ran = published::env(other.env).map_or(0, |record| record.run_ns);
    expect!(ran > 0, "it did not run");
    call::env_destroy(OWN, other.env, 0).map_err(said)?;
    let word = assistant::wait(other.env)?;
    expect!(word == 0, "it ended by itself: {word}");
    Ok(calls)
}

/// sec_steal: who is beside it makes as many calls.
pub fn destruction_costs_its_causer(ground: &Ground) -> Result<String, Failure> {
    let first = published::record::<AccountRecord>(Table::Accounts, 1).unwrap_or_default().id;
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(first) };
    let account = AccountId(call::make(make, OWN).map_err(said)?);
    for resource in 0..RESOURCES as u16 {
        let limit = Call::AccountLimit { account, resource, limit: 10_000, reserve: 0 };
        call::make(limit, OWN).map_err(said)?;
    }
    let computes = calls_beside(ground, account, roles::SPIN)?;
    let destroys = calls_beside(ground, account, roles::DESTROY)?;
    call::make(Call::AccountDestroy { account }, OWN).map_err(said)?;
    let gone = || {
        let record = published::record::<AccountRecord>(Table::Accounts, account.index());
        record.is_none_or(|record| record.id != account.0)
    };
    until(gone, "the account to end")?;
    expect!(
        destroys * 100 >= computes * 97,
        "{destroys} calls beside one that destroys, {computes} beside one that computes"
    );
    Ok(format!("({computes} calls beside one that computes, {destroys} beside one that destroys)"))
}
