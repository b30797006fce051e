//! A spin lock's word: one at a time has it, and who waits may serve others meanwhile.

use abi::atomic::{Atomic, Ordering};

/// Nobody has it.
const FREE: u8 = 0;
/// Somebody has.
const TAKEN: u8 = 1;

/// Whether it is taken.
#[derive(Debug)]
pub struct Spin<W>(W);

impl<W> Spin<W> {
    /// One that is free, of a word that is 0.
    pub const fn new(free: W) -> Self {
        Self(free)
    }
}

impl<W: Atomic<Value = u8>> Spin<W> {
    /// Takes it if it is free.
    #[inline(always)]
    pub fn try_take(&self) -> bool {
        self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it if it becomes free while one looks so many times.
    #[inline(always)]
    pub fn look_for(&self, looks: u32) -> bool {
        (0..looks).any(|_| {
            W::pause();
            self.0.load(Ordering::Relaxed) != TAKEN && self.try_take()
        })
    }

    /// Waits until it is free and takes it; calls `serve` meanwhile.
    #[inline(always)]
    pub fn wait(&self, serve: impl Fn()) {
        while !self.try_take() {
            while self.0.load(Ordering::Relaxed) == TAKEN {
                serve();
                W::pause();
            }
        }
    }

    /// Gives it back: of who has it.
    #[inline(always)]
    pub fn give_back(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}
