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

/// Takes the next entry from `table`, if one is found before the room ends, or buries it when it
/// has none left.
fn step<M: Machine>(state: &mut State, machine: &mut M, table: Frame) {
    work::spend(state, cost::ENTRY);
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
    let mut looks = work::PIECE.saturating_sub(state.spent) / cost::LOOK;
    let before = looks;
    while index < 512 && looks > 0 && found.is_none() {
        let entry = machine.entry(table, index);
        found = (entry & PRESENT != 0).then_some((index, entry));
        index += 1;
        looks -= 1;
        // The kernel's half is not the domain's but for the library.
        if index == PROGRAM_SLOTS && kind == FrameType::Table4 {
            index = LIBRARY_SLOT;
        }
    }
    state.frames.records[table.0 as usize].position = index as u16;
    work::spend(state, (before - looks) * cost::LOOK);
    let Some((index, entry)) = found else { return };
    machine.entry_swap(table, index, 0);
    if kind == FrameType::Table1 {
        chain::remove(state, machine, Place { table, index }, target(entry));
    } else {
        state.frames.records[table.0 as usize].discount_entry();
    }
    frame::release(state, target(entry));
}
