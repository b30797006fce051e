//! Delivery of faults and events into the save area (decisions 4, aegis95 S29, S32).

use crate::machine::Machine;
use crate::state::State;

/// Delivers a synchronous fault to the environment at `index`, running on this processor: its context is
/// rewritten to enter the fault handler. `false`: no handler could be entered; it has stopped.
pub fn deliver_fault<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: usize,
    cause: u8,
    error: u64,
    address: u64,
) -> bool {
    let _ = (state, machine, index, cause, error, address);
    false
}

/// Enters the event handler if an event waits and none is masked. `sched::pick` does this for whom
/// it picks.
pub fn deliver_events<M: Machine>(state: &mut State, machine: &mut M, index: usize) -> bool {
    let _ = (state, machine, index);
    false
}
