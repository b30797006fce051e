//! The program's memory areas: what `mmap`, `brk` and the loader promised, page by page.
//!
//! A sorted list without overlaps, changed by ranges of whole pages; neighbours that say the same
//! are one. What is really there is in the page tables; this list says what a missing page
//! becomes.

use abi::layout::PAGE_SIZE;
use alloc::vec::Vec;

/// May be read.
pub const READ: u8 = 1;
/// May be written.
pub const WRITE: u8 = 2;
/// May be executed.
pub const EXECUTE: u8 = 4;

/// What an absent page of an area becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Zeros.
    Anonymous,
    /// Zeros, seen by all who inherit it (`MAP_SHARED`).
    Shared,
    /// The boot image from `offset` on; behind `bytes` zeros.
    Image {
        /// Offset in the image of the area's first byte: whole pages.
        offset: u64,
        /// Bytes from the area's first on that the file has.
        bytes: u64,
    },
}

/// A range of pages of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// [`READ`], [`WRITE`], [`EXECUTE`].
    pub protection: u8,
    /// What absent pages become.
    pub kind: Kind,
    /// What `/proc/self/maps` calls it.
    pub name: Name,
}

/// What an area is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    /// Nothing in particular.
    #[default]
    None,
    /// The program's file.
    Program,
    /// `[heap]`
    Heap,
    /// `[stack]`
    Stack,
    /// `[vdso]`
    Vdso,
    /// `[stubs]`: where rewritten call sites go.
    Stubs,
    /// A file's content that others are to see (`MAP_SHARED`): it is never written.
    SharedFile,
    /// A copy of a file's content (`MAP_PRIVATE`), which absent pages do not come back from.
    CopiedFile,
}

impl Area {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Does it hold nothing? Never true of one in a list.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// The part of it inside `[start, end)`, which must overlap it.
    fn part(&self, start: u64, end: u64) -> Area {
        let mut part = *self;
        part.start = self.start.max(start);
        part.end = self.end.min(end);
        let skipped = part.start - self.start;
        if let Kind::Image { offset, bytes } = self.kind {
            part.kind =
                Kind::Image { offset: offset + skipped, bytes: bytes.saturating_sub(skipped) };
        }
        part
    }

    /// Does `next` go on where this one ends, as if they were one?
    fn continues_as(&self, next: &Area) -> bool {
        let same =
            self.end == next.start && self.protection == next.protection && self.name == next.name;
        same && match (self.kind, next.kind) {
            (Kind::Image { offset, bytes }, Kind::Image { offset: on, bytes: more }) => {
                offset + self.len() == on && bytes == self.len() + more
            }
            (one, other) => one == other,
        }
    }
}

/// The list.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    list: Vec<Area>,
}

impl Areas {
    /// Nothing promised.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// These areas; of what overlaps, the later ones.
    pub fn of(list: Vec<Area>) -> Self {
        if list.iter().zip(list.iter().skip(1)).all(|(one, next)| one.end <= next.start) {
            let mut areas = Self { list };
            areas.merge(0, areas.list.len());
            return areas;
        }
        let mut areas = Self::new();
        list.into_iter().for_each(|area| areas.insert(area));
        areas
    }

    /// All of them, sorted.
    pub fn all(&self) -> &[Area] {
        &self.list
    }

    /// Position of the first area that ends behind `address`.
    fn position(&self, address: u64) -> usize {
        self.list.partition_point(|area| area.end <= address)
    }

    /// The area that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Area> {
        self.list.get(self.position(address)).filter(|area| area.start <= address)
    }

    /// The first address behind `address` where an area begins.
    pub fn start_behind(&self, address: u64) -> u64 {
        let at = self.list.partition_point(|area| area.start <= address);
        self.list.get(at).map_or(u64::MAX, |area| area.start)
    }

    /// The areas that overlap `[start, end)`, cut to it.
    pub fn inside(&self, start: u64, end: u64) -> impl Iterator<Item = Area> + '_ {
        let rest = self.list.get(self.position(start)..).unwrap_or(&[]);
        rest.iter().take_while(move |area| area.start < end).map(move |area| area.part(start, end))
    }

    /// Is every page of `[start, end)` in some area?
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for area in self.inside(start, end) {
            if area.start != at {
                return false;
            }
            at = area.end;
        }
        at >= end
    }

    /// Forgets `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        self.replace(start, end, &[]);
    }

    /// Enters `area` in place of whatever was there.
    pub fn insert(&mut self, area: Area) {
        if !area.is_empty() {
            self.replace(area.start, area.end, &[area]);
        }
    }

    /// Changes the protection of all areas in `[start, end)`.
    pub fn protect(&mut self, start: u64, end: u64, protection: u8) {
        let mut changed: Vec<Area> = self.inside(start, end).collect();
        for area in &mut changed {
            area.protection = protection;
        }
        self.replace(start, end, &changed);
    }

    /// Puts `new` (sorted, inside the range) in place of everything in `[start, end)`.
    fn replace(&mut self, start: u64, end: u64, new: &[Area]) {
        let first = self.position(start);
        let last = first
            + self
                .list
                .get(first..)
                .map_or(0, |rest| rest.iter().take_while(|area| area.start < end).count());
        let mut put: Vec<Area> = Vec::with_capacity(new.len() + 2);
        if let Some(area) = self.list.get(first)
            && first < last
            && area.start < start
        {
            put.push(area.part(area.start, start));
        }
        put.extend_from_slice(new);
        if let Some(area) = last.checked_sub(1).and_then(|at| self.list.get(at))
            && first < last
            && area.end > end
        {
            put.push(area.part(end, area.end));
        }
        let behind = first + put.len();
        self.list.splice(first..last, put);
        self.merge(first.saturating_sub(1), behind + 1);
    }

    /// Joins neighbours between these positions.
    fn merge(&mut self, from: usize, to: usize) {
        let mut at = to.min(self.list.len());
        while at > from {
            at -= 1;
            let Some(&[one, next]) = self.list.get(at..at + 2) else { continue };
            if one.continues_as(&next) {
                self.list[at].end = next.end;
                if let Kind::Image { offset, bytes } = one.kind
                    && let Kind::Image { bytes: more, .. } = next.kind
                {
                    self.list[at].kind = Kind::Image { offset, bytes: bytes.max(one.len() + more) };
                }
                self.list.remove(at + 1);
            }
        }
    }

    /// The highest free range of `len` bytes in `[lowest, highest)`; its first address.
    pub fn highest_free(&self, len: u64, lowest: u64, highest: u64) -> Option<u64> {
        let mut top = highest;
        for area in self.list.iter().rev() {
            if area.start >= highest {
                continue;
            }
            if area.end <= top && top - area.end >= len {
                break;
            }
            top = area.start.min(top);
        }
        let start = top.checked_sub(len)?;
        (start >= lowest).then_some(start)
    }

    /// Is `[start, end)` free of areas?
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        self.inside(start, end).next().is_none()
    }

    /// Bytes promised in all.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(Area::len).sum()
    }
}

/// Rounds down to a page.
pub const fn page_down(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

/// Rounds up to a page; `None` beyond the end of the address space.
pub const fn page_up(address: u64) -> Option<u64> {
    match address.checked_add(PAGE_SIZE - 1) {
        Some(sum) => Some(page_down(sum)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, end: u64, protection: u8) -> Area {
        Area { start, end, protection, kind: Kind::Anonymous, name: Name::None }
    }

    #[test]
    fn a_list_is_made_at_once_or_one_by_one() {
        let sorted = [area(0x1000, 0x2000, READ), area(0x2000, 0x3000, READ)];
        assert_eq!(Areas::of(sorted.to_vec()).all(), [area(0x1000, 0x3000, READ)]);
        let apart = [area(0x1000, 0x2000, READ), area(0x2000, 0x3000, WRITE)];
        assert_eq!(Areas::of(apart.to_vec()).all(), apart);
        let across = [area(0x1000, 0x4000, READ), area(0x2000, 0x3000, WRITE)];
        let cut = [area(0x1000, 0x2000, READ), across[1], area(0x3000, 0x4000, READ)];
        assert_eq!(Areas::of(across.to_vec()).all(), cut);
    }

    #[test]
    fn neighbours_that_say_the_same_are_one() {
        let mut areas = Areas::new();
        areas.insert(area(0x1000, 0x2000, READ));
        areas.insert(area(0x3000, 0x4000, READ));
        areas.insert(area(0x2000, 0x3000, READ));
        assert_eq!(areas.all(), &[area(0x1000, 0x4000, READ)]);
    }

    #[test]
    fn protecting_the_middle_makes_three() {
        let mut areas = Areas::new();
        areas.insert(area(0x1000, 0x5000, READ | WRITE));
        areas.protect(0x2000, 0x3000, READ);
        let expected = [
            area(0x1000, 0x2000, READ | WRITE),
            area(0x2000, 0x3000, READ),
            area(0x3000, 0x5000, READ | WRITE),
        ];
        assert_eq!(areas.all(), &expected);
        areas.protect(0x1000, 0x5000, READ | WRITE);
        assert_eq!(areas.all(), &[area(0x1000, 0x5000, READ | WRITE)]);
    }

    #[test]
    fn a_cut_file_keeps_its_offsets() {
        let mut areas = Areas::new();
        let kind = Kind::Image { offset: 0x10000, bytes: 0x1800 };
        areas.insert(Area { kind, ..area(0x1000, 0x5000, READ) });
        areas.remove(0x2000, 0x3000);
        let kinds: Vec<Kind> = areas.all().iter().map(|area| area.kind).collect();
        let first = Kind::Image { offset: 0x10000, bytes: 0x1800 };
        let second = Kind::Image { offset: 0x12000, bytes: 0 };
        assert_eq!(kinds, [first, second]);
        assert!(!areas.covers(0x1000, 0x5000));
        assert!(areas.covers(0x3000, 0x5000));
    }

    #[test]
    fn free_ranges_are_found_from_the_top() {
        let mut areas = Areas::new();
        areas.insert(area(0x7000, 0x8000, READ));
        areas.insert(area(0x3000, 0x4000, READ));
        assert_eq!(areas.highest_free(0x1000, 0x1000, 0x9000), Some(0x8000));
        assert_eq!(areas.highest_free(0x2000, 0x1000, 0x9000), Some(0x5000));
        assert_eq!(areas.highest_free(0x4000, 0x1000, 0x9000), None);
        assert_eq!(areas.highest_free(0x2000, 0x1000, 0x7800), Some(0x5000));
    }

    /// Against a plain array of pages.
    #[test]
    fn agrees_with_a_page_by_page_model() {
        const PAGES: u64 = 64;
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut areas = Areas::new();
        let mut model = [None; PAGES as usize];
        for _ in 0..20_000 {
            let start = next(PAGES);
            let end = (start + 1 + next(8)).min(PAGES);
            let protection = next(4) as u8;
            let (from, to) = (start * PAGE_SIZE, end * PAGE_SIZE);
            let range = start as usize..end as usize;
            match next(3) {
                0 => {
                    areas.insert(area(from, to, protection));
                    model[range].fill(Some(protection));
                }
                1 => {
                    areas.remove(from, to);
                    model[range].fill(None);
                }
                _ => {
                    areas.protect(from, to, protection);
                    for page in &mut model[range] {
                        *page = page.map(|_| protection);
                    }
                }
            }
            for (page, expected) in model.iter().enumerate() {
                let found = areas.find(page as u64 * PAGE_SIZE).map(|area| area.protection);
                assert_eq!(found, *expected, "page {page}");
            }
            for pair in areas.all().windows(2) {
                assert!(pair[0].end <= pair[1].start && !pair[0].continues_as(&pair[1]));
            }
        }
    }
}
