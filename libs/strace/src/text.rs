//! What is being written, and the ways to write strings, sets and pieces of memory.

use alloc::string::String;
use core::fmt::{self, Write};

use crate::{Call, Memory};

/// Bytes of a string that are shown, as strace has it.
pub const SHOWN: usize = 32;
/// Elements of a list that are shown.
const ELEMENTS: usize = 32;
/// Bytes of a path at most.
const PATH: usize = 4096;

/// A piece of a line.
#[derive(Clone, Debug, Default)]
pub struct Text(String);

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        Ok(())
    }
}

impl Text {
    /// Adds text as it stands.
    pub fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Adds what is formatted.
    pub fn put(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(arguments);
    }

    /// An address.
    pub fn pointer(&mut self, address: u64) {
        if address == 0 { self.push("NULL") } else { self.put(format_args!("{address:#x}")) }
    }

    /// Bytes in quotes, the first [`SHOWN`] of them.
    pub fn quoted(&mut self, bytes: &[u8]) {
        self.quoted_up_to(bytes, SHOWN);
    }

    /// Bytes in quotes, the first `most` of them.
    pub fn quoted_up_to(&mut self, bytes: &[u8], most: usize) {
        let shown = bytes.get(..most).unwrap_or(bytes);
        self.push("\"");
        for (at, &byte) in shown.iter().enumerate() {
            self.byte(byte, shown.get(at + 1).copied());
        }
        self.push(if shown.len() < bytes.len() { "\"..." } else { "\"" });
    }

    fn byte(&mut self, byte: u8, next: Option<u8>) {
        match byte {
            b'"' => self.push("\\\""),
            b'\\' => self.push("\\\\"),
            b'\n' => self.push("\\n"),
            b'\t' => self.push("\\t"),
            b'\r' => self.push("\\r"),
            0x0b => self.push("\\v"),
            0x0c => self.push("\\f"),
            b' '..=b'~' => self.0.push(byte as char),
            // Three digits where one that follows would be taken for part of the number.
            _ if next.is_some_and(|next| next.is_ascii_digit()) => {
                self.put(format_args!("\\{byte:03o}"));
            }
            _ => self.put(format_args!("\\{byte:o}")),
        }
    }

    /// Bytes in quotes, all of them as hexadecimal numbers.
    pub fn quoted_numbers(&mut self, bytes: &[u8]) {
        let shown = bytes.get(..SHOWN).unwrap_or(bytes);
        self.push("\"");
        for byte in shown {
            self.put(format_args!("\\x{byte:02x}"));
        }
        self.push(if shown.len() < bytes.len() { "\"..." } else { "\"" });
    }

    /// A list, with what does not fit left out.
    pub fn list(&mut self, count: u64, mut show: impl FnMut(&mut Self, u64)) {
        self.push("[");
        for at in 0..count.min(ELEMENTS as u64) {
            if at != 0 {
                self.push(", ");
            }
            show(self, at);
        }
        self.push(if count > ELEMENTS as u64 { ", ...]" } else { "]" });
    }

    /// Names of the bits in `value`, and what has no name as a number.
    pub fn flags(&mut self, value: u64, names: Names) {
        let mut rest = value;
        let mut first = true;
        for &(bits, name) in names {
            // A name of no bits stands for the number zero.
            if bits == 0 && value != 0 || rest & bits != bits {
                continue;
            }
            self.push(if first { "" } else { "|" });
            self.push(name);
            first = false;
            rest &= !bits;
            if bits == 0 {
                return;
            }
        }
        if rest != 0 || first {
            self.push(if first { "" } else { "|" });
            if rest == 0 { self.push("0") } else { self.put(format_args!("{rest:#x}")) }
        }
    }

    /// The name of `value`, else the number.
    pub fn choice(&mut self, value: u64, names: Names) {
        match names.iter().find(|(number, _)| *number == value) {
            Some((_, name)) => self.push(name),
            None => self.put(format_args!("{value:#x}")),
        }
    }
}

/// Values with their names.
pub type Names = &'static [(u64, &'static str)];

/// A record of the program's: what was read of it, little-endian.
pub struct Record<const N: usize>([u8; N]);

impl<const N: usize> Record<N> {
    /// 64 bits at `offset`.
    pub fn long(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..).and_then(|rest| rest.first_chunk::<8>());
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    }

    /// 32 bits at `offset`.
    pub fn word(&self, offset: usize) -> u32 {
        self.long_or_less(offset) as u32
    }

    /// 16 bits at `offset`.
    pub fn half(&self, offset: usize) -> u16 {
        self.long_or_less(offset) as u16
    }

    /// Up to 64 bits at `offset`: those that the record has.
    fn long_or_less(&self, offset: usize) -> u64 {
        let rest = self.0.get(offset..).unwrap_or(&[]);
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(rest) {
            *to = *from;
        }
        u64::from_le_bytes(bytes)
    }

    /// The bytes from `offset` up to a zero byte, at most `most`.
    pub fn string(&self, offset: usize, most: usize) -> &[u8] {
        let rest = self.0.get(offset..).unwrap_or(&[]);
        let rest = rest.get(..most).unwrap_or(rest);
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        rest.get(..end).unwrap_or(rest)
    }
}

impl Call<'_> {
    /// A record of the program's; `None` at address 0 and where nothing can be read.
    pub(crate) fn record<const N: usize>(&self, address: u64) -> Option<Record<N>> {
        let mut bytes = [0; N];
        (address != 0 && self.memory.read(address, &mut bytes)).then_some(Record(bytes))
    }

    /// Shows the record at `address`, or the address if there is none.
    pub(crate) fn with_record<const N: usize>(
        &self,
        text: &mut Text,
        address: u64,
        show: impl FnOnce(&mut Text, &Record<N>),
    ) {
        match self.record(address) {
            Some(record) => show(text, &record),
            None => text.pointer(address),
        }
    }

    /// Shows `count` bytes of the program's.
    pub(crate) fn bytes(&self, text: &mut Text, address: u64, count: u64) {
        let mut bytes = [0; SHOWN + 1];
        let count = count.min(bytes.len() as u64) as usize;
        let part = &mut bytes[..count];
        if address != 0 && self.memory.read(address, part) {
            text.quoted(part);
        } else {
            text.pointer(address);
        }
    }

    /// Shows a string up to its zero byte, `most` bytes at most.
    pub(crate) fn string(&self, text: &mut Text, address: u64, most: usize) {
        match string_at(self.memory, address, most + 1) {
            Some(string) => text.quoted_up_to(&string, most),
            None => text.pointer(address),
        }
    }

    /// Shows a path, whole.
    pub(crate) fn path(&self, text: &mut Text, address: u64) {
        self.string(text, address, PATH);
    }
}

/// A string of the program's, at most `most` bytes of it.
fn string_at(memory: &dyn Memory, address: u64, most: usize) -> Option<alloc::vec::Vec<u8>> {
    let mut string = alloc::vec::Vec::new();
    let mut at = address;
    while address != 0 && string.len() < most {
        let mut piece = [0; 64];
        // Never across a page: the next one may be absent.
        let within = (64 - at % 64) as usize;
        let piece = &mut piece[..within];
        if !memory.read(at, piece) {
            return None;
        }
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            string.extend_from_slice(&piece[..end]);
            string.truncate(most);
            return Some(string);
        }
        string.extend_from_slice(piece);
        at += within as u64;
    }
    string.truncate(most);
    (address != 0).then_some(string)
}
