//! Entries into an environment's queue of events, if it has one (`abi::queue`).
//!
//! The queue's words are the program's: each is read once, and any value is safe.

use crate::machine::Machine;
use crate::state::State;
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use abi::queue::{BYTES, ENTRIES, POST, offset};

/// May the queue lie so far from the beginning of its save area? 0: there is none.
pub fn is_place(distance: u64) -> bool {
    let first = abi::upcall::offset::FREE as u64;
    distance.is_multiple_of(8) && (first..=PAGE_SIZE - BYTES).contains(&distance)
}

/// Event bits have been set.
pub fn events<M: Machine>(state: &State, machine: &mut M, index: usize, bits: u64) {
    if state.envs.slots[index].queue == 0 {
        return;
    }
    let now = machine.now_ns();
    for kind in (0..POST).filter(|kind| bits >> kind & 1 != 0) {
        put(state, machine, index, kind, EnvId::NONE, now);
    }
}

/// Bits were posted.
pub fn post<M: Machine>(state: &State, machine: &mut M, index: usize, sender: EnvId, bits: u64) {
    if state.envs.slots[index].queue != 0 {
        put(state, machine, index, POST, sender, bits);
    }
}

fn put<M: Machine>(
    state: &State,
    machine: &mut M,
    index: usize,
    kind: usize,
    sender: EnvId,
    value: u64,
) {
    let env = &state.envs.slots[index];
    let queue = env.save.address() + u64::from(env.queue);
    let put = machine.word(queue + offset::PUT);
    if put.wrapping_sub(machine.word(queue + offset::TAKEN)) >= ENTRIES as u64 {
        machine.word_add(queue + offset::OVERFLOW + 8 * kind as u64, 1);
        return;
    }
    let entry = queue + offset::ENTRIES + 16 * (put % ENTRIES as u64);
    machine.words_set(entry, &[kind as u64 | u64::from(sender.0) << 32, value]);
    machine.word_set(queue + offset::PUT, put.wrapping_add(1));
}
