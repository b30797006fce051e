//! Tables that nothing refers to any more, taken apart in pieces (decisions 20).
//!
//! A table whose last reference goes, a domain's root among them, joins the list of the account
//! that pays for it; each piece of work takes what it has room for from the first of it. Tables
//! below that die thereby join theirs, too, so it needs no stack, and no call waits for a whole
//! tree.
//! No processor walks them: whoever unlinked one asked for a flush first, and what is given up here
//! hangs on that ticket or a later one.

use crate::chain::{self, Place};
use crate::count::Count;
use crate::fold;
use crate::frame::{self, GROUP, LINE};
use crate::index::AccountIndex;
use crate::machine::Machine;
use crate::state::State;
use crate::table::{Lines, present, target};
use crate::work::{self, cost};
use abi::id::Frame;
use abi::layout::{LIBRARY_SLOT, PROGRAM_SLOTS};
use abi::published::FrameType;

/// Works off dying tables of an account while this hold of the lock has room; is there more?
pub fn work<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    while state.accounts.record(account).left.tables != 0 {
        if !work::room(state, cost::ENTRY) {
            return true;
        }
        step(state, machine, account);
    }
    false
}

/// Takes what there is room for from the first table; then it is buried, or goes back to the front.
fn step<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) {
    work::spend(state, cost::ENTRY);
    let table = frame::pop_dying(state, account);
    let record = &state.frames.records[table.0 as usize];
    let (entries, links) = (record.entries(), record.links);
    let kind = frame::kind_of(state.published.frames[table.0 as usize].kind);
    let leaves = kind == FrameType::Table1;
    let done = match entries {
        0 => true,
        _ if leaves => take_leaves(state, machine, table),
        _ => take_tables(state, machine, table, kind),
    };
    if !done {
        frame::push_dying(state, table);
        return;
    }
    frame::bury(state, table);
    if leaves {
        frame::release(state, Frame(links));
    }
}

/// Takes the next entries that lead to tables, as many as there is room for; was that all? Of a
/// root those of the kernel's half stay but for the library's.
fn take_tables<M: Machine>(
    state: &mut State,
    machine: &mut M,
    table: Frame,
    kind: FrameType,
) -> bool {
    let record = &state.frames.records[table.0 as usize];
    let mut left = record.entries();
    let from = usize::from(record.position);
    let mut groups = record.groups() & !0 << (from / GROUP);
    while groups != 0 {
        let group = groups.trailing_zeros() as usize * GROUP;
        groups &= groups - 1;
        work::spend(state, GROUP as u32 * cost::SKIP);
        for first in (group..group + GROUP).step_by(LINE) {
            let eight = machine.eight_entries(table, first);
            for (at, entry) in present(&eight) {
                let index = first | at;
                let kernels =
                    kind == FrameType::Table4 && index >= PROGRAM_SLOTS && index != LIBRARY_SLOT;
                if kernels {
                    continue;
                }
                if !work::room(state, cost::ENTRY) {
                    state.frames.records[table.0 as usize].position = index as u16;
                    return false;
                }
                work::spend(state, cost::ENTRY);
                machine.entry_swap(table, index, 0);
                state.frames.records[table.0 as usize].discount_entries(1);
                let below = fold::left_by(state, entry);
                frame::release(state, below);
                left.less(1);
                if left == 0 {
                    return true;
                }
            }
        }
    }
    true
}

/// Takes the next leaves, as many as there is room for; were they the last ones? Those that nothing
/// hangs on stay as they are: nobody reads the table any more.
fn take_leaves<M: Machine>(state: &mut State, machine: &mut M, table: Frame) -> bool {
    let links = state.frames.records[table.0 as usize].links;
    let chained = state.frames.chained(table);
    work::spend(state, chained.count_ones() * LINE as u32 * cost::SKIP);
    let most = 1 + work::PIECE.saturating_sub(state.spent) / cost::LEAF;
    let mut taken = 0;
    let mut left = None;
    'lines: for first in Lines::of(chained) {
        let eight = machine.eight_entries(table, first);
        for (at, entry) in present(&eight) {
            let index = first | at;
            let frame = target(entry);
            if frame::is_image(state, frame) {
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
