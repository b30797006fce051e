//! Slabs: pages of objects of one size, for what is smaller than half a page.
//!
//! # Safety
//! A slab is a page of the heap's with a head that this file wrote; its objects are handed out and
//! taken back here, under the one reference to the state. `heap` says who calls.
#![allow(unsafe_code)]

use super::{State, address, page_of};
use abi::layout::PAGE_SIZE;
use core::alloc::Layout;
use core::ptr::null_mut;

/// Sizes of objects in slabs.
const SIZES: [u16; CLASSES_COUNT] = [
    16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 448, 496, 576, 672, 800, 1008, 1344,
    2016, 0,
];
/// How many there are.
pub(super) const CLASSES_COUNT: usize = 21;
/// Bytes of the largest.
const SMALL: usize = 2016;
/// Bytes of a slab's head.
const SLAB_HEAD: usize = 64;
/// Alignment of objects.
const ALIGN: usize = 16;
/// No object.
const NONE: u16 = u16::MAX;

const fn classes() -> [u8; SMALL / ALIGN + 1] {
    let mut table = [0; SMALL / ALIGN + 1];
    let (mut at, mut class) = (0, 0);
    while at < table.len() {
        if at * ALIGN > SIZES[class] as usize {
            class += 1;
        }
        table[at] = class as u8;
        at += 1;
    }
    table
}

/// The class of a size, in units of `ALIGN`.
static CLASSES: [u8; SMALL / ALIGN + 1] = classes();

/// What a slab's page begins with.
#[repr(C)]
pub(super) struct Slab {
    next: *mut Slab,
    previous: *mut Slab,
    /// The first free object, whose first two bytes name the next.
    free: u16,
    /// Objects from here on have never been handed out.
    fresh: u16,
    used: u16,
    class: u16,
}

const _: () = assert!(size_of::<Slab>() <= SLAB_HEAD);

/// The class of what is small enough.
pub(super) fn class_of(layout: &Layout) -> Option<usize> {
    if layout.align() > ALIGN {
        return None;
    }
    CLASSES.get(layout.size().div_ceil(ALIGN)).map(|&class| usize::from(class))
}

impl State {
    /// An object of a class.
    pub(super) fn object(&mut self, class: usize) -> *mut u8 {
        let mut slab = self.slabs[class];
        if slab.is_null() {
            let Some(page) = self.page() else { return null_mut() };
            slab = address(page) as *mut Slab;
            let class = class as u16;
            let (next, previous) = (null_mut(), null_mut());
            // SAFETY: the page is ours, and nobody has it.
            unsafe {
                slab.write(Slab { next, previous, free: NONE, fresh: 0, used: 0, class });
            }
            self.slabs[usize::from(class)] = slab;
        }
        let size = usize::from(SIZES[class]);
        // SAFETY: a slab in the list is a page with a head that this file wrote, and has a free
        // object: one that was given back, whose first bytes are the list's, or a fresh one.
        unsafe {
            let head = &mut *slab;
            let number = if head.free != NONE { head.free } else { head.fresh };
            let place = slab.cast::<u8>().add(SLAB_HEAD + usize::from(number) * size);
            if head.free != NONE {
                head.free = place.cast::<u16>().read();
            } else {
                head.fresh += 1;
            }
            head.used += 1;
            if usize::from(head.used) == (PAGE_SIZE as usize - SLAB_HEAD) / size {
                self.unlink(slab);
            }
            place
        }
    }

    /// Takes a slab out of its list.
    ///
    /// # Safety
    /// It is in it.
    unsafe fn unlink(&mut self, slab: *mut Slab) {
        // SAFETY: what a slab in a list links to is one, too.
        unsafe {
            let (next, previous) = ((*slab).next, (*slab).previous);
            if previous.is_null() {
                self.slabs[usize::from((*slab).class)] = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }

    /// Takes an object back.
    ///
    /// # Safety
    /// It was handed out by `object`.
    pub(super) unsafe fn free_object(&mut self, place: *mut u8) {
        let slab = (place as u64 & !(PAGE_SIZE - 1)) as *mut Slab;
        // SAFETY: the object lies in a slab's page, and is nobody's any more.
        unsafe {
            let head = &mut *slab;
            let size = usize::from(SIZES[usize::from(head.class)]);
            let number = (place as usize % PAGE_SIZE as usize - SLAB_HEAD) / size;
            place.cast::<u16>().write(head.free);
            head.free = number as u16;
            let was_full = usize::from(head.used) == (PAGE_SIZE as usize - SLAB_HEAD) / size;
            head.used -= 1;
            if head.used == 0 {
                if !was_full {
                    self.unlink(slab);
                }
                self.free(page_of(slab as u64), 1);
            } else if was_full {
                let class = usize::from((*slab).class);
                let next = core::mem::replace(&mut self.slabs[class], slab);
                (*slab).next = next;
                (*slab).previous = null_mut();
                if !next.is_null() {
                    (*next).previous = slab;
                }
            }
        }
    }
}
