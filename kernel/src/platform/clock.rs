//! Time: the rate of the time stamp counter, nanoseconds since boot, the wall clock (decisions 25).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::features::Features;
use crate::registers::{cpuid, inb, outb, pause, rdtsc};

static BASE_TSC: AtomicU64 = AtomicU64::new(0);
static MULTIPLIER: AtomicU32 = AtomicU32::new(0);
static SHIFT: AtomicU32 = AtomicU32::new(0);
static HZ: AtomicU64 = AtomicU64::new(0);

/// The timer chip's rate.
const PIT_HZ: u64 = 1_193_182;

/// Finds the rate; answers how.
pub fn calibrate(features: &Features) -> &'static str {
    let (hz, how) = rate(features);
    // The largest multiplier that fits 32 bits: the finest rate.
    let mut shift = 32;
    while (1_000_000_000u128 << shift) / u128::from(hz) > u128::from(u32::MAX) {
        shift -= 1;
    }
    HZ.store(hz, Ordering::Relaxed);
    MULTIPLIER.store(((1_000_000_000u128 << shift) / u128::from(hz)) as u32, Ordering::Relaxed);
    SHIFT.store(shift, Ordering::Relaxed);
    BASE_TSC.store(rdtsc(), Ordering::Relaxed);
    how
}

fn rate(features: &Features) -> (u64, &'static str) {
    if cpuid(0, 0)[0] >= 0x15 {
        let [denominator, numerator, crystal, _] = cpuid(0x15, 0);
        if denominator != 0 && numerator != 0 && crystal != 0 {
            let hz = u64::from(crystal) * u64::from(numerator) / u64::from(denominator);
            return (hz, "cpuid 15");
        }
    }
    if features.hypervisor && cpuid(0x4000_0000, 0)[0] >= 0x4000_0010 {
        let khz = cpuid(0x4000_0010, 0)[0];
        if khz != 0 {
            return (u64::from(khz) * 1000, "cpuid 40000010");
        }
    }
    match by_pit() {
        Some(hz) => (hz, "pit"),
        None => (1_000_000_000, "guess"),
    }
}

/// Tries at a measurement that no host disturbed.
const TRIES: usize = 20;

/// Counts while channel 0 of the timer chip, which no interrupt controller listens to, counts down
/// 10 ms. A host may stop us at any instruction: the sample counts whose ends are known best.
fn by_pit() -> Option<u64> {
    // The chip's counter, and the time stamps around the reading.
    let read = || {
        let before = rdtsc();
        outb(0x43, 0);
        let low = u64::from(inb(0x40));
        let count = low | u64::from(inb(0x40)) << 8;
        (count, before, rdtsc() - before)
    };
    let mut best: Option<(u64, u64)> = None;
    for _ in 0..TRIES {
        // Mode 0 from the top: it counts down once.
        outb(0x43, 0b0011_0000);
        outb(0x40, 0xff);
        outb(0x40, 0xff);
        let (first, begin, begin_unsure) = read();
        let (mut last, mut end, mut end_unsure) = (first, begin, 0);
        let mut looks = 0;
        while last <= first && first - last < PIT_HZ / 100 {
            (last, end, end_unsure) = read();
            looks += 1;
            if looks > 1_000_000 {
                // No chip: what is read never falls.
                return None;
            }
        }
        if last >= first {
            // It went through zero before we looked again.
            continue;
        }
        let ticks = end + end_unsure / 2 - begin - begin_unsure / 2;
        let unsure = (begin_unsure + end_unsure) * 1_000_000 / ticks.max(1);
        if best.is_none_or(|(least, _)| unsure < least) {
            best = Some((unsure, ticks * PIT_HZ / (first - last)));
        }
        if unsure < 2_000 {
            break;
        }
    }
    best.map(|(_, hz)| hz)
}

/// Ticks of the time stamp counter in a second.
pub fn hz() -> u64 {
    HZ.load(Ordering::Relaxed)
}

/// What the published clock says: base, multiplier, shift.
pub fn parameters() -> (u64, u32, u32) {
    (
        BASE_TSC.load(Ordering::Relaxed),
        MULTIPLIER.load(Ordering::Relaxed),
        SHIFT.load(Ordering::Relaxed),
    )
}

/// Ticks in nanoseconds.
pub fn ticks_to_ns(ticks: u64) -> u64 {
    let (_, multiplier, shift) = parameters();
    ((u128::from(ticks) * u128::from(multiplier)) >> shift) as u64
}

/// Nanoseconds since the rate was found.
pub fn now_ns() -> u64 {
    ticks_to_ns(rdtsc().saturating_sub(BASE_TSC.load(Ordering::Relaxed)))
}

/// Waits, at boot only.
pub fn wait_us(us: u64) {
    let end = now_ns() + us * 1000;
    while now_ns() < end {
        pause();
    }
}

/// Seconds since 1970 from the CMOS clock; `None` without one (MC146818 data sheet).
pub fn wall_seconds() -> Option<u64> {
    let read = |register: u8| {
        outb(0x70, register);
        inb(0x71)
    };
    let sample = || [0u8, 2, 4, 7, 8, 9].map(read);
    for _ in 0..1000 {
        // Not while it is being updated; twice the same is whole.
        if read(0x0a) & 0x80 != 0 {
            continue;
        }
        let first = sample();
        if first != sample() {
            continue;
        }
        let status = read(0x0b);
        let decode = |value: u8| {
            if status & 4 != 0 { value } else { (value >> 4) * 10 + (value & 15) }
        };
        let [seconds, minutes, hours, day, month, year] = first.map(decode);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year > 99 {
            return None;
        }
        let days = days_since_1970(2000 + u64::from(year), u64::from(month), u64::from(day));
        let hours = u64::from(hours & 0x7f);
        return Some((days * 24 + hours) * 3600 + u64::from(minutes) * 60 + u64::from(seconds));
    }
    None
}

/// Days of the Gregorian calendar, from a year beginning in March.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days - 719_468
}
