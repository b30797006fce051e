//! The guest's judge: runs each test in the machine and demands that nothing is left behind.
//!
//! Started by the kernel as the first program (`init=/xok/guest-tests`) it holds every right. It
//! runs the tests of `suite` in order; a test that needs a second party spawns this same program
//! with the name of an `assistant`. After each test frames, environments, domains and regions must
//! be what they were before.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod abroad;
#[cfg(target_os = "none")]
mod assembler;
#[cfg(target_os = "none")]
mod assistant;
#[cfg(target_os = "none")]
mod faults;
#[cfg(target_os = "none")]
mod judge;
#[cfg(target_os = "none")]
mod random;
#[cfg(target_os = "none")]
mod suite;

#[cfg(target_os = "none")]
mod program {
    #![allow(unsafe_code)]
    //! # Safety
    //! Declares the program's entry and heap, as `xok::program` says.
    xok::program!(super::run);
}

#[cfg(target_os = "none")]
fn run(argument: &'static [u8]) {
    if argument.is_empty() { judge::run() } else { assistant::run(argument) }
}
