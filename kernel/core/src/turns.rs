//! Whose turn is next, by account first: the places that each account has in a processor's round.
//!
//! ```text
//!   a processor     account 1        account 5             account 9
//!   round of those  ┌───┬───┐        ┌────────┐            ┌───┬────────┐
//!   that have any   │ 0 │ 7 │ ─────► │ common │ ─────────► │ 3 │ common │ ──► 1
//!                   └───┴───┘        └────────┘            └───┴────────┘
//!   each turn:      the next place of the account at which somebody wants the processor
//! ```
//! A place is a position of the vector, or the account's *common* one: the ring of those that have
//! no position, and do not share one of an environment of their own account; or its *work*, what it
//! has left to be worked off ([`crate::left`]). So an account's turn is one slice, whatever it has
//! made and destroyed.
//!
//! Who is woken by an event may borrow from the slice of another account; an account does so for
//! one slice in each round at most, and its next turn is as much shorter. What one takes beyond the
//! end of its slice ([`crate::overtime`]) its account pays as well, by whole turns that it
//! forfeits. So it does for its deadlines, and for looks at its sleepers in others' time, these up
//! to a bound ([`LOOKS_NS`]): then they wait for their turn, out of the list of those that are
//! looked at. Where only one account is in the round there is nobody to pay back.

use crate::count::Count;
use crate::index::{AccountIndex, CpuIndex, Each, EnvIndex};
use crate::list::{self, Kind};
use crate::overtime::EXCESS_MAX;
use crate::sched::{Cpu, SHORTEST_NS};
use crate::slice;
use crate::state::State;
use abi::id::AccountId;
use abi::limits::{SLICE_NS, SLICES};
use core::mem::replace;

/// The position of those that have none.
pub(crate) const COMMON: usize = SLICES;
/// Where what an account has left is worked off.
pub(crate) const WORK: usize = SLICES + 1;
/// Places of an account on one processor.
const PLACES: usize = SLICES + 2;
const _: () = assert!(PLACES <= u8::MAX as usize);
/// The most that an account owes, in nanoseconds: what one environment takes that ignores all ends.
const DEBT_MAX: u32 = (EXCESS_MAX + 2) * SLICE_NS as u32;
/// What an account pays between two of its turns for looks at its sleepers in others' time; then
/// they are looked at when their turn comes.
/// Few in tests, so that they wait there as well.
const LOOKS_NS: u64 = SLICE_NS / if cfg!(test) { 5_000 } else { 50 };
/// What is paid for looks is counted in these.
const LOOK_UNIT_NS: u32 = 64;
/// The bound in these.
const LOOKS: u16 = (LOOKS_NS / LOOK_UNIT_NS as u64) as u16;

/// What an account has in the round of one processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// Its positions that have a ring or an owner.
    occupied: u128,
    /// The first of those in the common ring, 0: none.
    common: u16,
    /// Is anybody there?
    has_common: bool,
    /// Is its work done here?
    has_work: bool,
    /// How many places it has.
    count: u8,
    /// The place that had the last turn.
    pub(crate) position: u8,
    /// What it has borrowed of others' turns, and taken beyond the ends of its own.
    pub(crate) debt_ns: u32,
    /// When it has left the round, owing that, in [`STAMP_NS`]; it may wrap.
    left_at: u32,
    /// What it has been charged for looks at its sleepers since its last turn, in [`LOOK_UNIT_NS`].
    looks: u16,
}

// An array of them is indexed by a shift in each turn.
const _: () = assert!(size_of::<Turns>() == 32);

/// Of an account that is not in the round, time is counted in these.
const STAMP_NS: u64 = 1 << 16;

impl Turns {
    /// It has the place from now on, or has it no more. Is that new?
    fn set(&mut self, position: usize, has: bool) -> bool {
        let before = match position {
            COMMON => replace(&mut self.has_common, has),
            WORK => replace(&mut self.has_work, has),
            _ => {
                let bit = 1 << position;
                let before = self.occupied & bit != 0;
                self.occupied = if has { self.occupied | bit } else { self.occupied & !bit };
                before
            }
        };
        match (before, has) {
            (false, true) => self.count += 1,
            (true, false) => self.count.less(1),
            _ => {}
        }
        before != has
    }

    /// The place after the last one, round and round.
    #[inline]
    fn next(&self) -> Option<usize> {
        // Behind the last one nothing is ahead.
        let start = usize::from(self.position) + 1;
        let ahead = if start >= COMMON { 0 } else { self.occupied >> start };
        if ahead != 0 {
            return Some(start + ahead.trailing_zeros() as usize);
        }
        if self.has_common && start <= COMMON {
            return Some(COMMON);
        }
        if self.has_work && start <= WORK {
            return Some(WORK);
        }
        match self.occupied {
            0 if self.has_common => Some(COMMON),
            0 => self.has_work.then_some(WORK),
            all => Some(all.trailing_zeros() as usize),
        }
    }
}

/// Turns of an account on each processor.
pub type OnEach = Each<Turns>;

/// Index of the account whose turns the environment at `index` takes.
#[inline]
pub(crate) fn account_of(state: &State, index: EnvIndex) -> AccountIndex {
    AccountId(state.published.envs[index].account).into()
}

/// The first environment of a place's ring, 0: none.
pub(crate) fn head(state: &State, cpu: CpuIndex, account: AccountIndex, position: usize) -> u16 {
    match position {
        COMMON => state.accounts.records[account].turns[cpu].common,
        _ => state.sched.cpus[cpu].rings[position],
    }
}

/// Another one is the first, or the ring is empty.
pub(crate) fn set_head(
    state: &mut State,
    cpu: CpuIndex,
    account: AccountIndex,
    position: usize,
    head: u16,
) {
    match position {
        COMMON => state.accounts.records[account].turns[cpu].common = head,
        _ => state.sched.cpus[cpu].rings[position] = head,
    }
}

/// The place has a ring or an owner from now on.
pub(crate) fn occupy(state: &mut State, cpu: CpuIndex, account: AccountIndex, position: usize) {
    if state.accounts.records[account].turns[cpu].set(position, true) {
        let this = &mut state.sched.cpus[cpu];
        this.places += 1;
        let is_new = !is_in(this, account);
        this.in_round += u16::from(is_new);
        this.accounts[account.at() / 64] |= 1 << (account.at() % 64);
        this.words = this.words.max((account.at() / 64) as u8 + 1);
        let turns = &state.accounts.records[account].turns[cpu];
        if turns.count == 1 && turns.debt_ns != 0 {
            come_back(state, cpu, account);
        }
    }
}

/// The account is in the round again, or has been out of it for some time, and owes something: of
/// that it has paid its share of the time since it left, whose turns it has left to those that are
/// in the round.
#[cold]
#[inline(never)]
fn come_back(state: &mut State, cpu: CpuIndex, account: AccountIndex) {
    let this = &state.sched.cpus[cpu];
    let others = this.in_round - u16::from(is_in(this, account));
    let turns = &mut state.accounts.records[account].turns[cpu];
    let away = ((this.since_ns / STAMP_NS) as u32).wrapping_sub(turns.left_at);
    // Meanwhile it may have had what it owes: it has left no more to others than the rest.
    let left = (u64::from(away) * STAMP_NS).saturating_sub(turns.debt_ns.into());
    let paid = left / u64::from(others.max(1));
    turns.debt_ns = u64::from(turns.debt_ns).saturating_sub(paid) as u32;
}

/// It has neither.
pub(crate) fn vacate(state: &mut State, cpu: CpuIndex, account: AccountIndex, position: usize) {
    let turns = &mut state.accounts.records[account].turns[cpu];
    let this = &mut state.sched.cpus[cpu];
    if turns.set(position, false) {
        this.places.less(1);
    }
    if turns.count == 0 {
        turns.left_at = (this.since_ns / STAMP_NS) as u32;
        let was_in = is_in(this, account);
        this.in_round.less(u16::from(was_in));
        this.accounts[account.at() / 64] &= !(1 << (account.at() % 64));
    }
}

/// The environment at `index` joins its place's ring, in which it is not.
pub(crate) fn enter(state: &mut State, index: EnvIndex) {
    let (cpu, account, position) = place_of(state, index);
    let mut head = head(state, cpu, account, position);
    list::push(&mut state.envs.slots, &mut head, Kind::Ring, index);
    set_head(state, cpu, account, position, head);
    occupy(state, cpu, account, position);
}

/// It leaves the ring, if it is there.
pub(crate) fn leave(state: &mut State, index: EnvIndex) {
    let (cpu, account, position) = place_of(state, index);
    if state.sched.cpus[cpu].ring_end == index.link() {
        // The walk that stopped in its ring goes as far as the member before it, or is past it.
        let before = state.envs.slots[index].links[Kind::Ring as usize].previous;
        let is_head = head(state, cpu, account, position) == index.link();
        let this = &mut state.sched.cpus[cpu];
        this.ring_end = if is_head { 0 } else { before };
        if is_head {
            this.left.less(1);
            state.accounts.records[account].turns[cpu].position = position as u8;
        }
    }
    let mut head = head(state, cpu, account, position);
    list::remove(&mut state.envs.slots, &mut head, Kind::Ring, index);
    set_head(state, cpu, account, position, head);
    if head == 0 && slice::extra_owner(state, cpu, position) == EnvIndex::NONE {
        vacate(state, cpu, account, position);
    }
}

fn place_of(state: &State, index: EnvIndex) -> (CpuIndex, AccountIndex, usize) {
    let env = &state.envs.slots[index];
    (env.cpu.into(), account_of(state, index), usize::from(env.position))
}

/// A place whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Whose it is.
    pub account: AccountIndex,
    /// A slice position, [`COMMON`] or [`WORK`].
    pub position: usize,
    /// The first environment of its ring, [`EnvIndex::NONE`]: it has none.
    pub head: EnvIndex,
}

/// Has the account a place in the round?
#[inline(always)]
pub(crate) fn is_in(this: &Cpu, account: AccountIndex) -> bool {
    this.accounts[account.at() / 64] >> (account.at() % 64) & 1 != 0
}

/// The next place to look for whom to run: of the account in turn, as long as it has some that have
/// not been looked at, else of the account after it.
#[inline(always)]
pub(crate) fn next(state: &mut State, cpu: CpuIndex) -> Option<Place> {
    let this = &mut state.sched.cpus[cpu];
    let goes_on = this.left != 0 && is_in(this, this.account.into());
    let account = if goes_on { AccountIndex::from(this.account) } else { account_after(this)? };
    let record = &mut state.accounts.records[account];
    let turns = &mut record.turns[cpu];
    let left = if goes_on { this.left } else { turns.count.into() };
    (this.account, this.left) = (account.link(), left.saturating_sub(1));
    // One that is destroyed has no time for anything else.
    let position = if record.dying && turns.has_work { WORK } else { turns.next()? };
    turns.position = position as u8;
    this.position = position as u8;
    let head = if position == COMMON {
        turns.common
    } else {
        this.rings.get(position).copied().unwrap_or_default()
    };
    Some(Place { account, position, head: head.into() })
}

/// The account behind the one in turn, round and round.
#[inline(always)]
fn account_after(this: &Cpu) -> Option<AccountIndex> {
    let (at, bit) = (usize::from(this.account) / 64, usize::from(this.account) % 64);
    let ahead = this.accounts[at] & (!0 << bit << 1);
    if ahead != 0 {
        return Some(AccountIndex::new(at * 64 + ahead.trailing_zeros() as usize));
    }
    if this.words > 1 {
        return account_in_words_after(this, at);
    }
    let all = this.accounts[0];
    (all != 0).then(|| AccountIndex::new(all.trailing_zeros() as usize))
}

/// The same in the words behind this one, and in this one at last.
#[inline(never)]
fn account_in_words_after(this: &Cpu, at: usize) -> Option<AccountIndex> {
    let words = usize::from(this.words);
    let mut all = (at + 1..words).chain(0..words).map(|at| (at, this.accounts[at]));
    let (at, found) = all.find(|&(_, word)| word != 0)?;
    Some(AccountIndex::new(at * 64 + found.trailing_zeros() as usize))
}

/// The place has been left in the middle: it is the next one to look at.
pub(crate) fn again(state: &mut State, cpu: CpuIndex, place: &Place) {
    let before = (place.position + PLACES - 1) % PLACES;
    state.accounts.records[place.account].turns[cpu].position = before as u8;
    state.sched.cpus[cpu].left += 1;
}

/// Nobody at the place wants the processor. If there is no other one of its account's, the account
/// has slept through its turn, which pays a slice of what it owes.
#[inline(always)]
pub(crate) fn passed(state: &mut State, cpu: CpuIndex, account: AccountIndex) {
    if state.sched.cpus[cpu].left == 0 {
        let turns = &mut state.accounts.records[account].turns[cpu];
        turns.debt_ns = turns.debt_ns.saturating_sub(SLICE_NS as u32);
        turns.looks = 0;
    }
}

/// The account's turn: what of a slice it has to leave to others, `rest` at most.
#[inline(always)]
pub(crate) fn begin(state: &mut State, cpu: CpuIndex, account: AccountIndex, rest: u32) -> u32 {
    state.sched.cpus[cpu].left = 0;
    let turns = &mut state.accounts.records[account].turns[cpu];
    turns.looks = 0;
    let paid = rest.min(turns.debt_ns);
    turns.debt_ns -= paid;
    paid
}

/// The account's work is done, or its slice is over. What it has not used of that is the account's
/// still: the next one of its places is looked at, and begins a slice that is as short as the rest,
/// as the account owes again what it has left to others of this one, and what it has used.
pub(crate) fn worked(state: &mut State, cpu: CpuIndex, account: AccountIndex, now: u64) {
    let this = &mut state.sched.cpus[cpu];
    let turns = &mut state.accounts.records[account].turns[cpu];
    let goes_on = now < this.slice_end_ns && this.account == account.link();
    if goes_on && turns.count != 0 {
        this.left = turns.count.into();
        let gone = SLICE_NS.saturating_sub(this.slice_end_ns - now);
        turns.debt_ns = turns.debt_ns.saturating_add(gone as u32);
    }
    overran(state, cpu, now);
}

/// What the account in turn has used beyond the end of its slice, in a call that was long, is paid
/// by its next turn.
pub(crate) fn overran(state: &mut State, cpu: CpuIndex, now: u64) {
    let this = &state.sched.cpus[cpu];
    let over = now.saturating_sub(this.slice_end_ns).min(SLICE_NS);
    let account = AccountIndex::from(this.account);
    if over != 0 && !alone(state, cpu, account) {
        let debt = &mut state.accounts.records[account].turns[cpu].debt_ns;
        *debt = debt.saturating_add(over as u32);
    }
}

/// May the account in turn have its slice lengthened by so much? Then it owes that.
pub(crate) fn lengthens(state: &mut State, cpu: CpuIndex, more: u32) -> bool {
    let account = AccountIndex::from(state.sched.cpus[cpu].account);
    let alone = alone(state, cpu, account);
    let debt = &mut state.accounts.records[account].turns[cpu].debt_ns;
    let has_time = u64::from(*debt) + SHORTEST_NS < SLICE_NS;
    if has_time && !alone {
        *debt += more;
    }
    alone || has_time
}

/// The environment at `index` has taken so much beyond the end of its slice, which its account pays
/// by as much of its turns.
pub(crate) fn charge(state: &mut State, cpu: CpuIndex, index: EnvIndex, over: u64) {
    let account = account_of(state, index);
    if over != 0 && !alone(state, cpu, account) {
        // Where it has left the round, it has left nothing to others until now.
        let now = state.sched.picked_ns.max(state.sched.cpus[cpu].since_ns);
        let turns = &mut state.accounts.records[account].turns[cpu];
        turns.debt_ns = DEBT_MAX.min(turns.debt_ns.saturating_add(over as u32));
        if turns.count == 0 {
            turns.left_at = (now.saturating_sub(over) / STAMP_NS) as u32;
        }
    }
}

/// Does the account owe a whole turn, and does another one wait for it?
#[inline(always)]
pub(crate) fn owes_a_turn(state: &State, cpu: CpuIndex, account: AccountIndex) -> bool {
    let debt = state.accounts.records[account].turns[cpu].debt_ns;
    u64::from(debt) >= SLICE_NS && has_others(&state.sched.cpus[cpu], account)
}

/// Does the processor run another account's environment than the sleeper at `index` is, which will
/// have its turn?
fn is_in_others_time(state: &State, cpu: CpuIndex, index: EnvIndex) -> bool {
    let runs = EnvIndex::from(state.sched.cpus[cpu].current);
    let account = account_of(state, index);
    runs != EnvIndex::NONE
        && account_of(state, runs) != account
        && has_others(&state.sched.cpus[cpu], account)
}

/// Has the account of the sleeper at `index` paid for as many looks in others' time as it does
/// between two of its turns, or does it owe a turn? Whoever runs may write what others watch as
/// often as it likes: that takes little of their turns.
pub(crate) fn pays_no_look(state: &mut State, cpu: CpuIndex, index: EnvIndex) -> bool {
    if !is_in_others_time(state, cpu, index) {
        return false;
    }
    let account = account_of(state, index);
    pay_by_time(state, cpu, account);
    let looks = state.accounts.records[account].turns[cpu].looks;
    looks >= LOOKS || owes_a_turn(state, cpu, account)
}

/// Does that account owe a turn?
pub(crate) fn puts_off(state: &mut State, cpu: CpuIndex, index: EnvIndex) -> bool {
    if !is_in_others_time(state, cpu, index) {
        return false;
    }
    let account = account_of(state, index);
    pay_by_time(state, cpu, account);
    owes_a_turn(state, cpu, account)
}

/// One without a turn here pays by time, and has as many looks again after some.
fn pay_by_time(state: &mut State, cpu: CpuIndex, account: AccountIndex) {
    let now = (state.sched.cpus[cpu].since_ns / STAMP_NS) as u32;
    let turns = &state.accounts.records[account].turns[cpu];
    if turns.count == 0 && u64::from(now.wrapping_sub(turns.left_at)) * STAMP_NS > 2 * SLICE_NS {
        come_back(state, cpu, account);
        let turns = &mut state.accounts.records[account].turns[cpu];
        (turns.looks, turns.left_at) = (0, now);
    }
}

/// Charges a look at the sleeper at `index`, which costs so many instructions: in the time of
/// another account its own one owes them, a nanosecond each, and the slice in turn is as much
/// longer, unless the account owes a whole turn.
pub(crate) fn charge_look(state: &mut State, cpu: CpuIndex, index: EnvIndex, cost: u32) {
    if !is_in_others_time(state, cpu, index) {
        return;
    }
    let account = account_of(state, index);
    let turns = &mut state.accounts.records[account].turns[cpu];
    let looks = u32::from(turns.looks) + cost.div_ceil(LOOK_UNIT_NS);
    turns.looks = looks.min(u16::MAX.into()) as u16;
    owe(state, cpu, account, cost);
}

/// The same of what is done for the environment at `index` because it has asked for it.
pub(crate) fn charge_service(state: &mut State, cpu: CpuIndex, index: EnvIndex, cost: u32) {
    if is_in_others_time(state, cpu, index) {
        owe(state, cpu, account_of(state, index), cost);
    }
}

/// The account owes what was done for it in another one's slice, which is as much longer.
fn owe(state: &mut State, cpu: CpuIndex, account: AccountIndex, cost: u32) {
    let owes = owes_a_turn(state, cpu, account);
    let turns = &mut state.accounts.records[account].turns[cpu];
    turns.debt_ns = DEBT_MAX.min(turns.debt_ns.saturating_add(cost));
    let this = &mut state.sched.cpus[cpu];
    if this.lender == 0 && !owes {
        this.slice_end_ns += u64::from(cost);
    }
}

/// The account leaves its turn to others, which pays as much.
#[cold]
pub(crate) fn forfeit(state: &mut State, cpu: CpuIndex, account: AccountIndex) {
    state.sched.cpus[cpu].left = 0;
    let debt = &mut state.accounts.records[account].turns[cpu].debt_ns;
    *debt = debt.saturating_sub(SLICE_NS as u32);
}

/// Is another account in the round? One that has no place there itself has always others.
#[inline(always)]
pub(crate) fn has_others(this: &Cpu, account: AccountIndex) -> bool {
    this.in_round != u16::from(is_in(this, account))
}

/// Is no other account than this one in the round? It may not be there itself: all that runs of it
/// may have no turn here.
#[inline(always)]
pub(crate) fn alone(state: &State, cpu: CpuIndex, account: AccountIndex) -> bool {
    !has_others(&state.sched.cpus[cpu], account)
}

/// Is the account's work done on this processor?
#[cfg(test)]
pub(crate) fn has_work(state: &State, cpu: CpuIndex, account: AccountIndex) -> bool {
    state.accounts.records[account].turns[cpu].has_work
}

/// What must hold of places: each ring has members of one account, whose place it is; what is in
/// the round has a ring or an owner, and what has one is in the round.
#[cfg(test)]
pub(crate) fn check(state: &State) {
    use crate::list::contains;
    use std::collections::BTreeSet;
    let cpus = CpuIndex::all().zip(state.sched.cpus.iter());
    for (cpu, this) in cpus.filter(|(_, this)| this.online) {
        let at_home = state.envs.used().filter(|&index| {
            contains(&state.envs.slots, Kind::Ring, EnvIndex::new(index))
                && CpuIndex::from(state.envs.slots[EnvIndex::new(index)].cpu) == cpu
        });
        let members = at_home.map(|index| {
            (
                account_of(state, EnvIndex::new(index)),
                usize::from(state.envs.slots[EnvIndex::new(index)].position),
            )
        });
        let owners = (0..SLICES).filter_map(|position| {
            let owner = slice::extra_owner(state, cpu, position);
            (owner != EnvIndex::new(0)).then(|| (account_of(state, owner), position))
        });
        let work = (0..state.accounts.records.len())
            .map(AccountIndex::new)
            .filter(|&at| has_work(state, cpu, at));
        let work = work.map(|account| (account, WORK));
        let places: BTreeSet<_> = members.chain(owners).chain(work).collect();
        let positions = places.iter().filter(|(_, position)| *position < SLICES);
        let alone: BTreeSet<_> = positions.clone().map(|&(_, position)| position).collect();
        assert_eq!(alone.len(), positions.count(), "a position is that of several accounts");
        let (mut round, mut in_round) = (BTreeSet::new(), 0);
        for account in (0..state.accounts.records.len()).map(AccountIndex::new) {
            let turns = &state.accounts.records[account].turns[cpu];
            assert_eq!(turns.has_common, turns.common != 0);
            let is_in = is_in(this, account);
            assert_eq!(is_in, turns.count != 0);
            let all = turns.occupied.count_ones() + u32::from(turns.has_common);
            assert_eq!(u32::from(turns.count), all + u32::from(turns.has_work));
            if is_in {
                in_round += 1;
                round.extend(turns.has_work.then_some((account, WORK)));
                let all = (0..SLICES).filter(|position| turns.occupied >> position & 1 != 0);
                round.extend(all.chain(turns.has_common.then_some(COMMON)).map(|at| (account, at)));
            }
        }
        assert_eq!(round, places, "the round of processor {cpu:?}");
        assert_eq!(usize::from(this.places), places.len());
        assert_eq!(this.in_round, in_round);
    }
}
