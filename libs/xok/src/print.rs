//! Lines for the kernel's log, for programs that have no terminal yet.

use core::fmt::{self, Write};

/// The console stream of the kernel's log.
pub const LOG: u16 = 2;

/// The console stream that a person reads: the error stream, or the terminal if there is no other.
pub const ERRORS: u16 = 1;

/// A line buffer in front of `ConsoleWrite`.
pub struct Log {
    /// Capability with WRITE over the console.
    pub capability: u8,
    stream: u16,
    buffer: [u8; 256],
    len: usize,
}

impl Log {
    /// A log written with the capability at this index.
    pub fn new(capability: u8) -> Self {
        Self::to(capability, LOG)
    }

    /// The same to another stream.
    pub fn to(capability: u8, stream: u16) -> Self {
        Self { capability, stream, buffer: [0; 256], len: 0 }
    }

    /// Sends what is buffered. A refusal is not reported: there is nowhere to report it to.
    pub fn flush(&mut self) {
        let mut rest = &self.buffer[..self.len];
        while !rest.is_empty() {
            match crate::call::console_write(self.capability, self.stream, rest) {
                Ok(taken) if taken > 0 => rest = &rest[(taken as usize).min(rest.len())..],
                _ => break,
            }
        }
        self.len = 0;
    }
}

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.len == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.len] = byte;
            self.len += 1;
            if byte == b'\n' {
                self.flush();
            }
        }
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What a program says before it ends: to the log and to the errors, by whichever of its
/// capabilities is one over the console.
pub fn last_words(text: fmt::Arguments<'_>) {
    for capability in 0..abi::limits::CAPABILITIES as u8 {
        if crate::call::console_write(capability, LOG, b"").is_ok() {
            crate::tell!(capability, "{text}");
            return;
        }
    }
}

/// Writes a line to the kernel's log, and where a person reads it, with the capability at index
/// `$capability`.
#[macro_export]
macro_rules! tell {
    ($capability:expr, $($arg:tt)*) => {{
        use core::fmt::Write;
        let log = $crate::print::Log::new($capability);
        let errors = $crate::print::Log::to($capability, $crate::print::ERRORS);
        for (mut line, end) in [(log, "\n"), (errors, "\r\n")] {
            let _ = write!(line, $($arg)*);
            let _ = line.write_str(end);
        }
    }};
}

/// Writes a line to the kernel's log with the capability at index `$capability`.
#[macro_export]
macro_rules! log {
    ($capability:expr, $($arg:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::print::Log::new($capability), $($arg)*);
    }};
}
