//! Structures in memory that several processors change at once and nobody locks.
//!
//! Each is generic over its words ([`abi::atomic::Atomic`]): the kernel and programs have
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
