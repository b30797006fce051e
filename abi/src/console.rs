//! The console's input ring: bytes that the kernel puts in and the terminal's owner takes out.
//!
//! ```text
//!  0x00  head   the kernel's: bytes ever put in
//!  0x08  tail   the owner's: bytes ever taken out
//!  0x10  bytes  the `n`th is at `n` % 4080
//! ```
//! A byte is there before `head` counts it, and taken before `tail` does. What a full ring has no
//! room for waits in the device. The kernel keeps its head to itself as well, and believes no
//! other.

use crate::atomic::{Atomic, Ordering};
use crate::layout::PAGE_SIZE;
use crate::shared::Memory;

/// Bytes that the ring holds.
pub const ROOM: u64 = PAGE_SIZE - FIRST;

/// Byte offsets.
const HEAD: u64 = 0;
const TAIL: u64 = 8;
const FIRST: u64 = 16;

/// The kernel's: makes an empty ring at this address.
pub fn begin(memory: &mut impl Memory, ring: u64) {
    memory.word_set(ring + HEAD, 0);
    memory.word_set(ring + TAIL, 0);
}

/// The kernel's: would a ring of so much room at this address take a byte, after the first `head`?
pub fn has_room<const ROOM: u64>(memory: &impl Memory, ring: u64, head: u64) -> bool {
    head.wrapping_sub(memory.word(ring + TAIL)) < ROOM
}

/// The kernel's: puts a byte behind the first `head`, for which there is room.
pub fn put<const ROOM: u64>(memory: &mut impl Memory, ring: u64, head: u64, byte: u8) {
    memory.fill(ring + FIRST + head % ROOM, &[byte]);
    memory.word_set(ring + HEAD, head.wrapping_add(1));
}

/// The owner's: takes the next byte. `word` and `byte`: those so far into the ring.
pub fn take<'a, const ROOM: u64, W, B>(
    word: impl Fn(u64) -> &'a W,
    byte: impl Fn(u64) -> &'a B,
) -> Option<u8>
where
    W: Atomic<Value = u64> + 'a,
    B: Atomic<Value = u8> + 'a,
{
    let tail = word(TAIL).load(Ordering::Relaxed);
    if word(HEAD).load(Ordering::Acquire) == tail {
        return None;
    }
    let taken = byte(FIRST + tail % ROOM).load(Ordering::Relaxed);
    word(TAIL).store(tail.wrapping_add(1), Ordering::Release);
    Some(taken)
}
