//! The processors' halves of the kernel's lock (`lockfree::half`), as a hold has them.

use core::sync::atomic::AtomicU32;

use crate::cpu::{self, Cpu};

pub use lockfree::half::{FREE_BY_ENTRY, SHUT, TAKEN};

/// A processor's half.
pub type Half = lockfree::half::Half<AtomicU32>;

/// Takes what others have open; has entry code done anything since this was asked?
#[cold]
#[inline(never)]
pub fn take_all(own: &Cpu) -> bool {
    own.half.take_all(|cpu| &Cpu::of(cpu).half)
}

/// Gives back what was open, at the end of a hold; if the fast path may not be gone, shuts all.
#[cold]
#[inline(never)]
pub fn give_all_back(own: &Cpu, may: bool) {
    if may {
        own.half.give_all_back(|cpu| &Cpu::of(cpu).half);
    } else {
        cpu::all().for_each(|cpu| cpu.half.begin());
    }
}

/// Opens this processor's half, within a hold, and tells all others.
#[inline(always)]
pub fn open(own: &Cpu) {
    if !own.half.is_open() {
        open_anew(own);
    }
}

#[cold]
#[inline(never)]
fn open_anew(own: &Cpu) {
    let others = cpu::all().filter(|cpu| !core::ptr::eq(*cpu, own));
    own.half.open(own.index.get(), others.map(|cpu| &cpu.half));
}
