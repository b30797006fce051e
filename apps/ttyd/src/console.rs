//! The console: its input ring, which the kernel fills, and its output streams.
//!
//! # Safety
//! The ring is one static page (`abi::console`). The kernel writes its head word and data bytes,
//! this program its tail word; all are read and written through atomics of the page.
#![allow(unsafe_code)]

use abi::console::{self, ROOM};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU64};
use xok::call::{self, Refused};

/// Index of the capability over the console, given by init.
pub const CONSOLE: u8 = 1;
/// The terminal's stream, or standard output.
pub const OUTPUT: u16 = 0;
/// Standard error of a program that runs without a terminal.
pub const ERROR: u16 = 1;

#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; 4096]>);
// SAFETY: reached through atomics only (see the head of the file).
unsafe impl Sync for Page {}
static PAGE: Page = Page(UnsafeCell::new([0; 4096]));

fn byte(offset: u64) -> &'static AtomicU8 {
    assert!(offset < size_of::<Page>() as u64);
    // SAFETY: inside the static page, reached through atomics only.
    unsafe { &*(PAGE.0.get().cast::<AtomicU8>().add(offset as usize)) }
}

fn word(offset: u64) -> &'static AtomicU64 {
    assert!(offset + 8 <= size_of::<Page>() as u64 && offset.is_multiple_of(8));
    // SAFETY: inside the static page, aligned, reached through atomics only.
    unsafe { &*(PAGE.0.get().cast::<u8>().add(offset as usize).cast::<AtomicU64>()) }
}

/// Has the kernel fill the ring from now on.
pub fn open() -> Result<(), Refused> {
    call::console_ring(CONSOLE, PAGE.0.get() as u64).map(|_| ())
}

/// The next byte that arrived.
pub fn next() -> Option<u8> {
    console::take::<ROOM, _, _>(word, byte)
}

/// Writes all of `bytes`; a console that takes nothing ends it.
pub fn write(stream: u16, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match call::console_write(CONSOLE, stream, rest) {
            Ok(taken) if taken > 0 => rest = &rest[(taken as usize).min(rest.len())..],
            _ => return,
        }
    }
}
