//! Whose turn is next: the round of slice positions, and what a sleeper's turn is.
//!
//! Accounts take turns, each at its next place ([`crate::turns`]); a place's ring gives one of its
//! members the slice. When nobody is ready, all sleepers with a predicate are looked at once.

use crate::count::Count;
use crate::env::{self, Pending};
use crate::index::{AccountIndex, CpuIndex, EnvIndex};
use crate::list::{self, Kind};
use crate::machine::Machine;
use crate::overtime::EXCESS_MAX;
use crate::sched::{Cpu, SHORTEST_NS, event, run};
use crate::state::State;
use crate::turns::{Place, WORK};
use crate::work::{self, cost};
use crate::{ages, busy, left, predicate, sched, sleep, slice, turns};
use abi::id::EnvId;
use abi::limits::{DONATIONS, PREDICATES_PER_EXIT, SLICE_NS, SLICES};
use abi::published::EnvState;
use abi::setup::FLAG_SLICE_START;
use abi::upcall::EVENT_SLICE_START;
use core::mem::replace;

/// Members of rings that one look for whose turn it is walks past, some 100 instructions each: with
/// the predicates it stays well within the bound of one hold. Few in tests, so that they, too, go
/// on where they stopped.
const MEMBERS_PER_EXIT: u32 = if cfg!(test) { 24 } else { 400 };

/// The next slice of the round that somebody uses.
pub fn choose<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, now: u64) {
    ages::slice_begins(state, machine, cpu, now);
    // Who is at home on an idle processor has no turn: whoever ran here may have stored for it.
    if state.sched.watch != 0 && state.sched.online > 1 && another_idles(state, cpu) {
        let count = state.sched.watchers.min(PREDICATES_PER_EXIT as u16);
        look(state, machine, count);
    }
    let this = &mut state.sched.cpus[cpu];
    if !this.more {
        (this.passed, this.passed_over) = (0, 0);
    }
    let is_new = this.passed | this.looks_from | this.ring_end == 0;
    let has_looks = is_new || looks_anew(this);
    let mut walk = Walk::begin(has_looks, work::turn(state));
    // A walk that begins anew, as one more is ready, goes on in the ring where it stopped, too: who
    // makes others ready without end keeps it in a long ring else.
    if !is_new && resume(state, machine, (cpu, now), &mut walk) {
        return;
    }
    // Whoever owes slices is passed over once for each; each round pays one.
    // In the first round its account forfeits the turn, where another one may want it.
    for _ in 0..EXCESS_MAX + 2 {
        if walked_all(state, cpu) {
            break;
        }
        for _ in 0..state.sched.cpus[cpu].places {
            let Some(place) = turns::next(state, cpu) else { break };
            if place.position == WORK {
                return start_work(state, cpu, place.account, now);
            }
            let found = turn(state, machine, cpu, &place, &mut walk);
            if is_over(state, machine, (cpu, now), (&place, found), &mut walk) {
                return;
            }
        }
        if !walk.owing {
            break;
        }
        (walk.owing, walk.forfeits) = (false, false);
    }
    look_round(state, machine, cpu, now);
}

/// After the turn of a place, where these are found: is it known how the processor goes on?
#[inline(always)]
fn is_over<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, now): (CpuIndex, u64),
    (place, found): (&Place, Option<(EnvIndex, EnvIndex)>),
    walk: &mut Walk,
) -> bool {
    if let Some((owner, index)) = found {
        if !walk.forfeits || !turns::owes_a_turn(state, cpu, place.account) {
            start_slice(state, machine, (cpu, place.account), (owner, index), now);
            return true;
        }
        walk.owes = true;
    }
    if walk.owes {
        (walk.owes, walk.owing, walk.paid) = (false, true, true);
        turns::forfeit(state, cpu, place.account);
        return false;
    }
    if walk.members == 0 && go_on_later(state, cpu, place, walk) {
        state.sched.cpus[cpu].since_ns = now;
        return true;
    }
    turns::passed(state, cpu, place.account);
    false
}

/// An earlier piece of the walk has stopped in a ring: this one begins there, and goes as far as
/// that ring's `end`. A ring longer than a piece would be walked past again and again else.
#[cold]
#[inline(never)]
fn resume<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, now): (CpuIndex, u64),
    walk: &mut Walk,
) -> bool {
    let end = EnvIndex::from(replace(&mut state.sched.cpus[cpu].ring_end, 0));
    if end == EnvIndex::NONE || walked_all(state, cpu) {
        return false;
    }
    let Some(place) = turns::next(state, cpu) else { return false };
    let at = (cpu, place.account, place.position);
    if !is_member(state, at, end) {
        turns::again(state, cpu, &place);
        return false;
    }
    walk.account = place.account.link();
    let found = members(state, machine, at, (place.head, end), walk);
    is_over(state, machine, (cpu, now), (&place, found), walk)
}

/// Is a processor idle that is not this one?
fn another_idles(state: &State, cpu: CpuIndex) -> bool {
    let mut all = CpuIndex::all().zip(state.sched.cpus.iter());
    all.any(|(other, record)| other != cpu && record.online && record.current == 0)
}

/// What one look for whose turn it is may still do, and what it has met. Small: each begins with
/// most of it zero.
struct Walk {
    /// What predicates may cost, of the reckoning of one hold.
    room: u32,
    /// Predicates to evaluate.
    predicates: u16,
    /// Members of rings to walk past, and owners of further positions.
    members: u16,
    /// Members walked past.
    walked: u16,
    /// The last member of the ring in which the walk has stopped, 0: none.
    end: u16,
    /// The account whose place it is at.
    account: u16,
    /// The account before the first place that there were no looks left for, 0: none.
    ran_out: u16,
    /// Has it had looks?
    had_looks: bool,
    /// Does the account of one that owes a slice forfeit its turn, unless it is alone?
    forfeits: bool,
    /// Has somebody been passed over in this round who owes slices?
    owing: bool,
    /// Has one been passed over in this turn?
    owes: bool,
    /// Or in an earlier one?
    paid: bool,
}

impl Walk {
    /// The first piece of a walk looks at sleepers; those after it only look for who is ready. If
    /// the last walk had no looks for some account, this one's begin there ([`reach`]).
    fn begin(has_looks: bool, room: u32) -> Self {
        Self {
            room,
            predicates: if has_looks { PREDICATES_PER_EXIT as u16 } else { 0 },
            members: MEMBERS_PER_EXIT.min(room / cost::MEMBER) as u16,
            walked: 0,
            end: 0,
            account: 0,
            ran_out: 0,
            had_looks: has_looks,
            forfeits: true,
            owing: false,
            owes: false,
            paid: false,
        }
    }

    /// May one more predicate be evaluated, of this cost?
    #[inline(always)]
    fn looks(&mut self, state: &mut State, index: EnvIndex) -> bool {
        let env = &state.envs.slots[index];
        let looks = self.predicates > 0 && (env.atoms > 0 || env.is_apart());
        if looks {
            let cost = predicate::cost(state, index);
            work::spend(state, cost);
            self.room = self.room.saturating_sub(cost);
            self.predicates = if self.room == 0 { 0 } else { self.predicates - 1 };
        }
        looks
    }
}

/// Has everybody been walked past since anything happened here?
fn walked_all(state: &State, cpu: CpuIndex) -> bool {
    usize::from(state.sched.cpus[cpu].passed) >= state.envs.used().end
}

/// Enough for one hold of the lock: the next one goes on where this one stopped. Not if that was
/// everybody: there are no more members than environments.
#[cold]
#[inline(never)]
fn go_on_later(state: &mut State, cpu: CpuIndex, place: &Place, walk: &Walk) -> bool {
    let this = &mut state.sched.cpus[cpu];
    note_looked_in(this, walk);
    // Whoever has paid may run when its turn comes again, so everybody is walked past once more:
    // from 1, as sleepers have been looked at.
    this.passed = if walk.paid { 1 } else { this.passed.saturating_add(walk.walked.max(1)) };
    if walked_all(state, cpu) {
        return false;
    }
    if walk.end == 0 {
        // It stopped behind the last one of the place.
        turns::passed(state, cpu, place.account);
    } else {
        turns::again(state, cpu, place);
    }
    let this = &mut state.sched.cpus[cpu];
    (this.more, this.ring_end) = (true, walk.end);
    true
}

/// Looks at the next sleepers with a predicate, whatever their home, so many at most; at how many.
fn look<M: Machine>(state: &mut State, machine: &mut M, count: u16) -> u16 {
    let mut left = work::turn(state);
    for looked in 0..count {
        let sched = &mut state.sched;
        let index = EnvIndex::from(if sched.look != 0 { sched.look } else { sched.watch });
        if index == EnvIndex::NONE || left == 0 {
            return looked;
        }
        sched.look = list::next(&state.envs.slots, Kind::Watch, index).link();
        let cost = predicate::cost(state, index);
        work::spend(state, cost);
        left = left.saturating_sub(cost);
        sleep::try_predicate(state, machine, index, true);
    }
    count
}

/// Nobody is ready: looks at all sleepers with a predicate once, so many at a time, as the last one
/// that ran may have stored to what they watch.
fn look_round<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, now: u64) {
    let this = &mut state.sched.cpus[cpu];
    this.since_ns = now;
    // Those that leave the list meanwhile may have been looked at, or not.
    let left = if this.to_look != 0 { this.to_look } else { state.sched.watchers };
    let count = look(state, machine, left.min(PREDICATES_PER_EXIT as u16));
    let this = &mut state.sched.cpus[cpu];
    // If no sleeper is left, all have been looked at.
    let sleepers = state.sched.watch != 0 && left > count;
    this.to_look = if sleepers { left - count } else { 0 };
    if !sleepers {
        // One that is ready is found by a walk of its own.
        this.passed = 0;
    }
    this.more = sleepers || this.front != 0;
}

/// Who runs when the turn comes to a place: whose slice it is, and whom that one's time serves.
#[inline(always)]
fn turn<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    place: &Place,
    walk: &mut Walk,
) -> Option<(EnvIndex, EnvIndex)> {
    let &Place { account, position, head: first } = place;
    if walk.predicates == 0 {
        reach(&mut state.sched.cpus[cpu], account, walk);
    }
    walk.account = account.link();
    if first == EnvIndex::NONE {
        walk.members = walk.members.saturating_sub(1);
        work::spend(state, cost::MEMBER);
        let owner = slice::extra_owner(state, cpu, position);
        return candidate(state, machine, (cpu, owner), walk).map(|index| (owner, index));
    }
    let last = EnvIndex::from(state.envs.slots[first].links[Kind::Ring as usize].previous);
    members(state, machine, (cpu, account, position), (first, last), walk)
}

/// The same of a ring, from the first of these members to the last one.
#[inline(always)]
fn members<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, account, position): (CpuIndex, AccountIndex, usize),
    (first, last): (EnvIndex, EnvIndex),
    walk: &mut Walk,
) -> Option<(EnvIndex, EnvIndex)> {
    let (mut found, mut index_was_last) = (None, false);
    let (mut index, mut walked) = (first, 0);
    loop {
        if walk.members == 0 {
            walk.end = last.link();
            break;
        }
        walk.members -= 1;
        walked += 1;
        let next = list::next(&state.envs.slots, Kind::Ring, index);
        if next != index {
            turns::set_head(state, cpu, account, position, next.link());
        }
        let looks = walk.predicates > 0;
        // Of a thousand sleepers all but a few are walked past without a look.
        if looks || state.envs.slots[index].state != EnvState::Sleeping {
            found = candidate(state, machine, (cpu, index), walk).map(|runs| (index, runs));
        }
        if found.is_none() && state.envs.slots[index].state == EnvState::Sleeping {
            let stays = sleep_through(state, index, looks);
            if stays && !looks {
                pass_over(state, cpu, index, walk);
            }
        }
        index_was_last = index == last;
        if found.is_some() || index_was_last || walk.owes {
            break;
        }
        index = next;
    }
    walk.walked += walked;
    work::spend(state, u32::from(walked) * cost::MEMBER);
    let has_passed_over = state.sched.cpus[cpu].passed_over != 0;
    if has_passed_over && (index_was_last || found.is_some()) {
        back_to_passed_over(state, cpu, account, position);
    }
    found
}

/// Do looks begin with the first account, as that for which there were none has left the round?
#[cold]
fn looks_anew(this: &mut Cpu) -> bool {
    if this.looks_from != 0 && !turns::is_in(this, this.looks_from.into()) {
        this.looks_from = 0;
    }
    this.passed | this.looks_from == 0
}

/// The walk has come to a place of this account's, without looks: here they may begin.
#[cold]
fn reach(this: &mut Cpu, account: AccountIndex, walk: &mut Walk) {
    if walk.had_looks && walk.ran_out == 0 {
        walk.ran_out = walk.account;
    }
    if this.looks_from == account.link() {
        this.looks_from = 0;
        (walk.predicates, walk.had_looks) = (PREDICATES_PER_EXIT as u16, true);
        walk.ran_out = 0;
    }
}

/// There is no look left for the sleeper at `index`. It is the first of its ring to have one next
/// time, and its account the first of all, if another one has had them.
#[cold]
fn pass_over(state: &mut State, cpu: CpuIndex, index: EnvIndex, walk: &Walk) {
    let this = &mut state.sched.cpus[cpu];
    if this.passed_over == 0 {
        this.passed_over = index.link();
    }
    note_looked_in(this, walk);
    let others = this.looks_from == 0 && this.looked_in != walk.account;
    if others && state.envs.slots[index].atoms > 0 {
        this.looks_from = walk.account;
    }
}

/// Notes the last account whose sleepers have had looks.
fn note_looked_in(this: &mut Cpu, walk: &Walk) {
    if walk.had_looks {
        this.looked_in = if walk.ran_out != 0 { walk.ran_out } else { walk.account };
    }
}

/// The turn at a position is over: the first that it has passed over is the first to be looked at
/// when the turn comes again, if it is still there.
#[cold]
fn back_to_passed_over(state: &mut State, cpu: CpuIndex, account: AccountIndex, position: usize) {
    let first = EnvIndex::from(replace(&mut state.sched.cpus[cpu].passed_over, 0));
    if is_member(state, (cpu, account, position), first) {
        turns::set_head(state, cpu, account, position, first.link());
    }
}

/// Is the environment in the ring of this place?
fn is_member(
    state: &State,
    (cpu, account, position): (CpuIndex, AccountIndex, usize),
    index: EnvIndex,
) -> bool {
    let env = &state.envs.slots[index];
    (CpuIndex::from(env.cpu), usize::from(env.position)) == (cpu, position)
        && turns::account_of(state, index) == account
        && list::contains(&state.envs.slots, Kind::Ring, index)
}

/// The turn of a sleeper has come: a slice that it does not use pays what it owes, and without a
/// predicate it has nothing more to do in the ring. Does it stay there? One that has not been
/// `looked` at is when its turn comes again, unless it waits for a region.
#[inline(always)]
fn sleep_through(state: &mut State, index: EnvIndex, looked: bool) -> bool {
    state.envs.slots[index].debt_ns = 0;
    // Most sleepers: those in the list have not been taken out of it, and stay.
    if list::contains(&state.envs.slots, Kind::Watch, index) {
        return true;
    }
    if state.envs.slots[index].is_apart() {
        let has_looks = looked || state.envs.slots[index].pending != Pending::Region;
        sleep::watch_again(state, index, has_looks);
    }
    let stays = sched::keeps_its_turn(state, index);
    if !stays {
        sched::dequeue(state, index);
    }
    stays
}

/// Whom the time of the environment at `index` serves: itself, or whom it waits for.
#[inline(always)]
fn candidate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, index): (CpuIndex, EnvIndex),
    walk: &mut Walk,
) -> Option<EnvIndex> {
    let at = match state.envs.slots[index].state {
        EnvState::Ready => index,
        EnvState::Sleeping => woken(state, machine, index, walk)?,
        EnvState::Donating => awaited(state, machine, (cpu, index), walk)?,
        _ => return None,
    };
    if state.published.envs[index].excess > 0 {
        state.published.envs[index].excess.less(1);
        (walk.owing, walk.paid) = (true, true);
        let cpu = CpuIndex::from(state.envs.slots[index].cpu);
        walk.owes = walk.forfeits && !turns::alone(state, cpu, turns::account_of(state, index));
        return None;
    }
    Some(at)
}

/// The sleeper at `index`, if what it waits for is so and it is ready now.
#[inline(always)]
fn woken<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    walk: &mut Walk,
) -> Option<EnvIndex> {
    let wakes = walk.looks(state, index) && sleep::try_predicate(state, machine, index, false);
    (wakes && state.envs.slots[index].state == EnvState::Ready).then_some(index)
}

/// Whom the environment at `index` waits for, which has made a transfer, or whom that one waits
/// for, and so on, if the last one is ready. One that waits until a server accepts runs itself if
/// the server does; also if the server runs on another processor, to ask again and again: it would
/// have to have its turn just when the server accepts else.
#[inline(never)]
fn awaited<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, index): (CpuIndex, EnvIndex),
    walk: &mut Walk,
) -> Option<EnvIndex> {
    let (mut at, mut waits) = (index, EnvIndex::NONE);
    // If this is the one that runs, its slice is that of the first that waits until one accepts.
    state.sched.cpus[cpu].awaits = [0; 2];
    for _ in 0..=DONATIONS {
        match state.envs.slots[at].state {
            EnvState::Ready => return Some(at),
            EnvState::Running if waits != EnvIndex::NONE => {
                busy::calls_again(state, waits);
                let noted = &mut state.sched.cpus[cpu].awaits[0];
                if *noted == waits.link() {
                    *noted = 0;
                }
                return Some(waits);
            }
            EnvState::Sleeping => return woken(state, machine, at, walk),
            EnvState::Donating => {
                walk.members = walk.members.saturating_sub(1);
                work::spend(state, cost::MEMBER);
                let next = env::lookup(state, EnvId(state.published.envs[at].donated_to)).ok()?;
                if state.envs.slots[at].pending == Pending::Busy {
                    if busy::try_again(state, machine, at, next) {
                        return Some(at);
                    }
                    let noted = &mut state.sched.cpus[cpu].awaits[0];
                    if *noted == 0 {
                        *noted = at.link();
                    }
                    waits = at;
                }
                at = next;
            }
            _ => return None,
        }
    }
    None
}

/// Begins a slice in which what an account has left is worked off ([`crate::work`]).
fn start_work(state: &mut State, cpu: CpuIndex, account: AccountIndex, now: u64) {
    let paid = turns::begin(state, cpu, account, (SLICE_NS - SHORTEST_NS) as u32);
    let this = &mut state.sched.cpus[cpu];
    this.slice_end_ns = now + SLICE_NS - u64::from(paid);
    (this.working, this.lender) = (account.link(), 0);
    (this.since_ns, this.more, this.to_look) = (now, false, 0);
}

/// Does the processor go on with such a slice?
#[inline(always)]
pub fn works_on(state: &mut State, cpu: CpuIndex, now: u64) -> bool {
    state.sched.cpus[cpu].working != 0 && goes_on_working(state, cpu, now)
}

#[cold]
fn goes_on_working(state: &mut State, cpu: CpuIndex, now: u64) -> bool {
    let this = &mut state.sched.cpus[cpu];
    let account = AccountIndex::from(this.working);
    if now < this.slice_end_ns && left::waits(state, account) {
        return true;
    }
    state.sched.cpus[cpu].working = 0;
    turns::worked(state, cpu, account, now);
    false
}

/// Begins the slice of `owner`, whose turns are the account's, and which `index` uses.
#[inline(always)]
fn start_slice<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (cpu, account): (CpuIndex, AccountIndex),
    (owner, index): (EnvIndex, EnvIndex),
    now: u64,
) {
    let env = &mut state.envs.slots[owner];
    let most = (SLICE_NS - SHORTEST_NS) as u32;
    let paid = env.debt_ns.min(most);
    env.debt_ns.less(paid);
    let left_to_others = turns::begin(state, cpu, account, most - paid);
    let this = &mut state.sched.cpus[cpu];
    this.slice_end_ns = now.wrapping_add(SLICE_NS - u64::from(paid + left_to_others));
    this.extended = false;
    this.lender = 0;
    if owner == index {
        this.awaits = [0; 2];
    }
    let position = usize::from(this.position);
    state.published.cpus[cpu].position = position as u32;
    if position < SLICES {
        state.published.slices[cpu.at() * SLICES + position].used += 1;
    }
    run(state, cpu, index, now);
    if state.envs.slots[index].has(FLAG_SLICE_START) {
        event(state, machine, index, EVENT_SLICE_START);
    }
}
