//! What is loaded: the boot image's archive and the load plan of an ELF file.
//!
//! Both are read by the kernel, by ExOS and by programs on the host, from bytes that nobody vouches
//! for; so both are pure functions of a byte slice, without allocation and without `unsafe`, and
//! each reason to refuse has a name.
//!
//! Neighbours: `xtask` writes archives with `archive::Builder` (feature `write`); the kernel opens
//! the one that it was booted with; ExOS maps files out of it and loads programs by [`elf::Plan`].

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "write"))]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod archive;
mod bytes;
pub mod elf;

#[cfg(test)]
mod random;
