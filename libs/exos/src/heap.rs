//! ExOS's heap: one free list over a range whose pages come on first touch.
//!
//! A fork child gets an eager copy of every page present, so the heap is kept small and dense. The
//! fault handler makes pages without allocating (`memory::own_fault`), so a fault inside the
//! allocator is harmless.
//!
//! # Safety
//! The range `HEAP..HEAP_END` is used by this allocator alone. One thread of a space is in ExOS at
//! a time (`crate::lock`), and handlers nested inside an allocation do not allocate; entering twice
//! panics.
#![allow(unsafe_code)]

use crate::layout::{HEAP, HEAP_END};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU8, Ordering};
use linked_list_allocator::Heap;

/// The allocator; the program half declares it `#[global_allocator]`.
pub struct OnTouch {
    state: AtomicU8,
    heap: UnsafeCell<MaybeUninit<Heap>>,
}

const UNUSED: u8 = 0;
const FREE: u8 = 1;
const BUSY: u8 = 2;

// SAFETY: `state` admits one at a time.
unsafe impl Sync for OnTouch {}

impl Default for OnTouch {
    fn default() -> Self {
        Self::new()
    }
}

impl OnTouch {
    /// All zeros, as the variables of ExOS must be.
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(UNUSED), heap: UnsafeCell::new(MaybeUninit::zeroed()) }
    }

    fn with<T>(&self, run: impl FnOnce(&mut Heap) -> T) -> T {
        let before = self.state.swap(BUSY, Ordering::Acquire);
        assert!(before != BUSY, "the heap was entered twice");
        // SAFETY: `state` says that nobody else is here; an unused heap is made first.
        let heap = unsafe { &mut *self.heap.get() };
        if before == UNUSED {
            let mut fresh = Heap::empty();
            // SAFETY: the range is ours alone and its pages come on touch.
            unsafe { fresh.init(HEAP as *mut u8, (HEAP_END - HEAP) as usize) };
            heap.write(fresh);
        }
        // SAFETY: written at first use.
        let answer = run(unsafe { heap.assume_init_mut() });
        self.state.store(FREE, Ordering::Release);
        answer
    }
}

// SAFETY: hands out disjoint parts of a range that stays usable.
unsafe impl GlobalAlloc for OnTouch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.with(|heap| heap.allocate_first_fit(layout)).map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let Some(place) = NonNull::new(place) else { return };
        // SAFETY: the caller gives back what `alloc` gave out with this layout.
        self.with(|heap| unsafe { heap.deallocate(place, layout) });
    }
}
