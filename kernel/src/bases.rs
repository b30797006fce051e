//! FS and GS base, which programs may change without asking (FSGSBASE).
//!
//! # Safety
//! The kernel uses neither segment; what is loaded is canonical: the processor had it before, or
//! `kernel_core::create` has looked at it.
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::registers::{msr, rdmsr, wrmsr};

static INSTRUCTIONS: AtomicBool = AtomicBool::new(false);

/// Uses the instructions instead of the MSRs.
pub fn use_instructions() {
    INSTRUCTIONS.store(true, Ordering::Relaxed);
}

/// Are the instructions used?
pub fn have_instructions() -> bool {
    INSTRUCTIONS.load(Ordering::Relaxed)
}

/// FS and GS base as they are.
#[inline]
pub fn read() -> (u64, u64) {
    if !INSTRUCTIONS.load(Ordering::Relaxed) {
        return (rdmsr(msr::FS_BASE), rdmsr(msr::GS_BASE));
    }
    let (fs, gs);
    // SAFETY: CR4.FSGSBASE is set.
    unsafe {
        asm!("rdfsbase {}", "rdgsbase {}", out(reg) fs, out(reg) gs, options(nomem, nostack));
    }
    (fs, gs)
}

/// Sets both, to what `read` has answered or a check let through.
#[inline]
pub fn write(fs: u64, gs: u64) {
    // SAFETY: see the file's head.
    unsafe {
        if INSTRUCTIONS.load(Ordering::Relaxed) {
            asm!("wrfsbase {}", "wrgsbase {}", in(reg) fs, in(reg) gs, options(nomem, nostack));
        } else {
            wrmsr(msr::FS_BASE, fs);
            wrmsr(msr::GS_BASE, gs);
        }
    }
}
