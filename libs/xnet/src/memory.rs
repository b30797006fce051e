//! Buffers shared with the kernel, each with the word that says whose it is.
//!
//! ```text
//!   slot: 0     64                                1600     2048
//!         │ word │ buffer (1536 bytes)              │ unused │      two slots in a page
//! ```
//!
//! # Safety
//! The pages are freed only when no buffer of a send queue is under way and the kernel has given
//! up the ring (`Port::close`), else never: so the kernel may hold on to them. A buffer is touched
//! by one side at a time, and its word says by which: this file gives out a reference to it only
//! after having seen, with acquire ordering, that it is ours; it is handed over by a store with
//! release ordering through `&mut self`, which no such reference outlives.
//! Words of published pages are only loaded, atomically; the page is mapped in every space.
#![allow(unsafe_code)]

use abi::layout::PAGE_SIZE;
use abi::ring;
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Bytes of a buffer: the largest packet fits.
pub const BUFFER: usize = 1536;
const BUFFER_AT: usize = 64;
const SLOT: usize = 2048;

const _: () = assert!(BUFFER >= abi::limits::PACKET_BYTES && BUFFER_AT + BUFFER <= SLOT);
const _: () = assert!((PAGE_SIZE as usize).is_multiple_of(SLOT));

/// Slots, zeroed at first.
pub struct Slots {
    base: NonNull<u8>,
    count: usize,
}

impl Slots {
    fn layout(count: usize) -> Option<Layout> {
        let bytes = (count * SLOT).next_multiple_of(PAGE_SIZE as usize);
        Layout::from_size_align(bytes, PAGE_SIZE as usize).ok()
    }

    /// `count` slots; `None`: no memory.
    pub fn new(count: usize) -> Option<Slots> {
        let layout = Slots::layout(count)?;
        // SAFETY: the layout's size is not zero, as `count` isn't.
        let base = unsafe { alloc_zeroed(layout) };
        Some(Slots { base: NonNull::new(base).filter(|_| count > 0)?, count })
    }

    /// Gives the memory back, once the kernel holds on to nothing of it.
    pub fn free(self) {
        if let Some(layout) = Slots::layout(self.count) {
            // SAFETY: allocated by `new` with this layout; the caller says that the kernel is done,
            // and no reference outlives `self`.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The word of a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn word(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < self.count);
        // SAFETY: within the allocation and aligned; an atomic for us and for the kernel alike.
        unsafe { self.base.add(slot * SLOT).cast::<AtomicU64>().as_ref() }
    }

    /// Where the buffer of a slot lies.
    pub fn address(&self, slot: usize) -> u64 {
        self.base.as_ptr() as u64 + (slot * SLOT + BUFFER_AT) as u64
    }

    /// The packet that the kernel has put into a slot of a receive ring: its word is the length.
    pub fn arrived(&self, slot: usize) -> Option<&[u8]> {
        match ring::owner(self.word(slot)) {
            0 => None,
            // SAFETY: a word other than 0 says that it is ours until the word is 0 again.
            len => Some(unsafe {
                let buffer = self.base.add(slot * SLOT + BUFFER_AT).as_ptr();
                core::slice::from_raw_parts(buffer, (len as usize).min(BUFFER))
            }),
        }
    }

    /// The buffer of a slot of a send queue, when nothing of it is under way: its word is 0.
    pub fn vacant(&mut self, slot: usize) -> Option<&mut [u8]> {
        if ring::owner(self.word(slot)) != 0 {
            return None;
        }
        // SAFETY: word 0 says that the device has read it; then nobody else uses it.
        Some(unsafe {
            let buffer = self.base.add(slot * SLOT + BUFFER_AT).as_ptr();
            core::slice::from_raw_parts_mut(buffer, BUFFER)
        })
    }

    /// Gives a slot to the other side, or takes it back, by its word.
    pub fn hand_over(&mut self, slot: usize, word: u64) {
        ring::hand_over(self.word(slot), word);
    }
}

/// The words of the application page of the environment at `index`.
pub fn published_words(index: usize) -> Option<&'static [AtomicU64]> {
    let page = xok::published::application_page(index)?;
    let words = PAGE_SIZE as usize / 8;
    // SAFETY: the published slot is mapped for good; aligned words, only loaded.
    Some(unsafe { core::slice::from_raw_parts(page as *const AtomicU64, words) })
}

/// The words of one's own application page, which one may write.
pub fn own_page() -> &'static [AtomicU64] {
    let page = xok::start::APPLICATION_PAGE as *const AtomicU64;
    // SAFETY: mapped before the program's first instruction, for as long as it lives; used as
    // atomics only.
    unsafe { core::slice::from_raw_parts(page, PAGE_SIZE as usize / 8) }
}
