//! Entries into an environment's queue of events, if it has one (`abi::queue`).
//!
//! The queue's words are the program's: each is read once, and any value is safe.

use crate::index::EnvIndex;
use crate::machine::{Machine, Shared};
use crate::state::State;
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use abi::queue::{BYTES, ENTRIES, Entry, POST};

/// May the queue lie so far from the beginning of its save area? 0: there is none.
pub fn is_place(distance: u64) -> bool {
    let first = abi::upcall::offset::FREE as u64;
    distance.is_multiple_of(8) && (first..=PAGE_SIZE - BYTES).contains(&distance)
}

/// Event bits have been set.
pub fn events<M: Machine>(state: &State, machine: &mut M, index: EnvIndex, bits: u64) {
    if state.envs.slots[index].queue == 0 {
        return;
    }
    let now = machine.now_ns();
    for kind in (0..POST).filter(|kind| bits >> kind & 1 != 0) {
        put(state, machine, index, kind, EnvId::NONE, now);
    }
}

/// Bits were posted.
pub fn post<M: Machine>(state: &State, machine: &mut M, index: EnvIndex, sender: EnvId, bits: u64) {
    if state.envs.slots[index].queue != 0 {
        put(state, machine, index, POST, sender, bits);
    }
}

/// Apart from the callers: most environments have no queue.
#[inline(never)]
fn put<M: Machine>(
    state: &State,
    machine: &mut M,
    index: EnvIndex,
    kind: usize,
    sender: EnvId,
    value: u64,
) {
    let env = &state.envs.slots[index];
    let queue = env.save.address() + u64::from(env.queue);
    let entry = Entry { kind: kind as u32, sender: sender.0, value };
    abi::queue::put::<ENTRIES>(&mut Shared(machine), queue, &entry);
}
