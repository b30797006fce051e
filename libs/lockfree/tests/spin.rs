//! Every order in which two processors can take the kernel's lock: one that waits goes first.

mod tried;

use abi::atomic::{Atomic, Ordering};
use lockfree::spin::Spin;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32};
use loom::thread;
use tried::{Tried, try_all};

/// Looks after which a processor has waited for long: more than the lock's patience.
const LOOKS: u32 = 80;

struct Shared {
    lock: Spin<Tried<AtomicU8>>,
    /// How often the one that takes it once has looked in vain.
    looks: Tried<AtomicU32>,
    /// Has it had the lock?
    had: Cell<bool>,
}

impl Shared {
    fn with<R>(&self, serve: impl Fn(), run: impl FnOnce() -> R) -> R {
        if !self.lock.try_take() {
            self.lock.wait(serve);
        }
        let result = run();
        self.lock.give_back();
        result
    }
}

/// A processor that had the lock for long does not take it again before one that has waited for it
/// and looks for it still.
#[test]
fn one_that_waits_is_not_overtaken() {
    try_all(1, || {
        let shared = Arc::new(Shared {
            lock: Spin::new(Tried::default(), Tried::default()),
            looks: Tried::default(),
            had: Cell::new(false),
        });
        let once = shared.clone();
        let other = thread::spawn(move || {
            let serve = || _ = once.looks.fetch_add(1, Ordering::AcqRel);
            once.with(serve, || once.had.set(true));
        });
        let waits = || shared.looks.load(Ordering::Acquire) >= LOOKS;
        let waited = shared.with(
            || {},
            || {
                (0..2 * LOOKS).any(|_| {
                    Tried::<AtomicU8>::pause();
                    waits()
                })
            },
        );
        shared.lock.let_others_first();
        let had = shared.with(|| {}, || shared.had.get());
        assert!(had || !waited, "it has waited and is overtaken");
        other.join().unwrap();
    });
}

/// Two that take it again and again: each has it alone, and none waits for ever.
#[test]
fn each_has_its_turn() {
    try_all(3, || {
        let lock = Arc::new(Spin::new(Tried::<AtomicU8>::default(), Tried::default()));
        let value = Arc::new(Cell::new(0));
        let take_twice = |lock: &Spin<Tried<AtomicU8>>, value: &Cell<u32>| {
            for _ in 0..2 {
                if !lock.try_take() {
                    lock.wait(|| {});
                }
                // Loom complains if another one has it, too.
                value.set(value.get() + 1);
                lock.give_back();
            }
        };
        let theirs = (lock.clone(), value.clone());
        let other = thread::spawn(move || take_twice(&theirs.0, &theirs.1));
        take_twice(&lock, &value);
        other.join().unwrap();
        assert_eq!(value.get(), 4);
    });
}
