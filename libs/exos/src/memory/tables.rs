//! Batches of table items on a fixed array: nothing here allocates from the heap.

use abi::id::DomainId;
use abi::limits::BATCH;
use abi::memory::{ANY_FRAME, Item, Operation, PRESENT, WRITABLE, from_source};
use xok::call::{self, Refused};

/// Items for one domain, sent when full or asked.
pub struct Items<const ROOM: usize> {
    domain: DomainId,
    count: usize,
    items: [Item; ROOM],
}

/// A batch for a page or two and the tables on the way.
pub type Few = Items<6>;
/// A batch as large as the kernel handles without looking for interrupts.
pub type Batch = Items<BATCH>;

impl<const ROOM: usize> Items<ROOM> {
    /// For one's own domain.
    pub fn own() -> Self {
        Self::of(DomainId::NONE)
    }

    /// For a domain guarded by one's own name.
    pub fn of(domain: DomainId) -> Self {
        Self { domain, count: 0, items: [Item::default(); ROOM] }
    }

    /// Adds an item.
    pub fn push(
        &mut self,
        operation: Operation,
        level: u8,
        address: u64,
        frame: u32,
        value: u64,
    ) -> Result<(), Refused> {
        if self.count == ROOM {
            self.send()?;
        }
        let item = Item { operation: operation as u8, level, zero: 0, frame, address, value };
        if let Some(place) = self.items.get_mut(self.count) {
            *place = item;
            self.count += 1;
        }
        Ok(())
    }

    /// Enters an empty table below the entry of `level`.
    pub fn table(&mut self, level: u8, address: u64) -> Result<(), Refused> {
        self.push(Operation::Table, level, address, ANY_FRAME, u64::from(ANY_FRAME))
    }

    /// Allocates any frame at `address`.
    pub fn allocate(&mut self, address: u64, choice: u64) -> Result<(), Refused> {
        self.push(Operation::Allocate, 1, address, ANY_FRAME, choice)
    }

    /// Enters at `address` the frame of one's own page `source`.
    pub fn map(&mut self, address: u64, source: u64, choice: u64) -> Result<(), Refused> {
        self.push(Operation::Map, 1, address, ANY_FRAME, from_source(source, choice))
    }

    /// Removes the entry of `level` for `address`.
    pub fn unmap(&mut self, level: u8, address: u64) -> Result<(), Refused> {
        self.push(Operation::Unmap, level, address, 0, 0)
    }

    /// Changes the rights of a present page.
    pub fn protect(&mut self, address: u64, choice: u64) -> Result<(), Refused> {
        self.push(Operation::Protect, 1, address, 0, choice)
    }

    /// Shares one's own level-1 table for `address` at the same place.
    pub fn share(&mut self, address: u64) -> Result<(), Refused> {
        self.push(Operation::Share, 2, address, 0, address)
    }

    /// Sends what is waiting.
    pub fn send(&mut self) -> Result<(), Refused> {
        if self.count == 0 {
            return Ok(());
        }
        let items = self.items.get(..self.count).unwrap_or(&[]);
        let answer = call::table_update(call::OWN, self.domain, items);
        self.count = 0;
        answer.map(|_| ())
    }

    /// Adds the tables that are missing on the way to one's own leaf entry for `address`.
    pub fn own_tables_to(&mut self, address: u64) -> Result<(), Refused> {
        if let Err(missing) = xok::own::entry(address, 1) {
            for level in (2..=missing).rev() {
                self.table(level, address)?;
            }
        }
        Ok(())
    }
}

/// Has one's own level-1 table for `address` been shared, so that its entries cannot change?
pub fn is_frozen(address: u64) -> bool {
    matches!(xok::own::entry(address, 2), Ok(entry) if entry & (PRESENT | WRITABLE) == PRESENT)
}

/// Is there a level-1 table for `address`?
pub fn has_leaf_table(address: u64) -> bool {
    matches!(xok::own::entry(address, 2), Ok(entry) if entry & PRESENT != 0)
}
