//! The serial line (16550, COM1) and QEMU's debug console ports.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::registers::{inb, outb};

const COM1: u16 = 0x3f8;
/// The debug console that may take the kernel's log; it reads back its own number.
pub const DEBUGCON_LOG: u16 = 0xe9;
/// The debug console that may take programs' error stream.
const DEBUGCON_ERROR: u16 = 0xea;
/// COM1's interrupt as the I/O APIC knows it.
pub const COM1_IRQ: u8 = 4;

/// Transmitter empty, data ready: line status register.
const STATUS_EMPTY: u8 = 0x20;
const STATUS_DATA: u8 = 1;

static SERIAL: AtomicBool = AtomicBool::new(false);
static ERROR_PORT: AtomicBool = AtomicBool::new(false);

/// Sets the line up: 115200 baud, 8 bits, FIFOs on, no interrupts yet.
pub fn initialize() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 0xc7), (4, 0x0b)] {
        outb(COM1 + register, value);
    }
    // The scratch register remembers only if there is a UART.
    outb(COM1 + 7, 0x5a);
    SERIAL.store(inb(COM1 + 7) == 0x5a, Ordering::Relaxed);
    ERROR_PORT.store(inb(DEBUGCON_ERROR) == DEBUGCON_ERROR as u8, Ordering::Relaxed);
}

/// Is there a serial line?
pub fn serial_present() -> bool {
    SERIAL.load(Ordering::Relaxed)
}

/// Interrupts for received bytes from now on.
pub fn enable_interrupt() {
    outb(COM1 + 1, 1);
}

/// Sends one byte, waiting for room; a line that never empties loses it.
pub fn serial_write(byte: u8) {
    if !serial_present() {
        return;
    }
    for _ in 0..100_000 {
        if inb(COM1 + 5) & STATUS_EMPTY != 0 {
            outb(COM1, byte);
            return;
        }
    }
}

/// A received byte, if there is one.
pub fn serial_read() -> Option<u8> {
    (serial_present() && inb(COM1 + 5) & STATUS_DATA != 0).then(|| inb(COM1))
}

/// Writes to a stream of `ConsoleWrite`: 0 the terminal, 1 the error stream, 2 the kernel's log.
/// False: there is no such stream.
pub fn write(stream: u16, bytes: &[u8]) -> bool {
    match stream {
        1 if ERROR_PORT.load(Ordering::Relaxed) => {
            for &byte in bytes {
                outb(DEBUGCON_ERROR, byte);
            }
        }
        0 | 1 => bytes.iter().for_each(|&byte| serial_write(byte)),
        2 => crate::log::bytes(bytes),
        _ => return false,
    }
    true
}
