//! Faults on purpose: what the last one was, and what to do about the next.
//!
//! # Safety
//! Holds the instructions that fault and the loads and stores of probed addresses. The handler
//! skips the faulting instruction by the length its site announced, or runs the plan set for it.
#![allow(unsafe_code)]

use abi::upcall::Cause;
use core::arch::asm;
use core::cell::UnsafeCell;
use xok::upcall::Slot;

/// What a fault looked like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Faults since the start.
    pub count: u64,
    /// The last one's cause.
    pub cause: u64,
    /// Where it happened.
    pub rip: u64,
    /// The address it names.
    pub address: u64,
    /// The processor's error code.
    pub error: u64,
    /// Event upcalls since the start.
    pub events: u64,
    /// Event bits seen, or-ed.
    pub event_bits: u64,
    /// Posted bits seen, or-ed.
    pub posted_bits: u64,
}

struct Shared(UnsafeCell<Seen>);
// SAFETY: one environment; the handler runs in place of the main flow, never beside it.
unsafe impl Sync for Shared {}
static SEEN: Shared = Shared(UnsafeCell::new(Seen {
    count: 0,
    cause: 0,
    rip: 0,
    address: 0,
    error: 0,
    events: 0,
    event_bits: 0,
    posted_bits: 0,
}));

/// What the handler has seen so far.
pub fn seen() -> Seen {
    // SAFETY: a volatile copy; the handler does not run during it but for faults, and this has
    // none.
    unsafe { SEEN.0.get().read_volatile() }
}

/// Forgets the bits seen.
pub fn forget_bits() {
    // SAFETY: as `seen`.
    unsafe {
        (*SEEN.0.get()).event_bits = 0;
        (*SEEN.0.get()).posted_bits = 0;
    }
}

/// Makes the handler below the program's.
pub fn install() {
    xok::start::set_handler(handler);
}

/// Records, and skips the instruction: sites put its length into r15 (the handler ends the program
/// when r15 is no plausible length, so that a real bug is not skipped over).
extern "C" fn handler(slot: &mut Slot, cause: u64, address: u64) {
    // SAFETY: see `Shared`.
    let seen = unsafe { &mut *SEEN.0.get() };
    if cause == Cause::Event as u64 {
        seen.events += 1;
        seen.event_bits |= xok::upcall::take_events();
        seen.posted_bits |= xok::upcall::take_pending();
        return;
    }
    seen.count += 1;
    seen.cause = cause;
    seen.rip = slot.rip;
    seen.address = address;
    seen.error = slot.error;
    let length = slot.r15;
    if slot.r14 != MARK || length == 0 || length > 15 {
        xok::log!(
            0,
            "fault {cause} at {:#x} address {address:#x} error {:#x}",
            slot.rip,
            slot.error
        );
        xok::call::exit(xok::start::EXIT_FAULT | cause);
    }
    slot.rip += length;
}

/// r14 at a site that faults on purpose.
pub const MARK: u64 = 0x746c_7561_6600;

// Of the registers that a delivery saves, whatever a site's caller has there stays out.
macro_rules! site {
    ($length:literal, $($text:literal),+ ; $($operands:tt)*) => {
        asm!(
            "mov r14, {mark}", "mov r15d, {length}",
            "mov edi, 0x1001", "mov edx, 0x1002", "mov r11d, 0x1003", $($text),+,
            mark = const MARK, length = const $length,
            out("r14") _, out("r15") _, out("rdi") _, out("rdx") _, out("r11") _, $($operands)*
        )
    };
}

/// Loads a byte; `None` if that faulted.
pub fn load(address: u64) -> Option<u8> {
    let before = seen().count;
    let value: u64;
    // SAFETY: a one-byte load that either works or is skipped (3 bytes: 8a 04 17 style, see text).
    unsafe {
        site!(3, "mov esi, 0x1004", "movzx eax, byte ptr [rcx]";
            in("rcx") address, out("rax") value, out("rsi") _, options(nostack));
    }
    (seen().count == before).then_some(value as u8)
}

/// Stores a byte; did it work?
pub fn store(address: u64, byte: u8) -> bool {
    let before = seen().count;
    // SAFETY: a one-byte store (88 01) to memory that the test owns, or skipped.
    unsafe {
        site!(2, "mov esi, 0x1004", "mov byte ptr [rcx], al";
            in("rcx") address, in("al") byte, out("rsi") _, options(nostack));
    }
    seen().count == before
}

/// Jumps to an address from which nothing comes back.
pub fn jump(address: u64) -> ! {
    // SAFETY: the fault there ends the program: r14 has no mark.
    unsafe { asm!("xor r14d, r14d", "jmp {}", in(reg) address, options(noreturn)) }
}

/// Divides by zero; the address of the `div`.
pub fn divide() -> u64 {
    let at: u64;
    // SAFETY: `div ecx` (f7 f1) faults and is skipped.
    unsafe {
        site!(2, "lea rsi, [rip + 2f]", "xor edx, edx", "mov eax, 1", "xor ecx, ecx",
            "2:", "div ecx";
            out("rsi") at, out("rax") _, out("rcx") _, options(nostack));
    }
    at
}

/// Runs an undefined instruction; its address.
pub fn illegal() -> u64 {
    let at: u64;
    // SAFETY: `ud2` (0f 0b) faults and is skipped.
    unsafe {
        site!(2, "lea rsi, [rip + 2f]", "mov ecx, 0x1005", "2:", "ud2";
            out("rsi") at, out("rcx") _, options(nostack));
    }
    at
}

/// Runs `ud2` `count` times in a row without a call in between.
pub fn illegal_many(count: u64) {
    // SAFETY: as `illegal`.
    unsafe {
        site!(2, "2:", "ud2", "dec rcx", "jnz 2b"; inout("rcx") count => _, options(nostack));
    }
}

/// Single-steps one instruction, whose exception has a stack of its own in the kernel; was it seen
/// behind that instruction?
pub fn debug() -> bool {
    extern "C" fn stepped(slot: &mut Slot, cause: u64, _: u64) {
        const TRAP: u64 = 1 << 8;
        if cause == Cause::Debug as u64 {
            // SAFETY: see `Shared`.
            let seen = unsafe { &mut *SEEN.0.get() };
            (seen.count, seen.cause, seen.rip) = (seen.count + 1, cause, slot.rip);
            slot.rflags &= !TRAP;
        }
    }
    xok::start::set_handler(stepped);
    let at: u64;
    // SAFETY: the handler clears the flag again.
    unsafe {
        asm!("lea {at}, [rip + 2f]", "pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop", "2:",
            at = out(reg) at);
    }
    install();
    seen().cause == Cause::Debug as u64 && seen().rip == at
}

/// Sets or clears AC in one's flags; was it set?
pub fn alignment_check(on: bool) -> bool {
    let before: u64;
    let wanted = u64::from(on) << 18;
    // SAFETY: the kernel has CR0.AM clear, so that nothing is checked; only the flag changes.
    unsafe {
        asm!("pushfq", "mov {before}, [rsp]", "and qword ptr [rsp], {others}",
            "or [rsp], {wanted}", "popfq",
            before = out(reg) before, wanted = in(reg) wanted, others = const !(1 << 18));
    }
    before & 1 << 18 != 0
}

/// Runs a privileged instruction (`hlt`); its address.
pub fn privileged() -> u64 {
    let at: u64;
    // SAFETY: `hlt` (f4) faults in user mode and is skipped.
    unsafe {
        site!(1, "lea rsi, [rip + 2f]", "mov ecx, 0x1005", "2:", "hlt";
            out("rsi") at, out("rcx") _, options(nostack));
    }
    at
}
