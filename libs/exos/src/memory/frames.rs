//! Filling pages: zeros, parts of the image, copies of what was there.
//!
//! # Safety
//! Every function writes one page that the caller has just mapped writable for the purpose, or
//! reads pages that it knows to be present; nobody refers to either.
#![allow(unsafe_code)]

use crate::layout::IMAGE;
use abi::layout::PAGE_SIZE;
use core::arch::asm;

const WORDS: usize = PAGE_SIZE as usize / 8;

/// Fills the page at `page` with zeros.
pub fn zero(page: u64) {
    // SAFETY: head of the file.
    unsafe {
        asm!("rep stosq", inout("rcx") WORDS => _, inout("rdi") page => _, in("rax") 0_u64,
            options(nostack, preserves_flags));
    }
}

/// Copies the page at `from` to the page at `to`.
pub fn copy(to: u64, from: u64) {
    // SAFETY: head of the file; the pages are different ones.
    unsafe {
        asm!("rep movsq", inout("rcx") WORDS => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// Fills the page with the image's bytes from `offset` on, `bytes` of them, and zeros behind.
pub fn fill_from_image(page: u64, offset: u64, bytes: u64) {
    let bytes = bytes.min(PAGE_SIZE) as usize;
    // SAFETY: head of the file; the image is mapped whole, and `offset + bytes` lies in it.
    unsafe {
        core::ptr::copy_nonoverlapping((IMAGE + offset) as *const u8, page as *mut u8, bytes);
        core::ptr::write_bytes((page as *mut u8).add(bytes), 0, PAGE_SIZE as usize - bytes);
    }
}

/// Copies `bytes` to `offset` in the page at `page`, not beyond its end.
pub fn put(page: u64, offset: usize, bytes: &[u8]) {
    let offset = offset.min(PAGE_SIZE as usize);
    let len = bytes.len().min(PAGE_SIZE as usize - offset);
    // SAFETY: head of the file.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (page as *mut u8).add(offset), len) }
}
