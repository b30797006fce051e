//! Every order in which the kernel's counters meet somebody who reads them.
//!
//! A counter is seen late, but whole, and never less than it was seen before.

mod tried;

use abi::atomic::{Atomic, Ordering};
use abi::published::{count, raise};
use lockfree::spin::Spin;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64};
use loom::thread;
use tried::{Tried, try_all};

type Word = Tried<AtomicU64>;

#[derive(Default)]
struct Counters {
    /// Counted by whoever has the kernel's lock: what entry code did is, by any processor.
    made: Word,
    /// Counted by one processor alone.
    ticks: Word,
    longest: Word,
}

#[test]
fn counters_only_go_up() {
    try_all(3, || {
        let (lock, counters) = (
            Arc::new(Spin::new(Tried::<AtomicU8>::default(), Tried::default())),
            Arc::new(Counters::default()),
        );
        let processors = [0, 1].map(|cpu| {
            let (lock, counters) = (lock.clone(), counters.clone());
            thread::spawn(move || {
                if !lock.try_take() {
                    lock.wait(|| ());
                }
                count(&counters.made, 1 + cpu);
                lock.give_back();
                if cpu == 0 {
                    for ticks in [3, 2] {
                        count(&counters.ticks, ticks);
                        raise(&counters.longest, ticks);
                    }
                }
            })
        });
        let mut before = [0; 3];
        let mut look = || {
            let words = [&counters.made, &counters.ticks, &counters.longest];
            let now = words.map(|word| word.load(Ordering::Relaxed));
            assert!(now.iter().zip(before).all(|(now, before)| *now >= before), "{now:?}");
            before = now;
            now
        };
        look();
        look();
        processors.into_iter().for_each(|processor| processor.join().expect("a processor"));
        assert_eq!(look(), [3, 5, 3]);
    });
}
