//! How long interrupts stay off: each call's worst case, counted in instructions.
//!
//! On a machine whose clock counts instructions the kernel's own figures (`longest_ns`, by call)
//! are exact. Each test provokes what is dearest for some calls, then no figure may be above the
//! bound that decisions 20 names.

use super::method::bind;
use super::roles;
use crate::assembler::{R0, R1, R2, R3, R4, R5, program};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::TABLE;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::{METHOD_SLOTS, METHOD_STEPS};
use abi::memory::*;
use abi::method::{Binding, Part};
use abi::published::*;
use abi::region::{COPY_IN, COPY_OUT, RegionOperation, WordAt};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use code::instruction::{Condition, Operand, Operation as Compute};
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space, item};
use xok::published;

/// Instructions that interrupts may be off.
pub const BOUND: u64 = 50_000;
/// What a table of level 1 spans.
const SPAN: u64 = 2 << 20;
/// Two areas of a level-2 table each, for tables to be made, shared and copied in.
const TABLES: u64 = SCRATCH + (2 << 30);
const COPIES: u64 = SCRATCH + (3 << 30);
/// Tables in each.
const COUNT: u64 = 64;

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

/// The kernel publishes at a switch; then each call's longest stretch is in bounds.
pub fn check() -> Result<String, Failure> {
    let _ = call::sleep(now_ns() + 2_000_000, 0, 0, 0);
    let mut worst = (0, "");
    for entry in TABLE {
        let longest = published::call_record(entry.number.into()).longest_ns;
        expect!(longest <= BOUND, "{}: {longest} instructions", entry.name);
        worst = worst.max((longest, entry.name));
    }
    let longest = published::record::<CpuRecord>(Table::Cpus, 0).unwrap_or_default().longest_ns;
    expect!(longest <= BOUND, "{longest} instructions outside of calls");
    expect!(worst.0 > 0, "no call has a figure: is the clock published?");
    Ok(format!("(at most {} in {}, {longest} anywhere)", worst.0, worst.1))
}

fn update(items: impl Iterator<Item = Item>) -> Result<(), Failure> {
    let items: Vec<Item> = items.collect();
    call::table_update(OWN, DomainId::NONE, &items).map(|_| ()).map_err(said)
}

fn at(area: u64, operation: Operation, level: u8, value: u64) -> impl Iterator<Item = Item> {
    (0..COUNT).map(move |table| {
        let value = if operation == Operation::Share { value + table * SPAN } else { value };
        item(operation, level, area + table * SPAN, ANY_FRAME, value)
    })
}

/// Frames that nobody has held: the kernel clears them.
fn fresh_frames(count: usize) -> Vec<u32> {
    let frames = published::table(Table::Frames).count;
    let free = |number: &u32| {
        let record = published::record::<FrameRecord>(Table::Frames, *number as usize);
        record.is_some_and(|record| record.kind == FrameType::Free as u8)
    };
    (0..frames).rev().filter(free).take(count).collect()
}

/// Fills the first table of an area with fresh frames.
fn fill() -> Result<(), Failure> {
    let fresh = fresh_frames(512);
    update(
        (0..512)
            .zip(fresh)
            .map(|(page, frame)| item(Operation::Allocate, 1, TABLES + page * 4096, frame, DATA)),
    )
}

/// Large pages folded and taken apart again: by a batch, by a page, by sharing, by revocation.
pub fn of_large_pages(_: &Ground) -> Result<String, Failure> {
    use super::large::{AREA, given_back, mapped};
    let block = mapped()?;
    let dirty = || {
        for page in 0..512 {
            crate::faults::store(AREA + page * 4096, 1);
        }
    };
    let fold = item(Operation::Fold, 2, AREA, ANY_FRAME, 0);
    let unfold = item(Operation::Unfold, 2, AREA, ANY_FRAME, 0);
    let protect = item(Operation::Protect, 1, AREA, ANY_FRAME, DATA);
    update([fold].into_iter())?;
    dirty();
    update([unfold, fold].into_iter().cycle().take(63))?;
    update([fold, protect].into_iter().cycle().take(64))?;
    check()?;
    // Each sharing finds it folded; the last one's is unmapped, and it is thawed: in a call of its
    // own, as a table is its last holder's alone only when its processors have forgotten the other.
    for table in 1..9 {
        let to = AREA + table * SPAN;
        let share = item(Operation::Share, 2, to, ANY_FRAME, AREA);
        let unmap = item(Operation::Unmap, 2, to, ANY_FRAME, 0);
        update([fold, share, unmap].into_iter())?;
        let thaw = item(Operation::Thaw, 2, AREA, ANY_FRAME, DATA & WRITABLE);
        super::sched::until(|| update([thaw].into_iter()).is_ok(), "thaw")?;
    }
    check()?;
    let any = u64::from(ANY_FRAME);
    update((1..9).map(|table| item(Operation::Table, 2, AREA + table * SPAN, ANY_FRAME, any)))?;
    for table in 1..9 {
        let all = item(Operation::Map, 1, AREA + table * SPAN, block.0, DATA);
        update([Item { more: 511, ..all }, Item { address: all.address, ..fold }].into_iter())?;
    }
    update([fold].into_iter())?;
    dirty();
    call::frame_revoke(OWN, abi::id::Frame(block.0 + 300)).map_err(said)?;
    check()?;
    given_back()?;
    check()
}

/// Batches of every operation, each item as dear as it can be.
pub fn of_table_updates(_: &Ground) -> Result<String, Failure> {
    let any = u64::from(ANY_FRAME);
    for area in [TABLES, COPIES] {
        update([item(Operation::Table, 3, area, ANY_FRAME, any)].into_iter())?;
    }
    update(at(TABLES, Operation::Table, 2, any))?;
    fill()?;
    check()?;
    // Many tables looked through for pins, then many made changeable again.
    update(at(COPIES, Operation::Share, 2, TABLES))?;
    check()?;
    update(at(TABLES, Operation::Unmap, 2, 0))?;
    let last = at(COPIES, Operation::Thaw, 2, 0).count() - 1;
    let thaw_last = || update(at(COPIES, Operation::Thaw, 2, 0).skip(last)).is_ok();
    super::sched::until(thaw_last, "thaw")?;
    update(at(COPIES, Operation::Thaw, 2, 0).take(last))?;
    check()?;
    // The full one, now the first of `COPIES`, shared by all, then copied by all.
    update(at(TABLES, Operation::Share, 2, COPIES).map(|one| Item { value: COPIES, ..one }))?;
    update(at(TABLES, Operation::Split, 2, any))?;
    check()?;
    let protects = (0..512)
        .map(|page| item(Operation::Protect, 1, TABLES + page * 4096, ANY_FRAME, NO_EXECUTE));
    update(protects)?;
    let unmaps = (0..512).map(|page| item(Operation::Unmap, 1, TABLES + page * 4096, 0, 0));
    update(unmaps)?;
    check()?;
    // Everything dies at once.
    for area in [TABLES, COPIES] {
        update([item(Operation::Unmap, 3, area, 0, 0)].into_iter())?;
    }
    check()
}

/// A frame that many entries map.
pub fn of_revocation(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(TABLES, 1, DATA).map_err(said)?;
    let frame = xok::own::frame(TABLES).ok_or("no frame")?;
    own.tables_to(TABLES + SPAN, 1).map_err(said)?;
    update(
        (0..512).map(|page| item(Operation::Map, 1, TABLES + SPAN + page * 4096, frame.0, DATA)),
    )?;
    call::frame_revoke(OWN, frame).map_err(said)?;
    update([item(Operation::Unmap, 3, TABLES, 0, 0)].into_iter())?;
    check()
}

/// Large regions, and the largest operation on them.
pub fn of_regions(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(SCRATCH, 2, DATA).map_err(said)?;
    let region = call::region_alloc(OWN, &[u32::MAX; 16]).map_err(said)?;
    call::region_attach(OWN, region, 0, DomainId::NONE).map_err(said)?;
    let words = |value| core::array::from_fn(|at| WordAt { offset: 8 * at as u64, value });
    for direction in [COPY_IN, COPY_OUT] {
        let operation = RegionOperation {
            region: region.0,
            compares: 4,
            writes: 4,
            direction,
            role: 0,
            // Neither end lies well.
            address: SCRATCH + 1001,
            offset: 4096 + 3,
            len: 4096,
            compare: words(0),
            write: words(0),
        };
        for _ in 0..3 {
            // The first ones may meet pages that are not there yet.
            call::region_operate(&operation).map_err(said)?;
        }
    }
    call::region_detach(region, 0).map_err(said)?;
    own.unmap(SCRATCH, 2).map_err(said)?;
    check()
}

/// Methods as long as they may be, of the dearest instructions; bound, called, and gone.
pub fn of_methods(_: &Ground) -> Result<String, Failure> {
    let slots = METHOD_SLOTS as u32;
    // Paths that meet, so that slots are looked at often; constants, masked accesses, divisions.
    let long = program(|a| {
        let again = a.label();
        a.set(R0, 1).set(R4, 3).place(again);
        for _ in 0..(METHOD_SLOTS - 5) / 5 {
            let on = a.label();
            a.compute(Compute::Add, R2, Operand::Register(R5));
            a.branch(Condition::Equal, R3, Operand::Immediate(5), on);
            a.store(R2, 0, Operand::Immediate(77)).place(on).load(R0, R2, 8);
            a.compute(Compute::DivideSigned, R0, Operand::Immediate(3));
        }
        a.jump(again);
    });
    let spin = program(|a| {
        let again = a.label();
        a.place(again);
        for _ in 0..40 {
            a.store(R2, 0, Operand::Register(R3)).load(R4, R1, 0);
        }
        a.compute(Compute::Add, R2, Operand::Register(R5)).jump(again);
    });
    let region = call::region_alloc(OWN, &[u32::MAX]).map_err(said)?;
    let own = Binding { roles: 1, length: 4096, ..Binding::default() };
    for method in 0..2 {
        let budget = METHOD_STEPS - slots;
        bind(region, Binding { method, budget, ..own }, &long).map_err(said)?;
    }
    let budget = METHOD_STEPS - 3 * 82;
    bind(region, Binding { method: 2, budget, ..own }, &spin).map_err(said)?;
    for part in [Part::Before, Part::After] {
        let test = Binding { method: 2, part: part as u8, ..Binding::default() };
        let refused = bind(region, test, &spin);
        expect!(refused.is_err(), "a test that stores");
    }
    call::region_attach(OWN, region, 0, DomainId::NONE).map_err(said)?;
    for method in 0..3 {
        for words in [[0, 0, 0], [0, 0, 8], [5, 0, 0]] {
            let _ = call::method_call(region, method, 0, words);
        }
    }
    call::region_detach(region, 0).map_err(said)?;
    check()
}

/// So many environments in a domain of their own.
fn crowd(
    ground: &Ground,
    account: AccountId,
    count: usize,
) -> Result<(DomainId, Vec<EnvId>), Failure> {
    let first = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    let mut envs = Vec::from([first.env]);
    for _ in 1..count {
        envs.push(call::env_alloc(OWN, first.domain, account).map_err(said)?);
    }
    Ok((first.domain, envs))
}

fn forget(envs: Vec<EnvId>) -> Result<(), Failure> {
    envs.into_iter().try_for_each(|env| assistant::wait(env).map(|_| ()))
}

/// Domains and accounts with much in them.
pub fn of_deaths(ground: &Ground) -> Result<String, Failure> {
    let (domain, envs) = crowd(ground, AccountId::NONE, 100)?;
    call::domain_destroy(OWN, domain).map_err(said)?;
    forget(envs)?;
    check()?;
    let account = abi::word::Which::Any;
    let account = call::make(
        abi::call::Call::AccountAlloc { which: account, parent: published_account() },
        OWN,
    );
    let account = AccountId(account.map_err(said)?);
    for resource in 0..abi::limits::RESOURCES as u16 {
        let limit = abi::call::Call::AccountLimit { account, resource, limit: 4096, reserve: 0 };
        call::make(limit, OWN).map_err(said)?;
    }
    for _ in 0..40 {
        call::domain_alloc(OWN, account, 0, u64::MAX).map_err(said)?;
    }
    let (domain, envs) = crowd(ground, account, 60)?;
    call::make(abi::call::Call::AccountDestroy { account }, OWN).map_err(said)?;
    call::domain_destroy(OWN, domain).map_err(said)?;
    forget(envs)?;
    check()
}

fn published_account() -> AccountId {
    let record = published::record::<AccountRecord>(Table::Accounts, 1);
    AccountId(record.unwrap_or_default().id)
}

/// The timer's counter reaches 4.3 s; time passes at once where nobody runs.
pub fn sleep_beyond_the_counter(_: &Ground) -> Result<String, Failure> {
    const NS: u64 = 10_000_000_000;
    let before = now_ns();
    let woken = call::sleep(before + NS, 0, 0, 0);
    let slept = now_ns() - before;
    expect!(
        matches!(woken, Err((abi::error::Error::TimedOut, _))),
        "woken by {woken:?} after {slept} ns"
    );
    expect!((NS..NS + 10_000_000).contains(&slept), "slept {slept} ns of {NS}");
    Ok(format!("({} us late)", (slept - NS) / 1000))
}

/// Whatever random calls find.
pub fn of_wild_calls(ground: &Ground) -> Result<String, Failure> {
    super::fuzz::wild_calls(ground)?;
    check()
}
