//! Operations on regions: compare, copy, write words, or wait until a compare may hold.
//!
//! A fault in program memory ends an operation before any word is written; the call runs again.
//! Whoever waits for a region is woken by the operation that ends the wait, without a look at
//! anybody's predicate: the region knows who began to wait last, and when several wait, the list of
//! all sleepers is looked through as for predicates. Whatever wakes it, its call begins anew.

use crate::answer::{Answer, Refusal};
use crate::bytes::u64_at;
use crate::env::{self, Pending};
use crate::machine::{Machine, UserFault};
use crate::region::{Region, attached_again, check_role, find, physical, touched, within};
use crate::sleep::{self, Sleep};
use crate::state::State;
use crate::{predicate, sched};
use abi::error::Error;
use abi::id::{Frame, RegionId};
use abi::layout::{PAGE_SIZE, is_user_range};
use abi::limits::{REGION_COPY_BYTES, REGION_ROLES, REGION_WORDS};
use abi::published::Table;
use abi::region::{COPY_IN, COPY_NONE, COPY_OUT, NO_ROLE, RegionOperation, WordAt, role_writes};
use core::mem::{offset_of, size_of};

/// What an environment waits for: that a word of a region has another value, or that nobody is
/// attached in a role any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// The region.
    pub region: RegionId,
    /// The role, `REGION_ROLES` or more: none.
    peer: u8,
    /// The word's physical address.
    physical: u64,
    /// Its value then.
    value: u64,
}

/// The class of what waits for a region.
pub fn watched(id: RegionId) -> u64 {
    predicate::published_bit(Table::Regions, id.index())
}

/// Is there no reason any more for the environment at `index` to wait for a region?
pub fn wait_is_over<M: Machine>(state: &State, machine: &M, index: usize) -> bool {
    let wait = &state.envs.slots[index].wait;
    find(state, wait.region).map_or(true, |region| is_over(state, machine, region, wait))
}

fn is_over<M: Machine>(state: &State, machine: &M, index: usize, wait: &Wait) -> bool {
    let attached = &state.published.regions[index].attached;
    let alone = attached.get(usize::from(wait.peer)).is_some_and(|&count| count == 0);
    alone || machine.word(wait.physical) != wait.value
}

/// One fewer waits for a region, if there still is one.
pub fn end_wait(state: &mut State, index: usize) {
    if let Ok(region) = find(state, state.envs.slots[index].wait.region) {
        state.regions.slots[region].waiters -= 1;
    }
}

/// Words of a region have changed: wakes the one that waits; of several, those whose wait is over
/// are found on the way out.
fn wake<M: Machine>(state: &mut State, machine: &mut M, index: usize) {
    let Region { waiters, waiter, .. } = state.regions.slots[index];
    let last = usize::from(waiter);
    let env = &state.envs.slots[last];
    let still = env.pending == Pending::Region && env.wait.region.index() == index;
    if waiters == 1 && still {
        sleep::try_predicate(state, machine, last, true);
    } else if waiters > 0 {
        touched(state, index);
    }
}

/// `RegionOperate`; the error side holds a fault of the caller's, after which the call runs again.
pub fn operate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: usize,
    bytes: &[u8],
) -> Result<Answer, UserFault> {
    match check(state, caller, bytes) {
        Ok(index) => attempt(state, machine, index, bytes),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// `RegionAwait`: the answer, `None` if the caller sleeps and has left.
pub fn operate_or_wait<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (usize, usize),
    asked: Sleep,
    bytes: &[u8],
) -> Result<Option<Answer>, UserFault> {
    let checked = check(state, caller, bytes)
        .and_then(|index| Ok((index, check_wait(state, index, &bytes[OPERATION..])?)));
    let (index, wait) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return Ok(Some(Err(refusal))),
    };
    let answer = attempt(state, machine, index, bytes)?;
    let changed = answer.is_err_and(|refusal| refusal.error == Error::Changed);
    if !changed || is_over(state, machine, index, &wait) {
        return Ok(Some(answer));
    }
    if let Err(refusal) = sleep::may_wait(state, machine, caller, &asked) {
        return Ok(Some(Err(refusal)));
    }
    sched::leave(state, machine, cpu);
    state.envs.slots[caller].wait = wait;
    let slot = &mut state.regions.slots[index];
    slot.waiters += 1;
    slot.waiter = caller as u16;
    sleep::await_region(state, machine, caller, asked.deadline);
    Ok(None)
}

/// Compares, copies, writes.
fn attempt<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: usize,
    bytes: &[u8],
) -> Result<Answer, UserFault> {
    let head = Head::of(bytes);
    for at in 0..head.compares {
        let compare = word_at(bytes, COMPARE + WORD * at);
        let found = machine.word(physical(state, index, compare.offset));
        if found != compare.value {
            return Ok(Err(Refusal::new(Error::Changed, found)));
        }
    }
    if head.direction != COPY_NONE {
        copy(state, machine, index, &head, bytes)?;
    }
    for at in 0..head.writes {
        let write = word_at(bytes, WRITE_AT + WORD * at);
        let at = physical(state, index, write.offset);
        machine.word_set(at, write.value);
        sched::written(state, Frame::containing(at));
    }
    state.published.regions[index].operations += 1;
    if head.writes > 0 || head.direction == COPY_IN {
        wake(state, machine, index);
    }
    Ok(Ok(0))
}

/// The first word of a `RegionOperation`. Its words are read where they are needed, from the
/// kernel's copy.
struct Head {
    region: RegionId,
    compares: usize,
    writes: usize,
    direction: u8,
    role: u8,
}

const ADDRESS: usize = offset_of!(RegionOperation, address);
const OFFSET: usize = offset_of!(RegionOperation, offset);
const LEN: usize = offset_of!(RegionOperation, len);
const COMPARE: usize = offset_of!(RegionOperation, compare);
const WRITE_AT: usize = offset_of!(RegionOperation, write);
const WORD: usize = size_of::<WordAt>();
const OPERATION: usize = size_of::<RegionOperation>();

impl Head {
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        let first = u64_at(bytes, 0);
        let [_, _, _, _, compares, writes, direction, role] = first.to_le_bytes();
        Self {
            region: RegionId(first as u32),
            compares: usize::from(compares),
            writes: usize::from(writes),
            direction,
            role,
        }
    }
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> WordAt {
    WordAt { offset: u64_at(bytes, at), value: u64_at(bytes, at + 8) }
}

/// May the caller do this? The region's index.
fn check(state: &mut State, caller: usize, bytes: &[u8]) -> Result<usize, Refusal> {
    let head = Head::of(bytes);
    let index = find(state, head.region)?;
    let bad = Refusal::new(Error::BadArgument, 0);
    let Head { compares, writes, direction, .. } = head;
    if compares > REGION_WORDS || writes > REGION_WORDS || direction > COPY_IN {
        return Err(bad);
    }
    let role = check_role(u16::from(head.role))?;
    if !attached_again(state, env::domain(state, caller).index(), index, role) {
        return Err(Error::NotPermitted.into());
    }
    let changes = writes > 0 || direction == COPY_IN;
    if changes && !role_writes(role) {
        return Err(Error::NotPermitted.into());
    }
    for (first, count) in [(COMPARE, compares), (WRITE_AT, writes)] {
        for at in 0..count {
            check_word(state, index, u64_at(bytes, first + WORD * at))?;
        }
    }
    if direction != COPY_NONE {
        let [address, offset, len] = [ADDRESS, OFFSET, LEN].map(|at| u64_at(bytes, at));
        if len > REGION_COPY_BYTES as u64 {
            return Err(Refusal::new(Error::TooLarge, REGION_COPY_BYTES as u64));
        }
        if !is_user_range(address, len) || !within(state, index, offset, len) {
            return Err(Error::BadAddress.into());
        }
    }
    Ok(index)
}

fn check_word(state: &State, index: usize, offset: u64) -> Result<(), Error> {
    if offset.is_multiple_of(8) && within(state, index, offset, 8) {
        return Ok(());
    }
    Err(Error::BadAddress)
}

fn check_wait(state: &State, index: usize, bytes: &[u8]) -> Result<Wait, Refusal> {
    let WordAt { offset, value } = word_at(bytes, 0);
    check_word(state, index, offset)?;
    let peer = match u64_at(bytes, WORD) {
        NO_ROLE => u8::MAX,
        role if role < REGION_ROLES as u64 => role as u8,
        _ => return Err(Refusal::new(Error::BadArgument, 0)),
    };
    let region = RegionId(state.published.regions[index].id);
    Ok(Wait { region, peer, physical: physical(state, index, offset), value })
}

/// Copies between the region and program memory, a frame at a time.
fn copy<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: usize,
    head: &Head,
    bytes: &[u8],
) -> Result<(), UserFault> {
    let [address, offset, len] = [ADDRESS, OFFSET, LEN].map(|at| u64_at(bytes, at));
    let mut done = 0;
    while done < len {
        let at = offset + done;
        let piece = (len - done).min(PAGE_SIZE - at % PAGE_SIZE);
        let place = physical(state, index, at);
        let user = address + done;
        if head.direction == COPY_OUT {
            machine.copy_out(user, place, piece as usize)?;
        } else {
            machine.copy_in(place, user, piece as usize)?;
            sched::written(state, Frame::containing(place));
        }
        done += piece;
    }
    Ok(())
}
