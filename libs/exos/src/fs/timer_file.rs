//! `timerfd`: a timer that is read and waited for (timerfd_create(2)), in a small region.
//!
//! ```text
//!  0 nanoseconds since boot when it expires next, 0: never       8 nanoseconds between, 0: once
//! ```
//! Nothing runs when it expires: how often it has is computed when it is read, and those who wait
//! do so by a predicate on the clock. Whoever has it, also a fork child, changes both words in one
//! step.

use abi::predicate::Operator;
use abi::region::WordAt;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::path::Canonical;
use xok::clock;

use super::description::Description;
use super::open_file::OpenFile;
use super::region::{Done, Region};
use super::transfer::Memory;
use crate::errno::Answer;
use crate::process::Process;
use crate::time::{from_timespec, to_timespec, wall};
use crate::user;
use crate::wait::{Wait, sleep_until};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerFile {
    /// Its words.
    pub words: Region,
    /// Does it go by the time of day?
    pub real: bool,
}

/// When it expires next, and how long after that again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    next: u64,
    interval: u64,
}

impl Setting {
    /// How often it has expired by `now`, and what is left of it then.
    fn expired(self, now: u64) -> (u64, Setting) {
        if self.next == 0 || now < self.next {
            return (0, self);
        }
        match (now - self.next).checked_div(self.interval) {
            None => (1, Setting { next: 0, interval: 0 }),
            Some(more) => {
                let passed = more.saturating_add(1).saturating_mul(self.interval);
                (more.saturating_add(1), Setting { next: self.next.saturating_add(passed), ..self })
            }
        }
    }

    /// As `timerfd_gettime` tells it: interval, and nanoseconds from `now` on.
    fn told(self, now: u64) -> [[u64; 2]; 2] {
        let (_, rest) = self.expired(now);
        let left = if rest.next == 0 { 0 } else { rest.next.saturating_sub(now) };
        [to_timespec(self.interval), to_timespec(left)]
    }
}

/// `timerfd_create(clock, flags)`
pub fn create(process: &mut Process, id: u64, flags: u32) -> Answer {
    if flags & !(raw::TFD_CLOEXEC | raw::TFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let real = match id as u32 {
        raw::CLOCK_REALTIME => true,
        raw::CLOCK_MONOTONIC | raw::CLOCK_BOOTTIME => false,
        _ => return Err(Errno::EINVAL),
    };
    let timer = TimerFile { words: Region::make_held()?, real };
    let access = flags & raw::O_NONBLOCK | raw::O_RDWR;
    let path = Canonical::default();
    let description = Description::new(OpenFile::Timer(timer), path, access, None);
    let limit = process.limit(raw::RLIMIT_NOFILE);
    process.files.enter(description, flags & raw::TFD_CLOEXEC != 0, 0, limit)
}

fn timer_of(description: &Description) -> Result<TimerFile, Errno> {
    match &description.file {
        OpenFile::Timer(timer) => Ok(*timer),
        _ => Err(Errno::EINVAL),
    }
}

/// `timerfd_settime(fd, flags, new, old)`
pub fn set(process: &mut Process, fd: i32, flags: u32, new: u64, old: u64) -> Answer {
    if flags & !(raw::TFD_TIMER_ABSTIME | raw::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let [interval, first]: [[u64; 2]; 2] = user::read_value(new)?;
    let (interval, first) = (from_timespec(interval)?, from_timespec(first)?);
    let timer = timer_of(&*process.files.get(fd)?)?;
    let now = clock::now_ns();
    let next = if first == 0 {
        0
    } else if flags & raw::TFD_TIMER_ABSTIME == 0 {
        now.saturating_add(first)
    } else {
        let here = if timer.real { wall() } else { now };
        // What has passed expires at once.
        now.saturating_add(first.saturating_sub(here)).max(1)
    };
    let before = loop {
        let before = timer.setting()?;
        if timer.change(before, Setting { next, interval })? == Done::Yes {
            break before;
        }
    };
    if old != 0 {
        user::write_value(old, &before.told(now))?;
    }
    process.look_again();
    Ok(0)
}

/// `timerfd_gettime(fd, into)`
pub fn get(process: &mut Process, fd: i32, into: u64) -> Answer {
    let timer = timer_of(&*process.files.get(fd)?)?;
    user::write_value(into, &timer.setting()?.told(clock::now_ns()))?;
    Ok(0)
}

impl TimerFile {
    fn setting(&self) -> Result<Setting, Errno> {
        self.words.pair().map(|(next, interval)| Setting { next, interval })
    }

    fn change(&self, from: Setting, to: Setting) -> Result<Done, Errno> {
        let words = |setting: Setting| {
            [
                WordAt { offset: 0, value: setting.next },
                WordAt { offset: 8, value: setting.interval },
            ]
        };
        self.words.copy_in(0, &[], &words(from), &words(to))
    }

    /// Has it expired? If not, `wait` gets what to wait for.
    pub fn ready(&self, wait: &mut Wait) -> Result<bool, Errno> {
        let setting = self.setting()?;
        if setting.next != 0 {
            if setting.next <= clock::now_ns() {
                return Ok(true);
            }
            wait.clock(setting.next).end_term();
        }
        wait.region(self.words.id, 0, Operator::NotEqual, setting.next).end_term();
        Ok(false)
    }

    /// Takes the number of times that it has expired.
    pub fn read(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Answer {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        loop {
            let setting = self.setting()?;
            let (times, rest) = setting.expired(clock::now_ns());
            if times > 0 {
                if self.change(setting, rest)? == Done::Yes {
                    return Ok(memory.put(&times.to_le_bytes())? as u64);
                }
                continue;
            }
            if description.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            let mut wait = Wait::new();
            if !self.ready(&mut wait)? {
                sleep_until(process, &wait, 0)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_are_counted_when_asked() {
        let once = Setting { next: 100, interval: 0 };
        assert_eq!(once.expired(99), (0, once));
        assert_eq!(once.expired(500), (1, Setting { next: 0, interval: 0 }));
        let often = Setting { next: 100, interval: 30 };
        assert_eq!(often.expired(100), (1, Setting { next: 130, interval: 30 }));
        assert_eq!(often.expired(160), (3, Setting { next: 190, interval: 30 }));
        assert_eq!(often.told(170), [[0, 30], [0, 20]]);
        let never = Setting { next: 0, interval: 30 };
        assert_eq!(never.expired(u64::MAX), (0, never));
    }
}
