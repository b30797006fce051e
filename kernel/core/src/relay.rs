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
use crate::fifo;
use crate::handover::{called_away, leaves, runs, told};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, EnvIndex, RegionIndex, bounded_by};
use crate::list::Kind;
use crate::loan;
use crate::machine::Machine;
use crate::operate::{self, Piece, Wait};
use crate::region::Region;
use crate::sched::SHORTEST_NS;
use crate::state::State;
use abi::call::number;
use abi::id::{AccountId, DomainId, RegionId};
use abi::layout::{PAGE_SIZE, is_user_range};
use abi::published::{CpuRecord, EnvRecord, EnvState};
use abi::region::{STEP_BESIDE, STEP_FLAGS_SHIFT, STEP_IN, Step};
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME};

/// What is left for the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The caller goes on, its call answered with 0 (which is not in its context yet), unless a bit
    /// waits for it: then the way out looks at that.
    Answered,
    /// The same, but somebody waits or watches: [`tell`] him.
    Moved(Moved),
    /// There is nothing yet: the caller may [`wait_for`] the region at this index.
    Nothing(RegionIndex),
    /// The caller goes on as above, but there is something to look at on the way out, after
    /// [`finish`].
    Disturbed(Rest),
    /// Another one runs, since when; the contexts of both are as they leave the kernel, and the
    /// deadline may be another one.
    Switched {
        /// Who runs.
        target: EnvIndex,
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
    region: RegionIndex,
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
    Told(RegionIndex),
}

/// Does the rest of a step, the long way.
#[cold]
pub fn finish<M: Machine>(state: &mut State, machine: &mut M, rest: Rest) {
    match rest {
        Rest::Nothing => {}
        Rest::Told(region) => operate::changed(state, machine, region),
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
    (cpu, caller): (CpuIndex, EnvIndex),
    [which, address, piece, words, from, last]: [u64; 6],
) -> Option<Done> {
    let waits = NUMBER == number::RegionStepOrWait;
    let State { published, sched, regions, settled, .. } = &mut *state;
    let index = RegionIndex::new(bounded_by(machine, RegionId(which).index(), regions.slots.len()));
    let (this, record) = (sched.cpus.get(cpu)?, published.envs.get_mut(caller.at())?);
    let (region, region_record) =
        (regions.slots.get_mut(index)?, published.regions.get_mut(index.at())?);
    let domain = DomainIndex::from(DomainId(record.domain));
    if !*settled || this.front != 0 {
        return None;
    }
    let place = usize::from(waits);
    let (moves, beside) = region.allows(region_record, domain, place, [which, words])?;
    let (len, offset) = (u64::from(piece as u32), piece >> 32);
    let in_one = offset % PAGE_SIZE + len <= PAGE_SIZE;
    // The place of a step in a fifo is in its data.
    let fifo = region.fifo;
    let lies_well = if fifo != 0 {
        fifo::lies(fifo, offset, from)
    } else {
        offset + len <= region_record.bytes.into()
    };
    if !in_one || !lies_well || machine.word(moves) != from {
        return None;
    }
    let end = from.wrapping_add(len);
    if waits || words >> STEP_FLAGS_SHIFT & u64::from(STEP_BESIDE) != 0 {
        let found = machine.word(beside);
        if found != if waits { end } else { last } {
            // Nothing there, rather than something else than was asked for?
            let nothing = waits && found == from && is_user_range(address, len);
            return nothing.then_some(Done::Nothing(index));
        }
    }
    let bytes = bytes(region, offset)?;
    let puts = words >> STEP_FLAGS_SHIFT & u64::from(STEP_IN) != 0;
    // One that waits is to end where the other word is.
    let looks = fifo != 0 && !waits;
    let copied = if puts {
        if looks && !fifo::has_room(fifo, end, machine.word(moves ^ 8)) {
            return None;
        }
        machine.copy_in(bytes, address, len as usize)
    } else {
        if looks && !fifo::is_there(fifo, end, machine.word(moves ^ 8)) {
            return None;
        }
        machine.copy_out(address, bytes, len as usize)
    };
    // A fault, or no program's memory: the long way finds out.
    copied.ok()?;
    machine.word_set(moves, end);
    region_record.operations = region_record.operations.wrapping_add(1);
    // As dispatch counts. Counters may wrap: nothing is decided by them.
    published.calls[cpu][usize::from(NUMBER)].made();
    let calls = &mut published.cpus[cpu].calls;
    *calls = calls.wrapping_add(1);
    record.entries = record.entries.wrapping_add(1);
    Some(match region.waiters != 0 || region.watched {
        true => Done::Moved(Moved { region: index, word: moves, end }),
        false => Done::Answered,
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
    who: (CpuIndex, EnvIndex),
    moved: Moved,
) -> Done {
    match hand_on(state, machine, who, &moved) {
        Some((target, now, deadline)) => Done::Switched { target, now, deadline },
        None => Done::Disturbed(Rest::Told(moved.region)),
    }
}

/// Neither asked for anything nor woken already, and in its ring.
#[inline(always)]
fn in_order(env: &Env) -> bool {
    matches!(env.request, Request::Nothing)
        && env.links[Kind::Front as usize].next == 0
        && env.links[Kind::Ring as usize].next != 0
}

/// The step of the only one that waits, if it is for this word and has been looked at: it is done,
/// and the sleeper starts at once on time that the caller lends it, if nothing else would happen
/// where nothing waits to be looked at. As `step::finish`, `sleep::finished`, and then `pick`; but
/// as the sleeper's space is loaded next anyway, its page is found there by the processor. Who
/// runs, since when, and the deadline.
#[inline(always)]
fn hand_on<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    moved: &Moved,
) -> Option<(EnvIndex, u64, u64)> {
    let State { published, domains, envs, sched, regions, accounts, .. } = state;
    let region = regions.slots.get_mut(moved.region)?;
    let sleeper = EnvIndex::from(region.waiter);
    let pair = [caller, sleeper];
    let [own, env] = envs.slots.two_mut(pair)?;
    let this = sched.cpus.get_mut(cpu)?;
    // No other region has this word: if that is what it waits for, it waits for this one. In the
    // list of sleepers it is if it is to be looked at.
    let waits = region.waiters == 1
        && !region.watched
        && env.pending == Pending::Region
        && env.state == EnvState::Sleeping
        && env.wait.physical == moved.word
        && env.links[Kind::Watch as usize].next == 0;
    let lends = waits
        && this.lender == 0
        && own.ending == 0
        && own.has(FLAG_BORROW)
        && matches!(own.request, Request::Nothing)
        && CpuIndex::from(own.cpu) == cpu;
    let starts = lends
        && CpuIndex::from(env.cpu) == cpu
        && !env.has(FLAG_GIVEN_TIME)
        && env.deadline | env.edge == 0
        && in_order(env)
        && !called_away(machine, env);
    if !starts {
        return None;
    }
    let now = machine.now_ns();
    let [own_record, record] = published.envs.get_disjoint_mut(pair.map(EnvIndex::at)).ok()?;
    let account = AccountIndex::from(AccountId(record.account));
    let left = loan::left_to_borrow(env.debt_ns, &accounts.records[account].turns, cpu);
    if left < SHORTEST_NS || now >= this.slice_end_ns || now >= sched.alarms.soonest() {
        return None;
    }
    let Piece { address, offset, moves, len } = env.wait.piece;
    let (len, moves) = (u64::from(len), region.first | u64::from(moves) << 3);
    let looked_at = len != 0 && env.wait.value.wrapping_add(len) == moved.end;
    if !looked_at || machine.word(moves) != env.wait.value {
        return None;
    }
    let root = domains.records.get(DomainId(record.domain).into())?.root;
    let from = bytes(region, offset.into())?;
    let region_record = published.regions.get_mut(moved.region.at())?;
    machine.copy_over(root, address, from, len as usize).ok()?;
    machine.word_set(moves, moved.end);
    region_record.operations = region_record.operations.wrapping_add(1);
    (region.waiters, env.pending) = (0, Pending::Nothing);
    env.set_apart(false);
    // It was ready in between.
    record.sequence = record.sequence.wrapping_add(1);
    runs(env, record, cpu);
    leaves(this, own, own_record, EnvState::Ready, now);
    let borrow_end = now.wrapping_add(left);
    (this.current, this.lender, this.borrower) = (sleeper.link(), caller.link(), account.link());
    (this.borrow_end_ns, this.more, this.to_look) = (borrow_end, false, 0);
    gets(&mut published.cpus[cpu], record);
    let (context, own) = machine.two_contexts(sleeper.at(), caller.at());
    context.answered();
    context.answer(0, 0);
    own.answer(0, 0);
    Some((sleeper, now, borrow_end.min(sched.alarms.soonest())))
}

/// Is the environment, which is in a ring, the first to wait for the region, with nothing else that
/// ends its wait? A bit that does not end the wait may wait as well: the long way knows.
#[inline(always)]
fn may_wait<M: Machine>(machine: &M, region: &Region, own: &Env) -> bool {
    region.waiters == 0
        && matches!(own.request, Request::Nothing)
        && own.deadline | own.edge | u64::from(own.client) == 0
        && own.alarm != 0
        && own.save.0 != 0
        && own.links[Kind::Ring as usize].next != 0
        && !told(machine, own)
}

/// The caller waits for the region at `index`, and who lent it the time goes on, if that is all
/// that would happen where nothing waits to be looked at.
///
/// Its step has been looked at in the same hold of the lock ([`call`]).
#[inline(always)]
pub fn wait_for<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, caller): (CpuIndex, EnvIndex),
    index: RegionIndex,
) -> Option<Done> {
    let State { published, envs, sched, regions, accounts, .. } = state;
    let this = sched.cpus.get_mut(cpu)?;
    let target = EnvIndex::from(this.lender);
    // Somebody who runs is not 0, so this is no environment either if nobody has lent.
    let pair = [caller, target];
    let [own, env] = envs.slots.two_mut(pair)?;
    let region = regions.slots.get_mut(index)?;
    if !may_wait(machine, region, own) {
        return None;
    }
    let goes_on = target != EnvIndex::NONE
        && env.state == EnvState::Ready
        && in_order(env)
        && !called_away(machine, env);
    if !goes_on {
        return None;
    }
    let now = machine.now_ns();
    // What it has run is given back to the slice.
    let in_time = this.since_ns < this.slice_end_ns && now < sched.alarms.soonest();
    if !in_time {
        return None;
    }
    let context = machine.context(caller.at());
    let step = Step::from_words([context.rdi, context.rdx, context.r10]);
    let attached = published.regions.get(index.at())?.attached.get(usize::from(step.peer));
    if attached.is_some_and(|&count| count == 0) {
        return None;
    }
    let [own_record, record] = published.envs.get_disjoint_mut(pair.map(EnvIndex::at)).ok()?;
    let account = AccountIndex::from(AccountId(own_record.account));
    // Its account is in the round, as it is in a ring itself.
    if this.borrower != account.link() {
        return None;
    }
    (own.posted, own.events) = (context.r9, step.events.into());
    own.wait = Wait {
        region: RegionId(step.region),
        physical: region.first | u64::from(step.beside) << 3,
        value: context.r8,
        piece: Piece::of(&step, context.rsi),
    };
    (own.pending, own.peer) = (Pending::Region, step.peer);
    (region.waiters, region.waiter) = (1, caller.link());
    context.again();
    let cpu_record = &mut published.cpus[cpu];
    let count = |counter: &mut u64| *counter = counter.wrapping_add(1);
    count(&mut cpu_record.calls);
    count(&mut own_record.entries);
    published.calls[cpu][usize::from(number::RegionStepOrWait)].made();
    let ran = now.saturating_sub(this.since_ns);
    loan::charge_borrower(accounts, (&mut *this, cpu), (&mut *own, account), ran);
    leaves(this, own, own_record, EnvState::Sleeping, now);
    let deadline = this.slice_end_ns.min(sched.alarms.soonest());
    (this.current, this.lender) = (target.link(), 0);
    (this.more, this.to_look) = (false, 0);
    runs(env, record, cpu);
    gets(cpu_record, record);
    Some(Done::Switched { target, now, deadline })
}

/// Publishes who has got the processor.
#[inline(always)]
fn gets(cpu: &mut CpuRecord, env: &EnvRecord) {
    cpu.current = env.id;
    cpu.switches = cpu.switches.wrapping_add(1);
}
