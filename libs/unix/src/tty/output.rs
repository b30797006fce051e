//! Output processing: what `OPOST` does to bytes on their way to the screen.
//!
//! After `do_output_char` of Linux's n_tty.

use alloc::vec::Vec;
use linux_raw_sys::general as raw;

use super::termios::Termios;

/// Where the cursor is, as far as it can be known from what was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Column {
    /// Columns from the left margin.
    pub at: u32,
    /// The column where the line being edited begins.
    pub edit: u32,
}

/// Is it a control character?
pub fn is_control(byte: u8) -> bool {
    byte < 32 || byte == 127
}

/// Is it a byte of a UTF-8 sequence other than the first?
pub fn is_continuation(termios: &Termios, byte: u8) -> bool {
    termios.input(raw::IUTF8) && byte & 0xc0 == 0x80
}

impl Column {
    /// Writes `byte` as the terminal is to show it.
    pub fn put(&mut self, termios: &Termios, byte: u8, screen: &mut Vec<u8>) {
        if !termios.output(raw::OPOST) {
            screen.push(byte);
            return;
        }
        match byte {
            b'\n' => {
                if termios.output(raw::ONLRET) {
                    self.at = 0;
                }
                if termios.output(raw::ONLCR) {
                    self.at = 0;
                    screen.push(b'\r');
                }
                self.edit = self.at;
                screen.push(b'\n');
            }
            b'\r' => {
                if termios.output(raw::ONOCR) && self.at == 0 {
                    return;
                }
                if termios.output(raw::OCRNL) {
                    if termios.output(raw::ONLRET) {
                        *self = Column::default();
                    }
                    screen.push(b'\n');
                    return;
                }
                *self = Column::default();
                screen.push(b'\r');
            }
            b'\t' => {
                let spaces = 8 - (self.at & 7);
                self.at = self.at.saturating_add(spaces);
                if termios.output & raw::TABDLY == raw::XTABS {
                    screen.extend((0..spaces).map(|_| b' '));
                } else {
                    screen.push(b'\t');
                }
            }
            8 => {
                self.at = self.at.saturating_sub(1);
                screen.push(8);
            }
            _ => {
                let mut byte = byte;
                if !is_control(byte) {
                    if termios.output(raw::OLCUC) {
                        byte = byte.to_ascii_uppercase();
                    }
                    if !is_continuation(termios, byte) {
                        self.at = self.at.saturating_add(1);
                    }
                }
                screen.push(byte);
            }
        }
    }
}
