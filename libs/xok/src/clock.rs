//! Time without a call: the published clock and `rdtsc`.
//!
//! # Safety
//! Holds the `rdtsc` instruction, which touches two registers.
#![allow(unsafe_code)]

use crate::published;
use abi::published::{Clock, clock_source};

/// The processor's time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: reads a counter; CR4.TSD is clear.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since boot.
pub fn now_ns() -> u64 {
    let clock = published::clock();
    reading(&clock, tsc())
}

/// The earlier of two deadlines, of which 0 is none.
#[inline]
pub fn earlier(one: u64, other: u64) -> u64 {
    // None is later than any.
    one.wrapping_sub(1).min(other.wrapping_sub(1)).wrapping_add(1)
}

/// Nanoseconds since 1970, or `None` where the machine does not know.
pub fn wall_ns() -> Option<u64> {
    let clock = published::clock();
    (clock.wall_ns != 0).then(|| clock.wall_ns + reading(&clock, tsc()))
}

/// What `clock` says when the counter stands at `tsc`.
pub fn reading(clock: &Clock, tsc: u64) -> u64 {
    if clock.source != clock_source::TSC {
        return clock.tick_ns;
    }
    let ticks = tsc.saturating_sub(clock.base_tsc);
    // The kernel says less than 64.
    let ns = (u128::from(ticks) * u128::from(clock.multiplier)) >> (clock.shift & 63);
    clock.base_ns + ns as u64
}
