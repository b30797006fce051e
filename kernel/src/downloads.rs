//! Downloaded code where it runs: the window's pages, and the call into them.
//!
//! # Safety
//! What is called was compiled by `code::compiler` from a verified function, for a signature that
//! the core keeps with it, and lies in a page that the core has shown and not hidden; it touches
//! the context and the memory that this borrows, and gives back the registers that it must. The
//! lock is held: nobody hides or fills a page meanwhile.
#![allow(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::memory::PRESENT;
use code::argument::{Argument, Outcome};
use code::context::Context;
use code::signature::Signature;

use crate::cpu::Cpu;
use crate::paging::CODE_WINDOW;
use crate::{physical, registers};

/// The window's level-1 table.
static TABLE: AtomicU64 = AtomicU64::new(0);
/// Counts how often code was put anywhere.
static WRITTEN: AtomicU64 = AtomicU64::new(1);

/// Where the window's entries are, once at boot.
pub fn place(table: u64) {
    TABLE.store(table, Ordering::Relaxed);
}

fn set(page: usize, entry: u64) {
    let table = physical::table(TABLE.load(Ordering::Relaxed));
    table[page].store(entry, Ordering::SeqCst);
}

/// Shows filled frames: they can be run, and not written, from here.
pub fn show(page: usize, frames: &[Frame]) {
    for (at, frame) in frames.iter().enumerate() {
        set(page + at, frame.address() | PRESENT);
    }
    WRITTEN.fetch_add(1, Ordering::SeqCst);
}

/// Shows nothing there any more.
pub fn hide(pages: Range<usize>) {
    pages.for_each(|page| set(page, 0));
}

/// Runs the function that begins at `page`.
pub fn run(cpu: &Cpu, page: usize, signature: &Signature, arguments: &mut [Argument]) -> Outcome {
    // The core's arguments fit the core's signature.
    let Ok(mut context) = Context::new(signature, arguments, 0) else { return Outcome::Outside };
    let written = WRITTEN.load(Ordering::SeqCst);
    if cpu.code_seen.replace(written) != written {
        // Another processor may have written what this one has fetched ahead (SDM 3A, 10.1.3).
        registers::serialize();
    }
    let at = CODE_WINDOW + page as u64 * PAGE_SIZE;
    type Compiled = extern "sysv64" fn(*mut Context) -> u64;
    // SAFETY: see the file's head.
    let function: Compiled = unsafe { core::mem::transmute(at as *const ()) };
    let ending = function(context.prepare());
    context.outcome(ending)
}
