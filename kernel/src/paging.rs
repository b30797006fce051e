//! The kernel's own page tables: image, direct map, per-processor areas, devices.
//!
//! ```text
//!  slots 256…   direct map: 2 MiB pages, NX, writable; the image's text and constants read-only
//!  slot 384     published pages: 2 MiB pages, U=1 W=0 NX; application pages by 4 KiB tables
//!  slot 511     0xffff_ff80_0000_0000  devices, not cached
//!               0xffff_ff90_0000_0000  downloaded code: RX, its frames NX in the direct map
//!               0xffff_ffff_8020_0000  the image: text RX, constants R, data RW
//!               0xffff_ffff_bf80_0000  environments' slots, then their records (`hardware`)
//!               0xffff_ffff_c000_0000  a 256 KiB area for each processor (`cpu`)
//! ```
//!
//! # Safety
//! Loads the root that it built; every mapping used so far is in it.
#![allow(unsafe_code)]

use abi::layout::{DIRECT_MAP, KERNEL, PAGE_SIZE, table_index};
use abi::memory::{
    ADDRESS, CACHE_DISABLE, LARGE, NO_EXECUTE, PRESENT, USER, WRITABLE, WRITE_THROUGH,
};
use abi::published::Category;

use crate::boot::memory_map::MemoryMap;
use crate::physical::word;
use crate::registers::write_cr3;

/// What `boot::start` maps: the kernel's own memory is taken below this.
pub const EARLY_END: u64 = 1 << 32;
/// Where devices' registers are mapped, one after the other.
const DEVICES: u64 = 0xffff_ff80_0000_0000;
/// Where downloaded code is run: as many pages as one table has.
pub const CODE_WINDOW: u64 = 0xffff_ff90_0000_0000;
/// Where compiled predicates are run.
pub const CELL_WINDOW: u64 = 0xffff_ff91_0000_0000;
const LARGE_SIZE: u64 = 2 << 20;

unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

macro_rules! symbol {
    ($name:ident) => {
        // Only the address is taken.
        &raw const $name as u64
    };
}

/// The image's parts, physical: text, constants, data, each `start..end`.
pub fn image_parts() -> [(u64, u64); 3] {
    let [start, text, rodata, end] =
        [symbol!(image_start), symbol!(text_end), symbol!(rodata_end), symbol!(image_end)];
    [(start, text), (text, rodata), (rodata, end)].map(|(from, to)| (from - KERNEL, to - KERNEL))
}

/// The kernel's code, `start..end`, where it runs.
pub fn text() -> (u64, u64) {
    (symbol!(image_start), symbol!(text_end))
}

/// The kernel's tables while they grow.
pub struct Tables {
    root: u64,
    next_device: u64,
}

impl Tables {
    /// An empty root.
    pub fn new(memory: &mut MemoryMap) -> Self {
        Self { root: memory.frame(Category::PageTables), next_device: DEVICES }
    }

    /// The root's physical address.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// The address of the entry for `virtual_address` at `level`, with tables made on the way.
    fn entry(&mut self, memory: &mut MemoryMap, address: u64, level: u8, user: u64) -> u64 {
        let mut table = self.root;
        for above in (level + 1..=4).rev() {
            let at = table + 8 * table_index(address, above) as u64;
            let mut entry = word(at).load(core::sync::atomic::Ordering::Relaxed);
            if entry & PRESENT == 0 {
                entry = memory.frame(Category::PageTables) | PRESENT | WRITABLE | user;
                word(at).store(entry, core::sync::atomic::Ordering::Relaxed);
            }
            assert!(entry & LARGE == 0, "a large page lies where a table is needed");
            table = entry & ADDRESS;
        }
        table + 8 * table_index(address, level) as u64
    }

    /// Maps `len` bytes with 4 KiB pages.
    pub fn map(&mut self, memory: &mut MemoryMap, to: u64, from: u64, len: u64, flags: u64) {
        for offset in (0..len).step_by(PAGE_SIZE as usize) {
            let entry = self.entry(memory, to + offset, 1, flags & USER);
            word(entry)
                .store((from + offset) | flags | PRESENT, core::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Maps `len` bytes with 2 MiB pages.
    pub fn map_large(&mut self, memory: &mut MemoryMap, to: u64, from: u64, len: u64, flags: u64) {
        for offset in (0..len).step_by(LARGE_SIZE as usize) {
            let entry = self.entry(memory, to + offset, 2, flags & USER);
            let value = (from + offset) | flags | LARGE | PRESENT;
            word(entry).store(value, core::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Enters a level-1 table that the caller fills, for everybody's 2 MiB at `address`.
    pub fn install(&mut self, memory: &mut MemoryMap, address: u64, table: u64) {
        let entry = self.entry(memory, address, 2, USER);
        word(entry).store(table | PRESENT | USER, core::sync::atomic::Ordering::Relaxed);
    }

    /// The kernel's image, no part both writable and executable.
    pub fn map_image(&mut self, memory: &mut MemoryMap) {
        let flags = [0, NO_EXECUTE, NO_EXECUTE | WRITABLE];
        for ((start, end), flags) in image_parts().into_iter().zip(flags) {
            self.map(memory, KERNEL + start, start, end - start, flags);
        }
    }

    /// All memory that the map calls usable, and the first 2 MiB.
    pub fn map_direct(&mut self, memory: &mut MemoryMap) {
        let [text, _, data] = image_parts();
        let (image_first, image_last) = (text.0 & !(LARGE_SIZE - 1), data.1);
        let mut done = 0;
        let mut usable = [(0, LARGE_SIZE); 65];
        let mut count = 1;
        for range in memory.usable() {
            usable[count] = (range.start, range.end);
            count += 1;
        }
        usable[..count].sort_unstable();
        for (start, end) in &usable[..count] {
            let mut page = (start & !(LARGE_SIZE - 1)).max(done);
            while page < *end {
                if page >= image_first && page < image_last {
                    self.map_around_image(memory, page, text.0, data.0);
                } else {
                    let flags = NO_EXECUTE | WRITABLE;
                    self.map_large(memory, DIRECT_MAP + page, page, LARGE_SIZE, flags);
                }
                page += LARGE_SIZE;
            }
            done = done.max(page);
        }
    }

    /// 2 MiB of the direct map with small pages: what is text or constant can't be written here
    /// either.
    fn map_around_image(&mut self, memory: &mut MemoryMap, page: u64, first: u64, last: u64) {
        for at in (page..page + LARGE_SIZE).step_by(PAGE_SIZE as usize) {
            let writable = if at >= first && at < last { 0 } else { WRITABLE };
            self.map(memory, DIRECT_MAP + at, at, PAGE_SIZE, NO_EXECUTE | writable);
        }
    }

    /// Maps a device's registers; answers where.
    pub fn map_device(&mut self, memory: &mut MemoryMap, from: u64, len: u64) -> u64 {
        let offset = from % PAGE_SIZE;
        let len = (offset + len).next_multiple_of(PAGE_SIZE);
        let at = self.next_device;
        self.next_device += len;
        let flags = NO_EXECUTE | WRITABLE | CACHE_DISABLE | WRITE_THROUGH;
        self.map(memory, at, from - offset, len, flags);
        at + offset
    }

    /// The table of the window for downloaded code, which shows nothing yet.
    pub fn code_window(&mut self, memory: &mut MemoryMap) -> u64 {
        self.entry(memory, CODE_WINDOW, 1, 0)
    }

    /// Uses the tables on this processor.
    pub fn load(&self) {
        Self::load_root(self.root);
    }

    /// Uses finished tables on this processor.
    pub fn load_root(root: u64) {
        // SAFETY: see the file's head.
        unsafe { write_cr3(root) }
    }
}
