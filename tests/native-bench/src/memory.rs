//! A hundred pages, and protecting them in the program's own page table.

use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Item, NO_EXECUTE, Operation, WRITABLE};
use alloc::format;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space, item};

use crate::row::Failure;

/// How many pages; aegis95 Table 10.
pub const PAGES: u64 = 100;
/// Where they lie.
pub const AREA: u64 = 0x7000_0000_0000;
/// Where nothing does.
pub const NOTHING: u64 = 0x6000_0000_0000;

/// The area, with the batches that change all of it made in advance.
pub struct Area {
    protect: Vec<Item>,
    unprotect: Vec<Item>,
}

impl Area {
    /// Maps it.
    pub fn map() -> Result<Self, Failure> {
        let mapped = Space::own().allocate(AREA, PAGES, DATA);
        mapped.map_err(|why| format!("{why:?}"))?;
        crate::faults::install(AREA);
        let all = |choice| (0..PAGES).map(|page| change(address(page), choice)).collect();
        Ok(Self { protect: all(NO_EXECUTE), unprotect: all(NO_EXECUTE | WRITABLE) })
    }

    /// Unmaps it.
    pub fn unmap(self) {
        // The program's next row would be refused its own mapping.
        let _ = Space::own().unmap(AREA, PAGES);
    }

    /// Makes all pages read-only.
    pub fn protect(&mut self) {
        update(&self.protect);
    }

    /// Makes all pages writable.
    pub fn unprotect(&mut self) {
        update(&self.unprotect);
    }
}

/// Address of a page.
pub fn address(page: u64) -> u64 {
    AREA + page * PAGE_SIZE
}

/// Enters a fresh page and fills it.
pub fn fill(address: u64) {
    let choice = NO_EXECUTE | WRITABLE;
    update(&[item(Operation::Allocate, 1, address, ANY_FRAME, choice)]);
    crate::faults::put(address);
}

/// Makes one page read-only.
pub fn protect(address: u64) {
    update(&[change(address, NO_EXECUTE)]);
}

/// Makes one page writable.
pub fn unprotect(address: u64) {
    update(&[change(address, NO_EXECUTE | WRITABLE)]);
}

fn change(address: u64, choice: u64) -> Item {
    item(Operation::Protect, 1, address, ANY_FRAME, choice)
}

fn update(items: &[Item]) {
    if let Err(why) = call::table_update(OWN, abi::id::DomainId::NONE, items) {
        // The figures would be of something else.
        xok::log!(0, "fatal TableUpdate: {why:?}");
        call::exit(1 << 8);
    }
}
