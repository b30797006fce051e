//! Steps along a ring whose outcome is known, with the switch they bring.
//!
//! ```text
//!   long way   `step`: check ── copy ── tell who waits ── `sched::pick` ── events ── way out
//!   this one   no more than the step, and ┬─ nobody waits: back
//!                                         ├─ one waits: its step, and it starts on borrowed time
//!                                         └─ nothing there: asleep, back to who lends the time
//! ```
//! As for [`handover`], the long way stays the definition and serves everything else: a refusal, a
//! fault, a piece in two frames, several who wait, a switch that is not the only thing to happen. A
//! test drives both with the same random calls and compares everything.

use crate::env::{Env, Pending, Request};
use crate::handover::{called_away, calm, leaves, runs};
use crate::list::{self, Kind};
use crate::machine::Machine;
use crate::operate::{self, Wait};
use crate::sched::SHORTEST_NS;
use crate::state::State;
use crate::{env, sleep, step, trace};
use abi::call::number;
use abi::id::{DomainId, RegionId};
use abi::layout::{PAGE_SIZE, is_user_range};
use abi::limits::SLICE_NS;
use abi::published::EnvState;
use abi::region::{STEP_BESIDE, STEP_IN, Step, role_writes};
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME};
use abi::upcall::offset;

/// What is left for the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The caller goes on, its call answered with 0 (which is not in its context yet).
    Answered,
    /// The same, but the way out has something to look at.
    Disturbed,
    /// Another one runs, since when; the contexts of both are as they leave the kernel, and the
    /// deadline may be another one.
    Switched {
        /// Who runs.
        target: usize,
        /// Since when.
        now: u64,
    },
}

/// `RegionStep` or `RegionStepOrWait` with these arguments, by the environment at `caller`, which
/// runs on `cpu`; `None`: nothing has happened, the long way finds out.
#[inline(always)]
pub fn call<M: Machine, const NUMBER: u16>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    [which, address, piece, words, from, last]: [u64; 6],
) -> Option<Done> {
    let waits = NUMBER == number::RegionStepOrWait;
    let step = Step::from_words([which, piece, words]);
    let own = DomainId(state.published.envs.get(caller)?.domain).index();
    let place = resolve(state, own, &step)?;
    if waits && !peer_is_there(state, &place, step.peer)? || machine.word(place.moves) != from {
        return None;
    }
    let end = from.wrapping_add(step.len.into());
    let expected = if waits { end } else { last };
    if waits || step.flags & STEP_BESIDE != 0 {
        let found = machine.word(place.beside);
        if found != expected {
            let nothing_there = waits && found == from && is_user_range(address, step.len.into());
            let wait = Wait {
                region: RegionId(step.region),
                peer: step.peer,
                physical: place.beside,
                value: from,
            };
            return if nothing_there {
                wait_for(state, machine, (cpu, caller), place.index, wait, (last, step.events))
            } else {
                None
            };
        }
    }
    let len = step.len as usize;
    let copied = if step.flags & STEP_IN != 0 {
        machine.copy_in(place.bytes, address, len)
    } else {
        machine.copy_out(address, place.bytes, len)
    };
    copied.ok()?;
    machine.word_set(place.moves, end);
    count(state, cpu, caller, NUMBER);
    let operations = &mut state.published.regions[place.index].operations;
    *operations = operations.wrapping_add(1);
    let region = &state.regions.slots[place.index];
    if region.waiters != 0 || region.watched {
        return Some(tell(state, machine, (cpu, caller), RegionId(step.region), &place, end));
    }
    let env = &state.envs.slots[caller];
    let goes_on = state.settled
        && state.sched.cpus[cpu].front == 0
        && matches!(env.request, Request::Nothing)
        && !called_away(machine, env);
    Some(if goes_on { Done::Answered } else { Done::Disturbed })
}

/// Where a step is done, if it is allowed and its bytes lie in one frame.
struct Place {
    index: usize,
    /// Physical addresses: the word that moves, the one beside it, the bytes.
    moves: u64,
    beside: u64,
    bytes: u64,
}

/// As `step::check`, for a domain that is known to be attached; program memory is not looked at.
#[inline(always)]
fn resolve(state: &State, domain: usize, step: &Step) -> Option<Place> {
    let index = RegionId(step.region).index();
    let (region, record) = (state.regions.slots.get(index)?, state.published.regions.get(index)?);
    let (len, offset) = (u64::from(step.len), u64::from(step.offset));
    let allowed = index != 0
        && record.id == step.region
        && step.flags & !(STEP_IN | STEP_BESIDE) == 0
        && role_writes(step.role)
        && usize::from(region.known[usize::from(step.role)]) == domain;
    let in_one = len.wrapping_sub(1) < PAGE_SIZE && len <= PAGE_SIZE - offset % PAGE_SIZE;
    let within = offset + len <= u64::from(record.bytes)
        && step.moves < region.words
        && step.beside < region.words;
    if !(allowed && in_one && within) {
        return None;
    }
    let bytes = if offset < PAGE_SIZE {
        region.first | offset
    } else {
        region.frames.get((offset / PAGE_SIZE) as usize)?.address() + offset % PAGE_SIZE
    };
    let word = |number: u16| region.first | u64::from(number) << 3;
    Some(Place { index, moves: word(step.moves), beside: word(step.beside), bytes })
}

/// Is somebody attached in the role of whom the caller would wait for? `None`: there is no such
/// role.
#[inline(always)]
fn peer_is_there(state: &State, place: &Place, peer: u8) -> Option<bool> {
    if peer == u8::MAX {
        return Some(true);
    }
    let attached = &state.published.regions[place.index].attached;
    attached.get(usize::from(peer)).map(|&count| count != 0)
}

/// As dispatch counts. Counters may wrap: nothing is decided by them.
#[inline(always)]
fn count(state: &mut State, cpu: usize, caller: usize, number: u16) {
    let count = |counter: &mut u64| *counter = counter.wrapping_add(1);
    count(&mut state.published.cpus[cpu].calls);
    count(&mut state.published.envs[caller].entries);
    state.published.calls[trace::counters(cpu, usize::from(number))].made();
}

/// A word has moved to `end`: whoever waits for it is told.
#[inline(always)]
fn tell<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    id: RegionId,
    place: &Place,
    end: u64,
) -> Done {
    let region = &state.regions.slots[place.index];
    let sleeper = usize::from(region.waiter);
    let env = &state.envs.slots[sleeper];
    let alone = region.waiters == 1
        && !region.watched
        && env.pending == Pending::Region
        && env.state == EnvState::Sleeping
        && env.wait.region == id;
    if !(alone && finish(state, machine, place, end, sleeper)) {
        operate::changed(state, machine, place.index);
        return Done::Disturbed;
    }
    let Some(Start { now, until }) = check_start(state, machine, (cpu, caller), sleeper) else {
        sleep::finished(state, machine, sleeper);
        return Done::Disturbed;
    };
    apply_start(state, machine, (cpu, caller), (sleeper, place.index), (now, until));
    Done::Switched { target: sleeper, now }
}

/// As `step::finish`, for one that waits for the word that has moved to `end`.
#[inline(always)]
fn finish<M: Machine>(
    state: &mut State,
    machine: &mut M,
    moved: &Place,
    end: u64,
    sleeper: usize,
) -> bool {
    let context = machine.context(sleeper);
    let (rax, address, from) = (context.rax, context.rsi, context.r8);
    let asked = Step::from_words([context.rdi, context.rdx, context.r10]);
    let own = DomainId(state.published.envs[sleeper].domain).index();
    let Some(place) = resolve(state, own, &asked) else { return false };
    let (len, at) = (u64::from(asked.len), address % PAGE_SIZE);
    let known = rax as u16 == number::RegionStepOrWait
        && asked.flags & STEP_IN == 0
        && place.index == moved.index
        && place.beside == moved.moves
        && from.wrapping_add(len) == end
        && len <= PAGE_SIZE - at
        && is_user_range(address, len);
    if !known || machine.word(place.moves) != from || machine.word(place.beside) != end {
        return false;
    }
    let Some(page) = step::written_page(state, machine, sleeper, address) else { return false };
    machine.copy(page | at, place.bytes, asked.len as usize);
    machine.word_set(place.moves, end);
    let operations = &mut state.published.regions[place.index].operations;
    *operations = operations.wrapping_add(1);
    true
}

/// A sleeper starts: when, and how long it may borrow.
struct Start {
    now: u64,
    until: u64,
}

/// Neither asked for anything nor woken already, and in its ring.
#[inline(always)]
fn in_order(env: &Env) -> bool {
    matches!(env.request, Request::Nothing)
        && env.links[Kind::Front as usize].next == 0
        && env.links[Kind::Ring as usize].next != 0
}

/// Would the sleeper, whose step has been done, start at once, lent the time by the caller?
#[inline(always)]
fn check_start<M: Machine>(
    state: &State,
    machine: &M,
    (cpu, caller): (usize, usize),
    sleeper: usize,
) -> Option<Start> {
    let (own, env) = (&state.envs.slots[caller], &state.envs.slots[sleeper]);
    let this = &state.sched.cpus[cpu];
    let now = machine.now_ns();
    let left = SLICE_NS.saturating_sub(env.debt_ns.into());
    let borrows = this.lender == 0
        && own.entries.flags & FLAG_BORROW != 0
        && env.entries.flags & FLAG_GIVEN_TIME == 0
        && left >= SHORTEST_NS;
    let starts = usize::from(env.cpu) == cpu
        && usize::from(own.cpu) == cpu
        && env.deadline | env.edge == 0
        && in_order(env)
        && matches!(own.request, Request::Nothing)
        && !called_away(machine, env)
        && now < this.slice_end_ns
        && calm(state, cpu, now);
    (borrows && starts).then(|| Start { now, until: now + left })
}

/// As `sleep::finished`, and `pick` thereafter.
#[inline(always)]
fn apply_start<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    (sleeper, region): (usize, usize),
    (now, until): (u64, u64),
) {
    let (context, own) = machine.two_contexts(sleeper, caller);
    context.answered();
    context.answer(0, 0);
    own.answer(0, 0);
    list::remove(state.envs.slots, &mut state.sched.watch, Kind::Watch, sleeper);
    state.sched.watchers -= 1;
    state.regions.slots[region].waiters -= 1;
    let env = &mut state.envs.slots[sleeper];
    env.pending = Pending::Nothing;
    let record = &mut state.published.envs[sleeper];
    // It was ready in between.
    record.sequence = record.sequence.wrapping_add(1);
    runs(env, record, cpu);
    let this = &mut state.sched.cpus[cpu];
    let (env, record) = (&mut state.envs.slots[caller], &mut state.published.envs[caller]);
    leaves(this, env, record, EnvState::Ready, now);
    (this.current, this.lender, this.borrow_end_ns) = (sleeper as u16, caller as u16, until);
    (this.more, this.looked) = (false, 0);
    gets(state, cpu, sleeper);
}

/// The caller waits for the region at `index`, and who lent it the time goes on, if that is all
/// that would happen.
#[inline(always)]
fn wait_for<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    index: usize,
    wait: Wait,
    (posted, events): (u64, u32),
) -> Option<Done> {
    let this = &state.sched.cpus[cpu];
    let target = usize::from(this.lender);
    let (own, env) = (&state.envs.slots[caller], &state.envs.slots[target]);
    let told = |at: usize, bits: u64| machine.word(own.save.address() + at as u64) & bits != 0;
    if own.save.0 == 0 || told(offset::PENDING, posted) || told(offset::EVENTS, events.into()) {
        return None;
    }
    let now = machine.now_ns();
    // What it has run is given back to the slice.
    let goes_on = target != 0
        && env.state == EnvState::Ready
        && in_order(env)
        && !called_away(machine, env)
        && own.deadline | own.edge == 0
        && own.alarm != 0
        && this.since_ns <= now
        && this.since_ns < this.slice_end_ns
        && calm(state, cpu, now);
    if !goes_on {
        return None;
    }
    count(state, cpu, caller, number::RegionStepOrWait);
    machine.context(caller).again();
    let this = &mut state.sched.cpus[cpu];
    let (own, record) = (&mut state.envs.slots[caller], &mut state.published.envs[caller]);
    (own.posted, own.events) = (posted, events.into());
    (own.wait, own.pending) = (wait, Pending::Region);
    leaves(this, own, record, EnvState::Sleeping, now);
    (this.current, this.lender) = (target as u16, 0);
    (this.more, this.looked) = (false, 0);
    list::push(state.envs.slots, &mut state.sched.watch, Kind::Watch, caller);
    state.sched.watchers += 1;
    let region = &mut state.regions.slots[index];
    region.waiters += 1;
    region.waiter = caller as u16;
    runs(&mut state.envs.slots[target], &mut state.published.envs[target], cpu);
    gets(state, cpu, target);
    Some(Done::Switched { target, now })
}

/// Publishes who has got the processor.
#[inline(always)]
fn gets(state: &mut State, cpu: usize, index: usize) {
    let id = env::id(state, index).0;
    let record = &mut state.published.cpus[cpu];
    record.current = id;
    record.switches = record.switches.wrapping_add(1);
}
