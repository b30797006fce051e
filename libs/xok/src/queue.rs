//! The owner's side of the queue of events: taking entries without a call.
//!
//! # Safety
//! The queue lies in the save area's page, in the part that is the program's, and nothing else
//! does: it is where [`PLACE`] says, behind the words of `upcall::block`. The kernel changes its
//! words from outside, so all are atomic.
#![allow(unsafe_code)]

use crate::start::SAVE_AREA;
use abi::queue::{self, ENTRIES, Entry};
use core::sync::atomic::AtomicU64;

/// Where a native program has its queue: for `EnvSetup::queue`.
pub const PLACE: u64 = SAVE_AREA + 0x800;

fn word(at: u64) -> &'static AtomicU64 {
    // SAFETY: see the head of the file.
    unsafe { AtomicU64::from_ptr((PLACE + at) as *mut u64) }
}

/// The oldest entry, if there is one; it makes room.
pub fn take() -> Option<Entry> {
    queue::take::<ENTRIES, _>(word)
}

/// How many of this kind found no room since this was last asked.
pub fn take_overflow(kind: usize) -> u64 {
    queue::take_overflow(word, kind)
}
