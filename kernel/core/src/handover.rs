//! Switches whose answer is known: a yield to a named environment, a transfer, its reply.
//!
//! ```text
//!   long way   the call ── `sched::pick`: who runs? ── events, destruction, timer ── way out
//!   this one   `check`: nothing but the switch would happen ── `apply` ── way out
//! ```
//! The long way stays the definition. [`check`] lets through what it would end in the same state:
//! the target may run, nothing waits to be looked at, time is left, and the deadline stays as it
//! is. A test drives both ways with the same random calls and compares everything.

use crate::count::Count;
use crate::env::{self, ASKED, Env, Pending, Request};
use crate::index::{CpuIndex, EnvIndex, bounded_by};
use crate::list::{Heap, Kind};
use crate::machine::Machine;
use crate::sched::Cpu;
use crate::state::State;
use crate::{gate, loan, sched, transfer, visit};
use abi::call::{TRANSFER_REPLY, number, transfer_target};
use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState};
use abi::upcall::offset;

/// A switch that may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Who runs then.
    pub target: EnvIndex,
    pub(crate) way: Way,
    now: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To whoever is ready.
    Yield,
    /// To a sleeper that accepts.
    Call { entry: u64 },
    /// To whoever waits for it, accepting the next one.
    Reply,
}

impl Way {
    /// What the caller is afterwards.
    #[inline(always)]
    fn leaves_as(self) -> EnvState {
        match self {
            Self::Yield => EnvState::Ready,
            Self::Call { .. } => EnvState::Donating,
            Self::Reply => EnvState::Sleeping,
        }
    }
}

impl Plan {
    /// Do the vector registers stay as they are? They travel with a transfer.
    #[inline(always)]
    pub fn carries_vectors(&self) -> bool {
        self.way != Way::Yield
    }
}

/// The switch that `Yield` (to the environment `to`, not 0) or `TransferSync` by the environment at
/// `caller`, which runs on `cpu`, ends in; `None`: that is for the long way to find out. `word` is
/// the whole of `rax`.
#[inline(always)]
pub fn check<M: Machine>(
    state: &State,
    machine: &M,
    (cpu, caller): (CpuIndex, EnvIndex),
    word: u64,
    to: u64,
) -> Option<Plan> {
    let yields = word as u16 == number::Yield;
    let id = if yields { EnvId(u32::try_from(to).ok()?) } else { transfer_target(word) };
    let target = EnvIndex::new(bounded_by(machine, id.index(), state.envs.slots.len()));
    let (env, own) = (state.envs.slots.get(target)?, &state.envs.slots[caller]);
    let record = state.published.envs.get(target.at())?;
    if id.is_none() || record.id != id.0 || target == caller || called_away(machine, env) {
        return None;
    }
    let replies = word & TRANSFER_REPLY != 0;
    let way = if yields {
        let at_home = CpuIndex::from(own.cpu) == cpu && state.sched.cpus[cpu].lender == 0;
        if env.state != EnvState::Ready || !at_home {
            return None;
        }
        Way::Yield
    } else if env.state == EnvState::Donating {
        let awaited =
            record.donated_to == env::id(state, caller).0 && env.pending == Pending::Reply;
        let accepts = replies && own.save.0 != 0;
        let at_home = !visit::is_away(state, caller);
        if !(awaited && at_home && accepts && sleeps_for_ever(own) && !told(machine, own)) {
            return None;
        }
        if !loan::is_clients(state, cpu, caller, target) {
            return None;
        }
        Way::Reply
    } else {
        let entry = env.entries.sync;
        let accepting = env.pending == Pending::Accept && env.state == EnvState::Sleeping;
        if replies
            || !accepting
            || entry == 0
            || env.marks & ASKED != 0
            || !sleeps_for_ever(env)
            || !transfer::accepts(machine, env)
        {
            return None;
        }
        Way::Call { entry }
    };
    let now = machine.now_ns();
    let plain = matches!(env.request, Request::Nothing)
        && own.ending == 0
        && !own.is_waited_for()
        && env.links[Kind::Front as usize].next == 0
        && (env.links[Kind::Ring as usize].next != 0 || matches!(way, Way::Call { .. }))
        && now + sched::SHORTEST_NS <= state.sched.cpus[cpu].end_ns()
        && calm(state.settled, &state.sched.cpus[cpu], &state.sched.alarms, now);
    plain.then_some(Plan { target, way, now })
}

/// Would `pick` let whoever gets the processor now go on, if there is time?
#[inline(always)]
fn calm(settled: bool, this: &Cpu, alarms: &Heap, now: u64) -> bool {
    settled && this.front == 0 && now < alarms.soonest()
}

#[inline(always)]
fn word_of<M: Machine>(machine: &M, env: &Env, at: usize) -> u64 {
    machine.word(env.save.address() + at as u64)
}

/// Does a bit wait for it?
#[inline(always)]
pub(crate) fn told<M: Machine>(machine: &M, env: &Env) -> bool {
    word_of(machine, env, offset::PENDING) | word_of(machine, env, offset::EVENTS) != 0
}

/// Would it enter its event handler, or stop for want of a save area?
#[inline(always)]
pub(crate) fn called_away<M: Machine>(machine: &M, env: &Env) -> bool {
    env.save.0 == 0
        || told(machine, env) && env.entries.event != 0 && word_of(machine, env, offset::MASK) == 0
}

/// Neither clock nor predicate has anything to do with its sleep.
#[inline(always)]
pub(crate) fn sleeps_for_ever(env: &Env) -> bool {
    env.deadline | env.edge == 0 && env.atoms == 0
}

/// Makes the switch: the contexts of both are as they leave the kernel.
#[inline(always)]
pub fn apply<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    number: u16,
    plan: &Plan,
) {
    let Plan { target, way, now } = *plan;
    if state.sched.cpus[cpu].lender != 0 {
        loan::give_back_at(state, cpu, caller, now);
    }
    let pair = [caller, target];
    let (Some([own, env]), Ok([own_record, record])) = (
        state.envs.slots.two_mut(pair),
        state.published.envs.get_disjoint_mut(pair.map(EnvIndex::at)),
    ) else {
        // Two environments, both checked.
        return;
    };
    let this = &mut state.sched.cpus[cpu];
    let cpu_record = &mut state.published.cpus[cpu];
    // Counters may wrap: nothing is decided by them.
    let count = |counter: &mut u64| *counter = counter.wrapping_add(1);
    count(&mut own_record.entries);
    count(&mut cpu_record.calls);
    state.published.calls[cpu][usize::from(number)].made();

    count(&mut cpu_record.switches);
    cpu_record.current = record.id;
    leaves(this, own, own_record, way.leaves_as(), now);
    this.current = target.link();
    (this.more, this.to_look) = (false, 0);
    runs(env, record, cpu);
    match way {
        Way::Yield => machine.context(caller.at()).answer(0, 0),
        Way::Call { entry } => {
            own.pending = Pending::Reply;
            own_record.donated_to = record.id;
            env.donors += 1;
            env.client = caller.link();
            env.pending = Pending::Nothing;
            machine.word_set(env.save.address() + offset::ACCEPTING as u64, 0);
            let sender = EnvId(own_record.id);
            let (message, context) = machine.two_contexts(caller.at(), target.at());
            context.enter(message, entry, sender);
            sched::enqueue(state, target);
        }
        Way::Reply => {
            record.donated_to = 0;
            env.pending = Pending::Nothing;
            own.donors.less(1);
            own.client = 0;
            own.pending = Pending::Accept;
            (own.posted, own.events) = (u64::MAX, u64::MAX);
            machine.word_set(own.save.address() + offset::ACCEPTING as u64, 1);
            let sender = EnvId(own_record.id);
            // It keeps its turn to pay by it what this slice has cost.
            let owes = own.debt_ns > 0;
            let (message, context) = machine.two_contexts(caller.at(), target.at());
            context.resume(message, sender);
            message.answer(0, 0);
            if !owes {
                sched::dequeue(state, caller);
            }
        }
    }
    gate::open(state, machine, pair);
}

/// As `sched::leave` and `env::come_or_go`, but for what time that is borrowed brings.
#[inline(always)]
pub(crate) fn leaves(
    this: &mut Cpu,
    env: &mut Env,
    record: &mut EnvRecord,
    becomes: EnvState,
    now: u64,
) {
    let ran = now.saturating_sub(core::mem::replace(&mut this.since_ns, now));
    record.run_ns = record.run_ns.wrapping_add(ran);
    env.shut();
    (env.state, record.state) = (becomes, becomes as u32);
    record.sequence = record.sequence.wrapping_add(1);
}

/// As `sched::run`.
#[inline(always)]
pub(crate) fn runs(env: &mut Env, record: &mut EnvRecord, cpu: CpuIndex) {
    env.shut();
    (env.state, record.state) = (EnvState::Running, EnvState::Running as u32);
    record.cpu = cpu.at() as u32;
    record.switches = record.switches.wrapping_add(1);
    record.sequence = record.sequence.wrapping_add(1);
}
