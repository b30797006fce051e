//! Shaping a space: batches of table items, and mapping with the tables made on the way.
//!
//! A [`Space`] is one's own domain or one that the caller may write (a child being built). Of its
//! own it reads the tables; of another it remembers which tables it has made.

use crate::call::{self, Refused};
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Item, Operation, PRESENT};
use alloc::vec::Vec;

/// Items sent in one call at most; a larger batch is sent in several.
pub const BATCH: usize = 64;

/// A space that can be shaped.
pub struct Space {
    domain: DomainId,
    capability: u8,
    batch: Vec<Item>,
    /// Tables made in another domain, as `prefix << 3 | level`.
    made: Vec<u64>,
}

/// Choice bits for plain data.
pub const DATA: u64 = abi::memory::WRITABLE | abi::memory::NO_EXECUTE;

impl Space {
    /// One's own.
    pub fn own() -> Self {
        Self::of(DomainId::NONE, call::OWN)
    }

    /// Another's; `capability` has WRITE over its guard and guards what is allocated there.
    pub fn of(domain: DomainId, capability: u8) -> Self {
        Self { domain, capability, batch: Vec::new(), made: Vec::new() }
    }

    /// The domain, `NONE` for one's own.
    pub fn domain(&self) -> DomainId {
        self.domain
    }

    /// Sends what is waiting. An error names the item refused in its number's low half.
    pub fn flush(&mut self) -> Result<(), Refused> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let result = call::table_update(self.capability, self.domain, &self.batch);
        self.batch.clear();
        result.map(|_| ())
    }

    /// Adds an item, sending the batch when it is full.
    pub fn push(&mut self, item: Item) -> Result<(), Refused> {
        self.batch.try_reserve(1).map_err(|_| (Error::Exhausted, 0))?;
        self.batch.push(item);
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Does the entry of `level` for `address` point to a table?
    fn has_table(&self, address: u64, level: u8) -> bool {
        if self.domain.is_none() {
            return matches!(crate::own::entry(address, level), Ok(entry) if entry & PRESENT != 0);
        }
        self.made.contains(&Self::key(address, level))
    }

    fn key(address: u64, level: u8) -> u64 {
        (address >> (12 + 9 * (u32::from(level) - 1))) << 3 | u64::from(level)
    }

    /// Room to remember a table more.
    fn room(&mut self) -> Result<(), Refused> {
        self.made.try_reserve(1).map_err(|_| (Error::Exhausted, 0))
    }

    /// Remembers that another domain has a table under the entry of `level` for `address`.
    pub fn note_table(&mut self, address: u64, level: u8) {
        if !self.domain.is_none() {
            self.made.push(Self::key(address, level));
        }
    }

    /// Makes the tables that lead to the entry of `level` for `address`.
    pub fn tables_to(&mut self, address: u64, level: u8) -> Result<(), Refused> {
        for above in (level + 1..=4).rev() {
            if self.has_table(address, above) {
                continue;
            }
            self.room()?;
            // One at a time: in one's own space the next level is looked up in what this makes.
            self.flush()?;
            self.push(item(Operation::Table, above, address, ANY_FRAME, u64::from(ANY_FRAME)))?;
            self.flush()?;
            self.note_table(address, above);
        }
        Ok(())
    }

    /// Allocates `pages` fresh frames at `address`, with these choice bits.
    pub fn allocate(&mut self, address: u64, pages: u64, choice: u64) -> Result<(), Refused> {
        for page in 0..pages {
            let address = address + page * PAGE_SIZE;
            // Those that led to the page before lead to its neighbours, too.
            if page == 0 || address.is_multiple_of(TABLE_SPAN) {
                self.tables_to(address, 1)?;
            }
            self.push(item(Operation::Allocate, 1, address, ANY_FRAME, choice))?;
        }
        self.flush()
    }

    /// As `allocate`, and fills the pages with zeroes: the kernel does not, within an account.
    pub fn allocate_zeroed(
        &mut self,
        address: u64,
        pages: u64,
        choice: u64,
    ) -> Result<(), Refused> {
        let mut own = Space::own();
        let mut done = 0;
        while done < pages {
            let count = (pages - done).min(WINDOW_PAGES);
            own.allocate(WINDOW, count, DATA)?;
            crate::window::clear(count);
            let entered = (0..count).try_for_each(|page| {
                let offset = page * PAGE_SIZE;
                let frame =
                    crate::own::frame(WINDOW + offset).ok_or((Error::BadAddress, WINDOW))?;
                self.map(address + done * PAGE_SIZE + offset, frame, 1, choice)
            });
            own.unmap(WINDOW, count)?;
            entered?;
            done += count;
        }
        Ok(())
    }

    /// Enters existing frames, consecutive from `first`, at `address`.
    pub fn map(
        &mut self,
        address: u64,
        first: Frame,
        pages: u64,
        choice: u64,
    ) -> Result<(), Refused> {
        for page in 0..pages {
            let address = address + page * PAGE_SIZE;
            // Those that led to the page before lead to its neighbours, too.
            if page == 0 || address.is_multiple_of(TABLE_SPAN) {
                self.tables_to(address, 1)?;
            }
            self.push(item(Operation::Map, 1, address, first.0 + page as u32, choice))?;
        }
        self.flush()
    }

    /// Folds the table that maps the 2 MiB at `address`: 512 frames in a row, to be used by one
    /// large entry. What changes one of its pages later unfolds it.
    pub fn fold(&mut self, address: u64) -> Result<(), Refused> {
        self.push(item(Operation::Fold, 2, address, ANY_FRAME, 0))?;
        self.flush()
    }

    /// Puts the table back.
    pub fn unfold(&mut self, address: u64) -> Result<(), Refused> {
        self.push(item(Operation::Unfold, 2, address, ANY_FRAME, 0))?;
        self.flush()
    }

    /// Gives the frame at `address`, whose only reference is this entry, a memory type:
    /// [`abi::memory::TYPE`] (uncacheable), `WRITE_THROUGH`, or 0 (write-back, as at first).
    /// Whoever maps the frame later gets it with the type.
    pub fn set_type(&mut self, address: u64, memory_type: u64) -> Result<(), Refused> {
        self.push(item(Operation::Type, 1, address, ANY_FRAME, memory_type))?;
        self.flush()
    }

    /// Removes `pages` leaf entries from `address` on (absent ones are passed over).
    pub fn unmap(&mut self, address: u64, pages: u64) -> Result<(), Refused> {
        for page in 0..pages {
            let address = address + page * PAGE_SIZE;
            if self.domain.is_none() && crate::own::leaf(address).is_none() {
                continue;
            }
            self.push(item(Operation::Unmap, 1, address, 0, 0))?;
        }
        self.flush()
    }

    /// Shares with this (other) space the table under one's own entry of `level` for `address`.
    pub fn share(&mut self, address: u64, level: u8) -> Result<(), Refused> {
        self.tables_to(address, level)?;
        self.room()?;
        self.push(item(Operation::Share, level, address, 0, address))?;
        self.note_table(address, level);
        Ok(())
    }
}

/// An item of a table update.
pub fn item(operation: Operation, level: u8, address: u64, frame: u32, value: u64) -> Item {
    Item { operation: operation as u8, level, more: 0, frame, address, value }
}

/// What the entries of one level-1 table map.
const TABLE_SPAN: u64 = 512 * PAGE_SIZE;

/// Where a library keeps pages of others for a moment.
pub const WINDOW: u64 = abi::layout::LIBRARY + 0x0800_0000;

/// Pages of the window.
pub const WINDOW_PAGES: u64 = 64;

/// Allocates a frame at `to` in `space` and fills it with `bytes` (at most a page) through the
/// window at [`WINDOW`].
pub fn allocate_filled(
    space: &mut Space,
    to: u64,
    bytes: &[u8],
    choice: u64,
) -> Result<Frame, Refused> {
    if bytes.len() as u64 > PAGE_SIZE {
        return Err((Error::TooLarge, PAGE_SIZE));
    }
    let mut own = Space::own();
    own.allocate(WINDOW, 1, DATA)?;
    crate::window::clear(1);
    let frame = crate::own::frame(WINDOW).ok_or((Error::BadAddress, WINDOW))?;
    crate::window::fill(bytes);
    let entered = space.map(to, frame, 1, choice);
    own.unmap(WINDOW, 1)?;
    entered.map(|()| frame)
}
