//! 2 MiB pages: a table of 512 entries folded into one, which still go page by page.

use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::*;
use abi::published::{FrameRecord, FrameType, Table};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space, item};
use xok::published;

/// Where the large page is mapped: tables of its own.
pub const AREA: u64 = SCRATCH + (5 << 30);
/// Pages of a large one.
const PAGES: u64 = 512;
/// The page that others map or revoke.
const PAGE: u64 = 300;

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

fn one(change: Item) -> Result<u64, Refused> {
    call::table_update(OWN, DomainId::NONE, &[change])
}

fn at(page: u64) -> u64 {
    AREA + page * PAGE_SIZE
}

/// 512 frames in a row that nobody has, the first of a number that 512 divides, by the published
/// free map.
pub fn free_block() -> Option<Frame> {
    let count = published::table(Table::Frames).count;
    let is_free = |number: u32| {
        published::record::<FrameRecord>(Table::Frames, number as usize)
            .is_some_and(|record| record.kind == FrameType::Free as u8)
    };
    let starts = (0..count / PAGES as u32).rev().map(|block| block * PAGES as u32);
    starts.into_iter().find(|&first| (first..first + PAGES as u32).all(is_free)).map(Frame)
}

/// The block, mapped at `AREA`.
pub fn mapped() -> Result<Frame, Failure> {
    // First, as tables are taken from what is free.
    Space::own().tables_to(AREA, 1).map_err(said)?;
    let block = free_block().ok_or("no 2 MiB are free")?;
    let all = Item { more: PAGES as u16 - 1, ..item(Operation::Allocate, 1, AREA, block.0, DATA) };
    one(all).map_err(said)?;
    Ok(block)
}

/// The same, folded.
fn folded() -> Result<Frame, Failure> {
    let block = mapped()?;
    Space::own().fold(AREA).map_err(said)?;
    Ok(block)
}

/// All of it is given back.
pub fn given_back() -> Result<(), Failure> {
    for level in [2, 3] {
        one(item(Operation::Unmap, level, AREA, 0, 0)).map_err(said)?;
    }
    Ok(())
}

/// What a page has, by its number.
fn mark(page: u64) -> u8 {
    page as u8 ^ (page >> 8) as u8
}

/// Reads every page but one.
fn reads_all_but(left_out: Option<u64>) -> Result<(), Failure> {
    for page in (0..PAGES).filter(|&page| Some(page) != left_out) {
        let found = faults::load(at(page));
        expect!(found == Some(mark(page)), "page {page} reads {found:?}");
    }
    Ok(())
}

/// xok97 XK-12, decisions 8: one entry maps 512 frames; what is stored by it is in the frames, its
/// bits are its pages' when it is taken apart, and what cannot be folded says why.
pub fn page_is_its_frames(ground: &Ground) -> Result<String, Failure> {
    let block = mapped()?;
    let table = xok::own::entry(AREA, 2).map_err(|level| format!("no table {level}"))?;
    let refused = |error: Error, value: u64| {
        let answer = Space::own().fold(AREA);
        let known = answer == Err((error, value << 32));
        known.then_some(()).ok_or(format!("{answer:?} is not {error:?} of {value}"))
    };
    let protect = |page: u64, choice| item(Operation::Protect, 1, at(page), ANY_FRAME, choice);
    let map = |page: u64, frame: u32| item(Operation::Map, 1, at(page), frame, DATA);
    for (wrong, right, error, value) in [
        (protect(5, NO_EXECUTE), protect(5, DATA), Error::Changed, 5),
        (protect(6, WRITABLE), protect(6, DATA), Error::Changed, 6),
        (map(7, block.0 + 8), map(7, block.0 + 7), Error::Changed, 7),
    ] {
        // Else who maps another one there gives the frame back.
        one(map(7, block.0 + 7)).map_err(said)?;
        let spare = SCRATCH;
        one(item(Operation::Map, 1, spare, block.0 + 7, DATA)).map_err(said)?;
        one(wrong).map_err(said)?;
        refused(error, value)?;
        one(right).map_err(said)?;
        one(item(Operation::Unmap, 1, spare, 0, 0)).map_err(said)?;
    }
    expect!(xok::own::entry(AREA, 2) == Ok(table), "a refusal has changed the entry");
    faults::store(at(9), mark(9));
    Space::own().fold(AREA).map_err(said)?;
    let large = xok::own::entry(AREA, 2).map_err(|level| format!("no table {level}"))?;
    expect!(large & LARGE != 0 && xok::own::is_folded(at(77)), "the entry is {large:#x}");
    expect!(large & DIRTY != 0, "a page was dirty, the large one is not: {large:#x}");
    expect!(large & ADDRESS == block.address(), "{large:#x} does not lead to {block:?}");
    for page in [0, 9, 511] {
        let frame = xok::own::frame(at(page));
        expect!(frame == Some(Frame(block.0 + page as u32)), "page {page} is {frame:?}");
    }
    for page in 0..PAGES {
        expect!(faults::store(at(page), mark(page)), "a store to page {page}");
    }
    // A 4 KiB alias of another environment's, made by the frame's number, while it is folded.
    let words = [at(PAGE), mark(PAGE).into(), 0, 0, 0, 0];
    let other = assistant::spawn(ground.image, roles::LOAD_THEN_STORE, words, &[])?;
    let frame = Frame(block.0 + PAGE as u32);
    Space::of(other.domain, OWN).map(at(PAGE), frame, 1, NO_EXECUTE).map_err(said)?;
    let word = assistant::finish(other)?;
    expect!(word == roles::STORE_FAULTED, "who maps one page of it reports {word:#x}");
    expect!(xok::own::is_folded(AREA), "it is not folded any more");
    Space::own().unfold(AREA).map_err(said)?;
    expect!(!xok::own::is_folded(AREA), "unfolded, and large");
    reads_all_but(None)?;
    let clean = (0..PAGES).find(|&page| !xok::own::is_dirty(at(page)));
    expect!(clean.is_none(), "{clean:?} was stored to and is not dirty");
    given_back()?;
    Ok(String::new())
}

/// thesis98 Z-37 of a large page: revoked from elsewhere, one frame of it is gone at once on every
/// processor, and the other 511 go on in both spaces.
pub fn page_revoked_in_part(ground: &Ground) -> Result<String, Failure> {
    let block = folded()?;
    for page in 0..PAGES {
        expect!(faults::store(at(page), mark(page)), "a store to page {page}");
    }
    let reader =
        assistant::spawn(ground.image, roles::READ_UNTIL_FAULT, [at(PAGE), 0, 0, 0, 0, 0], &[])?;
    let mut space = Space::of(reader.domain, OWN);
    space.map(AREA, block, PAGES, NO_EXECUTE).and_then(|()| space.fold(AREA)).map_err(said)?;
    let cpus = published::directory().cpus;
    if cpus > 1 {
        let any = abi::word::Which::Any;
        call::slice_alloc(OWN, 1, any, reader.env).map_err(said)?;
    }
    assistant::start(reader)?;
    let loads = || counter(reader.env);
    until(|| loads() > 0, "the reader to read")?;
    call::frame_revoke(OWN, Frame(block.0 + PAGE as u32)).map_err(said)?;
    let before = loads();
    expect!(faults::load(at(PAGE)).is_none(), "the revoker still sees it");
    expect!(!faults::store(at(PAGE), 1), "and can store to it");
    // Its page is gone with it, if it has ended meanwhile.
    let all = assistant::wait(reader.env)?;
    let at_once = before == 0 || (before..=before + 1).contains(&all);
    expect!(at_once, "{all} loads, {before} before it was gone");
    reads_all_but(Some(PAGE))?;
    expect!(!xok::own::is_folded(AREA), "a page less, and still large");
    // With another frame in its place it cannot be one page any more.
    one(item(Operation::Allocate, 1, at(PAGE), ANY_FRAME, DATA)).map_err(said)?;
    if xok::own::frame(at(PAGE)) != Some(Frame(block.0 + PAGE as u32)) {
        let again = Space::own().fold(AREA);
        expect!(again == Err((Error::Changed, PAGE << 32)), "folded again: {again:?}");
    }
    given_back()?;
    Ok(format!("({cpus} processors)"))
}

/// A page of a large one goes its own way: protected, unmapped, shared with a child as `fork` does.
pub fn page_comes_apart(ground: &Ground) -> Result<String, Failure> {
    folded()?;
    for page in 0..PAGES {
        expect!(faults::store(at(page), mark(page)), "a store to page {page}");
    }
    one(item(Operation::Protect, 1, at(PAGE), 0, NO_EXECUTE)).map_err(said)?;
    expect!(!faults::store(at(PAGE), 1), "read-only, and stored to");
    expect!(faults::store(at(PAGE + 1), mark(PAGE + 1)), "its neighbour is read-only, too");
    reads_all_but(None)?;
    one(item(Operation::Protect, 1, at(PAGE), 0, DATA)).map_err(said)?;
    Space::own().fold(AREA).map_err(said)?;

    let words = [at(PAGE), mark(PAGE).into(), 0, 0, 0, 0];
    let child = assistant::spawn(ground.image, roles::LOAD_THEN_STORE, words, &[])?;
    let mut space = Space::of(child.domain, OWN);
    space.share(AREA, 2).and_then(|()| space.flush()).map_err(said)?;
    expect!(!faults::store(at(PAGE), 43), "a frozen table let a store through");
    let again = Space::own().fold(AREA);
    expect!(again == Err((Error::WrongState, 0)), "a frozen table was folded: {again:?}");
    let word = assistant::finish(child)?;
    expect!(word == roles::STORE_FAULTED, "the child reports {word:#x}");
    reads_all_but(None)?;
    until(|| one(item(Operation::Thaw, 2, AREA, 0, 0)).is_ok(), "the child's reference to go")?;
    // All are read-only now, alike.
    Space::own().fold(AREA).map_err(said)?;
    expect!(!faults::store(AREA, 1), "a read-only large page was stored to");
    one(item(Operation::Unmap, 1, at(PAGE), 0, 0)).map_err(said)?;
    expect!(faults::load(at(PAGE)).is_none(), "unmapped, and still there");
    reads_all_but(Some(PAGE))?;
    given_back()?;
    Ok(String::new())
}
