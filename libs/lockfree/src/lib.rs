//! Structures in memory that several processors change at once and nobody locks.
//!
//! Each is generic over its [`Word`]: programs have processors' atomics in pages that they share,
//! the tests in `tests/` have loom's, which try every order of every step.
//!
//! ```text
//!  board     thousands of conditions: which of them hold, and one post for who waits
//!  pipe      bytes from one to another
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod board;
pub mod pipe;

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// A word that others change.
pub trait Word {
    /// What stands there; what was stored before it is seen as well.
    fn load(&self) -> u64;
    /// Stores, after everything that was stored before.
    fn store(&self, value: u64);
    /// Stores and answers what stood there, as one step.
    fn swap(&self, value: u64) -> u64;
    /// Sets these bits and answers what stood there, as one step.
    fn set_bits(&self, bits: u64) -> u64;
    /// Nothing behind it is read before what stands in front of it is stored, for all to see.
    fn fence();
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        self.swap(value, Ordering::AcqRel)
    }

    #[inline(always)]
    fn set_bits(&self, bits: u64) -> u64 {
        self.fetch_or(bits, Ordering::AcqRel)
    }

    #[inline(always)]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}
