//! `eventfd`: a counter that is written to and waited for (eventfd(2)), in a small region.
//!
//! ```text
//!  0 the count        8 how often it was written: what an edge is seen by
//! ```
//! Whoever has it, also a fork child, changes both words in one step, and the kernel wakes those
//! who wait for them.

use abi::predicate::Operator;
use abi::region::WordAt;
use unix::Errno;

use super::description::Description;
use super::region::{Done, Region};
use super::transfer::Memory;
use crate::errno::Answer;
use crate::fs::open_file::OpenFile;
use crate::process::Process;
use crate::wait::{Wait, sleep_until};
use linux_raw_sys::general as raw;
use unix::path::Canonical;

/// Largest count.
const MOST: u64 = u64::MAX - 1;
/// Offset of the number of writes.
const WRITES: u64 = 8;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCounter {
    /// Its words.
    pub words: Region,
    /// Does a read take one rather than all (`EFD_SEMAPHORE`)?
    pub semaphore: bool,
}

/// `eventfd2(count, flags)`
pub fn make(process: &mut Process, count: u64, flags: u32) -> Answer {
    if flags & !(raw::EFD_CLOEXEC | raw::EFD_NONBLOCK | raw::EFD_SEMAPHORE) != 0 {
        return Err(Errno::EINVAL);
    }
    let words = Region::make_held()?;
    let counter = EventCounter { words, semaphore: flags & raw::EFD_SEMAPHORE != 0 };
    let first = [WordAt { offset: 0, value: count & 0xffff_ffff }];
    words.copy_in(0, &[], &[], &first)?;
    let access = flags & raw::O_NONBLOCK | raw::O_RDWR;
    let path = Canonical::default();
    let description = Description::new(OpenFile::EventCounter(counter), path, access, None);
    let limit = process.limit(raw::RLIMIT_NOFILE);
    process.files.enter(description, flags & raw::EFD_CLOEXEC != 0, 0, limit)
}

impl EventCounter {
    /// The count, and how often it was written.
    pub fn counts(&self) -> Result<(u64, u64), Errno> {
        self.words.pair()
    }

    /// May it be read, may it be written?
    pub fn ready(&self) -> Result<(bool, bool), Errno> {
        let (count, _) = self.counts()?;
        Ok((count > 0, count < MOST))
    }

    /// Adds what becomes true when it may be read, or written.
    pub fn terms(&self, reads: bool, wait: &mut Wait) {
        if reads {
            wait.region(self.words.id, 0, Operator::NotEqual, 0).end_term();
        } else {
            wait.region(self.words.id, 0, Operator::Below, MOST).end_term();
        }
    }

    /// Adds what becomes true when it is written again.
    pub fn next_write(&self, seen: u64, wait: &mut Wait) {
        wait.region(self.words.id, WRITES, Operator::NotEqual, seen).end_term();
    }

    /// Changes the count from `count`, if it still is.
    fn change(&self, (count, writes): (u64, u64), to: u64, written: u64) -> Result<Done, Errno> {
        let compare =
            [WordAt { offset: 0, value: count }, WordAt { offset: WRITES, value: writes }];
        let next = writes.wrapping_add(written);
        let write = [WordAt { offset: 0, value: to }, WordAt { offset: WRITES, value: next }];
        self.words.copy_in(0, &[], &compare, &write)
    }

    /// Takes the count, or one of it.
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
            let words = self.counts()?;
            if words.0 > 0 {
                let taken = if self.semaphore { 1 } else { words.0 };
                if self.change(words, words.0 - taken, 0)? == Done::Yes {
                    return Ok(memory.put(&taken.to_le_bytes())? as u64);
                }
                continue;
            }
            self.pause(process, description, true)?;
        }
    }

    /// Adds to the count.
    pub fn write(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Answer {
        let mut bytes = [0; 8];
        if memory.left() < 8 || memory.peek(&mut bytes)? < 8 {
            return Err(Errno::EINVAL);
        }
        let more = u64::from_le_bytes(bytes);
        if more == u64::MAX {
            return Err(Errno::EINVAL);
        }
        loop {
            let words = self.counts()?;
            match words.0.checked_add(more) {
                Some(sum) if sum <= MOST => {
                    if self.change(words, sum, 1)? == Done::Yes {
                        memory.advance(8);
                        return Ok(8);
                    }
                }
                _ => self.pause(process, description, false)?,
            }
        }
    }

    /// Waits until it may be read, or its count goes down.
    fn pause(
        &self,
        process: &mut Process,
        description: &Description,
        reads: bool,
    ) -> Result<(), Errno> {
        if description.nonblocking() {
            return Err(Errno::EAGAIN);
        }
        let (count, _) = self.counts()?;
        let mut wait = Wait::new();
        wait.region(self.words.id, 0, Operator::NotEqual, if reads { 0 } else { count }).end_term();
        sleep_until(process, &wait, 0).map(|_| ())
    }
}
