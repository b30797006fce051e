//! The three Linux calls that the program makes, and where it begins and ends.
//!
//! # Safety
//! Holds the `syscall` instruction, for calls that touch no memory but what a reference names, and
//! declares the entry, as `xok::static_program` says.
#![allow(unsafe_code)]

use core::arch::asm;

xok::static_program!(begin, failed);

extern "C" fn begin(stack: u64) -> ! {
    // SAFETY: this is the entry point.
    let argument = unsafe { xok::static_program::argument(stack, 1) };
    exit(crate::run(argument.unwrap_or_default()))
}

fn failed() -> ! {
    write("xokstat: panic\n");
    exit(101)
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
