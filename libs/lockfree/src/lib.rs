//! Structures in memory that several processors change at once and nobody locks.
//!
//! Each is generic over its words ([`Word`], [`abi::atomic::Atomic`]): the kernel and programs have
//! processors' atomics, the tests in `tests/` have loom's, which try every order of every step.
//!
//! ```text
//!  awaited   a lock for which one may sleep
//!  board     thousands of conditions: which of them hold, and one post for who waits
//!  half      a processor's own part of a lock, for a path without it
//!  mailbox   what a processor is asked to do before others go on
//!  pipe      bytes from one to another
//!  sequence  words that one writes and all read as a whole
//!  spin      a spin lock's word
//!  versions  what still holds, and what is held, said to all
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod awaited;
pub mod board;
pub mod half;
pub mod mailbox;
pub mod pipe;
pub mod sequence;
pub mod spin;
pub mod versions;

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
