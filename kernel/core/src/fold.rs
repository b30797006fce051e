//! Level-1 tables that a 2 MiB leaf stands for: *folded* (decisions 8, 0032).
//!
//! A leaf of level 2 is a cache of 512 equal entries. The table stays behind it, with its links, so
//! that reverse chains, references, guards and revocation go on frame by frame; whoever changes one
//! of its entries unfolds it first. The way from the leaf to the table is an index in its software
//! bits; the table's record has the same index.
//!
//! ```text
//!  level-2 table          folded tables               level-1 table
//!  [5] LARGE, index 7 ──► [7] table, (level-2, 5) ──► 512 entries: frames F, F+1 … F+511
//!          └─ F                    ▲                   record.position = 7
//!                                  └──────────────────────────┘
//! ```

use crate::account;
use crate::answer::Refusal;
use crate::chain::Place;
use crate::index::AccountIndex;
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::table::{self, Way, target};
use crate::work::{self, cost};
use abi::error::Error;
use abi::id::Frame;
use abi::layout::table_index;
use abi::limits::Resource;
use abi::memory::{
    ACCESSED, CACHE_DISABLE, DIRTY, KEEPS_WRITE, LARGE, NO_EXECUTE, PRESENT, SOFTWARE, USER,
    WRITABLE, WRITE_THROUGH,
};
use abi::published::FrameType;

#[cfg(test)]
mod tests;

/// Entries of a table; frames of a large page.
const ENTRIES: usize = 512;
/// What all entries of a folded table have in common, and the large entry with them.
const COMMON: u64 = PRESENT | USER | WRITABLE | NO_EXECUTE | WRITE_THROUGH | CACHE_DISABLE;
/// What the processor sets.
const USED: u64 = ACCESSED | DIRTY;
/// As many records as the software bits of an entry can name, index 0 among them.
pub const MOST: usize = 1 << 14;

/// A folded table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The table; of a free record the next free one.
    table: u32,
    /// The level-2 entry that the table was taken from: its table's frame and, in the low 9 bits,
    /// its index.
    above: u32,
}

/// The table of folded tables: index 0 is nobody's.
pub struct Folds {
    records: &'static mut [Record],
    /// The first that was given back; 0: none.
    free: u32,
    /// The first that has never been used.
    fresh: u32,
}

impl Folds {
    /// An empty table.
    pub fn new(records: &'static mut [Record]) -> Self {
        Self { records, free: 0, fresh: 1 }
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.records.len() - 1
    }

    fn has_room(&self) -> bool {
        self.free != 0 || (self.fresh as usize) < self.records.len()
    }

    /// Takes a record; that there is one has been checked.
    fn take(&mut self, table: Frame, above: Place) -> usize {
        let index = if self.free != 0 { self.free } else { self.fresh };
        if self.free != 0 {
            self.free = self.records[index as usize].table;
        } else {
            self.fresh += 1;
        }
        let above = above.table.0 << 9 | above.index as u32;
        self.records[index as usize] = Record { table: table.0, above };
        index as usize
    }

    /// Records in use.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        let free =
            core::iter::successors(Some(self.free), |&at| Some(self.records[at as usize].table));
        self.fresh as usize - 1 - free.take_while(|&at| at != 0).count()
    }

    fn give_back(&mut self, index: usize) {
        self.records[index] = Record { table: self.free, above: 0 };
        self.free = index as u32;
    }
}

/// The software bits that name a record.
fn bits(index: usize) -> u64 {
    (index as u64 & 0b111) << 9 | (index as u64 >> 3) << 52
}

/// The record that an entry names.
fn index(entry: u64) -> usize {
    let bits = entry & (SOFTWARE | KEEPS_WRITE);
    (bits >> 9 & 0b111 | bits >> 52 << 3) as usize
}

/// The table that this large entry stands for.
#[cold]
pub(crate) fn behind(state: &State, entry: u64) -> Frame {
    Frame(state.folds.records[index(entry)].table)
}

/// The table that this entry of level 2 to 4 led to, folded or not; the entry has been taken away.
pub(crate) fn left_by(state: &mut State, entry: u64) -> Frame {
    if entry & LARGE != 0 { close(state, entry) } else { target(entry) }
}

/// The entry of level 1 for `address`, if its table is folded.
pub(crate) fn page<M: Machine>(
    state: &State,
    machine: &M,
    root: Frame,
    address: u64,
) -> Option<Place> {
    let above = table::place(machine, root, address, 2, Way::Any).ok()?;
    let entry = machine.entry(above.table, above.index);
    let large = entry & (PRESENT | LARGE) == PRESENT | LARGE;
    large.then(|| Place { table: behind(state, entry), index: table_index(address, 1) })
}

/// All folded tables.
#[cfg(test)]
pub(crate) fn tables(state: &State) -> std::vec::Vec<Frame> {
    let used = state.folds.records[1..].iter().filter(|record| record.above != 0);
    used.map(|record| Frame(record.table)).collect()
}

/// Does a large entry stand for this table, which is in use?
#[inline(always)]
pub(crate) fn is_folded(state: &State, table: Frame) -> bool {
    state.frames.records[table.0 as usize].position != 0
}

/// May the table that the entry at `place` leads to be folded? The large entry, but for its index.
pub(crate) fn check<M: Machine>(state: &State, machine: &M, place: Place) -> Result<u64, Refusal> {
    let above = machine.entry(place.table, place.index);
    if above & PRESENT == 0 {
        return Err(Refusal::new(Error::NoTable, 2));
    }
    // Folded already, or frozen: other spaces see the same entries.
    if above & (WRITABLE | LARGE) != WRITABLE {
        return Err(Error::WrongState.into());
    }
    let table = target(above);
    let first = machine.entry(table, 0);
    let (block, common) = (target(first).0, first & COMMON);
    let mut used = 0;
    for at in 0..ENTRIES {
        let entry = machine.entry(table, at);
        let refused = |error| Err(Refusal::new(error, at as u64));
        if entry & PRESENT == 0 {
            return refused(Error::BadAddress);
        }
        if state.published.frames[target(entry).0 as usize].kind != FrameType::Data as u8 {
            return refused(Error::WrongType);
        }
        // Aligned, one behind the other, with the same rights; never to be executed: a processor
        // may stop (a machine check) that finds an instruction's translation in two sizes.
        let is_next = block.is_multiple_of(ENTRIES as u32) && target(entry).0 == block + at as u32;
        if !is_next || entry & COMMON != common || entry & NO_EXECUTE == 0 {
            return refused(Error::Changed);
        }
        used |= entry & USED;
    }
    account::check(state, payer(state, table), Resource::Folds, 1)?;
    if !state.folds.has_room() {
        return Err(Error::Exhausted.into());
    }
    Ok(Frame(block).address() | common | used | LARGE)
}

/// Index of the account that pays for a table, and so for its being folded.
fn payer(state: &State, table: Frame) -> AccountIndex {
    state.published.frames[table.0 as usize].account.into()
}

/// Puts the large entry in the table's place; answers what was there. Whoever may still walk the
/// table finds the same there: what is set in it meanwhile is not lost, [`unfold`] joins it.
pub(crate) fn fold<M: Machine>(
    state: &mut State,
    machine: &mut M,
    root: Frame,
    place: Place,
    large: u64,
) -> u64 {
    work::spend(state, cost::FOLD);
    let table = target(machine.entry(place.table, place.index));
    account::count(state, payer(state, table), Resource::Folds, 1);
    let index = state.folds.take(table, place);
    state.frames.records[table.0 as usize].position = index as u16;
    machine.flush(Flush::Space(root));
    machine.entry_swap(place.table, place.index, large | bits(index))
}

/// [`unfold`], of a table of the space with this root.
pub(crate) fn unfold_own<M: Machine>(
    state: &mut State,
    machine: &mut M,
    root: Frame,
    table: Frame,
) -> u64 {
    work::spend(state, cost::UNFOLD);
    machine.flush(Flush::Space(root));
    unfold(state, machine, table)
}

/// The level-2 entry of a folded table.
pub(crate) fn place(state: &State, table: Frame) -> Place {
    let index = usize::from(state.frames.records[table.0 as usize].position);
    let above = state.folds.records[index].above;
    Place { table: Frame(above >> 9), index: (above & 511) as usize }
}

/// Puts a folded table back where it was, and gives its entries the bits that the processor has set
/// in the large one; answers that. Whoever calls this asks for a flush of the whole space: a large
/// page may be remembered in pieces, which flushing one page of a table does not reach.
#[cold]
pub(crate) fn unfold<M: Machine>(state: &mut State, machine: &mut M, table: Frame) -> u64 {
    let above = place(state, table);
    let entry = table.address() | crate::update::TABLE_ENTRY;
    let large = machine.entry_swap(above.table, above.index, entry);
    close(state, large);
    let used = large & USED;
    if used != 0 {
        for at in 0..ENTRIES as u64 {
            machine.word_or(table.address() + 8 * at, used);
        }
    }
    large
}

/// A large entry has been taken away: nothing leads to its table any more, which is answered.
#[cold]
fn close(state: &mut State, large: u64) -> Frame {
    let index = index(large);
    let table = Frame(state.folds.records[index].table);
    debug_assert_eq!(usize::from(state.frames.records[table.0 as usize].position), index);
    state.frames.records[table.0 as usize].position = 0;
    state.folds.give_back(index);
    account::uncharge(state, payer(state, table), Resource::Folds, 1);
    table
}

/// The bits that the processor sets, of an entry of this table: those of its large entry, if it is
/// folded. They are taken from there with the last of its pages, so that all have the same age.
pub(crate) fn take_accessed<M: Machine>(state: &State, machine: &mut M, page: Place) -> bool {
    let above = self::place(state, page.table);
    let entry = above.table.address() + 8 * above.index as u64;
    let used = machine.word(entry) & ACCESSED != 0;
    if used && page.index == ENTRIES - 1 {
        machine.word_and(entry, !ACCESSED);
    }
    used
}
