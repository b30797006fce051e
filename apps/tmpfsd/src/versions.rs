//! The version words in the server's application page (`unix::versions`).
//!
//! # Safety
//! The page is mapped writable for the server alone, at the place all native programs have it.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use lockfree::versions;
use unix::tree::Id;
use unix::versions::{MAGIC, WORDS, first, number, pack};
use xok::start::APPLICATION_PAGE;

fn word(number: u32) -> &'static AtomicU64 {
    // SAFETY: one of the page's 512 words, see the head of the file.
    unsafe { AtomicU64::from_ptr((APPLICATION_PAGE + 8 * u64::from(number)) as *mut u64) }
}

/// From now on the words count.
pub fn open(life: u64) {
    for number in 1..=WORDS {
        word(number).store(first(life), Ordering::Release);
    }
    word(0).store(MAGIC, Ordering::Release);
}

/// Says that an inode has changed.
pub fn advance(node: Id) {
    versions::advance(word(number(node)));
}

/// Says that an inode changes from now on: who reads what is shown meanwhile sees that.
pub fn begin(node: Id) {
    versions::begin(word(number(node)));
}

/// The inode's word now, packed.
pub fn seen(node: Id) -> u64 {
    let number = number(node);
    pack(number, versions::told(word(number)))
}

/// Whatever is read from now on was written after everybody could see the words.
pub fn finish() {
    versions::said::<AtomicU64>();
}
