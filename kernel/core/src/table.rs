//! Page tables: the cache of secure bindings (decisions 8, 14; xok97 XK-12, XK-15).

use crate::answer::Answer;
use crate::machine::Machine;
use crate::state::State;
use abi::capability::Capability;
use abi::id::Frame;
use abi::layout::{is_user, table_index};
use abi::memory::{ADDRESS, Item, NO_EXECUTE, PRESENT, USER, WRITABLE};

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
/// mapped, or (with `need_write`) not writable.
pub fn walk<M: Machine>(
    _state: &State,
    machine: &M,
    root: Frame,
    address: u64,
    need_write: bool,
) -> Option<Leaf> {
    look_up(machine, root, address).filter(|leaf| leaf.writable || !need_write)
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
        table = Frame::containing(entry & ADDRESS);
    }
    Some(Leaf { frame: table, writable: rights & WRITABLE != 0, executable: forbidden == 0 })
}

/// Does one item of `TableUpdate` to the domain at index `target`; `capability` is the one the call
/// names, `caller` the index of the caller's domain. The answer is the old entry.
pub fn update_item<M: Machine>(
    _state: &mut State,
    _machine: &mut M,
    _caller: usize,
    _target: usize,
    _capability: &Capability,
    _item: &Item,
) -> Answer {
    todo!("lands next")
}

/// Works off one piece of the dying tables; is there more?
pub fn work<M: Machine>(_state: &mut State, _machine: &mut M) -> bool {
    todo!("lands next")
}
