//! What a static Linux program begins and ends with that links this library.
//!
//! [`static_program!`](crate::static_program) declares its entry point, and that it has no heap:
//! this crate wants one, but what reads published pages allocates nothing.
//!
//! # Safety
//! Reads the stack as execve(2) leaves it, and hands out no memory.
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
