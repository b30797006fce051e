//! Gates: what entry code needs to make a switch by itself, and what is noted of it afterwards.
//!
//! ```text
//!   slow path: a switch ── `handover` ── open: both sides' gates ─┐
//!   fast path: call ─► reply ─► call ─► ...  only gates change    │ `fold`, when the lock is
//!   slow path: whatever comes next, all of it is known ◄──────────┘ taken the next time
//! ```
//! An open gate says that a switch would do nothing else, as [`handover`] defines it.
//! [`close`] is called wherever that ceases to be so. What the fast path leaves to be noted,
//! states, times and counts, [`fold`] works out from gates and from who runs: so nobody who has the
//! lock sees anything of it. Which processor a turn is counted on is where it ended.

use crate::count::Count;
use crate::env::{self, Pending, Request};
use crate::handover;
use crate::index::{CpuIndex, EnvIndex};
use crate::list::Kind;
use crate::machine::Machine;
use crate::sched;
use crate::state::State;
use abi::call::{TRANSFER_REPLY, TRANSFER_SHIFT, number};
use abi::id::{EnvId, INDEX_BITS};
use abi::limits::CPUS;
use abi::published::EnvState;
use abi::setup::{FLAG_NO_VECTOR, FLAG_OWN_VECTOR};

/// An environment's gates, as entry code looks at them; all 0: closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Gate {
    /// The [`reply_name`] of the environment that waits for its reply and may get it so.
    pub serves: u32,
    /// Its own id while it sleeps and may be called; [`MAY_YIELD`], [`YIELDED`].
    pub called_as: u32,
    /// Times it has left by a transfer since that was noted.
    pub turns: u32,
    /// Times it has left by a yield.
    pub yields: u32,
}

/// In `called_as` of one that runs: it may yield so to one that has yielded. A transfer by this
/// word looks at the record of index 0, which is no environment's.
pub const MAY_YIELD: u32 = 1 << 30;
/// In `called_as` of one that is ready: it has left by a yield, and may be yielded to so.
pub const YIELDED: u32 = 2 << 30;
const _: () = assert!(MAY_YIELD | YIELDED == !0x3fff_ffff, "no bit of an id");

/// Environments whose gates may be open at a time; of more, the oldest is closed.
pub const OPEN_MAX: usize = 8;

/// The high half of the word by which an environment is answered: its id and `TRANSFER_REPLY`.
/// That of a call is the id alone, so that neither passes for the other.
pub const fn reply_name(id: EnvId) -> u32 {
    id.0 | (TRANSFER_REPLY >> TRANSFER_SHIFT) as u32
}

/// How far the index of an id is from where it is the distance of a record, of 256 bytes each.
pub const INDEX_SHIFT: u32 = 8;

/// The bits of such a distance that choose one of so many records, or of as many again: an id
/// with others set finds one that has another id, or what the machine layer shows behind them.
pub const fn index_mask(envs: usize) -> u32 {
    ((envs.next_power_of_two() - 1) * env::ENV_BYTES) as u32
}

const _: () = assert!(env::ENV_BYTES == 1 << INDEX_SHIFT);
const _: () = assert!(abi::limits::INDICES.is_power_of_two() && INDEX_BITS + INDEX_SHIFT < 32);
const _: () = assert!(TRANSFER_SHIFT == 32 && TRANSFER_REPLY == 1 << 62);

/// Whose gates may be open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open {
    envs: [u16; OPEN_MAX],
    next: usize,
}

/// Closes the gates of an environment: what comes goes the slow path.
#[inline]
pub fn close(state: &mut State, index: EnvIndex) {
    let env = &mut state.envs.slots[index];
    env.shut();
    if env.pending == Pending::Reply {
        let record = &state.published.envs[index];
        let (own, callee) =
            (reply_name(EnvId(record.id)), EnvIndex::from(EnvId(record.donated_to)));
        let gate = &mut state.envs.slots[callee].gate;
        if gate.serves == own {
            gate.serves = 0;
        }
    }
}

impl env::Env {
    /// Closes its own gates; not that through which a reply to it goes.
    #[inline(always)]
    pub(crate) fn shut(&mut self) {
        (self.gate.called_as, self.gate.serves, self.index_mask) = (0, 0, 0);
    }
}

/// Opens the gates of two environments, one of which has just switched to the other, if between
/// them the fast path would do what the slow one does.
pub fn open<M: Machine>(state: &mut State, machine: &mut M, pair: [EnvIndex; 2]) {
    let yields = pair.iter().all(|&index| takes_turns(&state.envs.slots[index]));
    if machine.has_fast_path() && pair.iter().all(|&index| is_plain(state, machine, index, yields))
    {
        pair.into_iter().for_each(|index| open_one(state, machine, index));
        // Whoever had been woken when the last long hold of the lock ended may have run since.
        state.open = state.settled && state.sched.nobody_is_woken();
    }
}

fn open_one<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    list(state, index);
    let callee = EnvIndex::from(EnvId(state.published.envs[index].donated_to));
    let mask = index_mask(state.envs.slots.len());
    let env = &mut state.envs.slots[index];
    let id = env.id;
    env.index_mask = mask;
    machine.ran(index.at(), env.state == EnvState::Running);
    let at_home = u32::from(env.cpu) == state.published.envs[index].cpu;
    match env.state {
        EnvState::Running if at_home && keeps_vectors(env) => env.gate.called_as = MAY_YIELD,
        EnvState::Ready => env.gate.called_as = YIELDED,
        EnvState::Sleeping => env.gate.called_as = id.0,
        EnvState::Donating => state.envs.slots[callee].gate.serves = reply_name(id),
        _ => {}
    }
}

/// Are its vector registers stored and loaded at a yield?
fn keeps_vectors(env: &env::Env) -> bool {
    !env.has(FLAG_NO_VECTOR) && !env.has(FLAG_OWN_VECTOR)
}

/// Does it run, or might it?
fn takes_turns(env: &env::Env) -> bool {
    matches!(env.state, EnvState::Ready | EnvState::Running)
}

/// Would a transfer to or from it, or a reply, do nothing but switch? Or, if it only `yields`, a
/// yield, which itself asks whether a bit waits for the other one, or a transfer from it?
fn is_plain<M: Machine>(state: &State, machine: &M, index: EnvIndex, yields: bool) -> bool {
    let env = &state.envs.slots[index];
    let stays = match env.state {
        EnvState::Running => {
            let cpu = CpuIndex::from(state.published.envs[index].cpu % CPUS as u32);
            let this = &state.sched.cpus[cpu];
            this.lender == 0 && env.ending == 0
        }
        EnvState::Sleeping => env.pending == Pending::Accept && env.entries.sync != 0,
        EnvState::Donating => true,
        EnvState::Ready => keeps_vectors(env) && env.links[Kind::Ring as usize].next != 0,
        _ => false,
    };
    stays
        && env.prepared
        && env.save.0 != 0
        && (env.entries.sync != 0 || env.donors == 0)
        && !env.has(FLAG_NO_VECTOR)
        && !env.is_waited_for()
        && matches!(env.request, Request::Nothing)
        && env.links[Kind::Front as usize].next == 0
        && (yields || handover::sleeps_for_ever(env) && !handover::told(machine, env))
}

/// Notes that its gates may be open.
fn list(state: &mut State, index: EnvIndex) {
    if state.sched.open.envs.contains(&(index.link())) {
        return;
    }
    let at = state.sched.open.next;
    state.sched.open.next = (at + 1) % OPEN_MAX;
    let oldest = core::mem::replace(&mut state.sched.open.envs[at], index.link());
    if oldest != 0 {
        close(state, EnvIndex::from(oldest));
    }
}

/// Notes what the fast path has done on all processors; the first of them run the environments at
/// these indexes, 0: none, the others none.
#[cold]
pub fn fold<M: Machine>(state: &mut State, machine: &mut M, runs: &[EnvIndex]) {
    let now = machine.now_ns();
    for at in 0..OPEN_MAX {
        let index = EnvIndex::from(state.sched.open.envs[at]);
        let cpu = runs.iter().position(|&one| one == index).map(CpuIndex::new);
        let Gate { called_as, turns, yields, .. } = state.envs.slots[index].gate;
        let runs_still = cpu.is_some() == (state.envs.slots[index].state == EnvState::Running);
        if index == EnvIndex::NONE || turns | yields == 0 && runs_still {
            continue;
        }
        let waits = cpu.is_none() && matches!(called_as, 0 | MAY_YIELD);
        let callee = waits.then(|| callee_of(state, index)).flatten();
        note(state, machine, (index, now), cpu, callee);
    }
    for (cpu, &index) in CpuIndex::all().zip(runs) {
        let this = &mut state.sched.cpus[cpu];
        if EnvIndex::from(this.current) != index && this.current != 0 && index != EnvIndex::NONE {
            this.current = index.link();
            (this.more, this.to_look) = (false, 0);
            state.published.cpus[cpu].current = state.published.envs[index].id;
        }
    }
}

/// Who serves it.
fn callee_of(state: &State, index: EnvIndex) -> Option<EnvIndex> {
    let own = reply_name(state.envs.slots[index].id);
    let serves =
        |&one: &EnvIndex| one != EnvIndex::NONE && state.envs.slots[one].gate.serves == own;
    state.sched.open.envs.iter().map(|&one| EnvIndex::from(one)).find(serves)
}

/// Publishes how often a processor was left by the short way, and how many of those were yields.
fn count(state: &mut State, place: CpuIndex, turns: u64, yields: u64) {
    let record = &mut state.published.cpus[place];
    // Less those within one space, which the machine knows.
    record.cr3_loads = record.cr3_loads.wrapping_add(turns);
    record.calls = record.calls.wrapping_add(turns);
    record.switches = record.switches.wrapping_add(turns);
    record.short_ways = record.short_ways.wrapping_add(turns);
    let calls = &state.published.calls[place];
    calls[usize::from(number::TransferSync)].made_often(turns - yields);
    calls[usize::from(number::Yield)].made_often(yields);
}

/// Notes what one has done: it runs on `cpu`, waits for the reply of `callee`, or accepts.
fn note<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (index, now): (EnvIndex, u64),
    cpu: Option<CpuIndex>,
    callee: Option<EnvIndex>,
) {
    let env = &state.envs.slots[index];
    let (from, yields) = (env.state, u64::from(env.gate.yields));
    let turns = u64::from(env.gate.turns) + yields;
    let (to, pending) = match (cpu, callee, env.gate.called_as) {
        (Some(_), ..) => (EnvState::Running, Pending::Nothing),
        (None, Some(_), _) => (EnvState::Donating, Pending::Reply),
        (None, None, YIELDED) => (EnvState::Ready, Pending::Nothing),
        (None, None, 0 | MAY_YIELD) => return,
        (None, None, _) => (EnvState::Sleeping, Pending::Accept),
    };
    let arrivals =
        turns + u64::from(to == EnvState::Running) - u64::from(from == EnvState::Running);
    let last = CpuIndex::from(state.published.envs[index].cpu % CPUS as u32);
    let place = cpu.unwrap_or(last);
    if let Some(cpu) = cpu {
        state.sched.cpus[cpu].since_ns = now;
    }
    let waited_for = EnvIndex::from(EnvId(state.published.envs[index].donated_to));
    let donated_to = callee.map_or(0, |callee| env::id(state, callee).0);
    state.envs.slots[waited_for].donors.less(u16::from(waited_for != EnvIndex::NONE));
    if let Some(callee) = callee {
        let callee = &mut state.envs.slots[callee];
        callee.donors += 1;
        callee.client = index.link();
    }

    let env = &mut state.envs.slots[index];
    (env.state, env.pending) = (to, pending);
    (env.gate.turns, env.gate.yields) = (0, 0);
    if to == EnvState::Sleeping {
        (env.posted, env.events) = (u64::MAX, u64::MAX);
        env.client = 0;
    }
    let record = &mut state.published.envs[index];
    (record.state, record.donated_to, record.cpu) = (to as u32, donated_to, place.at() as u32);
    record.entries = record.entries.wrapping_add(turns);
    record.switches = record.switches.wrapping_add(arrivals);
    record.sequence = record.sequence.wrapping_add(turns + arrivals);
    record.run_ns = record.run_ns.wrapping_add(machine.ran(index.at(), cpu.is_some()));
    count(state, place, turns, yields);
    if cpu.is_none() {
        let context = machine.context(index.at());
        if to == EnvState::Ready {
            context.answer(0, 0);
        }
        // As `syscall` leaves them; what the call answers is written by whoever ends the wait.
        (context.rcx, context.r11) = (context.rip, context.rflags);
    }
    if to != EnvState::Sleeping {
        sched::enqueue(state, index);
    } else if !sched::keeps_its_turn(state, index) {
        sched::dequeue(state, index);
    }
    let env = &state.envs.slots[index];
    let yields = env.gate.serves == 0 && takes_turns(env);
    if !is_plain(state, machine, index, yields) {
        close(state, index);
    }
}
