//! The one record of the program's half: its areas and its break.
//!
//! # Safety
//! One thread of a domain at a time is in ExOS (`crate::lock`), and
//! [`space`] is never held over a copy from or to the program (`crate::user`), whose faults
//! look here too. So no two references live at once.
#![allow(unsafe_code)]

use crate::futex::Queue;
use crate::memory::areas::Areas;
use crate::rewrite::Rewrites;
use crate::threads::Places;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};

/// First address that `mmap` gives out.
pub const MMAP_LOWEST: u64 = 0x1_0000;
/// Top of the stack of a program.
pub const STACK_TOP: u64 = 0x7fff_ffff_e000;
/// First address behind what `mmap` gives out: room for a large stack stays.
pub const MMAP_TOP: u64 = 0x7fff_f7fd_0000;

/// A program's half.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// What was promised.
    pub areas: Areas,
    /// Where the heap of `brk` begins.
    pub break_start: u64,
    /// Where it ends now.
    pub break_end: u64,
    /// Where the auxiliary vector stands on its first stack.
    pub vector: u64,
    /// Where its threads stand.
    pub places: Places,
    /// Who sleeps for its futexes.
    pub futexes: Queue,
    /// What became of its call sites.
    pub rewrites: Rewrites,
}

static SPACE: AtomicPtr<Space> = AtomicPtr::new(core::ptr::null_mut());

/// The space of this domain; made empty at first use.
pub fn space() -> &'static mut Space {
    let mut place = SPACE.load(Ordering::Relaxed);
    if place.is_null() {
        place = Box::into_raw(Box::new(Space::default()));
        SPACE.store(place, Ordering::Relaxed);
    }
    // SAFETY: made above, never freed; see the head of the file.
    unsafe { &mut *place }
}
