//! Indices that callers name, kept inside their tables without a branch.
//!
//! A processor that runs ahead may pass a comparison with a table's length before it is made, and
//! load from behind the table what the next load then shows by the cache line that it touches. So
//! a number of a caller's goes through [`bounded`] before it indexes anything; the comparison that
//! refuses it stays where it is. Index 0 is nobody's in every table.

use core::hint::black_box;

/// The index, or 0 if the table has no such entry.
#[inline(always)]
pub fn bounded(index: usize, len: usize) -> usize {
    // The sign of the difference, in every bit: all ones if the index is below the length. That the
    // compiler does not know this keeps it from comparing instead.
    let below = (index.wrapping_sub(len) as isize >> (usize::BITS - 1)) as usize;
    index & black_box(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_nobodys() {
        for len in [0, 1, 2, 16, 1000, 1 << 32] {
            for index in [0, 1, 2, 15, 16, 999, 1000, 1001, u32::MAX as usize, 1 << 32, 1 << 62] {
                let expected = if index < len { index } else { 0 };
                assert_eq!(bounded(index, len), expected, "{index} of {len}");
            }
        }
    }
}
