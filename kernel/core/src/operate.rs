//! Operations on regions: compare, copy, write words, or wait until a compare may hold.
//!
//! A fault in program memory ends an operation before any word is written; the call runs again.
//! Whoever waits for a region is woken by the operation that ends the wait, without a look at
//! anybody's predicate: the region knows who began to wait last, and when several wait, the list of
//! sleepers is looked through as for predicates. Whatever wakes it, its call begins anew.

use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::env::{self, Env, Pending};
use crate::index::{CpuIndex, EnvIndex, RegionIndex};
use crate::machine::{Machine, UserFault};
use crate::region::{Region, attached_again, check_role, find, physical, touched, within};
use crate::sleep::{self, Sleep};
use crate::state::State;
use crate::work::{self, cost};
use crate::{fifo, predicate, sched, step};
use abi::error::Error;
use abi::id::RegionId;
use abi::layout::{PAGE_SIZE, is_user_range};
use abi::limits::{REGION_COPY_BYTES, REGION_ROLES, REGION_WORDS};
use abi::published::Table;
use abi::region::{
    COPY_IN, COPY_NONE, NO_PEER, NO_ROLE, RegionOperation, STEP_IN, Step, WordAt, role_writes,
};
use core::mem::{offset_of, size_of};

/// What an environment waits for: that a word of a region has another value, or that nobody is
/// attached in a role any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// The region.
    pub region: RegionId,
    /// The word's physical address.
    pub(crate) physical: u64,
    /// Its value then.
    pub(crate) value: u64,
    /// The step it is to do, if that has been looked at.
    pub(crate) piece: Piece,
}

/// A step along a ring that its sleeper may do and that lies in one frame, at both ends: what is in
/// its registers, which nobody can change, looked at when it went to sleep. Whoever drops an
/// attachment to the region forgets it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    /// Where in its memory.
    pub(crate) address: u64,
    /// Where in the region.
    pub(crate) offset: u32,
    /// Number of the word that moves; it has the value of the wait's.
    pub(crate) moves: u16,
    /// Bytes, 0: look at the registers.
    pub(crate) len: u16,
}

impl Piece {
    /// A step that has been allowed.
    #[inline(always)]
    pub(crate) fn of(step: &Step, address: u64) -> Self {
        let len = u64::from(step.len);
        let in_one = |at: u64| at % PAGE_SIZE + len <= PAGE_SIZE;
        // The short way finds the word in the region's first frame (`relay::hand_on`).
        let in_first = u64::from(step.moves) < PAGE_SIZE / 8;
        let in_pages = in_one(address) && in_one(step.offset.into());
        if step.flags & STEP_IN != 0 || !in_pages || !in_first {
            return Self::default();
        }
        Self { address, offset: step.offset, moves: step.moves, len: step.len as u16 }
    }
}

/// The class of what waits for a region.
pub fn watched(id: RegionId) -> u64 {
    predicate::published_bit(Table::Regions, id.index())
}

/// Who waits for a region alone is in no list: the region knows him. When another one comes, or all
/// who wait are to be looked at, he is put into that of the sleepers.
pub(crate) fn watch_waiter(state: &mut State, index: RegionIndex) {
    let waiter = EnvIndex::from(state.regions.slots[index].waiter);
    let env = &state.envs.slots[waiter];
    let id = state.published.regions[index].id;
    if env.pending == Pending::Region && env.wait.region.0 == id {
        sleep::watch(state, waiter);
    }
}

/// Is there no reason any more for the environment at `index` to wait for a region?
pub fn wait_is_over<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> bool {
    let Env { wait, peer, .. } = &state.envs.slots[index];
    find(state, wait.region).map_or(true, |region| is_over(state, machine, region, (wait, *peer)))
}

fn is_over<M: Machine>(
    state: &State,
    machine: &M,
    index: RegionIndex,
    (wait, peer): (&Wait, u8),
) -> bool {
    let attached = &state.published.regions[index].attached;
    let alone = attached.get(usize::from(peer)).is_some_and(|&count| count == 0);
    alone || machine.word(wait.physical) != wait.value
}

/// One fewer waits for a region, if there still is one.
pub fn end_wait(state: &mut State, index: EnvIndex) {
    if let Ok(region) = find(state, state.envs.slots[index].wait.region) {
        state.regions.slots[region].waiters.less(1);
    }
}

/// Words of a region have changed: wakes the one that waits; of several, those whose wait is over
/// are found on the way out, as those are whose predicates name the region.
#[inline(always)]
pub(crate) fn changed<M: Machine>(state: &mut State, machine: &mut M, index: RegionIndex) {
    let Region { waiters, watched, .. } = &state.regions.slots[index];
    if *waiters != 0 || *watched {
        tell(state, machine, index);
    }
}

fn tell<M: Machine>(state: &mut State, machine: &mut M, index: RegionIndex) {
    let Region { waiters, waiter, watched, .. } = state.regions.slots[index];
    let last = EnvIndex::from(waiter);
    let env = &state.envs.slots[last];
    let still = env.pending == Pending::Region && env.wait.region.index() == index.at();
    if waiters == 1 && still && step::finish(state, machine, last) {
        sleep::finished(state, machine, last);
    } else if waiters == 1 && still {
        sleep::try_predicate(state, machine, last, true);
    } else if waiters > 0 {
        touched(state, index);
    }
    if watched {
        touched(state, index);
    }
}

/// `RegionOperate`; the error side holds a fault of the caller's, after which the call runs again.
pub fn operate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    bytes: &[u8],
) -> Result<Answer, UserFault> {
    let plan = match check(state, caller, bytes) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    Ok(match attempt(state, machine, &plan)? {
        None => Ok(0),
        Some(found) => Err(Refusal::new(Error::Changed, found)),
    })
}

/// `RegionAwait`: the answer, `None` if the caller sleeps and has left.
pub fn operate_or_wait<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    asked: Sleep,
    bytes: &[u8],
) -> Result<Option<Answer>, UserFault> {
    let checked =
        check(state, caller, bytes).and_then(|plan| Ok((check_wait(state, &plan, bytes)?, plan)));
    let ((wait, peer), plan) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return Ok(Some(Err(refusal))),
    };
    let Some(found) = attempt(state, machine, &plan)? else { return Ok(Some(Ok(0))) };
    Ok(wait_for(state, machine, (cpu, caller), (plan.index, wait, peer), &asked, found))
}

/// A compare has `found` another word: the caller sleeps, unless its wait is over already. The
/// answer, `None` if it sleeps and has left.
pub(crate) fn wait_for<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    (index, wait, peer): (RegionIndex, Wait, u8),
    asked: &Sleep,
    found: u64,
) -> Option<Answer> {
    if is_over(state, machine, index, (&wait, peer)) {
        return Some(Err(Refusal::new(Error::Changed, found)));
    }
    if let Err(refusal) = sleep::may_wait(state, machine, caller, asked) {
        return Some(Err(refusal));
    }
    sched::leave(state, machine, cpu);
    let alone = state.regions.slots[index].waiters == 0;
    if !alone {
        watch_waiter(state, index);
    }
    let env = &mut state.envs.slots[caller];
    (env.wait, env.peer) = (wait, peer);
    let slot = &mut state.regions.slots[index];
    slot.waiters += 1;
    slot.waiter = caller.link();
    sleep::await_region(state, machine, caller, asked.deadline);
    if !alone {
        sleep::watch(state, caller);
    }
    None
}

/// A checked operation: what it names lies in the region and in the caller's half.
struct Plan<'a> {
    index: RegionIndex,
    direction: u8,
    address: u64,
    offset: u64,
    len: u64,
    compares: &'a [Pair],
    writes: &'a [Pair],
}

/// An offset and a value, as the caller wrote them.
type Pair = [u8; size_of::<WordAt>()];

const OPERATION: usize = size_of::<RegionOperation>();
/// Where the pairs begin, counted in pairs.
const COMPARE: usize = offset_of!(RegionOperation, compare) / size_of::<WordAt>();
const WRITE_AT: usize = offset_of!(RegionOperation, write) / size_of::<WordAt>();

#[inline(always)]
fn offset_and_value(pair: &Pair) -> (u64, u64) {
    let pair = u128::from_le_bytes(*pair);
    (pair as u64, (pair >> 64) as u64)
}

/// As [`physical`], for words, which mostly lie in the beginning.
#[inline(always)]
pub(crate) fn word(state: &State, index: RegionIndex, offset: u64) -> u64 {
    let first = state.regions.slots[index].first;
    if offset < PAGE_SIZE { first | offset } else { physical(state, index, offset) }
}

/// Compares, copies, writes; the word found if it is not the one expected.
#[inline(always)]
fn attempt<M: Machine>(
    state: &mut State,
    machine: &mut M,
    plan: &Plan<'_>,
) -> Result<Option<u64>, UserFault> {
    for pair in plan.compares {
        let (offset, expected) = offset_and_value(pair);
        let found = machine.word(word(state, plan.index, offset));
        if found != expected {
            return Ok(Some(found));
        }
    }
    if plan.direction != COPY_NONE {
        let (at, user, into) = (plan.offset, plan.address, plan.direction == COPY_IN);
        copy(state, machine, (plan.index, at, user, plan.len), into)?;
    }
    for pair in plan.writes {
        let (offset, value) = offset_and_value(pair);
        machine.word_set(word(state, plan.index, offset), value);
    }
    let operations = &mut state.published.regions[plan.index].operations;
    *operations = operations.wrapping_add(1);
    if !plan.writes.is_empty() || plan.direction == COPY_IN {
        changed(state, machine, plan.index);
    }
    Ok(None)
}

/// May the caller do this?
#[inline(always)]
fn check<'a>(state: &mut State, caller: EnvIndex, bytes: &'a [u8]) -> Result<Plan<'a>, Refusal> {
    let bytes = bytes.first_chunk::<OPERATION>().ok_or(Error::BadAddress)?;
    let (words, (pairs, _)) = (bytes.as_chunks::<8>().0, bytes.as_chunks());
    let [region, address, offset] = [0, 1, 2].map(|at: usize| u64::from_le_bytes(words[at]));
    let len = u64::from(u64::from_le_bytes(words[3]) as u32);
    let [_, _, _, _, compares, writes, direction, role] = words[3];
    let index = find(state, RegionId(region))?;
    let (compares, writes) = (usize::from(compares), usize::from(writes));
    if compares > REGION_WORDS || writes > REGION_WORDS || direction > COPY_IN {
        return Err(Refusal::new(Error::BadArgument, 0));
    }
    let role = check_role(u16::from(role))?;
    if !attached_again(state, env::domain(state, caller).into(), index, role) {
        return Err(Error::NotPermitted.into());
    }
    let changes = writes > 0 || direction == COPY_IN;
    if changes && !role_writes(role) {
        return Err(Error::NotPermitted.into());
    }
    let compares = &pairs[COMPARE..COMPARE + compares];
    let writes = &pairs[WRITE_AT..WRITE_AT + writes];
    let (mut all, mut last) = (0, 0);
    let mut note = |pair: &Pair| {
        let (offset, _) = offset_and_value(pair);
        (all, last) = (all | offset, last.max(offset));
    };
    compares.iter().for_each(&mut note);
    writes.iter().for_each(&mut note);
    if all % 8 != 0 || !within(state, index, last, 8) {
        return Err(Error::BadAddress.into());
    }
    if direction != COPY_NONE {
        if len > REGION_COPY_BYTES as u64 {
            return Err(Refusal::new(Error::TooLarge, REGION_COPY_BYTES as u64));
        }
        if !is_user_range(address, len) || !within(state, index, offset, len) {
            return Err(Error::BadAddress.into());
        }
    }
    let copied = (direction != COPY_NONE).then_some((direction == COPY_IN, (offset, len)));
    if state.regions.slots[index].fifo != 0 && !fifo_allows(role, (compares, writes), copied) {
        return Err(Error::NotPermitted.into());
    }
    Ok(Plan { index, direction, address, offset, len, compares, writes })
}

/// May a fifo's role compare and write these words, and copy these bytes?
fn fifo_allows(
    role: u8,
    (compares, writes): (&[Pair], &[Pair]),
    copied: Option<(bool, (u64, u64))>,
) -> bool {
    let may = |pairs: &[Pair], writes: bool| {
        pairs.iter().all(|pair| fifo::allows_word(role, offset_and_value(pair).0, writes))
    };
    may(compares, false)
        && may(writes, true)
        && copied.is_none_or(|(into, bytes)| fifo::allows_copy(role, into, bytes))
}

/// May a program that is attached learn when the word at `offset` changes?
#[inline(always)]
pub(crate) fn check_word(state: &State, index: RegionIndex, offset: u64) -> Result<(), Error> {
    if !offset.is_multiple_of(8) || !within(state, index, offset, 8) {
        return Err(Error::BadAddress);
    }
    let shown = state.regions.slots[index].fifo == 0 || offset < PAGE_SIZE;
    if shown { Ok(()) } else { Err(Error::NotPermitted) }
}

#[inline(always)]
fn check_wait(state: &State, plan: &Plan<'_>, bytes: &[u8]) -> Result<(Wait, u8), Refusal> {
    let index = plan.index;
    let rest = bytes[OPERATION..].first_chunk::<24>().ok_or(Error::BadAddress)?;
    let [offset, value, peer] =
        [0, 1, 2].map(|at: usize| u64::from_le_bytes(rest.as_chunks().0[at]));
    check_word(state, index, offset)?;
    let peer = match peer {
        NO_ROLE => NO_PEER,
        role if role < REGION_ROLES as u64 => role as u8,
        _ => return Err(Refusal::new(Error::BadArgument, 0)),
    };
    let region = RegionId(state.published.regions[index].id);
    let physical = physical(state, index, offset);
    Ok((Wait { region, physical, value, ..Wait::default() }, peer))
}

/// Copies between the region at `index` and program memory, a frame at a time: where in the region,
/// where in memory, how many bytes, and whether they go `into` the region.
#[inline(always)]
pub(crate) fn copy<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (index, offset, user, len): (RegionIndex, u64, u64, u64),
    into: bool,
) -> Result<(), UserFault> {
    if len > PAGE_SIZE {
        work::spend(state, cost::TRANSFER * len.div_ceil(PAGE_SIZE) as u32);
    }
    let mut one = |state: &State, (place, user, len): (u64, u64, u64)| {
        let place = physical(state, index, place);
        if into {
            machine.copy_in(place, user, len as usize)
        } else {
            machine.copy_out(user, place, len as usize)
        }
    };
    // Mostly it is all in one.
    if len <= PAGE_SIZE - offset % PAGE_SIZE {
        return if len == 0 { Ok(()) } else { one(state, (offset, user, len)) };
    }
    let mut done = 0;
    while done < len {
        let at = offset + done;
        let piece = (len - done).min(PAGE_SIZE - at % PAGE_SIZE);
        one(state, (at, user + done, piece))?;
        done += piece;
    }
    Ok(())
}
