//! What code that shares words without a lock asks of a word: the processor's, or a checker's.
//!
//! Such code is generic over it, with each [`Ordering`] in its own text. So what the kernel and
//! the libraries run is, line by line, what is tried in all orders (`libs/lockfree/tests`), and an
//! order that is too weak for it is found there.

pub use core::sync::atomic::Ordering;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

/// A word that others change; as the methods of those names of [`AtomicU64`].
#[expect(missing_docs, reason = "the standard library's")]
pub trait Atomic {
    type Value: Copy + Eq;
    fn load(&self, order: Ordering) -> Self::Value;
    fn store(&self, value: Self::Value, order: Ordering);
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;
    fn fetch_max(&self, value: Self::Value, order: Ordering) -> Self::Value;
    fn compare_exchange(
        &self,
        from: Self::Value,
        to: Self::Value,
        done: Ordering,
        otherwise: Ordering,
    ) -> Result<Self::Value, Self::Value>;
    fn fence(order: Ordering);
    /// Whoever is waited for may go on.
    fn pause();
}

macro_rules! words {
    ($($word:ty, $value:ty;)+) => {$(
        impl Atomic for $word {
            type Value = $value;

            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }

            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }

            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }

            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }

            #[inline(always)]
            fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.fetch_max(value, order)
            }

            #[inline(always)]
            fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                otherwise: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, done, otherwise)
            }

            #[inline(always)]
            fn fence(order: Ordering) {
                fence(order);
            }

            #[inline(always)]
            fn pause() {
                core::hint::spin_loop();
            }
        }
    )+};
}

words! {
    AtomicU8, u8;
    AtomicU32, u32;
    AtomicU64, u64;
}
