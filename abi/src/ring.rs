//! Receive rings and gather transmission (appnet K9, K10, K13).
//!
//! ```text
//!  entry of a ring, in the owner's memory:
//!  owner word (u64, own cache line recommended): 0 = the kernel's, free for reception;
//!                                                n = the application's, a packet of n bytes
//!  buffer: `capacity` bytes within one page; a longer packet is cut, n says its true length
//! ```
//! The kernel keeps its own list of entries from `RingAlloc`; of shared memory it reads only the
//! owner words. The owner gives a buffer back by storing 0: no call. A packet to be sent has such a
//! word as well: of what lies in several packets, how many are under way.

use crate::atomic::{Atomic, Ordering};
use crate::shared::Memory;

/// One buffer, as `RingAlloc` and `RingModify` take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RingEntry {
    /// Address of the owner word, a multiple of 8, writable by the caller.
    pub owner: u64,
    /// Address of the buffer, writable by the caller, within one page.
    pub buffer: u64,
    /// Bytes of the buffer, 1..=4096.
    pub capacity: u32,
    /// Zero.
    pub zero: u32,
}

/// One piece of a packet to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// Where it lies; readable by the caller.
    pub address: u64,
    /// Its length, 1..=65535; the pieces of a packet sum to at most `PACKET_BYTES`.
    pub len: u64,
}

/// The application's: the word of a buffer. What it says holds for the buffer as it is from now on.
#[inline]
pub fn owner<W: Atomic<Value = u64>>(word: &W) -> u64 {
    word.load(Ordering::Acquire)
}

/// The application's: gives a buffer to the other side, or takes it back, by its word.
#[inline]
pub fn hand_over<W: Atomic<Value = u64>>(word: &W, value: u64) {
    word.store(value, Ordering::Release);
}

/// The kernel's: may a packet go into the buffer whose word is here?
#[inline]
pub fn is_given_back(memory: &impl Memory, owner: u64) -> bool {
    memory.word(owner) == 0
}

/// The kernel's: puts what fits of a packet of this length into a buffer that was given back.
#[inline]
pub fn put(memory: &mut impl Memory, owner: u64, buffer: u64, fits: &[u8], length: usize) {
    memory.fill(buffer, fits);
    // The length last: it hands the buffer over.
    memory.word_set(owner, length as u64);
}

/// The kernel's: a packet of which a part lies where this word is for has been read to its end.
#[inline]
pub fn sent(memory: &mut impl Memory, pending: u64) {
    memory.word_add(pending, u64::MAX);
}

const _: () = assert!(core::mem::size_of::<RingEntry>() == 24);
const _: () = assert!(core::mem::size_of::<Piece>() == 16);
