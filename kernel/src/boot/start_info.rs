//! The PVH start information (Xen public headers, `hvm_start_info`, version 1).
//!
//! ```text
//!  start info            0 magic  4 version  8 flags  12 modules  16 module list  24 command line
//!                       32 RSDP  40 memory map  48 its entries
//!  module                0 address  8 bytes  16 command line  24 zero
//!  memory map entry      0 address  8 bytes  16 type  20 zero
//! ```

use crate::physical::{bytes, read8, read32, read64};

const MAGIC: u32 = 0x336e_c578;
/// More of a command line is left out.
const COMMAND_LINE: u64 = abi::published::COMMAND_LINE as u64;

/// Usable memory.
const TYPE_RAM: u32 = 1;

/// What the loader says.
#[derive(Clone, Copy)]
pub struct StartInfo {
    at: u64,
}

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

impl StartInfo {
    /// The information at this address; `None` if it isn't any.
    pub fn at(address: u64) -> Option<Self> {
        (address != 0 && read32(address) == MAGIC).then_some(Self { at: address })
    }

    /// The command line, cut at its limit.
    pub fn command_line(&self) -> &'static str {
        let at = read64(self.at + 24);
        if at == 0 {
            return "";
        }
        let len = (0..COMMAND_LINE).find(|&n| read8(at + n) == 0).unwrap_or(COMMAND_LINE);
        let line = bytes(at, len);
        core::str::from_utf8(line).unwrap_or_else(|error| {
            core::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or("")
        })
    }

    /// The boot image: the one module.
    pub fn image(&self) -> Option<Range> {
        let list = read64(self.at + 16);
        if read32(self.at + 12) == 0 || list == 0 {
            return None;
        }
        Some(Range::of(read64(list), read64(list + 8)))
    }

    /// Where the loader says that ACPI's root pointer is, or 0.
    pub fn rsdp(&self) -> u64 {
        read64(self.at + 32)
    }

    /// Usable memory, in the map's order; empty and unknown entries are left out.
    pub fn memory(&self) -> impl Iterator<Item = Range> + use<> {
        let ram = self.map().filter(|(kind, _)| *kind == TYPE_RAM);
        ram.map(|(_, range)| range).filter(|range| range.start < range.end)
    }

    /// Every entry of the map: its type and range.
    pub fn map(&self) -> impl Iterator<Item = (u32, Range)> + use<> {
        let (map, count) = if read32(self.at + 4) >= 1 {
            (read64(self.at + 40), read32(self.at + 48))
        } else {
            (0, 0)
        };
        (0..u64::from(count.min(128))).map(move |n| {
            let entry = map + n * 24;
            (read32(entry + 16), Range::of(read64(entry), read64(entry + 8)))
        })
    }

    /// What lies in usable memory and must be kept until it has been read.
    pub fn own_pieces(&self) -> [Range; 4] {
        let map_len =
            if read32(self.at + 4) >= 1 { u64::from(read32(self.at + 48)) * 24 } else { 0 };
        [
            Range::of(self.at, 56),
            Range::of(read64(self.at + 40), map_len),
            Range::of(read64(self.at + 16), 32),
            Range::of(read64(self.at + 24), COMMAND_LINE),
        ]
    }
}
