//! The vDSO: time and processor number from the published pages, without a call (vdso(7)).
//!
//! A shared object that ExOS maps into every program and names by `AT_SYSINFO_EHDR`. It has one
//! segment and nothing to relocate, so it has no constants that are addresses, no variables and no
//! panics: arithmetic wraps, and nothing is indexed.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod calls;
#[cfg(target_os = "none")]
mod clock;
