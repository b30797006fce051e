//! Xok: the kernel that only protects. This crate does to the machine what `kernel-core` decides.
//!
//! ```text
//!  boot      start ─► start_info, memory_map ─► platform ─► paging, carve ─► smp ─► run
//!  entry     entry (one page for each processor) ─► syscall, traps ─► kernel_core ─► run::leave
//!  doing     hardware (the `Machine` trait), user, vector, bases, shootdown
//! ```
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod backtrace;
mod bases;
mod boot;
mod carve;
mod console;
mod cpu;
mod delay;
mod descriptors;
mod devices;
mod downloads;
mod entropy;
mod entry;
mod fast;
mod features;
mod half;
mod hardware;
mod load;
mod lock;
mod locked;
mod log;
mod mitigate;
mod paging;
mod patch;
mod physical;
mod platform;
mod power;
mod provoke;
mod registers;
mod run;
mod shootdown;
mod stretch;
mod syscall;
mod trace;
mod traps;
mod user;
mod vector;
mod virtio;

pub use boot::sequence::{everything_is_ready, second_half, start, start_other};
