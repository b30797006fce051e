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
    let mut pieces = WORK_PIECES;
    for _ in 0..LOOKS {
        let table = Frame(state.frames.dying);
        if table.0 == 0 || pieces == 0 {
            break;
        }
        if step(state, machine, table) {
            pieces -= 1;
        }
    }
    state.frames.dying != 0
}

/// Takes the next entry from `table`, or buries it when it has none. Did that do anything?
fn step<M: Machine>(state: &mut State, machine: &mut M, table: Frame) -> bool {
    let kind = frame::kind_of(state.published.frames[table.0 as usize].kind);
    let record = &mut state.frames.records[table.0 as usize];
    let index = usize::from(record.position);
    if record.entries() == 0 || index >= 512 {
        let links = record.links;
        frame::pop_dying(state);
        frame::bury(state, table);
        if kind == FrameType::Table1 {
            frame::release(state, Frame(links));
        }
        return true;
    }
    record.position += 1;
    if kind == FrameType::Table4 && usize::from(record.position) == PROGRAM_SLOTS {
        // The kernel's half is not the domain's but for the library.
        record.position = LIBRARY_SLOT as u16;
    }
    let entry = machine.entry(table, index);
    if entry & PRESENT == 0 {
        return false;
    }
    machine.entry_swap(table, index, 0);
    if kind == FrameType::Table1 {
        chain::remove(state, machine, Place { table, index }, target(entry));
    } else {
        state.frames.records[table.0 as usize].discount_entry();
    }
    frame::release(state, target(entry));
    true
}
