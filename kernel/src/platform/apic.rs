//! The local APIC: interrupts between processors, and the one-shot timer (SDM 3A §11).
//!
//! # Safety
//! Registers are reached where `initialize` mapped them, or by MSR where firmware left the
//! x2APIC mode on; none of them reads or writes memory.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::clock;
use crate::entry::{SPURIOUS_VECTOR, TIMER_VECTOR};
use crate::registers::{cpuid, msr, pause, rdmsr, wrmsr};

const ID: u32 = 0x20;
const TASK_PRIORITY: u32 = 0x80;
const EOI: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const TIMER: u32 = 0x320;
const LINT0: u32 = 0x350;
const LINT1: u32 = 0x360;
const ERROR: u32 = 0x370;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const MASKED: u32 = 1 << 16;
const BUSY: u32 = 1 << 12;
const DELIVER_NMI: u32 = 0b100 << 8;

/// Where the registers are; 0 in x2APIC mode.
static REGISTERS: AtomicU64 = AtomicU64::new(0);
static X2APIC: AtomicBool = AtomicBool::new(false);
/// Timer ticks in a second.
static TIMER_HZ: AtomicU64 = AtomicU64::new(0);

/// This processor's id, before anything is mapped.
pub fn id_by_cpuid() -> u32 {
    if is_x2apic() { rdmsr(0x802) as u32 } else { cpuid(1, 0)[1] >> 24 }
}

/// Did firmware leave x2APIC mode on?
pub fn is_x2apic() -> bool {
    rdmsr(msr::APIC_BASE) & 1 << 10 != 0
}

/// Remembers where the registers are mapped.
pub fn set_registers(address: u64) {
    REGISTERS.store(address, Ordering::Relaxed);
    X2APIC.store(is_x2apic(), Ordering::Relaxed);
}

fn read(register: u32) -> u32 {
    if X2APIC.load(Ordering::Relaxed) {
        return rdmsr(0x800 + (register >> 4)) as u32;
    }
    let address = REGISTERS.load(Ordering::Relaxed) + u64::from(register);
    // SAFETY: see the file's head.
    unsafe { (address as *const u32).read_volatile() }
}

fn write(register: u32, value: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // SAFETY: see the file's head.
        unsafe { wrmsr(0x800 + (register >> 4), u64::from(value)) }
        return;
    }
    let address = REGISTERS.load(Ordering::Relaxed) + u64::from(register);
    // SAFETY: see the file's head.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// Switches this processor's on.
pub fn enable() {
    if !X2APIC.load(Ordering::Relaxed) {
        // SAFETY: enables the APIC where it is.
        unsafe { wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | 1 << 11) }
    }
    // First: while it is switched off by software every entry below stays masked (§11.4.7.2).
    write(SPURIOUS, 1 << 8 | u32::from(SPURIOUS_VECTOR));
    write(TASK_PRIORITY, 0);
    write(LINT0, MASKED);
    // An operator's NMI: `run::report` answers.
    write(LINT1, DELIVER_NMI);
    write(ERROR, MASKED);
    write(DIVIDE, 0b1011);
    write(TIMER, u32::from(TIMER_VECTOR));
    write(INITIAL_COUNT, 0);
}

/// This processor's id.
pub fn id() -> u32 {
    if X2APIC.load(Ordering::Relaxed) { read(ID) } else { read(ID) >> 24 }
}

/// The interrupt has been handled.
pub fn end_of_interrupt() {
    write(EOI, 0);
}

fn command(target: u32, low: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // SAFETY: see the file's head.
        unsafe { wrmsr(0x830, u64::from(target) << 32 | u64::from(low)) }
        return;
    }
    write(COMMAND_HIGH, target << 24);
    write(COMMAND, low);
    for _ in 0..1_000_000 {
        if read(COMMAND) & BUSY == 0 {
            return;
        }
        pause();
    }
}

/// Interrupts another processor, by APIC id.
pub fn interrupt(target: u32, vector: u8) {
    command(target, 1 << 14 | u32::from(vector));
}

/// INIT, then STARTUP twice at a page below 1 MiB (SDM 3A §9.4.4.1).
pub fn start(target: u32, page: u64) {
    command(target, 0b101 << 8 | 1 << 14 | 1 << 15);
    clock::wait_us(10_000);
    for _ in 0..2 {
        command(target, 0b110 << 8 | 1 << 14 | (page >> 12) as u32);
        clock::wait_us(200);
    }
}

/// Finds the timer's rate beside the clock's: in a millisecond, or in up to five if a host stopped
/// us where the one is read beside the other.
pub fn calibrate_timer() {
    write(TIMER, MASKED | u32::from(TIMER_VECTOR));
    let before = clock::now_ns();
    write(INITIAL_COUNT, u32::MAX);
    let begin = clock::now_ns();
    let (mut ticks, mut ns) = (0, 0);
    for _ in 0..5 {
        clock::wait_us(1_000);
        let asked = clock::now_ns();
        ticks = u64::from(u32::MAX - read(CURRENT_COUNT));
        let told = clock::now_ns();
        ns = told - begin;
        // One thousandth is less than what a timer that fires a little late costs.
        if (begin - before + told - asked) * 1_000 <= ns {
            break;
        }
    }
    write(INITIAL_COUNT, 0);
    write(TIMER, u32::from(TIMER_VECTOR));
    let hz = (u128::from(ticks) * 1_000_000_000 / u128::from(ns)) as u64;
    TIMER_HZ.store(hz.max(1), Ordering::Relaxed);
}

/// Ticks of the timer in a second.
pub fn timer_hz() -> u64 {
    TIMER_HZ.load(Ordering::Relaxed)
}

/// An interrupt after so many of the timer's ticks; 0: none.
pub fn set_timer(count: u32) {
    write(INITIAL_COUNT, count);
}
