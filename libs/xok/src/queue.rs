//! The owner's side of the queue of events: taking entries without a call.
//!
//! # Safety
//! The queue lies in the save area's page, in the part that is the program's, and nothing else
//! does: it is where [`PLACE`] says, behind the words of `upcall::block`. The kernel changes its
//! words from outside, so all are atomic.
#![allow(unsafe_code)]

use crate::start::SAVE_AREA;
use abi::queue::{ENTRIES, Entry, KINDS, offset};
use core::sync::atomic::{AtomicU64, Ordering};

/// Where a native program has its queue: for `EnvSetup::queue`.
pub const PLACE: u64 = SAVE_AREA + 0x800;

fn word(at: u64) -> &'static AtomicU64 {
    // SAFETY: see the head of the file.
    unsafe { AtomicU64::from_ptr((PLACE + at) as *mut u64) }
}

/// The oldest entry, if there is one; it makes room.
pub fn take() -> Option<Entry> {
    let taken = word(offset::TAKEN).load(Ordering::Relaxed);
    if word(offset::PUT).load(Ordering::Acquire) == taken {
        return None;
    }
    let at = offset::ENTRIES + 16 * (taken % ENTRIES as u64);
    let head = word(at).load(Ordering::Relaxed);
    let value = word(at + 8).load(Ordering::Relaxed);
    word(offset::TAKEN).store(taken.wrapping_add(1), Ordering::Release);
    Some(Entry { kind: head as u32, sender: (head >> 32) as u32, value })
}

/// How many of this kind found no room since this was last asked.
pub fn take_overflow(kind: usize) -> u64 {
    word(offset::OVERFLOW + 8 * (kind % KINDS) as u64).swap(0, Ordering::AcqRel)
}
