//! Random delays where processors meet, to find races (decisions 26): `delay=` on the command line.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::registers::rdtsc;
use crate::trace;

/// The longest delay, in ticks of the time stamp counter; 0: none.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// Delays from now on, of up to so many microseconds.
pub fn enable(longest_us: u64, tsc_hz: u64) {
    LONGEST.store(longest_us.min(1_000_000) * (tsc_hz / 1_000_000), Ordering::Relaxed);
    note();
}

/// Something is traced, or delays are on: a short way asks for both by one look.
static HINDERED: AtomicBool = AtomicBool::new(false);

/// Notes whether short ways are to look twice: whenever tracing or delays change.
pub fn note() {
    let hindered = trace::any() || LONGEST.load(Ordering::Relaxed) != 0;
    HINDERED.store(hindered, Ordering::Release);
}

/// Is nothing traced? A delay may come before the answer.
#[inline(always)]
pub fn short_way_is_open() -> bool {
    !HINDERED.load(Ordering::Relaxed) || look_twice()
}

#[cold]
fn look_twice() -> bool {
    point();
    !trace::any()
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
