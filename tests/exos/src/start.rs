//! The entry point of a static program, and its end when something is badly wrong.
//!
//! # Safety
//! The first instructions: the stack is as execve(2) leaves it. The heap that `xok`'s crate wants
//! is never used: it answers "no memory".
#![allow(unsafe_code)]

use crate::linux;
use core::arch::global_asm;

global_asm!(
    ".section .text._start, \"ax\"",
    ".global _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {begin}",
    "ud2",
    begin = sym begin,
);

extern "C" fn begin(stack: u64) -> ! {
    crate::suite::run(linux::argument(stack, 1))
}

struct None;

// SAFETY: hands out nothing.
unsafe impl core::alloc::GlobalAlloc for None {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}

#[global_allocator]
static HEAP: None = None;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    linux::print("exos tests: panic\n");
    linux::exit(101)
}
