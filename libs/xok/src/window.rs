//! The page at `memory::WINDOW`, filled and read while it is mapped.
//!
//! # Safety
//! Only `memory` and `spawn` map the window, for the length of one function each; one
//! environment a domain does so at a time.
#![allow(unsafe_code)]

use crate::memory::WINDOW;
use crate::upcall::{Beginning, Handler};

/// Copies `bytes` (at most a page) to the start of the window's page, which is mapped writable.
pub fn fill(bytes: &[u8]) {
    let len = bytes.len().min(4096);
    // SAFETY: the caller has mapped the window; `bytes` lies elsewhere.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), WINDOW as *mut u8, len) }
}

/// Fills the window's first `pages` pages with zeroes.
pub fn clear(pages: u64) {
    let bytes = (pages.min(crate::memory::WINDOW_PAGES) * 4096) as usize;
    // SAFETY: the caller has mapped that many pages, writable.
    unsafe { core::ptr::write_bytes(WINDOW as *mut u64, 0, bytes / 8) }
}

/// Copies from `offset` in the window's page.
pub fn fill_at(offset: usize, bytes: &[u8]) {
    let offset = offset.min(4096);
    let len = bytes.len().min(4096 - offset);
    // SAFETY: the caller has mapped the window; the range stays in its page.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), (WINDOW as *mut u8).add(offset), len);
    }
}

/// Writes the library's words of the save area that the window shows: as `upcall::prepare`, for
/// an environment whose save area will be mapped at `save_area`.
pub fn prepare_save_area(save_area: u64, stacks: [u64; 4], handler: Handler) {
    let beginning = Beginning { save_area, stacks, handler, trivial: &[], sample: 0 };
    // SAFETY: the window shows a fresh page that nobody else refers to.
    unsafe { crate::upcall::prepare(WINDOW, &beginning) };
}
