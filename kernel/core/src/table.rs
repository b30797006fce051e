//! Page tables as the processor walks them (decisions 8).
//!
//! Tables are typed frames, level n entered only in level n + 1. A table entered more than once is
//! *frozen*: `WRITABLE` is clear in every entry that leads to it, and its contents change by
//! revocation only. One that loses all but one reference stays frozen until it is thawed, so
//! "frozen" is exactly "the entry that leads there lacks `WRITABLE`".

use crate::answer::Refusal;
use crate::chain::Place;
use crate::machine::Machine;
use crate::state::State;
use crate::{domain, frame};
use abi::capability::{Capability, WRITE};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::{is_user, table_index};
use abi::memory::{ADDRESS, NO_EXECUTE, PRESENT, USER, WRITABLE};

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
    if !is_user(address) {
        return None;
    }
    let mut rights = PRESENT | USER | WRITABLE;
    let mut forbidden = 0;
    let mut table = root;
    for level in (1..=4).rev() {
        let entry = machine.entry(table, table_index(address, level));
        rights &= entry;
        forbidden |= entry & NO_EXECUTE;
        if rights & (PRESENT | USER) != PRESENT | USER {
            return None;
        }
        table = target(entry);
    }
    let writable = rights & WRITABLE != 0;
    Some(Leaf { frame: table, writable, executable: forbidden == 0 })
}

/// The frame that a present entry leads to.
pub(crate) fn target(entry: u64) -> Frame {
    Frame::containing(entry & ADDRESS)
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
