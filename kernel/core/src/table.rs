//! Page tables as the processor walks them (decisions 8).
//!
//! Tables are typed frames, level n entered only in level n + 1. A table entered more than once is
//! *frozen*: `WRITABLE` is clear in every entry that leads to it, and its contents change by
//! revocation only. One that loses all but one reference stays frozen until it is thawed, so
//! "frozen" is exactly "the entry that leads there lacks `WRITABLE`".

use crate::answer::Refusal;
use crate::chain::Place;
use crate::frame::GROUP;
use crate::machine::Machine;
use crate::state::State;
use crate::{domain, frame};
use abi::capability::{Capability, WRITE};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::{is_user, table_index};
use abi::memory::{ADDRESS, NO_EXECUTE, PRESENT, USER, WRITABLE};
use core::ops::Range;

pub use crate::dying::work;
pub use crate::update::{cost, update_item};

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
    leaf_table(machine, root, address)?.leaf(machine, address)
}

/// A level-1 table, and what the entries on the way to it leave of the rights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafTable {
    table: Frame,
    rights: u64,
    forbidden: u64,
}

/// The level-1 table for an address that a program may name.
pub(crate) fn leaf_table<M: Machine>(machine: &M, root: Frame, address: u64) -> Option<LeafTable> {
    if !is_user(address) {
        return None;
    }
    let mut way = LeafTable { table: root, rights: PRESENT | USER | WRITABLE, forbidden: 0 };
    for level in (2..=4).rev() {
        way = way.below(machine.entry(way.table, table_index(address, level)))?;
    }
    Some(way)
}

impl LeafTable {
    /// Where this entry leads on to.
    fn below(self, entry: u64) -> Option<Self> {
        let rights = self.rights & entry;
        let forbidden = self.forbidden | entry & NO_EXECUTE;
        let leads_on = rights & (PRESENT | USER) == PRESENT | USER;
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

/// The entries of a table that have one of some bits, in order. Groups that nothing was ever
/// entered in are passed over.
pub(crate) struct Entries {
    table: Frame,
    bits: u64,
    /// Groups behind the present one.
    groups: u16,
    /// What is left of the present one.
    left: Range<usize>,
}

impl Entries {
    /// Those of `table` from `from` on.
    pub(crate) fn of(state: &State, table: Frame, from: usize, bits: u64) -> Self {
        let groups = state.frames.records[table.0 as usize].groups();
        let first = from / GROUP;
        let here = first < 16 && groups >> first & 1 != 0;
        let left = if here { from..(first + 1) * GROUP } else { 0..0 };
        let behind = if first < 15 { groups & !0 << (first + 1) } else { 0 };
        Self { table, bits, groups: behind, left }
    }

    /// The index of the next one.
    #[inline(always)]
    pub(crate) fn next<M: Machine>(&mut self, machine: &M) -> Option<usize> {
        loop {
            if self.left.start < self.left.end {
                let found = machine.next_entry(self.table, self.left.clone(), self.bits);
                self.left.start = found + 1;
                if found < self.left.end {
                    return Some(found);
                }
            }
            if self.groups == 0 {
                return None;
            }
            let first = self.groups.trailing_zeros() as usize * GROUP;
            self.groups &= self.groups - 1;
            self.left = first..first + GROUP;
        }
    }
}

/// The first entries of the lines of eight that these groups consist of.
pub(crate) struct Lines {
    groups: u16,
    next: usize,
}

impl Lines {
    pub(crate) fn of(groups: u16) -> Self {
        Self { groups, next: 0 }
    }
}

impl Iterator for Lines {
    type Item = usize;
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.next.is_multiple_of(GROUP) {
            if self.groups == 0 {
                return None;
            }
            self.next = self.groups.trailing_zeros() as usize * GROUP;
            self.groups &= self.groups - 1;
        }
        let line = self.next;
        self.next += 8;
        Some(line)
    }
}

/// Has one of these entries one of these bits?
#[inline(always)]
pub(crate) fn any_has(entries: &[u64; 8], bits: u64) -> bool {
    entries.iter().fold(0, |any, entry| any | entry) & bits != 0
}

/// Whether a frozen table may be on the way to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It may: the entry is only read, or loses what its way does not allow anyway.
    Any,
    /// It may not: the entry is to be changed.
    Thawed,
}

/// The entry of `level` for `address`; refuses with the level of the entry that stopped the walk.
#[inline]
pub(crate) fn place<M: Machine>(
    machine: &M,
    root: Frame,
    address: u64,
    level: u8,
    way: Way,
) -> Result<Place, Refusal> {
    let mut table = root;
    for above in (level + 1..=4).rev() {
        let entry = machine.entry(table, table_index(address, above));
        if entry & PRESENT == 0 || (way == Way::Thawed && entry & WRITABLE == 0) {
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
    caller: usize,
    capability: &Capability,
    id: DomainId,
) -> Result<usize, Error> {
    let index = domain::find_or_own(state, caller, id)?;
    if index == caller || capability.dominates(domain::guard(state, index), WRITE) {
        Ok(index)
    } else {
        Err(Error::NotPermitted)
    }
}
