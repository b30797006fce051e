//! What is counted lives until the last reference to it goes: domains, regions, filters.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::filter::{FilterAtom, FilterProgram};
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::memory::ANY_FRAME;
use abi::published::{DomainRecord, FilterRecord, RegionRecord, Table};
use abi::ring::RingEntry;
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space};
use xok::published;

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

fn free() -> u64 {
    published::directory().frames_free
}

fn domain(id: DomainId) -> Option<DomainRecord> {
    published::record(Table::Domains, id.index()).filter(|record: &DomainRecord| record.id == id.0)
}

/// thesis98 Z-89: a domain ends, with all its memory, when its last environment does.
pub fn last_environment(ground: &Ground) -> Result<String, Failure> {
    let before = free();
    let first = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    let second = call::env_alloc(OWN, first.domain, AccountId::NONE).map_err(refused)?;
    let end = |env: EnvId| {
        call::env_destroy(OWN, env, 7).map_err(refused)?;
        assistant::wait(env)
    };
    let held = free();
    end(first.env)?;
    let left = domain(first.domain).ok_or("it ended with the first of two")?;
    expect!(left.envs == 1, "{} environments are counted in it", left.envs);
    // The first one's own page of registers comes back, and nothing of the domain's.
    let settled = |frames: u64| super::sched::until(|| free() == frames, "frames to come back");
    settled(held + 1)?;
    end(second)?;
    settled(before)?;
    expect!(domain(first.domain).is_none(), "its last environment ended, and it did not");
    Ok(format!("({} frames)", before - held))
}

fn region(id: RegionId) -> Option<RegionRecord> {
    published::record(Table::Regions, id.index()).filter(|record: &RegionRecord| record.id == id.0)
}

/// thesis98 Z-89: a region ends, with its frames, when nobody is attached to it any more: in
/// whatever role, however often, and in whichever domain.
pub fn last_attachment(ground: &Ground) -> Result<String, Failure> {
    let other = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    let before = free();
    let id = call::region_alloc(OWN, &[ANY_FRAME; 3]).map_err(refused)?;
    for (role, domain) in
        [(0, DomainId::NONE), (0, DomainId::NONE), (3, DomainId::NONE), (1, other.domain)]
    {
        call::region_attach(OWN, id, role, domain).map_err(refused)?;
    }
    let held = free();
    expect!(before - held >= 3, "three frames asked for: free went from {before} to {held}");
    for (role, left) in [(0, [1, 1, 0, 1]), (3, [1, 1, 0, 0]), (0, [0, 1, 0, 0])] {
        call::region_detach(id, role).map_err(refused)?;
        let record = region(id).ok_or(format!("it ended with {left:?} attached"))?;
        expect!(record.attached == left, "attached are {:?}, not {left:?}", record.attached);
        expect!(free() == held, "a frame has gone, with {left:?} attached");
    }
    call::env_destroy(OWN, other.env, 0).map_err(refused)?;
    assistant::wait(other.env)?;
    super::sched::until(|| region(id).is_none(), "the region to end with its last domain")?;
    super::sched::until(|| free() >= before, "its frames to come back")?;
    Ok(String::new())
}

/// thesis98 Z-89: a filter is removed by its last reference, and by no earlier one.
pub fn last_filter_reference(ground: &Ground) -> Result<String, Failure> {
    let other = assistant::spawn(ground.image, roles::SLEEP, [0; 6], &[])?;
    Space::own().allocate(SCRATCH, 1, DATA).map_err(refused)?;
    let entry = RingEntry { owner: SCRATCH, buffer: SCRATCH + 64, capacity: 1536, zero: 0 };
    let ring = call::ring_alloc(&[entry]).map_err(refused)?;
    // A frame type for local experiments (IEEE 802): nobody else asks for it.
    let atom = FilterAtom { offset: 12, zero: 0, mask: 0xffff_0000, value: 0x88b5_0000 };
    let mut program = FilterProgram { count: 1, ring: ring.0, ..FilterProgram::default() };
    program.atoms[0] = atom;
    let id = call::filter_insert(OWN, &program).map_err(refused)?;
    let record = || {
        published::record(Table::Filters, id.index())
            .filter(|record: &FilterRecord| record.id == id.0)
    };
    call::filter_reference(OWN, id, other.domain).map_err(refused)?;
    call::filter_reference(OWN, id, other.domain).map_err(refused)?;
    let references = || record().map(|record| record.references);
    let counted = references().ok_or("it is not published")?;
    call::filter_drop(id).map_err(refused)?;
    expect!(references() == Some(counted - 1), "{counted}, one dropped: {:?}", references());
    expect!(call::filter_insert(OWN, &program).is_err(), "what it claims is free already");
    let again = call::filter_drop(id);
    expect!(again.is_err(), "one's last reference was dropped twice: {again:?}");
    call::env_destroy(OWN, other.env, 0).map_err(refused)?;
    assistant::wait(other.env)?;
    super::sched::until(|| record().is_none(), "the filter to go with its last holder")?;
    let id = call::filter_insert(OWN, &program).map_err(|why| format!("not free: {why:?}"))?;
    call::filter_drop(id).map_err(refused)?;
    expect!(record().is_none(), "its only reference is dropped, and it is there");
    call::ring_free(ring).map_err(refused)?;
    Space::own().unmap(SCRATCH, 1).map_err(refused)?;
    Ok(format!("({counted} references)"))
}
