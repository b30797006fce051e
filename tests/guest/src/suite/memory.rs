//! Frames and tables: by number, checked when bound, visible, never silent.

use super::roles;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::{PAGE_SIZE, own_entry_address};
use abi::memory::*;
use abi::published::{EnvState, FrameRecord, FrameType, Table};
use abi::setup::{EnvSetup, field};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space, item};
use xok::published;
use xok::start::SAVE_AREA;

fn one(domain: DomainId, change: Item) -> Result<u64, Refused> {
    call::table_update(OWN, domain, &[change])
}

fn a_free_frame() -> Option<Frame> {
    let count = published::table(Table::Frames).count as usize;
    (0..count)
        .rev()
        .find(|&number| {
            published::record::<FrameRecord>(Table::Frames, number)
                .is_some_and(|record| record.kind == FrameType::Free as u8)
        })
        .map(|number| Frame(number as u32))
}

/// xok97 T37, thesis98 Z-42: exactly the frame asked for, once.
pub fn frame_by_number(_: &Ground) -> Result<String, Failure> {
    let frame = a_free_frame().ok_or("no free frame is published")?;
    one(DomainId::NONE, item(Operation::Allocate, 1, SCRATCH, frame.0, DATA))
        .map_err(|why| format!("allocate {frame:?}: {why:?}"))?;
    expect!(xok::own::frame(SCRATCH) == Some(frame), "got {:?}", xok::own::frame(SCRATCH));
    let again = one(DomainId::NONE, item(Operation::Allocate, 1, SCRATCH + 4096, frame.0, DATA));
    expect!(matches!(again, Err((Error::Taken, _))), "the second time: {again:?}");
    let beyond =
        one(DomainId::NONE, item(Operation::Allocate, 1, SCRATCH + 4096, 0xfff_fff0, DATA));
    expect!(matches!(beyond, Err((Error::NoSuchFrame, _))), "beyond memory: {beyond:?}");
    expect!(faults::load(SCRATCH) == Some(0), "not zeroed for its first holder");
    one(DomainId::NONE, item(Operation::Unmap, 1, SCRATCH, 0, 0))
        .map_err(|why| format!("{why:?}"))?;
    expect!(faults::load(SCRATCH).is_none(), "unmapped, and still there");
    Ok(String::new())
}

/// aegis95 T7, thesis98 Z-37: a foreign frame cannot be entered, and a read of it still faults.
pub fn frame_foreign(ground: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(|why| format!("{why:?}"))?;
    expect!(faults::store(SCRATCH, 77), "own page");
    let frame = xok::own::frame(SCRATCH).ok_or("own table shows no frame")?;
    let thief =
        assistant::spawn(ground.image, roles::MAP_FOREIGN, [frame.0.into(), 0, 0, 0, 0, 0], &[])?;
    let word = assistant::finish(thief)?;
    expect!(word == roles::MAP_FOREIGN_REFUSED, "the thief reports {word:#x}");
    own.unmap(SCRATCH, 1).map_err(|why| format!("{why:?}"))?;
    Ok(String::new())
}

/// thesis98 Z-37: sharing works, and a revoked frame is gone for everyone, on every processor.
pub fn frame_revoked_everywhere(ground: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(|why| format!("{why:?}"))?;
    faults::store(SCRATCH, 1);
    let frame = xok::own::frame(SCRATCH).ok_or("no frame")?;
    let reader =
        assistant::spawn(ground.image, roles::READ_UNTIL_FAULT, [SCRATCH, 0, 0, 0, 0, 0], &[])?;
    Space::of(reader.domain, OWN)
        .map(SCRATCH, frame, 1, NO_EXECUTE)
        .map_err(|why| format!("share: {why:?}"))?;
    // On another processor, where there is one.
    let cpus = published::directory().cpus;
    if cpus > 1 {
        let any = abi::word::Which::Any;
        call::slice_alloc(OWN, 1, any, reader.env).map_err(|why| format!("slice: {why:?}"))?;
    }
    assistant::start(reader)?;
    let loads = || super::sched::counter(reader.env);
    super::sched::until(|| loads() > 0, "the reader to read")?;
    call::frame_revoke(OWN, frame).map_err(|why| format!("revoke: {why:?}"))?;
    // Between a load and its count at most; not until something else empties its buffer.
    let before = loads();
    let all = assistant::wait(reader.env)?;
    // Its page is gone with it, if it has ended meanwhile.
    let at_once = before == 0 || (before..=before + 1).contains(&all);
    expect!(at_once, "{all} loads, {before} before it was gone");
    expect!(faults::load(SCRATCH).is_none(), "the revoker still sees it");
    Ok(format!("({cpus} processors)"))
}

/// The same: the kernel stores no upcall into a save area that was revoked, though its environment
/// runs on, on another processor.
pub fn save_area_revoked(ground: &Ground) -> Result<String, Failure> {
    const OWN_PAGE: u64 = SCRATCH + 4096;
    let said = |refused: Refused| format!("{refused:?}");
    let mut own = Space::own();
    own.allocate_zeroed(SCRATCH, 2, DATA).map_err(said)?;
    let frame = |address| xok::own::frame(address).ok_or("no frame");
    let (read, lent) = (frame(SCRATCH)?, frame(OWN_PAGE)?);
    let words = [SCRATCH, 0, 0, 0, 0, 0];
    let reader = assistant::spawn(ground.image, roles::READ_UNTIL_FAULT, words, &[])?;
    let mut space = Space::of(reader.domain, OWN);
    space.map(SCRATCH, read, 1, NO_EXECUTE).map_err(said)?;
    space.unmap(SAVE_AREA, 1).map_err(said)?;
    // Its tables are there.
    one(reader.domain, item(Operation::Map, 1, SAVE_AREA, lent.0, DATA)).map_err(said)?;
    let setup = EnvSetup { save_area: SAVE_AREA, ..EnvSetup::default() };
    call::env_set(OWN, reader.env, field::SAVE_AREA, &setup).map_err(said)?;
    let cpus = published::directory().cpus;
    if cpus > 1 {
        call::slice_alloc(OWN, 1, abi::word::Which::Any, reader.env).map_err(said)?;
    }
    assistant::start(reader)?;
    let loads = || super::sched::counter(reader.env);
    super::sched::until(|| loads() > 0, "the reader to read")?;
    call::frame_revoke(OWN, lent).map_err(said)?;
    expect!(faults::load(OWN_PAGE).is_none(), "the revoker still sees it");
    let again = item(Operation::Allocate, 1, OWN_PAGE, lent.0, DATA);
    super::sched::until(|| one(DomainId::NONE, again).is_ok(), "the frame to be free")?;
    for at in 0..PAGE_SIZE {
        faults::store(OWN_PAGE + at, 0);
    }
    // Its next load faults, and it has no save area: it stops.
    let before = loads();
    super::sched::until(|| loads() > before, "the reader to go on")?;
    space.unmap(SCRATCH, 1).map_err(said)?;
    let stopped = || {
        let record = published::env(reader.env).unwrap_or_default();
        record.state == EnvState::Stopped as u32
    };
    super::sched::until(stopped, "the reader to stop")?;
    let written = (0..PAGE_SIZE).find(|at| faults::load(OWN_PAGE + at) != Some(0));
    expect!(written.is_none(), "written at {written:x?}");
    call::env_destroy(OWN, reader.env, 0).map_err(said)?;
    assistant::wait(reader.env)?;
    own.unmap(SCRATCH, 2).map_err(said)?;
    Ok(format!("({cpus} processors)"))
}

/// thesis98 Z-38: software bits and payloads survive, A and D are readable.
pub fn entry_bits(_: &Ground) -> Result<String, Failure> {
    let choice = DATA | SOFTWARE & !(0xf << 59);
    one(DomainId::NONE, item(Operation::Allocate, 1, SCRATCH, ANY_FRAME, choice))
        .map_err(|why| format!("{why:?}"))?;
    let entry = xok::own::leaf(SCRATCH).ok_or("not present")?;
    expect!(entry & choice == choice, "asked {choice:#x}, got {entry:#x}");
    expect!(entry & (USER | PRESENT) == USER | PRESENT, "got {entry:#x}");
    expect!(entry & 1 << 8 == 0, "global: {entry:#x}");
    expect!(entry & (ACCESSED | DIRTY) == 0, "used before its use: {entry:#x}");
    faults::load(SCRATCH);
    let entry = xok::own::leaf(SCRATCH).ok_or("not present")?;
    expect!(entry & (ACCESSED | DIRTY) == ACCESSED, "after a load: {entry:#x}");
    faults::store(SCRATCH, 1);
    let entry = xok::own::leaf(SCRATCH).ok_or("not present")?;
    expect!(entry & DIRTY != 0, "after a store: {entry:#x}");
    let payload = 0x0000_0000_dead_b00e & !PRESENT;
    let old = one(DomainId::NONE, item(Operation::Unmap, 1, SCRATCH, 0, payload))
        .map_err(|why| format!("{why:?}"))?;
    expect!(old & DIRTY != 0 && old & PRESENT != 0, "the old entry was {old:#x}");
    let kept = xok::own::entry(SCRATCH, 1).map_err(|level| format!("no table {level}"))?;
    let forced = published::directory().payload_forced;
    expect!(forced != 0 && kept & forced == forced, "L1TF bits {forced:#x} in {kept:#x}");
    expect!(kept & !forced == payload & !forced, "payload {payload:#x} came back as {kept:#x}");
    let clear = one(DomainId::NONE, item(Operation::Unmap, 1, SCRATCH, 0, 0));
    expect!(clear.is_ok(), "clearing a payload: {clear:?}");
    Ok(String::new())
}

/// aegis95 T7: one's own page table is visible and not writable, and cannot be mapped writable.
pub fn own_tables_read_only(_: &Ground) -> Result<String, Failure> {
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(|why| format!("{why:?}"))?;
    for level in 1..=4 {
        let address = own_entry_address(SCRATCH, level);
        expect!(faults::load(address).is_some(), "level {level} is not readable");
        expect!(!faults::store(address, 0xff), "level {level} is writable");
    }
    let upper = xok::own::entry(SCRATCH, 2).map_err(|level| format!("no table {level}"))?;
    let table = Frame::containing(upper & ADDRESS);
    let mapped = one(DomainId::NONE, item(Operation::Map, 1, SCRATCH + 4096, table.0, DATA));
    expect!(mapped.is_err(), "a table was mapped writable");
    let taken = one(DomainId::NONE, item(Operation::Allocate, 1, SCRATCH + 4096, table.0, DATA));
    expect!(matches!(taken, Err((Error::Taken, _))), "a table was allocated: {taken:?}");
    own.unmap(SCRATCH, 1).map_err(|why| format!("{why:?}"))?;
    Ok(String::new())
}

/// aegis95 T5: the count of free frames moves by what is asked for and by nothing else.
pub fn silent_allocation(_: &Ground) -> Result<String, Failure> {
    let free = || published::directory().frames_free;
    let before = free();
    for page in 0..200 {
        faults::load(SCRATCH + page * 4096);
    }
    faults::illegal_many(1000);
    for _ in 0..100 {
        let _ = call::yield_to(abi::id::EnvId::NONE);
        let _ = call::post(OWN, abi::id::EnvId(1), 1 << 40);
    }
    xok::upcall::take_pending();
    expect!(free() == before, "faults, yields and posts moved it from {before} to {}", free());
    let mut own = Space::own();
    own.allocate(SCRATCH, 3, DATA).map_err(|why| format!("{why:?}"))?;
    expect!(free() + 3 == before, "three asked for: from {before} to {}", free());
    own.unmap(SCRATCH, 3).map_err(|why| format!("{why:?}"))?;
    expect!(free() == before, "three given back: from {before} to {}", free());
    Ok(String::new())
}

/// thesis98 Z-82: a batch of many entries is one call, each item checked as a single one.
pub fn update_batched(_: &Ground) -> Result<String, Failure> {
    const PAGES: u64 = 256;
    let number = usize::from(abi::call::number::TableUpdate);
    let calls = || published::call_record(number).count;
    let before = calls();
    let at = |page: u64| SCRATCH + page * 4096;
    let items: Vec<Item> =
        (0..PAGES).map(|page| item(Operation::Allocate, 1, at(page), ANY_FRAME, DATA)).collect();
    let done = call::table_update(OWN, DomainId::NONE, &items).map_err(|why| format!("{why:?}"))?;
    expect!(done == PAGES, "{done} of {PAGES} done");
    let traps = calls() - before;
    expect!(traps <= PAGES / 32, "{traps} entries for {PAGES} items");
    let mut items: Vec<Item> =
        (0..PAGES).map(|page| item(Operation::Unmap, 1, at(page), 0, 0)).collect();
    items[100] = item(Operation::Map, 1, SCRATCH, 0, DATA);
    let refused = call::table_update(OWN, DomainId::NONE, &items);
    expect!(
        matches!(refused, Err((_, value)) if value & 0xffff_ffff == 100),
        "an item that must be refused in the middle: {refused:?}"
    );
    expect!(xok::own::leaf(at(99)).is_none(), "the items before it are done");
    expect!(xok::own::leaf(at(101)).is_some(), "those behind it are not");
    items[100] = item(Operation::Unmap, 1, at(100), 0, 0);
    call::table_update(OWN, DomainId::NONE, &items[100..]).map_err(|why| format!("{why:?}"))?;
    Ok(format!("({PAGES} items, {traps} entries)"))
}

/// Decisions 8: a shared table is frozen, split and thawed; nothing is written through it.
pub fn frozen_tables(ground: &Ground) -> Result<String, Failure> {
    const AREA: u64 = SCRATCH + (1 << 30);
    let mut own = Space::own();
    own.allocate(AREA, 2, DATA).map_err(|why| format!("{why:?}"))?;
    faults::store(AREA, 42);
    let child =
        assistant::spawn(ground.image, roles::LOAD_THEN_STORE, [AREA, 42, 0, 0, 0, 0], &[])?;
    let mut space = Space::of(child.domain, OWN);
    space.share(AREA, 2).and_then(|()| space.flush()).map_err(|why| format!("share: {why:?}"))?;
    expect!(!faults::store(AREA, 43), "a frozen table let a store through");
    let changed = own.allocate(AREA + 0x5000, 1, DATA);
    expect!(changed.is_err(), "a frozen table was changed");
    let word = assistant::finish(child)?;
    expect!(word == roles::STORE_FAULTED, "the child reports {word:#x}");
    super::sched::until(
        || one(DomainId::NONE, item(Operation::Thaw, 2, AREA, 0, 0)).is_ok(),
        "the child's reference to go",
    )?;
    expect!(!faults::store(AREA, 44), "thawed: the leaves stay read-only");
    one(DomainId::NONE, item(Operation::Protect, 1, AREA, 0, DATA))
        .map_err(|why| format!("{why:?}"))?;
    expect!(faults::store(AREA, 44) && faults::load(AREA) == Some(44), "after Protect");
    for level in [2, 3] {
        one(DomainId::NONE, item(Operation::Unmap, level, AREA, 0, 0))
            .map_err(|why| format!("unmap level {level}: {why:?}"))?;
    }
    Ok(String::new())
}
