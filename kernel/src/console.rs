//! The serial line (16550, COM1) and QEMU's debug console ports.

use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

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
/// The last bit is on the line.
const STATUS_IDLE: u8 = 0x40;
const STATUS_DATA: u8 = 1;

static SERIAL: AtomicBool = AtomicBool::new(false);
static ERROR_PORT: AtomicBool = AtomicBool::new(false);
/// A byte that was there before the line was set up, with [`EARLY_PRESENT`]; 0: none.
static EARLY: AtomicU16 = AtomicU16::new(0);
const EARLY_PRESENT: u16 = 0x100;

/// Sets the line up: 115200 baud, 8 bits, FIFOs on, no interrupts yet.
pub fn initialize() {
    // The scratch register remembers only if there is a UART.
    outb(COM1 + 7, 0x5a);
    SERIAL.store(inb(COM1 + 7) == 0x5a, Ordering::Relaxed);
    // Switching the FIFOs on empties them.
    if let Some(byte) = serial_read() {
        EARLY.store(EARLY_PRESENT | u16::from(byte), Ordering::Relaxed);
    }
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 0xc7), (4, 0x0b)] {
        outb(COM1 + register, value);
    }
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

/// Waits until all that was written has left: a machine that is switched off sends nothing more.
pub fn serial_drain() {
    if serial_present() {
        // At 115200 baud a full transmitter takes 1.4 ms, less than so many accesses of a port.
        let _ = (0..100_000).any(|_| inb(COM1 + 5) & STATUS_IDLE != 0);
    }
}

/// A received byte, if there is one.
pub fn serial_read() -> Option<u8> {
    let early = EARLY.swap(0, Ordering::Relaxed);
    if early & EARLY_PRESENT != 0 {
        return Some(early as u8);
    }
    (serial_present() && inb(COM1 + 5) & STATUS_DATA != 0).then(|| inb(COM1))
}

/// Bytes that one call takes at most: the lock is held meanwhile.
const WRITE_BYTES: usize = 256;
/// Bytes that the UART takes when its transmitter is empty.
const FIFO_BYTES: usize = 16;
/// Looks at a transmitter that is not empty before the caller is sent back.
const WRITE_LOOKS: usize = 1000;

/// The stream of errors.
pub const ERRORS: u16 = 1;

/// Writes to a stream of `ConsoleWrite`: 0 the terminal, 1 the error stream, 2 the kernel's log.
/// Answers how many bytes were taken; the caller comes again with the rest.
pub fn write(stream: u16, bytes: &[u8]) -> usize {
    let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
    match stream {
        ERRORS if ERROR_PORT.load(Ordering::Relaxed) => {
            bytes.iter().for_each(|&byte| outb(DEBUGCON_ERROR, byte));
            bytes.len()
        }
        2 => {
            crate::log::bytes(bytes);
            bytes.len()
        }
        _ => serial_write_some(bytes),
    }
}

/// Sends as much as goes without waiting long; without a serial line everything is gone at once.
fn serial_write_some(bytes: &[u8]) -> usize {
    if !serial_present() {
        return bytes.len();
    }
    let mut taken = 0;
    for piece in bytes.chunks(FIFO_BYTES) {
        if (0..WRITE_LOOKS).all(|_| inb(COM1 + 5) & STATUS_EMPTY == 0) {
            break;
        }
        piece.iter().for_each(|&byte| outb(COM1, byte));
        taken += piece.len();
    }
    taken
}
