//! Every order in which a trace ring's writer and a reader can meet, by loom.
//!
//! Records are whole, in order, and lost only if they have been overwritten.

mod tried;

use abi::atomic::{Atomic, Ordering};
use abi::trace::{self, Event, Kind, Read, Reader, WORDS};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use tried::{Tried, try_all};

type Word = Tried<AtomicU64>;

/// A ring of so many records.
struct Ring {
    next: Word,
    records: Vec<[Word; WORDS]>,
}

/// What is recorded under a number: every word tells it.
fn told(number: u64) -> (u64, Event) {
    let kind = Kind::ALL[number as usize];
    let event = Event { kind, detail: number as u16, env: number as u32 + 1, argument: !number };
    (number + 100, event)
}

impl Ring {
    fn new(records: usize) -> Self {
        let records = (0..records).map(|_| std::array::from_fn(|_| Word::default())).collect();
        Self { next: Word::default(), records }
    }

    fn write(&self, number: u64) {
        let (tsc, event) = told(number);
        let record = &self.records[number as usize % self.records.len()];
        trace::write(&self.next, record, number, tsc, &event);
    }

    /// Reads once: a record is whole, and the one that comes next. How many were seen, and lost?
    fn read(&self, reader: &mut Reader) -> Option<(u64, u64)> {
        let before = reader.position();
        let mut word =
            |place: u64, at: usize| self.records[place as usize][at].load(Ordering::Relaxed);
        let mut next = || self.next.load(Ordering::Relaxed);
        match reader.read_in::<Word>(self.records.len() as u64, &mut word, &mut next) {
            Read::Record(number, tsc, event) => {
                assert_eq!((number, (tsc, event)), (before, told(before)), "torn");
                Some((1, 0))
            }
            Read::Lost(count) => {
                assert!(count > 0 && reader.position() == before + count);
                Some((0, count))
            }
            Read::End => None,
        }
    }
}

/// Writes so many records while somebody reads so often; the rest is read at the end. `lost` is
/// told how many were.
fn meet(switches: usize, records: usize, all: u64, looks: u32, lost: fn(u64)) {
    try_all(switches, move || {
        let ring = Arc::new(Ring::new(records));
        let other = ring.clone();
        let writer = thread::spawn(move || (0..all).for_each(|number| other.write(number)));
        let (mut reader, mut counts) = (Reader::default(), (0, 0));
        let mut count = |(seen, lost)| counts = (counts.0 + seen, counts.1 + lost);
        for _ in 0..looks {
            ring.read(&mut reader).map(&mut count);
        }
        writer.join().expect("the writer");
        while let Some(some) = ring.read(&mut reader) {
            count(some);
        }
        assert_eq!(counts.0 + counts.1, all);
        lost(counts.1);
    });
}

#[test]
fn a_record_is_whole_or_lost() {
    meet(3, 1, 2, 2, |_| {});
    meet(2, 2, 4, 2, |_| {});
}

#[test]
fn what_fits_is_not_lost() {
    meet(3, 2, 2, 2, |lost| assert_eq!(lost, 0));
}
