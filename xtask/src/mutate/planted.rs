//! Which planted fault this boot has.
//!
//! A module of `abi` in the copy of the tree that `cargo xtask mutate` builds, and nowhere else.
//! The kernel takes `mutate=ID` from its command line and publishes the fault's number; programs
//! read it there, tests on the host get it from their environment.
//!
//! # Safety
//! Reads the code segment, a published word that every space maps, and the environment.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

include!("planted_names.rs");

/// The kernel's: the number of the fault, 0: none.
pub static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Is this the fault that was chosen?
#[cfg(target_os = "none")]
#[inline(never)]
pub fn planted(number: u32) -> bool {
    let segment: u64;
    // SAFETY: only reads the segment's number.
    unsafe { core::arch::asm!("mov {}, cs", out(reg) segment, options(nomem, nostack)) }
    if segment & 3 == 0 {
        return chosen() == number;
    }
    let zero = core::mem::offset_of!(crate::published::Directory, zero) as u64;
    let word = (crate::layout::PUBLISHED + zero) as *const u64;
    // SAFETY: a word of the directory, mapped wherever programs run.
    unsafe { word.read_volatile() == u64::from(number) }
}

/// Is this the fault that was chosen? For sources of the kernel alone: one comparison and one jump.
#[cfg(target_os = "none")]
#[inline(always)]
pub fn in_kernel(number: u32) -> bool {
    #[cold]
    fn rarely() {}
    let is_chosen = chosen() == number;
    if is_chosen {
        rarely();
    }
    is_chosen
}

/// Is this the fault that was chosen?
#[cfg(not(target_os = "none"))]
pub use planted as in_kernel;

/// Is this the fault that was chosen?
#[cfg(not(target_os = "none"))]
pub fn planted(number: u32) -> bool {
    unsafe extern "C" {
        fn getenv(name: *const core::ffi::c_char) -> *const core::ffi::c_char;
    }
    if CHOSEN.load(Ordering::Relaxed) == 0 {
        // SAFETY: getenv(3) of a string that ends; nobody changes the environment.
        let value = unsafe { getenv(c"XOK_MUTATE".as_ptr()) };
        if !value.is_null() {
            // SAFETY: getenv(3) answers a string that ends.
            choose(unsafe { core::ffi::CStr::from_ptr(value) }.to_str().unwrap_or(""));
        }
    }
    CHOSEN.load(Ordering::Relaxed) == number
}

/// The kernel's: the number of the fault, 0: none.
#[inline(always)]
pub fn chosen() -> u32 {
    CHOSEN.load(Ordering::Relaxed)
}

/// The kernel's, at boot: takes `mutate=ID` from the command line.
pub fn choose_from(line: &str) {
    let words = line.split(' ').filter_map(|word| word.strip_prefix("mutate="));
    words.for_each(choose);
}

fn choose(id: &str) {
    let number = NAMES.iter().position(|name| *name == id);
    CHOSEN.store(number.expect("no such planted fault") as u32, Ordering::Relaxed);
}
