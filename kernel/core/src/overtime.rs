//! What an environment takes beyond the end of its slice, and how it and its account pay for it.
//!
//! ```text
//!   slice ─► told of its end ─► a slice more ─┬─► lets go: what it took is owed
//!                                             ├─► others wait: taken off, and owes a slice
//!                                             └─► alone: a slice more, and so on; then it dies
//! ```
//! What is owed the environment pays by its own turns, and its account by as many of its.

use crate::env;
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{death, gate, sched, turns};
use abi::limits::SLICE_NS;
use abi::upcall::EVENT_SLICE_END;

/// Slices that an environment may take after the end it asked to be told of; then it is destroyed.
pub const EXCESS_MAX: u32 = 8;
/// The word with which an environment dies that ignored the end of `EXCESS_MAX` slices.
pub const EXCESS_WORD: u64 = u64::MAX;

/// The end of a slice whose environment switches its own context, at home: it is told, and pays for
/// the time until it lets go: by a turn for each whole slice, by a part of one for what is left.
/// Where other accounts wait, it has one slice more at a time, and its account pays as well: how
/// many environments an account has that ignore the ends of their slices changes nothing for
/// others. An end is put off once in a slice, and for no account that owes a turn already: an
/// environment that one which was told has yielded to is not told, and goes on in its own turn. A
/// ring of them would have the processor for ever else.
#[cold]
#[inline(never)]
pub(crate) fn told_to_end<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    index: EnvIndex,
    now: u64,
) {
    turns::overran(state, cpu, now);
    let ignored = state.envs.slots[index].ending;
    let taken = state.sched.cpus[cpu].extended;
    let account = turns::account_of(state, index);
    let (alone, owes) =
        (turns::alone(state, cpu, account), turns::owes_a_turn(state, cpu, account));
    if ignored == 0 && !alone && (taken || owes) {
        sched::leave_at(state, cpu, now);
        sched::stay_ready(state, index);
        return;
    }
    let this = &mut state.sched.cpus[cpu];
    (this.extended, this.slice_end_ns) = (true, now + SLICE_NS);
    gate::close(state, index);
    state.envs.slots[index].ending = ignored.saturating_add(1);
    if ignored == 0 {
        sched::event(state, machine, index, EVENT_SLICE_END);
        return;
    }
    if taken {
        state.published.envs[index].excess += 1;
        turns::charge(state, cpu, index, SLICE_NS);
    }
    if state.published.envs[index].excess > EXCESS_MAX || u32::from(ignored) > EXCESS_MAX {
        let killer = env::id(state, index);
        leave_on_account(state, cpu, now);
        death::die(state, machine, index, EXCESS_WORD, killer);
    } else if !alone {
        leave_on_account(state, cpu, now);
        sched::stay_ready(state, index);
    }
}

/// One that takes no turns any more can't pay for what it has taken beyond the end of its slice:
/// this is the end, and its account pays. On borrowed time the slice is the lender's, and goes on.
#[cold]
pub(crate) fn pay_by_account(state: &mut State, index: EnvIndex) {
    let cpu = CpuIndex::from(state.published.envs[index].cpu);
    let this = &mut state.sched.cpus[cpu];
    if this.lender == 0 {
        this.slice_end_ns = 0;
    }
    turns::charge(state, cpu, index, SLICE_NS);
}

/// The same as [`sched::leave_at`] for one that is charged already, and has not let go.
fn leave_on_account(state: &mut State, cpu: CpuIndex, now: u64) {
    let index = EnvIndex::from(state.sched.cpus[cpu].current);
    let ending = core::mem::take(&mut state.envs.slots[index].ending);
    sched::leave_at(state, cpu, now);
    state.sched.cpus[cpu].slice_end_ns = now;
    state.envs.slots[index].ending = ending;
}

/// What it took beyond the end of its slice is paid by its next slice, and by its account; nobody
/// gets the rest.
#[cold]
#[inline(never)]
pub(crate) fn let_go(state: &mut State, cpu: CpuIndex, index: EnvIndex, now: u64) {
    let this = &mut state.sched.cpus[cpu];
    // On borrowed time the slice, and what it was put off by, is the lender's.
    if !this.extended || this.lender != 0 {
        return;
    }
    let over = SLICE_NS.saturating_sub(this.slice_end_ns.saturating_sub(now));
    this.slice_end_ns = now;
    let debt = &mut state.envs.slots[index].debt_ns;
    *debt = debt.saturating_add(over as u32);
    turns::charge(state, cpu, index, over);
}
