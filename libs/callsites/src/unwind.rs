//! Functions from the unwind table `.eh_frame` (Linux Standard Base, Core, 10.6).
//!
//! One pass without allocating: a static glibc program has no sorted index beside it, and this runs
//! in the program's own time.

use crate::object::{Function, Part, from, word32, word64};

/// How a common entry's frames tell their range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Absolute, eight bytes.
    Absolute,
    /// From the field itself on, four bytes, signed.
    Relative,
}

/// Shows `visit` the function of each frame.
pub fn functions(table: &Part<'_>, visit: &mut dyn FnMut(Function)) {
    let mut at = 0;
    // The common entry that the last frame named, and how to read its frames.
    let mut common = (usize::MAX, None);
    while let Some(len) = word32(table.bytes, at) {
        // A terminator, or the form with 64-bit lengths, which nobody writes.
        if len == 0 || len == u32::MAX {
            return;
        }
        let Some(id) = word32(table.bytes, at + 4) else { return };
        if id != 0 {
            let Some(place) = (at + 4).checked_sub(id as usize) else { return };
            if place != common.0 {
                common = (place, encoding(table.bytes, place));
            }
            if let Some(function) = common.1.and_then(|how| frame(table, at + 8, how)) {
                visit(function);
            }
        }
        at += 4 + len as usize;
    }
}

fn frame(table: &Part<'_>, at: usize, how: Encoding) -> Option<Function> {
    let (start, len) = match how {
        Encoding::Absolute => (word64(table.bytes, at)?, word64(table.bytes, at + 8)?),
        Encoding::Relative => {
            let distance = i64::from(word32(table.bytes, at)? as i32);
            let start = (table.address + at as u64).wrapping_add_signed(distance);
            (start, u64::from(word32(table.bytes, at + 4)?))
        }
    };
    Some(Function { start, end: start.checked_add(len)? })
}

/// Reads the common entry at `at` as far as its augmentation tells how pointers are written.
fn encoding(bytes: &[u8], at: usize) -> Option<Encoding> {
    let entry = from(bytes, at as u64 + 8)?;
    let (&version, rest) = entry.split_first()?;
    if version != 1 && version != 3 {
        return None;
    }
    let end = rest.iter().take(8).position(|&byte| byte == 0)?;
    let (augmentation, rest) = rest.split_at(end);
    let Some(letters) = augmentation.strip_prefix(b"z") else {
        return augmentation.is_empty().then_some(Encoding::Absolute);
    };
    // Code and data alignment, the register of the return address, the augmentation's length.
    let mut rest = rest.get(1..)?;
    for _ in 0..4 {
        let end = rest.iter().take(9).position(|&byte| byte & 0x80 == 0)?;
        rest = rest.get(end + 1..)?;
    }
    for letter in letters {
        let (&first, behind) = rest.split_first()?;
        match letter {
            b'R' => {
                return match first {
                    0x00 => Some(Encoding::Absolute),
                    0x1b => Some(Encoding::Relative),
                    _ => None,
                };
            }
            b'L' => rest = behind,
            b'P' => rest = behind.get(if first & 7 == 0 || first & 7 == 4 { 8 } else { 4 }..)?,
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(Encoding::Absolute)
}
