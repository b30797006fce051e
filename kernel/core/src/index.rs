//! Indices that callers name, kept inside their tables without a branch.
//!
//! A processor that runs ahead may pass a comparison with a table's length before it is made, and
//! load from behind the table what the next load then shows by the cache line that it touches. So
//! a number of a caller's goes through [`bounded`] before it indexes anything; the comparison that
//! refuses it stays where it is. Index 0 is nobody's in every table.

use crate::region::Region;
use core::hint::black_box;
use core::ops::{Index, IndexMut};

/// Where a region's records are: what indexes a table of regions' is this, and no other number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionIndex(usize);

impl RegionIndex {
    /// The one at this place.
    #[inline(always)]
    pub const fn new(at: usize) -> Self {
        Self(at)
    }

    /// The place, in a table that is of more than regions, or published.
    #[inline(always)]
    pub const fn at(self) -> usize {
        self.0
    }

    /// The same as links say it; 0 is no region's.
    #[inline(always)]
    pub const fn link(self) -> u16 {
        self.0 as u16
    }
}

impl From<u16> for RegionIndex {
    #[inline(always)]
    fn from(link: u16) -> Self {
        Self(link.into())
    }
}

/// The index, or 0 if the table has no such entry.
#[inline(always)]
pub fn bounded(index: usize, len: usize) -> usize {
    // The sign of the difference, in every bit: all ones if the index is below the length. That the
    // compiler does not know this keeps it from comparing instead.
    let below = (index.wrapping_sub(len) as isize >> (usize::BITS - 1)) as usize;
    index & black_box(below)
}

/// The private halves of regions, which only a [`RegionIndex`] finds.
pub struct RegionSlots(&'static mut [Region]);

impl RegionSlots {
    /// A table of these.
    pub fn new(slots: &'static mut [Region]) -> Self {
        Self(slots)
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The one at `index`, if there is one.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: RegionIndex) -> Option<&mut Region> {
        self.0.get_mut(index.at())
    }

    /// All of them, in order.
    #[cfg(test)]
    pub fn iter(&self) -> core::slice::Iter<'_, Region> {
        self.0.iter()
    }

    /// The same, to change them.
    #[cfg(test)]
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Region> {
        self.0.iter_mut()
    }
}

impl Index<RegionIndex> for RegionSlots {
    type Output = Region;
    #[inline(always)]
    fn index(&self, index: RegionIndex) -> &Region {
        &self.0[index.at()]
    }
}

impl IndexMut<RegionIndex> for RegionSlots {
    #[inline(always)]
    fn index_mut(&mut self, index: RegionIndex) -> &mut Region {
        &mut self.0[index.at()]
    }
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
