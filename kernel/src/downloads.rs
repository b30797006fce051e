//! Downloaded code where it runs: pages for methods, cells for predicates, the calls into both.
//!
//! # Safety
//! What is called was compiled by `code::compiler` from a verified function, for a signature that
//! the core keeps with it, and lies in a page that the core has shown and not hidden; it touches
//! the context and the memory that this borrows, and gives back the registers that it must. The
//! lock is held: nobody hides or fills a page meanwhile.
#![allow(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::memory::PRESENT;
use code::argument::{Argument, Outcome};
use code::context::Context;
use code::signature::Signature;
use code::watch::ENTRY;
use kernel_core::compiled::CELL_BYTES;

use crate::cpu::Cpu;
use crate::mitigate::call_compiled;
use crate::paging::{CELL_WINDOW, CODE_WINDOW};
use crate::{entropy, physical, registers};

/// The window's level-1 table.
static TABLE: AtomicU64 = AtomicU64::new(0);
/// Counts how often code was put anywhere.
static WRITTEN: AtomicU64 = AtomicU64::new(1);

/// Physical address of the cells for predicates, and how many there are.
static CELLS: AtomicU64 = AtomicU64::new(0);
static CELL_COUNT: AtomicUsize = AtomicUsize::new(0);
/// What predicates are blinded by.
static KEY: AtomicU64 = AtomicU64::new(0);

/// Where the window's entries are, and the cells, once at boot.
pub fn place(table: u64, cells: u64, count: usize) {
    TABLE.store(table, Ordering::Relaxed);
    CELLS.store(cells, Ordering::Relaxed);
    CELL_COUNT.store(count, Ordering::Relaxed);
}

/// What predicates are blinded by: drawn when it is first needed.
pub fn key() -> u64 {
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        return key;
    }
    let drawn = entropy::random().unwrap_or_else(registers::rdtsc) | 1;
    // The lock is held.
    KEY.store(drawn, Ordering::Relaxed);
    drawn
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

/// Runs nothing on this processor that was fetched before code was last written (SDM 3A, 10.1.3:
/// another processor may have written what this one has fetched ahead).
#[inline(always)]
fn catch_up(cpu: &Cpu) {
    let written = WRITTEN.load(Ordering::Relaxed);
    if cpu.code_seen.replace(written) != written {
        registers::serialize();
    }
}

/// Puts a compiled predicate into a cell. Nobody runs it meanwhile: the lock is held.
pub fn store(cell: usize, code: &[u8]) {
    assert!(cell < CELL_COUNT.load(Ordering::Relaxed) && code.len() <= CELL_BYTES);
    physical::fill(CELLS.load(Ordering::Relaxed) + (cell * CELL_BYTES) as u64, code);
    WRITTEN.fetch_add(1, Ordering::SeqCst);
}

/// Does the predicate in a cell hold?
#[inline]
pub fn holds(cpu: &Cpu, cell: usize, now: u64) -> bool {
    catch_up(cpu);
    let at = CELL_WINDOW + (cell * CELL_BYTES + ENTRY) as u64;
    // SAFETY: see the file's head: the core has stored what `code::watch` compiled there.
    unsafe { call_compiled(now, KEY.load(Ordering::Relaxed), at) != 0 }
}

/// Runs the function that begins at `page`.
pub fn run(cpu: &Cpu, page: usize, signature: &Signature, arguments: &mut [Argument]) -> Outcome {
    // The core's arguments fit the core's signature.
    let Ok(mut context) = Context::new(signature, arguments, 0) else { return Outcome::Outside };
    catch_up(cpu);
    let at = CODE_WINDOW + page as u64 * PAGE_SIZE;
    // SAFETY: see the file's head.
    let ending = unsafe { call_compiled(context.prepare() as u64, 0, at) };
    context.outcome(ending)
}
