//! A step along a ring: a word of a region moves on by as many bytes as are copied.
//!
//! What a ring's producer and consumer do all the time, with every argument in a register. It says
//! nothing that an operation (`operate`) could not say, and its faults, waits and wake-ups are
//! those of operations. Only the one who wakes the single sleeper does its step for it, if nothing
//! stands in the way.

use crate::answer::{Answer, Refusal};
use crate::context::Context;
use crate::index::{CpuIndex, DomainIndex, EnvIndex, RegionIndex};
use crate::machine::{Machine, UserFault};
use crate::operate::{Piece, Wait, changed, copy, wait_for, word};
use crate::region::{Region, attached_again, check_role, find, physical, within};
use crate::sleep::Sleep;
use crate::state::State;
use crate::{domain, env, fifo, frame, table};
use abi::call::number;
use abi::error::Error;
use abi::id::{Frame, RegionId};
use abi::layout::{PAGE_SIZE, is_user_range, table_index};
use abi::limits::{REGION_COPY_BYTES, REGION_ROLES};
use abi::memory::{ACCESSED, DIRTY, LARGE, PRESENT, USER, WRITABLE};
use abi::published::{EnvState, RegionRecord};
use abi::region::{NO_PEER, STEP_BESIDE, STEP_IN, Step, role_writes};

/// What of a step along a ring is the same each time, and that it was allowed: nothing of it can
/// become wrong but that the domain is attached.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// Two of the call's words ([`Step::to_words`]).
    which: u64,
    words: u64,
    /// Physical addresses of the word that moves and of the one beside it.
    moves: u64,
    beside: u64,
    /// Whose step it was; who drops an attachment to the region makes it forgotten.
    domain: u16,
}

impl Region {
    /// May a domain that is known to be attached make a step that begins with these words? Then the
    /// physical addresses of the one that moves and of the one beside it. Whether the step's bytes
    /// lie in the region is not looked at. `place`: where such a one is remembered.
    #[inline(always)]
    pub(crate) fn allows(
        &mut self,
        record: &RegionRecord,
        domain: DomainIndex,
        place: usize,
        [which, words]: [u64; 2],
    ) -> Option<(u64, u64)> {
        let last = &self.allowed[place];
        let again =
            last.which == which && last.words == words && DomainIndex::from(last.domain) == domain;
        if again || self.look_at(record, domain, place, [which, words]) {
            let last = &self.allowed[place];
            return Some((last.moves, last.beside));
        }
        None
    }

    #[cold]
    fn look_at(
        &mut self,
        record: &RegionRecord,
        domain: DomainIndex,
        place: usize,
        [which, words]: [u64; 2],
    ) -> bool {
        let step = Step::from_words([which, 0, words]);
        let allows = step.region != 0
            && step.region == record.id
            && role_writes(step.role)
            && DomainIndex::from(self.known[usize::from(step.role)]) == domain
            && step.flags & !(STEP_IN | STEP_BESIDE) == 0
            && (usize::from(step.peer) < REGION_ROLES || step.peer == NO_PEER)
            && step.moves.max(step.beside) < self.words
            && (self.fifo == 0 || fifo::allows(&step, place != 0));
        if allows {
            let word = |number: u16| self.first | u64::from(number) << 3;
            let (moves, beside) = (word(step.moves), word(step.beside));
            self.allowed[place] = Allowed { which, words, moves, beside, domain: domain.link() };
        }
        allows
    }
}

/// The arguments of both calls.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// `which`, `piece`, `words`: a [`Step`].
    pub words: [u64; 3],
    /// Where in program memory.
    pub address: u64,
    /// The value of the word that moves.
    pub from: u64,
}

/// A checked step: what it names lies in the region and in the caller's half.
struct Plan {
    step: Step,
    /// The region.
    index: RegionIndex,
    address: u64,
    from: u64,
    /// Physical addresses of the word that moves and the one beside it.
    moves: u64,
    beside: u64,
    /// The data of a fifo, else 0.
    fifo: fifo::Capacity,
}

impl Plan {
    /// The other counter of a fifo that has not as much room, or not as many bytes.
    #[inline(always)]
    fn lacks<M: Machine>(&self, machine: &M) -> Option<u64> {
        if self.fifo == 0 {
            return None;
        }
        let end = self.from.wrapping_add(self.step.len.into());
        let other = machine.word(self.moves ^ 8);
        let is_well = if self.step.flags & STEP_IN != 0 {
            fifo::has_room(self.fifo, end, other)
        } else {
            fifo::is_there(self.fifo, end, other)
        };
        (!is_well).then_some(other)
    }
}

/// `RegionStep`; the error side holds a fault of the caller's, after which the call runs again.
#[inline(always)]
pub fn step<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    asked: &Asked,
    beside: u64,
) -> Result<Answer, UserFault> {
    let plan = match check(state, caller, asked, 0) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let expected = (plan.step.flags & STEP_BESIDE != 0).then_some(beside);
    Ok(match attempt(state, machine, &plan, expected)? {
        None => Ok(0),
        Some(found) => Err(Refusal::new(Error::Changed, found)),
    })
}

/// `RegionStepOrWait`: the answer, `None` if the caller sleeps and has left.
#[inline(always)]
pub fn step_or_wait<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    asked: &Asked,
    posted: u64,
) -> Result<Option<Answer>, UserFault> {
    let plan = match check(state, caller, asked, 1).and_then(check_peer) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Some(Err(refusal))),
    };
    let end = plan.from.wrapping_add(plan.step.len.into());
    let Some(found) = attempt(state, machine, &plan, Some(end))? else { return Ok(Some(Ok(0))) };
    let Plan { step: Step { region, peer, events, .. }, index, from, beside, .. } = plan;
    let piece = Piece::of(&plan.step, plan.address);
    let wait = Wait { region: RegionId(region), physical: beside, value: from, piece };
    let until = Sleep { deadline: 0, posted, events: events.into(), flags: 0 };
    Ok(wait_for(state, machine, (cpu, caller), (index, wait, peer), &until, found))
}

/// May the caller do this? What of it is the same each time is looked at where it is another than
/// the last one, whose `place` in the region says whether it sleeps.
#[inline(always)]
fn check(
    state: &mut State,
    caller: EnvIndex,
    asked: &Asked,
    place: usize,
) -> Result<Plan, Refusal> {
    let step = Step::from_words(asked.words);
    let index = find(state, RegionId(step.region))?;
    let domain = DomainIndex::from(env::domain(state, caller));
    let (slot, record) = (&mut state.regions.slots[index], &state.published.regions[index]);
    let known = slot.allows(record, domain, place, [asked.words[0], asked.words[2]]);
    let fifo = slot.fifo;
    if known.is_none() {
        check_words(state, domain, index, &step)?;
    }
    let (len, offset) = (u64::from(step.len), u64::from(step.offset));
    if len > REGION_COPY_BYTES as u64 {
        return Err(Refusal::new(Error::TooLarge, REGION_COPY_BYTES as u64));
    }
    let (moves, beside) = match known {
        Some(words) => words,
        None => {
            let (moves, beside) = (8 * u64::from(step.moves), 8 * u64::from(step.beside));
            if !within(state, index, 0, moves.max(beside) + 8) {
                return Err(Error::BadAddress.into());
            }
            (word(state, index, moves), word(state, index, beside))
        }
    };
    let (address, from) = (asked.address, asked.from);
    // What does not fit before the end of a fifo goes on at its beginning.
    let (lies_well, error) = if fifo != 0 {
        (fifo::lies(fifo, offset, from), Error::NotPermitted)
    } else {
        (within(state, index, offset, len), Error::BadAddress)
    };
    if !lies_well {
        return Err(error.into());
    }
    if !is_user_range(address, len) {
        return Err(Error::BadAddress.into());
    }
    Ok(Plan { step, index, address, from, moves, beside, fifo })
}

/// What of a step is the same each time, but for its words' places.
fn check_words(
    state: &mut State,
    domain: DomainIndex,
    index: RegionIndex,
    step: &Step,
) -> Result<(), Refusal> {
    if step.flags & !(STEP_IN | STEP_BESIDE) != 0 {
        return Err(Refusal::new(Error::BadArgument, 0));
    }
    let role = check_role(u16::from(step.role))?;
    let attached = attached_again(state, domain, index, role);
    let fifo = state.regions.slots[index].fifo;
    if !attached || !role_writes(role) || fifo != 0 && !fifo::allows(step, false) {
        return Err(Error::NotPermitted.into());
    }
    Ok(())
}

#[inline(always)]
fn check_peer(plan: Plan) -> Result<Plan, Refusal> {
    let peer = usize::from(plan.step.peer);
    let known = peer < REGION_ROLES || peer == usize::from(NO_PEER);
    if !known {
        return Err(Refusal::new(Error::BadArgument, 0));
    }
    let allowed = plan.fifo == 0 || fifo::allows(&plan.step, true);
    if allowed { Ok(plan) } else { Err(Error::NotPermitted.into()) }
}

/// Compares, copies, moves the word; the word found if it is not the one expected.
#[inline(always)]
fn attempt<M: Machine>(
    state: &mut State,
    machine: &mut M,
    plan: &Plan,
    beside: Option<u64>,
) -> Result<Option<u64>, UserFault> {
    let found = machine.word(plan.moves);
    if found != plan.from {
        return Ok(Some(found));
    }
    if let Some(expected) = beside {
        let found = machine.word(plan.beside);
        if found != expected {
            return Ok(Some(found));
        }
    }
    if let Some(found) = plan.lacks(machine) {
        return Ok(Some(found));
    }
    let (len, offset) = (u64::from(plan.step.len), u64::from(plan.step.offset));
    let piece = (plan.index, offset, plan.address, len);
    let puts = plan.step.flags & STEP_IN != 0;
    if plan.fifo != 0 && offset + len > PAGE_SIZE + u64::from(plan.fifo) {
        copy_around(state, machine, piece, puts, plan.fifo)?;
    } else {
        copy(state, machine, piece, puts)?;
    }
    machine.word_set(plan.moves, plan.from.wrapping_add(len));
    let operations = &mut state.published.regions[plan.index].operations;
    *operations = operations.wrapping_add(1);
    changed(state, machine, plan.index);
    Ok(None)
}

/// As [`copy`], to the end of a fifo's data and on from their beginning.
#[cold]
fn copy_around<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (index, offset, user, len): (RegionIndex, u64, u64, u64),
    puts: bool,
    fifo: fifo::Capacity,
) -> Result<(), UserFault> {
    let first = PAGE_SIZE + u64::from(fifo) - offset;
    copy(state, machine, (index, offset, user, first), puts)?;
    copy(state, machine, (index, PAGE_SIZE, user + first, len - first), puts)
}

/// Does the step that a sleeper waits for, so that its call need not begin anew when it runs; did
/// it? Only if its own stores would reach their page as it is: present, writable, written to
/// before. Everything else, a refusal too, is what the call finds when it begins anew.
pub(crate) fn finish<M: Machine>(state: &mut State, machine: &mut M, sleeper: EnvIndex) -> bool {
    let Context { rax, rdi, rsi, rdx, r10, r8, .. } = *machine.context(sleeper.at());
    let asked = Asked { words: [rdi, rdx, r10], address: rsi, from: r8 };
    let asleep = state.envs.slots[sleeper].state == EnvState::Sleeping;
    if rax as u16 != number::RegionStepOrWait || !asleep {
        return false;
    }
    let Ok(plan) = check(state, sleeper, &asked, 1) else { return false };
    let (len, offset) = (u64::from(plan.step.len), u64::from(plan.step.offset));
    let end = plan.from.wrapping_add(len);
    let in_one = |at: u64| len <= PAGE_SIZE - at % PAGE_SIZE;
    // Nothing may lie at the region's end, where no frame is.
    if len == 0
        || plan.step.flags & STEP_IN != 0
        || !in_one(offset)
        || !in_one(plan.address)
        || machine.word(plan.moves) != plan.from
        || machine.word(plan.beside) != end
        || plan.lacks(machine).is_some()
    {
        return false;
    }
    let own = DomainIndex::from(env::domain(state, sleeper));
    let Some(page) = written_page(state, machine, own, plan.address) else { return false };
    let from = physical(state, plan.index, offset);
    machine.copy(page + plan.address % PAGE_SIZE, from, len as usize);
    machine.word_set(plan.moves, end);
    let operations = &mut state.published.regions[plan.index].operations;
    *operations = operations.wrapping_add(1);
    true
}

/// The physical address of a page of a domain's, if its next store there changes nothing in its
/// tables.
#[inline(always)]
pub(crate) fn written_page<M: Machine>(
    state: &State,
    machine: &M,
    domain: DomainIndex,
    at: u64,
) -> Option<u64> {
    const NEEDED: u64 = PRESENT | USER | WRITABLE | ACCESSED | DIRTY;
    // As `table::place` goes, level by level.
    let below = |table: Frame, level: u8| {
        let entry = machine.entry(table, table_index(at, level));
        (entry & (PRESENT | WRITABLE) == PRESENT | WRITABLE).then_some(entry)
    };
    let root = domain::root(state, domain);
    let middle = table::target(below(table::target(below(root, 4)?), 3)?);
    let above = below(middle, 2)?;
    let (entry, frame) = if above & LARGE == 0 {
        let entry = machine.entry(table::target(above), table_index(at, 1));
        (entry, table::target(entry))
    } else {
        (above, Frame(table::target(above).0 + table_index(at, 1) as u32))
    };
    let stays = entry & NEEDED == NEEDED && !frame::is_leaving(state, frame);
    stays.then_some(frame.address())
}
