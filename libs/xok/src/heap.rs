//! A heap for native programs: a free list over pages mapped as it grows.
//!
//! # Safety
//! The allocator hands out memory between `BASE` and its current end, which only this file maps.
//! A native program has one environment and takes no upcall that allocates while it
//! allocates (handlers run with the heap free or do not use it; where there are `threads`, critical
//! sections see to that), so the cell is never entered twice; entering it twice panics.
#![allow(unsafe_code)]

use crate::critical::Critical;
use crate::memory::{DATA, Space};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::RefCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use linked_list_allocator::Heap;

/// Where the heap begins, in the lower half.
pub const BASE: u64 = 0x0000_1000_0000_0000;
/// Pages mapped at a time, at least.
const STEP: u64 = 16;
/// Bytes at the start that live in the program's image, so that mapping can allocate.
const FIRST: usize = 64 * 1024;

#[repr(C, align(4096))]
struct First(core::cell::UnsafeCell<[u8; FIRST]>);

// SAFETY: only the allocator, which is entered by one environment at a time, uses it.
unsafe impl Sync for First {}
static FIRST_BYTES: First = First(core::cell::UnsafeCell::new([0; FIRST]));

/// Upcalls may leave to a thread that allocates.
static IN_SECTIONS: AtomicBool = AtomicBool::new(false);

/// From now on no upcall comes while memory is allocated or given back.
pub fn share_by_sections() {
    IN_SECTIONS.store(true, Ordering::Relaxed);
}

fn section() -> Option<Critical> {
    IN_SECTIONS.load(Ordering::Relaxed).then(Critical::enter)
}

/// The allocator; a program declares it `#[global_allocator]`.
pub struct Growing {
    heap: RefCell<Heap>,
    more: RefCell<Heap>,
    end: core::cell::Cell<u64>,
    growing: core::cell::Cell<bool>,
}

// SAFETY: one environment a domain (head of the file).
unsafe impl Sync for Growing {}

impl Default for Growing {
    fn default() -> Self {
        Self::new()
    }
}

impl Growing {
    /// An empty heap.
    pub const fn new() -> Self {
        Self {
            heap: RefCell::new(Heap::empty()),
            more: RefCell::new(Heap::empty()),
            end: core::cell::Cell::new(BASE),
            growing: core::cell::Cell::new(false),
        }
    }

    fn first(&self, layout: Layout) -> Option<NonNull<u8>> {
        let mut heap = self.heap.borrow_mut();
        if heap.size() == 0 {
            // SAFETY: the static's bytes are used by this heap alone, for ever.
            unsafe { heap.init(FIRST_BYTES.0.get().cast(), FIRST) };
        }
        // The last part is kept for the page-table code that `grow` runs.
        if !self.growing.get() && heap.free() < RESERVE {
            return None;
        }
        heap.allocate_first_fit(layout).ok()
    }

    /// Maps enough pages for `layout` behind the end.
    fn grow(&self, layout: Layout) -> Option<()> {
        let bytes = (layout.size() + layout.align() + 64) as u64;
        let pages = bytes.div_ceil(4096).max(STEP);
        let at = self.end.get();
        // The page-table code below allocates a little: from the first part, which is kept for it.
        self.growing.set(true);
        let mapped = Space::own().allocate(at, pages, DATA);
        self.growing.set(false);
        mapped.ok()?;
        self.end.set(at + pages * 4096);
        let mut more = self.more.borrow_mut();
        if more.size() == 0 {
            // SAFETY: just mapped, used by this heap alone.
            unsafe { more.init(at as *mut u8, (pages * 4096) as usize) };
        } else {
            // SAFETY: just mapped, right behind the heap's end.
            unsafe { more.extend((pages * 4096) as usize) };
        }
        Some(())
    }
}

/// Bytes of the first part kept for growing.
const RESERVE: usize = 16 * 1024;
/// Requests above this never come from the first part.
const SMALL: usize = 2048;

// SAFETY: both heaps hand out disjoint memory that stays mapped; `dealloc` tells them apart by
// address.
unsafe impl GlobalAlloc for Growing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _section = section();
        if layout.size() <= SMALL
            && let Some(place) = self.first(layout)
        {
            return place.as_ptr();
        }
        for _ in 0..2 {
            let found = self.more.borrow_mut().allocate_first_fit(layout);
            if let Ok(place) = found {
                return place.as_ptr();
            }
            if self.grow(layout).is_none() {
                break;
            }
        }
        null_mut()
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let Some(place) = NonNull::new(place) else { return };
        let _section = section();
        let heap = if place.as_ptr() as u64 >= BASE { &self.more } else { &self.heap };
        // SAFETY: the caller gives back what `alloc` gave out with this layout.
        unsafe { heap.borrow_mut().deallocate(place, layout) }
    }
}
