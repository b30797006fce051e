//! What the kernel and everything above it agree on: calls, words, errors, names, layouts.
//!
//! Nothing here runs but what both sides do to memory that they share; it depends on nothing, and
//! both sides, the host's tools included, depend on it. Read in this order: [`layout`] (the address
//! space), [`call`] (the one table of calls), [`upcall`] (how the kernel speaks to a program),
//! [`published`] (what all may read).
//!
//! ```text
//!  program / library OS                         kernel
//!  ────────────────────                         ──────
//!  rax = number | capability << 16   syscall    decode ─► check ─► apply
//!  rdi rsi rdx r10 r8 r9           ─────────►
//!  rax = 0 or error, rdx = value   ◄─────────   argument registers: as they were, or 0
//!
//!  save area (own page)            ◄─────────   faults, foreign calls, slices, posts, packets
//!  published pages (read-only)     ◄─────────   environments, frames, slices, clock, counters
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod atomic;
pub mod call;
pub mod capability;
pub mod console;
pub mod domain;
pub mod error;
pub mod extent;
pub mod filter;
pub mod id;
pub mod layout;
pub mod limits;
pub mod memory;
pub mod method;
pub mod predicate;
pub mod published;
pub mod queue;
pub mod region;
pub mod ring;
pub mod setup;
pub mod shared;
pub mod trace;
pub mod upcall;
pub mod word;
