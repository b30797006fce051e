//! The boot information of a multiboot2 loader such as GRUB, read strictly.
//!
//! ```text
//!  information   0 bytes in all  4 zero  8 tags, each at a multiple of 8
//!  tag           0 type  4 bytes, these eight included  8 what the type says
//!    0 last       nothing
//!    1 line       8 text that a zero ends
//!    3 module     8 first address  12 address after the last  16 text
//!    6 map        8 bytes of an entry  12 version  16 entries
//!      entry      0 address  8 bytes  16 type  20 zero
//!   14, 15 ACPI   8 a copy of the root pointer, version 1 or 2
//! ```
//! Other tags are passed over. (Multiboot2 specification 2.0 §3.6.)

use super::{Loaded, Malformed, Range};

/// What a loader has in a register when it enters.
pub const MAGIC: u32 = 0x36d7_6289;
/// More than this is not believed: the longest that a firmware's map can make it is far less.
pub const LENGTH: u32 = 1 << 20;

/// Bytes before the first tag, and of a tag's head.
const HEAD: usize = 8;
const LAST: u32 = 0;
const LINE: u32 = 1;
const MODULE: u32 = 3;
const MAP: u32 = 6;
const ACPI_OLD: u32 = 14;
const ACPI_NEW: u32 = 15;
/// Bytes of an entry that we know.
const ENTRY: usize = 24;
/// Bytes of ACPI's root pointer, by version (ACPI 6.5 §5.2.5.3).
const POINTER_OLD: usize = 20;
const POINTER_NEW: usize = 36;

/// The bytes that the information has in all, by its first word.
pub fn length(first: u32) -> Result<u32, Malformed> {
    if (2 * HEAD as u32..=LENGTH).contains(&first) { Ok(first) } else { Err(Malformed::Length) }
}

/// Reads the information, which lies at the physical address `at`, into `loaded`.
pub fn read(information: &[u8], at: u64, loaded: &mut Loaded) -> Result<(), Malformed> {
    let said = word(information, 0).ok_or(Malformed::Length)?;
    if length(said)? as usize != information.len() {
        return Err(Malformed::Length);
    }
    let mut here = HEAD;
    // Each tag takes eight bytes or more, so the length limits their number.
    loop {
        let head = (word(information, here), word(information, here + 4));
        let (Some(kind), Some(size)) = head else { return Err(Malformed::End) };
        let wrong = Malformed::Tag(here as u32);
        let end = here.checked_add(size as usize).ok_or(wrong)?;
        let body = information.get(here + HEAD..end).ok_or(wrong)?;
        match kind {
            LAST => return Ok(()),
            LINE if body.contains(&0) => loaded.set_command_line(body),
            LINE => return Err(wrong),
            MODULE => module(body, loaded).ok_or(wrong)??,
            MAP => map(body, loaded).ok_or(wrong)??,
            ACPI_NEW if body.len() >= POINTER_NEW => loaded.rsdp = at + (here + HEAD) as u64,
            // The newer one is preferred, in whatever order they come.
            ACPI_OLD if body.len() >= POINTER_OLD && loaded.rsdp == 0 => {
                loaded.rsdp = at + (here + HEAD) as u64;
            }
            ACPI_NEW => return Err(wrong),
            ACPI_OLD if body.len() < POINTER_OLD => return Err(wrong),
            _ => {}
        }
        here = end.next_multiple_of(8);
    }
}

/// The boot image; nothing if the tag is too short.
fn module(body: &[u8], loaded: &mut Loaded) -> Option<Result<(), Malformed>> {
    let (start, end) = (u64::from(word(body, 0)?), u64::from(word(body, 4)?));
    if start >= end || loaded.image.is_some() {
        return Some(Err(Malformed::Module));
    }
    loaded.image = Some(Range { start, end });
    Some(Ok(()))
}

/// The memory map; nothing if the tag is too short.
fn map(body: &[u8], loaded: &mut Loaded) -> Option<Result<(), Malformed>> {
    let size = word(body, 0)? as usize;
    let entries = body.get(8..)?;
    if size < ENTRY || !entries.len().is_multiple_of(size) {
        return Some(Err(Malformed::Map));
    }
    for entry in entries.chunks_exact(size) {
        let (start, len, kind) = (double(entry, 0)?, double(entry, 8)?, word(entry, 16)?);
        if let Err(error) = loaded.add_entry(kind, start, len) {
            return Some(Err(error));
        }
    }
    Some(Ok(()))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*found))
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*found))
}
