//! Entry and way back of upcalls: faults, events and foreign calls look alike from Rust.
//!
//! The entry stubs save the program's registers in the upcall's slot, run the thread's handler on
//! the handler stack of that depth, and go back without the kernel (`abi::upcall`). A foreign call
//! comes from the kernel, or by a jump from the program's own text where that was rewritten. Those
//! that a library names as trivial save nothing: rax, rcx, r11 and three words are all they have.
//! Short ones are functions: their registers are saved in slot 0, the others when such a function
//! says that the call is the handler's after all.
//!
//! ```text
//!  GS base ─► save area page
//!  0x000  the kernel's part (abi::upcall::SaveArea), in it the words that it leaves to us:
//!  0x050  where rewritten calls go       block::REWRITTEN
//!  0x058  address of 0x068               block::CALL_TOP      rsp of trivial calls
//!  0x060  the program's flags            block::CALL_FLAGS    the one word of their stack
//!  0x068  the program's rsp              block::CALL_RSP
//!  0x070  trivial calls by number        block::TRIVIAL       addresses of code
//!  0x078  how many                       block::TRIVIAL_COUNT
//!  0x098  traps until the next sample    block::SAMPLE
//!  0x0a0  address of 0x060               block::CALL_FLAGS_AT
//!  0x500  own address            block::SELF
//!  0x508  handler stacks, four   block::STACKS   top for depth 1 … 4
//!  0x528  handler function       block::HANDLER
//!  0x530  stack pointer kept over a transfer
//!  0x538  the library's own word block::THREAD
//! ```
//!
//! # Safety
//! Holds the entry stubs and the accessors of the save area. GS base is the address of a mapped,
//! pinned save area from the first instruction of every environment on (`spawn` and the kernel
//! see to it), and nothing here writes the kernel's part but the words the protocol gives us.
#![allow(unsafe_code)]

use abi::upcall::{self, offset};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

/// Offsets of the library's part of the save area.
pub mod block {
    /// Where the stubs of rewritten calls go: [`rewritten_entry`](super::rewritten_entry).
    pub const REWRITTEN: usize = 0x50;
    /// Address of [`CALL_RSP`]: the one word of stack that trivial calls have is below.
    pub const CALL_TOP: usize = 0x58;
    /// The program's flags over a trivial call.
    pub const CALL_FLAGS: usize = 0x60;
    /// The program's stack pointer over a trivial call.
    pub const CALL_RSP: usize = 0x68;
    /// Table of the code of trivial calls, by number.
    pub const TRIVIAL: usize = 0x70;
    /// Numbers in that table.
    pub const TRIVIAL_COUNT: usize = 0x78;
    /// Foreign calls through the kernel until one is sampled; 0: none is.
    pub const SAMPLE: usize = 0x98;
    /// Address of [`CALL_FLAGS`]: rsp on the way out of a call that saved more than these words.
    pub const CALL_FLAGS_AT: usize = 0xa0;
    /// Address of the save area itself.
    pub const SELF: usize = 0x500;
    /// Tops of the handler stacks, depth 1 first.
    pub const STACKS: usize = 0x508;
    /// The handler: [`Handler`](super::Handler).
    pub const HANDLER: usize = 0x528;
    /// rsp kept while a transfer is under way.
    pub const TRANSFER_RSP: usize = 0x530;
    /// The library's own word (ExOS: its thread).
    pub const THREAD: usize = 0x538;
    /// First byte free for the library.
    pub const FREE: usize = 0x540;
}

/// All registers of the interrupted program: `abi::upcall::Slot` with our names for its free words.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Slot {
    pub rip: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub r11: u64,
    pub cause: u64,
    pub error: u64,
    pub address: u64,
    pub mask: u64,
    pub rax: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub free: [u64; 10],
}

const _: () = assert!(core::mem::size_of::<Slot>() == 256);
const _: () = assert!(core::mem::offset_of!(Slot, mask) == 88);

const _: () = assert!(block::REWRITTEN >= offset::FOREIGN_RFLAGS + 8);
const _: () = assert!(block::TRIVIAL_COUNT + 8 <= offset::RESUME);
const _: () = assert!(block::SAMPLE >= offset::RESUME + 24);
const _: () = assert!(block::CALL_FLAGS_AT + 8 <= offset::RESUME + 64);

/// The `address` of a foreign call that is sampled: the [`block::SAMPLE`]th through the kernel.
pub const SAMPLED: u64 = 1;
/// The cause of an upcall that the program has asked for ([`request`]); the kernel delivers none.
pub const REQUEST: u64 = 66;
/// Bytes of a `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;

/// What a short call is done by: the program's rdi, rsi and rdx. What the call answers; or the
/// complement of its number, which is negative: nothing has happened, the handler is to do it.
pub type Short = extern "C" fn(u64, u64, u64) -> i64;

/// What runs for each upcall: the slot, the cause (`abi::upcall::Cause`), the faulting address.
pub type Handler = extern "C" fn(&mut Slot, u64, u64);

unsafe extern "C" {
    /// Where faults and events enter: the address for `EnvSetup::{fault_entry, event_entry}`.
    fn xok_upcall_entry();
    /// Where foreign calls enter: for `EnvSetup::foreign_entry`.
    fn xok_foreign_entry();
    /// Where rewritten calls enter: rcx is the address behind the `syscall`.
    fn xok_rewritten_entry();
    /// Enters the handler as a call of the program's own, which it returns to.
    fn xok_request(what: u64, whom: u64);
    /// What a trivial call's table has for a number that is not trivial.
    pub fn xok_call_full();
    /// Where the code of a trivial call goes when rax has the answer.
    pub fn xok_call_leave();
    /// Where the code of a trivial call goes that is a short one, with r11 its [`Short`].
    pub fn xok_call_short();
    /// Bounds of the way out of trivial calls where events may come.
    fn xok_leave_first();
    fn xok_leave_last();
    /// Leaves to the program context in the slot that rdi names.
    fn xok_resume(slot: *const Slot) -> !;
    /// Bounds of the return sequence.
    fn xok_return_first();
    fn xok_return_last();
}

global_asm!(
    ".section .upcall, \"ax\"",
    ".global xok_upcall_entry, xok_foreign_entry, xok_resume, xok_return_first, xok_return_last",
    ".global xok_rewritten_entry, xok_call_full, xok_call_leave, xok_leave_first, xok_leave_last",
    ".global xok_call_short, xok_request",
    "xok_upcall_entry:",
    "cmp qword ptr gs:[{returning}], 0",
    "jne 2f",
    "mov [rdi + 96], rax",
    "mov [rdi + 104], rbx",
    "mov [rdi + 112], rbp",
    "mov [rdi + 120], r8",
    "mov [rdi + 128], r9",
    "mov [rdi + 136], r10",
    "mov [rdi + 144], r12",
    "mov [rdi + 152], r13",
    "mov [rdi + 160], r14",
    "mov [rdi + 168], r15",
    "2:",
    "mov qword ptr gs:[{returning}], 0",
    "3:",
    "mov rcx, gs:[{depth}]",
    "mov rsp, gs:[{stacks} - 8 + rcx * 8]",
    "4:",
    "xor ebp, ebp",
    "mov rbx, rdi",
    "call gs:[{handler}]",
    "mov rdi, rbx",
    // The way back. rdi: the slot whose context goes on; it is the innermost one in use.
    "xok_resume:",
    "mov rax, [rdi]",
    "mov gs:[{resume}], rax",
    "mov rax, [rdi + 8]",
    "mov gs:[{resume} + 8], rax",
    "mov rax, [rdi + 16]",
    "mov gs:[{resume} + 16], rax",
    "lea rax, [rdi + 1]",
    "mov gs:[{returning}], rax",
    "xok_return_first:",
    "mov rax, [rdi + 96]",
    "mov rbx, [rdi + 104]",
    "mov rbp, [rdi + 112]",
    "mov r8, [rdi + 120]",
    "mov r9, [rdi + 128]",
    "mov r10, [rdi + 136]",
    "mov r12, [rdi + 144]",
    "mov r13, [rdi + 152]",
    "mov r14, [rdi + 160]",
    "mov r15, [rdi + 168]",
    "mov rsi, [rdi + 32]",
    "mov rdx, [rdi + 40]",
    "mov rcx, [rdi + 48]",
    "dec qword ptr gs:[{depth}]",
    "mov r11, [rdi + 88]",
    "mov gs:[{mask}], r11",
    "test r11, r11",
    "jnz 5f",
    "mov r11, gs:[{pending}]",
    "or r11, gs:[{events}]",
    "jnz 6f",
    "5:",
    "mov r11, [rdi + 56]",
    "mov rdi, [rdi + 24]",
    "mov rsp, gs:[{self_at}]",
    "lea rsp, [rsp + {resume} + 8]",
    "popfq",
    "mov rsp, gs:[{resume} + 16]",
    "jmp gs:[{resume}]",
    // Something arrived while we were masked: back to the handler with the slot as it was.
    "6:",
    "mov qword ptr gs:[{mask}], 1",
    "inc qword ptr gs:[{depth}]",
    "mov qword ptr gs:[{returning}], 0",
    "xok_return_last:",
    "mov esi, {event}",
    "xor edx, edx",
    "jmp 3b",
    // Pushes slot 0 for a call: rcx and r11 are the program's rip and rflags. Goes to the handler.
    ".macro xok_enter_call cause, address",
    "mov gs:[{slots} + 16], rsp",
    "mov gs:[{slots} + 24], rdi",
    "mov gs:[{slots} + 32], rsi",
    "mov gs:[{slots} + 40], rdx",
    "mov gs:[{slots} + 96], rax",
    "mov gs:[{slots} + 104], rbx",
    "mov gs:[{slots} + 112], rbp",
    "mov gs:[{slots} + 120], r8",
    "mov gs:[{slots} + 128], r9",
    "mov gs:[{slots} + 136], r10",
    "mov gs:[{slots} + 144], r12",
    "mov gs:[{slots} + 152], r13",
    "mov gs:[{slots} + 160], r14",
    "mov gs:[{slots} + 168], r15",
    "mov gs:[{slots}], rcx",
    "mov gs:[{slots} + 48], rcx",
    "mov gs:[{slots} + 8], r11",
    "mov gs:[{slots} + 56], r11",
    "mov qword ptr gs:[{depth}], 1",
    "xok_handle_call \\cause, \\address",
    ".endm",
    // Goes to the handler with slot 0, which has the program's registers and is counted.
    ".macro xok_handle_call cause, address",
    "mov qword ptr gs:[{slots} + 88], 0",
    "mov qword ptr gs:[{returning}], 0",
    "mov rsp, gs:[{stacks}]",
    "mov rdi, gs:[{self_at}]",
    "add rdi, {slots}",
    "mov esi, \\cause",
    "mov edx, \\address",
    "jmp 4b",
    ".endm",
    // Gives the program its stack pointer back, r11 its flags, and us flags as the kernel clears
    // them at a `syscall`: TF, DF, NT, AC.
    ".macro xok_leave_word",
    "pop r11",
    "push 2",
    "popfq",
    "mov rsp, gs:[{call_rsp}]",
    ".endm",
    // A foreign call through the kernel: no slot was pushed, the mask is set, the program's rip and
    // rflags are in the foreign words.
    "xok_foreign_entry:",
    "mov rcx, gs:[{foreign_rip}]",
    "mov r11, gs:[{foreign_rflags}]",
    "dec qword ptr gs:[{sample}]",
    "jz 8f",
    "mov gs:[{call_rsp}], rsp",
    "mov rsp, gs:[{call_top}]",
    "push r11",
    "cmp rax, gs:[{trivial_count}]",
    "jae xok_call_full",
    "mov r11, gs:[{trivial}]",
    "jmp [r11 + rax * 8]",
    "8:",
    "xok_enter_call {foreign}, {sampled}",
    // The same by a jump from a stub. After the first instruction no event comes.
    "xok_rewritten_entry:",
    "mov qword ptr gs:[{mask}], 1",
    "mov gs:[{call_rsp}], rsp",
    "mov rsp, gs:[{call_top}]",
    "pushfq",
    "cmp rax, gs:[{trivial_count}]",
    "jae xok_call_full",
    "mov r11, gs:[{trivial}]",
    "jmp [r11 + rax * 8]",
    // A function: the handler runs with a slot that goes on behind the call.
    "xok_request:",
    "mov qword ptr gs:[{mask}], 1",
    "pop rcx",
    "pushfq",
    "pop r11",
    "xok_enter_call {request}, 0",
    "xok_call_full:",
    "xok_leave_word",
    "xok_enter_call {foreign}, 0",
    // What a function may change is saved as the handler would want it. Slot 0 is in use meanwhile,
    // so that a fault of the function's is in slot 1. Of the flags only DF means something to it.
    "xok_call_short:",
    "mov gs:[{slots} + 24], rdi",
    "mov gs:[{slots} + 32], rsi",
    "mov gs:[{slots} + 40], rdx",
    "mov gs:[{slots} + 48], rcx",
    "mov gs:[{slots} + 120], r8",
    "mov gs:[{slots} + 128], r9",
    "mov gs:[{slots} + 136], r10",
    "mov qword ptr gs:[{depth}], 1",
    "mov rsp, gs:[{stacks}]",
    "cld",
    "call r11",
    "test rax, rax",
    "js 7f",
    "mov rdi, gs:[{slots} + 24]",
    "mov rsi, gs:[{slots} + 32]",
    "mov rdx, gs:[{slots} + 40]",
    "mov rcx, gs:[{slots} + 48]",
    "mov r8, gs:[{slots} + 120]",
    "mov r9, gs:[{slots} + 128]",
    "mov r10, gs:[{slots} + 136]",
    "mov qword ptr gs:[{depth}], 0",
    "mov rsp, gs:[{call_flags_at}]",
    // The way out of trivial calls; rsp is at the word with the program's flags.
    "xok_call_leave:",
    "mov qword ptr gs:[{mask}], 0",
    "xok_leave_first:",
    "mov r11, gs:[{pending}]",
    "or r11, gs:[{events}]",
    "jnz 9f",
    "mov r11, [rsp]",
    "popfq",
    "mov rsp, gs:[{call_rsp}]",
    "jmp rcx",
    // Something arrived while we were masked: the handler runs as if after the call.
    "9:",
    "mov qword ptr gs:[{mask}], 1",
    "xok_leave_last:",
    "xok_leave_word",
    "xok_enter_call {event}, 0",
    // Not so short after all: slot 0 gets what it has not yet, and the handler runs.
    "7:",
    "not rax",
    "push 2",
    "popfq",
    "mov gs:[{slots} + 96], rax",
    "mov gs:[{slots} + 104], rbx",
    "mov gs:[{slots} + 112], rbp",
    "mov gs:[{slots} + 144], r12",
    "mov gs:[{slots} + 152], r13",
    "mov gs:[{slots} + 160], r14",
    "mov gs:[{slots} + 168], r15",
    "mov rcx, gs:[{slots} + 48]",
    "mov gs:[{slots}], rcx",
    "mov r11, gs:[{call_flags}]",
    "mov gs:[{slots} + 8], r11",
    "mov gs:[{slots} + 56], r11",
    "mov rcx, gs:[{call_rsp}]",
    "mov gs:[{slots} + 16], rcx",
    "xok_handle_call {foreign}, 0",
    returning = const offset::RETURNING,
    depth = const offset::DEPTH,
    mask = const offset::MASK,
    pending = const offset::PENDING,
    events = const offset::EVENTS,
    resume = const offset::RESUME,
    slots = const offset::SLOTS,
    foreign_rip = const offset::FOREIGN_RIP,
    foreign_rflags = const offset::FOREIGN_RFLAGS,
    self_at = const block::SELF,
    stacks = const block::STACKS,
    handler = const block::HANDLER,
    call_top = const block::CALL_TOP,
    call_rsp = const block::CALL_RSP,
    call_flags = const block::CALL_FLAGS,
    call_flags_at = const block::CALL_FLAGS_AT,
    trivial = const block::TRIVIAL,
    trivial_count = const block::TRIVIAL_COUNT,
    sample = const block::SAMPLE,
    sampled = const SAMPLED,
    event = const abi::upcall::Cause::Event as u32,
    foreign = const abi::upcall::Cause::Foreign as u32,
    request = const REQUEST,
);

/// Address for `EnvSetup::fault_entry` and `event_entry`.
pub fn entry() -> u64 {
    xok_upcall_entry as *const () as u64
}

/// Address for `EnvSetup::foreign_entry`.
pub fn foreign_entry() -> u64 {
    xok_foreign_entry as *const () as u64
}

/// Where the stubs of rewritten calls go (by way of [`block::REWRITTEN`]), with rcx the address
/// behind the `syscall`.
pub fn rewritten_entry() -> u64 {
    xok_rewritten_entry as *const () as u64
}

/// An event that came in the first instruction of a rewritten call, or on the way out of a trivial
/// one: makes its slot the program's context before, or after, the call.
pub fn settle(slot: &mut Slot) {
    let leaving = xok_leave_first as *const () as u64..xok_leave_last as *const () as u64;
    if slot.rip == rewritten_entry() {
        slot.rip = slot.rcx.wrapping_sub(SYSCALL_BYTES);
    } else if leaving.contains(&slot.rip) {
        slot.rip = slot.rcx;
        slot.rflags = word(block::CALL_FLAGS);
        slot.r11 = slot.rflags;
        slot.rsp = word(block::CALL_RSP);
    }
}

/// Goes on with the context in `slot`, which must be the innermost slot in use (`depth` counts it).
pub fn resume(slot: &Slot) -> ! {
    // SAFETY: the stub restores every register from the slot; nothing of this frame is used again.
    unsafe { xok_resume(slot) }
}

/// Has the handler run, with the cause [`REQUEST`] and these words in the slot's rdi and rsi, as if
/// something had interrupted the program. Not while events are masked.
pub fn request(what: u64, whom: u64) {
    // SAFETY: slot 0 is free where events are not masked; the stub sets the mask, and keeps what a
    // function keeps, as the way back restores all.
    unsafe { xok_request(what, whom) }
}

/// A word of the current environment's save area page, `offset` bytes in.
pub fn word(offset: usize) -> u64 {
    let value;
    // SAFETY: GS base is the save area (head of the file).
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) value, in(reg) offset, options(nostack, readonly));
    }
    value
}

/// The same of an offset that is known, by one instruction.
#[inline(always)]
pub fn word_at<const OFFSET: usize>() -> u64 {
    let value;
    // SAFETY: as `word`.
    unsafe {
        asm!("mov {}, gs:[{offset}]", out(reg) value, offset = const OFFSET,
            options(nostack, readonly, preserves_flags));
    }
    value
}

/// Stores a word of the current environment's save area page.
///
/// # Safety
/// The protocol words (`abi::upcall`) steer what the processor does next; the caller must leave
/// them in a state the protocol allows.
pub unsafe fn set_word(offset: usize, value: u64) {
    // SAFETY: as `word`; the caller vouches for the meaning.
    unsafe { asm!("mov gs:[{}], {}", in(reg) offset, in(reg) value, options(nostack)) }
}

/// Takes all posted bits: returns them and leaves none.
pub fn take_pending() -> u64 {
    upcall::take_all(atomic(offset::PENDING))
}

/// Takes all event bits: returns them and leaves none.
pub fn take_events() -> u64 {
    upcall::take_all(atomic(offset::EVENTS))
}

/// Takes the posted bits in `which`: returns those that were set.
pub fn take_pending_of(which: u64) -> u64 {
    upcall::take(atomic(offset::PENDING), which)
}

/// Posted bits, as they stand.
pub fn pending() -> u64 {
    word(offset::PENDING)
}

/// Event bits, as they stand.
pub fn events() -> u64 {
    word(offset::EVENTS)
}

/// Takes the event bits in `which`: returns those that were set.
pub fn take_events_of(which: u64) -> u64 {
    upcall::take(atomic(offset::EVENTS), which)
}

/// Whether asynchronous events wait; returns what it was.
pub fn set_mask(masked: bool) -> bool {
    atomic(offset::MASK).swap(u64::from(masked), Ordering::AcqRel) != 0
}

fn atomic(offset: usize) -> &'static AtomicU64 {
    let base = word(block::SELF);
    // SAFETY: SELF is the save area's address; the page lives as long as the environment, and the
    // kernel changes these words atomically.
    unsafe { AtomicU64::from_ptr((base + offset as u64) as *mut u64) }
}

/// The code of trivial calls, by their number; [`xok_call_full`] for those that are not. The code
/// may use rax, rcx, r11 (rcx only to keep it) and leaves to [`xok_call_leave`].
pub type Trivial = [unsafe extern "C" fn()];

/// What a save area begins with.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// Where it will be.
    pub save_area: u64,
    /// Tops of the handler stacks, depth 1 first.
    pub stacks: [u64; 4],
    /// What runs for each upcall.
    pub handler: Handler,
    /// Calls that need no handler.
    pub trivial: &'a Trivial,
    /// Which foreign call through the kernel is sampled first, 0: none.
    pub sample: u64,
}

/// Prepares the save area seen at `window` for its first use.
///
/// # Safety
/// `window` is a mapped, writable page that is (to become) an environment's save area; each
/// stack top has room below it for the handler; no other reference to the page exists; the table of
/// trivial calls stays where it is.
pub unsafe fn prepare(window: u64, beginning: &Beginning<'_>) {
    let put = |offset: usize, value: u64| {
        let place = (window + offset as u64) as *mut u64;
        // SAFETY: within the page that the caller vouches for.
        unsafe { place.write_volatile(value) }
    };
    put(block::SELF, beginning.save_area);
    for (depth, top) in beginning.stacks.iter().enumerate() {
        put(block::STACKS + 8 * depth, *top);
    }
    put(block::HANDLER, beginning.handler as *const () as u64);
    put(block::REWRITTEN, rewritten_entry());
    put(block::CALL_TOP, beginning.save_area + block::CALL_RSP as u64);
    put(block::CALL_FLAGS_AT, beginning.save_area + block::CALL_FLAGS as u64);
    put(block::TRIVIAL, beginning.trivial.as_ptr() as u64);
    put(block::TRIVIAL_COUNT, beginning.trivial.len() as u64);
    put(block::SAMPLE, beginning.sample);
    put(offset::RETURN_FIRST, xok_return_first as *const () as u64);
    put(offset::RETURN_LAST, xok_return_last as *const () as u64);
}
