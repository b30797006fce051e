//! Reading the trace: records of each processor from the published pages, no call.

use abi::published::Table;
use abi::trace::{Read, Reader, TraceRing};

use crate::published;

/// The head of a processor's ring, if there is one.
pub fn ring(cpu: usize) -> Option<TraceRing> {
    published::record::<TraceRing>(Table::Traces, cpu).filter(|ring| ring.records != 0)
}

/// A processor's ring, and how far it has been read.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    cpu: usize,
    records: u64,
    reader: Reader,
}

impl Follower {
    /// Follows a processor's ring from its oldest record on.
    pub fn oldest(cpu: usize) -> Option<Self> {
        let ring = ring(cpu)?;
        let oldest = ring.next.saturating_sub(ring.records);
        Some(Self { cpu, records: ring.records, reader: Reader::from(oldest) })
    }

    /// Follows it from the next record that will be written.
    pub fn newest(cpu: usize) -> Option<Self> {
        let ring = ring(cpu)?;
        Some(Self { cpu, records: ring.records, reader: Reader::from(ring.next) })
    }

    /// Which processor's.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Number of the record read next.
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The next record, if one is there.
    pub fn read(&mut self) -> Read {
        let first = self.cpu as u64 * self.records;
        let base = published::record_address(Table::TraceRecords, 0);
        let stride = u64::from(published::table(Table::TraceRecords).stride);
        let word = |place: u64, at: usize| {
            published::word_at(base + (first + place) * stride + 8 * at as u64)
        };
        self.reader.read(self.records, word, || ring(self.cpu).map_or(0, |ring| ring.next))
    }
}
