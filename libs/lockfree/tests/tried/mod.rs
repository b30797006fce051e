//! Loom's words in the place of the processors', and how much of what there is gets tried.

use abi::atomic::Atomic;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// A word of loom's.
pub struct Tried<A>(pub A);

macro_rules! words {
    ($($word:ty, $value:ty, $store:expr;)+) => {$(
        impl Default for Tried<$word> {
            fn default() -> Self {
                Self(<$word>::new(0))
            }
        }

        impl Atomic for Tried<$word> {
            type Value = $value;

            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            fn store(&self, value: $value, order: Ordering) {
                $store(&self.0, value, order);
            }

            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }

            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, order)
            }

            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, order)
            }

            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, order)
            }

            fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_max(value, order)
            }

            fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                otherwise: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(from, to, done, otherwise)
            }

            fn fence(order: Ordering) {
                fence(order);
            }

            fn pause() {
                loom::thread::yield_now();
            }
        }
    )+};
}

words! {
    AtomicU8, u8, AtomicU8::store;
    // Loom lets another's store fall between what a step like `fetch_or` has read and what it
    // stores, which no machine does: where both happen to a word, a store is such a step here, too.
    AtomicU32, u32, AtomicU32::swap;
    AtomicU64, u64, AtomicU64::store;
}

/// Tries every way in which threads meet with so many switches that none of them asked for.
pub fn try_all(switches: usize, parties: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.location = true;
    model.check(parties);
}
