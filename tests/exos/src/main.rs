//! A static Linux program that looks at the exokernel below ExOS while it uses Linux calls.
//!
//! It makes Linux system calls only; what it learns of the kernel it reads from the published pages
//! and its own page tables, which are mapped into every space. So it shows what ExOS does: that
//! `fork` is a library's work, in batches, by copy-on-write; that the library's text is one copy;
//! that the process table is read without a call.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod leaks;
#[cfg(target_os = "none")]
mod linux;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod pipes;
#[cfg(target_os = "none")]
mod shown;
#[cfg(target_os = "none")]
mod sites;
#[cfg(target_os = "none")]
mod start;
#[cfg(target_os = "none")]
mod suite;
#[cfg(target_os = "none")]
mod threads;
#[cfg(target_os = "none")]
mod witness;
