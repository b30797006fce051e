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
use crate::handover::{called_away, leaves, runs};
use crate::list::{self, Kind};
use crate::machine::Machine;
use crate::operate::{self, Piece, Wait};
use crate::region::Region;
use crate::sched::SHORTEST_NS;
use crate::state::State;
use crate::{sleep, step, trace};
use abi::call::number;
use abi::id::{DomainId, RegionId};
use abi::layout::{PAGE_SIZE, is_user_range};
use abi::limits::{REGION_ROLES, SLICE_NS};
use abi::published::{CpuRecord, EnvRecord, EnvState, RegionRecord};
use abi::region::{STEP_BESIDE, STEP_IN, Step, role_writes};
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME};
use abi::upcall::offset;

/// What is left for the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The caller goes on, its call answered with 0 (which is not in its context yet).
    Answered,
    /// The same, but somebody waits or watches: [`tell`] him.
    Moved(Moved),
    /// There is nothing yet: the caller may [`wait_for`] the region at this index.
    Nothing(usize),
    /// The caller goes on as above, but there is something to look at on the way out, after
    /// [`finish`].
    Disturbed(Rest),
    /// Another one runs, since when; the contexts of both are as they leave the kernel, and the
    /// deadline may be another one.
    Switched {
        /// Who runs.
        target: usize,
        /// Since when.
        now: u64,
        /// When the next timer interrupt must come.
        deadline: u64,
    },
}

/// A word that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Index of the region.
    region: usize,
    /// The word's physical address.
    word: u64,
    /// Its value now.
    end: u64,
}

/// What is left of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Nothing,
    /// Who waits for this region, by its index, has not been told.
    Told(usize),
    /// This environment's step has been done, and it is asleep still.
    Woken(usize),
}

/// Does the rest of a step, the long way.
#[cold]
pub fn finish<M: Machine>(state: &mut State, machine: &mut M, rest: Rest) {
    match rest {
        Rest::Nothing => {}
        Rest::Told(region) => operate::changed(state, machine, region),
        Rest::Woken(sleeper) => sleep::finished(state, machine, sleeper),
    }
}

/// May [`call`] serve a step with these arguments? Long ones needn't be asked.
#[inline(always)]
pub fn may_serve([_, _, piece, ..]: [u64; 6]) -> bool {
    u64::from(piece as u32) <= PAGE_SIZE
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
    let index = RegionId(step.region).index();
    let State { published, envs, sched, regions, settled, .. } = &mut *state;
    let record = published.envs.get_mut(caller)?;
    let (region, region_record) = (regions.slots.get(index)?, published.regions.get_mut(index)?);
    let place = resolve(region, region_record, DomainId(record.domain).index(), &step)?;
    let (own, this) = (envs.slots.get(caller)?, sched.cpus.get(cpu)?);
    let quiet = *settled && this.front == 0 && matches!(own.request, Request::Nothing);
    let peer_known = !waits || step.peer.wrapping_add(1) <= REGION_ROLES as u8;
    if !quiet || !peer_known || own.save.0 == 0 || machine.word(place.moves) != from {
        return None;
    }
    let end = from.wrapping_add(step.len.into());
    if waits || step.flags & STEP_BESIDE != 0 {
        let found = machine.word(place.beside);
        if found != if waits { end } else { last } {
            // Nothing there, rather than something else than was asked for?
            let nothing = waits && found == from && is_user_range(address, step.len.into());
            return nothing.then_some(Done::Nothing(index));
        }
    }
    let cpu_record = published.cpus.get_mut(cpu)?;
    // As dispatch counts. Counters may wrap: nothing is decided by them.
    published.calls.get(trace::counters(cpu, usize::from(NUMBER)))?.made();
    cpu_record.calls = cpu_record.calls.wrapping_add(1);
    record.entries = record.entries.wrapping_add(1);
    let (save, told) = (own.save.address(), region.waiters != 0 || region.watched);
    let len = step.len as usize;
    let copied = if step.flags & STEP_IN != 0 {
        machine.copy_in(place.bytes, address, len)
    } else {
        machine.copy_out(address, place.bytes, len)
    };
    if copied.is_err() {
        // A fault, or no program's memory: the long way finds out, and counts.
        published.calls.get(trace::counters(cpu, usize::from(NUMBER)))?.unmade();
        cpu_record.calls = cpu_record.calls.wrapping_sub(1);
        record.entries = record.entries.wrapping_sub(1);
        return None;
    }
    machine.word_set(place.moves, end);
    region_record.operations = region_record.operations.wrapping_add(1);
    if told {
        return Some(Done::Moved(Moved { region: index, word: place.moves, end }));
    }
    // The bytes may have come where its own bits are.
    let bits = |at: usize| machine.word(save + at as u64);
    let event = bits(offset::PENDING) | bits(offset::EVENTS) != 0;
    Some(if event { Done::Disturbed(Rest::Nothing) } else { Done::Answered })
}

/// Where a step is done, if it is allowed and its bytes lie in one frame: physical addresses of the
/// word that moves, of the one beside it, and of the bytes.
struct Place {
    moves: u64,
    beside: u64,
    bytes: u64,
}

/// As `step::check`, for a domain that is known to be attached; program memory is not looked at.
#[inline(always)]
fn resolve(region: &Region, record: &RegionRecord, domain: usize, step: &Step) -> Option<Place> {
    let (len, offset) = (u64::from(step.len), u64::from(step.offset));
    let allowed = step.region != 0
        && record.id == step.region
        && step.flags & !(STEP_IN | STEP_BESIDE) == 0
        && role_writes(step.role)
        && usize::from(region.known[usize::from(step.role)]) == domain;
    if !allowed
        || offset % PAGE_SIZE + len > PAGE_SIZE
        || offset + len > u64::from(record.bytes)
        || step.moves >= region.words
        || step.beside >= region.words
    {
        return None;
    }
    let word = |number: u16| region.first | u64::from(number) << 3;
    Some(Place {
        moves: word(step.moves),
        beside: word(step.beside),
        bytes: bytes(region, offset)?,
    })
}

/// As `region::physical`.
#[inline(always)]
fn bytes(region: &Region, offset: u64) -> Option<u64> {
    if offset < PAGE_SIZE {
        return Some(region.first | offset);
    }
    Some(region.frames.get((offset / PAGE_SIZE) as usize)?.address() + offset % PAGE_SIZE)
}

/// A word has moved: whoever waits for it is told.
#[inline(always)]
pub fn tell<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    moved: Moved,
) -> Done {
    match finish_for(state, machine, &moved) {
        None => Done::Disturbed(Rest::Told(moved.region)),
        Some(sleeper) => match start(state, machine, (cpu, caller), (sleeper, moved.region)) {
            None => Done::Disturbed(Rest::Woken(sleeper)),
            Some((now, deadline)) => Done::Switched { target: sleeper, now, deadline },
        },
    }
}

/// As `step::finish`, for the only one that waits, if it is for this word, and its step has been
/// looked at; who it is.
#[inline(always)]
fn finish_for<M: Machine>(state: &mut State, machine: &mut M, moved: &Moved) -> Option<usize> {
    let region = state.regions.slots.get(moved.region)?;
    let sleeper = usize::from(region.waiter);
    let env = state.envs.slots.get(sleeper)?;
    let (wait, Piece { address, offset, moves, len }) = (&env.wait, env.wait.piece);
    let waits = region.waiters == 1
        && !region.watched
        && env.pending == Pending::Region
        && env.state == EnvState::Sleeping
        && wait.region.0 == state.published.regions.get(moved.region)?.id
        && wait.physical == moved.word
        && wait.value.wrapping_add(len.into()) == moved.end
        && len != 0;
    let moves = region.first | u64::from(moves) << 3;
    if !waits || machine.word(moves) != wait.value {
        return None;
    }
    let bytes = bytes(region, offset.into())?;
    let domain = DomainId(state.published.envs.get(sleeper)?.domain).index();
    let page = step::written_page(state, machine, domain, address)?;
    machine.copy(page + address % PAGE_SIZE, bytes, len.into());
    machine.word_set(moves, moved.end);
    let operations = &mut state.published.regions.get_mut(moved.region)?.operations;
    *operations = operations.wrapping_add(1);
    Some(sleeper)
}

/// Neither asked for anything nor woken already, and in its ring.
#[inline(always)]
fn in_order(env: &Env) -> bool {
    matches!(env.request, Request::Nothing)
        && env.links[Kind::Front as usize].next == 0
        && env.links[Kind::Ring as usize].next != 0
}

/// The sleeper, whose step has been done, starts at once if the caller lends it the time and
/// nothing else would happen, where nothing waits to be looked at: as `sleep::finished`, and `pick`
/// thereafter. Since when it runs, and the deadline.
#[inline(always)]
fn start<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    (sleeper, region): (usize, usize),
) -> Option<(u64, u64)> {
    let State { published, envs, sched, regions, .. } = state;
    let pair = [caller, sleeper];
    let [own, env] = envs.slots.get_disjoint_mut(pair).ok()?;
    let this = sched.cpus.get_mut(cpu)?;
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
        && !called_away(machine, env)
        && now < this.slice_end_ns
        && now < sched.alarms.soonest();
    if !(borrows && starts) {
        return None;
    }
    let [own_record, record] = published.envs.get_disjoint_mut(pair).ok()?;
    let (cpu_record, region) = (published.cpus.get_mut(cpu)?, regions.slots.get_mut(region)?);
    env.pending = Pending::Nothing;
    // It was ready in between.
    record.sequence = record.sequence.wrapping_add(1);
    runs(env, record, cpu);
    leaves(this, own, own_record, EnvState::Ready, now);
    (this.current, this.lender) = (sleeper as u16, caller as u16);
    (this.borrow_end_ns, this.more, this.looked) = (now + left, false, 0);
    gets(cpu_record, record);
    region.waiters -= 1;
    list::remove(envs.slots, &mut sched.watch, Kind::Watch, sleeper);
    sched.watchers -= 1;
    let (context, own) = machine.two_contexts(sleeper, caller);
    context.answered();
    context.answer(0, 0);
    own.answer(0, 0);
    Some((now, (now + left).min(sched.alarms.soonest())))
}

/// The caller waits for the region at `index`, and who lent it the time goes on, if that is all
/// that would happen where nothing waits to be looked at.
///
/// Its step has been looked at in the same hold of the lock ([`call`]).
#[inline(always)]
pub fn wait_for<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    index: usize,
) -> Option<Done> {
    let context = machine.context(caller);
    let step = Step::from_words([context.rdi, context.rdx, context.r10]);
    let (address, from, posted) = (context.rsi, context.r8, context.r9);
    let State { published, envs, sched, regions, .. } = state;
    let this = sched.cpus.get_mut(cpu)?;
    let target = usize::from(this.lender);
    // Somebody who runs is not 0, so this is no environment either if nobody has lent.
    let pair = [caller, target];
    let [own, env] = envs.slots.get_disjoint_mut(pair).ok()?;
    let (cpu_record, region) = (published.cpus.get_mut(cpu)?, regions.slots.get_mut(index)?);
    let region_record = published.regions.get(index)?;
    let counters = published.calls.get(trace::counters(cpu, number::RegionStepOrWait.into()))?;
    let attached = region_record.attached.get(usize::from(step.peer));
    let events = u64::from(step.events);
    let told = |at: usize, bits: u64| machine.word(own.save.address() + at as u64) & bits != 0;
    let waits = attached.is_none_or(|&count| count != 0)
        && own.save.0 != 0
        && !told(offset::PENDING, posted)
        && !told(offset::EVENTS, events)
        && own.deadline | own.edge == 0
        && own.alarm != 0;
    let now = machine.now_ns();
    // What it has run is given back to the slice.
    let goes_on = target != 0
        && env.state == EnvState::Ready
        && in_order(env)
        && !called_away(machine, env)
        && this.since_ns <= now
        && this.since_ns < this.slice_end_ns
        && now < sched.alarms.soonest();
    if !(waits && goes_on) {
        return None;
    }
    let [own_record, record] = published.envs.get_disjoint_mut(pair).ok()?;
    let count = |counter: &mut u64| *counter = counter.wrapping_add(1);
    count(&mut cpu_record.calls);
    count(&mut own_record.entries);
    counters.made();
    (own.posted, own.events) = (posted, events);
    own.wait = Wait {
        region: RegionId(step.region),
        peer: step.peer,
        physical: region.first | u64::from(step.beside) << 3,
        value: from,
        piece: Piece::of(&step, address),
    };
    own.pending = Pending::Region;
    leaves(this, own, own_record, EnvState::Sleeping, now);
    let deadline = this.slice_end_ns.min(sched.alarms.soonest());
    (this.current, this.lender) = (target as u16, 0);
    (this.more, this.looked) = (false, 0);
    runs(env, record, cpu);
    gets(cpu_record, record);
    (region.waiters, region.waiter) = (region.waiters + 1, caller as u16);
    list::push(envs.slots, &mut sched.watch, Kind::Watch, caller);
    sched.watchers += 1;
    machine.context(caller).again();
    Some(Done::Switched { target, now, deadline })
}

/// Publishes who has got the processor.
#[inline(always)]
fn gets(cpu: &mut CpuRecord, env: &EnvRecord) {
    cpu.current = env.id;
    cpu.switches = cpu.switches.wrapping_add(1);
}
