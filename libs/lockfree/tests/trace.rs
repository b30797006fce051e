//! Every order in which a trace ring's writer and a reader can meet, by loom.
//!
//! Records are whole, in order, and lost only if they have been overwritten.

use abi::trace::{self, Event, Kind, Read, Reader, WORDS, Word};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

/// A word of loom's.
struct Tried(AtomicU64);

impl Tried {
    fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Word for Tried {
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn publish(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn acquire() {
        fence(Ordering::Acquire);
    }

    fn release() {
        fence(Ordering::Release);
    }
}

/// A ring of so many records.
struct Ring {
    next: Tried,
    records: Vec<[Tried; WORDS]>,
}

/// What is recorded under a number: every word tells it.
fn told(number: u64) -> (u64, Event) {
    let kind = Kind::ALL[number as usize];
    let event = Event { kind, detail: number as u16, env: number as u32 + 1, argument: !number };
    (number + 100, event)
}

impl Ring {
    fn new(records: usize) -> Self {
        let records = (0..records).map(|_| std::array::from_fn(|_| Tried::zero())).collect();
        Self { next: Tried::zero(), records }
    }

    fn write(&self, number: u64) {
        let (tsc, event) = told(number);
        let record = &self.records[number as usize % self.records.len()];
        trace::write(&self.next, record, number, tsc, &event);
    }

    /// Reads once: a record is whole, and the one that comes next. How many were seen, and lost?
    fn read(&self, reader: &mut Reader) -> Option<(u64, u64)> {
        let before = reader.position();
        let mut word = |place: u64, at: usize| self.records[place as usize][at].load();
        let mut next = || self.next.load();
        match reader.read_in::<Tried>(self.records.len() as u64, &mut word, &mut next) {
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
fn try_all(switches: usize, records: usize, all: u64, looks: u32, lost: fn(u64)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(move || {
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
    try_all(3, 1, 2, 2, |_| {});
    try_all(2, 2, 4, 2, |_| {});
}

#[test]
fn what_fits_is_not_lost() {
    try_all(3, 2, 2, 2, |lost| assert_eq!(lost, 0));
}
