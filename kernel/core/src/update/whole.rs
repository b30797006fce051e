//! What items do to whole tables: make, share, copy, thaw.

use super::{MAY_WRITE, Plan, Request, TABLE_ENTRY, frames_of, malformed, payer, take_page, which};
use crate::answer::Refusal;
use crate::chain::{self, Place};
use crate::count::Count;
use crate::frame::{Contents, GROUP};
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::table::{self, Lines, Way, present, target};
use crate::work::{self, cost};
use crate::{account, alone, domain, fold, frame};
use abi::error::Error;
use abi::id::Frame;
use abi::layout::{PAGE_SIZE, is_user, table_index};
use abi::limits::{Resource, SHARE_COPIES, SHARE_LEAVES};
use abi::memory::{ACCESSED, ADDRESS, DIRTY, Item, LARGE, PRESENT, TYPE, WRITABLE};
use abi::published::FrameType;
use abi::word::{Which, Word};

/// May the table hold what it does for the pages from `address` on? Of the last 2 MiB of the lower
/// half programs may not name the last page: behind a `syscall` at its end there is no address.
pub(super) fn check_reach<M: Machine>(
    machine: &M,
    table: Frame,
    address: u64,
) -> Result<(), Refusal> {
    let last = address | (LARGE_BYTES - PAGE_SIZE);
    if !is_user(last) && machine.entry(table, table_index(last, 1)) & PRESENT != 0 {
        return Err(Error::BadAddress.into());
    }
    Ok(())
}

/// Bytes that a table of level 1 maps.
const LARGE_BYTES: u64 = 512 * PAGE_SIZE;
/// Bytes of a group of entries.
const GROUP_BYTES: u64 = 8 * GROUP as u64;

/// How many leaves of a table are writable, if they are at most so many and few others have
/// anything hanging on them.
fn few_writable<M: Machine>(state: &State, machine: &M, table: Frame, most: u32) -> Option<u32> {
    let (mut leaves, mut writable) = (0, 0);
    for first in Lines::of(state.frames.chained(table)) {
        let eight = machine.eight_entries(table, first);
        for (_, entry) in present(&eight) {
            if !frame::is_image(state, target(entry)) {
                leaves += 1;
                writable += u32::from(entry & MAY_WRITE != 0);
            }
        }
        if writable > most || leaves > SHARE_LEAVES {
            return None;
        }
    }
    Some(writable)
}

/// The frames of a table, of its links and of so many copies: is there room for them all?
fn check_copy(state: &State, request: &Request, copies: u32) -> Result<(u32, u32), Refusal> {
    let account = payer(state, request);
    account::check(state, account, Resource::Frames, 2 + copies)?;
    let pair = frame::check_pair(state, Which::Any, Which::Any, account)?;
    if state.frames.free_count() < 2 + copies {
        return Err(Error::Exhausted.into());
    }
    Ok(pair)
}

/// The frozen table that the entry at `place` leads to.
fn frozen<M: Machine>(machine: &M, place: Place) -> Result<Frame, Refusal> {
    let entry = machine.entry(place.table, place.index);
    if entry & PRESENT == 0 {
        Err(Refusal::new(Error::NoTable, 2))
    } else if entry & (WRITABLE | LARGE) != 0 {
        Err(Error::WrongState.into())
    } else {
        Ok(target(entry))
    }
}

pub(super) fn check_share<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    let most = request.item.value % PAGE_SIZE;
    let from = request.item.value - most;
    if most > SHARE_COPIES as u64 {
        return Err(malformed());
    }
    if !is_user(from) {
        return Err(Error::BadAddress.into());
    }
    if machine.entry(place.table, place.index) & PRESENT != 0 {
        return Err(Error::NotEmpty.into());
    }
    let root = domain::root(state, request.caller);
    let source = table::place(machine, root, from, 2, Way::Any)?;
    let entry = unfolded(state, machine.entry(source.table, source.index));
    if entry & PRESENT == 0 {
        return Err(Refusal::new(Error::NoTable, 2));
    }
    check_reach(machine, target(entry), request.item.address)?;
    if entry & WRITABLE != 0
        && most != 0
        && let Some(copies) = few_writable(state, machine, target(entry), most as u32)
        && let Ok((number, links)) = check_copy(state, request, copies)
    {
        return Ok(Plan::Copy { place, shared: target(entry), number, links });
    }
    // A table already frozen was looked through when it was.
    if entry & WRITABLE != 0
        && let Some(index) = pinned(state, machine, target(entry))
    {
        return Err(Refusal::new(Error::Pinned, index as u64));
    }
    Ok(Plan::Share { place, source })
}

pub(super) fn check_split<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    let Item { frame, value, address, .. } = request.item;
    check_reach(machine, frozen(machine, place)?, address)?;
    let links = Which::from_word(value).ok_or(malformed())?;
    let account = payer(state, request);
    let (number, links) = frame::check_pair(state, which(frame), links, account)?;
    Ok(Plan::Split { place, number, links })
}

pub(super) fn check_thaw<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    let table = frozen(machine, place)?;
    check_reach(machine, table, request.item.address)?;
    if !alone::is(state, table) {
        return Err(Error::WrongState.into());
    }
    Ok(Plan::Thaw { place })
}

/// The first entry of a level-1 table that maps a pinned frame; the boot image's are only read.
fn pinned<M: Machine>(state: &State, machine: &M, table: Frame) -> Option<usize> {
    for first in Lines::of(state.frames.chained(table)) {
        for (at, entry) in present(&machine.eight_entries(table, first)) {
            if state.published.frames[target(entry).0 as usize].pins != 0 {
                return Some(first | at);
            }
        }
    }
    None
}

pub(super) fn make_table<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    level: u8,
    number: u32,
    links: u32,
) -> Frame {
    let account = payer(state, request);
    let name = request.guard;
    let kind = match level {
        2 => FrameType::Table1,
        3 => FrameType::Table2,
        _ => FrameType::Table3,
    };
    let table = frame::take(state, machine, number, account, name, kind, Contents::Zeros);
    if level == 2 {
        frame::take(state, machine, links, account, name, FrameType::Links, Contents::Given);
        state.frames.records[number as usize].links = links;
    }
    let record = &mut state.published.domains[request.target];
    record.tables += frames_of(level);
    state.published.frames[number as usize].chain = record.id as u32;
    table
}

/// Stores an entry that leads to a table into an empty slot.
pub(super) fn enter_table<M: Machine>(
    state: &mut State,
    machine: &mut M,
    _request: &Request,
    place: Place,
    entry: u64,
) -> u64 {
    state.frames.records[place.table.0 as usize].count_entry(place.index);
    machine.entry_swap(place.table, place.index, entry)
}

/// The entry of level 2 as it would be with its table unfolded.
pub(super) fn unfolded(state: &State, entry: u64) -> u64 {
    if entry & (PRESENT | LARGE) == PRESENT | LARGE {
        fold::behind(state, entry).address() | TABLE_ENTRY
    } else {
        entry
    }
}

pub(super) fn share<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    place: Place,
    source: Place,
) -> u64 {
    let mut entry = machine.entry(source.table, source.index);
    if entry & LARGE != 0 {
        work::spend(state, cost::UNFOLD);
        fold::unfold(state, machine, fold::behind(state, entry));
        entry = machine.entry(source.table, source.index);
    }
    let frozen = entry & !WRITABLE;
    if entry != frozen {
        // It has been looked through for pins.
        work::spend(state, cost::SCAN);
        machine.entry_swap(source.table, source.index, frozen);
        machine.flush(Flush::Space(domain::root(state, request.caller)));
    }
    frame::reference(state, target(entry));
    state.published.domains[request.target].tables += frames_of(2);
    let entry = target(entry).address() | TABLE_ENTRY & !WRITABLE;
    enter_table(state, machine, request, place, entry)
}

pub(super) fn split<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    place: Place,
    number: u32,
    links: u32,
) -> u64 {
    let shared = target(machine.entry(place.table, place.index));
    let copy = make_table(state, machine, request, 2, number, links);
    work::spend(state, cost::COPY);
    let before = state.frames.records[shared.0 as usize].entries();
    let present = copy_entries(state, machine, None, shared, copy);
    let entry = copy.address() | TABLE_ENTRY;
    let old = machine.entry_swap(place.table, place.index, entry);
    // Translations of what was copied stay right, but processors may remember the way through the
    // old table: for whatever page they forget all ways of the space (SDM 3A 4.10.4.1). This is
    // the one by which the owner reads the table, and which led to the old frame. A frame that is
    // being taken away was not copied, and nothing else tells of its pages.
    let view = abi::layout::own_entry_address(request.item.address, 1) & !(PAGE_SIZE - 1);
    let all = present == before;
    let flush = if all { Flush::Page(request.root, view) } else { Flush::Space(request.root) };
    machine.flush(flush);
    frame::release(state, shared);
    let record = &mut state.published.domains[request.target];
    record.tables = record.tables.saturating_sub(frames_of(2));
    old
}

/// Enters a copy of another's table that is not frozen, with copies of the frames that are writable
/// there. Nothing changes for the other: there is no flush.
pub(super) fn copy<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    place: Place,
    shared: Frame,
    number: u32,
    links: u32,
) -> u64 {
    work::spend(state, cost::SCAN);
    let table = make_table(state, machine, request, 2, number, links);
    let present = copy_entries(state, machine, Some(request), shared, table);
    let record = &mut state.published.domains[request.target];
    record.entries = record.entries.wrapping_add(present);
    enter_table(state, machine, request, place, table.address() | TABLE_ENTRY)
}

/// Fills an empty table with what another has, read-only, or writable copies of what is writable
/// for the target of this `owner`; how many entries are present then. The longest loop of the
/// kernel: lines with nothing but the boot image's frames and payloads are copied as they stand.
#[inline(always)]
fn copy_entries<M: Machine>(
    state: &mut State,
    machine: &mut M,
    owner: Option<&Request>,
    from: Frame,
    to: Frame,
) -> u32 {
    let links = state.frames.records[to.0 as usize].links;
    let dying = state.accounts.dying != 0;
    let record = &state.frames.records[from.0 as usize];
    let (groups, mut entries) = (record.groups(), record.entries());
    let chained = state.frames.chained(from);
    if groups != 0 {
        let first = u64::from(groups.trailing_zeros());
        let behind = u64::from(16 - groups.leading_zeros());
        let (offset, bytes) = (first * GROUP_BYTES, (behind - first) * GROUP_BYTES);
        machine.copy(to.address() + offset, from.address() + offset, bytes as usize);
    }
    for first in Lines::of(chained) {
        for (at, entry) in present(&machine.eight_entries(from, first)) {
            let (index, frame) = (first | at, target(entry));
            if frame::is_image(state, frame) {
                continue;
            }
            let place = Place { table: to, index };
            let leaving = state.frames.records[frame.0 as usize].revoking;
            let copied = if leaving || dying && frame::is_leaving(state, frame) {
                entries.less(1);
                0
            } else if let Some(request) = owner
                && entry & MAY_WRITE != 0
            {
                let copy = copy_frame(state, machine, request, frame);
                chain::link(state, machine, place, links, copy);
                entry & !(ADDRESS | ACCESSED | DIRTY | TYPE) | copy.address()
            } else {
                state.published.frames[frame.0 as usize].references += 1;
                chain::link(state, machine, place, links, frame);
                entry & !MAY_WRITE
            };
            // Nobody walks the copy yet.
            machine.word_set(to.address() | (index as u64) << 3, copied);
        }
    }
    state.frames.records[to.0 as usize].set_entries(entries, groups);
    state.frames.set_chained(links, chained);
    entries
}

/// A copy of a frame, the target's; that there is one has been checked.
fn copy_frame<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    from: Frame,
) -> Frame {
    work::spend(state, cost::ZERO + cost::LEAF);
    let number = state.frames.free_head();
    let copy = take_page(state, machine, request, number, Contents::Given);
    machine.copy(copy.address(), from.address(), PAGE_SIZE as usize);
    copy
}

/// No flush: nothing below was writable before, nothing is now.
pub(super) fn thaw<M: Machine>(state: &mut State, machine: &mut M, place: Place) -> u64 {
    work::spend(state, cost::SCAN);
    let old = machine.entry(place.table, place.index);
    let table = target(old);
    // The boot image's frames are never writable.
    for first in Lines::of(state.frames.chained(table)) {
        let eight = machine.eight_entries(table, first);
        for (at, entry) in present(&eight) {
            // Of a payload the bit is its owner's.
            if entry & MAY_WRITE != 0 {
                machine.entry_swap(table, first | at, entry & !MAY_WRITE);
            }
        }
    }
    machine.entry_swap(place.table, place.index, old | WRITABLE)
}
