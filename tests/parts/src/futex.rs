//! futex(2), which the standard library has for words of one process alone.
//!
//! # Safety
//! Holds the C library's `syscall` for one call, which reads no memory but the word.
#![allow(unsafe_code)]

const NUMBER: i64 = 202;
const WAKE: i32 = 1;

unsafe extern "C" {
    fn syscall(number: i64, word: u64, operation: i32, most: u32) -> i64;
}

/// Wakes up to `most` threads, of whatever process, that sleep for the word; how many.
pub fn wake(word: u64, most: u32) -> i64 {
    // SAFETY: a word that is not there is an error.
    unsafe { syscall(NUMBER, word, WAKE, most) }
}
