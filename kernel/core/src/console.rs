//! The console's input ring and who is told of it.
//!
//! The ring is a page of the program's (`abi::console`).

use crate::answer::Answer;
use crate::index::{DomainIndex, EnvIndex};
use crate::machine::{Machine, Shared};
use crate::state::State;
use crate::{capability, domain, env, frame, sched, table};
use abi::capability::{DEVICE_CONSOLE, NAME_DEVICE, Name, READ};
use abi::console::ROOM;
use abi::error::Error;
use abi::id::Frame;
use abi::layout::{PAGE_SIZE, is_user};
use abi::published::FrameType;
use abi::upcall::EVENT_CONSOLE;

impl Console {
    /// The pinned ring.
    #[cfg(test)]
    pub(crate) fn ring(&self) -> Option<Frame> {
        (self.owner != 0).then_some(self.ring)
    }
}

/// What a capability must dominate for the console.
pub const GUARD: Name = Name::of(&[NAME_DEVICE, DEVICE_CONSOLE]);

/// Who has the input.
#[derive(Default)]
pub struct Console {
    /// Index of the environment, 0: nobody.
    owner: u16,
    /// Its ring.
    ring: Frame,
    /// Bytes put in, ever.
    head: u64,
}

/// `ConsoleRing`; page 0: none.
pub fn set_ring<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    page: u64,
) -> Answer {
    let own = DomainIndex::from(env::domain(state, caller));
    capability::check(state, own, capability, &GUARD, READ)?;
    let owner = EnvIndex::from(state.console.owner);
    if owner != EnvIndex::NONE && owner != caller {
        return Err(Error::Taken.into());
    }
    if page == 0 {
        drop_ring(state, caller);
        return Ok(0);
    }
    if !page.is_multiple_of(PAGE_SIZE) || !is_user(page) {
        return Err(Error::BadAddress.into());
    }
    let root = domain::root(state, own);
    let leaf = table::walk(state, machine, root, page, true).ok_or(Error::BadAddress)?;
    if frame::kind(state, leaf.frame) != Some(FrameType::Data) {
        return Err(Error::WrongType.into());
    }
    frame::pin(state, leaf.frame);
    drop_ring(state, caller);
    abi::console::begin(&mut Shared(machine), leaf.frame.address());
    state.console = Console { owner: caller.link(), ring: leaf.frame, head: 0 };
    Ok(0)
}

/// Ends the ring of an environment, if it has it.
pub fn drop_ring(state: &mut State, index: EnvIndex) {
    if EnvIndex::from(state.console.owner) == index && index != EnvIndex::NONE {
        let ring = core::mem::take(&mut state.console).ring;
        frame::unpin(state, ring);
    }
}

/// A frame is revoked: if it is the ring of the environment at `index`, nobody has the input.
pub(crate) fn revoke(state: &mut State, index: EnvIndex, frame: Frame) {
    if state.console.ring == frame {
        drop_ring(state, index);
    }
}

/// Would a byte be taken?
pub fn has_room<M: Machine>(state: &State, machine: &mut M) -> bool {
    let Console { owner, ring, head } = state.console;
    owner != 0 && abi::console::has_room::<ROOM>(&Shared(machine), ring.address(), head)
}

/// A byte arrived at the terminal. `false`: nobody took it.
pub fn input<M: Machine>(state: &mut State, machine: &mut M, byte: u8) -> bool {
    if !has_room(state, machine) {
        return false;
    }
    let owner = EnvIndex::from(state.console.owner);
    let (ring, head) = (state.console.ring.address(), state.console.head);
    abi::console::put::<ROOM>(&mut Shared(machine), ring, head, byte);
    state.console.head += 1;
    sched::written(state, state.console.ring);
    sched::event(state, machine, owner, EVENT_CONSOLE);
    true
}
