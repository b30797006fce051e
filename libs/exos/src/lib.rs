//! ExOS, the library OS: runs unmodified static Linux programs in their own address space.
//!
//! ```text
//!  program ── syscall ──► kernel ── sends back ──► table ──► fs, memory, signal, exec, …
//!                                                    │
//!            published pages, own tables ◄── reads ──┴── few calls ──► kernel
//! ```
//! Read in this order: [`layout`] (where everything lies), [`process`] (what a process is),
//! [`table`] (one row for each Linux call), [`wait`] (how anything blocks), [`user`] (program
//! memory).
#![cfg_attr(target_os = "none", no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod belief;
pub mod capabilities;
pub mod children;
pub mod door;
pub mod environment;
pub mod errno;
pub mod exec;
pub mod exit;
pub mod fork;
pub mod fs;
pub mod futex;
pub mod group_list;
pub mod groups;
pub mod heap;
pub mod identity;
pub mod layout;
pub mod library;
pub mod loader;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod net;
pub mod orphans;
pub mod others;
pub mod page;
pub mod parts;
pub mod posix_timers;
pub mod privileges;
pub mod process;
pub mod replace;
pub mod rewrite;
pub mod said;
pub mod set_id;
pub mod signal;
pub mod stack;
pub mod start;
pub mod start_block;
pub mod table;
pub mod thread;
pub mod threads;
pub mod time;
pub mod trace;
pub mod trivial;
pub mod unix_sockets;
pub mod user;
pub mod wait;
