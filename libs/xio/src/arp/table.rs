//! The table of link addresses, as words in a page that one writes and all may read (appnet L20).
//!
//! ```text
//!  word 0   magic "XIOARP01"
//!       1   sequence: odd while the table is written; every change makes it another
//!       2   entries in use (low half), changes refused since the start (high half)
//!       3   the owner's clock, microseconds, when it last looked for old entries
//!       4 + 3n   entry n: IPv4 address (low half), state (bits 32–39: 0 free, 1 known)
//!       5 + 3n            link address in 48 bits, first byte lowest
//!       6 + 3n            microseconds on the owner's clock when it was last confirmed
//! ```
//! A reader copies between two equal, even sequence words ([`lockfree::sequence`]); a reader can't
//! stop the writer, and a writer that dies in the middle leaves the table unreadable, not wrong. An
//! entry that nobody confirmed for [`EXPIRY_US`] is dropped; when all places are taken the oldest
//! one gives way.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

use lockfree::sequence;

use crate::ethernet::Mac;

const MAGIC: u64 = u64::from_le_bytes(*b"XIOARP01");
const SEQUENCE: usize = 1;
const COUNTS: usize = 2;
const SWEPT: usize = 3;
const FIRST: usize = 4;
const ENTRY: usize = 3;
const KNOWN: u64 = 1 << 32;

/// Entries a table has at most; fewer where the page is shorter.
pub const ENTRIES_MAX: usize = 128;
/// Microseconds after which an entry that nobody confirmed is dropped (RFC 1122 §2.3.2.1).
pub const EXPIRY_US: u64 = 20 * 60 * 1_000_000;
/// How often a reader looks again while the writer writes.
const ATTEMPTS: usize = 1000;

/// What is known of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its protocol address.
    pub address: Ipv4Addr,
    /// Its link address.
    pub mac: Mac,
    /// When the owner last heard of it, microseconds on its clock.
    pub confirmed_us: u64,
}

/// What the table says of its own age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Changes with every change of the table; wait for it to become another.
    pub sequence: u64,
    /// Entries in use.
    pub entries: u32,
    /// Packets that would have changed the table and were refused.
    pub refused: u32,
}

/// Where a table lies.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
}

/// The one who writes it.
pub struct Writer<'a> {
    table: Table<'a>,
}

/// One who reads it.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    table: Table<'a>,
}

impl<'a> Table<'a> {
    /// A table over these words: a page, or as much of it as is given.
    pub fn over(words: &'a [AtomicU64]) -> Table<'a> {
        Table { words }
    }

    /// Empties the words and becomes their only writer.
    pub fn create(self) -> Writer<'a> {
        let mut writer = Writer { table: self };
        // As a change, for those who have an older table here open.
        writer.write(|writer| {
            let others = (0..self.words.len()).filter(|&at| at != SEQUENCE);
            others.for_each(|at| writer.store(at, 0));
        });
        if let Some(magic) = self.words.first() {
            magic.store(MAGIC, Ordering::Release);
        }
        writer
    }

    /// Reads a table that someone else writes; `None` if there is none here (yet).
    pub fn open(self) -> Option<Reader<'a>> {
        let magic = self.words.first()?.load(Ordering::Acquire);
        (magic == MAGIC && self.words.len() > FIRST).then_some(Reader { table: self })
    }

    fn places(&self) -> usize {
        (self.words.len().saturating_sub(FIRST) / ENTRY).min(ENTRIES_MAX)
    }

    fn load(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn entry(&self, place: usize) -> Option<Entry> {
        let at = FIRST + place * ENTRY;
        let word = self.load(at);
        (word & KNOWN != 0).then(|| Entry {
            address: Ipv4Addr::from_bits(word as u32),
            mac: Mac::from_word(self.load(at + 1)),
            confirmed_us: self.load(at + 2),
        })
    }
}

impl Writer<'_> {
    /// Enters or confirms a station; the oldest entry gives way if there is no place.
    pub fn set(&mut self, address: Ipv4Addr, mac: Mac, now_us: u64) {
        let Some(place) = self.place_for(address) else { return };
        let new = self.table.entry(place).is_none();
        self.write(|writer| {
            let at = FIRST + place * ENTRY;
            writer.store(at, KNOWN | u64::from(address.to_bits()));
            writer.store(at + 1, mac.to_word());
            writer.store(at + 2, now_us);
            if new {
                writer.store(COUNTS, writer.table.load(COUNTS) + 1);
            }
        });
    }

    /// The entry of `address`.
    pub fn get(&self, address: Ipv4Addr) -> Option<Entry> {
        (0..self.table.places())
            .filter_map(|place| self.table.entry(place))
            .find(|entry| entry.address == address)
    }

    /// Drops entries that nobody confirmed for [`EXPIRY_US`].
    pub fn sweep(&mut self, now_us: u64) {
        for place in 0..self.table.places() {
            let Some(entry) = self.table.entry(place) else { continue };
            if now_us.saturating_sub(entry.confirmed_us) < EXPIRY_US {
                continue;
            }
            self.write(|writer| {
                writer.store(FIRST + place * ENTRY, 0);
                writer.store(COUNTS, writer.table.load(COUNTS) - 1);
            });
        }
        self.store(SWEPT, now_us);
    }

    /// Counts a packet that was refused; no entry changes.
    pub fn count_refused(&mut self) {
        self.write(|writer| {
            writer.store(COUNTS, writer.table.load(COUNTS).wrapping_add(1 << 32));
        });
    }

    /// For the writer's own look at it, or for another reader.
    pub fn reader(&self) -> Reader<'_> {
        Reader { table: self.table }
    }

    fn place_for(&self, address: Ipv4Addr) -> Option<usize> {
        let places = 0..self.table.places();
        let key = |place: &usize| match self.table.entry(*place) {
            Some(entry) if entry.address == address => (0, 0),
            None => (1, 0),
            Some(entry) => (2, entry.confirmed_us),
        };
        places.min_by_key(key)
    }

    fn write(&mut self, change: impl FnOnce(&Self)) {
        if let Some(word) = self.table.words.get(SEQUENCE) {
            sequence::write(word, || change(self));
        }
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.table.words.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Reader<'_> {
    /// The entry of `address`; `None` if there is none, or if the writer never comes to an end.
    pub fn get(&self, address: Ipv4Addr) -> Option<Entry> {
        self.consistent(|table| {
            (0..table.places())
                .filter_map(|place| table.entry(place))
                .find(|entry| entry.address == address)
        })?
    }

    /// The `n`-th place, for listings.
    pub fn place(&self, n: usize) -> Option<Entry> {
        self.consistent(|table| (n < table.places()).then(|| table.entry(n))?)?
    }

    /// Places there are.
    pub fn places(&self) -> usize {
        self.table.places()
    }

    /// How old the table is and how full.
    pub fn age(&self) -> Age {
        let counts = self.table.load(COUNTS);
        Age {
            sequence: self.table.load(SEQUENCE),
            entries: counts as u32,
            refused: (counts >> 32) as u32,
        }
    }

    fn consistent<T>(&self, read: impl Fn(&Table) -> T) -> Option<T> {
        sequence::read(self.table.words.get(SEQUENCE)?, ATTEMPTS, || read(&self.table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn page(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    fn station(n: u32) -> (Ipv4Addr, Mac) {
        let [a, b, c, d] = n.to_be_bytes();
        (Ipv4Addr::from_bits(0x0a00_0000 | n), Mac([2, 0, a, b, c, d]))
    }

    #[test]
    fn readers_see_what_was_written() {
        let words = page(512);
        assert!(Table::over(&words).open().is_none());
        let mut writer = Table::over(&words).create();
        let reader = Table::over(&words).open().unwrap();
        let before = reader.age();
        assert_eq!((before.entries, before.refused), (0, 0));
        let (address, mac) = station(1);
        assert_eq!(reader.get(address), None);
        writer.set(address, mac, 5);
        writer.set(address, mac, 7);
        assert_eq!(reader.get(address), Some(Entry { address, mac, confirmed_us: 7 }));
        assert_ne!(reader.age().sequence, before.sequence);
        assert_eq!(reader.age().entries, 1);
        writer.count_refused();
        assert_eq!((reader.age().entries, reader.age().refused), (1, 1));
    }

    #[test]
    fn the_oldest_gives_way_and_old_ones_expire() {
        let words = page(FIRST + 4 * ENTRY + 1);
        let mut writer = Table::over(&words).create();
        for n in 0..5 {
            let (address, mac) = station(n);
            writer.set(address, mac, u64::from(100 + n));
        }
        assert_eq!(writer.get(station(0).0), None);
        assert_eq!(writer.get(station(4).0).unwrap().mac, station(4).1);
        assert_eq!(writer.reader().age().entries, 4);
        writer.sweep(EXPIRY_US + 102);
        assert_eq!(writer.get(station(2).0), None);
        assert!(writer.get(station(3).0).is_some());
        assert_eq!(writer.reader().age().entries, 2);
    }

    #[test]
    fn an_interrupted_write_is_never_read() {
        let words = page(64);
        let mut writer = Table::over(&words).create();
        writer.set(station(1).0, station(1).1, 0);
        let reader = Table::over(&words).open().unwrap();
        words[SEQUENCE].fetch_add(1, Ordering::Relaxed);
        assert_eq!(reader.get(station(1).0), None);
        assert_eq!(reader.place(0), None);
    }

    #[test]
    fn concurrent_readers_never_see_halves() {
        let words = page(64);
        let mut writer = Table::over(&words).create();
        // The reader must have something to see even if it has a processor to itself.
        writer.set(station(1).0, station(1).1, 1);
        std::thread::scope(|scope| {
            let reader = Table::over(&words).open().unwrap();
            let seen = scope.spawn(move || {
                let mut seen = 0;
                for _ in 0..20_000 {
                    for place in 0..2 {
                        let Some(entry) = reader.place(place) else { continue };
                        let n = entry.address.to_bits() & 0x00ff_ffff;
                        assert_eq!((entry.address, entry.mac), station(n));
                        assert_eq!(entry.confirmed_us, u64::from(n));
                        seen += 1;
                    }
                }
                seen
            });
            let mut n = 0;
            while !seen.is_finished() {
                n = (n + 1) % 1_000_000;
                writer.set(station(n).0, station(n).1, u64::from(n));
            }
            assert!(seen.join().unwrap() > 0);
        });
    }
}
