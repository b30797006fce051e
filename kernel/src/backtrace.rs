//! Return addresses from the chain of frame pointers, for last words.
//!
//! # Safety
//! Reads the kernel's own stacks: each frame pointer must be aligned, lie in kernel memory and be
//! higher than the last one, or the walk ends.
#![allow(unsafe_code)]

use abi::layout::KERNEL;

/// Prints up to 16 return addresses, innermost first.
pub fn print(mut frame: u64) {
    for _ in 0..16 {
        if frame < KERNEL || !frame.is_multiple_of(8) || frame > u64::MAX - 64 {
            return;
        }
        // SAFETY: see the file's head.
        let (next, address) = unsafe {
            let words = frame as *const u64;
            (words.read(), words.add(1).read())
        };
        if address < KERNEL {
            return;
        }
        crate::log::unlocked_line(format_args!("  called from {address:#x}"));
        if next <= frame || next - frame > 0x8000 {
            return;
        }
        frame = next;
    }
}
