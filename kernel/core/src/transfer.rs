//! Protected control transfer (aegis95 S33, thesis98 I-1..I-3, decisions 19).
//!
//! ```text
//!   caller: TransferSync ──registers──► callee, at its sync entry     caller is Donating
//!   callee: TransferSync to the caller ──registers──► caller, behind its call, rax 0
//! ```
//! The registers are the message: all arrive but rcx (the sender's id) and r11. A callee is entered
//! on the sender's stack pointer; who gets a reply keeps its own stack pointer, rip and flags.
//! Vector registers travel, being left as they are. Nothing is copied but the context; no
//! permission is asked: whom to serve is the callee's business, and rcx cannot be forged.

use crate::busy::Next;
use crate::context::Context;
use crate::count::Count;
use crate::dispatch::continuation::{Continuation, Done};
use crate::env::{self, Env, Pending, WAITED};
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{busy, death, gate, loan, sched, sleep, upcall, visit};
use abi::call::{TRANSFER_REPLY, TRANSFER_WAIT, transfer_target};
use abi::error::Error;
use abi::id::EnvId;
use abi::published::EnvState;
use abi::upcall::offset;

/// `TransferSync`; `word` is the caller's rax.
pub fn synchronous<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    word: u64,
    k: Continuation,
) -> Done {
    let target = match target(state, caller, word) {
        Ok(target) => target,
        Err(error) => return k.refuse(error),
    };
    let replies = word & TRANSFER_REPLY != 0;
    if waits_for(state, target, caller) {
        return reply(state, machine, (cpu, caller), target, replies, k);
    }
    // The one that waited has ended: whatever has its id now is not called.
    if replies {
        return k.refuse(Error::Busy);
    }
    let entry = state.envs.slots[target].entries.sync;
    if let Err(error) = check_accepting(state, machine, target, entry) {
        if word & TRANSFER_WAIT == 0 {
            return k.refuse(error);
        }
        if entry == 0 {
            // One that has only begun is yielded to, until it says where it is called.
            return k.refuse(Error::WrongState);
        }
        return match busy::whom_to_run(state, caller, target) {
            Ok(runs) => busy::wait(state, machine, (cpu, caller), (target, runs), k),
            Err(Error::Busy) => busy::refuse(state, machine, (cpu, true), target, k),
            Err(error) => k.refuse(error),
        };
    }
    if let Err(error) = busy::check_turn(state, machine, cpu, target) {
        return match word & TRANSFER_WAIT {
            0 => k.refuse(error),
            _ => busy::refuse(state, machine, (cpu, false), target, k),
        };
    }
    let message = *machine.context(caller.at());
    let now = machine.now_ns();
    busy::accepted(state, cpu, target, now);
    sched::leave_at(state, cpu, now);
    state.envs.slots[caller].pending = Pending::Reply;
    state.envs.slots[target].donors += 1;
    state.published.envs[caller].donated_to = env::id(state, target).0;
    env::come_or_go(state, caller, EnvState::Donating);
    sched::enqueue(state, caller);
    state.envs.slots[target].client = caller.link();
    enter(state, machine, (cpu, now), (caller, target), &message, entry);
    k.enter(target)
}

/// `TransferAsync`: the caller stays ready; its vector registers are stored for it first.
pub fn asynchronous<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    word: u64,
    k: Continuation,
) -> Done {
    let target = match target(state, caller, word) {
        Ok(target) => target,
        Err(error) => return k.refuse(error),
    };
    let entry = state.envs.slots[target].entries.asynchronous;
    let accepts = check_accepting(state, machine, target, entry);
    if let Err(error) = accepts.and_then(|()| busy::check_turn(state, machine, cpu, target)) {
        return k.refuse(error);
    }
    let message = *machine.context(caller.at());
    machine.context(caller.at()).answer(0, 0);
    machine.vector_store(state.envs.slots[caller].vector);
    let now = machine.now_ns();
    busy::accepted(state, cpu, target, now);
    sched::leave_at(state, cpu, now);
    sched::stay_ready(state, caller);
    state.envs.slots[target].client = 0;
    enter(state, machine, (cpu, now), (caller, target), &message, entry);
    k.enter(target)
}

/// The environment does not wait for a reply any more, or until a server accepts: it got a reply,
/// the server accepts, or one side died.
pub fn end_wait(state: &mut State, index: EnvIndex) {
    gate::close(state, index);
    let callee = EnvId(state.published.envs[index].donated_to);
    state.published.envs[index].donated_to = 0;
    state.envs.slots[index].pending = Pending::Nothing;
    if let Ok(callee) = env::lookup(state, callee) {
        let env = &mut state.envs.slots[callee];
        env.donors.less(1);
        if env.donors == 0 {
            env.marks &= !WAITED;
        }
        death::forget_unnamed(state, callee);
    }
}

fn target(state: &State, caller: EnvIndex, word: u64) -> Result<EnvIndex, Error> {
    let id = transfer_target(word);
    let target = env::living(state, id)?;
    if target == caller { Err(Error::Busy) } else { Ok(target) }
}

/// Does the target wait for the caller's reply? A caller that is away has none to give: its home
/// was called.
fn waits_for(state: &State, target: EnvIndex, caller: EnvIndex) -> bool {
    !visit::is_away(state, caller)
        && state.envs.slots[target].pending == Pending::Reply
        && state.published.envs[target].donated_to == env::id(state, caller).0
}

/// A sleeper that said so accepts; else one that does not run, has set `accepting` and masks
/// nothing.
pub(crate) fn check_accepting<M: Machine>(
    state: &State,
    machine: &M,
    target: EnvIndex,
    entry: u64,
) -> Result<(), Error> {
    let env = &state.envs.slots[target];
    let willing = accepts(machine, env)
        && (env.pending == Pending::Accept || !upcall::masked(state, machine, target));
    let free = matches!(env.state, EnvState::Ready | EnvState::Sleeping);
    if willing && free && entry != 0 { Ok(()) } else { Err(Error::Busy) }
}

/// Has it said that it accepts transfers? Nobody is asked for more.
#[inline(always)]
pub(crate) fn accepts<M: Machine>(machine: &M, env: &Env) -> bool {
    env.save.0 != 0 && machine.word(env.save.address() + offset::ACCEPTING as u64) != 0
}

/// Runs the target at `entry` with the message; what it was doing before is abandoned.
fn enter<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, now): (CpuIndex, u64),
    (caller, target): (EnvIndex, EnvIndex),
    message: &Context,
    entry: u64,
) {
    sleep::end_sleep(state, machine, target);
    if let Some((_, physical)) = env::save_area(state, target) {
        machine.word_set(physical + offset::ACCEPTING as u64, 0);
    }
    machine.context(target.at()).enter(message, entry, env::id(state, caller));
    sched::run(state, cpu, target, now);
}

/// A transfer to one that waits for the caller: it goes on behind its call. A held one gets the
/// message and stays held.
fn reply<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    target: EnvIndex,
    accept: bool,
    k: Continuation,
) -> Done {
    let message = *machine.context(caller.at());
    let now = machine.now_ns();
    let serves = EnvIndex::from(state.envs.slots[caller].client) == target;
    let ran = if serves { now.saturating_sub(state.sched.cpus[cpu].since_ns) } else { 0 };
    // While it is known for whom it has worked.
    sched::leave_at(state, cpu, now);
    machine.context(target.at()).resume(&message, env::id(state, caller));
    end_wait(state, target);
    let held = state.envs.slots[target].state == EnvState::Held;
    if held {
        machine.vector_store(state.envs.slots[target].vector);
    }
    machine.context(caller.at()).answer(0, 0);
    state.envs.slots[caller].client = 0;
    if accept {
        let woken = wait_for_next(state, machine, caller);
        if state.envs.slots[caller].is_waited_for() {
            let next = busy::server_is_free(state, machine, (cpu, caller), now);
            if next != Next::AsEver {
                busy::answered_meanwhile(state, machine, (cpu, caller), target);
                return match (next, woken) {
                    (Next::Server, Some(why)) => k.answer(Ok(why)),
                    _ => k.left(state, caller),
                };
            }
        }
    } else {
        sched::stay_ready(state, caller);
    }
    if held {
        env::changed(state, target);
        return k.left(state, caller);
    }
    if !loan::goes_on(state, cpu, (caller, target), (now, ran)) {
        let registers = state.envs.slots[target].vector;
        machine.vector_store(registers);
        env::changed(state, target);
        sched::enqueue(state, target);
        sched::stay_ready(state, target);
        if sched::has_no_turn(state, target) {
            // It runs in the turns of its clients, wherever they are at home.
            sched::kick_all(state);
        }
        return k.left(state, caller);
    }
    sched::run(state, cpu, target, now);
    k.enter(target)
}

/// The caller of an accepting reply sleeps until a transfer, an event or its predicate comes; the
/// answer, if it need not sleep.
fn wait_for_next<M: Machine>(state: &mut State, machine: &mut M, caller: EnvIndex) -> Option<u64> {
    let env = &mut state.envs.slots[caller];
    env.posted = u64::MAX;
    env.events = u64::MAX;
    env.deadline = 0;
    let woken = sleep::reason(state, machine, caller);
    match woken {
        Some(why) => {
            machine.context(caller.at()).answer(0, why);
            sched::stay_ready(state, caller);
        }
        None => sleep::fall_asleep(state, machine, caller, true),
    }
    woken
}
