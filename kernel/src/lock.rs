//! The spin lock. Interrupts are off wherever it is taken; who waits serves its own mailbox.
//!
//! # Safety
//! A `Guard` is made only by the one who exchanged `false` for `true`, so the inner reference is
//! unique until the guard stores `false`.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// A value that one processor uses at a time.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves between processors, one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value while it is ours.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes it if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free =
            self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not `then_some`: a guard that is made is dropped, and gives back what another one holds.
        free.then(|| Guard(self))
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
        while self
            .taken
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.taken.load(Ordering::Relaxed) {
                serve();
                core::hint::spin_loop();
            }
        }
        Guard(self)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: see the file's head.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: see the file's head.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
