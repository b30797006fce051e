//! The spin lock. Interrupts are off wherever it is taken; who waits serves its own mailbox.
//!
//! # Safety
//! A `Guard` is made only by the one who has taken the word (`lockfree::spin`), so the inner
//! reference is unique until the guard gives that back. What entry code changes by assembly, gates
//! and what is the processor's own, it changes with its processor's half (`half`).
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicU8;

use lockfree::spin::Spin;

/// A value that one processor uses at a time.
pub struct Lock<T> {
    taken: Spin<AtomicU8>,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves between processors, one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value while it is ours.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { taken: Spin::new(AtomicU8::new(0), AtomicU8::new(0)), value: UnsafeCell::new(value) }
    }

    /// Takes it if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Not `then_some`: a guard that is made is dropped, and gives back what another one holds.
        self.taken.try_take().then(|| Guard { lock: self })
    }

    /// Takes it if it is free, or becomes free while one looks so many times.
    #[inline(always)]
    pub fn try_lock_for(&self, looks: u32) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| self.look_for(looks))
    }

    #[cold]
    fn look_for(&self, looks: u32) -> Option<Guard<'_, T>> {
        self.taken.look_for(looks).then(|| Guard { lock: self })
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

    /// Lets a waiting processor take it, of one that had it for long.
    #[cold]
    #[inline(never)]
    pub fn let_others_first(&self) {
        self.taken.let_others_first();
    }

    #[cold]
    fn wait(&self, serve: impl Fn()) -> Guard<'_, T> {
        self.taken.wait(serve);
        Guard { lock: self }
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
        self.lock.taken.give_back();
    }
}
