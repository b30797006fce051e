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
//! An entry is whole before `put` counts it. What finds no room is counted and nothing else: no
//! earlier entry is lost, and the bits are set all the same.

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

/// Bytes of the queue.
pub const BYTES: u64 = size_of::<Queue>() as u64;

const _: () = assert!(offset::ENTRIES == 0x60 && size_of::<Entry>() == 16);
