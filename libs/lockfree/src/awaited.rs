//! A lock for which one may sleep: who has it, and a bit for each who sleeps for it.
//!
//! ```text
//!  owner     0 free, else the owner's name, and whether somebody sleeps for it
//!  sleepers  a bit for each who might
//! ```
//! Who sleeps says so first and then looks whether the lock is taken still; who gives it back looks
//! then who sleeps. One is woken at a time, and makes sure of the others when it takes the lock.

use abi::atomic::{Atomic, Ordering};

/// Somebody sleeps for the lock.
const AWAITED: u64 = 1 << 32;
/// The owner in the lock's word.
const NAME: u64 = AWAITED - 1;

/// A lock with 64 times `WORDS` who might sleep for it.
#[derive(Debug)]
pub struct Awaited<W, const WORDS: usize> {
    owner: W,
    sleepers: [W; WORDS],
}

impl<W, const WORDS: usize> Awaited<W, WORDS> {
    /// One that is free, of words that are 0.
    pub const fn new(owner: W, sleepers: [W; WORDS]) -> Self {
        Self { owner, sleepers }
    }
}

impl<W: Atomic<Value = u64>, const WORDS: usize> Awaited<W, WORDS> {
    /// Has this one it?
    #[inline(always)]
    pub fn is_of(&self, own: u64) -> bool {
        self.owner.load(Ordering::Relaxed) & NAME == own
    }

    /// Makes this one its owner, while there is nobody else, or nobody: 0.
    pub fn set(&self, own: u64) {
        self.owner.store(own, Ordering::Relaxed);
    }

    /// Nobody sleeps, while there is nobody else.
    pub fn forget_sleepers(&self) {
        self.sleepers.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Who has it now; 0: nobody.
    pub fn owner(&self) -> u64 {
        self.owner.load(Ordering::SeqCst) & NAME
    }

    /// Takes it if it is free and nobody sleeps for it.
    #[inline(always)]
    pub fn try_take(&self, own: u64) -> bool {
        self.owner.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives it back; must one who sleeps be woken?
    #[inline(always)]
    pub fn give_back(&self) -> bool {
        self.owner.swap(0, Ordering::AcqRel) & AWAITED != 0
    }

    /// One who sleeps, who is to be woken, and is not found again until it sleeps anew.
    pub fn next(&self) -> Option<usize> {
        let asleep = |(_, word): &(usize, &W)| word.load(Ordering::SeqCst) != 0;
        let (at, word) = self.sleepers.iter().enumerate().find(asleep)?;
        let place = word.load(Ordering::SeqCst).trailing_zeros();
        word.fetch_and(!1_u64.checked_shl(place)?, Ordering::SeqCst);
        Some(at * 64 + place as usize)
    }

    /// Takes it, as the `number`th of those who might sleep: looks so many times, then calls
    /// `sleep`, which is told the owner and returns when it was woken, or at any time.
    pub fn contend(&self, own: u64, number: usize, looks: usize, mut sleep: impl FnMut(u64)) {
        let Some(sleepers) = self.sleepers.get(number / 64) else { return };
        let mask = 1 << (number % 64);
        loop {
            for _ in 0..looks {
                if self.owner.load(Ordering::Relaxed) == 0 && self.take(own) {
                    return;
                }
                W::pause();
            }
            sleepers.fetch_or(mask, Ordering::SeqCst);
            let seen = self.owner.fetch_or(AWAITED, Ordering::SeqCst);
            if seen & NAME == 0 {
                // It has just become free; the flag that we left there is nobody's.
                let (free, taken) = (seen | AWAITED, own | AWAITED);
                let swapped =
                    self.owner.compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed);
                sleepers.fetch_and(!mask, Ordering::SeqCst);
                if swapped.is_ok() {
                    return;
                }
                continue;
            }
            sleep(seen & NAME);
            sleepers.fetch_and(!mask, Ordering::SeqCst);
        }
    }

    /// Takes the lock, awaited by those who still sleep for it.
    fn take(&self, own: u64) -> bool {
        let others = self.sleepers.iter().any(|word| word.load(Ordering::SeqCst) != 0);
        let taken = if others { own | AWAITED } else { own };
        self.owner.compare_exchange(0, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}
