//! Calls that need neither stack nor handler (decisions 5): who one is.
//!
//! Those that are tried without the handler begin here, too: reading and writing what a pipe has
//! (`fs::at_once`). Giving the processor away is one native call, whatever other threads do.
//!
//! `xok::upcall` comes here with the program's registers live, from the kernel or from a rewritten
//! site; rax, rcx and r11 are ours, and rcx must stay as it is. A call with anything to wait for,
//! to copy or to refuse is none of these. `table` answers the same ones when it is asked: a traced
//! or sampled call goes there.
//!
//! # Safety
//! Each piece of code follows GS to the running thread's records, which stand from before the
//! program's first instruction on, reads one word, and leaves to `xok_call_leave`; or it names a
//! function to `xok_call_short`.
#![allow(unsafe_code)]

use crate::fs::at_once;
use crate::process::Process;
use crate::thread::{self, Thread};
use abi::id::EnvId;
use core::arch::global_asm;
use core::mem::offset_of;
use linux_raw_sys::general as linux;
use xok::upcall::{block, xok_call_full};

/// Numbers below this have a place in the table.
const COUNT: usize = linux::__NR_gettid as usize + 1;

/// The code of each call by its number.
pub static TABLE: [unsafe extern "C" fn(); COUNT] = table();

unsafe extern "C" {
    fn exos_read();
    fn exos_write();
    fn exos_yield();
    fn exos_getpid();
    fn exos_gettid();
    fn exos_getppid();
    fn exos_getuid();
    fn exos_geteuid();
    fn exos_getgid();
    fn exos_getegid();
}

const fn table() -> [unsafe extern "C" fn(); COUNT] {
    let mut table: [unsafe extern "C" fn(); COUNT] = [xok_call_full; COUNT];
    table[linux::__NR_read as usize] = exos_read;
    table[linux::__NR_write as usize] = exos_write;
    table[linux::__NR_sched_yield as usize] = exos_yield;
    table[linux::__NR_getpid as usize] = exos_getpid;
    table[linux::__NR_gettid as usize] = exos_gettid;
    table[linux::__NR_getppid as usize] = exos_getppid;
    table[linux::__NR_getuid as usize] = exos_getuid;
    table[linux::__NR_geteuid as usize] = exos_geteuid;
    table[linux::__NR_getgid as usize] = exos_getgid;
    table[linux::__NR_getegid as usize] = exos_getegid;
    table
}

/// `sched_yield()`
extern "C" fn give_way(_: u64, _: u64, _: u64) -> i64 {
    if thread::process().parts.gives_way() {
        return !i64::from(linux::__NR_sched_yield);
    }
    // Nobody else to yield to is no error.
    let _ = xok::call::yield_to(EnvId::NONE);
    0
}

global_asm!(
    ".section .text.exos_trivial, \"ax\"",
    "exos_gettid:",
    "mov r11, gs:[{thread}]",
    "mov eax, [r11 + {tid}]",
    "jmp xok_call_leave",
    // The answer is a 32-bit word of the process.
    ".macro exos_of_process name, offset",
    "\\name:",
    "mov r11, gs:[{thread}]",
    "mov r11, [r11 + {process}]",
    "mov eax, [r11 + \\offset]",
    "jmp xok_call_leave",
    ".endm",
    "exos_of_process exos_getpid, {pid}",
    "exos_of_process exos_getuid, {users}",
    "exos_of_process exos_geteuid, {users} + 4",
    "exos_of_process exos_getgid, {groups}",
    "exos_of_process exos_getegid, {groups} + 4",
    // The kernel's own word tells whose child we are; orphans are process 1's.
    "exos_getppid:",
    "mov r11, gs:[{thread}]",
    "mov r11, [r11 + {process}]",
    "mov r11, [r11 + {parent}]",
    "mov eax, [r11]",
    "test eax, eax",
    "jnz xok_call_leave",
    "mov eax, 1",
    "jmp xok_call_leave",
    ".macro exos_at_once name, function",
    "\\name:",
    "cmp dword ptr [rip + {detours}], 0",
    "jne xok_call_full",
    "lea r11, [rip + \\function]",
    "jmp xok_call_short",
    ".endm",
    "exos_at_once exos_read, {read}",
    "exos_at_once exos_write, {write}",
    "exos_yield:",
    "lea r11, [rip + {give_way}]",
    "jmp xok_call_short",
    ".text",
    read = sym at_once::read,
    write = sym at_once::write,
    give_way = sym give_way,
    detours = sym at_once::DETOURS,
    thread = const block::THREAD,
    tid = const offset_of!(Thread, id),
    process = const Thread::PROCESS,
    pid = const offset_of!(Process, id),
    users = const offset_of!(Process, users),
    groups = const offset_of!(Process, groups),
    parent = const offset_of!(Process, parent_word),
);
