//! Clients of a server that keeps no register, and that server.
//!
//! # Safety
//! Assembly that fills the callee-saved registers around a function's call and keeps them for its
//! own caller; a server's entry that uses no stack.
#![allow(unsafe_code)]

use super::mirror::{enter_at, set_application_word};
use abi::call::{SLEEP_ACCEPT, TRANSFER_REPLY, TRANSFER_SHIFT, number};
use abi::error::Error;
use abi::id::EnvId;
use core::arch::global_asm;
use xok::call;
use xok::rpc;

/// Serves transfers, and replies with other callee-saved registers than came.
pub const TRASH: u64 = 40;
/// Calls the server in its first word, trusting it if its second is 1; its report: the callee-saved
/// registers that a function which calls it did not keep, a bit each.
pub const CALL_AND_COMPARE: u64 = 41;

/// Calls the server of sums in its first word as often as its second says, counting; tells it the
/// numbers from its third on. Its report: how many replies were wrong.
pub const ASK_OFTEN: u64 = 47;

global_asm!(
    ".section .text.clients, \"ax\"",
    "clients_trash:",
    "shl rcx, {shift}",
    "mov eax, {transfer}",
    "or rax, rcx",
    "bts rax, {reply}",
    ".irp register, rbx, rbp, r12, r13, r14, r15",
    "mov \\register, 0xbad",
    ".endr",
    "syscall",
    "clients_sleep:",
    "mov eax, {sleep}",
    "xor edi, edi",
    "xor esi, esi",
    "xor edx, edx",
    "mov r10d, {accept}",
    "syscall",
    "jmp clients_sleep",
    // clients_across(rdi: a function, rsi: its argument): the registers it did not keep
    "clients_across:",
    ".irp register, rbx, rbp, r12, r13, r14, r15",
    "push \\register",
    ".endr",
    "sub rsp, 8",
    "mov rax, rdi",
    "mov rdi, rsi",
    ".irp register, rbx, rbp, r12, r13, r14, r15",
    "lea \\register, [rip + clients_across]",
    ".endr",
    "call rax",
    "lea rcx, [rip + clients_across]",
    "xor eax, eax",
    "xor edx, edx",
    ".irp register, rbx, rbp, r12, r13, r14, r15",
    "cmp \\register, rcx",
    "setne dl",
    "lea eax, [rdx + 2 * rax]",
    ".endr",
    "add rsp, 8",
    ".irp register, r15, r14, r13, r12, rbp, rbx",
    "pop \\register",
    ".endr",
    "ret",
    shift = const TRANSFER_SHIFT,
    transfer = const number::TransferSync,
    reply = const TRANSFER_REPLY.trailing_zeros(),
    sleep = const number::Sleep,
    accept = const SLEEP_ACCEPT,
);

unsafe extern "C" {
    fn clients_trash();
    fn clients_sleep() -> !;
    fn clients_across(function: extern "C" fn(u64), argument: u64) -> u64;
}

/// Calls, and again where it is busy; nothing is counted before the first reply.
pub fn ask_often(server: EnvId, times: u64, first: u64) -> u64 {
    let mut wrong = 0;
    for number in 0..times {
        let reply = loop {
            match call::transfer(server, [first + number, 1, 2, 3, 4, 5]) {
                Err((Error::Busy, _)) => drop(call::yield_to(EnvId::NONE)),
                reply => break reply,
            }
        };
        wrong += u64::from(reply.map_or(0, |reply| reply[0]) != first + number + 15);
        set_application_word(number + 1);
    }
    wrong
}

/// The server.
pub fn trash() -> u64 {
    if !enter_at(clients_trash as *const () as u64, 0) {
        return 1;
    }
    set_application_word(1);
    // SAFETY: the loop uses no stack and never returns.
    unsafe { clients_sleep() }
}

extern "C" fn carefully(server: u64) {
    // What it answers is nothing to us.
    let _ = rpc::lrpc(EnvId(server as u32), [0; 6]);
}

extern "C" fn trustingly(server: u64) {
    // SAFETY: what the server changes is found out by `clients_across`, which keeps it from others.
    let _ = unsafe { rpc::tlrpc(EnvId(server as u32), [0; 6]) };
}

/// Calls and compares.
pub fn call_and_compare(server: u64, trusting: bool) -> u64 {
    let function = if trusting { trustingly } else { carefully };
    // SAFETY: it keeps all that its caller's convention asks for, whatever the function does.
    unsafe { clients_across(function, server) }
}
