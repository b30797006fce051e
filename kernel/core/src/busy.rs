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
//! is the next to call.

use crate::dispatch::continuation::{Continuation, Done};
use crate::env::{self, Pending, WAITED};
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{gate, sched, transfer};
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

/// May environments wait until the one at `target` accepts? It is ready, and a server.
pub(crate) fn may_wait(state: &State, target: EnvIndex) -> bool {
    let env = &state.envs.slots[target];
    env.state == EnvState::Ready && env.entries.sync != 0
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
    let this = &mut state.sched.cpus[cpu];
    this.awaits[usize::from(this.lender != 0)] = caller.link();
    sched::lengthen(state, cpu, target, now);
    sched::run(state, cpu, target, now);
    k.left(state, caller)
}

/// Does the environment at `index` wait until the one at `server` accepts?
fn waits_for(state: &State, index: EnvIndex, server: EnvIndex) -> bool {
    let env = &state.envs.slots[index];
    env.pending == Pending::Busy
        && env.state == EnvState::Donating
        && state.published.envs[index].donated_to == env::id(state, server).0
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
        transfer::end_wait(state, index);
        env::come_or_go(state, index, EnvState::Ready);
    }
    accepts
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
    let this = &state.sched.cpus[cpu];
    let time_of = usize::from(this.lender != 0);
    let index = EnvIndex::from(this.awaits[time_of]);
    if index == EnvIndex::NONE || !waits_for(state, index, server) {
        return Next::AsEver;
    }
    if try_again(state, machine, index, server) {
        state.sched.cpus[cpu].awaits[time_of] = 0;
        sched::run(state, cpu, index, now);
        return Next::Client;
    }
    if state.envs.slots[server].state != EnvState::Ready {
        return Next::AsEver;
    }
    sched::run(state, cpu, server, now);
    Next::Server
}

/// The server has answered the client at `index` on the time of one that waits for it. If that time
/// is borrowed, the client may borrow after it; but if the server is the lender, which had its time
/// from the client, the client is the lender now. In a slice of the other one's it borrows nothing:
/// it would call the server again before that one does.
pub(crate) fn answered_meanwhile<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, server): (CpuIndex, EnvIndex),
    index: EnvIndex,
) {
    let lender = &mut state.sched.cpus[cpu].lender;
    let lent_its_time = EnvIndex::from(*lender) == server;
    let borrows = *lender != 0 && !lent_its_time;
    if lent_its_time {
        *lender = index.link();
    }
    sched::make_ready(state, machine, index, borrows);
}
