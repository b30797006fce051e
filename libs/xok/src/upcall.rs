//! Entry and way back of upcalls: faults, events and foreign calls look alike from Rust.
//!
//! The entry stubs save the program's registers in the upcall's slot, run the thread's handler on
//! the handler stack of that depth, and go back without the kernel (`abi::upcall`).
//!
//! ```text
//!  GS base ─► save area page
//!  0x000  the kernel's part (abi::upcall::SaveArea)
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

use abi::upcall::offset;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

/// Offsets of the library's part of the save area.
pub mod block {
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

/// What runs for each upcall: the slot, the cause (`abi::upcall::Cause`), the faulting address.
pub type Handler = extern "C" fn(&mut Slot, u64, u64);

unsafe extern "C" {
    /// Where faults and events enter: the address for `EnvSetup::{fault_entry, event_entry}`.
    fn xok_upcall_entry();
    /// Where foreign calls enter: for `EnvSetup::foreign_entry`.
    fn xok_foreign_entry();
    /// Leaves to the program context in the slot that rdi names.
    fn xok_resume(slot: *const Slot) -> !;
    /// Bounds of the return sequence.
    fn xok_return_first();
    fn xok_return_last();
}

global_asm!(
    ".section .text.xok_upcall, \"ax\"",
    ".global xok_upcall_entry, xok_foreign_entry, xok_resume, xok_return_first, xok_return_last",
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
    // A foreign call: no slot was pushed, the program's rip and rflags are in the foreign words.
    "xok_foreign_entry:",
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
    "mov rcx, gs:[{foreign_rip}]",
    "mov gs:[{slots}], rcx",
    "mov gs:[{slots} + 48], rcx",
    "mov r11, gs:[{foreign_rflags}]",
    "mov gs:[{slots} + 8], r11",
    "mov gs:[{slots} + 56], r11",
    "mov qword ptr gs:[{slots} + 88], 0",
    "mov qword ptr gs:[{returning}], 0",
    "mov qword ptr gs:[{depth}], 1",
    "mov rsp, gs:[{stacks}]",
    "mov rdi, gs:[{self_at}]",
    "add rdi, {slots}",
    "mov esi, {foreign}",
    "xor edx, edx",
    "jmp 4b",
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
    event = const abi::upcall::Cause::Event as u32,
    foreign = const abi::upcall::Cause::Foreign as u32,
);

/// Address for `EnvSetup::fault_entry` and `event_entry`.
pub fn entry() -> u64 {
    xok_upcall_entry as *const () as u64
}

/// Address for `EnvSetup::foreign_entry`.
pub fn foreign_entry() -> u64 {
    xok_foreign_entry as *const () as u64
}

/// Goes on with the context in `slot`, which must be the innermost slot in use (`depth` counts it).
pub fn resume(slot: &Slot) -> ! {
    // SAFETY: the stub restores every register from the slot; nothing of this frame is used again.
    unsafe { xok_resume(slot) }
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
    atomic(offset::PENDING).swap(0, Ordering::AcqRel)
}

/// Takes all event bits: returns them and leaves none.
pub fn take_events() -> u64 {
    atomic(offset::EVENTS).swap(0, Ordering::AcqRel)
}

/// Takes the posted bits in `which`: returns those that were set.
pub fn take_pending_of(which: u64) -> u64 {
    atomic(offset::PENDING).fetch_and(!which, Ordering::AcqRel) & which
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
    atomic(offset::EVENTS).fetch_and(!which, Ordering::AcqRel) & which
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

/// Prepares a save area for its first use: own address, handler stacks (tops, depth 1 first), the
/// handler, the bounds of the return sequence.
///
/// # Safety
/// `save_area` is a mapped, writable page that is (to become) an environment's save area; each
/// stack top has room below it for the handler; no other reference to the page exists.
pub unsafe fn prepare(save_area: u64, stacks: [u64; 4], handler: Handler) {
    let put = |offset: usize, value: u64| {
        let place = (save_area + offset as u64) as *mut u64;
        // SAFETY: within the page that the caller vouches for.
        unsafe { place.write_volatile(value) }
    };
    put(block::SELF, save_area);
    for (depth, top) in stacks.iter().enumerate() {
        put(block::STACKS + 8 * depth, *top);
    }
    put(block::HANDLER, handler as *const () as u64);
    put(offset::RETURN_FIRST, xok_return_first as *const () as u64);
    put(offset::RETURN_LAST, xok_return_last as *const () as u64);
}
