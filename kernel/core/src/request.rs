//! What is asked of an environment that runs on another processor: to die, to be held, to let go.
//!
//! ```text
//!   asker, with the lock     ask ── interrupt ──┐
//!   its processor            a call, or the interrupt ──► the lock ──► way out: served
//! ```
//! The environment may have waited for the lock with a call of its own, which has taken it off the
//! processor by then. It is asked all the same, on the same way out.

use crate::env::Request;
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{death, gate, lent, sched};
use abi::limits::CPUS;
use abi::published::EnvState;

/// Asks an environment that runs on another processor to do something when that one enters the
/// kernel. Whoever makes a call at the same time may have left the processor by then.
pub(crate) fn ask<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    request: Request,
) {
    let cpu = CpuIndex::from(state.published.envs[index].cpu % CPUS as u32);
    // Another one that was asked there has left by a short way, and would be forgotten.
    let asked = EnvIndex::from(state.sched.cpus[cpu].asked);
    if asked != EnvIndex::NONE && asked != index {
        serve_asked(state, machine, cpu, asked);
    }
    gate::close(state, index);
    state.envs.slots[index].request = request;
    state.sched.cpus[cpu].asked = index.link();
    machine.interrupt(cpu);
}

/// What others asked of an environment that runs here, or has run until now, while they could not
/// touch it.
#[inline]
pub(crate) fn serve<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) {
    let index = EnvIndex::from(state.sched.cpus[cpu].asked);
    if index != EnvIndex::NONE {
        serve_asked(state, machine, cpu, index);
    }
}

#[cold]
fn serve_asked<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, index: EnvIndex) {
    state.sched.cpus[cpu].asked = 0;
    let request = core::mem::take(&mut state.envs.slots[index].request);
    let is_here = CpuIndex::from(state.published.envs[index].cpu % CPUS as u32) == cpu;
    if state.envs.slots[index].state == EnvState::Running && !is_here {
        // It has left this one by a short way, and somebody has given it the time of another one.
        if request != Request::Nothing {
            ask(state, machine, index, request);
        }
        return;
    }
    // Its own call may have ended it.
    let waits = matches!(
        state.envs.slots[index].state,
        EnvState::Running | EnvState::Ready | EnvState::Sleeping | EnvState::Donating
    );
    if !waits {
        return;
    }
    let runs = EnvIndex::from(state.sched.cpus[cpu].current) == index;
    match request {
        Request::Nothing => {}
        Request::LetGo => lent::drop_save(state, index),
        Request::Hold => {
            if runs {
                sched::leave(state, machine, cpu);
            }
            death::hold_now(state, machine, index);
        }
        Request::Die { word, killer } => {
            if runs {
                sched::leave(state, machine, cpu);
            }
            death::die(state, machine, index, word, killer);
        }
    }
}
