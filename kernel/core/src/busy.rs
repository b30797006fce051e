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
//!
//! A server that runs on another processor can't be waited for so: the client is refused, and calls
//! again and again. The processor notes since when ([`Asking`]), and the server accepts none but
//! the client that has asked longest. So a client elsewhere that calls again at once does not come
//! first; one that ceases to ask loses its place after [`ASKS_NS`]. One that lends its slice keeps
//! others out for as long, too, but comes before those that have begun to ask meanwhile.

use crate::dispatch::continuation::{Continuation, Done};
use crate::env::{self, ASKED, Pending, WAITED};
use crate::index::{CpuIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::{gate, loan, sched, transfer};
use abi::error::Error;
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

/// How long a refused client keeps others out without asking again. A client asks each 2 us or so;
/// others wait so long at most for one that does not call.
pub const ASKS_NS: u64 = 50_000;

/// The environments on a processor that have last been refused by a server that others want: in
/// the slice, and in a loan. Who borrows a slice changes nothing of what its lender asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// Of the slice, and of the loan.
    of: [Place; 2],
}

impl Asking {
    /// None.
    pub const NONE: Self = Self { of: [Place::NONE; 2] };
}

/// A client's place among those that ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    client: EnvId,
    server: EnvId,
    since_ns: u64,
    /// Until then it keeps others out: so long after a busy server refused it.
    until_ns: u64,
    /// When it was refused last, and the end of the slice then, which is later by what is lent.
    asked_ns: u64,
    slice_end_ns: u64,
}

impl Place {
    const NONE: Self = Self {
        client: EnvId::NONE,
        server: EnvId::NONE,
        since_ns: 0,
        until_ns: 0,
        asked_ns: 0,
        slice_end_ns: 0,
    };

    /// Has its client asked again in time? What it has lent meanwhile is not counted.
    fn is_kept(&self, slice_end_ns: u64, now: u64) -> bool {
        let passed = now.saturating_sub(self.asked_ns);
        let lent = slice_end_ns.saturating_sub(self.slice_end_ns);
        passed < ASKS_NS || lent <= passed && passed - lent < ASKS_NS
    }
}

/// Which place on `cpu` the environment has that runs there and asks for the server.
fn place_of(state: &State, cpu: CpuIndex, server: EnvIndex) -> Option<usize> {
    let current = EnvIndex::from(state.sched.cpus[cpu].current);
    let (client, server) = (env::id(state, current), env::id(state, server));
    let places = &state.sched.asking[cpu].of;
    places.iter().position(|at| at.client == client && at.server == server)
}

/// Since when the environment that `cpu` runs asks for the server, if it does.
fn asks_since(state: &State, cpu: CpuIndex, server: EnvIndex, now: u64) -> Option<u64> {
    let place = &state.sched.asking[cpu].of[place_of(state, cpu, server)?];
    place.is_kept(state.sched.cpus[cpu].slice_end_ns, now).then_some(place.since_ns)
}

/// The places on `cpu` that keep others out of the server: of the one that runs, and of the one
/// whose slice this one has borrowed, which asks again in a moment.
fn places_that_bar(
    state: &State,
    cpu: CpuIndex,
    server: EnvIndex,
    now: u64,
) -> impl Iterator<Item = &Place> {
    let this = &state.sched.cpus[cpu];
    let run = [this.current, this.lender].map(|index| env::id(state, index.into()));
    let server = env::id(state, server);
    state.sched.asking[cpu].of.iter().filter(move |at| {
        !at.client.is_none() && run.contains(&at.client) && at.server == server && now < at.until_ns
    })
}

/// The places that keep the environment that `cpu` runs out of the server, if it has asked for that
/// since `since`.
fn places_before(
    state: &State,
    cpu: CpuIndex,
    server: EnvIndex,
    now: u64,
    since: u64,
) -> impl Iterator<Item = &Place> {
    let own = env::id(state, state.sched.cpus[cpu].current.into());
    let bar = CpuIndex::all().flat_map(move |at| places_that_bar(state, at, server, now));
    bar.filter(move |at| at.client != own && at.since_ns < since)
}

/// May the environment that `cpu` runs call the server, which accepts? Not before one that has
/// asked longer.
pub(crate) fn check_turn<M: Machine>(
    state: &State,
    machine: &M,
    cpu: CpuIndex,
    server: EnvIndex,
) -> Result<(), Error> {
    if state.envs.slots[server].marks & ASKED == 0 {
        return Ok(());
    }
    let now = machine.now_ns();
    let since = asks_since(state, cpu, server, now).unwrap_or(u64::MAX);
    let first = places_before(state, cpu, server, now, since).next();
    if first.is_some() { Err(Error::Busy) } else { Ok(()) }
}

/// The server has accepted the call of the environment that runs on `cpu`.
#[inline(always)]
pub(crate) fn accepted(state: &mut State, cpu: CpuIndex, server: EnvIndex, now: u64) {
    if state.envs.slots[server].marks & ASKED != 0 {
        asks_no_more(state, cpu, server, now);
    }
}

/// One that environments wait for has left its processor, ready: idle processors look, at which
/// they may be at home. It is asked for no more if none of those that asked has a processor.
#[cold]
pub(crate) fn leaves(state: &mut State, server: EnvIndex) {
    sched::kick_all(state);
    // At 0 none has ceased to ask: the time is not worth asking for here.
    if !CpuIndex::all().any(|cpu| places_that_bar(state, cpu, server, 0).next().is_some()) {
        state.envs.slots[server].marks &= !ASKED;
    }
}

#[cold]
fn asks_no_more(state: &mut State, cpu: CpuIndex, server: EnvIndex, now: u64) {
    if let Some(place) = place_of(state, cpu, server) {
        state.sched.asking[cpu].of[place] = Place::NONE;
    }
    if places_before(state, cpu, server, now, u64::MAX).next().is_none() {
        state.envs.slots[server].marks &= !ASKED;
    }
}

/// The call of the environment that runs on `cpu` is refused, as the server does not accept it now:
/// it is busy, or another one has asked longer. By that alone the caller keeps others out for no
/// longer than that one does: the server would be idle for it.
pub(crate) fn refuse<M: Machine>(
    state: &mut State,
    machine: &M,
    (cpu, is_busy): (CpuIndex, bool),
    server: EnvIndex,
    k: Continuation,
) -> Done {
    // On one processor there is no other that asks.
    if state.sched.online > 1 {
        note(state, (cpu, is_busy), server, machine.now_ns());
        // What calls it now, and its reply, go the long way.
        state.envs.slots[server].marks |= ASKED;
        gate::close(state, server);
    }
    k.refuse(Error::Busy)
}

/// The environment that runs on `cpu` has its place in the time that it has now.
#[cold]
fn note(state: &mut State, (cpu, is_busy): (CpuIndex, bool), server: EnvIndex, now: u64) {
    let since = asks_since(state, cpu, server, now);
    let mut until_ns = now + ASKS_NS;
    if !is_busy {
        let before = places_before(state, cpu, server, now, since.unwrap_or(u64::MAX));
        until_ns = before.map(|at| at.until_ns).max().unwrap_or(0);
    }
    if let Some(place) = place_of(state, cpu, server) {
        let before = core::mem::take(&mut state.sched.asking[cpu].of[place]);
        until_ns = until_ns.max(before.until_ns);
    }
    let this = &state.sched.cpus[cpu];
    let (time_of, slice_end_ns) = (usize::from(this.lender != 0), this.slice_end_ns);
    let client = env::id(state, this.current.into());
    let server = env::id(state, server);
    state.sched.asking[cpu].of[time_of] = Place {
        client,
        server,
        since_ns: since.unwrap_or(now),
        until_ns,
        asked_ns: now,
        slice_end_ns,
    };
}

/// The environment that runs if the one at `caller` waits until the one at `target` accepts: that
/// one, which is ready, or the one that this one waits for, and so on. One that has no turns would
/// wait for as long as it liked, and the server's replies would go the long way meanwhile, to all
/// its clients: `WrongState`.
pub(crate) fn whom_to_run(
    state: &State,
    caller: EnvIndex,
    target: EnvIndex,
) -> Result<EnvIndex, Error> {
    let mut at = target;
    for _ in 0..DONATIONS {
        match state.envs.slots[at].state {
            EnvState::Ready if sched::has_no_turn(state, caller) => return Err(Error::WrongState),
            EnvState::Ready => return Ok(at),
            EnvState::Donating => {
                at = env::lookup(state, EnvId(state.published.envs[at].donated_to))?
            }
            _ => break,
        }
    }
    Err(Error::Busy)
}

/// The caller waits until the target accepts; that one, or the one that it waits for, runs until
/// then on the caller's time.
pub(crate) fn wait<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    (target, runs): (EnvIndex, EnvIndex),
    k: Continuation,
) -> Done {
    machine.context(caller.at()).again();
    let now = machine.now_ns();
    sched::leave_at(state, cpu, now);
    gate::close(state, target);
    gate::close(state, runs);
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
    sched::lengthen(state, cpu, runs, now);
    sched::run(state, cpu, runs, now);
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
/// the client is the lender now, unless the turn is the server's own. In a slice of the other one's
/// it borrows nothing: it would call the server again before that one does.
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
    let lent_its_time = lender == server && !loan::is_turn_of(state, cpu, server, index);
    let waits = lender == noted || before(state, noted, lender) != EnvIndex::NONE;
    let borrows = lender != EnvIndex::NONE && !lent_its_time && !waits;
    if lent_its_time {
        state.sched.cpus[cpu].lender = index.link();
    }
    sched::make_ready(state, machine, index, borrows);
}
