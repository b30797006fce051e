//! Reading one's own page tables through the recursive slot: no call.
//!
//! # Safety
//! The recursive entry is in every root table, readable by all levels of user code; an entry's
//! page is there only if the entries above it are present, which is checked on the way down.
#![allow(unsafe_code)]

use abi::layout::{PAGE_SIZE, own_entry_address};
use abi::memory::{ADDRESS, DIRTY, KEEPS_WRITE, LARGE, PRESENT, SOFTWARE};
use core::arch::asm;

#[inline(always)]
fn load(address: u64, level: u8) -> u64 {
    // SAFETY: see the head of the file; callers check the levels above first.
    unsafe { (own_entry_address(address, level) as *const u64).read_volatile() }
}

const fn leads_on(entry: u64) -> bool {
    entry & (PRESENT | LARGE) == PRESENT
}

/// What the entry of level 1 would be, if a folded table's large entry stood for nothing else: its
/// software bits are the kernel's.
#[cold]
fn page_of(large: u64, address: u64) -> u64 {
    large & !(LARGE | SOFTWARE | KEEPS_WRITE) | address & (LARGE_SIZE - PAGE_SIZE)
}

/// Bytes of a large page.
const LARGE_SIZE: u64 = 512 * PAGE_SIZE;

/// The entry of `level` for `address`; `Err(l)` if the entry of level `l` above it is absent. Of a
/// folded table level 1 is what its large entry says; what one would read in place of the table is
/// the first page's memory.
#[inline]
pub fn entry(address: u64, level: u8) -> Result<u64, u8> {
    if level < 4 && !leads_on(load(address, 4)) {
        return Err(4);
    }
    if level < 3 && !leads_on(load(address, 3)) {
        return Err(3);
    }
    if level < 2 {
        let above = load(address, 2);
        if !leads_on(above) {
            return if above & PRESENT != 0 { Ok(page_of(above, address)) } else { Err(2) };
        }
    }
    Ok(match level {
        1 => load(address, 1),
        2 => load(address, 2),
        3 => load(address, 3),
        _ => load(address, 4),
    })
}

/// The leaf entry for `address` if it is present.
#[inline]
pub fn leaf(address: u64) -> Option<u64> {
    entry(address, 1).ok().filter(|entry| entry & PRESENT != 0)
}

/// What leads to `address`: the level-2 entry and the leaf, as they stand (not necessarily
/// present); `Err(l)` if the entry of level `l` (2 to 4) is absent.
#[inline]
pub fn walk(address: u64) -> Result<(u64, u64), u8> {
    let above = entry(address, 2)?;
    if leads_on(above) {
        Ok((above, load(address, 1)))
    } else if above & PRESENT != 0 {
        Ok((above, page_of(above, address)))
    } else {
        Err(2)
    }
}

/// Is the table of the page at `address` folded ([`abi::memory::Operation::Fold`])? Then there is
/// no table for [`leaf_below`] and what follows it to read.
pub fn is_folded(address: u64) -> bool {
    matches!(entry(address, 2), Ok(entry) if entry & (PRESENT | LARGE) == PRESENT | LARGE)
}

/// The leaf entry for `address`, whose level-1 table the caller knows to be there (by [`entry`])
/// and not folded.
#[inline]
pub fn leaf_below(address: u64) -> u64 {
    load(address, 1)
}

/// Whether the page at `address` has been stored to, as its table entry says; of a page whose
/// level-1 table the caller knows to be there (by [`entry`]).
#[inline(always)]
pub fn is_dirty(address: u64) -> bool {
    leaf_below(address) & DIRTY != 0
}

/// The first page of `[address, end)` that is present; `end` if none is. The whole range lies below
/// one level-1 table, which the caller knows to be there.
#[inline]
pub fn next_present(address: u64, end: u64) -> u64 {
    first_present::<1>(address, end)
}

/// The same of what leads to level-1 tables, by 2 MiB: the range lies below one level-2 table,
/// which the caller knows to be there.
#[inline]
pub fn next_table(address: u64, end: u64) -> u64 {
    first_present::<2>(address, end)
}

#[inline(always)]
fn first_present<const LEVEL: u8>(address: u64, end: u64) -> u64 {
    let one = PAGE_SIZE << (9 * (LEVEL - 1));
    let mut at = address;
    while at < end && !at.is_multiple_of(8 * one) {
        if load(at, LEVEL) & PRESENT != 0 {
            return at;
        }
        at += one;
    }
    // Eight entries lie in one line, and most of what is looked through is empty.
    let mut entry = own_entry_address(at, LEVEL);
    while at + 8 * one <= end && line(entry) & PRESENT == 0 {
        at += 8 * one;
        entry += 64;
    }
    while at < end && load(at, LEVEL) & PRESENT == 0 {
        at += one;
    }
    at
}

/// The bits of the eight entries at this place, a line of a table that is there.
#[inline(always)]
fn line(entry: u64) -> u64 {
    let any;
    // SAFETY: see the head of the file; `next_present` says that the table is there.
    unsafe {
        asm!(
            "mov {any}, [{entry}]",
            "or {any}, [{entry} + 8]",
            "or {any}, [{entry} + 16]",
            "or {any}, [{entry} + 24]",
            "or {any}, [{entry} + 32]",
            "or {any}, [{entry} + 40]",
            "or {any}, [{entry} + 48]",
            "or {any}, [{entry} + 56]",
            any = out(reg) any,
            entry = in(reg) entry,
            options(nostack, readonly),
        );
    }
    any
}

/// The end of the run of pages from `address` on that are absent, the first one at least. Below one
/// level-1 table, as for [`next_present`].
#[inline]
pub fn absent_end(address: u64, end: u64) -> u64 {
    let mut at = address + PAGE_SIZE;
    while at < end && load(at, 1) & PRESENT == 0 {
        at += PAGE_SIZE;
    }
    at
}

/// The end of the run of pages from `address` on that are present and whose leaves agree with its
/// own in these bits. Below one level-1 table, as for [`next_present`]; the first page is present.
#[inline]
pub fn run_end(address: u64, end: u64, bits: u64) -> u64 {
    let bits = bits | PRESENT;
    let same = load(address, 1) & bits;
    let mut at = address + PAGE_SIZE;
    while at < end && load(at, 1) & bits == same {
        at += PAGE_SIZE;
    }
    at
}

/// The frame mapped at `address`.
pub fn frame(address: u64) -> Option<abi::id::Frame> {
    leaf(address).map(|entry| abi::id::Frame::containing(entry & ADDRESS))
}
