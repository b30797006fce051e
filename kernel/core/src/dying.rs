//! Tables that nothing refers to any more, taken apart in pieces (decisions 20).
//!
//! A table whose last reference goes, a domain's root among them, joins a list; each piece of work
//! takes one entry from the first of it. Tables below that die thereby go to the front, so the
//! list is at most as long as the tables in it, needs no stack, and no call waits for a whole tree.
//! No processor walks them: whoever unlinked one asked for a flush first, and what is given up here
//! hangs on that ticket or a later one.

use crate::chain::{self, Place};
use crate::frame;
use crate::machine::Machine;
use crate::state::State;
use crate::table::target;
use abi::id::Frame;
use abi::layout::{LIBRARY_SLOT, PROGRAM_SLOTS};
use abi::limits::WORK_PIECES;
use abi::memory::PRESENT;
use abi::published::FrameType;

/// Entries looked at in one piece of work, empty ones included.
const LOOKS: usize = 1024;

/// Works off one piece of the dying tables; is there more?
pub fn work<M: Machine>(state: &mut State, machine: &mut M) -> bool {
    let (mut pieces, mut looks) = (WORK_PIECES, LOOKS);
    while pieces > 0 && looks > 0 && state.frames.dying != 0 {
        let table = Frame(state.frames.dying);
        step(state, machine, table, &mut looks);
        pieces -= 1;
    }
    state.frames.dying != 0
}

/// Takes the next entry from `table`, if one is found in so many looks, or buries it when it has
/// none left.
fn step<M: Machine>(state: &mut State, machine: &mut M, table: Frame, looks: &mut usize) {
    let kind = frame::kind_of(state.published.frames[table.0 as usize].kind);
    let record = &mut state.frames.records[table.0 as usize];
    let mut index = usize::from(record.position);
    if record.entries() == 0 || index >= 512 {
        let links = record.links;
        frame::pop_dying(state);
        frame::bury(state, table);
        if kind == FrameType::Table1 {
            frame::release(state, Frame(links));
        }
        return;
    }
    // Most entries of most tables are empty, so this loop is most of the work of a death.
    let mut found = None;
    while index < 512 && *looks > 0 && found.is_none() {
        let entry = machine.entry(table, index);
        found = (entry & PRESENT != 0).then_some((index, entry));
        index += 1;
        *looks -= 1;
        // The kernel's half is not the domain's but for the library.
        if index == PROGRAM_SLOTS && kind == FrameType::Table4 {
            index = LIBRARY_SLOT;
        }
    }
    record.position = index as u16;
    let Some((index, entry)) = found else { return };
    machine.entry_swap(table, index, 0);
    if kind == FrameType::Table1 {
        chain::remove(state, machine, Place { table, index }, target(entry));
    } else {
        state.frames.records[table.0 as usize].discount_entry();
    }
    frame::release(state, target(entry));
}
