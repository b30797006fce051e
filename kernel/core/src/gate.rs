//! Gates: what entry code needs to make a transfer by itself, and what is noted of it afterwards.
//!
//! ```text
//!   slow path: transfer ── `handover` ── open: both sides' gates ─┐
//!   fast path: call ─► reply ─► call ─► ...  only gates change    │ `fold`, when the lock is
//!   slow path: whatever comes next, all of it is known ◄──────────┘ taken the next time
//! ```
//! An open gate says that a transfer would do nothing but switch, as [`handover`] defines it.
//! [`close`] is called wherever that ceases to be so. What the fast path leaves to be noted,
//! states, times and counts, [`fold`] works out from gates and from who runs: so nobody who has the
//! lock sees anything of it. Which processor a turn is counted on is where it ended.

use crate::env::{self, Pending, Request};
use crate::handover;
use crate::list::Kind;
use crate::machine::Machine;
use crate::sched;
use crate::state::State;
use abi::call::number;
use abi::id::EnvId;
use abi::limits::CPUS;
use abi::published::EnvState;
use abi::setup::FLAG_NO_VECTOR;

/// An environment's gates, as entry code looks at them; all 0: closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Gate {
    /// The name of who waits for its reply and may get it so.
    pub serves: u32,
    /// Its own name while it sleeps and may be called.
    pub called_as: u32,
    /// Times it has left since that was noted.
    pub turns: u32,
}

/// Environments whose gates may be open at a time; of more, the oldest is closed.
pub const OPEN_MAX: usize = 8;

/// How far an id is from the lowest bit of a name.
pub const NAME_SHIFT: u32 = 2;

/// What the fast path knows an environment by: bits 30 to 61 of the word by which it is called
/// or answered, `TRANSFER_ACCEPT` among them.
pub const fn name(id: EnvId) -> u32 {
    id.0 << NAME_SHIFT | 2
}

/// The bits of a name that choose one of so many records, or of as many again: a name with other
/// bits set finds one that has another name, or what the machine layer shows behind the table.
pub const fn index_mask(envs: usize) -> u16 {
    ((envs.next_power_of_two() - 1) << NAME_SHIFT) as u16
}

const _: () = assert!(index_mask(abi::limits::INDICES) == u16::MAX << NAME_SHIFT);
const _: () = assert!(abi::call::TRANSFER_ACCEPT == 2 << 30 && abi::call::TRANSFER_SHIFT == 32);

/// Whose gates may be open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open {
    envs: [u16; OPEN_MAX],
    next: usize,
}

/// Closes the gates of an environment: what comes goes the slow path.
#[inline]
pub fn close(state: &mut State, index: usize) {
    let env = &mut state.envs.slots[index];
    env.shut();
    if env.pending == Pending::Reply {
        let record = &state.published.envs[index];
        let (own, callee) = (name(EnvId(record.id)), EnvId(record.donated_to).index());
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
pub fn open<M: Machine>(state: &mut State, machine: &mut M, pair: [usize; 2]) {
    if machine.has_fast_path() && pair.iter().all(|&index| is_plain(state, machine, index)) {
        pair.into_iter().for_each(|index| open_one(state, machine, index));
    }
}

fn open_one<M: Machine>(state: &mut State, machine: &mut M, index: usize) {
    list(state, index);
    let callee = EnvId(state.published.envs[index].donated_to).index();
    let mask = index_mask(state.envs.slots.len());
    let env = &mut state.envs.slots[index];
    let own = name(env.id);
    env.index_mask = mask;
    machine.ran(index, env.state == EnvState::Running);
    match env.state {
        EnvState::Sleeping => env.gate.called_as = own,
        EnvState::Donating => state.envs.slots[callee].gate.serves = own,
        _ => {}
    }
}

/// Would a transfer to or from it, or a reply, do nothing but switch?
fn is_plain<M: Machine>(state: &State, machine: &M, index: usize) -> bool {
    let env = &state.envs.slots[index];
    let stays = match env.state {
        EnvState::Running => {
            let this = &state.sched.cpus[state.published.envs[index].cpu as usize % CPUS];
            this.lender == 0 && !env.ending
        }
        EnvState::Sleeping => env.pending == Pending::Accept && env.entries.sync != 0,
        EnvState::Donating => true,
        _ => false,
    };
    stays
        && env.prepared
        && env.save.0 != 0
        && (env.entries.sync != 0 || env.donors == 0)
        && env.entries.flags & FLAG_NO_VECTOR == 0
        && matches!(env.request, Request::Nothing)
        && env.links[Kind::Front as usize].next == 0
        && handover::sleeps_for_ever(env)
        && !handover::told(machine, env)
}

/// Notes that its gates may be open.
fn list(state: &mut State, index: usize) {
    if state.sched.open.envs.contains(&(index as u16)) {
        return;
    }
    let at = state.sched.open.next;
    state.sched.open.next = (at + 1) % OPEN_MAX;
    let oldest = core::mem::replace(&mut state.sched.open.envs[at], index as u16);
    if oldest != 0 {
        close(state, usize::from(oldest));
    }
}

/// Notes what the fast path has done on all processors; each runs the environment at this index,
/// 0: none.
#[cold]
pub fn fold<M: Machine>(state: &mut State, machine: &mut M, runs: &[usize; CPUS]) {
    let now = machine.now_ns();
    let open = state.sched.open.envs.map(usize::from);
    for index in open.into_iter().filter(|&index| index != 0) {
        let cpu = runs.iter().position(|&one| one == index);
        let callee = (1..).zip(&open).find_map(|(_, &other)| {
            let own = name(env::id(state, index));
            (other != 0 && state.envs.slots[other].gate.serves == own).then_some(other)
        });
        note(state, machine, (index, now), cpu, callee);
    }
    for (cpu, &index) in runs.iter().enumerate() {
        let this = &mut state.sched.cpus[cpu];
        if usize::from(this.current) != index && this.current != 0 && index != 0 {
            this.current = index as u16;
            (this.more, this.looked) = (false, 0);
            state.published.cpus[cpu].current = state.published.envs[index].id;
        }
    }
}

/// Notes what one has done: it runs on `cpu`, waits for the reply of `callee`, or accepts.
fn note<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (index, now): (usize, u64),
    cpu: Option<usize>,
    callee: Option<usize>,
) {
    let env = &state.envs.slots[index];
    let (from, turns) = (env.state, u64::from(env.gate.turns));
    let (to, pending) = match (cpu, callee) {
        (Some(_), _) => (EnvState::Running, Pending::Nothing),
        (None, Some(_)) => (EnvState::Donating, Pending::Reply),
        (None, None) if env.gate.called_as != 0 => (EnvState::Sleeping, Pending::Accept),
        _ => return,
    };
    if from == to && turns == 0 {
        return;
    }
    let arrivals =
        turns + u64::from(to == EnvState::Running) - u64::from(from == EnvState::Running);
    let place = cpu.unwrap_or(state.published.envs[index].cpu as usize % CPUS);
    if let Some(cpu) = cpu {
        state.sched.cpus[cpu].since_ns = now;
    }
    let waited_for = EnvId(state.published.envs[index].donated_to).index();
    let donated_to = callee.map_or(0, |callee| env::id(state, callee).0);
    state.envs.slots[waited_for].donors -= u16::from(waited_for != 0);
    state.envs.slots[callee.unwrap_or(0)].donors += u16::from(callee.is_some());

    let env = &mut state.envs.slots[index];
    (env.state, env.pending, env.gate.turns) = (to, pending, 0);
    if to == EnvState::Sleeping {
        (env.posted, env.events) = (u64::MAX, u64::MAX);
    }
    let record = &mut state.published.envs[index];
    (record.state, record.donated_to, record.cpu) = (to as u32, donated_to, place as u32);
    record.entries = record.entries.wrapping_add(turns);
    record.switches = record.switches.wrapping_add(arrivals);
    record.sequence = record.sequence.wrapping_add(turns + arrivals);
    record.run_ns = record.run_ns.wrapping_add(machine.ran(index, cpu.is_some()));
    let record = &mut state.published.cpus[place];
    // Less those within one space, which the machine knows.
    record.cr3_loads = record.cr3_loads.wrapping_add(turns);
    record.calls = record.calls.wrapping_add(turns);
    record.switches = record.switches.wrapping_add(turns);
    record.short_ways = record.short_ways.wrapping_add(turns);
    state.published.calls[place][usize::from(number::TransferSync)].made_often(turns);
    if cpu.is_none() {
        let context = machine.context(index);
        // As `syscall` leaves them; what the call answers is written by whoever ends the wait.
        (context.rcx, context.r11) = (context.rip, context.rflags);
    }
    if to == EnvState::Sleeping {
        sched::dequeue(state, index);
    } else {
        sched::enqueue(state, index);
    }
    if !is_plain(state, machine, index) {
        close(state, index);
    }
}
