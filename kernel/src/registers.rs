//! The processor's instructions that Rust has no name for.
//!
//! # Safety
//! Reading registers and ports is harmless and offered as safe functions. So are port writes: no
//! device of ours masters the bus by port I/O. What can break memory (CR3, MSRs, descriptor
//! tables) is `unsafe`, and the caller's note says why it doesn't.
#![allow(unsafe_code)]

use core::arch::asm;

/// Writes a byte to an I/O port.
pub fn outb(port: u16, value: u8) {
    // SAFETY: see the file's head.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

/// Reads a byte from an I/O port.
pub fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: see the file's head.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) }
    value
}

/// Writes 16 bits to an I/O port.
pub fn outw(port: u16, value: u16) {
    // SAFETY: see the file's head.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack)) }
}

/// Reads 32 bits from an I/O port.
pub fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: see the file's head.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) }
    value
}

/// Model-specific registers (SDM 4).
pub mod msr {
    pub const APIC_BASE: u32 = 0x1b;
    pub const EFER: u32 = 0xc000_0080;
    pub const STAR: u32 = 0xc000_0081;
    pub const LSTAR: u32 = 0xc000_0082;
    pub const FMASK: u32 = 0xc000_0084;
    pub const FS_BASE: u32 = 0xc000_0100;
    pub const GS_BASE: u32 = 0xc000_0101;
    pub const ARCH_CAPABILITIES: u32 = 0x10a;
    pub const SPEC_CTRL: u32 = 0x48;
    pub const PRED_CMD: u32 = 0x49;
}

/// Reads a model-specific register that the processor is known to have.
pub fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading has no effect; a register that isn't there is an exception with a message.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
             options(nomem, nostack))
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must leave entry points and memory as Rust expects them.
pub unsafe fn wrmsr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
             options(nostack))
    }
}

macro_rules! read {
    ($($name:ident $register:literal;)+) => { $(
        #[doc = concat!("Reads ", $register, ".")]
        pub fn $name() -> u64 {
            let value;
            // SAFETY: reading has no effect.
            unsafe { asm!(concat!("mov {}, ", $register), out(reg) value, options(nomem, nostack)) }
            value
        }
    )+ };
}

macro_rules! write {
    ($($name:ident $register:literal;)+) => { $(
        #[doc = concat!("Writes ", $register, ".")]
        ///
        /// # Safety
        /// Memory must stay as Rust expects it.
        pub unsafe fn $name(value: u64) {
            // SAFETY: the caller's promise.
            unsafe { asm!(concat!("mov ", $register, ", {}"), in(reg) value, options(nostack)) }
        }
    )+ };
}

read! { read_cr0 "cr0"; read_cr2 "cr2"; read_cr3 "cr3"; read_cr4 "cr4"; read_dr6 "dr6"; }
write! { write_cr0 "cr0"; write_cr3 "cr3"; write_cr4 "cr4"; write_dr6 "dr6"; }

/// The stack pointer.
pub fn read_rsp() -> u64 {
    let value;
    // SAFETY: reading has no effect.
    unsafe { asm!("mov {}, rsp", out(reg) value, options(nomem, nostack)) }
    value
}

fn flags() -> u64 {
    let flags: u64;
    // SAFETY: reading has no effect but on the stack's next word.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem)) }
    flags
}

/// Are interrupts on?
pub fn interrupts_enabled() -> bool {
    flags() & 1 << 9 != 0
}

/// Is AC set, which lifts SMAP?
pub fn smap_is_lifted() -> bool {
    flags() & 1 << 18 != 0
}

/// The time stamp counter.
pub fn rdtsc() -> u64 {
    // SAFETY: every 64-bit processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// CPUID: eax, ebx, ecx, edx.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let found = core::arch::x86_64::__cpuid_count(leaf, subleaf);
    [found.eax, found.ebx, found.ecx, found.edx]
}

/// Writes an extended control register.
///
/// # Safety
/// The features must be there.
pub unsafe fn xsetbv(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("xsetbv", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
             options(nomem, nostack))
    }
}

/// Forgets the translation of one page of the current space.
pub fn invlpg(address: u64) {
    // SAFETY: forgetting a translation changes no memory.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack)) }
}

/// Forgets all translations (none of ours is global).
pub fn flush_all() {
    // SAFETY: the same tables stay loaded.
    unsafe { write_cr3(read_cr3()) }
}

/// Runs nothing that was fetched before: moves to control registers wait for that (SDM 3A, 10.3).
pub fn serialize() {
    // SAFETY: who is told of a page fault read its address at its entry.
    unsafe { asm!("mov cr2, {}", in(reg) 0u64, options(nomem, nostack)) }
}

/// A hint in a waiting loop.
pub fn pause() {
    core::hint::spin_loop();
}

/// Stops until an interrupt, with interrupts on from the same instruction on; off afterwards.
pub fn wait_for_interrupt() {
    // SAFETY: handlers run on this stack and keep every register.
    unsafe { asm!("sti", "hlt", "cli") }
}

/// Takes the interrupts that wait: one instruction runs between `sti` and `cli`, behind the shadow.
pub fn let_interrupts_in() {
    // SAFETY: as above.
    unsafe { asm!("sti", "nop", "cli") }
}

/// Stops for ever.
pub fn halt() -> ! {
    loop {
        // SAFETY: nothing runs any more.
        unsafe { asm!("cli", "hlt") }
    }
}

/// A random number from RDRAND, which must be there; `None` when it has none just now.
pub fn rdrand() -> Option<u64> {
    for _ in 0..10 {
        let (value, good): (u64, u8);
        // SAFETY: the caller has seen the feature bit.
        unsafe {
            asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) good,
                 options(nomem, nostack))
        }
        if good != 0 {
            return Some(value);
        }
    }
    None
}
