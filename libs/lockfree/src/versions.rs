//! Words by which one who is asked seldom says what still holds, and others say what they hold.
//!
//! ```text
//!  a version  the server's, which all may read: every change of what it is for makes it another
//!  a hold     a client's, which all may read: what the server must not end
//! ```
//! What was told together with a version holds as long as that is the same. The server moves a
//! version and then looks at holds; a client says what it holds and then looks at the version. So
//! one of the two sees the other, and nobody asks.

use abi::atomic::{Atomic, Ordering};

/// The server's, the only one who changes the word: something has changed.
#[inline]
pub fn advance<W: Atomic<Value = u64>>(version: &W) {
    version.store(version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// The server's: something changes from now on. Who sees any of that sees the version moved.
#[inline]
pub fn begin<W: Atomic<Value = u64>>(version: &W) {
    advance(version);
    W::fence(Ordering::Release);
}

/// The server's: what a version is, to be told.
#[inline]
pub fn told<W: Atomic<Value = u64>>(version: &W) -> u64 {
    version.load(Ordering::Relaxed)
}

/// A client's: says that it holds something, or something else, by a word of its own.
#[inline]
pub fn say<W: Atomic<Value = u64>>(hold: &W, held: u64) {
    hold.store(held, Ordering::Release);
}

/// Both sides': between what one has said, by versions or a hold, and a look at the other's words.
#[inline]
pub fn said<W: Atomic>() {
    W::fence(Ordering::SeqCst);
}

/// A client's: copies what may change meanwhile; `None`: it has, or `copy` found nothing. `holds`
/// looks at the versions, in no order of its own.
#[inline]
pub fn copy<W: Atomic, T>(
    copy: impl FnOnce() -> Option<T>,
    holds: impl FnOnce() -> bool,
) -> Option<T> {
    let copied = copy()?;
    W::fence(Ordering::Acquire);
    holds().then_some(copied)
}
