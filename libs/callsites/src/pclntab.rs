//! Functions from Go's table of program counters and lines, as Go 1.18 and later write it.
//!
//! Sorted, so the page is found by halving. A function ends where the next one begins; the padding
//! between them counts as the first one's.

use crate::object::{Function, Part, word32, word64};

/// The first word: Go 1.18, Go 1.20 and later.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// Shows `visit` the functions that overlap `[first, last)`, and perhaps neighbours.
pub fn functions(
    table: &Part<'_>,
    text: u64,
    first: u64,
    last: u64,
    visit: &mut dyn FnMut(Function),
) {
    // A table that is cut short has no functions from there on.
    let _ = read(table.bytes, text, first, last, visit);
}

fn read(
    bytes: &[u8],
    text: u64,
    first: u64,
    last: u64,
    visit: &mut dyn FnMut(Function),
) -> Option<()> {
    let known = word32(bytes, 0).is_some_and(|magic| MAGIC.contains(&magic));
    // One-byte steps, eight-byte pointers: x86-64.
    if !known || *bytes.get(6..8)? != [1, 8] {
        return None;
    }
    let count = usize::try_from(word64(bytes, 8)?).ok()?;
    // Newer linkers leave the word for the text's address empty: it is the section's.
    let text = word64(bytes, 24).filter(|&start| start != 0).unwrap_or(text);
    let rows = bytes.get(usize::try_from(word64(bytes, 64)?).ok()?..)?;
    let start =
        |row: usize| word32(rows, row.checked_mul(8)?).map(|offset| text + u64::from(offset));
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        // Row `count` tells where the last function ends.
        if start(middle + 1)? <= first { low = middle + 1 } else { high = middle }
    }
    while low < count && start(low)? < last {
        visit(Function { start: start(low)?, end: start(low + 1)? });
        low += 1;
    }
    Some(())
}
