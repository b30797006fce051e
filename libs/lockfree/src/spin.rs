//! A spin lock's word: one at a time has it, and a waiting processor may serve others meanwhile.
//!
//! A processor that waits says so in a second word. A processor that had the lock for long looks at
//! that when it has given the lock back, and lets a waiting one take it before it goes on: a
//! program that makes long calls in a row has the lock again before the others else. It waits only
//! as long as the other one looks for the lock: a virtual machine's processor may stand still for
//! long. Short holds pay nothing for it.

use abi::atomic::{Atomic, Ordering};

/// No processor has it.
const FREE: u8 = 0;
/// A processor has it.
const TAKEN: u8 = 1;
/// How often a processor looks whether a waiting one has taken the lock.
const PATIENCE: u32 = 64;

/// Whether it is taken, and whether a processor waits for it.
#[derive(Debug)]
pub struct Spin<W> {
    taken: W,
    awaited: W,
}

impl<W> Spin<W> {
    /// One that is free, of words that are 0.
    pub const fn new(taken: W, awaited: W) -> Self {
        Self { taken, awaited }
    }
}

impl<W: Atomic<Value = u8>> Spin<W> {
    /// Takes it if it is free.
    #[inline(always)]
    pub fn try_take(&self) -> bool {
        self.taken.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it if it becomes free while one looks so many times.
    #[inline(always)]
    pub fn look_for(&self, looks: u32) -> bool {
        (0..looks).any(|_| {
            W::pause();
            self.taken.load(Ordering::Relaxed) != TAKEN && self.try_take()
        })
    }

    /// Waits until it is free and takes it; calls `serve` meanwhile.
    #[inline(always)]
    pub fn wait(&self, serve: impl Fn()) {
        while !self.try_take() {
            while self.taken.load(Ordering::Relaxed) == TAKEN {
                // Another one that has waited may have taken it back.
                if self.awaited.load(Ordering::Relaxed) == 0 {
                    self.awaited.store(1, Ordering::Relaxed);
                }
                serve();
                W::pause();
            }
        }
        self.awaited.store(0, Ordering::Relaxed);
    }

    /// Gives it back: of the processor that has it.
    #[inline(always)]
    pub fn give_back(&self) {
        self.taken.store(FREE, Ordering::Release);
    }

    /// Lets a waiting processor take it, if there is one that looks for it: of a processor that had
    /// it for long and has given it back.
    pub fn let_others_first(&self) {
        for _ in 0..PATIENCE {
            let awaited = self.awaited.load(Ordering::Relaxed) != 0;
            if !awaited || self.taken.load(Ordering::Relaxed) == TAKEN {
                return;
            }
            W::pause();
        }
    }
}
