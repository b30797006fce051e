//! Random delays where processors meet, to find races (decisions 26): `delay=` on the command line.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::registers::rdtsc;

/// The longest delay, in ticks of the time stamp counter; 0: none.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// Delays from now on, of up to so many microseconds.
pub fn enable(longest_us: u64, tsc_hz: u64) {
    LONGEST.store(longest_us.min(1_000_000) * (tsc_hz / 1_000_000), Ordering::Relaxed);
}

/// Waits a random while, if delays are on: before the lock, before and after a shootdown.
pub fn point() {
    let longest = LONGEST.load(Ordering::Relaxed);
    if longest == 0 {
        return;
    }
    let begin = rdtsc();
    // The low bits of a time stamp, mixed: good enough to move processors against each other.
    let mut mixed = begin.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    let wait = if mixed & 3 == 0 { mixed % longest } else { 0 };
    while rdtsc() - begin < wait {
        core::hint::spin_loop();
    }
}
