//! ExOS's heap: one free list over a range whose pages come on first touch.
//!
//! Small blocks that are freed wait in lists by size for the next of that size: most live as long
//! as one call. A list is short, so that little lies idle; what it has no room for goes back whole.
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
use abi::layout::PAGE_SIZE;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU8, Ordering};
use linked_list_allocator::Heap;

/// Bytes by which the sizes of the lists' blocks differ; each is aligned to as many.
const STEP: usize = 16;
/// Lists: of blocks of up to 16, 32, … bytes.
const LISTS: usize = 32;
/// Blocks that a list holds at most.
const LENGTH: usize = 4;

/// Freed blocks of one size.
struct List {
    count: usize,
    blocks: [*mut u8; LENGTH],
}

/// The one heap.
static HEAP_HERE: OnTouch = OnTouch::new();

/// The allocator: the program half declares it `#[global_allocator]`.
#[derive(Debug)]
pub struct Shared;

/// Bytes of the largest pieces in which free memory is taken to be wiped.
const PIECE: usize = 1024;
/// Bytes of the smallest: a free block's head.
const PIECE_MIN: usize = 16;

/// A heap in the range.
struct OnTouch {
    state: AtomicU8,
    heap: UnsafeCell<MaybeUninit<Heap>>,
    lists: UnsafeCell<[List; LISTS]>,
}

const UNUSED: u8 = 0;
const FREE: u8 = 1;
const BUSY: u8 = 2;

// SAFETY: `state` admits one at a time.
unsafe impl Sync for OnTouch {}

impl OnTouch {
    /// All zeros, as the variables of ExOS must be.
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(UNUSED),
            heap: UnsafeCell::new(MaybeUninit::zeroed()),
            lists: UnsafeCell::new(
                [const { List { count: 0, blocks: [null_mut(); LENGTH] } }; LISTS],
            ),
        }
    }

    /// The list for blocks of this layout, if they are small.
    #[inline]
    fn list(&self, layout: Layout) -> Option<NonNull<List>> {
        let at = layout.size().wrapping_sub(1) / STEP;
        if at >= LISTS || layout.align() > STEP {
            return None;
        }
        // In the middle of an allocation nobody comes here.
        assert!(self.state.load(Ordering::Relaxed) != BUSY, "the heap was entered twice");
        NonNull::new(self.lists.get().cast::<List>().wrapping_add(at))
    }

    /// The layout that all blocks of a list have, or a large one's own.
    fn whole(layout: Layout) -> Layout {
        let bytes = layout.size().next_multiple_of(STEP);
        let small = layout.size() <= LISTS * STEP && layout.align() <= STEP;
        match Layout::from_size_align(bytes.max(STEP), STEP) {
            Ok(whole) if small => whole,
            _ => layout,
        }
    }

    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        let place = self.with(|heap| heap.allocate_first_fit(Self::whole(layout)));
        place.map_or(null_mut(), NonNull::as_ptr)
    }

    /// # Safety
    /// As `dealloc`.
    #[cold]
    unsafe fn give_back(&self, place: *mut u8, layout: Layout) {
        let Some(place) = NonNull::new(place) else { return };
        // SAFETY: the caller gives back what `take` gave out with this layout.
        self.with(|heap| unsafe { heap.deallocate(place, Self::whole(layout)) });
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

impl OnTouch {
    /// Has free memory below `end` hold zeros, but for the heads of free blocks.
    fn wipe(&self, end: u64) {
        if self.state.load(Ordering::Relaxed) == UNUSED {
            return;
        }
        // SAFETY: one at a time is here, and nobody uses a block that is in a list.
        let lists = unsafe { &*self.lists.get() };
        for (at, list) in lists.iter().enumerate() {
            for &block in list.blocks.iter().take(list.count) {
                // SAFETY: a list's blocks have this size.
                unsafe { block.write_bytes(0, (at + 1) * STEP) };
            }
        }
        self.with(|heap| {
            let mut taken = Taken(null_mut());
            let mut bytes = PIECE;
            while bytes >= PIECE_MIN {
                while taken.take(heap, bytes, end) {}
                // What is left over of a free block must have room for a head.
                bytes = match bytes {
                    32 => 24,
                    24 => PIECE_MIN,
                    more => more / 2,
                };
            }
            taken.give_back(heap);
        });
    }
}

/// Pieces of free memory, wiped: the first words of each are where the next one is, and its bytes.
struct Taken(*mut [usize; 2]);

impl Taken {
    /// Takes one more below `end`, if there is one.
    fn take(&mut self, heap: &mut Heap, bytes: usize, end: u64) -> bool {
        let Ok(layout) = Layout::from_size_align(bytes, align_of::<usize>()) else { return false };
        let Ok(piece) = heap.allocate_first_fit(layout) else { return false };
        if piece.as_ptr() as u64 + bytes as u64 > end {
            // SAFETY: it was given out just now, with this layout.
            unsafe { heap.deallocate(piece, layout) };
            return false;
        }
        let head = piece.as_ptr().cast::<[usize; 2]>();
        // SAFETY: it is ours, aligned, and at least so long.
        unsafe {
            piece.as_ptr().write_bytes(0, bytes);
            head.write([self.0 as usize, bytes]);
        }
        self.0 = head;
        true
    }

    fn give_back(mut self, heap: &mut Heap) {
        while let Some(piece) = NonNull::new(self.0) {
            // SAFETY: `take` wrote it, and nobody else has it.
            let [next, bytes] = unsafe { piece.read() };
            self.0 = next as *mut [usize; 2];
            if let Ok(layout) = Layout::from_size_align(bytes, align_of::<usize>()) {
                // SAFETY: given out with this layout.
                unsafe { heap.deallocate(piece.cast(), layout) };
            }
        }
    }
}

/// Has all free memory of the heap hold zeros: what was in it is nobody's any more.
pub fn wipe() {
    let last = crate::library::present_pages(HEAP, HEAP_END).last().copied();
    if let Some(last) = last {
        HEAP_HERE.wipe(last + PAGE_SIZE);
    }
}

// SAFETY: as of the one heap.
unsafe impl GlobalAlloc for Shared {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { HEAP_HERE.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { HEAP_HERE.dealloc(place, layout) }
    }
}

// SAFETY: hands out disjoint parts of a range that stays usable.
unsafe impl GlobalAlloc for OnTouch {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(mut list) = self.list(layout) {
            // SAFETY: one at a time is here.
            let list = unsafe { list.as_mut() };
            if let Some(block) = list.count.checked_sub(1).and_then(|at| list.blocks.get(at)) {
                list.count -= 1;
                return *block;
            }
        }
        self.take(layout)
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if let Some(mut list) = self.list(layout) {
            // SAFETY: one at a time is here.
            let list = unsafe { list.as_mut() };
            if let Some(free) = list.blocks.get_mut(list.count) {
                *free = place;
                list.count += 1;
                return;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.give_back(place, layout) }
    }
}
