//! The version words in the server's application page (`unix::versions`).
//!
//! # Safety
//! The page is mapped writable for the server alone, at the place all native programs have it.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering, fence};
use unix::tree::Id;
use unix::versions::{MAGIC, number, pack};
use xok::start::APPLICATION_PAGE;

fn word(number: u32) -> &'static AtomicU64 {
    // SAFETY: one of the page's 512 words, see the head of the file.
    unsafe { AtomicU64::from_ptr((APPLICATION_PAGE + 8 * u64::from(number)) as *mut u64) }
}

/// From now on the words count.
pub fn open() {
    word(0).store(MAGIC, Ordering::Release);
}

/// Says that an inode has changed.
pub fn advance(node: Id) {
    let word = word(number(node));
    // One writer: no need for an addition in one step.
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// The inode's word now, packed.
pub fn seen(node: Id) -> u64 {
    let number = number(node);
    pack(number, word(number).load(Ordering::Relaxed))
}

/// Whatever is read from now on was written after everybody could see the words.
pub fn finish() {
    fence(Ordering::SeqCst);
}
