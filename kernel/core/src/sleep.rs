//! Sleeping, posting, events, timers (decisions 7, 17, 18; xok97 XK-18, XK-19).
//!
//! No wake-up is lost: whoever sets a bit does so, and looks whether the other sleeps, under the
//! same lock under which the sleeper looks at its bits before it sleeps.

use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::env::{self, Pending};
use crate::index::{CpuIndex, EnvIndex};
use crate::list::{self, Kind};
use crate::machine::{Machine, Shared};
use crate::state::State;
use crate::work::{self, cost};
use crate::{busy, gate, operate, predicate, queue, sched, turns};
use abi::call::SLEEP_ACCEPT;
use abi::error::Error;
use abi::id::{EnvId, Frame};
use abi::limits::{SENDERS, SLICE_NS, WORK_PIECES};
use abi::published::EnvState;
use abi::setup::FLAG_GIVEN_TIME;
use abi::upcall::{self, EVENT_TIMER, SaveArea, offset, woken};

/// The arguments of `Sleep`.
#[derive(Clone, Copy, Debug)]
pub struct Sleep {
    /// When it ends, 0: never.
    pub deadline: u64,
    /// Posted bits that end it.
    pub posted: u64,
    /// Event bits that end it.
    pub events: u64,
    /// `SLEEP_ACCEPT`
    pub flags: u64,
}

/// `Sleep`: the answer if there is nothing to wait for, else `None`: the caller sleeps and has
/// left.
pub fn sleep<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: CpuIndex,
    caller: EnvIndex,
    asked: Sleep,
) -> Option<Answer> {
    if asked.flags & !SLEEP_ACCEPT != 0 {
        return Some(Err(Refusal::new(Error::BadArgument, 3)));
    }
    let env = &mut state.envs.slots[caller];
    env.posted = asked.posted;
    env.events = asked.events;
    if let Some(why) = reason(state, machine, caller) {
        return Some(Ok(why));
    }
    if asked.deadline != 0 && asked.deadline <= machine.now_ns() {
        return Some(Err(Error::TimedOut.into()));
    }
    sched::leave(state, machine, cpu);
    let accept = asked.flags & SLEEP_ACCEPT != 0;
    state.envs.slots[caller].deadline = asked.deadline;
    fall_asleep(state, machine, caller, accept);
    if accept && state.envs.slots[caller].is_waited_for() {
        let now = machine.now_ns();
        busy::server_is_free(state, machine, (cpu, caller), now);
    }
    None
}

/// May the environment wait for a region, or has it something else to look at?
pub fn may_wait<M: Machine>(
    state: &mut State,
    machine: &M,
    index: EnvIndex,
    asked: &Sleep,
) -> Result<(), Refusal> {
    let env = &mut state.envs.slots[index];
    env.posted = asked.posted;
    env.events = asked.events;
    if let Some(why) = told(state, machine, index) {
        return Err(Refusal::new(Error::WouldBlock, why));
    }
    if asked.deadline != 0 && asked.deadline <= machine.now_ns() {
        return Err(Error::TimedOut.into());
    }
    Ok(())
}

/// Why the environment need not sleep, by its bits and its predicate.
pub fn reason<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) -> Option<u64> {
    if let Some(why) = told(state, machine, index) {
        return Some(why);
    }
    let watches = state.envs.slots[index].atoms > 0;
    (watches && predicate::holds(state, machine, index)).then_some(woken::PREDICATE)
}

/// The same by its bits alone.
fn told<M: Machine>(state: &State, machine: &M, index: EnvIndex) -> Option<u64> {
    let env = &state.envs.slots[index];
    let (_, physical) = env::save_area(state, index)?;
    if machine.word(physical + offset::PENDING as u64) & env.posted != 0 {
        return Some(woken::POSTED);
    }
    let events = machine.word(physical + offset::EVENTS as u64) & env.events;
    (events != 0).then_some(woken::EVENT)
}

/// Makes an environment that has left its processor a sleeper.
pub fn fall_asleep<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, accept: bool) {
    let env = &mut state.envs.slots[index];
    env.pending = if accept { Pending::Accept } else { Pending::Sleep };
    env.client = 0;
    let watches = env.atoms > 0;
    env.edge = 0;
    if watches {
        let edge = predicate::next_edge(state, machine, index);
        state.envs.slots[index].edge = edge;
        watch(state, index);
        state.sched.watched |= state.envs.slots[index].watched;
    }
    if sched::keeps_its_turn(state, index) {
        sched::enqueue(state, index);
    } else {
        sched::dequeue(state, index);
    }
    if accept && let Some((_, physical)) = env::save_area(state, index) {
        machine.word_set(physical + offset::ACCEPTING as u64, 1);
    }
    set_alarm(state, index);
    env::set_state(state, index, EnvState::Sleeping);
}

/// Ends the sleep of an environment without making it ready: nothing of it is left but its state.
pub fn end_sleep<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    if state.envs.slots[index].pending == Pending::Accept
        && let Some((_, physical)) = env::save_area(state, index)
    {
        machine.word_set(physical + offset::ACCEPTING as u64, 0);
    }
    if list::contains(&state.envs.slots, Kind::Watch, index) {
        watch_no_more(state, index);
    }
    if state.envs.slots[index].pending == Pending::Region {
        operate::end_wait(state, index);
    }
    let env = &mut state.envs.slots[index];
    env.pending = Pending::Nothing;
    env.set_apart(false);
    env.deadline = 0;
    env.edge = 0;
    set_alarm(state, index);
}

/// Makes an environment that has left its processor wait for what its `wait` says of a region. The
/// call begins anew when it wakes, whatever has woken it, and finds out itself.
pub fn await_region<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    deadline: u64,
) {
    machine.context(index.at()).again();
    let env = &mut state.envs.slots[index];
    env.pending = Pending::Region;
    env.client = 0;
    env.deadline = deadline;
    env.edge = 0;
    set_alarm(state, index);
    env::set_state(state, index, EnvState::Sleeping);
}

/// Puts a sleeper into the list of those that are looked at, if it is not there.
pub fn watch(state: &mut State, index: EnvIndex) {
    if !list::contains(&state.envs.slots, Kind::Watch, index) {
        list::push(&mut state.envs.slots, &mut state.sched.watch, Kind::Watch, index);
        state.sched.watchers += 1;
    }
    state.envs.slots[index].set_apart(false);
}

/// Takes a sleeper out of the list of those that are looked at after a write, until its turn comes
/// or it has none any more.
pub(crate) fn set_apart(state: &mut State, index: EnvIndex) {
    watch_no_more(state, index);
    state.envs.slots[index].set_apart(true);
}

/// The same of one without turns of its own: a deadline is when it is looked at.
#[cold]
#[inline(never)]
pub(crate) fn look_by_the_clock(state: &mut State, index: EnvIndex) {
    set_apart(state, index);
    let at = state.sched.picked_ns + LOOK_NS;
    let edge = &mut state.envs.slots[index].edge;
    *edge = if *edge == 0 { at } else { at.min(*edge) };
    set_alarm(state, index);
}

/// Takes a sleeper out of the list of those that are looked at, in which it is.
fn watch_no_more(state: &mut State, index: EnvIndex) {
    if state.sched.look == index.link() {
        let next = list::next(&state.envs.slots, Kind::Watch, index);
        state.sched.look = if next == index { 0 } else { next.link() };
    }
    list::remove(&mut state.envs.slots, &mut state.sched.watch, Kind::Watch, index);
    state.sched.watchers.less(1);
}

/// A sleeper that was taken out of that list is in it again. What was written meanwhile it is
/// looked at for on the next way out, if it has not been `looked` at.
#[cold]
pub(crate) fn watch_again(state: &mut State, index: EnvIndex, looked: bool) {
    if state.envs.slots[index].set_apart(false) && asleep(state, index) {
        watch(state, index);
        let classes = watched(state, index);
        state.sched.watched |= classes;
        if !looked {
            sched::touched(state, classes);
        }
    }
}

/// Wakes a sleeper (one that is held stays held, its call answered); `front`: an event did it.
fn wake<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    (error, value): (u64, u64),
    front: bool,
) {
    let begins_anew = state.envs.slots[index].pending == Pending::Region;
    end_sleep(state, machine, index);
    if !begins_anew {
        machine.context(index.at()).answer(error, value);
    }
    if state.envs.slots[index].state == EnvState::Sleeping {
        sched::make_ready(state, machine, index, front);
    }
}

/// Wakes one whose wait for a region has been done for it: its call is answered.
pub fn finished<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) {
    end_sleep(state, machine, index);
    let context = machine.context(index.at());
    context.answered();
    context.answer(0, 0);
    sched::make_ready(state, machine, index, true);
}

/// The classes of words that a sleeper in the list of watchers wants to be looked at for.
pub fn watched(state: &State, index: EnvIndex) -> u64 {
    let env = &state.envs.slots[index];
    if env.pending == Pending::Region { operate::watched(env.wait.region) } else { env.watched }
}

/// Does it sleep, held or not?
fn asleep(state: &State, index: EnvIndex) -> bool {
    let pending = state.envs.slots[index].pending;
    matches!(pending, Pending::Sleep | Pending::Accept | Pending::Region)
}

/// Wakes a sleeper whose predicate holds, or whose wait for a region is over; did it? `front`: it
/// may start before its turn.
#[inline]
pub fn try_predicate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    index: EnvIndex,
    front: bool,
) -> bool {
    let env = &state.envs.slots[index];
    let holds = match env.pending {
        Pending::Region => operate::wait_is_over(state, machine, index),
        Pending::Sleep | Pending::Accept => {
            env.atoms > 0 && predicate::holds(state, machine, index)
        }
        _ => false,
    };
    if holds {
        wake(state, machine, index, (0, woken::PREDICATE), front);
    }
    holds
}

/// Bits were set for an environment: wakes it, or sees to it that it is told.
fn notify<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, set: u64, why: u64) {
    let env = &state.envs.slots[index];
    let wakes = set & if why == woken::POSTED { env.posted } else { env.events };
    if asleep(state, index) {
        if wakes != 0 {
            wake(state, machine, index, (0, why), true);
        }
    } else if env.state == EnvState::Running {
        // Masked or not: the store that clears its mask may wait in its processor's buffer, while
        // its load of the bits came before ours. The interrupt makes both sides see both.
        machine.interrupt(state.published.envs[index].cpu.into());
    }
}

/// Sets event bits.
pub fn event<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, bits: u64) {
    if let Some((_, physical)) = env::save_area(state, index) {
        gate::close(state, index);
        let word = physical + offset::EVENTS as u64;
        upcall::tell(&mut Shared(machine), word, bits, |memory| {
            queue::events(state, memory.0, index, bits);
        });
        sched::written(state, Frame::containing(physical));
        notify(state, machine, index, bits, woken::EVENT);
    }
}

/// `Post`.
pub fn post<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    to: EnvId,
    bits: u64,
) -> Answer {
    let index = env::signalled(state, caller, capability, to)?;
    env::living(state, env::id(state, index))?;
    let (_, physical) = env::save_area(state, index).ok_or(Error::NoSuchEnv)?;
    gate::close(state, index);
    let word = physical + offset::PENDING as u64;
    upcall::tell(&mut Shared(machine), word, bits, |memory| {
        queue::post(state, memory.0, index, env::id(state, caller), bits);
        // Who only asks whether it may post has set nothing.
        if bits != 0 {
            note_sender(memory.0, physical, env::id(state, caller));
        }
    });
    if bits != 0 {
        machine.word_add(physical + core::mem::offset_of!(SaveArea, posts_set) as u64, 1);
    }
    sched::written(state, Frame::containing(physical));
    notify(state, machine, index, bits, woken::POSTED);
    Ok(0)
}

fn note_sender<M: Machine>(machine: &mut M, physical: u64, sender: EnvId) {
    let count_at = physical + core::mem::offset_of!(SaveArea, sender_count) as u64;
    let place = machine.word(count_at) % SENDERS as u64;
    let senders = physical + core::mem::offset_of!(SaveArea, senders) as u64;
    let at = senders + place / 2 * 8;
    let shift = 32 * (place % 2);
    let word = machine.word(at) & !(0xffff_ffff << shift) | u64::from(sender.0) << shift;
    machine.word_set(at, word);
    machine.word_add(count_at, 1);
}

/// `TimerSet`.
#[inline]
pub fn set_timer(state: &mut State, caller: EnvIndex, deadline: u64) {
    state.envs.slots[caller].timer = deadline;
    set_alarm(state, caller);
}

/// Puts the environment where it belongs in the heap of deadlines.
#[inline]
pub fn set_alarm(state: &mut State, index: EnvIndex) {
    let env = &state.envs.slots[index];
    let soonest = [env.deadline, env.timer, env.edge].into_iter().filter(|&at| at != 0).min();
    let alarm = soonest.unwrap_or(u64::MAX);
    let placed = env.heap_slot != 0 || alarm == u64::MAX;
    if alarm != env.alarm || !placed {
        state.sched.alarms.set(&mut state.envs.slots, index, alarm);
    }
}

/// How long a sleeper without turns of its own, whose account has paid for as many looks as it may,
/// is not looked at.
const LOOK_NS: u64 = 2 * SLICE_NS;

/// For how long a sleeper that compares with the clock is not looked at by the clock while its
/// account owes a turn; when its own turn comes it is.
const PUT_OFF_NS: u64 = 16 * SLICE_NS;

/// Serves the deadlines that have passed, as many as one hold of the lock has room for. The next
/// timer interrupt comes at once if there are more. Their accounts pay for it.
pub fn expire<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, now: u64) {
    let mut left = work::turn(state);
    for _ in 0..WORK_PIECES {
        let Some(index) = state.sched.alarms.first(&state.envs.slots) else { return };
        if state.envs.slots[index].alarm > now || left == 0 {
            return;
        }
        // Its predicate is evaluated, and looked through for its next edge.
        let puts_off = turns::puts_off(state, cpu, index) && is_edge_alone(state, index, now);
        let cost = match puts_off {
            true => cost::PUT_OFF,
            false => cost::ALARM + 2 * predicate::cost(state, index),
        };
        work::spend(state, cost);
        turns::charge_service(state, cpu, index, cost);
        left = left.saturating_sub(cost);
        if puts_off {
            state.envs.slots[index].edge = now + PUT_OFF_NS;
        } else {
            alarm(state, machine, index, now);
        }
        set_alarm(state, index);
    }
}

/// Is it only to be looked at, as a comparison with the clock may have changed?
fn is_edge_alone(state: &State, index: EnvIndex, now: u64) -> bool {
    let env = &state.envs.slots[index];
    [env.timer, env.deadline].into_iter().all(|at| at == 0 || at > now)
}

fn alarm<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex, now: u64) {
    let due = |at: u64| at != 0 && at <= now;
    if due(state.envs.slots[index].timer) {
        state.envs.slots[index].timer = 0;
        event(state, machine, index, EVENT_TIMER);
    }
    if due(state.envs.slots[index].edge) && !try_predicate(state, machine, index, true) {
        let is_predicate = state.envs.slots[index].pending != Pending::Region;
        let next = if is_predicate { predicate::next_edge(state, machine, index) } else { 0 };
        state.envs.slots[index].edge = next;
        if state.envs.slots[index].has(FLAG_GIVEN_TIME) {
            watch_again(state, index, true);
        }
    }
    if due(state.envs.slots[index].deadline) && asleep(state, index) {
        wake(state, machine, index, (Error::TimedOut as u64, 0), true);
    }
}
