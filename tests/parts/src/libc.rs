//! The few functions of the C library that Rust's own has not.
//!
//! # Safety
//! Declares them as their manual pages have it. Memory that they hand out is fresh; what is loaded
//! and stored by address is memory that the tests mapped.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// `POLLIN`
pub const POLLIN: i16 = 1;

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    found: i16,
}

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, at: i64) -> usize;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn poll(fds: *mut PollFd, count: u64, milliseconds: c_int) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn fgets(line: *mut c_char, bytes: c_int, stream: *mut c_void) -> *mut c_char;
    fn fclose(stream: *mut c_void) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn _exit(status: c_int) -> !;
}

/// Memory of so many pages, shared with children (mmap(2)).
pub fn shared(pages: usize) -> u64 {
    // SAFETY: fresh memory.
    unsafe { mmap(std::ptr::null_mut(), pages * 4096, 3, 0x21, -1, 0) as u64 }
}

/// Addresses of so many pages that nothing is behind.
pub fn reserved(pages: usize) -> u64 {
    // SAFETY: fresh addresses.
    unsafe { mmap(std::ptr::null_mut(), pages * 4096, 0, 0x22, -1, 0) as u64 }
}

/// Words of [`shared`] memory.
pub fn words(address: u64, count: usize) -> &'static [AtomicU64] {
    // SAFETY: it was mapped for this, and never goes.
    unsafe { std::slice::from_raw_parts(address as *const AtomicU64, count) }
}

/// Bytes of memory that is mapped, or will be when it is touched.
pub fn bytes(address: u64, count: usize) -> &'static mut [u8] {
    // SAFETY: each test has its own.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, count) }
}

/// Runs `child` in a child, which ends with its answer; the child.
pub fn spawn(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the tests fork while they have one thread.
    match unsafe { fork() } {
        // SAFETY: ends.
        0 => unsafe { _exit(child()) },
        pid => pid,
    }
}

/// The wait status of a child that has ended, or will.
pub fn wait(pid: i32) -> i32 {
    let mut status = -1;
    // SAFETY: a place for the status.
    unsafe { waitpid(pid, &mut status, 0) };
    status
}

/// The owner of a descriptor.
pub fn descriptor(fd: i32) -> OwnedFd {
    // SAFETY: just made, or not closed by this owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// kill(2)
pub fn send(pid: i32, number: i32) {
    // SAFETY: touches no memory.
    unsafe { kill(pid, number) };
}

/// signal(2): `handler` runs for it.
pub fn handle(number: i32, handler: extern "C" fn(i32)) {
    // SAFETY: a function of the right kind.
    unsafe { signal(number, handler as usize) };
}

/// poll(2) of one descriptor: what was found.
pub fn wait_for(fd: i32, events: i16, milliseconds: i32) -> i16 {
    let mut one = PollFd { fd, events, found: 0 };
    // SAFETY: one descriptor, as is said.
    unsafe { poll(&mut one, 1, milliseconds) };
    one.found
}

/// The lines of a descriptor, as C's streams read them; closes it.
pub fn lines(fd: i32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = [0_u8; 64];
    // SAFETY: the stream is open until it is closed; the line has the room that is said.
    unsafe {
        let stream = fdopen(fd, c"r".as_ptr());
        while !fgets(line.as_mut_ptr().cast(), line.len() as c_int, stream).is_null() {
            let end = line.iter().position(|&byte| byte == 0).unwrap_or(0);
            lines.push(String::from_utf8_lossy(&line[..end]).trim_end().to_string());
        }
        fclose(stream);
    }
    lines
}

/// read(2), with a pattern in a vector register that Linux keeps: how many bytes, was it kept?
pub fn read_keeping(fd: i32, into: &mut [u8]) -> (i64, bool) {
    let pattern: u64 = 0x5a5a_1234_8765_a5a5;
    let (answer, after): (i64, u64);
    // SAFETY: a buffer with the length that is said; registers are named.
    unsafe {
        std::arch::asm!(
            "movq xmm9, {pattern}",
            "syscall",
            "movq {after}, xmm9",
            pattern = in(reg) pattern,
            after = out(reg) after,
            inlateout("rax") 0_i64 => answer,
            in("rdi") i64::from(fd), in("rsi") into.as_mut_ptr(), in("rdx") into.len(),
            out("rcx") _, out("r11") _, out("xmm9") _,
        );
    }
    (answer, after == pattern)
}

/// Puts something else into that register, as any function may.
pub fn spoil_register() {
    // SAFETY: a register that functions need not keep.
    unsafe { std::arch::asm!("pxor xmm9, xmm9", out("xmm9") _) };
}

/// A function's view of the bytes that a transfer names.
pub fn transferred(at: *mut u8, len: usize) -> &'static mut [u8] {
    // SAFETY: ExOS calls the program's functions with what the program's read or write has named.
    unsafe { std::slice::from_raw_parts_mut(at, len) }
}

/// Makes a kernel call through the door.
pub fn kernel(door: door::Door, call: abi::call::Call) -> Result<u64, (abi::error::Error, u64)> {
    // SAFETY: the tests allocate pages where they have reserved addresses, and else change nothing.
    unsafe { door.make(call, 0) }
}

/// One step of a word that only the tests use.
pub fn count(word: &AtomicU64) -> u64 {
    word.fetch_add(1, Ordering::Relaxed)
}
