//! Words that one writes and many read as a whole: a word beside them says whether they are whole.
//!
//! ```text
//!  sequence  odd while the words are written; every change makes it another
//! ```
//! The words themselves are loaded and stored with no order of their own. A reader can't stop the
//! writer, and one that dies in the middle leaves words that nobody reads.

use abi::atomic::{Atomic, Ordering};

/// Changes the words; one at a time does so.
#[inline]
pub fn write<W: Atomic<Value = u64>>(sequence: &W, change: impl FnOnce()) {
    let odd = sequence.load(Ordering::Relaxed) | 1;
    sequence.store(odd, Ordering::Relaxed);
    // Nobody sees a word of the change beside the number of before it.
    W::fence(Ordering::Release);
    change();
    sequence.store(odd.wrapping_add(1), Ordering::Release);
}

/// What `read` found when nobody changed anything meanwhile; `None`: so many times somebody did.
#[inline]
pub fn read<W: Atomic<Value = u64>, T>(
    sequence: &W,
    attempts: usize,
    read: impl Fn() -> T,
) -> Option<T> {
    for _ in 0..attempts {
        let before = sequence.load(Ordering::Acquire);
        if before & 1 == 0 {
            let found = read();
            // What was found is not newer than the number that is looked at now.
            W::fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) == before {
                return Some(found);
            }
        }
        W::pause();
    }
    None
}
