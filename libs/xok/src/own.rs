//! Reading one's own page tables through the recursive slot: no call.
//!
//! # Safety
//! The recursive entry is in every root table, readable by all levels of user code; an entry's
//! page is there only if the entries above it are present, which is checked on the way down.
#![allow(unsafe_code)]

use abi::layout::own_entry_address;
use abi::memory::{ADDRESS, LARGE, PRESENT};

fn load(address: u64, level: u8) -> u64 {
    // SAFETY: see the head of the file; callers check the levels above first.
    unsafe { (own_entry_address(address, level) as *const u64).read_volatile() }
}

/// The entry of `level` for `address`; `Err(l)` if the entry of level `l` above it is absent (or a
/// large page).
pub fn entry(address: u64, level: u8) -> Result<u64, u8> {
    for above in (level + 1..=4).rev() {
        let entry = load(address, above);
        if entry & PRESENT == 0 || entry & LARGE != 0 {
            return Err(above);
        }
    }
    Ok(load(address, level))
}

/// The leaf entry for `address` if it is present.
pub fn leaf(address: u64) -> Option<u64> {
    entry(address, 1).ok().filter(|entry| entry & PRESENT != 0)
}

/// The frame mapped at `address`.
pub fn frame(address: u64) -> Option<abi::id::Frame> {
    leaf(address).map(|entry| abi::id::Frame::containing(entry & ADDRESS))
}
