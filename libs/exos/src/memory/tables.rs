//! Batches of table items on a fixed array: nothing here allocates from the heap.

use crate::library::TABLE_SPAN;
use abi::id::DomainId;
use abi::layout::PAGE_SIZE;
use abi::limits::BATCH;
use abi::memory::{ANY_FRAME, CLEARED, Item, Operation, PRESENT, SOURCE, WRITABLE, from_source};
use xok::call::{self, Refused};

/// Items for one domain, sent when full or asked. A page that goes on where the item before ends
/// becomes a part of it.
pub struct Items<const ROOM: usize> {
    domain: DomainId,
    count: usize,
    /// What an item for the next page would say; a level that there is not: no item can go on.
    next: Item,
    items: [Item; ROOM],
}

/// A batch for a page or two and the tables on the way.
pub type Few = Items<6>;
/// A batch as large as the kernel handles without looking for interrupts.
pub type Batch = Items<BATCH>;

/// What the page behind says if it goes on with `item`: nothing, if that is in another table.
fn behind(item: &Item) -> Item {
    let address = item.address + PAGE_SIZE;
    if item.level != 1 || address.is_multiple_of(TABLE_SPAN) || item.frame != ANY_FRAME {
        return Item::default();
    }
    let value = if item.value & SOURCE != 0 && item.operation != Operation::Unmap as u8 {
        item.value + PAGE_SIZE
    } else {
        item.value
    };
    Item { address, value, ..*item }
}

impl<const ROOM: usize> Items<ROOM> {
    /// For one's own domain.
    pub fn own() -> Self {
        Self::of(DomainId::NONE)
    }

    /// For a domain guarded by one's own name.
    pub fn of(domain: DomainId) -> Self {
        Self { domain, count: 0, next: Item::default(), items: [Item::default(); ROOM] }
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
        let item = Item { operation: operation as u8, level, more: 0, frame, address, value };
        if item == self.next
            && let Some(last) = self.count.checked_sub(1).and_then(|at| self.items.get_mut(at))
        {
            last.more += 1;
            self.next = behind(&item);
            return Ok(());
        }
        if self.count == ROOM {
            self.send()?;
        }
        if let Some(place) = self.items.get_mut(self.count) {
            *place = item;
            self.next = behind(&item);
            self.count += 1;
        }
        Ok(())
    }

    /// Adds the same for `pages` pages of one table from `address` on.
    fn push_pages(
        &mut self,
        operation: Operation,
        address: u64,
        pages: u64,
        value: u64,
    ) -> Result<(), Refused> {
        self.push(operation, 1, address, ANY_FRAME, value)?;
        if let Some(last) = self.count.checked_sub(1).and_then(|at| self.items.get_mut(at)) {
            last.more += pages as u16 - 1;
            self.next = Item::default();
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

    /// Allocates any frame at `address`, of zeros.
    pub fn allocate_cleared(&mut self, address: u64, choice: u64) -> Result<(), Refused> {
        self.allocate(address, choice | CLEARED)
    }

    /// Allocates a frame at `address` with a copy of one's own page `source`.
    pub fn copy(&mut self, address: u64, source: u64, choice: u64) -> Result<(), Refused> {
        self.allocate(address, from_source(source, choice))
    }

    /// Enters at `address` the frame of one's own page `source`.
    pub fn map(&mut self, address: u64, source: u64, choice: u64) -> Result<(), Refused> {
        self.push(Operation::Map, 1, address, ANY_FRAME, from_source(source, choice))
    }

    /// Enters from `address` on the frames of `pages` of one's own pages from `source` on, below
    /// one table.
    pub fn map_pages(
        &mut self,
        address: u64,
        source: u64,
        pages: u64,
        choice: u64,
    ) -> Result<(), Refused> {
        self.push_pages(Operation::Map, address, pages, from_source(source, choice))
    }

    /// Allocates frames of zeros at `pages` pages of one table.
    pub fn allocate_pages(&mut self, address: u64, pages: u64, choice: u64) -> Result<(), Refused> {
        self.push_pages(Operation::Allocate, address, pages, choice | CLEARED)
    }

    /// Removes the entry of `level` for `address`.
    pub fn unmap(&mut self, level: u8, address: u64) -> Result<(), Refused> {
        self.push(Operation::Unmap, level, address, ANY_FRAME, 0)
    }

    /// Removes the leaves of `pages` pages of one table.
    pub fn unmap_pages(&mut self, address: u64, pages: u64) -> Result<(), Refused> {
        self.push_pages(Operation::Unmap, address, pages, 0)
    }

    /// Changes the rights of `pages` present pages of one table.
    pub fn protect_pages(&mut self, address: u64, pages: u64, choice: u64) -> Result<(), Refused> {
        self.push_pages(Operation::Protect, address, pages, choice)
    }

    /// Changes the rights of a present page.
    pub fn protect(&mut self, address: u64, choice: u64) -> Result<(), Refused> {
        self.push(Operation::Protect, 1, address, ANY_FRAME, choice)
    }

    /// Shares one's own level-1 table for `address` at the same place.
    pub fn share(&mut self, address: u64) -> Result<(), Refused> {
        self.push(Operation::Share, 2, address, 0, address)
    }

    /// Shares it, or, if at most `copies` pages below it are writable, enters a copy of it with
    /// copies of them.
    pub fn share_or_copy(&mut self, address: u64, copies: u64) -> Result<(), Refused> {
        self.push(Operation::Share, 2, address, 0, address | copies)
    }

    /// Sends what is waiting.
    pub fn send(&mut self) -> Result<(), Refused> {
        if self.count == 0 {
            return Ok(());
        }
        let items = self.items.get(..self.count).unwrap_or(&[]);
        let answer = call::table_update(call::OWN, self.domain, items);
        (self.count, self.next) = (0, Item::default());
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
