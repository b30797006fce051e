//! The running order: who runs on a processor's way out of the kernel (aegis95 S28..S30).
//!
//! ```text
//!  a processor's vector     ┌───┬───┬───┬───┬─ ─ ─┬─────┐   each position: a ring of those whose
//!  of slice positions       │ 0 │ 1 │ 2 │ 3 │     │ 127 │   home it is, or one owner more
//!                           └─┬─┴───┴───┴───┴─ ─ ─┴─────┘
//!                             ▼ round and round; a slice nobody uses costs nothing
//!                  ring: A → B → C, a turn each
//! ```
//! In a ring are those that may want the processor: ready, running, donating ones (their slices run
//! whom they wait for), and sleepers with a predicate, which is evaluated when their turn comes.
//! An environment woken by an event goes to the front queue of its processor: if the one that runs
//! lets others borrow (`FLAG_BORROW`) it starts at once, on time of its own next slice. What it
//! owes is taken from that slice, or paid by it as a whole if it sleeps when its turn comes: in
//! each round an environment may run for a slice, at whatever times it is woken.

use crate::env::{self, Pending};
use crate::frame::WATCHED;
use crate::index::{CpuIndex, Each, EnvIndex};
use crate::list::{self, Heap, Kind};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{busy, gate, loan, overtime, predicate, request, round, sleep, turns, upcall, visit};
use abi::id::Frame;
use abi::limits::{ACCOUNTS, CPUS, SLICE_NS, SLICES};
use abi::published::EnvState;
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME, FLAG_SLICE_END};
use abi::upcall::offset;

/// How long a masked environment keeps the processor after the end of its slice (decisions 18).
pub const CRITICAL_NS: u64 = 100_000;
/// A slice shorter than this is not worth a switch: it is skipped to pay a debt.
pub(crate) const SHORTEST_NS: u64 = 100_000;
/// Where there are several processors, one that runs somebody looks at deadlines no sooner than so
/// long after the last look.
pub(crate) const ALARMS_NS: u64 = 50_000;

/// One processor.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// Who runs, 0: nobody.
    pub current: u16,
    /// The one that others have asked for something while it ran here ([`request`]),
    /// 0: none.
    pub asked: u16,
    /// The account whose work is done in this slice, while nobody runs; 0: none.
    pub working: u16,
    /// Whose slice `current` has borrowed, 0: its own.
    pub lender: u16,
    /// The account that owes the time that is borrowed, whomever it serves.
    pub borrower: u16,
    /// Whose time the slice is, and whose the loan: environments that wait until a server accepts
    /// ([`crate::busy`]), 0: none that waits.
    pub awaits: [u16; 2],
    /// Position in turn.
    pub position: u8,
    /// Has the processor arrived? Then its slices may be given out.
    pub online: bool,
    /// The end of the slice has been put off once.
    pub extended: bool,
    /// Sleepers are left to look at before the processor may be called idle.
    pub more: bool,
    /// Sleepers left to look at, of those that there were when nobody was found ready; 0: as many
    /// as there are.
    pub to_look: u16,
    /// Members of rings walked past in earlier pieces of a walk that goes on (`more`).
    pub passed: u16,
    /// The last member of the ring in which that walk goes on, 0: it goes on with a ring's first.
    pub ring_end: u16,
    /// The first sleeper of the position in turn that the walk had no look left for, 0: none.
    pub passed_over: u16,
    /// The first account whose sleepers a walk had no looks left for, as another one had them: the
    /// next walk's are for those from this one on. 0: none.
    pub looks_from: u16,
    /// The last account whose sleepers had looks.
    pub looked_in: u16,
    /// When the slice in turn ends, nanoseconds since boot.
    pub slice_end_ns: u64,
    /// When the borrower must stop.
    pub borrow_end_ns: u64,
    /// When `current` got the processor.
    pub since_ns: u64,
    /// Accounts that have a place in the round, a bit each.
    pub accounts: [u64; ACCOUNTS / 64],
    /// How many they are.
    pub in_round: u16,
    /// Words of that which have ever had a bit.
    pub words: u8,
    /// Places of them all.
    pub places: u16,
    /// The account in turn.
    pub account: u16,
    /// Its places that have not been looked at in this turn.
    pub left: u16,
    /// Head of the queue of those woken by events.
    pub front: u16,
    /// First environment of each position's ring, 0: none.
    pub rings: [u16; SLICES],
}

impl Cpu {
    const OFFLINE: Self = Self {
        current: 0,
        asked: 0,
        working: 0,
        lender: 0,
        borrower: 0,
        awaits: [0; 2],
        position: 0,
        online: false,
        extended: false,
        more: false,
        to_look: 0,
        passed: 0,
        ring_end: 0,
        passed_over: 0,
        looks_from: 0,
        looked_in: 0,
        slice_end_ns: 0,
        borrow_end_ns: 0,
        since_ns: 0,
        accounts: [0; ACCOUNTS / 64],
        in_round: 0,
        words: 0,
        places: 0,
        account: 0,
        left: 0,
        front: 0,
        rings: [0; SLICES],
    };

    /// When whoever runs must stop.
    #[inline]
    pub fn end_ns(&self) -> u64 {
        if self.lender != 0 { self.borrow_end_ns } else { self.slice_end_ns }
    }
}

/// The private half of the table.
pub struct Scheduler {
    /// By processor.
    pub cpus: Each<Cpu>,
    /// By processor: the environment that a server has last refused there.
    pub(crate) asking: Each<busy::Asking>,
    /// Deadlines of sleeps and timers.
    pub alarms: Heap,
    /// Head of the list of sleepers with a predicate, and of those that do not wait alone for a
    /// region.
    pub watch: u16,
    /// Its member that an idle processor looks at next, 0: the first. What is written meanwhile,
    /// which few are looked at for, moves the head.
    pub look: u16,
    /// How many there are.
    pub watchers: u16,
    /// Classes of words the kernel wrote since sleepers were last looked at.
    pub dirty: u64,
    /// Classes that some sleeper watches (at least those).
    pub watched: u64,
    /// Written classes that sleepers are being looked at for, and how many sleepers are left.
    settling: (u64, u16),
    /// Somebody may be in the queue of those woken by events, of some processor.
    pub(crate) woken: bool,
    /// Whose gates may be open.
    pub(crate) open: gate::Open,
    /// Idle processors, a bit each, in whose rings somebody has become ready.
    kicks: u8,
    /// Processors that are online.
    pub(crate) online: u8,
    /// What the clock said when [`pick`] looked last.
    pub picked_ns: u64,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            cpus: Each::new([Cpu::OFFLINE; CPUS]),
            asking: Each::new([busy::Asking::NONE; CPUS]),
            alarms: Heap::default(),
            watch: 0,
            look: 0,
            watchers: 0,
            dirty: 0,
            watched: 0,
            settling: (0, 0),
            kicks: 0,
            online: 0,
            picked_ns: 0,
            woken: false,
            open: gate::Open::default(),
        }
    }
}

impl Scheduler {
    /// Is nobody in the queue of those woken by events, on any processor?
    #[inline(always)]
    pub(crate) fn nobody_is_woken(&mut self) -> bool {
        !self.woken || self.look_for_woken()
    }

    #[cold]
    fn look_for_woken(&mut self) -> bool {
        self.woken = self.cpus.iter().any(|cpu| cpu.front != 0);
        !self.woken
    }

    /// Is there no word that somebody may watch, and no processor to be told?
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.dirty == 0 && self.settling.1 == 0 && self.kicks == 0
    }
}

/// Says which environment `cpu` runs on its way out of the kernel: the current one if nothing
/// speaks against it. The answer of a call is written to the context before; the events of whom it
/// picks are delivered to the context here. `None`: idle, until an interrupt or [`next_deadline`].
pub fn pick<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) -> Option<EnvIndex> {
    let now = machine.now_ns();
    state.sched.picked_ns = now;
    request::serve(state, machine, cpu);
    if state.sched.alarms.soonest() <= now {
        sleep::expire(state, machine, cpu, now);
    }
    if state.sched.dirty != 0 || state.sched.settling.1 != 0 {
        settle(state, machine, cpu);
    }
    let this = &state.sched.cpus[cpu];
    if this.current != 0 && this.end_ns() <= now {
        end_of_slice(state, machine, cpu, now);
    }
    if state.sched.cpus[cpu].current == 0 {
        loan::give_back(state, cpu, now);
    }
    if state.sched.cpus[cpu].current == 0 && !round::works_on(state, cpu, now) {
        round::choose(state, machine, cpu, now);
    }
    if state.sched.cpus[cpu].front != 0 {
        loan::borrow(state, cpu, now);
    }
    let kicks = core::mem::take(&mut state.sched.kicks) & !(1 << cpu.at());
    if kicks != 0 {
        for other in CpuIndex::all().filter(|other| kicks >> other.at() & 1 != 0) {
            machine.interrupt(other);
        }
    }
    let current = EnvIndex::from(state.sched.cpus[cpu].current);
    state.published.cpus[cpu].current = state.published.envs[current].id;
    if current == EnvIndex::NONE {
        return None;
    }
    if upcall::event_waits(state, machine, current) {
        upcall::deliver_events(state, machine, current);
    }
    Some(current)
}

/// Would [`pick`] let `index` go on on `cpu`, as nothing has happened that it would look at? Time
/// is not asked: the timer's interrupt comes by itself.
#[inline(always)]
pub fn undisturbed(state: &State, cpu: CpuIndex, index: EnvIndex) -> bool {
    let this = &state.sched.cpus[cpu];
    EnvIndex::from(this.current) == index
        && this.front == 0
        && state.sched.dirty == 0
        && matches!(state.envs.slots[index].request, env::Request::Nothing)
}

/// A timer or processor interrupt arrived on `cpu`: deadlines pass. The rest happens in [`pick`].
pub fn tick<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) {
    let now = machine.now_ns();
    sleep::expire(state, machine, cpu, now);
}

/// Nanoseconds since boot at which `cpu` wants its next timer interrupt; in the past: at once.
#[inline]
pub fn next_deadline(state: &State, cpu: CpuIndex) -> Option<u64> {
    let this = &state.sched.cpus[cpu];
    let own = if this.current != 0 { this.end_ns() } else { next_look(state, cpu) };
    let alarm = state.sched.alarms.soonest();
    if alarm < own {
        return Some(own.min(at_a_pace(state, this, alarm)));
    }
    (own != u64::MAX).then_some(own)
}

/// When a processor looks at deadlines of which the soonest is this one. Each is interrupted by all
/// of them: one that runs somebody, by those of programs elsewhere, which may set them anew without
/// end, no more often than this.
#[cold]
#[inline(never)]
fn at_a_pace(state: &State, this: &Cpu, alarm: u64) -> u64 {
    if this.current != 0 && state.sched.online > 1 {
        return alarm.max(state.sched.picked_ns + ALARMS_NS);
    }
    alarm
}

/// When `cpu`, which is idle, looks at sleepers again; `u64::MAX`: not by itself.
fn next_look(state: &State, cpu: CpuIndex) -> u64 {
    let this = &state.sched.cpus[cpu];
    // A slice of an account's work ends, and then somebody may be ready.
    if this.more || this.working != 0 {
        return 0;
    }
    // Programs on other processors may store to words that sleepers here watch.
    let others = state.sched.cpus.iter().any(|other| other.current != 0);
    if others && state.sched.watch != 0 { this.since_ns + SLICE_NS } else { u64::MAX }
}

/// The kernel wrote a word of this frame: sleepers that watch it are looked at in `pick`. A frame
/// of which no predicate has named a word is left alone: others' words are of its class.
#[inline]
pub fn written(state: &mut State, frame: Frame) {
    if state.frames.record(frame).marks & WATCHED != 0 {
        touched(state, predicate::frame_bit(frame));
    }
}

/// The kernel wrote words of these classes. What nobody watches now is nobody's business: whoever
/// begins to watch looks first.
pub fn touched(state: &mut State, classes: u64) {
    state.sched.dirty |= classes & state.sched.watched;
}

/// Sets event bits (`upcall::EVENT_…`) of the environment at `index`; wakes or interrupts it.
pub fn event<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, bits: u64) {
    sleep::event(state, machine, index, bits);
}

/// Does it run on the time of others only?
#[inline]
pub(crate) fn has_no_turn(state: &State, index: EnvIndex) -> bool {
    state.envs.slots[index].has(FLAG_GIVEN_TIME)
}

/// The flags of an environment have been set: it leaves its ring, or comes back, if it must.
pub fn turns_changed(state: &mut State, index: EnvIndex) {
    gate::close(state, index);
    if has_no_turn(state, index) {
        dequeue(state, index);
        busy::end_without_a_turn(state, index);
        let env = &mut state.envs.slots[index];
        env.debt_ns = 0;
        if core::mem::take(&mut env.ending) != 0 {
            overtime::pay_by_account(state, index);
        }
        return;
    }
    if matches!(state.envs.slots[index].state, EnvState::Ready | EnvState::Running) {
        enqueue(state, index);
        kick(state, index);
    }
}

/// Puts an environment into its ring, if it is not there and takes turns.
#[inline]
pub fn enqueue(state: &mut State, index: EnvIndex) {
    if !list::contains(&state.envs.slots, Kind::Ring, index) && !has_no_turn(state, index) {
        turns::enter(state, index);
    }
}

/// Does a sleeper stay in its ring? As a watcher, to be looked at when its turn comes; waiting for
/// a region, as it is mostly back before; in debt, to pay by the turn that it does not use.
pub fn keeps_its_turn(state: &State, index: EnvIndex) -> bool {
    let env = &state.envs.slots[index];
    let waits = env.pending == Pending::Region;
    waits || env.debt_ns > 0 || list::contains(&state.envs.slots, Kind::Watch, index)
}

/// Takes an environment out of its ring and the front queue.
pub fn dequeue(state: &mut State, index: EnvIndex) {
    let cpu = CpuIndex::from(state.envs.slots[index].cpu);
    list::remove(&mut state.envs.slots, &mut state.sched.cpus[cpu].front, Kind::Front, index);
    turns::leave(state, index);
    if state.envs.slots[index].is_apart() {
        sleep::watch_again(state, index, false);
    }
}

/// Makes an environment ready that was neither ready nor running; `front`: an event did it.
pub fn make_ready<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, front: bool) {
    env::set_state(state, index, EnvState::Ready);
    enqueue(state, index);
    let home = CpuIndex::from(state.envs.slots[index].cpu);
    let has_turns = !has_no_turn(state, index);
    if !has_turns && state.envs.slots[index].donors != 0 {
        // It runs in the turns of its clients, wherever they are at home.
        kick_all(state);
    }
    let front = front && has_turns;
    if front && !list::contains(&state.envs.slots, Kind::Front, index) {
        list::push(&mut state.envs.slots, &mut state.sched.cpus[home].front, Kind::Front, index);
        state.sched.woken = true;
    }
    if state.sched.cpus[home].current == 0 {
        // It may be among those that a walk has passed.
        state.sched.cpus[home].passed = 0;
        machine.interrupt(home);
    } else if front && loan::may_start(state, home, index) && machine.interrupt(home) {
        // Whether or not it borrows then: it may have got the time of another processor.
        turns::charge_service(state, home, index, cost::INTERRUPT);
    }
}

/// An environment that has left its processor goes on wanting one: its home's, wherever it ran.
#[inline]
pub fn stay_ready(state: &mut State, index: EnvIndex) {
    env::come_or_go(state, index, EnvState::Ready);
    kick(state, index);
}

/// The home of an environment that has become ready there must not stay idle: `pick` sees to it.
#[inline]
pub fn kick(state: &mut State, index: EnvIndex) {
    let env = &state.envs.slots[index];
    let (home, is_waited_for) = (CpuIndex::from(env.cpu), env.is_waited_for());
    if state.sched.cpus[home].current == 0 {
        state.sched.cpus[home].passed = 0;
        state.sched.kicks |= 1 << home.at();
    }
    if is_waited_for {
        busy::leaves(state, index);
    }
}

/// No processor must stay idle at which an environment is at home that may wait for a server, or
/// for its reply: `pick` sees to it.
#[cold]
pub(crate) fn kick_all(state: &mut State) {
    for cpu in CpuIndex::all() {
        let this = &mut state.sched.cpus[cpu];
        if this.online && this.current == 0 {
            this.passed = 0;
            state.sched.kicks |= 1 << cpu.at();
        }
    }
}

/// Takes the environment that runs on `cpu` off it; its new state is the caller's to set.
pub fn leave<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) {
    leave_at(state, cpu, machine.now_ns());
}

/// The same at a time that is known.
#[inline(always)]
pub fn leave_at(state: &mut State, cpu: CpuIndex, now: u64) {
    let this = &mut state.sched.cpus[cpu];
    let index = EnvIndex::from(core::mem::take(&mut this.current));
    let ran = now.saturating_sub(core::mem::replace(&mut this.since_ns, now));
    let run_ns = &mut state.published.envs[index].run_ns;
    *run_ns = run_ns.wrapping_add(ran);
    if core::mem::take(&mut state.envs.slots[index].ending) != 0 {
        overtime::let_go(state, cpu, index, now);
    }
    if state.sched.cpus[cpu].lender != 0 {
        loan::charge(state, cpu, index, ran);
    }
}

/// Gives the processor to a ready (or accepting) environment.
#[inline(always)]
pub fn run(state: &mut State, cpu: CpuIndex, index: EnvIndex, now: u64) {
    if list::contains(&state.envs.slots, Kind::Front, index) {
        let home = CpuIndex::from(state.envs.slots[index].cpu);
        list::remove(&mut state.envs.slots, &mut state.sched.cpus[home].front, Kind::Front, index);
    }
    enqueue(state, index);
    env::come_or_go(state, index, EnvState::Running);
    let record = &mut state.published.envs[index];
    record.cpu = cpu.at() as u32;
    record.switches = record.switches.wrapping_add(1);
    let on_cpu = &mut state.published.cpus[cpu].switches;
    *on_cpu = on_cpu.wrapping_add(1);
    let this = &mut state.sched.cpus[cpu];
    this.current = index.link();
    this.since_ns = now;
    this.more = false;
    this.to_look = 0;
}

/// A rest too short to run in is lengthened, on time of the target's own next slice.
///
/// The account in turn owes that as well, and no more than a slice: a crowd that yields to each
/// other at the end of its turn would have it go on for as many slices else.
pub(crate) fn lengthen(state: &mut State, cpu: CpuIndex, target: EnvIndex, now: u64) {
    let least = now + SHORTEST_NS;
    let end = state.sched.cpus[cpu].slice_end_ns;
    if end >= least || has_no_turn(state, target) {
        return;
    }
    let left = SLICE_NS.saturating_sub(state.envs.slots[target].debt_ns.into());
    let more = (least - end.max(now)) as u32;
    if left > SHORTEST_NS && turns::lengthens(state, cpu, more) {
        state.envs.slots[target].debt_ns += more;
        state.sched.cpus[cpu].slice_end_ns = least;
    }
}

pub(crate) fn lends(state: &State, index: EnvIndex) -> bool {
    let env = &state.envs.slots[index];
    env.has(FLAG_BORROW) && env.ending == 0
}

/// Is it ready, or a sleeper whose predicate has come true (then it is ready now)?
pub(crate) fn can_run<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) -> bool {
    match state.envs.slots[index].state {
        EnvState::Ready => true,
        EnvState::Sleeping => sleep::try_predicate(state, machine, index, false),
        _ => false,
    }
}

/// Looks at sleepers that watch what the kernel has written, so many at a time.
#[inline(never)]
fn settle<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex) {
    let written = core::mem::take(&mut state.sched.dirty) & state.sched.watched;
    let (mut classes, mut left) = state.sched.settling;
    if written != 0 {
        (classes, left) = (classes | written, state.sched.watchers);
    }
    let whole = left == state.sched.watchers;
    let mut watched = 0;
    let mut room = work::turn(state);
    while left > 0 && room > 0 {
        let index = EnvIndex::from(state.sched.watch);
        if index == EnvIndex::NONE {
            break;
        }
        left -= 1;
        state.sched.watch = list::next(&state.envs.slots, Kind::Watch, index).link();
        let own = sleep::watched(state, index);
        let mut looks = own & classes != 0;
        let mut cost = cost::SLEEPER + if looks { predicate::cost(state, index) } else { 0 };
        let later = turns::pays_no_look(state, cpu, index);
        if later && has_no_turn(state, index) {
            sleep::look_by_the_clock(state, index);
            (looks, cost) = (false, cost::PUT_OFF);
        } else if later && has_turn_to_look(state, index) {
            sleep::set_apart(state, index);
            (looks, cost) = (false, 2 * cost::SLEEPER);
        } else {
            turns::charge_look(state, cpu, index, cost);
        }
        work::spend(state, cost);
        room = room.saturating_sub(cost);
        if !(looks && sleep::try_predicate(state, machine, index, true)) {
            watched |= own;
        }
    }
    if left == 0 || state.sched.watch == 0 {
        (classes, left) = (0, 0);
        if whole {
            state.sched.watched = watched;
        }
    }
    state.sched.settling = (classes, left);
}

/// Is a sleeper looked at when its turn comes, if it is not now? Not one that is at home on a
/// processor that may stay idle.
fn has_turn_to_look(state: &State, index: EnvIndex) -> bool {
    let home = CpuIndex::from(state.envs.slots[index].cpu);
    list::contains(&state.envs.slots, Kind::Ring, index) && state.sched.cpus[home].current != 0
}

/// The time of whoever runs has ended.
fn end_of_slice<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, now: u64) {
    let this = &state.sched.cpus[cpu];
    let index = EnvIndex::from(this.current);
    if this.lender != 0 {
        leave_at(state, cpu, now);
        stay_ready(state, index);
        return;
    }
    if state.envs.slots[index].has(FLAG_SLICE_END) && !visit::is_away(state, index) {
        return overtime::told_to_end(state, machine, cpu, index, now);
    }
    // Time that it holds on to has to be paid by turns of its own.
    let pays = !has_no_turn(state, index);
    if !this.extended && pays && upcall::masked(state, machine, index) {
        let this = &mut state.sched.cpus[cpu];
        this.extended = true;
        this.slice_end_ns = now + CRITICAL_NS;
        gate::close(state, index);
        let debt = &mut state.envs.slots[index].debt_ns;
        *debt = debt.saturating_add(CRITICAL_NS as u32);
        if let Some((_, physical)) = env::save_area(state, index) {
            machine.word_add(physical + offset::HELD_OFF as u64, 1);
        }
        return;
    }
    turns::overran(state, cpu, now);
    leave_at(state, cpu, now);
    stay_ready(state, index);
}
