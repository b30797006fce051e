//! Faults on purpose, and a handler that lets the program go on.
//!
//! # Safety
//! Holds the instructions that fault. The handler skips those of two bytes, or makes the page that
//! was stored to writable again.
#![allow(unsafe_code)]

use abi::upcall::Cause;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xok::upcall::Slot;

/// The pages that the handler unprotects, and where none is mapped.
static AREA: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether pages of the area are missing, and to be filled.
static FILLS: AtomicBool = AtomicBool::new(false);
/// Faults since the start.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Makes the handler below the program's. Stores to pages from `area` on, up to the end of the
/// lower half, are repeated.
pub fn install(area: u64) {
    AREA.store(area, Ordering::Relaxed);
    FILLS.store(false, Ordering::Relaxed);
    xok::start::set_handler(handler);
}

/// From now on what is missing is filled.
pub fn fill() {
    FILLS.store(true, Ordering::Relaxed);
}

/// Faults so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

extern "C" fn handler(slot: &mut Slot, cause: u64, address: u64) {
    if cause == Cause::Event as u64 {
        xok::upcall::take_events();
        xok::upcall::take_pending();
        return;
    }
    // One environment: nobody counts beside us.
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let area = AREA.load(Ordering::Relaxed);
    if cause == Cause::PageFault as u64 && address >= area {
        let page = address & !(abi::layout::PAGE_SIZE - 1);
        if FILLS.load(Ordering::Relaxed) {
            crate::memory::fill(page);
        } else {
            crate::memory::unprotect(page);
        }
    } else {
        slot.rip += 2;
    }
}

/// Copies a page to one that has just been entered.
pub fn put(page: u64) {
    static CONTENT: [u64; 512] = [7; 512];
    // SAFETY: the page is part of the area, entered by the handler for this.
    unsafe { core::ptr::copy_nonoverlapping(CONTENT.as_ptr(), page as *mut u64, CONTENT.len()) }
}

/// Executes ud2.
#[inline(always)]
pub fn undefined() {
    // SAFETY: the handler skips it.
    unsafe { asm!("ud2", options(nostack)) }
}

/// Reads a byte where nothing is mapped.
#[inline(always)]
pub fn load(address: u64) {
    // SAFETY: the handler skips the load, which has two bytes; the register is not used.
    unsafe { asm!("mov al, [rdi]", in("rdi") address, out("al") _, options(nostack)) }
}

/// Stores a byte to a page of the area, which may be protected.
#[inline(always)]
pub fn store(address: u64) {
    // SAFETY: the area is the caller's own memory, referred to by nobody else; the handler
    // unprotects a page that is protected and repeats the store.
    unsafe { asm!("mov [rdi], al", in("rdi") address, in("al") 1_u8, options(nostack)) }
}
