//! Vector registers: stored and loaded by the kernel, never left to another environment.
//!
//! # Safety
//! Areas are frames of type `Vector`, which no program can write: what is loaded is what was
//! stored, or the initial state. The kernel itself uses no vector register.
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::Ordering;

use crate::features;
use crate::physical::{virtual_address, word, word32, zero};

/// Bytes of the area in a `Vector` frame; the predicate follows.
pub const VECTOR_BYTES: u64 = 3072;

/// x87 control word and MXCSR after reset (SDM 1 §8.1.5, §10.2.3).
const CONTROL: u32 = 0x37f;
const MXCSR: u32 = 0x1f80;

/// Writes the initial state into an area.
pub fn initialize(area: u64) {
    zero(area, VECTOR_BYTES);
    word(area).store(u64::from(CONTROL), Ordering::Relaxed);
    word32(area + 24).store(MXCSR, Ordering::Relaxed);
}

/// Stores this processor's registers.
#[inline]
pub fn store(area: u64) {
    let at = virtual_address(area);
    // SAFETY: see the file's head; the frame is aligned and large enough (checked at boot).
    unsafe {
        if features::xcr0() != 0 {
            asm!("xsave64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX,
                 options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) at, options(nostack));
        }
    }
}

/// Loads this processor's registers.
#[inline]
pub fn load(area: u64) {
    let at = virtual_address(area);
    // SAFETY: as above.
    unsafe {
        if features::xcr0() != 0 {
            asm!("xrstor64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX,
                 options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) at, options(nostack));
        }
    }
}
