//! What the loader says, copied: command line, memory map, boot image, where ACPI's tables begin.
//!
//! ```text
//!  PVH's start information   kernel/src/boot/start_info.rs ──┐
//!                                                            ├──► Loaded ──► boot/sequence.rs
//!  multiboot2's tags         multiboot.rs ───────────────────┘
//! ```
//! After this nothing of the loader's is read again but the boot image: what it lay in is free.

use core::fmt;

use abi::published::COMMAND_LINE;

pub mod multiboot;
#[cfg(test)]
mod tests;

/// Entries of a memory map at most.
pub const ENTRIES: usize = 128;
/// The type of usable memory, by either protocol.
const RAM: u32 = 1;

/// A range of physical addresses, its end exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

impl Range {
    /// From its first address and length.
    pub const fn of(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }
}

/// What is wrong with what the loader left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Neither protocol's.
    Protocol,
    /// The whole is not as long as it says, or longer than is believed.
    Length,
    /// The tag at this offset is too short for its type, or longer than what is left.
    Tag(u32),
    /// The last tag is missing.
    End,
    /// More than one module, or one that ends before it begins.
    Module,
    /// A memory map of too many entries, or with one that is too short or ends behind the last
    /// address, or two of whose usable ranges share an address.
    Map,
}

impl fmt::Display for Malformed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol => to.write_str("started by neither PVH nor multiboot2"),
            Self::Length => to.write_str("wrong length"),
            Self::Tag(at) => write!(to, "the tag at {at} has a wrong length"),
            Self::End => to.write_str("no last tag"),
            Self::Module => to.write_str("not one module with a beginning and an end"),
            Self::Map => to.write_str("memory map: wrong, or too long"),
        }
    }
}

/// What the loader says.
#[derive(Debug)]
pub struct Loaded {
    line: [u8; COMMAND_LINE],
    line_len: usize,
    map: [(u32, Range); ENTRIES],
    entries: usize,
    /// The boot image: the one module.
    pub image: Option<Range>,
    /// Where ACPI's root pointer is, or 0.
    pub rsdp: u64,
}

impl Loaded {
    /// Nothing yet.
    pub const fn empty() -> Self {
        Self {
            line: [0; COMMAND_LINE],
            line_len: 0,
            map: [(0, Range { start: 0, end: 0 }); ENTRIES],
            entries: 0,
            image: None,
            rsdp: 0,
        }
    }

    /// Keeps the command line, up to its first zero, cut at the limit.
    pub fn set_command_line(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(COMMAND_LINE)];
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        self.line[..len].copy_from_slice(&bytes[..len]);
        self.line_len = len;
    }

    /// The command line; what is no text ends it.
    pub fn command_line(&self) -> &str {
        let line = &self.line[..self.line_len];
        let whole = |error: core::str::Utf8Error| {
            core::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or("")
        };
        core::str::from_utf8(line).unwrap_or_else(whole)
    }

    /// Adds an entry of the memory map.
    pub fn add_entry(&mut self, kind: u32, start: u64, len: u64) -> Result<(), Malformed> {
        let end = start.checked_add(len).ok_or(Malformed::Map)?;
        let range = Range { start, end };
        let meets = |other: Range| other.start < end && start < other.end;
        if kind == RAM && len > 0 && self.memory().any(meets) {
            return Err(Malformed::Map);
        }
        *self.map.get_mut(self.entries).ok_or(Malformed::Map)? = (kind, range);
        self.entries += 1;
        Ok(())
    }

    /// Every entry of the map: its type and range.
    pub fn map(&self) -> impl Iterator<Item = (u32, Range)> {
        self.map[..self.entries].iter().copied()
    }

    /// Usable memory, in the map's order; empty and unknown entries are left out.
    pub fn memory(&self) -> impl Iterator<Item = Range> {
        let ram = self.map().filter(|(kind, _)| *kind == RAM);
        ram.map(|(_, range)| range).filter(|range| range.start < range.end)
    }
}
