//! The few Linux system calls that the tests make, as a static program makes them.
//!
//! # Safety
//! Holds the `syscall` instruction. Calls that touch memory get it from Rust references; those
//! that change the space (`mmap`) hand out fresh memory.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU32;

// Two functions as a C library has them: the number before the call, padding behind, and an unwind
// table, which ExOS finds them by.
global_asm!(
    ".text",
    ".p2align 4",
    ".type exos_tests_getppid, @function",
    "exos_tests_getppid:",
    "mov eax, 110",
    "syscall",
    "ret",
    ".size exos_tests_getppid, . - exos_tests_getppid",
    ".p2align 4",
    ".type exos_tests_close, @function",
    "exos_tests_close:",
    "mov eax, edi",
    "or edi, -1",
    "syscall",
    "ret",
    ".size exos_tests_close, . - exos_tests_close",
    ".p2align 4, 0xcc",
    // By hand, as the compiler writes tables for debuggers alone: one common entry, two functions.
    ".section .eh_frame, \"a\"",
    ".balign 8",
    "20:",
    ".long 22f - 21f",
    "21:",
    ".long 0",
    ".byte 1",
    ".asciz \"zR\"",
    ".uleb128 1",
    ".sleb128 -8",
    ".uleb128 16",
    ".uleb128 1",
    ".byte 0x1b",
    ".balign 8, 0",
    "22:",
    ".macro exos_tests_frame name, len",
    ".long 24f - 23f",
    "23:",
    ".long 23b - 20b",
    ".long \\name - .",
    ".long \\len",
    ".uleb128 0",
    ".balign 8, 0",
    "24:",
    ".endm",
    "exos_tests_frame exos_tests_getppid, 8",
    "exos_tests_frame exos_tests_close, 8",
    ".text",
);

/// getppid(2), by a site of the first form.
pub fn hot_parent() -> u64 {
    unsafe extern "sysv64" {
        fn exos_tests_getppid() -> u64;
    }
    // SAFETY: see the file's head.
    unsafe { exos_tests_getppid() }
}

/// close(2) of what is not open, by a site of the second form.
pub fn close_nothing() -> i64 {
    unsafe extern "sysv64" {
        fn exos_tests_close(number: u64) -> i64;
    }
    // SAFETY: see the file's head.
    unsafe { exos_tests_close(3) }
}

/// Makes a call; negative answers are errors.
pub fn call(number: u64, words: [u64; 6]) -> i64 {
    let answer: i64;
    // SAFETY: see the file's head; Linux changes rax, rcx, r11 alone (syscall(2)).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as i64 => answer,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            in("r10") words[3], in("r8") words[4], in("r9") words[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// write(2), all of it, to standard output.
pub fn print(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let done = call(1, [1, rest.as_ptr() as u64, rest.len() as u64, 0, 0, 0]);
        if done <= 0 {
            return;
        }
        rest = &rest[(done as usize).min(rest.len())..];
    }
}

/// fork(2): the child's pid, 0 in the child.
pub fn fork() -> i64 {
    call(57, [0; 6])
}

/// exit_group(2)
pub fn exit(status: u8) -> ! {
    loop {
        call(231, [status.into(), 0, 0, 0, 0, 0]);
    }
}

/// wait4(2): the wait status.
pub fn wait(pid: i64) -> u32 {
    let mut status = 0_u32;
    call(61, [pid as u64, &raw mut status as u64, 0, 0, 0, 0]);
    status
}

/// A thread that spins until the word at `stop` is not 0, then ends, which clears the word at `tid`
/// (clone(2)): its tid. It has no stack, and needs none.
pub fn spinning_thread(tid: &AtomicU32, stop: &AtomicU32) -> i64 {
    // VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, PARENT_SETTID, CHILD_CLEARTID.
    const FLAGS: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x10_0000 | 0x20_0000;
    let answer: i64;
    // SAFETY: the thread touches registers and the two words alone, then is gone.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 3f",
            "2:",
            "pause",
            "cmp dword ptr [r8], 0",
            "je 2b",
            "mov eax, 60",
            "xor edi, edi",
            "syscall",
            "ud2",
            "3:",
            inlateout("rax") 56_i64 => answer,
            in("rdi") FLAGS, in("rsi") 0_u64, in("rdx") tid.as_ptr(),
            in("r10") tid.as_ptr(), in("r8") stop.as_ptr(), in("r9") 0_u64,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// futex(2): sleeps while the word is `value`.
pub fn futex_wait(word: &AtomicU32, value: u32) -> i64 {
    call(202, [word.as_ptr() as u64, 0, value.into(), 0, 0, 0])
}

/// sched_yield(2)
pub fn give_way() {
    call(24, [0; 6]);
}

/// getpid(2)
pub fn pid() -> u64 {
    call(39, [0; 6]) as u64
}

/// getppid(2)
pub fn parent() -> u64 {
    call(110, [0; 6]) as u64
}

/// kill(2)
pub fn kill(pid: i64, signal: u64) -> i64 {
    call(62, [pid as u64, signal, 0, 0, 0, 0])
}

/// pause(2)
pub fn pause() {
    call(34, [0; 6]);
}

/// Anonymous private memory (mmap(2)); its address.
pub fn memory(pages: u64) -> Option<u64> {
    let answer = call(9, [0, pages * 4096, 3, 0x22, u64::MAX, 0]);
    (answer > 0).then_some(answer as u64)
}

/// pipe(2): where to read, where to write.
pub fn pipe() -> Option<(u64, u64)> {
    let mut ends = [0_u32; 2];
    let answer = call(22, [&raw mut ends as u64, 0, 0, 0, 0, 0]);
    (answer == 0).then_some((ends[0].into(), ends[1].into()))
}

/// close(2)
pub fn close(file: u64) {
    call(3, [file, 0, 0, 0, 0, 0]);
}

/// read(2)
pub fn read(file: u64, into: &mut [u8]) -> i64 {
    call(0, [file, into.as_mut_ptr() as u64, into.len() as u64, 0, 0, 0])
}

/// write(2)
pub fn write(file: u64, bytes: &[u8]) -> i64 {
    call(1, [file, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0])
}

/// rt_sigaction(2): ignores a signal.
pub fn ignore(signal: u64) {
    let action = [1_u64, 0, 0, 0];
    call(13, [signal, action.as_ptr() as u64, 0, 8, 0, 0]);
}

/// A word through a pipe.
pub fn send(file: u64, word: u64) -> bool {
    call(1, [file, &raw const word as u64, 8, 0, 0, 0]) == 8
}

/// A word from a pipe.
pub fn receive(file: u64) -> Option<u64> {
    let mut word = 0_u64;
    (call(0, [file, &raw mut word as u64, 8, 0, 0, 0]) == 8).then_some(word)
}

/// execve(2) of this program itself with one argument; comes back only on error.
pub fn run_self(path: &core::ffi::CStr, argument: &core::ffi::CStr) -> i64 {
    let arguments = [path.as_ptr() as u64, argument.as_ptr() as u64, 0];
    let environment = [0_u64];
    let words =
        [path.as_ptr() as u64, arguments.as_ptr() as u64, environment.as_ptr() as u64, 0, 0, 0];
    call(59, words)
}

/// Stores a byte.
pub fn store(address: u64, byte: u8) {
    // SAFETY: the tests give addresses of memory they mapped, or want the fault, in a child.
    unsafe { (address as *mut u8).write_volatile(byte) }
}

/// Loads a byte.
pub fn load(address: u64) -> u8 {
    // SAFETY: as `store`.
    unsafe { (address as *const u8).read_volatile() }
}
