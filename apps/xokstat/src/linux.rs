//! The three Linux calls that the program makes, and its first instructions.
//!
//! # Safety
//! Holds the `syscall` instruction, for calls that touch no memory but what a reference names, and
//! the entry point: the stack is as execve(2) leaves it. The heap that `xok`'s crate wants is never
//! used: it answers "no memory".
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};

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

/// Reads argv: a count, then as many pointers to strings.
extern "C" fn begin(stack: *const u64) -> ! {
    // SAFETY: see the file's head; argv[1] is there if there are two.
    let argument = unsafe {
        match stack.read() {
            0 | 1 => c"",
            _ => core::ffi::CStr::from_ptr(stack.add(2).read() as *const _),
        }
    };
    exit(crate::run(argument.to_bytes()))
}

fn call(number: u64, words: [u64; 3]) -> i64 {
    let answer: i64;
    // SAFETY: see the file's head; Linux changes rax, rcx, r11 alone (syscall(2)).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as i64 => answer,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// write(2) to standard output, all of it.
pub fn write(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let done = call(1, [1, rest.as_ptr() as u64, rest.len() as u64]);
        if done <= 0 {
            return;
        }
        rest = &rest[(done as usize).min(rest.len())..];
    }
}

/// nanosleep(2), less than a second.
pub fn sleep(ns: u64) {
    let time = [0, ns];
    call(35, [time.as_ptr() as u64, 0, 0]);
}

/// exit_group(2)
fn exit(status: u8) -> ! {
    loop {
        call(231, [status.into(), 0, 0]);
    }
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
    write("xokstat: panic\n");
    exit(101)
}
