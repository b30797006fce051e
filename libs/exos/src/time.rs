//! Clocks, sleeping, timers.

use crate::errno::{Answer, Errno, RESTART_UNLESS_HANDLED};
use crate::process::Process;
use crate::signal::{CODE_KERNEL, Info};
use crate::user;
use crate::wait::{Wait, Woken, sleep_until};
use crate::{posix_timers, thread, threads};
use abi::id::EnvId;
use linux_raw_sys::general as linux;
use xok::{call, clock, published};

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a clock tick as `times` counts them (`USER_HZ` 100).
pub const TICK: u64 = 10_000_000;

/// Nanoseconds since 1970; since boot where the machine does not know.
pub fn wall() -> u64 {
    clock::wall_ns().unwrap_or_else(clock::now_ns)
}

/// Nanoseconds that the process has run: those of its threads, and of those that have ended.
pub fn run_ns(process: &mut Process) -> u64 {
    let living: u64 = process.threads.all().map(|thread| thread_ns(thread.id)).sum();
    living + process.ended_ns
}

/// Nanoseconds that a thread has run.
pub fn thread_ns(id: EnvId) -> u64 {
    published::env(id).unwrap_or_default().run_ns
}

fn read_clock(process: &mut Process, id: u64) -> Result<u64, Errno> {
    Ok(match id as u32 {
        linux::CLOCK_REALTIME | linux::CLOCK_REALTIME_COARSE => wall(),
        linux::CLOCK_MONOTONIC
        | linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_MONOTONIC_COARSE
        | linux::CLOCK_BOOTTIME => clock::now_ns(),
        linux::CLOCK_PROCESS_CPUTIME_ID => run_ns(process),
        linux::CLOCK_THREAD_CPUTIME_ID => thread_ns(thread::own().id),
        id if (id as i32) < 0 => posix_timers::read_named_clock(process, id)?,
        _ => return Err(Errno::EINVAL),
    })
}

/// Nanoseconds as a `timespec`.
pub fn to_timespec(ns: u64) -> [u64; 2] {
    [ns / SECOND, ns % SECOND]
}

/// Nanoseconds as a `timeval`.
pub fn to_timeval(ns: u64) -> [u64; 2] {
    [ns / SECOND, ns % SECOND / 1000]
}

/// A `timespec` as nanoseconds; `EINVAL` unless it is a length of time.
pub fn from_timespec(words: [u64; 2]) -> Result<u64, Errno> {
    let [seconds, ns] = words;
    if seconds > i64::MAX as u64 || ns >= SECOND {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(SECOND).saturating_add(ns))
}

/// The deadline for `sleep_until` when a `timespec` from now on has passed (never 0).
pub fn deadline_after(words: [u64; 2]) -> Result<u64, Errno> {
    Ok(clock::now_ns().saturating_add(from_timespec(words)?).max(1))
}

/// `clock_gettime(clock, into)`
pub fn gettime(process: &mut Process, id: u64, into: u64) -> Answer {
    user::write_value(into, &to_timespec(read_clock(process, id)?))?;
    Ok(0)
}

/// `clock_getres(clock, into)`
pub fn getres(process: &mut Process, id: u64, into: u64) -> Answer {
    read_clock(process, id)?;
    if into != 0 {
        user::write_value(into, &[0_u64, 1])?;
    }
    Ok(0)
}

/// `gettimeofday(into, zone)`
pub fn gettimeofday(into: u64, zone: u64) -> Answer {
    if into != 0 {
        user::write_value(into, &to_timeval(wall()))?;
    }
    if zone != 0 {
        user::write_value(zone, &0_u64)?;
    }
    Ok(0)
}

/// `time(into)`
pub fn time(into: u64) -> Answer {
    let seconds = wall() / SECOND;
    if into != 0 {
        user::write_value(into, &seconds)?;
    }
    Ok(seconds)
}

/// `nanosleep(length, rest)`
pub fn nanosleep(process: &mut Process, length: u64, rest: u64) -> Answer {
    let deadline = deadline_after(user::read_value(length)?)?;
    sleep(process, deadline, rest)
}

/// `clock_nanosleep(clock, flags, time, rest)`
pub fn clock_nanosleep(process: &mut Process, words: [u64; 6]) -> Answer {
    let [id, flags, time, rest, ..] = words;
    let now = read_clock(process, id)?;
    let time: [u64; 2] = user::read_value(time)?;
    if flags & u64::from(linux::TIMER_ABSTIME) != 0 {
        let until = from_timespec(time)?;
        let deadline = clock::now_ns().saturating_add(until.saturating_sub(now)).max(1);
        return sleep(process, deadline, 0);
    }
    let deadline = deadline_after(time)?;
    sleep(process, deadline, rest)
}

fn sleep(process: &mut Process, deadline: u64, rest: u64) -> Answer {
    loop {
        match sleep_until(process, &Wait::new(), deadline) {
            Ok(Woken::TimedOut) => return Ok(0),
            Ok(Woken::Ready) if clock::now_ns() >= deadline => return Ok(0),
            Ok(Woken::Ready) => {}
            Err(_) => {
                if rest != 0 {
                    let left = deadline.saturating_sub(clock::now_ns());
                    user::write_value(rest, &to_timespec(left))?;
                }
                // A handler runs (sleep_until settles everything else): never restarted.
                return Err(RESTART_UNLESS_HANDLED);
            }
        }
    }
}

fn arm(process: &mut Process, next: u64, interval: u64) {
    process.timer = (next, interval);
    set_timer(process);
}

/// Sets the kernel's timer for whatever is due first.
pub fn set_timer(process: &mut Process) {
    if !thread::own().is_first() {
        process.orders.timer = true;
        threads::order(process);
        return;
    }
    let due = match (process.timer.0, posix_timers::first_due(process)) {
        (0, due) | (due, 0) => due,
        (one, other) => one.min(other),
    };
    if due != 0 || core::mem::replace(&mut process.timer_is_set, false) {
        process.timer_is_set = due != 0;
        // Refused only by a kernel without the call; the timer never rings then.
        let _ = call::timer_set(due);
    }
}

/// The kernel's timer passed: SIGALRM and its next round, and whatever else is due.
pub fn timer_rang(process: &mut Process) {
    let (next, interval) = process.timer;
    let now = clock::now_ns();
    if next != 0 && now >= next {
        process.arrive(linux::SIGALRM, Info { code: CODE_KERNEL, ..Info::default() });
        let next = if interval == 0 { 0 } else { next.saturating_add(interval).max(now + 1) };
        process.timer = (next, interval);
    }
    posix_timers::rang(process);
    set_timer(process);
}

fn timer_left(process: &Process) -> u64 {
    match process.timer.0 {
        0 => 0,
        next => next.saturating_sub(clock::now_ns()).max(1),
    }
}

/// `alarm(seconds)`
pub fn alarm(process: &mut Process, seconds: u64) -> Answer {
    let left = timer_left(process).div_ceil(SECOND);
    let seconds = seconds & 0xffff_ffff;
    let next = if seconds == 0 { 0 } else { clock::now_ns() + seconds * SECOND };
    arm(process, next, 0);
    Ok(left)
}

/// `setitimer(which, new, old)`
pub fn setitimer(process: &mut Process, which: u64, new: u64, old: u64) -> Answer {
    let wanted: [u64; 4] = if new == 0 { [0; 4] } else { user::read_value(new)? };
    if wanted[0].max(wanted[2]) > i64::MAX as u64 || wanted[1].max(wanted[3]) >= 1_000_000 {
        return Err(Errno::EINVAL);
    }
    if old != 0 {
        getitimer(process, which, old)?;
    }
    let ns = |seconds: u64, micro: u64| seconds.saturating_mul(SECOND).saturating_add(micro * 1000);
    let (interval, first) = (ns(wanted[0], wanted[1]), ns(wanted[2], wanted[3]));
    if which as u32 != linux::ITIMER_REAL {
        return posix_timers::set_interval(process, which, interval, first).map(|()| 0);
    }
    let next = if first == 0 { 0 } else { clock::now_ns().saturating_add(first) };
    arm(process, next, interval);
    Ok(0)
}

/// `getitimer(which, into)`
pub fn getitimer(process: &mut Process, which: u64, into: u64) -> Answer {
    if which as u32 != linux::ITIMER_REAL {
        let words = posix_timers::get_interval(process, which)?;
        return user::write_value(into, &words).map(|()| 0);
    }
    let [seconds, micro] = to_timeval(process.timer.1);
    let [left_seconds, left_micro] = to_timeval(timer_left(process));
    user::write_value(into, &[seconds, micro, left_seconds, left_micro])?;
    Ok(0)
}

/// `times(into)`
pub fn times(process: &mut Process, into: u64) -> Answer {
    if into != 0 {
        let words = [run_ns(process) / TICK, 0, process.children_ns / TICK, 0];
        user::write_value(into, &words)?;
    }
    Ok(clock::now_ns() / TICK)
}

/// `getrusage(who, into)`
pub fn getrusage(process: &mut Process, who: u64, into: u64) -> Answer {
    let ns = match who as i32 {
        0 => run_ns(process),
        // RUSAGE_THREAD
        1 => thread_ns(thread::own().id),
        linux::RUSAGE_CHILDREN => process.children_ns,
        _ => return Err(Errno::EINVAL),
    };
    user::write_value(into, &usage(ns))?;
    Ok(0)
}

/// A `rusage` with this run time.
pub fn usage(ns: u64) -> [u64; 18] {
    let mut words = [0; 18];
    [words[0], words[1]] = to_timeval(ns);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert() {
        assert_eq!(to_timespec(3_000_000_005), [3, 5]);
        assert_eq!(to_timeval(3_000_005_999), [3, 5]);
        assert_eq!(from_timespec([1, 5]), Ok(SECOND + 5));
        assert_eq!(from_timespec([1, SECOND]), Err(Errno::EINVAL));
        assert_eq!(from_timespec([u64::MAX, 0]), Err(Errno::EINVAL));
        assert_eq!(from_timespec([i64::MAX as u64, 0]), Ok(u64::MAX));
    }
}
