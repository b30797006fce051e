//! What a static Linux program begins and ends with that links this library, and its Linux calls.
//!
//! [`static_program!`](crate::static_program) declares its entry point, and that it has no heap:
//! this crate wants one, but what reads published pages allocates nothing.
//!
//! # Safety
//! Reads the stack as execve(2) leaves it, hands out no memory, and holds the `syscall` instruction
//! for the calls that such programs make.
#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{CStr, c_char};

/// An allocator that answers "no memory".
pub struct NoHeap;

// SAFETY: hands out nothing.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Argument `number`, if there is one.
///
/// # Safety
/// `stack` is what the entry point was called with.
pub unsafe fn argument(stack: u64, number: u64) -> Option<&'static [u8]> {
    // SAFETY: the System V start-up stack: a count, then as many pointers to strings that stay.
    unsafe {
        let count = (stack as *const u64).read();
        if number >= count {
            return None;
        }
        let at = ((stack + 8 + 8 * number) as *const *const c_char).read();
        Some(CStr::from_ptr(at).to_bytes())
    }
}

/// The argument of a program that takes one: nothing if it was given none, or more.
///
/// # Safety
/// As [`argument`].
pub unsafe fn only_argument(stack: u64) -> Option<&'static [u8]> {
    // SAFETY: the caller's promise.
    let (first, second) = unsafe { (argument(stack, 1), argument(stack, 2)) };
    first.filter(|_| second.is_none())
}

/// A Linux call of up to three words; its answer as the kernel gives it (syscall(2)).
///
/// # Safety
/// It must touch no memory but what the caller has lent it.
pub unsafe fn call(number: u64, words: [u64; 3]) -> i64 {
    let answer: i64;
    // SAFETY: the caller's promise; Linux changes rax, rcx, r11 alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as i64 => answer,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// Descriptors that a program begins with.
const OUTPUT: u64 = 1;
/// See [`OUTPUT`].
const ERRORS: u64 = 2;

/// write(2) to standard output, all of it.
pub fn write(text: &str) {
    write_to(OUTPUT, text);
}

/// As [`write`], to standard error.
pub fn complain(text: &str) {
    write_to(ERRORS, text);
}

fn write_to(file: u64, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: reads what `rest` has.
        let done = unsafe { call(1, [file, rest.as_ptr() as u64, rest.len() as u64]) };
        if done <= 0 {
            return;
        }
        rest = &rest[(done as usize).min(rest.len())..];
    }
}

/// nanosleep(2), less than a second.
pub fn sleep(ns: u64) {
    let time = [0, ns];
    // SAFETY: reads `time`.
    unsafe { call(35, [time.as_ptr() as u64, 0, 0]) };
}

/// exit_group(2)
pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: touches no memory.
        unsafe { call(231, [status.into(), 0, 0]) };
    }
}

/// Declares a static Linux program: where it goes on from its entry, with the stack as its argument
/// (`extern "C" fn(u64) -> !`), and how it ends when something is badly wrong (`fn() -> !`).
#[macro_export]
macro_rules! static_program {
    ($begin:path, $panic:path) => {
        core::arch::global_asm!(
            ".section .text._start, \"ax\"",
            ".global _start",
            "_start:",
            "xor ebp, ebp",
            "mov rdi, rsp",
            "and rsp, -16",
            "call {begin}",
            "ud2",
            begin = sym $begin,
        );

        #[global_allocator]
        static HEAP: $crate::static_program::NoHeap = $crate::static_program::NoHeap;

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            $panic()
        }
    };
}
