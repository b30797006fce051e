//! Every order in which one who changes words under a sequence word and its readers can meet.
//!
//! What is read is whole, and not older than what was read before.

mod tried;

use abi::atomic::{Atomic, Ordering};
use lockfree::sequence;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use tried::{Tried, try_all};

type Word = Tried<AtomicU64>;

/// Two words of which each tells the other.
#[derive(Default)]
struct Table {
    magic: Word,
    sequence: Word,
    words: [Word; 2],
}

impl Table {
    fn set(&self, value: u64) {
        sequence::write(&self.sequence, || {
            self.words[0].store(value, Ordering::Relaxed);
            self.words[1].store(!value, Ordering::Relaxed);
        });
    }

    fn read(&self, attempts: usize) -> Option<u64> {
        let (value, other) = sequence::read(&self.sequence, attempts, || {
            let [one, other] = &self.words;
            (one.load(Ordering::Relaxed), other.load(Ordering::Relaxed))
        })?;
        assert_eq!(other, !value, "torn");
        Some(value)
    }
}

/// One makes the table and changes it so often, while another reads it so often.
fn meet(switches: usize, changes: u64, looks: u64) {
    try_all(switches, move || {
        let table = Arc::new(Table::default());
        let there = table.clone();
        let writer = thread::spawn(move || {
            there.set(1);
            there.magic.store(1, Ordering::Release);
            (2..2 + changes).for_each(|value| there.set(value));
        });
        let mut last = 1;
        for _ in 0..looks {
            if table.magic.load(Ordering::Acquire) == 0 {
                continue;
            }
            if let Some(value) = table.read(1) {
                assert!(value >= last, "older");
                last = value;
            }
        }
        writer.join().expect("the writer");
        assert_eq!(table.read(1), Some(1 + changes));
    });
}

#[test]
fn what_is_read_is_whole() {
    meet(3, 2, 2);
}

/// Who dies in the middle, and who takes it up after him.
#[test]
fn what_is_half_written_is_not_read() {
    try_all(3, || {
        let table = Table::default();
        table.set(1);
        sequence::write(&table.sequence, || {
            table.words[0].store(7, Ordering::Relaxed);
            assert_eq!(table.read(2), None);
        });
        table.sequence.fetch_or(1, Ordering::Relaxed);
        assert_eq!(table.read(2), None);
        table.set(2);
        assert_eq!(table.read(1), Some(2));
    });
}
