//! Text in a buffer: everything is read first and written to the terminal afterwards.

use core::fmt::{self, Write};

/// Bytes that a view may have; what is beyond is cut.
const ROOM: usize = 64 << 10;

/// The buffer.
pub struct Text {
    bytes: [u8; ROOM],
    len: usize,
}

impl Text {
    /// Empty, with each of its pages touched, so that filling it faults no more.
    pub fn new() -> Self {
        let mut bytes = [0; ROOM];
        bytes.iter_mut().step_by(4096).for_each(|byte| *byte = b' ');
        Self { bytes: core::hint::black_box(bytes), len: 0 }
    }

    /// What has been written.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = &mut self.bytes[self.len..];
        let taken = text.len().min(rest.len());
        rest[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
