//! Pages at fixed addresses for tests to share with the kernel, used as words only.
//!
//! # Safety
//! The pages are mapped here, once, at addresses nothing else uses, and stay; they are reached as
//! atomics alone, by us and by the kernel.
#![allow(unsafe_code)]

use abi::layout::PAGE_SIZE;
use core::sync::atomic::AtomicU64;
use xok::call::Refused;
use xok::memory::{DATA, Space};

/// Words of a page.
pub const WORDS: usize = PAGE_SIZE as usize / 8;

/// Maps `count` fresh pages at `address`.
pub fn map(address: u64, count: usize) -> Result<&'static [AtomicU64], Refused> {
    Space::own().allocate(address, count as u64, DATA)?;
    Ok(words(address, count))
}

/// The words of `count` pages that were mapped at `address` by other means.
pub fn words(address: u64, count: usize) -> &'static [AtomicU64] {
    // SAFETY: mapped; see the head of the file.
    unsafe { core::slice::from_raw_parts(address as *const AtomicU64, count * WORDS) }
}

/// A word anywhere, as the argument of a call: it is never touched here.
pub fn word_at(address: u64) -> &'static AtomicU64 {
    // SAFETY: only the address is used, by the kernel, which checks it; multiples of 8 alone are
    // passed.
    unsafe { &*(address as *const AtomicU64) }
}
