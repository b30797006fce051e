//! Timers of a process beside `alarm`'s: those of `timer_create`, and of its processor time.
//!
//! The kernel has one timer for an environment; it is set for whichever is due first. A timer whose
//! signal waits to be taken is not due again before that: then it goes on, and the rounds that have
//! passed meanwhile are its overrun (timer_getoverrun(2)). Processor time passes at most as fast as
//! the clock, so a timer of that is looked at when it could be due.

use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use xok::clock;

use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::signal::{Info, bit};
use crate::time::{self, from_timespec, run_ns, thread_ns, to_timespec, to_timeval, wall};
use crate::{thread, user};
use abi::id::EnvId;

/// Timers of one process.
const MOST: usize = 4096;
/// `SI_TIMER`
pub const CODE_TIMER: i32 = -2;
/// Nanoseconds between looks at a timer of processor time.
const LOOK: u64 = 1_000_000;

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// Nanoseconds since boot; absolute times are told as the time of day.
    Day,
    /// Nanoseconds since boot.
    Boot,
    /// What the process has run.
    Process,
    /// What a thread has run.
    Thread(EnvId),
}

/// Whom a timer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tells {
    signal: u32,
    value: u64,
    thread: Option<EnvId>,
}

/// When a timer is due, and how long after that again; 0: never, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Setting {
    next: u64,
    interval: u64,
}

impl Setting {
    /// Rounds that have passed when it is `now`, and the setting behind them.
    fn passed(self, now: u64) -> (u64, Setting) {
        if self.next == 0 || now < self.next {
            return (0, self);
        }
        match (now - self.next).checked_div(self.interval) {
            None => (1, Setting::default()),
            Some(more) => {
                let by = (more + 1).saturating_mul(self.interval);
                (more + 1, Setting { next: self.next.saturating_add(by), ..self })
            }
        }
    }

    /// Nanoseconds that are left; `least` where it is due but was not told.
    fn left(self, now: u64, least: u64) -> u64 {
        match self.next {
            0 => 0,
            next => next.saturating_sub(now).max(least),
        }
    }
}

/// A timer of `timer_create`.
#[derive(Clone, Debug)]
struct Timer {
    id: u32,
    counts: Counts,
    tells: Option<Tells>,
    setting: Setting,
    /// Its signal was sent, and it has not gone on since.
    fired: bool,
    /// Rounds passed before the last signal was taken.
    overrun: u64,
}

/// All of a process.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    list: Vec<Timer>,
    /// `ITIMER_VIRTUAL` and `ITIMER_PROF`; nothing says which part of the time was the system's.
    interval: [Setting; 2],
}

impl Timers {
    /// What brings the interval timers through `exec`; the others end there.
    pub fn saved(&self) -> [u64; 4] {
        let [first, second] = self.interval;
        [first.next, first.interval, second.next, second.interval]
    }

    /// Reads that.
    pub fn loaded([a, b, c, d]: [u64; 4]) -> Self {
        let interval = [Setting { next: a, interval: b }, Setting { next: c, interval: d }];
        Self { list: Vec::new(), interval }
    }

    /// No time is later than `most`.
    pub fn bound(&mut self, most: u64) {
        for setting in &mut self.interval {
            setting.next = setting.next.min(most);
            setting.interval = setting.interval.min(most);
        }
    }

    fn place(&self, id: u64) -> Result<usize, Errno> {
        self.list.iter().position(|timer| timer.id == id as u32).ok_or(Errno::EINVAL)
    }
}

fn now(process: &mut Process, counts: Counts) -> u64 {
    match counts {
        Counts::Day | Counts::Boot => clock::now_ns(),
        Counts::Process => run_ns(process),
        Counts::Thread(id) => thread_ns(id),
    }
}

/// Nanoseconds since boot at which one of them may be due; 0: none.
pub fn first_due(process: &mut Process) -> u64 {
    if process.timers.list.is_empty() && process.timers.interval == [Setting::default(); 2] {
        return 0;
    }
    let here = clock::now_ns();
    let mut due = u64::MAX;
    let waiting = process.timers.list.iter().filter(|timer| !timer.fired);
    let all: Vec<(Counts, u64)> = waiting
        .map(|timer| (timer.counts, timer.setting.next))
        .chain(process.timers.interval.map(|setting| (Counts::Process, setting.next)))
        .filter(|&(_, next)| next != 0)
        .collect();
    let threads = process.threads.count().max(1) as u64;
    for (counts, next) in all {
        due = due.min(match counts {
            Counts::Day | Counts::Boot => next,
            Counts::Process | Counts::Thread(_) => {
                let left = next.saturating_sub(now(process, counts)) / threads;
                here.saturating_add(left.max(LOOK))
            }
        });
    }
    if due == u64::MAX { 0 } else { due.max(1) }
}

/// The kernel's timer passed: tells of those that are due.
pub fn rang(process: &mut Process) {
    for at in 0..2 {
        let here = run_ns(process);
        let (times, rest) = process.timers.interval[at].passed(here);
        if times > 0 {
            process.timers.interval[at] = rest;
            let signal = [linux::SIGVTALRM, linux::SIGPROF][at];
            let info = Info { code: crate::signal::CODE_KERNEL, ..Info::default() };
            process.arrive(signal, info);
        }
    }
    for at in 0..process.timers.list.len() {
        let counts = process.timers.list[at].counts;
        let here = now(process, counts);
        let timer = &mut process.timers.list[at];
        let due = !timer.fired && timer.setting.next != 0 && here >= timer.setting.next;
        let Some(tells) = timer.tells.filter(|_| due) else { continue };
        timer.fired = true;
        let id = timer.id;
        if !tell(process, id, tells) {
            // Nobody will take it: it goes on by itself.
            go_on(process, at);
        }
    }
}

/// Sends a timer's signal; will somebody take it?
fn tell(process: &mut Process, id: u32, Tells { signal, value, thread }: Tells) -> bool {
    let info = Info { code: CODE_TIMER, first: u64::from(id), second: value, ..Info::default() };
    match thread {
        None => process.arrive(signal, info),
        Some(thread) => process.arrive_at(thread, signal, info),
    };
    is_waiting(process, id)
}

fn is_waiting(process: &mut Process, id: u32) -> bool {
    let is_it = |entry: &(u32, Info)| entry.1.code == CODE_TIMER && entry.1.first as u32 == id;
    process.signals.pending.list().iter().any(is_it)
        || process.threads.all().any(|thread| thread.directed.list().iter().any(is_it))
}

/// A timer whose signal was taken is set for its next round; the rounds missed.
fn go_on(process: &mut Process, at: usize) -> u64 {
    let counts = process.timers.list[at].counts;
    let here = now(process, counts);
    let timer = &mut process.timers.list[at];
    if !core::mem::take(&mut timer.fired) {
        return 0;
    }
    let (times, rest) = timer.setting.passed(here);
    timer.setting = rest;
    timer.overrun = times.saturating_sub(1).min(i32::MAX as u64);
    timer.overrun
}

/// A timer's signal was taken; what its taker is told, with the overrun.
#[cold]
pub fn taken(process: &mut Process, info: Info) -> Info {
    let id = info.first & 0xffff_ffff;
    let Ok(at) = process.timers.place(id) else { return info };
    let overrun = go_on(process, at);
    time::set_timer(process);
    Info { first: id | overrun << 32, ..info }
}

/// A clock of processor time that is named by its process or thread, 0: ours (Linux's
/// `CPUCLOCK_…`, which the C library uses): the number's complement above three bits, the third of
/// which says that it is a thread's.
fn named_clock(process: &mut Process, id: u32) -> Result<Counts, Errno> {
    let number = EnvId(!((id as i32) >> 3) as u32);
    if id & 3 > 2 {
        return Err(Errno::EINVAL);
    }
    match id & 4 != 0 {
        true if number.is_none() => Ok(Counts::Thread(thread::own().id)),
        true => process.threads.find(number).map(|it| Counts::Thread(it.id)).ok_or(Errno::EINVAL),
        false if number.is_none() || number == process.id => Ok(Counts::Process),
        false => Err(Errno::EINVAL),
    }
}

/// What such a clock shows.
pub fn read_named_clock(process: &mut Process, id: u32) -> Result<u64, Errno> {
    let counts = named_clock(process, id)?;
    Ok(now(process, counts))
}

fn counted(process: &mut Process, id: u64) -> Result<Counts, Errno> {
    match id as u32 {
        id if (id as i32) < 0 => named_clock(process, id),
        linux::CLOCK_REALTIME => Ok(Counts::Day),
        linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME => Ok(Counts::Boot),
        linux::CLOCK_PROCESS_CPUTIME_ID => Ok(Counts::Process),
        linux::CLOCK_THREAD_CPUTIME_ID => Ok(Counts::Thread(thread::own().id)),
        linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_REALTIME_COARSE
        | linux::CLOCK_MONOTONIC_COARSE => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads a `sigevent`.
fn told(process: &mut Process, event: u64) -> Result<Option<Tells>, Errno> {
    let [value, how, target]: [u64; 3] = user::read_value(event)?;
    let (signal, notify) = (how as u32, (how >> 32) as u32);
    let thread = match notify {
        linux::SIGEV_NONE => return Ok(None),
        linux::SIGEV_SIGNAL | linux::SIGEV_THREAD => None,
        linux::SIGEV_THREAD_ID => {
            let id = EnvId(target as u32);
            Some(process.threads.find(id).map(|thread| thread.id).ok_or(Errno::EINVAL)?)
        }
        _ => return Err(Errno::EINVAL),
    };
    if bit(signal) == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Some(Tells { signal, value, thread }))
}

/// `timer_create(clock, event, id)`
pub fn create(process: &mut Process, id: u64, event: u64, into: u64) -> Answer {
    let counts = counted(process, id)?;
    let used = |id: u32| process.timers.list.iter().any(|timer| timer.id == id);
    let Some(id) = (0..MOST as u32).find(|&id| !used(id)) else { return Err(Errno::EAGAIN) };
    let tells = match event {
        0 => Some(Tells { signal: linux::SIGALRM, value: u64::from(id), thread: None }),
        event => told(process, event)?,
    };
    user::write_value(into, &id)?;
    let setting = Setting::default();
    process.timers.list.push(Timer { id, counts, tells, setting, fired: false, overrun: 0 });
    Ok(0)
}

/// `timer_delete(id)`
pub fn delete(process: &mut Process, id: u64) -> Answer {
    let at = process.timers.place(id)?;
    process.timers.list.remove(at);
    Ok(0)
}

/// `timer_getoverrun(id)`
pub fn overrun(process: &mut Process, id: u64) -> Answer {
    let at = process.timers.place(id)?;
    Ok(process.timers.list[at].overrun)
}

/// Interval, and what is left of the present round.
fn state(process: &mut Process, at: usize) -> [[u64; 2]; 2] {
    let counts = process.timers.list[at].counts;
    let here = now(process, counts);
    let timer = &process.timers.list[at];
    let silent = timer.tells.is_none();
    let setting = match timer.setting {
        // What is told late, or not at all, is in a later round by now.
        setting if setting.interval != 0 && (timer.fired || silent) => setting.passed(here).1,
        setting if timer.fired => Setting { next: 0, ..setting },
        setting => setting,
    };
    let left = setting.left(here, if silent { 0 } else { 1 });
    [to_timespec(setting.interval), to_timespec(left)]
}

/// `timer_gettime(id, into)`
pub fn get(process: &mut Process, id: u64, into: u64) -> Answer {
    let at = process.timers.place(id)?;
    user::write_value(into, &state(process, at))?;
    Ok(0)
}

/// `timer_settime(id, flags, new, old)`
pub fn set(process: &mut Process, id: u64, flags: u32, new: u64, old: u64) -> Answer {
    if new == 0 {
        return Err(Errno::EINVAL);
    }
    let [interval, first]: [[u64; 2]; 2] = user::read_value(new)?;
    let (interval, first) = (from_timespec(interval)?, from_timespec(first)?);
    let at = process.timers.place(id)?;
    let before = state(process, at);
    let counts = process.timers.list[at].counts;
    let here = now(process, counts);
    let next = if first == 0 {
        0
    } else if flags & linux::TIMER_ABSTIME == 0 {
        here.saturating_add(first)
    } else if counts == Counts::Day {
        here.saturating_add(first.saturating_sub(wall())).max(1)
    } else {
        first
    };
    let timer = &mut process.timers.list[at];
    timer.setting = Setting { next, interval: if first == 0 { 0 } else { interval } };
    timer.fired = false;
    timer.overrun = 0;
    time::set_timer(process);
    if old != 0 {
        user::write_value(old, &before)?;
    }
    Ok(0)
}

/// The place of an interval timer of processor time.
fn interval_place(which: u64) -> Result<usize, Errno> {
    match which as u32 {
        linux::ITIMER_VIRTUAL => Ok(0),
        linux::ITIMER_PROF => Ok(1),
        _ => Err(Errno::EINVAL),
    }
}

/// `getitimer` of processor time: interval, and what is left.
pub fn get_interval(process: &mut Process, which: u64) -> Result<[u64; 4], Errno> {
    let at = interval_place(which)?;
    let here = run_ns(process);
    let setting = process.timers.interval[at];
    let [seconds, micro] = to_timeval(setting.interval);
    let [left_seconds, left_micro] = to_timeval(setting.left(here, 1000));
    Ok([seconds, micro, left_seconds, left_micro])
}

/// `setitimer` of processor time, in nanoseconds.
pub fn set_interval(
    process: &mut Process,
    which: u64,
    interval: u64,
    first: u64,
) -> Result<(), Errno> {
    let at = interval_place(which)?;
    let next = if first == 0 { 0 } else { run_ns(process).saturating_add(first) };
    process.timers.interval[at] = Setting { next, interval };
    time::set_timer(process);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_passed_are_counted() {
        let often = Setting { next: 100, interval: 30 };
        assert_eq!(often.passed(99), (0, often));
        assert_eq!(often.passed(160), (3, Setting { next: 190, interval: 30 }));
        let once = Setting { next: 100, interval: 0 };
        assert_eq!(once.passed(500), (1, Setting::default()));
        assert_eq!((often.left(90, 1), often.left(100, 1), once.left(500, 0)), (10, 1, 0));
    }
}
