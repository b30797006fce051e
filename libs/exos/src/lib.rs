//! ExOS, the library OS: runs unmodified static Linux programs in the lower half of their own space.
//!
//! ```text
//!  program ── syscall ──► kernel ── sends back ──► table ──► fs, memory, signal, exec, …
//!                                                    │
//!            published pages, own tables ◄── reads ──┴── few calls ──► kernel
//! ```
//! Read in this order: [`layout`] (where everything lies), [`process`] (what a process is), [`table`]
//! (one row for each Linux call), [`wait`] (how anything blocks), [`user`] (program memory).
#![cfg_attr(target_os = "none", no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod errno;
pub mod fs;
pub mod heap;
pub mod layout;
pub mod process;
pub mod start;
pub mod table;
pub mod user;
pub mod wait;
