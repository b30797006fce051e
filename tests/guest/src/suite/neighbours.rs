//! Beside one that destroys as much as it can a program has what it has beside one that computes.

use super::roles;
use super::sched::until;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::Call;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::RESOURCES;
use abi::memory::Operation;
use abi::published::{AccountRecord, Table};
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use core::fmt;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space, item};
use xok::published;

/// How long calls are counted, and how long the other one runs before.
const LONG: u64 = 200_000_000;
const BEFORE: u64 = 20_000_000;
/// An environment that there is not.
const GONE: EnvId = EnvId(0x3fff_ffff);
/// Pages that are destroyed at once, in tables of their own.
const PAGES: u64 = 6_000;
/// Where: a gibibyte that holds nothing else.
const AREA: u64 = SCRATCH + (64 << 30);

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

/// Makes much, destroys it, and lets others run if it is so `kind`, for ever. Where nothing is left
/// of its limits, as its account has not yet worked off what it has destroyed, it tries again.
pub fn destroy(kind: bool) -> ! {
    let mut own = Space::own();
    loop {
        let _ = own.allocate(AREA, PAGES, DATA);
        let unmap = item(Operation::Unmap, 3, AREA, 0, 0);
        let _ = call::table_update(OWN, DomainId::NONE, &[unmap]);
        if kind {
            let _ = call::yield_to(EnvId::NONE);
        }
    }
}

/// Calls that were made, and what they took of one's own time.
struct Made {
    calls: u64,
    own_ns: u64,
}

impl Made {
    fn call_ns(&self) -> u64 {
        self.own_ns / self.calls.max(1)
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls of {} ns", self.calls, self.call_ns())
    }
}

/// What one has run.
fn ran(env: EnvId) -> u64 {
    published::env(env).map_or(0, |record| record.run_ns)
}

/// Makes calls beside an assistant of another account.
fn calls_beside(
    ground: &Ground,
    account: AccountId,
    role: u64,
    kind: bool,
) -> Result<Made, Failure> {
    let words = [u64::from(kind), 0, 0, 0, 0, 0];
    let other = assistant::spawn_paid_by(account, ground.image, role, words, &[])?;
    assistant::start(other)?;
    let _ = call::sleep(now_ns() + BEFORE, 0, 0, 0);
    // A turn of one's own begins and ends the count: until then the record has what was run.
    let own = super::trace::own();
    let (began, ran_before, mut calls) = (now_ns(), ran(own), 0);
    while now_ns() < began + LONG {
        call::timer_set(0).map_err(said)?;
        // Refused, and by the long way out.
        let _ = call::env_release(OWN, GONE);
        calls += 2;
    }
    let _ = call::yield_to(EnvId::NONE);
    let own_ns = ran(own) - ran_before;
    expect!(ran(other.env) > 0, "it did not run");
    call::env_destroy(OWN, other.env, 0).map_err(said)?;
    let word = assistant::wait(other.env)?;
    expect!(word == 0, "it ended by itself: {word}");
    Ok(Made { calls, own_ns })
}

/// sec_steal: who is beside it makes as many calls, and none of them takes longer.
pub fn destruction_costs_its_causer(ground: &Ground) -> Result<String, Failure> {
    let first = published::record::<AccountRecord>(Table::Accounts, 1).unwrap_or_default().id;
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(first) };
    let account = AccountId(call::make(make, OWN).map_err(said)?);
    for resource in 0..RESOURCES as u16 {
        let limit = Call::AccountLimit { account, resource, limit: 10_000, reserve: 0 };
        call::make(limit, OWN).map_err(said)?;
    }
    let computes = calls_beside(ground, account, roles::SPIN, false)?;
    let mut all = format!("beside one that computes {computes}");
    for kind in [false, true] {
        let destroys = calls_beside(ground, account, roles::DESTROY, kind)?;
        let yields = if kind { " and yields" } else { "" };
        all.push_str(&format!(", beside one that destroys{yields} {destroys}"));
        let as_many = destroys.calls * 100 >= computes.calls * 97;
        expect!(as_many && destroys.call_ns() * 100 <= computes.call_ns() * 103, "{all}");
    }
    call::make(Call::AccountDestroy { account }, OWN).map_err(said)?;
    let gone = || {
        let record = published::record::<AccountRecord>(Table::Accounts, account.index());
        record.is_none_or(|record| record.id != account.0)
    };
    until(gone, "the account to end")?;
    // The destroyer was charged to an account below the first, whose charges go further.
    let stretches = super::stretch::check()?;
    Ok(format!("({all}; {stretches})"))
}
