//! The end: of the machine with a status, and of the kernel with last words.
//!
//! # Safety
//! Writes one device register that boot has mapped.
#![allow(unsafe_code)]

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::registers::{halt, inb, outb, outw};

/// QEMU's isa-debug-exit as `xtask` sets it up.
const DEBUG_EXIT: u16 = 0xf4;
/// Where ACPI says that the machine sleeps: a port, or where a register is mapped; 0: nowhere.
static SLEEP_PORT: AtomicU32 = AtomicU32::new(0);
static SLEEP_REGISTER: AtomicU64 = AtomicU64::new(0);
/// What is written there, and whether the port takes 16 bits.
static SLEEP_VALUE: AtomicU32 = AtomicU32::new(0);
static SLEEP_WIDE: AtomicBool = AtomicBool::new(false);
static DYING: AtomicBool = AtomicBool::new(false);

/// Remembers what ACPI says about switching off.
pub fn remember_port(port: u16, value: u16, wide: bool) {
    SLEEP_VALUE.store(u32::from(value), Ordering::Relaxed);
    SLEEP_WIDE.store(wide, Ordering::Relaxed);
    SLEEP_PORT.store(u32::from(port), Ordering::Relaxed);
}

/// As `remember_port`, for a register in memory, mapped at `address`.
pub fn remember_register(address: u64, value: u8) {
    SLEEP_VALUE.store(u32::from(value), Ordering::Relaxed);
    SLEEP_REGISTER.store(address, Ordering::Relaxed);
}

/// Ends the machine; says so in the log.
pub fn end(status: u8) -> ! {
    crate::provoke::look_back();
    crate::log::unlocked_line(format_args!("end status {status}"));
    exit(status)
}

/// Resets the machine; says so in the log.
pub fn reset(status: u8) -> ! {
    crate::log::unlocked_line(format_args!("end status {status}, reset"));
    reset_quietly()
}

fn exit(status: u8) -> ! {
    crate::console::serial_drain();
    // QEMU ends with (value << 1) | 1; all eight bits are in the log line.
    outb(DEBUG_EXIT, status);
    let register = SLEEP_REGISTER.load(Ordering::Relaxed);
    if register != 0 {
        let value = SLEEP_VALUE.load(Ordering::Relaxed) as u8;
        // SAFETY: mapped at boot, a register of one byte.
        unsafe { (register as *mut u8).write_volatile(value) }
    }
    let port = SLEEP_PORT.load(Ordering::Relaxed) as u16;
    if port != 0 {
        let value = SLEEP_VALUE.load(Ordering::Relaxed);
        if SLEEP_WIDE.load(Ordering::Relaxed) {
            outw(port, value as u16);
        } else {
            outb(port, value as u8);
        }
    }
    reset_quietly()
}

fn reset_quietly() -> ! {
    crate::console::serial_drain();
    // The keyboard controller's reset line, if there is one and it isn't busy.
    if inb(0x64) & 2 == 0 {
        outb(0x64, 0xfe);
    }
    for _ in 0..1_000_000 {
        crate::registers::pause();
    }
    crate::traps::triple_fault();
    halt()
}

/// Last words: where, why, who called; then status 255.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if DYING.swap(true, Ordering::Relaxed) {
        // A panic in the panic, or on a second processor.
        exit(255);
    }
    crate::log::unlocked_line(format_args!("panic: {info}"));
    crate::log::unlocked_error(format_args!("panic: {info}"));
    crate::backtrace::print(crate::registers::read_rsp());
    crate::log::unlocked_line(format_args!("end status 255"));
    exit(255)
}
