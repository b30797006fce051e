//! The code of a tiny library operating system and of the program on it.
//!
//! ```text
//!  program   loop: call 7 of a number, store the answer, count a turn, give way    at TEXT
//!  handler   the system's one call: rax + r8 * r8                                   at TEXT
//!  give way  the kernel's Yield                                                     at NATIVE
//! ```
//! It is copied to a page of its own and runs in a space of its own; here it is bytes.
//!
//! # Safety
//! Declares the code and reads it as bytes.
#![allow(unsafe_code)]

use std::arch::global_asm;

/// Where its space has the code, the shared page, the save area, and the code once more as its
/// native window.
pub const TEXT: u64 = 0x40_0000;
pub const SHARED: u64 = 0x40_1000;
pub const SAVE: u64 = 0x40_2000;
pub const NATIVE: u64 = 0x40_3000;
/// The number of its call.
pub const NUMBER: u64 = 7;

global_asm!(
    ".pushsection .rodata.parts_foreign, \"a\"",
    ".global parts_foreign_start, parts_foreign_handler, parts_foreign_end",
    "parts_foreign_start:",
    // rdi: turns, the last answer, whether to crash.
    "mov rbx, rdi",
    "2:",
    "mov eax, {number}",
    "mov r8, [rbx]",
    "syscall",
    "mov [rbx + 8], rax",
    "cmp qword ptr [rbx + 16], 0",
    "jne 3f",
    "inc qword ptr [rbx]",
    "lea rcx, [rip + 4f]",
    "add rcx, {between}",
    "jmp rcx",
    "3:",
    "ud2",
    "parts_foreign_handler:",
    "imul r8, r8",
    "add rax, r8",
    "mov qword ptr gs:[{mask}], 0",
    "jmp qword ptr gs:[{foreign_rip}]",
    "4:",
    "xor eax, eax",
    "xor edi, edi",
    "syscall",
    "lea rcx, [rip + 2b]",
    "sub rcx, {between}",
    "jmp rcx",
    "parts_foreign_end:",
    ".popsection",
    number = const NUMBER,
    between = const NATIVE - TEXT,
    mask = const abi::upcall::offset::MASK,
    foreign_rip = const abi::upcall::offset::FOREIGN_RIP,
);

unsafe extern "C" {
    static parts_foreign_start: u8;
    static parts_foreign_handler: u8;
    static parts_foreign_end: u8;
}

/// Where its calls arrive.
pub fn handler() -> u64 {
    TEXT + (&raw const parts_foreign_handler as u64) - (&raw const parts_foreign_start as u64)
}

/// Copies the code to a page.
pub fn copy_to(page: &mut [u8]) {
    let first = &raw const parts_foreign_start;
    let len = &raw const parts_foreign_end as usize - first as usize;
    // SAFETY: the two symbols are around the code.
    page[..len].copy_from_slice(unsafe { std::slice::from_raw_parts(first, len) });
}
