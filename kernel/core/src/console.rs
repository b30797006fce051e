//! The console's input ring and who is told of it.
//!
//! The ring is a page of the program's: two words, head (the kernel's: bytes put in, ever) and tail
//! (the owner's: bytes taken out, ever), then 4,080 bytes. What a full ring has no room for waits
//! in the device.

use crate::answer::Answer;
use crate::machine::Machine;
use crate::state::State;
use crate::{capability, domain, env, frame, sched, table};
use abi::capability::{DEVICE_CONSOLE, NAME_DEVICE, Name, READ};
use abi::error::Error;
use abi::id::Frame;
use abi::layout::{PAGE_SIZE, is_user};
use abi::published::FrameType;
use abi::upcall::EVENT_CONSOLE;

/// Bytes that the ring holds.
pub const RING_BYTES: u64 = PAGE_SIZE - 16;

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
    caller: usize,
    capability: u8,
    page: u64,
) -> Answer {
    let own = env::domain(state, caller).index();
    capability::check(state, own, capability, &GUARD, READ)?;
    let owner = usize::from(state.console.owner);
    if owner != 0 && owner != caller {
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
    machine.word_set(leaf.frame.address(), 0);
    machine.word_set(leaf.frame.address() + 8, 0);
    state.console = Console { owner: caller as u16, ring: leaf.frame, head: 0 };
    Ok(0)
}

/// Ends the ring of an environment, if it has it.
pub fn drop_ring(state: &mut State, index: usize) {
    if usize::from(state.console.owner) == index && index != 0 {
        let ring = core::mem::take(&mut state.console).ring;
        frame::unpin(state, ring);
    }
}

/// Would a byte be taken?
pub fn has_room<M: Machine>(state: &State, machine: &M) -> bool {
    let console = &state.console;
    let used = |tail: u64| console.head.wrapping_sub(tail);
    console.owner != 0 && used(machine.word(console.ring.address() + 8)) < RING_BYTES
}

/// A byte arrived at the terminal. `false`: nobody took it.
pub fn input<M: Machine>(state: &mut State, machine: &mut M, byte: u8) -> bool {
    if !has_room(state, machine) {
        return false;
    }
    let owner = usize::from(state.console.owner);
    let ring = state.console.ring.address();
    let place = ring + 16 + state.console.head % RING_BYTES;
    machine.fill(place, &[byte]);
    state.console.head += 1;
    machine.word_set(ring, state.console.head);
    sched::written(state, state.console.ring);
    sched::event(state, machine, owner, EVENT_CONSOLE);
    true
}
