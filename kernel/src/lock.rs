//! The spin lock. Interrupts are off wherever it is taken; who waits serves its own mailbox.
//!
//! # Safety
//! A `Guard` is made only by the one who exchanged `TAKEN` for something else, so the inner
//! reference is unique until the guard stores that. Entry code takes the lock by its lowest bit;
//! what it changes meanwhile it changes by assembly: gates, and what is the processor's own.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, Ordering};

/// Nobody has it.
const FREE: u8 = 0;
/// Somebody has.
const TAKEN: u8 = 1;
/// Nobody has it, but entry code, which looks at the lowest bit only, is not to take it.
const SHUT: u8 = 3;

/// A value that one processor uses at a time.
#[repr(C, align(4))]
pub struct Lock<T> {
    pub(crate) taken: AtomicU8,
    /// Entry code has had it since this was asked.
    by_entry: AtomicU8,
    value: UnsafeCell<T>,
}

/// What entry code gives the lock back with: the first two bytes.
pub const FREE_BY_ENTRY: u16 = (FREE as u16) | 1 << 8;

// SAFETY: the value moves between processors, one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value while it is ours.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// What the lock is left as.
    leave: u8,
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self {
            taken: AtomicU8::new(FREE),
            by_entry: AtomicU8::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let take = |from: u8| {
            self.taken.compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        // Not `then_some`: a guard that is made is dropped, and gives back what another one holds.
        (take(FREE) || take(SHUT)).then(|| Guard { lock: self, leave: FREE })
    }

    /// Waits until it is free and takes it.
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock_serving(|| {})
    }

    /// As `lock`; `serve` is called while waiting, so that others who wait for us go on.
    #[inline(always)]
    pub fn lock_serving(&self, serve: impl Fn()) -> Guard<'_, T> {
        if let Some(guard) = self.try_lock() { guard } else { self.wait(serve) }
    }

    #[cold]
    fn wait(&self, serve: impl Fn()) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            while self.taken.load(Ordering::Relaxed) == TAKEN {
                serve();
                core::hint::spin_loop();
            }
        }
    }
}

impl<T> Guard<'_, T> {
    /// Has entry code had the lock since this was asked?
    #[inline(always)]
    pub fn was_entrys(&self) -> bool {
        self.lock.by_entry.load(Ordering::Relaxed) != 0 && self.forget_entrys()
    }

    #[cold]
    fn forget_entrys(&self) -> bool {
        self.lock.by_entry.store(0, Ordering::Relaxed);
        true
    }

    /// May entry code take the lock when it is given back?
    #[inline(always)]
    pub fn leave_to_entry(&mut self, may: bool) {
        self.leave = if may { FREE } else { SHUT };
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: see the file's head.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: see the file's head.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.taken.store(self.leave, Ordering::Release);
    }
}
