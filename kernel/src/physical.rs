//! Physical memory through the direct map.
//!
//! # Safety
//! Every address handed in lies in memory that the machine's map (or its firmware's tables) names;
//! at boot the first 4 GiB are mapped, later all of memory. What user code or other processors may
//! touch at the same time is reached by atomics only.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64};

use abi::layout::DIRECT_MAP;

/// Where the kernel sees a physical address.
#[inline]
pub const fn virtual_address(physical: u64) -> u64 {
    // Whatever comes in, no address of a program's comes out.
    DIRECT_MAP | physical
}

const _: () = assert!(DIRECT_MAP.trailing_zeros() == 47);

/// A 64-bit word of memory; `address` is a multiple of 8.
#[inline(always)]
pub fn word(address: u64) -> &'static AtomicU64 {
    debug_assert!(address.is_multiple_of(8));
    // SAFETY: see the file's head; memory stays for ever.
    unsafe { &*(virtual_address(address & !7) as *const AtomicU64) }
}

/// A frame as the words of a page table.
pub fn table(address: u64) -> &'static [AtomicU64; 512] {
    // SAFETY: see the file's head; memory stays for ever.
    unsafe { &*(virtual_address(address & !0xfff) as *const [AtomicU64; 512]) }
}

/// A 32-bit word of memory; `address` is a multiple of 4.
pub fn word32(address: u64) -> &'static AtomicU32 {
    debug_assert!(address.is_multiple_of(4));
    // SAFETY: as above.
    unsafe { &*(virtual_address(address & !3) as *const AtomicU32) }
}

/// Bytes that nobody writes any more.
pub fn bytes(address: u64, len: u64) -> &'static [u8] {
    // SAFETY: see the file's head; the boot image and firmware's tables aren't written after
    // the loader.
    unsafe { core::slice::from_raw_parts(virtual_address(address) as *const u8, len as usize) }
}

/// Reads a plain little-endian word at any alignment: firmware's tables.
pub fn read32(address: u64) -> u32 {
    // SAFETY: as above.
    unsafe { (virtual_address(address) as *const u32).read_unaligned() }
}

/// As `read32`.
pub fn read64(address: u64) -> u64 {
    // SAFETY: as above.
    unsafe { (virtual_address(address) as *const u64).read_unaligned() }
}

/// Reads one byte of firmware's tables.
pub fn read8(address: u64) -> u8 {
    // SAFETY: as above.
    unsafe { (virtual_address(address) as *const u8).read() }
}

/// Reads 16 bits of firmware's tables.
pub fn read16(address: u64) -> u16 {
    // SAFETY: as above.
    unsafe { (virtual_address(address) as *const u16).read_unaligned() }
}

/// Fills memory that nobody else uses with zeroes.
pub fn zero(address: u64, len: u64) {
    // SAFETY: the caller owns the frames; nobody has a reference to them.
    unsafe { core::ptr::write_bytes(virtual_address(address) as *mut u64, 0, (len / 8) as usize) }
}

/// Copies between ranges that don't overlap. Programs may change either while this runs; no
/// reference to them exists, and what arrives is only bytes.
pub fn copy(to: u64, from: u64, len: usize) {
    // SAFETY: both lie in memory, see the file's head.
    unsafe {
        core::ptr::copy_nonoverlapping(
            virtual_address(from) as *const u8,
            virtual_address(to) as *mut u8,
            len,
        );
    }
}

/// Copies a kernel buffer to memory.
pub fn fill(to: u64, bytes: &[u8]) {
    // SAFETY: as `copy`.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), virtual_address(to) as *mut u8, bytes.len());
    }
}

/// Copies memory to a kernel buffer.
pub fn read(from: u64, into: &mut [u8]) {
    // SAFETY: as `copy`.
    unsafe {
        let from = virtual_address(from) as *const u8;
        core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
    }
}

/// `count` values of `T` in frames that were carved for them.
///
/// # Safety
/// The memory is zeroed, aligned, ours alone and never given back, and all-zero is a `T`.
pub unsafe fn slice<T>(address: u64, count: usize) -> &'static mut [T] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(virtual_address(address) as *mut T, count) }
}
