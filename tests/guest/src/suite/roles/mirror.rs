//! Every register set, sent, kept, compared.
//!
//! # Safety
//! Assembly that fills the registers with patterns around one `syscall`. It keeps what Rust needs
//! (stack pointer, addresses) in the library's part of the save area, reached through GS.
#![allow(unsafe_code)]

use crate::expect;
use abi::call::{SLEEP_ACCEPT, TRANSFER_REPLY, TRANSFER_SHIFT, number};
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use alloc::string::String;
use core::arch::{asm, global_asm};
use xok::start::{APPLICATION_PAGE, SAVE_AREA};
use xok::upcall::block;

/// Where the mirror records, in its application page.
const RECORD: u64 = 0x100;
/// General registers compared: rbx rbp rdi rsi rdx r8 r9 r10 r12 r13 r14 r15, in this order.
const GENERAL: usize = 12;
/// Where the vector registers begin, and the flags are.
const VECTORS: usize = GENERAL;
const FLAGS: usize = VECTORS + 32;
const WORDS: usize = FLAGS + 1;
const PAGE: u64 = APPLICATION_PAGE - SAVE_AREA;

/// Stores the first word of one's own application page.
pub fn set_application_word(value: u64) {
    set_word(0, value);
}

/// Stores a word of it.
pub fn set_word(at: usize, value: u64) {
    assert!(at < PAGE_SIZE as usize / 8);
    // SAFETY: the page is mapped for the program's life and written by this environment alone.
    unsafe { (APPLICATION_PAGE as *mut u64).add(at).write_volatile(value) }
}

global_asm!(
    ".macro mirror_general operation",
    "\\operation 0, rbx",
    "\\operation 8, rbp",
    "\\operation 16, rdi",
    "\\operation 24, rsi",
    "\\operation 32, rdx",
    "\\operation 40, r8",
    "\\operation 48, r9",
    "\\operation 56, r10",
    "\\operation 64, r12",
    "\\operation 72, r13",
    "\\operation 80, r14",
    "\\operation 88, r15",
    ".endm",
    ".macro mirror_record at, register",
    "mov gs:[{page} + {record} + \\at], \\register",
    ".endm",
    ".section .text.mirror, \"ax\"",
    ".global mirror_entry, mirror_sleep, mirror_async, mirror_call",
    // The server's entry: records, and replies with every register as it came.
    "mirror_entry:",
    "mirror_general mirror_record",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups gs:[{page} + {record} + 96 + 16 * \\number], xmm\\number",
    ".endr",
    "shl rcx, {shift}",
    "mov eax, {transfer}",
    "or rax, rcx",
    "bts rax, {reply}",
    "syscall",
    "mirror_sleep:",
    "mov eax, {sleep}",
    "xor edi, edi",
    "xor esi, esi",
    "xor edx, edx",
    "mov r10d, {accept}",
    "syscall",
    "jmp mirror_sleep",
    "mirror_async:",
    "jmp mirror_async",
    // mirror_call(rdi: patterns in, rsi: registers out, rdx: rax of the transfer)
    "mirror_call:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov gs:[{kept}], rsp",
    "mov gs:[{out}], rsi",
    "mov rax, rdx",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\number, [rdi + 96 + 16 * \\number]",
    ".endr",
    "mov rbx, [rdi]",
    "mov rbp, [rdi + 8]",
    "mov rsi, [rdi + 24]",
    "mov rdx, [rdi + 32]",
    "mov r8, [rdi + 40]",
    "mov r9, [rdi + 48]",
    "mov r10, [rdi + 56]",
    "mov r12, [rdi + 64]",
    "mov r13, [rdi + 72]",
    "mov r14, [rdi + 80]",
    "mov r15, [rdi + 88]",
    "push [rdi + 8 * {flags}]",
    "popfq",
    "mov rdi, [rdi + 16]",
    "syscall",
    "mov rsp, gs:[{kept}]",
    "mov rcx, gs:[{out}]",
    "pushfq",
    "pop [rcx + 8 * {flags}]",
    "mov [rcx], rbx",
    "mov [rcx + 8], rbp",
    "mov [rcx + 16], rdi",
    "mov [rcx + 24], rsi",
    "mov [rcx + 32], rdx",
    "mov [rcx + 40], r8",
    "mov [rcx + 48], r9",
    "mov [rcx + 56], r10",
    "mov [rcx + 64], r12",
    "mov [rcx + 72], r13",
    "mov [rcx + 80], r14",
    "mov [rcx + 88], r15",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups [rcx + 96 + 16 * \\number], xmm\\number",
    ".endr",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    page = const PAGE,
    record = const RECORD,
    shift = const TRANSFER_SHIFT,
    transfer = const number::TransferSync,
    reply = const TRANSFER_REPLY.trailing_zeros(),
    sleep = const number::Sleep,
    accept = const SLEEP_ACCEPT,
    kept = const block::TRANSFER_RSP,
    out = const block::FREE,
    flags = const FLAGS,
);

unsafe extern "C" {
    fn mirror_entry();
    fn mirror_sleep() -> !;
    fn mirror_async();
    fn mirror_call(patterns: *const u64, out: *mut u64, rax: u64) -> u64;
}

/// Accepts transfers at these places from now on, with upcalls masked.
pub fn enter_at(sync: u64, asynchronous: u64) -> bool {
    xok::upcall::set_mask(true);
    let setup =
        abi::setup::EnvSetup { sync_entry: sync, async_entry: asynchronous, ..Default::default() };
    let fields = abi::setup::field::SYNC_ENTRY | abi::setup::field::ASYNC_ENTRY;
    xok::call::env_set(xok::call::OWN, EnvId::NONE, fields, &setup).is_ok()
}

/// The register mirror.
pub fn serve() -> u64 {
    if !enter_at(mirror_entry as *const () as u64, 0) {
        return 1;
    }
    set_application_word(1);
    // SAFETY: the loop uses no stack and never returns.
    unsafe { mirror_sleep() }
}

/// Accepts an asynchronous transfer into an endless loop.
pub fn accept_async() -> u64 {
    if !enter_at(0, mirror_async as *const () as u64) {
        return 1;
    }
    set_application_word(1);
    // SAFETY: as above.
    unsafe { mirror_sleep() }
}

/// A pattern for every register: the flags are those that arithmetic sets.
fn patterns() -> [u64; WORDS] {
    let mut patterns = [0_u64; WORDS];
    for (at, word) in patterns.iter_mut().enumerate() {
        *word = 0x0101_0101_0101_0101_u64.wrapping_mul(at as u64 + 3) ^ 0xdead_0000_0000_beef;
    }
    patterns[FLAGS] = ARITHMETIC;
    patterns
}

/// CF, PF, AF, ZF, SF, OF, and those that are always set for a program.
const ARITHMETIC: u64 = 0x8d5 | 1 << 9 | 1 << 1;

/// Makes a call with patterns in every register that is no argument: its error, and the registers
/// that were changed and must not be, by bit: rbx rbp rdi rsi - r8 r9 r10 r12..r15, the vector
/// registers, the flags. `None`: it faulted. Arguments may be 0 afterwards.
pub fn across_any_call(rax: u64, words: [u64; 6]) -> Option<(u64, u64)> {
    /// Places of the arguments but the third, which is the answer.
    const ARGUMENTS: [(usize, usize); 5] = [(2, 0), (3, 1), (5, 4), (6, 5), (7, 3)];
    let mut given = patterns();
    for (place, word) in ARGUMENTS {
        given[place] = words[word];
    }
    // A site that may fault; see `faults`.
    (given[4], given[10], given[11]) = (words[2], crate::faults::MARK, 2);
    let mut back = [0_u64; WORDS];
    let before = crate::faults::seen().count;
    // SAFETY: as in `compare`.
    let error = unsafe { mirror_call(given.as_ptr(), back.as_mut_ptr(), rax) };
    if crate::faults::seen().count != before {
        return None;
    }
    let mut wrong = 0;
    for at in (0..WORDS).filter(|&at| at != 4) {
        let argument = ARGUMENTS.iter().any(|&(place, _)| place == at);
        let kept = back[at] == given[at] || argument && back[at] == 0;
        wrong |= u64::from(!kept) << at;
    }
    Some((error, wrong))
}

/// Sends patterns in every register to the mirror `env`: bits of what did not arrive (low half) or
/// did not return (high half).
pub fn compare(env: EnvId) -> Result<u64, String> {
    let patterns = patterns();
    let mut back = [0_u64; WORDS];
    let rax = xok::call::transfer_rax(env);
    // SAFETY: both arrays have WORDS words; the stub keeps what the convention asks it to.
    let status = unsafe { mirror_call(patterns.as_ptr(), back.as_mut_ptr(), rax) };
    expect!(status == 0, "the transfer answered {status}");
    let mut wrong = 0;
    for at in 0..FLAGS {
        let bit = (at.min(31)) as u32;
        let record = RECORD as usize + 8 * at;
        if xok::published::application_word(env.index(), record) != Some(patterns[at]) {
            wrong |= 1 << bit;
        }
        if back[at] != patterns[at] {
            wrong |= 1 << (32 + bit);
        }
    }
    Ok(wrong)
}

/// Yields to `to` with patterns of one's own in every register: bits of those that are not as the
/// call leaves them, as above; `None`: it was refused.
pub fn across_yield(to: EnvId, seed: u64) -> Option<u64> {
    /// Places of the arguments, which a call does not keep, and of its answer's value.
    const ARGUMENTS: core::ops::Range<usize> = 2..8;
    const VALUE: usize = 4;
    let mut given = patterns().map(|word| word ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    given[FLAGS] = if seed.is_multiple_of(2) { ARITHMETIC } else { 1 << 9 | 1 << 1 };
    (given[2], given[3]) = (to.0.into(), 0);
    let mut back = [0_u64; WORDS];
    // SAFETY: as in `compare`.
    let error = unsafe { mirror_call(given.as_ptr(), back.as_mut_ptr(), number::Yield.into()) };
    let wrong = |&at: &usize| {
        let cleared = ARGUMENTS.contains(&at) && back[at] == 0;
        !cleared && (at == VALUE || back[at] != given[at])
    };
    (error == 0).then(|| (0..WORDS).filter(wrong).fold(0, |bits, at| bits | 1 << at))
}

/// Makes the call `number` (first argument `argument`, others 0) with patterns in the callee-saved
/// registers: bits of those changed (rbx rbp r12 r13 r14 r15).
pub fn across_call(number: u64, argument: u64, round: u64) -> u64 {
    let seed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let wrong: u64;
    // SAFETY: rbx and rbp are pushed and popped; the rest is declared.
    unsafe {
        asm!(
            "push rbx", "push rbp",
            "mov rbx, r8", "lea rbp, [r8 + 1]", "lea r12, [r8 + 2]", "lea r13, [r8 + 3]",
            "lea r14, [r8 + 4]", "lea r15, [r8 + 5]",
            "push r8",
            "xor r8d, r8d", "syscall",
            "pop r8",
            "xor eax, eax",
            "cmp rbx, r8", "setne al", "mov rdx, rax",
            "lea rcx, [r8 + 1]", "cmp rbp, rcx", "setne al",
            "shl rax, 1", "or rdx, rax", "xor eax, eax",
            "lea rcx, [r8 + 2]", "cmp r12, rcx", "setne al",
            "shl rax, 2", "or rdx, rax", "xor eax, eax",
            "lea rcx, [r8 + 3]", "cmp r13, rcx", "setne al",
            "shl rax, 3", "or rdx, rax", "xor eax, eax",
            "lea rcx, [r8 + 4]", "cmp r14, rcx", "setne al",
            "shl rax, 4", "or rdx, rax", "xor eax, eax",
            "lea rcx, [r8 + 5]", "cmp r15, rcx", "setne al", "shl rax, 5", "or rdx, rax",
            "pop rbp", "pop rbx",
            inout("rax") number => _,
            inout("rdi") argument => _,
            inout("rsi") 0_u64 => _,
            inout("rdx") 0_u64 => wrong,
            inout("r10") 0_u64 => _,
            inout("r8") seed => _,
            inout("r9") 0_u64 => _,
            out("rcx") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
    wrong
}

/// What a faulting call must leave as it was: rax rdi rsi rdx r10 r8 r9 rbx rbp r12 r13.
const KEPT: usize = 11;

/// Makes the call whose row is `number`, every pointer `address`, each other word small, with
/// patterns in the registers the call does not use; the fault's handler skips it. Bits of the
/// registers changed; bit 63: it did not fault, and answered no error.
pub fn across_faulting_call(number: u64, address: u64) -> u64 {
    let mut words = [1_u64; 6];
    for entry in abi::call::TABLE.iter().filter(|entry| u64::from(entry.number) == number) {
        for (at, (_, kind)) in entry.arguments.iter().enumerate() {
            words[at] = match *kind {
                "UserAddress" => address,
                "EnvId" | "DomainId" => 0,
                _ => 1,
            };
        }
    }
    let before = crate::faults::seen().count;
    let mut registers = [0; KEPT];
    let given = [
        number, words[0], words[1], words[2], words[3], words[4], words[5], 0xb0b0, 0xb1b1, 0xb2b2,
        0xb3b3,
    ];
    trap(&given, &mut registers);
    if crate::faults::seen().count == before {
        return if registers[0] == 0 { 1 << 63 } else { 0 };
    }
    let mut wrong = 0;
    for at in 0..KEPT {
        wrong |= u64::from(registers[at] != given[at]) << at;
    }
    wrong
}

/// An instruction that uses a vector register, at a site that may fault; its address.
pub fn touch_vectors() -> u64 {
    let at: u64;
    // SAFETY: `movups xmm0, xmm0` (0f 10 c0) changes nothing; faulting it is skipped.
    unsafe {
        asm!(
            "movabs r14, {mark}", "mov r15d, 3", "lea {at}, [rip + 2f]", "2:", "movups xmm0, xmm0",
            mark = const crate::faults::MARK,
            at = out(reg) at, out("r14") _, out("r15") _, options(nostack),
        );
    }
    at
}

/// Makes whatever call `rax` and `words` say: its error, or `None` if it faulted (and was skipped).
pub fn wild(rax: u64, words: [u64; 6]) -> Option<u64> {
    let before = crate::faults::seen().count;
    let mut registers = [0; KEPT];
    let given = [rax, words[0], words[1], words[2], words[3], words[4], words[5], 1, 2, 3, 4];
    trap(&given, &mut registers);
    (crate::faults::seen().count == before).then_some(registers[0])
}

/// A `syscall` marked as a site that may fault (`faults`): registers from `given`, then to `left`.
fn trap(given: &[u64; KEPT], left: &mut [u64; KEPT]) {
    // SAFETY: the addresses and rsp are kept in the save area's free part; rbx, rbp are pushed; a
    // transfer may change every register, all of which are declared or restored.
    unsafe {
        asm!(
            "push rbx", "push rbp",
            "mov gs:[{kept}], rsp",
            "mov gs:[{out}], r11",
            "mov rax, [rcx]", "mov rdi, [rcx + 8]", "mov rsi, [rcx + 16]", "mov rdx, [rcx + 24]",
            "mov r10, [rcx + 32]", "mov r8, [rcx + 40]",
            "mov r9, [rcx + 48]", "mov rbx, [rcx + 56]",
            "mov rbp, [rcx + 64]", "mov r12, [rcx + 72]", "mov r13, [rcx + 80]",
            "movabs r14, {mark}", "mov r15d, 2",
            "syscall",
            "mov rsp, gs:[{kept}]",
            "mov rcx, gs:[{out}]",
            "mov [rcx], rax", "mov [rcx + 8], rdi", "mov [rcx + 16], rsi", "mov [rcx + 24], rdx",
            "mov [rcx + 32], r10", "mov [rcx + 40], r8",
            "mov [rcx + 48], r9", "mov [rcx + 56], rbx",
            "mov [rcx + 64], rbp", "mov [rcx + 72], r12", "mov [rcx + 80], r13",
            "pop rbp", "pop rbx",
            kept = const block::TRANSFER_RSP,
            out = const block::FREE,
            mark = const crate::faults::MARK,
            inout("rcx") given.as_ptr() => _,
            inout("r11") left.as_mut_ptr() => _,
            out("rax") _, out("rdi") _, out("rsi") _, out("rdx") _, out("r10") _, out("r8") _,
            out("r9") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
}
