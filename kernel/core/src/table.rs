//! Page tables as the processor walks them (decisions 8).
//!
//! Tables are typed frames, level n entered only in level n + 1. A table entered more than once is
//! *frozen*: `WRITABLE` is clear in every entry that leads to it, and its contents change by
//! revocation only. One that loses all but one reference stays frozen until it is thawed, so
//! "frozen" is exactly "the entry that leads there lacks `WRITABLE`".

use crate::answer::Refusal;
use crate::chain::Place;
use crate::frame::LINE;
use crate::index::DomainIndex;
use crate::machine::Machine;
use crate::state::State;
use crate::{domain, frame};
use abi::capability::Capability;
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::{is_user, table_index};
use abi::memory::{ADDRESS, LARGE, NO_EXECUTE, PRESENT, USER, WRITABLE};

pub use crate::dying::work;
pub use crate::update::{Request, cost, update_alone, update_item};

/// What an address leads to, all levels and-ed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The frame.
    pub frame: Frame,
    /// Stores are allowed.
    pub writable: bool,
    /// Instruction fetch is allowed.
    pub executable: bool,
}

/// Looks `address` up in the space with this root; nothing if it is not the program's to name, not
/// mapped, (with `need_write`) not writable, or about to be taken from it.
pub fn walk<M: Machine>(
    state: &State,
    machine: &M,
    root: Frame,
    address: u64,
    need_write: bool,
) -> Option<Leaf> {
    look_up(machine, root, address)
        .filter(|leaf| leaf.writable || !need_write)
        .filter(|leaf| !frame::is_leaving(state, leaf.frame))
}

/// As [`walk`], whatever the rights.
pub fn look_up<M: Machine>(machine: &M, root: Frame, address: u64) -> Option<Leaf> {
    match leaf_table(machine, root, address) {
        Some(table) => table.leaf(machine, address),
        None => large_leaf(machine, root, address),
    }
}

/// A level-1 table, and what the entries on the way to it leave of the rights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafTable {
    table: Frame,
    rights: u64,
    forbidden: u64,
}

/// The level-1 table for an address that a program may name, if it is not folded.
pub(crate) fn leaf_table<M: Machine>(machine: &M, root: Frame, address: u64) -> Option<LeafTable> {
    if !is_user(address) {
        return None;
    }
    let mut way = LeafTable::from(root);
    for level in (2..=4).rev() {
        way = way.below(machine.entry(way.table, table_index(address, level)))?;
    }
    Some(way)
}

/// What an address leads to for which there is no [`leaf_table`]: a page of a large one. What a
/// folded table's entries say is what the large entry says.
#[cold]
#[inline(never)]
pub(crate) fn large_leaf<M: Machine>(machine: &M, root: Frame, address: u64) -> Option<Leaf> {
    if !is_user(address) {
        return None;
    }
    let mut way = LeafTable::from(root);
    for level in [4, 3] {
        way = way.below(machine.entry(way.table, table_index(address, level)))?;
    }
    let entry = machine.entry(way.table, table_index(address, 2));
    if entry & LARGE == 0 {
        return None;
    }
    let first = way.below(entry & !LARGE)?;
    Some(Leaf {
        frame: Frame(first.table.0 + table_index(address, 1) as u32),
        writable: first.rights & WRITABLE != 0,
        executable: first.forbidden == 0,
    })
}

impl LeafTable {
    fn from(root: Frame) -> Self {
        Self { table: root, rights: PRESENT | USER | WRITABLE, forbidden: 0 }
    }

    /// Where this entry leads on to; a large one does not.
    fn below(self, entry: u64) -> Option<Self> {
        let rights = self.rights & entry;
        let forbidden = self.forbidden | entry & NO_EXECUTE;
        let leads_on = entry & (PRESENT | USER | LARGE) == PRESENT | USER;
        leads_on.then_some(Self { table: target(entry), rights, forbidden })
    }

    /// What an address leads to that this is the table for.
    pub(crate) fn leaf<M: Machine>(self, machine: &M, address: u64) -> Option<Leaf> {
        let end = self.below(machine.entry(self.table, table_index(address, 1)))?;
        let writable = end.rights & WRITABLE != 0;
        Some(Leaf { frame: end.table, writable, executable: end.forbidden == 0 })
    }
}

/// The frame that a present entry leads to.
pub(crate) fn target(entry: u64) -> Frame {
    Frame::containing(entry & ADDRESS)
}

/// The first entries of these lines.
pub(crate) struct Lines {
    left: u64,
}

impl Lines {
    pub(crate) fn of(lines: u64) -> Self {
        Self { left: lines }
    }
}

impl Iterator for Lines {
    type Item = usize;
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let line = self.left.trailing_zeros() as usize;
        self.left &= self.left.wrapping_sub(1);
        (line < 64).then_some(line * LINE)
    }
}

/// Those of a line's entries that are present, with their places in it.
#[inline(always)]
pub(crate) fn present(line: &[u64; 8]) -> Present<'_> {
    let bit = |at: usize| (line[at] & PRESENT) as u8;
    let bits = bit(0)
        | bit(1) << 1
        | bit(2) << 2
        | bit(3) << 3
        | bit(4) << 4
        | bit(5) << 5
        | bit(6) << 6
        | bit(7) << 7;
    Present { line, bits }
}

/// What [`present`] answers: nothing is asked of the others, which most are.
pub(crate) struct Present<'a> {
    line: &'a [u64; 8],
    bits: u8,
}

impl Iterator for Present<'_> {
    type Item = (usize, u64);
    #[inline(always)]
    fn next(&mut self) -> Option<(usize, u64)> {
        let at = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits.wrapping_sub(1);
        self.line.get(at).map(|&entry| (at, entry))
    }
}

/// Whether a frozen table may be on the way to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It may: the entry is only read, or loses what its way does not allow anyway.
    Any,
    /// It may not: the entry is to be changed.
    Thawed,
}

/// The entry of `level` for `address`; refuses with the level of the entry that stopped the walk. A
/// folded table stops it, too ([`crate::fold::page`]).
#[inline]
pub(crate) fn place<M: Machine>(
    machine: &M,
    root: Frame,
    address: u64,
    level: u8,
    way: Way,
) -> Result<Place, Refusal> {
    let mut table = root;
    let wanted = if way == Way::Thawed { PRESENT | WRITABLE } else { PRESENT };
    for above in (level + 1..=4).rev() {
        let entry = machine.entry(table, table_index(address, above));
        if entry & (wanted | LARGE) != wanted {
            return Err(Refusal::new(Error::NoTable, u64::from(above)));
        }
        table = target(entry);
    }
    Ok(Place { table, index: table_index(address, level) })
}

/// The index of the domain whose tables a call may change: the caller's own (0 or its id), or one
/// whose guard the capability dominates for WRITE.
pub fn changeable(
    state: &State,
    caller: DomainIndex,
    capability: &Capability,
    id: DomainId,
) -> Result<DomainIndex, Error> {
    let index = domain::find_or_own(state, caller, id)?;
    if domain::may_write(state, caller, index, capability) {
        Ok(index)
    } else {
        Err(Error::NotPermitted)
    }
}
