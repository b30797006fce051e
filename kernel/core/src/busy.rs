//! Waiting until a busy server accepts: a transfer with `TRANSFER_WAIT`.
//!
//! ```text
//!   client: TransferSync ──► server works for another   client is Donating, its call begins anew
//!           the client's time is the server's                       │
//!   server: replies to the other, accepts ──► on the client's time: the client runs, calls again
//!                                         └─► else: when the client's turn comes
//! ```
//! Without it a client would yield to the server, and its time would be gone with the server's
//! reply to the other client. There is no queue: among those that wait the order is that of their
//! turns, so accounts wait for a round at most, however many environments of others wait. The
//! client whose time it is (its slice, or time that it has borrowed) is noted by the processor, and
//! is the next to call. If the server that it waits for waits for another one itself, that one runs
//! on the client's time, too.

use crate::dispatch::continuation::{Continuation, Done};
use crate::env::{self, Pending, WAITED};
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{gate, sched, transfer};
use abi::id::EnvId;
use abi::limits::DONATIONS;
use abi::published::EnvState;

/// How a processor goes on when a server that it has run waits for the next transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// As if no environment waited for the server.
    AsEver,
    /// The client whose time it is runs.
    Client,
    /// The server runs on: an event has to be looked at, before it accepts, on the client's time.
    Server,
}

/// May the environment at `caller` wait until the one at `target` accepts? That one is ready, and a
/// server. One that has no turns would wait for as long as it liked, and the server's replies would
/// go the long way meanwhile, to all its clients.
pub(crate) fn may_wait(state: &State, caller: EnvIndex, target: EnvIndex) -> bool {
    let env = &state.envs.slots[target];
    env.state == EnvState::Ready && env.entries.sync != 0 && !sched::has_no_turn(state, caller)
}

/// The caller waits until the target accepts, which runs meanwhile on the caller's time.
pub(crate) fn wait<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    target: EnvIndex,
    k: Continuation,
) -> Done {
    machine.context(caller.at()).again();
    let now = machine.now_ns();
    sched::leave_at(state, cpu, now);
    gate::close(state, target);
    let server = &mut state.envs.slots[target];
    server.donors += 1;
    server.marks |= WAITED;
    state.envs.slots[caller].pending = Pending::Busy;
    state.published.envs[caller].donated_to = env::id(state, target).0;
    env::come_or_go(state, caller, EnvState::Donating);
    sched::enqueue(state, caller);
    let time_of = usize::from(state.sched.cpus[cpu].lender != 0);
    // Whose server it is may wait for it already.
    let noted = EnvIndex::from(state.sched.cpus[cpu].awaits[time_of]);
    if before(state, noted, caller) == EnvIndex::NONE {
        state.sched.cpus[cpu].awaits[time_of] = caller.link();
    }
    sched::lengthen(state, cpu, target, now);
    sched::run(state, cpu, target, now);
    k.left(state, caller)
}

/// The environment that waits for the one at `server`: the one at `index`, or the one that this one
/// waits for, and so on; `NONE`: none of them does.
fn before(state: &State, index: EnvIndex, server: EnvIndex) -> EnvIndex {
    let mut at = index;
    for _ in 0..=DONATIONS {
        if state.envs.slots[at].state != EnvState::Donating {
            break;
        }
        let Ok(next) = env::lookup(state, EnvId(state.published.envs[at].donated_to)) else {
            break;
        };
        if next == server {
            return at;
        }
        at = next;
    }
    EnvIndex::NONE
}

/// The same if it waits until the server accepts.
fn next_client(state: &State, index: EnvIndex, server: EnvIndex) -> Option<EnvIndex> {
    let at = before(state, index, server);
    (state.envs.slots[at].pending == Pending::Busy).then_some(at)
}

/// The turn of the environment at `index` has come, which waits for the server: if that accepts,
/// the environment is ready, to call it again. Is it?
pub(crate) fn try_again<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    server: EnvIndex,
) -> bool {
    let entry = state.envs.slots[server].entries.sync;
    let accepts = transfer::check_accepting(state, machine, server, entry).is_ok();
    if accepts {
        calls_again(state, index);
    }
    accepts
}

/// One that waits until a server accepts has no turn any more, to call again: it is ready, or held.
pub(crate) fn end_without_a_turn(state: &mut State, index: EnvIndex) {
    if state.envs.slots[index].pending != Pending::Busy {
        return;
    }
    match state.envs.slots[index].state {
        EnvState::Donating => calls_again(state, index),
        _ => transfer::end_wait(state, index),
    }
}

/// The environment at `index` waits for no server any more: it is ready, to call again.
pub(crate) fn calls_again(state: &mut State, index: EnvIndex) {
    transfer::end_wait(state, index);
    env::come_or_go(state, index, EnvState::Ready);
}

/// A server for which environments may wait has left `cpu`, having asked for the next transfer. If
/// the time is that of one that waits for it, that one runs now, or the server for it.
pub(crate) fn server_is_free<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, server): (CpuIndex, EnvIndex),
    now: u64,
) -> Next {
    // One that is at home on an idle processor finds that out by itself.
    sched::kick_all(state);
    lends_for_its_client(state, cpu, server);
    let this = &state.sched.cpus[cpu];
    let time_of = usize::from(this.lender != 0);
    let noted = EnvIndex::from(this.awaits[time_of]);
    let Some(index) = next_client(state, noted, server) else { return Next::AsEver };
    if try_again(state, machine, index, server) {
        if index == noted {
            state.sched.cpus[cpu].awaits[time_of] = 0;
        }
        sched::run(state, cpu, index, now);
        return Next::Client;
    }
    if state.envs.slots[server].state != EnvState::Ready {
        return Next::AsEver;
    }
    sched::run(state, cpu, server, now);
    Next::Server
}

/// If the server is the lender of a slice in which it ran for one that waits for it, that one is
/// the lender from now on: it calls when the loan is over.
fn lends_for_its_client(state: &mut State, cpu: CpuIndex, server: EnvIndex) {
    let this = &state.sched.cpus[cpu];
    if EnvIndex::from(this.lender) != server {
        return;
    }
    if let Some(index) = next_client(state, this.awaits[0].into(), server) {
        calls_again(state, index);
        state.sched.cpus[cpu].lender = index.link();
    }
}

/// The server has answered the client at `index` on the time of one that waits for it: it does not
/// go on now, and the vector registers on the processor are its own. If that time is borrowed, the
/// client may borrow after it; but if the server is the lender, which had its time from the client,
/// the client is the lender now. In a slice of the other one's it borrows nothing: it would call
/// the server again before that one does.
pub(crate) fn answered_meanwhile<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, server): (CpuIndex, EnvIndex),
    index: EnvIndex,
) {
    if state.envs.slots[index].state == EnvState::Held {
        return env::changed(state, index);
    }
    machine.vector_store(state.envs.slots[index].vector);
    let this = &state.sched.cpus[cpu];
    let (lender, noted) = (EnvIndex::from(this.lender), EnvIndex::from(this.awaits[0]));
    let lent_its_time = lender == server;
    let waits = lender == noted || before(state, noted, lender) != EnvIndex::NONE;
    let borrows = lender != EnvIndex::NONE && !lent_its_time && !waits;
    if lent_its_time {
        state.sched.cpus[cpu].lender = index.link();
    }
    sched::make_ready(state, machine, index, borrows);
}
