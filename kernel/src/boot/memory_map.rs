//! Memory before there are frame records: ranges that are free, taken from once, never returned.

use abi::layout::PAGE_SIZE;
use abi::published::{CATEGORIES, Category};
use kernel_core::loader::Range;

const RANGES: usize = 64;

/// Free memory in whole frames, and what has been taken so far, by category.
pub struct MemoryMap {
    ranges: [Range; RANGES],
    count: usize,
    /// Everything the map called usable, in frames: before anything was taken.
    usable: [Range; RANGES],
    usable_count: usize,
    taken: [u64; CATEGORIES],
}

impl MemoryMap {
    /// All usable memory of the map, whole frames only, as far as frames have numbers.
    pub fn new(memory: impl Iterator<Item = Range>) -> Self {
        let mut map = Self {
            ranges: [Range::default(); RANGES],
            count: 0,
            usable: [Range::default(); RANGES],
            usable_count: 0,
            taken: [0; CATEGORIES],
        };
        for range in memory.map(kernel_core::frame::numbered) {
            let start = range.start.next_multiple_of(PAGE_SIZE);
            let end = range.end & !(PAGE_SIZE - 1);
            if start < end && map.count < RANGES {
                map.ranges[map.count] = Range { start, end };
                map.count += 1;
            }
        }
        map.usable = map.ranges;
        map.usable_count = map.count;
        map
    }

    /// Takes a range out, wherever it lies; pieces of frames count as whole ones.
    pub fn reserve(&mut self, range: Range) {
        if range.start >= range.end {
            return;
        }
        let start = range.start & !(PAGE_SIZE - 1);
        let end = range.end.next_multiple_of(PAGE_SIZE);
        let mut at = 0;
        while at < self.count {
            let free = self.ranges[at];
            if free.end <= start || end <= free.start {
                at += 1;
                continue;
            }
            let before = Range { start: free.start, end: start.max(free.start) };
            let after = Range { start: end.min(free.end), end: free.end };
            self.count -= 1;
            self.ranges[at] = self.ranges[self.count];
            for piece in [before, after] {
                if piece.start < piece.end && self.count < RANGES {
                    self.ranges[self.count] = piece;
                    self.count += 1;
                }
            }
            // What was put here, or at the end, no longer meets the range: look again.
        }
    }

    /// Takes `len` bytes, whole frames, zeroed, aligned; panics when memory is too small to boot.
    pub fn take(&mut self, category: Category, len: u64, align: u64) -> u64 {
        let len = len.next_multiple_of(PAGE_SIZE);
        let fit = self.ranges[..self.count]
            .iter()
            .map(|range| (range.start.next_multiple_of(align.max(PAGE_SIZE)), range.end))
            .filter(|(start, end)| start + len <= *end && *end <= crate::paging::EARLY_END)
            .min();
        let Some((start, _)) = fit else {
            panic!("memory is too small: {} KiB more are needed for {category:?}", len / 1024);
        };
        self.reserve(Range::of(start, len));
        self.taken[category as usize] += len;
        crate::physical::zero(start, len);
        start
    }

    /// One zeroed frame.
    pub fn frame(&mut self, category: Category) -> u64 {
        self.take(category, PAGE_SIZE, PAGE_SIZE)
    }

    /// Counts bytes that were taken otherwise (the kernel's image).
    pub fn count_taken(&mut self, category: Category, bytes: u64) {
        self.taken[category as usize] += bytes;
    }

    /// Takes bytes out of a category that count in another one.
    pub fn uncount(&mut self, category: Category, bytes: u64) {
        self.taken[category as usize] -= bytes;
    }

    /// Bytes taken in the category with this number.
    pub fn taken_by_number(&self, category: usize) -> u64 {
        self.taken[category]
    }

    /// What is free still.
    pub fn free(&self) -> &[Range] {
        &self.ranges[..self.count]
    }

    /// What the map called usable.
    pub fn usable(&self) -> &[Range] {
        &self.usable[..self.usable_count]
    }

    /// Highest usable address, exclusive.
    pub fn end(&self) -> u64 {
        self.usable().iter().map(|range| range.end).max().unwrap_or(0)
    }

    /// Usable bytes.
    pub fn bytes(&self) -> u64 {
        self.usable().iter().map(|range| range.end - range.start).sum()
    }
}
