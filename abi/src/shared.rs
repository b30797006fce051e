//! Memory that the kernel shares with programs: how the kernel reaches it, and in which order.
//!
//! What the kernel puts there and a program takes is generic over this and over the program's
//! words ([`crate::atomic`]), so that both sides' steps are tried in all orders as they are run.

use crate::atomic::Ordering;

/// How the kernel loads a word.
pub const LOAD: Ordering = Ordering::SeqCst;
/// How it stores one. What must be seen in one order with a load goes by a step instead.
pub const STORE: Ordering = Ordering::Release;
/// How it loads and stores one at once.
pub const STEP: Ordering = Ordering::SeqCst;

/// Memory by address, as the kernel has it.
pub trait Memory {
    /// Loads a word, by [`LOAD`].
    fn word(&self, at: u64) -> u64;
    /// Stores a word, by [`STORE`].
    fn word_set(&mut self, at: u64, value: u64);
    /// Or-s bits into a word, by [`STEP`]; the old word.
    fn word_or(&mut self, at: u64, bits: u64) -> u64;
    /// Adds to a word, wrapping, by [`STEP`]; the old word.
    fn word_add(&mut self, at: u64, value: u64) -> u64;
    /// Copies bytes there, in no order of their own.
    fn fill(&mut self, at: u64, bytes: &[u8]);
}
