//! The queue of what happened to an environment, in order (thesis98 BS-4).
//!
//! Bits of the save area say *that* something has happened; the queue, if an environment wants one,
//! says how often, in which order, and who posted. It lies in the owner's part of its save area
//! (`EnvSetup::queue`); the kernel puts entries in, the owner takes them out without a call.
//!
//! ```text
//!  0x00  put        entries ever put in: the next goes to put % 16
//!  0x08  taken      the owner's: entries ever taken
//!  0x10  overflow   by kind: what found no room
//!  0x60  entries    16 of them: kind and sender, bits or time
//! ```
//! An entry is whole before `put` counts it, and taken before `taken` does. What finds no room is
//! counted and nothing else: no earlier entry is lost, and the bits are set all the same.

use crate::atomic::{Atomic, Ordering};
use crate::shared::Memory;
use core::mem::offset_of;

/// Entries of the queue.
pub const ENTRIES: usize = 16;
/// Kinds: the numbers of the event bits (`upcall::EVENT_…`), then [`POST`].
pub const KINDS: usize = 9;
/// The kind of what another environment posted.
pub const POST: usize = 8;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Its kind: number of the event bit, or [`POST`].
    pub kind: u32,
    /// Who posted, 0: the kernel.
    pub sender: u32,
    /// The bits posted; of an event: when, in nanoseconds since boot.
    pub value: u64,
}

/// The queue as it lies in memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Queue {
    /// See above.
    pub put: u64,
    /// See above.
    pub taken: u64,
    /// See above.
    pub overflow: [u64; KINDS],
    /// Zero.
    pub zero: u64,
    /// See above.
    pub entries: [Entry; ENTRIES],
}

/// Byte offsets.
pub mod offset {
    use super::{Queue, offset_of};
    /// `Queue::put`
    pub const PUT: u64 = offset_of!(Queue, put) as u64;
    /// `Queue::taken`
    pub const TAKEN: u64 = offset_of!(Queue, taken) as u64;
    /// `Queue::overflow`
    pub const OVERFLOW: u64 = offset_of!(Queue, overflow) as u64;
    /// `Queue::entries`
    pub const ENTRIES: u64 = offset_of!(Queue, entries) as u64;
}

/// Where the `number`th entry lies in a queue that has room for so many.
const fn place<const ROOM: usize>(number: u64) -> u64 {
    offset::ENTRIES + size_of::<Entry>() as u64 * (number % ROOM as u64)
}

/// The kernel's: puts an entry into the queue at this address, of a program that is not trusted.
#[inline]
pub fn put<const ROOM: usize>(memory: &mut impl Memory, queue: u64, entry: &Entry) {
    let put = memory.word(queue + offset::PUT);
    if put.wrapping_sub(memory.word(queue + offset::TAKEN)) >= ROOM as u64 {
        let kind = u64::from(entry.kind) % KINDS as u64;
        memory.word_add(queue + offset::OVERFLOW + 8 * kind, 1);
        return;
    }
    let at = queue + place::<ROOM>(put);
    memory.word_set(at, u64::from(entry.kind) | u64::from(entry.sender) << 32);
    memory.word_set(at + 8, entry.value);
    memory.word_set(queue + offset::PUT, put.wrapping_add(1));
}

/// The owner's: takes the oldest entry, if there is one; it makes room. `word`: the one so many
/// bytes into the queue.
#[inline]
pub fn take<'a, const ROOM: usize, W: Atomic<Value = u64> + 'a>(
    word: impl Fn(u64) -> &'a W,
) -> Option<Entry> {
    let taken = word(offset::TAKEN).load(Ordering::Relaxed);
    if word(offset::PUT).load(Ordering::Acquire) == taken {
        return None;
    }
    let at = place::<ROOM>(taken);
    let head = word(at).load(Ordering::Relaxed);
    let value = word(at + 8).load(Ordering::Relaxed);
    word(offset::TAKEN).store(taken.wrapping_add(1), Ordering::Release);
    Some(Entry { kind: head as u32, sender: (head >> 32) as u32, value })
}

/// The owner's: how many of this kind found no room since this was last asked.
#[inline]
pub fn take_overflow<'a, W: Atomic<Value = u64> + 'a>(
    word: impl Fn(u64) -> &'a W,
    kind: usize,
) -> u64 {
    word(offset::OVERFLOW + 8 * (kind % KINDS) as u64).swap(0, Ordering::AcqRel)
}

/// Bytes of the queue.
pub const BYTES: u64 = size_of::<Queue>() as u64;

const _: () = assert!(offset::ENTRIES == 0x60 && size_of::<Entry>() == 16);
