//! A program that switches its own context at the end of its slices, and looks at what it gets.
//!
//! # Safety
//! Assembly that fills the registers with patterns and waits, and an event entry that records what
//! it finds before the library's own, where the library's entry would begin. What is kept is in the
//! application page, reached through GS.
#![allow(unsafe_code)]

use abi::id::EnvId;
use abi::setup::{EnvSetup, field};
use abi::upcall::{Cause, EVENT_SLICE_END, EVENT_SLICE_START};
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use xok::call::{self, OWN};
use xok::start::{APPLICATION_PAGE, SAVE_AREA};
use xok::upcall::Slot;

/// Its report when all was as it should be.
pub const ENDING_CONTENT: u64 = 0x600d;
/// How many slices it sees the end of.
const ENDS: u64 = 4;

/// rax rbx rbp r8 r9 r10 r12 r13 r14 r15, then the vector registers.
const GENERAL: usize = 10;
const WORDS: usize = GENERAL + 32;
/// Words of a slot that are the library's.
const FREE: usize = 20;

/// Places in the application page: entries, ends answered, then what the first entry found.
const ENTRIES: u64 = 8;
const ANSWERED: u64 = 16;
const FOUND: u64 = 0x400;
const SLOT_FOUND: u64 = 0x600;
const PAGE: u64 = APPLICATION_PAGE - SAVE_AREA;

global_asm!(
    ".section .text.ending, \"ax\"",
    ".global ending_entry, ending_wait, ending_vectors_store, ending_vectors_load",
    ".macro ending_general operation, base",
    "\\operation \\base, 0, rax",
    "\\operation \\base, 8, rbx",
    "\\operation \\base, 16, rbp",
    "\\operation \\base, 24, r8",
    "\\operation \\base, 32, r9",
    "\\operation \\base, 40, r10",
    "\\operation \\base, 48, r12",
    "\\operation \\base, 56, r13",
    "\\operation \\base, 64, r14",
    "\\operation \\base, 72, r15",
    ".endm",
    ".macro ending_to_page base, at, register",
    "mov gs:[{page} + \\base + \\at], \\register",
    ".endm",
    ".macro ending_to_memory base, at, register",
    "mov [\\base + \\at], \\register",
    ".endm",
    ".macro ending_from_memory base, at, register",
    "mov \\register, [\\base + \\at]",
    ".endm",
    // rdi: slot, rsi: cause, rdx: address, 0. Nothing else may differ from the program.
    "ending_entry:",
    "cmp qword ptr gs:[{page} + {entries}], 0",
    "jne 2f",
    "ending_general ending_to_page, {found}",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups gs:[{page} + {found} + 80 + 16 * \\number], xmm\\number",
    ".endr",
    ".irp word, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19",
    "mov rdx, [rdi + 96 + 8 * \\word]",
    "mov gs:[{page} + {slot_found} + 8 * \\word], rdx",
    ".endr",
    "xor edx, edx",
    "2:",
    "inc qword ptr gs:[{page} + {entries}]",
    "jmp {upcall_entry}",
    // ending_wait(rdi: patterns in, rsi: registers out): until enough ends have been answered.
    "ending_wait:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\number, [rdi + 80 + 16 * \\number]",
    ".endr",
    "ending_general ending_from_memory, rdi",
    "3:",
    "cmp qword ptr gs:[{page} + {answered}], {ends}",
    "jb 3b",
    "ending_general ending_to_memory, rsi",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups [rsi + 80 + 16 * \\number], xmm\\number",
    ".endr",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "ending_vectors_store:",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups [rdi + 16 * \\number], xmm\\number",
    ".endr",
    "ret",
    "ending_vectors_load:",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\number, [rdi + 16 * \\number]",
    ".endr",
    "ret",
    page = const PAGE,
    entries = const ENTRIES,
    answered = const ANSWERED,
    found = const FOUND,
    slot_found = const SLOT_FOUND,
    ends = const ENDS,
    upcall_entry = sym xok_upcall_entry,
);

unsafe extern "C" {
    fn xok_upcall_entry();
    fn ending_entry();
    fn ending_wait(patterns: *const u64, out: *mut u64);
    fn ending_vectors_store(to: *mut u64);
    fn ending_vectors_load(from: *const u64);
}

static SAVES: AtomicBool = AtomicBool::new(false);
static BEGUN: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);

/// What is in the vector registers now.
pub fn vectors() -> [u64; 32] {
    let mut words = [0; 32];
    // SAFETY: room for sixteen registers; they are read alone.
    unsafe { ending_vectors_store(words.as_mut_ptr()) }
    words
}

/// Puts this into them. No compiled code here uses them.
pub fn set_vectors(words: &[u64; 32]) {
    // SAFETY: as above.
    unsafe { ending_vectors_load(words.as_ptr()) }
}

fn page(at: u64) -> u64 {
    // SAFETY: the page is mapped for the program's life.
    unsafe { ((APPLICATION_PAGE + at) as *const u64).read_volatile() }
}

/// The end: what is worth it is saved, the processor given up, and what was saved loaded.
extern "C" fn switch(slot: &mut Slot, cause: u64, _: u64) {
    if cause != Cause::Event as u64 {
        call::exit(xok::start::EXIT_FAULT | slot.cause);
    }
    let bits = xok::upcall::take_events();
    BEGUN.fetch_add(u64::from(bits & EVENT_SLICE_START != 0), Relaxed);
    if bits & EVENT_SLICE_END == 0 {
        return;
    }
    let saves = SAVES.load(Relaxed);
    let kept = if saves { vectors() } else { [0; 32] };
    LATE.fetch_or(u64::from(call::yield_to(EnvId::NONE).is_err()), Relaxed);
    let again = xok::upcall::take_events();
    BEGUN.fetch_add(u64::from(again & EVENT_SLICE_START != 0), Relaxed);
    if saves {
        set_vectors(&kept);
    }
    let answered = page(ANSWERED) + 1;
    // SAFETY: its own page, written by this environment alone.
    unsafe { ((APPLICATION_PAGE + ANSWERED) as *mut u64).write_volatile(answered) }
}

/// Sees the end of some slices, and saves its vector registers itself (`saves` 1) or doesn't. The
/// report is `ENDING_CONTENT`, or by bit what was wrong.
pub fn see_ends(saves: u64) -> u64 {
    SAVES.store(saves == 1, Relaxed);
    let patterns: [u64; WORDS] = core::array::from_fn(|at| {
        0x0101_0101_0101_0101_u64.wrapping_mul(at as u64 + 5) ^ 0xbeef_0000_0000_dead
    });
    let canary = |at: usize| 0xcafe_0000_u64 + at as u64;
    let slots = SAVE_AREA + abi::upcall::offset::SLOTS as u64 + 96;
    for at in 0..FREE {
        // SAFETY: the library's words of the first slot, which is not in use.
        unsafe { ((slots + 8 * at as u64) as *mut u64).write_volatile(canary(at)) }
    }
    xok::start::set_handler(switch);
    let entry = ending_entry as *const () as u64;
    let setup = EnvSetup { event_entry: entry, ..EnvSetup::default() };
    if call::env_set(OWN, EnvId::NONE, field::EVENT_ENTRY, &setup).is_err() {
        return 1;
    }
    // The start of the first slice was told before there was a handler, and left us masked.
    xok::upcall::take_events();
    xok::upcall::set_mask(false);
    let mut out = [0; WORDS];
    // SAFETY: both have so many words; the stub keeps what the convention asks it to.
    unsafe { ending_wait(patterns.as_ptr(), out.as_mut_ptr()) }
    let found = |at: usize| page(FOUND + 8 * at as u64);
    let mut wrong = 0;
    wrong |= u64::from((0..WORDS).any(|at| found(at) != patterns[at])) << 1;
    wrong |= u64::from((0..FREE).any(|at| page(SLOT_FOUND + 8 * at as u64) != canary(at))) << 2;
    wrong |= u64::from(out[..GENERAL] != patterns[..GENERAL]) << 3;
    let vectors = if saves == 1 { &patterns[GENERAL..] } else { &[0; 32][..] };
    wrong |= u64::from(out[GENERAL..] != *vectors) << 4;
    wrong |= u64::from(BEGUN.load(Relaxed) < ENDS) << 5;
    wrong |= LATE.load(Relaxed) << 6;
    if wrong == 0 { ENDING_CONTENT } else { wrong }
}
