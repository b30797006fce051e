//! Tables that nothing refers to any more, taken apart in pieces (decisions 20).
//!
//! A table whose last reference goes, a domain's root among them, joins a list; each piece of work
//! takes some entries from the first of it. Tables below that die thereby go to the front, so the
//! list is at most as long as the tables in it, needs no stack, and no call waits for a whole tree.
//! No processor walks them: whoever unlinked one asked for a flush first, and what is given up here
//! hangs on that ticket or a later one.

use crate::chain::{self, Place};
use crate::frame::{self, GROUP};
use crate::machine::Machine;
use crate::state::State;
use crate::table::{Entries, Lines, any_has, target};
use crate::work::{self, cost};
use abi::id::Frame;
use abi::layout::{LIBRARY_SLOT, PROGRAM_SLOTS};
use abi::memory::PRESENT;
use abi::published::FrameType;

/// Works off dying tables while this hold of the lock has room; is there more?
pub fn work<M: Machine>(state: &mut State, machine: &mut M) -> bool {
    while state.frames.dying != 0 && work::room(state, cost::ENTRY) {
        let table = Frame(state.frames.dying);
        step(state, machine, table);
    }
    state.frames.dying != 0
}

/// Takes the next entries from `table`, or buries it when it has none left.
fn step<M: Machine>(state: &mut State, machine: &mut M, table: Frame) {
    work::spend(state, cost::ENTRY);
    let record = &state.frames.records[table.0 as usize];
    let index = usize::from(record.position);
    let links = record.links;
    let kind = frame::kind_of(state.published.frames[table.0 as usize].kind);
    let done = if record.entries() == 0 || index >= 512 {
        true
    } else if kind == FrameType::Table1 {
        take_leaves(state, machine, table)
    } else {
        take_table(state, machine, table, index, kind);
        false
    };
    if done {
        frame::pop_dying(state);
        frame::bury(state, table);
        if kind == FrameType::Table1 {
            frame::release(state, Frame(links));
        }
    }
}

/// Takes the next entry that leads to a table.
fn take_table<M: Machine>(
    state: &mut State,
    machine: &mut M,
    table: Frame,
    from: usize,
    kind: FrameType,
) {
    let mut index = Entries::of(state, table, from, PRESENT).next(machine).unwrap_or(512);
    work::spend(state, (index - from) as u32 * cost::SKIP);
    // The kernel's half is not the domain's but for the library.
    if kind == FrameType::Table4 && (PROGRAM_SLOTS..LIBRARY_SLOT).contains(&index) {
        index = LIBRARY_SLOT;
    }
    state.frames.records[table.0 as usize].position = (index + 1).min(512) as u16;
    let entry = if index < 512 { machine.entry(table, index) } else { 0 };
    if entry & PRESENT != 0 {
        machine.entry_swap(table, index, 0);
        state.frames.records[table.0 as usize].discount_entries(1);
        frame::release(state, target(entry));
    }
}

/// Takes the next leaves, as many as there is room for; were they the last ones? Those that nothing
/// hangs on stay as they are: nobody reads the table any more.
fn take_leaves<M: Machine>(state: &mut State, machine: &mut M, table: Frame) -> bool {
    let record = state.frames.records[table.0 as usize];
    let links = record.links;
    work::spend(state, record.chained().count_ones() * GROUP as u32 * cost::SKIP);
    let most = 1 + work::PIECE.saturating_sub(state.spent) / cost::LEAF;
    let mut taken = 0;
    let mut left = None;
    'lines: for first in Lines::of(record.chained()) {
        let eight = machine.eight_entries(table, first);
        if !any_has(&eight, PRESENT) {
            continue;
        }
        for (at, entry) in eight.into_iter().enumerate() {
            let index = first | at;
            let frame = target(entry);
            if entry & PRESENT == 0 || frame::is_image(state, frame) {
                continue;
            }
            if taken == most {
                left = Some(index);
                break 'lines;
            }
            machine.word_set(table.address() + 8 * index as u64, 0);
            chain::unlink(state, machine, Place { table, index }, links, frame);
            frame::release(state, frame);
            taken += 1;
        }
    }
    work::spend(state, taken * cost::LEAF);
    left.is_none()
}
