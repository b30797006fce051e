//! The published clock, read under its sequence word.
//!
//! # Safety
//! The published pages are mapped, read-only, in every space; the directory there says where the
//! clock is. Loads are volatile, since the kernel changes the words.
#![allow(unsafe_code)]

use abi::layout::PUBLISHED;
use abi::published::{Clock, Directory, Table, TableInfo, clock_source};
use core::mem::offset_of;

fn load(address: u64) -> u64 {
    // SAFETY: see the head of the file.
    unsafe { (address as *const u64).read_volatile() }
}

fn load32(address: u64) -> u32 {
    // SAFETY: see the head of the file.
    unsafe { (address as *const u32).read_volatile() }
}

fn table(which: Table) -> u64 {
    const TABLES: u64 = PUBLISHED + offset_of!(Directory, tables) as u64;
    load(TABLES.wrapping_add((which as u64).wrapping_mul(size_of::<TableInfo>() as u64)))
}

/// Nanoseconds since boot, and what to add for nanoseconds since 1970 (0: unknown).
pub fn now() -> (u64, u64) {
    let clock = table(Table::Clock);
    let word = |offset: usize| load(clock.wrapping_add(offset as u64));
    let half = |offset: usize| load32(clock.wrapping_add(offset as u64));
    loop {
        let sequence = word(offset_of!(Clock, sequence));
        let base_tsc = word(offset_of!(Clock, base_tsc));
        let base_ns = word(offset_of!(Clock, base_ns));
        let multiplier = half(offset_of!(Clock, multiplier));
        let shift = half(offset_of!(Clock, shift));
        let wall = word(offset_of!(Clock, wall_ns));
        let source = half(offset_of!(Clock, source));
        let tick = word(offset_of!(Clock, tick_ns));
        if sequence & 1 != 0 || sequence != word(offset_of!(Clock, sequence)) {
            core::hint::spin_loop();
            continue;
        }
        if source != clock_source::TSC {
            return (tick, wall);
        }
        // SAFETY: reads a counter; CR4.TSD is clear.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() }.saturating_sub(base_tsc);
        let ns = (u128::from(ticks).wrapping_mul(u128::from(multiplier)) >> (shift & 127)) as u64;
        return (base_ns.wrapping_add(ns), wall);
    }
}
