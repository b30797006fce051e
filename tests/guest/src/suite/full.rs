//! How long interrupts stay off when somebody has filled tables, counted in instructions.
//!
//! As in [`super::stretch`]: what is dearest is provoked, then no figure may be above the bound.

use super::roles::{self, crowd};
use super::sched::{counter, until};
use super::stretch::{BOUND, check};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::{Call, number};
use abi::filter::{FilterAtom, FilterProgram};
use abi::id::{AccountId, DomainId, EnvId, FilterId, RegionId, RingId};
use abi::limits::{
    FILTER_BYTES, PREDICATE_ATOMS, REGION_FRAMES, REGION_ROLES, RING_ENTRIES, Resource,
};
use abi::memory::Operation;
use abi::predicate::{Atom, Operator, Source};
use abi::published::*;
use abi::region::{COPY_OUT, RegionOperation};
use abi::ring::RingEntry;
use abi::word::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space, item};
use xok::published;

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

/// As many regions, each attached to in all roles, as there is room for; the first one is attached
/// to in the last role alone, before all others: no look for it could begin at its end.
fn attach_to_all() -> Vec<RegionId> {
    let mut regions = Vec::new();
    while let Ok(region) = call::region_alloc(OWN, &[]) {
        let from = if regions.is_empty() { REGION_ROLES as u16 - 1 } else { 0 };
        for role in from..REGION_ROLES as u16 {
            if call::region_attach(OWN, region, role, DomainId::NONE).is_err() {
                regions.push(region);
                return regions;
            }
        }
        regions.push(region);
    }
    regions
}

fn detach_from_all(regions: Vec<RegionId>) {
    for region in regions {
        for role in 0..REGION_ROLES as u16 {
            // The last ones have none, and end with a role of their own.
            let _ = call::region_detach(region, role);
        }
        if published::record::<RegionRecord>(Table::Regions, region.index())
            .is_some_and(|record| record.id == region.0)
        {
            let _ = call::region_attach(OWN, region, 0, DomainId::NONE);
            let _ = call::region_detach(region, 0);
        }
    }
}

/// A domain is attached to everything; then its predicate names one region in every comparison.
pub fn of_attachments(_: &Ground) -> Result<String, Failure> {
    let before = published::record::<CpuRecord>(Table::Cpus, 0).unwrap_or_default().longest_ns;
    let regions = attach_to_all();
    let first = regions[0];
    let side = Atom {
        operator: Operator::Equal as u8,
        left: Source::Region as u8,
        right: Source::Region as u8,
        last: 1,
        region: first.0,
        left_value: 0,
        right_value: 8,
        ..Atom::default()
    };
    let all = [side; PREDICATE_ATOMS];
    for _ in 0..2 {
        call::predicate_set(&all).map_err(said)?;
    }
    let operation = RegionOperation {
        region: first.0,
        direction: COPY_OUT,
        role: 0,
        ..RegionOperation::default()
    };
    // In a role that it is not attached in: that, too, takes a look.
    let refused = call::region_operate(&operation);
    expect!(refused.is_err(), "operated in a role that nobody has");
    call::predicate_set(&[]).map_err(said)?;
    let held = published::record::<DomainRecord>(Table::Domains, 1).unwrap_or_default().attachments;
    let said = check()?;
    detach_from_all(regions);
    Ok(format!("({held} attachments, {before} before: {said})"))
}

/// An area of many pages.
const AREA: u64 = SCRATCH + (4 << 30);
const PAGES: u64 = 4_000;

/// What [`check`] says, and the longest stretch of each call.
fn checked() -> Result<(String, String), Failure> {
    let _ = call::sleep(now_ns() + 2_000_000, 0, 0, 0);
    let mut table = String::new();
    for entry in abi::call::TABLE {
        let longest = published::call_record(entry.number.into()).longest_ns;
        if longest != 0 {
            table.push_str(&format!(" {} {longest}", entry.name));
        }
    }
    let longest = check().map_err(|why| format!("{why}; by call:{table}"))?;
    Ok((longest, table))
}

/// The longest stretches of these calls are in bounds.
fn within(calls: &[u16]) -> Result<String, Failure> {
    let _ = call::sleep(now_ns() + 2_000_000, 0, 0, 0);
    let figures = calls.iter().map(|&call| published::call_record(call.into()).longest_ns);
    let figures: Vec<u64> = figures.collect();
    let all = figures.iter().all(|&longest| longest <= BOUND);
    expect!(all, "calls {calls:?}: {figures:?} instructions");
    Ok(format!("(calls {calls:?}: {figures:?})"))
}

/// Ends a region that nobody is attached to.
fn end(region: RegionId) -> Result<(), Failure> {
    call::region_attach(OWN, region, 0, DomainId::NONE).map_err(said)?;
    call::region_detach(region, 0).map(|_| ()).map_err(said)
}

/// Gives up many pages, which are worked off at the next ways out.
fn give_up() -> Result<(), Failure> {
    Space::own().allocate(AREA, PAGES, DATA).map_err(said)?;
    let all = item(Operation::Unmap, 3, AREA, 0, 0);
    call::table_update(OWN, DomainId::NONE, &[all]).map(|_| ()).map_err(said)
}

/// With all tables full, the dearest calls while what their caller has given up is worked off.
pub fn of_calls_beside_work(_: &Ground) -> Result<String, Failure> {
    let mut filled = Filled::fill()?;
    let side = Atom {
        operator: Operator::Equal as u8,
        left: Source::Memory as u8,
        right: Source::Memory as u8,
        last: 1,
        left_value: BUFFERS,
        right_value: BUFFERS + 8,
        ..Atom::default()
    };
    let entry = RingEntry { owner: BUFFERS, buffer: BUFFERS + 64, capacity: 1536, zero: 0 };
    for _ in 0..2 {
        let gone = filled.domains.pop().ok_or("no domain")?;
        call::domain_destroy(OWN, gone).map_err(said)?;
        let ring = filled.rings.swap_remove(0);
        give_up()?;
        filled.domains.push(call::domain_alloc(OWN, AccountId::NONE, 0, u64::MAX).map_err(said)?);
        call::ring_free(ring).map_err(said)?;
        filled.rings.insert(0, call::ring_alloc(&[entry; RING_ENTRIES]).map_err(said)?);
        call::predicate_set(&[side; PREDICATE_ATOMS]).map_err(said)?;
        call::predicate_set(&[]).map_err(said)?;
        for word in 0..3 {
            call::make(Call::CapabilityToken { word }, OWN).map_err(said)?;
        }
        give_up()?;
        filled.once_more()?;
    }
    filled.give_back()?;
    within(&[
        number::DomainAlloc,
        number::RingAlloc,
        number::RingFree,
        number::FilterInsert,
        number::FilterDrop,
        number::PredicateSet,
        number::CapabilityToken,
    ])
}

/// Pages are given up, and others taken at once.
pub fn of_updates_beside_work(_: &Ground) -> Result<String, Failure> {
    for _ in 0..3 {
        give_up()?;
    }
    check()
}

/// All regions are taken but the first and the last: the second one that is made is looked for
/// behind all others. Meanwhile what the maker has given up is worked off.
pub fn of_taken_regions(_: &Ground) -> Result<String, Failure> {
    let mut regions = Vec::new();
    while let Ok(region) = call::region_alloc(OWN, &[]) {
        regions.push(region);
    }
    expect!(regions.len() > 2, "{} regions", regions.len());
    for _ in 0..3 {
        let last = regions.pop().ok_or("no region")?;
        end(core::mem::replace(&mut regions[0], last))?;
        end(regions[0])?;
        give_up()?;
        regions[0] = call::region_alloc(OWN, &[]).map_err(said)?;
        regions.push(call::region_alloc(OWN, &[u32::MAX; REGION_FRAMES]).map_err(said)?);
    }
    regions.into_iter().try_for_each(end)?;
    within(&[number::RegionAlloc])
}

/// The records of many dead, and many that never ran, held by one that dies.
pub fn of_orphans(ground: &Ground) -> Result<String, Failure> {
    let parent = assistant::spawn(ground.image, crowd::LEAVE_RECORDS, [600, 150, 0, 0, 0, 0], &[])?;
    let made = assistant::finish(parent)?;
    let remark = check()?;
    expect!(made == 750, "{made} records");
    Ok(remark)
}

/// Many sleepers with the dearest predicates: all are looked at because one word has changed, and
/// their common deadline comes.
pub fn of_predicates(ground: &Ground) -> Result<String, Failure> {
    const COUNT: u64 = 200;
    let edge = now_ns() + 3_000_000_000;
    let words = [crowd::ON_DEAR_PREDICATES, COUNT, edge, 0, 0, 0];
    let gatherer = assistant::spawn(ground.image, roles::GATHER, words, &[])?;
    assistant::start(gatherer)?;
    until(|| counter(gatherer.env) > 0, "the crowd to sleep")?;
    expect!(now_ns() < edge, "it took too long to come");
    for _ in 0..3 {
        call::env_hold(OWN, gatherer.env).map_err(said)?;
        call::env_release(OWN, gatherer.env).map_err(said)?;
    }
    let remark = check()?;
    until(|| now_ns() > edge + 20_000_000, "the edge")?;
    let at_the_edge = check()?;
    call::domain_destroy(OWN, gatherer.domain).map_err(said)?;
    assistant::wait(gatherer.env)?;
    Ok(format!("(written: {remark}; at their edge: {at_the_edge})"))
}

/// Frames that the crowds leave to the tests behind them.
const SPARE: u64 = 20_000;
/// Where rings' buffers are.
const BUFFERS: u64 = SCRATCH + 0x10_0000;

/// What has been made until its table was full.
#[derive(Default)]
struct Filled {
    domains: Vec<DomainId>,
    accounts: Vec<AccountId>,
    rings: Vec<RingId>,
    filters: Vec<FilterId>,
    positions: Vec<u32>,
}

/// IPv4, a protocol of the wire's, and a port: no two overlap.
fn filter(ring: RingId, port: u32) -> FilterProgram {
    let mut program = FilterProgram { count: 3, ring: ring.0, ..FilterProgram::default() };
    let atom = |offset, mask, value| FilterAtom { offset, zero: 0, mask, value };
    program.atoms[0] = atom(12, 0xffff_0000, 0x0800_0000);
    program.atoms[1] = atom(20, 0xff, 0x11);
    program.atoms[2] = atom(FILTER_BYTES as u16 - 4, 0xffff_0000, port << 16);
    program
}

impl Filled {
    /// Fills every table that one domain can fill.
    fn fill() -> Result<Self, Failure> {
        let mut made = Self::default();
        let first = AccountId(
            published::record::<AccountRecord>(Table::Accounts, 1).unwrap_or_default().id,
        );
        let account = Call::AccountAlloc { which: Which::Any, parent: first };
        while let Ok(id) = call::make(account, OWN) {
            made.accounts.push(AccountId(id));
        }
        while let Ok(id) = call::domain_alloc(OWN, AccountId::NONE, 0, u64::MAX) {
            made.domains.push(id);
        }
        while let Ok(position) = call::slice_alloc(OWN, 0, Which::Any, EnvId::NONE) {
            made.positions.push(position as u32);
        }
        Space::own().allocate(BUFFERS, 1, DATA).map_err(said)?;
        let entry = RingEntry { owner: BUFFERS, buffer: BUFFERS + 64, capacity: 1536, zero: 0 };
        while let Ok(ring) = call::ring_alloc(&[entry; RING_ENTRIES]) {
            made.rings.push(ring);
        }
        let ring = *made.rings.last().ok_or("no ring")?;
        while let Ok(id) = call::filter_insert(OWN, &filter(ring, made.filters.len() as u32)) {
            made.filters.push(id);
        }
        Ok(made)
    }

    /// One of each again, found behind all others.
    fn once_more(&mut self) -> Result<(), Failure> {
        let gone = self.filters.pop().ok_or("no filter")?;
        call::filter_drop(gone).map_err(said)?;
        let ring = *self.rings.last().ok_or("no ring")?;
        let again = call::filter_insert(OWN, &filter(ring, self.filters.len() as u32));
        self.filters.push(again.map_err(said)?);
        let gone = self.domains.pop().ok_or("no domain")?;
        call::domain_destroy(OWN, gone).map_err(said)?;
        let gone = self.accounts.pop().ok_or("no account")?;
        call::make(Call::AccountDestroy { account: gone }, OWN).map_err(said)?;
        call::capability_retract(OWN, &[7]).map_err(said)?;
        Ok(())
    }

    fn give_back(self) -> Result<(), Failure> {
        for filter in self.filters {
            call::filter_drop(filter).map_err(said)?;
        }
        for ring in self.rings {
            call::ring_free(ring).map_err(said)?;
        }
        Space::own().unmap(BUFFERS, 1).map_err(said)?;
        for position in self.positions {
            call::slice_free(OWN, 0, position).map_err(said)?;
        }
        for domain in self.domains {
            call::domain_destroy(OWN, domain).map_err(said)?;
        }
        for account in self.accounts {
            call::make(Call::AccountDestroy { account }, OWN).map_err(said)?;
        }
        Ok(())
    }
}

/// All tables full, with as many environments as a machine can have: the longest stretch by call.
pub fn by_call(ground: &Ground) -> Result<String, Failure> {
    let room = u64::from(published::table(Table::Envs).count);
    let edge = now_ns() + 60_000_000_000;
    let mut crowds = Vec::new();
    for words in [
        [crowd::ON_DEAR_PREDICATES, 400, edge, 0, 0, 0],
        [crowd::ON_A_PREDICATE, room / 4, 0, 0, 0, 0],
        [crowd::ON_A_NOTIFICATION, room / 4, 0, 0, 0, 0],
        [crowd::NEVER_RUN, u64::MAX, SPARE, 0, 0, 0],
    ] {
        let gatherer = assistant::spawn(ground.image, roles::GATHER, words, &[])?;
        assistant::start(gatherer)?;
        let deadline = now_ns() + 50_000_000_000;
        while counter(gatherer.env) == 0 {
            expect!(now_ns() < deadline, "crowd {} does not come", words[0]);
            let _ = call::sleep(now_ns() + 10_000_000, 0, 0, 0);
        }
        crowds.push(gatherer);
    }
    let envs = published::record::<AccountRecord>(Table::Accounts, 1).unwrap_or_default().used
        [Resource::Envs as usize];
    expect!(u64::from(envs) == room - 1, "{envs} environments of {}", room - 1);
    let mut filled = Filled::fill()?;
    let regions = attach_to_all();
    filled.once_more()?;
    for _ in 0..3 {
        call::env_hold(OWN, crowds[0].env).map_err(said)?;
        call::env_release(OWN, crowds[0].env).map_err(said)?;
        call::post(OWN, crowds[1].env, 2).map_err(said)?;
        let _ = call::yield_to(EnvId::NONE);
    }
    detach_from_all(regions);
    while now_ns() < edge + 20_000_000 {
        let _ = call::sleep(edge + 30_000_000, 0, 0, 0);
    }
    for crowd in crowds {
        call::domain_destroy(OWN, crowd.domain).map_err(said)?;
        let deadline = now_ns() + 60_000_000_000;
        while call::env_forget(crowd.env).is_err() {
            expect!(now_ns() < deadline, "a crowd does not end");
            let _ = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
        }
    }
    filled.give_back()?;
    let (longest, table) = checked()?;
    Ok(format!("({envs} environments: {longest}; by call:{table})"))
}
