//! A visit with every register full, and what both sides find in theirs.
//!
//! # Safety
//! Assembly that fills all registers around one `DomainSwitch` at home, and around the way back in
//! the domain visited, which has this program's code, its own record to write, and no stack.
#![allow(unsafe_code)]

use abi::call::number;
use abi::id::DomainId;
use abi::layout::PAGE_SIZE;
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::ops::Range;

/// Registers as one side finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Found {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub mxcsr: u64,
    pub xmm: [u128; 16],
}

impl Found {
    /// Nothing, with the flags and modes of a program that begins.
    pub const CLEAR: Self = Self {
        rax: 0,
        rbx: 0,
        rcx: 0,
        rdx: 0,
        rsi: 0,
        rdi: 0,
        rbp: 0,
        rsp: 0,
        r8: 0,
        r9: 0,
        r10: 0,
        r11: 0,
        r12: 0,
        r13: 0,
        r14: 0,
        r15: 0,
        rflags: 0x202,
        fs_base: 0,
        gs_base: 0,
        mxcsr: 0x1f80,
        xmm: [0; 16],
    };
}

/// What is left in every register that is not said here, on either side; the words of the message.
pub const JUNK: u64 = 0x5a5a_0000;
pub const MESSAGE: u64 = 0x7171_0000;

/// CF PF AF ZF SF IF DF OF NT AC ID.
const FLAGS: u64 = 0x24_4ed7;

#[repr(C, align(4096))]
struct Record(UnsafeCell<Found>);
// SAFETY: one environment, which is here or there.
unsafe impl Sync for Record {}
#[unsafe(no_mangle)]
static ABROAD_THERE: Record = Record(UnsafeCell::new(Found::CLEAR));
#[unsafe(no_mangle)]
static ABROAD_HOME: Record = Record(UnsafeCell::new(Found::CLEAR));

unsafe extern "C" {
    fn abroad_entry();
    fn abroad_visit(domain: u64, bases: u64) -> u64;
}

global_asm!(
    ".macro abroad_record to",
    "mov [rip + \\to], rax",
    "mov [rip + \\to + 8], rbx",
    "mov [rip + \\to + 16], rcx",
    "mov [rip + \\to + 24], rdx",
    "mov [rip + \\to + 32], rsi",
    "mov [rip + \\to + 40], rdi",
    "mov [rip + \\to + 48], rbp",
    "mov [rip + \\to + 56], rsp",
    "mov [rip + \\to + 64], r8",
    "mov [rip + \\to + 72], r9",
    "mov [rip + \\to + 80], r10",
    "mov [rip + \\to + 88], r11",
    "mov [rip + \\to + 96], r12",
    "mov [rip + \\to + 104], r13",
    "mov [rip + \\to + 112], r14",
    "mov [rip + \\to + 120], r15",
    "stmxcsr [rip + \\to + 152]",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups [rip + \\to + 160 + 16 * \\number], xmm\\number",
    ".endr",
    "mov rbx, rsp",
    "lea rsp, [rip + \\to + 4096]",
    "pushfq",
    "pop [rip + \\to + 128]",
    "mov rsp, rbx",
    // The first word of the message says whether the bases can be read.
    "test rsi, rsi",
    "jz 7f",
    "rdfsbase rbx",
    "mov [rip + \\to + 136], rbx",
    "rdgsbase rbx",
    "mov [rip + \\to + 144], rbx",
    "7:",
    ".endm",
    // Everything but rax, rdi and the stack pointer; flags that a program may set; rounding.
    ".macro abroad_fill",
    ".irp register, rbx, rcx, rbp, r11, r12, r13, r14, r15",
    "mov \\register, {junk}",
    ".endr",
    "mov rdx, {message} + 1",
    "mov r8, {message} + 2",
    "mov r9, {message} + 3",
    "mov r10, {message} + 4",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "pcmpeqd xmm\\number, xmm\\number",
    ".endr",
    "ldmxcsr [rip + abroad_modes]",
    "push {flags}",
    "popfq",
    ".endm",
    ".section .text.abroad, \"ax\"",
    ".global abroad_entry, abroad_visit",
    ".balign 4",
    "abroad_modes: .long 0x7f80",
    // Where the visitor arrives.
    "abroad_entry:",
    "abroad_record ABROAD_THERE",
    "test rsi, rsi",
    "jz 2f",
    "mov rbx, {junk}",
    "wrfsbase rbx",
    "wrgsbase rbx",
    "2:",
    "lea rsp, [rip + ABROAD_THERE + 4096]",
    "abroad_fill",
    "mov rsp, {junk}",
    // By a capability that is none.
    "mov eax, {switch} | 0xff0000",
    "syscall",
    "ud2",
    // abroad_visit(rdi: the domain, rsi: can bases be read?): the stack pointer before.
    "abroad_visit:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + abroad_rsp], rsp",
    "abroad_fill",
    "mov eax, {switch}",
    "syscall",
    "abroad_record ABROAD_HOME",
    "cld",
    "mov rsp, [rip + abroad_rsp]",
    "mov rax, rsp",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".section .data.abroad, \"aw\"",
    ".balign 8",
    "abroad_rsp: .quad 0",
    ".text",
    flags = const FLAGS,
    junk = const JUNK,
    message = const MESSAGE,
    switch = const number::DomainSwitch,
);

/// Where visitors arrive whose registers are recorded.
pub fn entry() -> u64 {
    abroad_entry as *const () as u64
}

/// The page that the domain visited writes its record to.
pub fn page() -> Range<u64> {
    let first = ABROAD_THERE.0.get() as u64;
    first..first + PAGE_SIZE
}

/// Goes there with all registers full: what is found there, at home, and the stack pointer at home
/// before; FS and GS base only if `bases`.
pub fn visit(domain: DomainId, bases: bool) -> (Found, Found, u64) {
    // SAFETY: see the head of the file.
    unsafe {
        let before = abroad_visit(domain.0, bases.into());
        (ABROAD_THERE.0.get().read_volatile(), ABROAD_HOME.0.get().read_volatile(), before)
    }
}
