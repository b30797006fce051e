//! The shortest way of reading and writing: a pipe, one step along its ring, nothing else.
//!
//! Whoever has nothing to wait for, to signal or to find out is answered here, by functions that
//! `xok::upcall` calls with half of the program's registers saved (`trivial`). If nothing has
//! happened they say so, and the general way (`table`) does all of it. What a call needs to know of
//! its description lies there as the step wants it.
//!
//! A signal that comes meanwhile waits, as events are masked: it ends the wait in the step, and
//! then the general way finds it, or it is found on the way out.

use abi::call::number;
use abi::limits::REGION_COPY_BYTES;
use abi::region::{NO_PEER, STEP_BESIDE, STEP_FLAGS_SHIFT, STEP_IN, Step};
use abi::upcall::{EVENT_CHILD, EVENT_TIMER};
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::general::{__NR_read, __NR_write};
use unix::ring::{HEAD, TAIL};
use xok::published::Word;

use super::description::Description;
use super::pipe::{LIMIT, Level, Pipe, READER, RING, WRITER};
use super::region;
use crate::process::Process;
use crate::thread;
use crate::user::native_done;
use crate::wait::posted;

/// Why nothing is done at once, a bit for each reason: a look at the word is the first thing that a
/// call does.
pub static DETOURS: AtomicU32 = AtomicU32::new(0);
/// Other threads want the lock.
pub const THREADS: u32 = 1;
/// Who watches descriptors by epoll has to be told.
pub const WATCHES: u32 = 2;

/// Notes a reason, or that it is none any more.
pub fn set_detour(reason: u32, holds: bool) {
    let others = DETOURS.load(Ordering::Relaxed) & !reason;
    DETOURS.store(if holds { others | reason } else { others }, Ordering::Relaxed);
}

/// What a reader's step is told of words and events, and a writer's.
const READS: Step = Step {
    role: READER as u8,
    peer: WRITER as u8,
    flags: STEP_BESIDE,
    moves: (TAIL / 8) as u16,
    beside: (HEAD / 8) as u16,
    events: (EVENT_CHILD | EVENT_TIMER) as u16,
    ..Step::NONE
};
const WRITES: Step = Step {
    role: WRITER as u8,
    peer: NO_PEER,
    flags: STEP_IN | STEP_BESIDE,
    moves: (HEAD / 8) as u16,
    beside: (LIMIT / 8) as u16,
    ..Step::NONE
};

impl Pipe {
    /// How many may read it.
    pub fn readers(&self) -> Option<Word> {
        region::attached_word(self.region, READER)
    }
}

/// Where `len` bytes from `position` on are in the ring, as a step is told of them; `None` if they
/// are none, or in two pieces there, or not in program memory.
#[inline(always)]
fn piece(position: u64, address: u64, len: u64) -> Option<u64> {
    const { assert!(RING.capacity.is_power_of_two() && RING.capacity <= REGION_COPY_BYTES as u64) }
    let at = position & (RING.capacity - 1);
    // The kernel looks whether all of it lies in the lower half.
    let possible = len as i64 > 0 && address as i64 >= 0;
    let last = at.wrapping_add(len).wrapping_sub(1);
    (possible && last < RING.capacity).then(|| len | (RING.data + at) << 32)
}

/// The description of a descriptor.
#[inline(always)]
fn find(process: &Process, fd: u64) -> Option<&Description> {
    process.files.at(fd as u32)
}

/// Makes a step; `None` if it could not be made, whyever.
#[inline(always)]
fn step(number: u16, words: [u64; 6]) -> Option<()> {
    native_done(number, words).then_some(())
}

/// Writes by one step, if all fits in as far as is known, in one piece, and somebody reads; else it
/// answers the complement of the call's number: find out more ([`Pipe::write`]).
pub extern "C" fn write(fd: u64, address: u64, len: u64) -> i64 {
    write_at_once(fd, address, len).map_or(!i64::from(__NR_write), |()| len as i64)
}

#[inline(always)]
fn write_at_once(fd: u64, address: u64, len: u64) -> Option<()> {
    const WORDS: u64 = WRITES.to_words()[2];
    let description = find(thread::process(), fd)?;
    let Level { head, tail, limit, capacity } = description.level.get();
    let piece = piece(head, address, len)?;
    let full = head.wrapping_sub(tail).wrapping_add(len) > capacity;
    if full || description.readers.load() == 0 {
        return None;
    }
    step(number::RegionStep, [description.writes_by, address, piece, WORDS, head, limit])?;
    let level = description.level.get();
    description.level.set(Level { head: level.head.wrapping_add(len), ..level });
    Some(())
}

/// Reads by one step what is known to be there; if nothing is, bets on the length, and waits in
/// that step while there is nothing. Else as [`write`] ([`Pipe::read`]).
pub extern "C" fn read(fd: u64, address: u64, len: u64) -> i64 {
    read_at_once(fd, address, len).map_or(!i64::from(__NR_read), |len| len as i64)
}

#[inline(always)]
fn read_at_once(fd: u64, address: u64, len: u64) -> Option<u64> {
    const WORDS: u64 = READS.to_words()[2];
    let own = thread::own();
    let process = own.process();
    let description = find(process, fd)?;
    let level = description.level.get();
    if level.head != level.tail {
        return read_known(description, address, len);
    }
    let piece = piece(level.tail, address, len)?;
    if process.net.is_some() || !description.is_patient() {
        return None;
    }
    let words = [description.reads_by, address, piece, WORDS, level.tail, posted(own)];
    step(number::RegionStepOrWait, words)?;
    // Looked at anew: that costs less than to keep it over the call.
    let level = description.level.get();
    let end = level.tail.wrapping_add(len);
    description.level.set(Level { head: end, tail: end, ..level });
    Some(len)
}

/// The same of a pipe that is known to have something.
#[inline(never)]
fn read_known(description: &Description, address: u64, left: u64) -> Option<u64> {
    const WORDS: u64 = READS.to_words()[2];
    const ALONE: u64 = WORDS & !((STEP_BESIDE as u64) << STEP_FLAGS_SHIFT);
    let level = description.level.get();
    let known = RING.used(level.head, level.tail);
    let len = left.min(known);
    let piece = piece(level.tail, address, len)?;
    // A short read must not leave behind what was written since the last look.
    let words = if known < left { WORDS } else { ALONE };
    let which = description.reads_by;
    if which == 0 {
        return None;
    }
    step(number::RegionStep, [which, address, piece, words, level.tail, level.head])?;
    description.level.set(Level { tail: level.tail.wrapping_add(len), ..level });
    Some(len)
}
