//! Time: the rate of the time stamp counter, nanoseconds since boot, the wall clock (decisions 25).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::features::Features;
use crate::registers::{cpuid, inb, inl, outb, pause, rdtsc};

static BASE_TSC: AtomicU64 = AtomicU64::new(0);
static MULTIPLIER: AtomicU32 = AtomicU32::new(0);
static SHIFT: AtomicU32 = AtomicU32::new(0);
/// The multiplier for a shift by 32: the same nanoseconds, without a shift by a variable.
static SCALE: AtomicU64 = AtomicU64::new(0);
static HZ: AtomicU64 = AtomicU64::new(0);

/// The timer chip's rate.
const PIT_HZ: u64 = 1_193_182;
/// The rate of ACPI's timer (ACPI 6.5 §4.8.2.1).
const ACPI_TIMER_HZ: u64 = 3_579_545;

/// Finds the rate; answers how.
pub fn calibrate(features: &Features, timer_port: u16) -> &'static str {
    let (hz, how) = rate(features, timer_port);
    // The largest multiplier that fits 32 bits: the finest rate.
    let mut shift = 32;
    while (1_000_000_000u128 << shift) / u128::from(hz) > u128::from(u32::MAX) {
        shift -= 1;
    }
    HZ.store(hz, Ordering::Relaxed);
    let multiplier = ((1_000_000_000u128 << shift) / u128::from(hz)) as u32;
    MULTIPLIER.store(multiplier, Ordering::Relaxed);
    SCALE.store(u64::from(multiplier) << (32 - shift), Ordering::Relaxed);
    SHIFT.store(shift, Ordering::Relaxed);
    BASE_TSC.store(rdtsc(), Ordering::Relaxed);
    how
}

fn rate(features: &Features, timer_port: u16) -> (u64, &'static str) {
    let told = by_cpuid();
    if told.is_some()
        && let Some(found) = kernel_core::rate::choose(told, by_acpi_timer(timer_port))
    {
        return found;
    }
    if features.hypervisor && cpuid(0x4000_0000, 0)[0] >= 0x4000_0010 {
        let khz = cpuid(0x4000_0010, 0)[0];
        if khz != 0 {
            return (u64::from(khz) * 1000, "cpuid 40000010");
        }
    }
    // One access instead of three, and finer ticks.
    if let Some(found) = kernel_core::rate::choose(None, by_acpi_timer(timer_port)) {
        return found;
    }
    match by_pit() {
        Some(hz) => (hz, "pit"),
        None => (1_000_000_000, "guess"),
    }
}

/// What the processor says (SDM 2A, CPUID, leaf 15H).
fn by_cpuid() -> Option<u64> {
    if cpuid(0, 0)[0] < 0x15 {
        return None;
    }
    let [denominator, numerator, crystal, _] = cpuid(0x15, 0);
    let hz = (u64::from(crystal) * u64::from(numerator)).checked_div(u64::from(denominator))?;
    (hz != 0).then_some(hz)
}

/// Tries at a measurement that no host disturbed.
const TRIES: usize = 20;
/// Good ones that are enough.
const GOOD: usize = 2;
/// Millionths that a rate may be wrong by for its measurement to end early.
const SURE: u64 = 500;
/// Millionths that the rate of a good measurement may be wrong by at the end of its time.
const BEARABLE: u64 = 2_000;
/// Parts of a second that a measurement takes at least and at most: 1 and 10 ms.
const LEAST: u64 = 1_000;
const MOST: u64 = 100;

/// Counts while channel 0 of the timer chip, which no interrupt controller listens to, counts down
/// from the top.
fn by_pit() -> Option<u64> {
    let start = || {
        // Mode 0: it counts down once.
        outb(0x43, 0b0011_0000);
        outb(0x40, 0xff);
        outb(0x40, 0xff);
    };
    let read = || {
        outb(0x43, 0);
        let low = u32::from(inb(0x40));
        0xffff - (low | u32::from(inb(0x40)) << 8)
    };
    measure(start, read, 0xffff, PIT_HZ)
}

/// Counts while ACPI's timer, of which 24 bits are sure, counts up.
fn by_acpi_timer(port: u16) -> Option<u64> {
    if port == 0 {
        return None;
    }
    measure(|| {}, || inl(port) & 0xff_ffff, 0xff_ffff, ACPI_TIMER_HZ)
}

/// Ticks of the time stamp counter in a second, beside a counter of `hz` that wraps at `mask`. A
/// host may stop us at any instruction: the sample counts whose ends are known best.
fn measure(start: impl Fn(), read: impl Fn() -> u32, mask: u32, hz: u64) -> Option<u64> {
    // The counter, and the time stamps around the reading.
    let sample = || {
        let before = rdtsc();
        let count = read();
        (count, before, rdtsc() - before)
    };
    let mut best: Option<(u64, u64)> = None;
    let (mut good, mut lowest) = (0, u64::MAX);
    for _ in 0..TRIES {
        start();
        let (first, begin, begin_unsure) = sample();
        let (mut passed, mut end, mut end_unsure) = (0, begin, 0);
        let mut looks = 0;
        let mut unsure = u64::MAX;
        while passed < hz / LEAST || unsure > SURE && passed < hz / MOST {
            let count;
            (count, end, end_unsure) = sample();
            passed = u64::from(count.wrapping_sub(first) & mask);
            // Each end is somewhere in its sample, and both are whole ticks of the counter.
            let ticks = (end - begin).max(1);
            unsure = (begin_unsure + end_unsure) * 1_000_000 / ticks + 1_000_000 / passed.max(1);
            looks += 1;
            if looks > 1_000_000 {
                // Nothing there: what is read never moves.
                return None;
            }
        }
        let ticks = end + end_unsure / 2 - begin - begin_unsure / 2;
        // Half a turn of the counter would be too long to be sure that it was none.
        let sure = passed < u64::from(mask / 2);
        if !sure {
            continue;
        }
        let found = ticks * hz / passed;
        if unsure < BEARABLE {
            good += 1;
            // A turn of the counter that nobody saw makes the rate too high, nothing too low.
            lowest = lowest.min(found);
        }
        if best.is_none_or(|(least, _)| unsure < least) {
            best = Some((unsure, found));
        }
        if good == GOOD {
            break;
        }
    }
    if good > 0 { Some(lowest) } else { best.map(|(_, hz)| hz) }
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
#[inline]
pub fn ticks_to_ns(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32) as u64
}

/// Nanoseconds since the rate was found.
#[inline]
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
