//! The kernel's log: lines to the serial line, or to QEMU's debug console (`log=debugcon`).

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{console, lock::Lock};

static DEBUGCON: AtomicBool = AtomicBool::new(false);
static LINE: Lock<()> = Lock::new(());

/// Sends the log to the debug console instead of the serial line.
pub fn use_debugcon() {
    DEBUGCON.store(true, Ordering::Relaxed);
}

struct Writer;

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        bytes(text.as_bytes());
        Ok(())
    }
}

/// Puts raw bytes into the log.
pub fn bytes(bytes: &[u8]) {
    let debugcon = DEBUGCON.load(Ordering::Relaxed);
    for &byte in bytes {
        if debugcon {
            crate::registers::outb(console::DEBUGCON_LOG, byte);
        } else {
            if byte == b'\n' {
                console::serial_write(b'\r');
            }
            console::serial_write(byte);
        }
    }
}

/// Writes one line; use `log!`.
pub fn line(arguments: fmt::Arguments<'_>) {
    let _hold = LINE.lock();
    unlocked_line(arguments);
}

/// As [`line`], for last words: whoever holds the lock may never give it back.
pub fn unlocked_line(arguments: fmt::Arguments<'_>) {
    // The writer never fails.
    let _ = writeln!(Writer, "xok: {arguments}");
}

/// The stream that a person reads.
struct Errors;

impl Write for Errors {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match console::write(console::ERRORS, rest) {
                0 => break,
                taken => rest = rest.get(taken..).unwrap_or(&[]),
            }
        }
        Ok(())
    }
}

/// Last words, for who does not see the log.
pub fn unlocked_error(arguments: fmt::Arguments<'_>) {
    if DEBUGCON.load(Ordering::Relaxed) {
        // The writer never fails.
        let _ = write!(Errors, "\r\nxok: {arguments}\r\n");
    }
}

/// Writes one line to the kernel's log.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => { $crate::log::line(format_args!($($argument)*)) };
}
