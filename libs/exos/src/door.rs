//! The door for programs: a stub that makes kernel calls, and the ways back of their functions.
//!
//! ```text
//!  exos_door_call      a `syscall` in the native window: the kernel's, not Linux's; then a return
//!  exos_door_answered  where a function returns to whose result a Linux call answers
//!  exos_door_done      where a function returns to whose result nobody wants
//! ```
//! A program's function runs on a frame like that of a signal handler (`signal::frame`), so its way
//! back is `rt_sigreturn`, as if by a rewritten call site; its result is put into the frame first.
//!
//! # Safety
//! Holds the stubs. They run as parts of the program, on its stack, with nothing masked: a fault in
//! them is the program's ([`contains`]).
#![allow(unsafe_code)]

use crate::signal::frame::RETURNED_RAX;
use core::arch::global_asm;
use linux_raw_sys::general::__NR_rt_sigreturn;
use xok::upcall::block;

global_asm!(
    ".section .text.exos_door, \"ax\"",
    "exos_door_first:",
    "exos_door_call:",
    "syscall",
    "ret",
    "exos_door_answered:",
    "mov [rsp + {rax}], rax",
    "exos_door_done:",
    "mov eax, {sigreturn}",
    "lea rcx, [rip + 2f]",
    "jmp gs:[{rewritten}]",
    "2:",
    "ud2",
    "exos_door_last:",
    ".text",
    rax = const RETURNED_RAX,
    sigreturn = const __NR_rt_sigreturn,
    rewritten = const block::REWRITTEN,
);

unsafe extern "C" {
    fn exos_door_first();
    fn exos_door_last();
    fn exos_door_call();
    fn exos_door_answered();
    fn exos_door_done();
}

/// Where programs make kernel calls.
pub fn call() -> u64 {
    exos_door_call as *const () as u64
}

/// Where a function returns to whose result is what the Linux call answers.
pub fn answered() -> u64 {
    exos_door_answered as *const () as u64
}

/// Where one returns to whose result nobody wants.
pub fn done() -> u64 {
    exos_door_done as *const () as u64
}

/// Is this text of ExOS that runs as the program's?
#[inline]
pub fn contains(rip: u64) -> bool {
    (exos_door_first as *const () as u64..exos_door_last as *const () as u64).contains(&rip)
}
