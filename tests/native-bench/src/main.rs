//! What the kernel's own mechanisms cost a native program: rows beside those of `tests/bench`.
//!
//! Started by the kernel as the first program (`init=/xok/native-bench`, `rows=`, `samples=`), it
//! prints into the kernel's log what the other prints on its console. Its second parties are this
//! program again, told apart by their start block.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod cpus;
#[cfg(target_os = "none")]
mod faults;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod partner;
#[cfg(target_os = "none")]
mod row;
#[cfg(target_os = "none")]
mod rows;
#[cfg(target_os = "none")]
mod shared;
#[cfg(target_os = "none")]
mod sibling;

#[cfg(target_os = "none")]
mod program {
    #![allow(unsafe_code)]
    //! # Safety
    //! Declares the program's entry and heap, as `xok::program` says.
    xok::program!(super::run);
}

#[cfg(target_os = "none")]
fn run(argument: &'static [u8]) {
    if argument.is_empty() { rows::run() } else { partner::run(argument) }
}
