//! `Yield`: the caller gives up the rest of its slice, to an environment that it names or to none.
//!
//! The short way of one to a named environment is in [`crate::handover`]; this is the long one, and
//! the only one to none.

use crate::env;
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::sched;
use crate::state::State;
use abi::error::Error;
use abi::id::EnvId;

/// `Yield`: the caller stays ready; the rest of its slice goes to `to`, or the next slice begins.
#[inline]
pub fn yield_to<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    to: EnvId,
) -> Result<(), Error> {
    if !to.is_none() {
        return yield_slice_to(state, machine, cpu, caller, to);
    }
    give_way(state, machine, cpu, caller);
    Ok(())
}

/// The caller leaves its processor, ready; the time of that, nanoseconds since boot.
#[inline]
fn give_way<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
) -> u64 {
    machine.context(caller.at()).answer(0, 0);
    let now = machine.now_ns();
    sched::leave_at(state, cpu, now);
    sched::stay_ready(state, caller);
    now
}

/// The rest of the caller's slice goes to another environment, if that can run.
#[inline(never)]
fn yield_slice_to<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    to: EnvId,
) -> Result<(), Error> {
    let target = env::lookup(state, to)?;
    if target == caller {
        return Ok(());
    }
    if !sched::can_run(state, machine, target) {
        return Err(Error::WrongState);
    }
    let now = give_way(state, machine, cpu, caller);
    let lender = &mut state.sched.cpus[cpu].lender;
    if EnvIndex::from(*lender) == target {
        *lender = 0;
    }
    sched::lengthen(state, cpu, target, now);
    sched::run(state, cpu, target, now);
    Ok(())
}
