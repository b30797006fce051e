//! The console: its input ring, which the kernel fills, and its output streams.
//!
//! # Safety
//! The ring is one static page. The kernel writes its head word and data bytes, this program its
//! tail word; all are read and written through atomics of the page.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use xok::call::{self, Refused};

/// Index of the capability over the console, given by init.
pub const CONSOLE: u8 = 1;
/// The terminal's stream, or standard output.
pub const OUTPUT: u16 = 0;
/// Standard error of a program that runs without a terminal.
pub const ERROR: u16 = 1;
/// Bytes that the ring holds.
const CAPACITY: u64 = 4080;

#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; 4096]>);
// SAFETY: reached through atomics only (see the head of the file).
unsafe impl Sync for Page {}
static PAGE: Page = Page(UnsafeCell::new([0; 4096]));

fn word(offset: usize) -> &'static AtomicU64 {
    // SAFETY: inside the static page, aligned, never referenced otherwise.
    unsafe { &*(PAGE.0.get().cast::<u8>().add(offset).cast::<AtomicU64>()) }
}

/// Has the kernel fill the ring from now on.
pub fn open() -> Result<(), Refused> {
    call::console_ring(CONSOLE, PAGE.0.get() as u64).map(|_| ())
}

/// The next byte that arrived.
pub fn next() -> Option<u8> {
    let tail = word(8).load(Ordering::Relaxed);
    if word(0).load(Ordering::Acquire) == tail {
        return None;
    }
    let at = 16 + (tail % CAPACITY) as usize;
    // SAFETY: 16 + CAPACITY is the page's size.
    let byte = unsafe { &*(PAGE.0.get().cast::<u8>().add(at).cast::<AtomicU8>()) };
    let byte = byte.load(Ordering::Relaxed);
    word(8).store(tail + 1, Ordering::Release);
    Some(byte)
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
