//! Times and timers.

use crate::kind::Kind;
use crate::names;
use crate::text::{Record, Text};
use crate::{Call, Outcome};

/// `struct timespec`.
pub fn spec(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, time: &Record<16>| {
        pair(text, time, 0, "tv_nsec");
    });
}

/// `struct timeval`.
pub fn value(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, time: &Record<16>| {
        pair(text, time, 0, "tv_usec");
    });
}

/// Two of `struct timespec`, the second behind the first (utimensat).
pub fn two_specs(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, times: &Record<32>| {
        text.push("[");
        for (offset, separator) in [(0, ", "), (16, "]")] {
            // utimensat(2): now, and as it is.
            match times.long(offset + 8) {
                0x3fff_ffff => text.push("UTIME_NOW"),
                0x3fff_fffe => text.push("UTIME_OMIT"),
                _ => pair(text, times, offset, "tv_nsec"),
            }
            text.push(separator);
        }
    });
}

/// Two of `struct timeval` (utimes).
pub fn two_values(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, times: &Record<32>| {
        text.push("[");
        pair(text, times, 0, "tv_usec");
        text.push(", ");
        pair(text, times, 16, "tv_usec");
        text.push("]");
    });
}

/// `struct utimbuf`: two numbers of seconds (utime).
pub fn two_seconds(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, times: &Record<16>| {
        let (read, written) = (times.long(0) as i64, times.long(8) as i64);
        text.put(format_args!("{{actime={read}, modtime={written}}}"));
    });
}

/// `struct itimerval`.
pub fn timer_value(text: &mut Text, call: &Call<'_>, at: usize) {
    timer(text, call, at, "tv_usec");
}

/// `struct itimerspec`.
pub fn timer_spec(text: &mut Text, call: &Call<'_>, at: usize) {
    timer(text, call, at, "tv_nsec");
}

fn timer(text: &mut Text, call: &Call<'_>, at: usize, fraction: &str) {
    call.with_record(text, call.words[at], |text, timer: &Record<32>| {
        text.push("{it_interval=");
        pair(text, timer, 0, fraction);
        text.push(", it_value=");
        pair(text, timer, 16, fraction);
        text.push("}");
    });
}

/// Seconds and a fraction of them, at `offset` of a record.
pub fn pair<const N: usize>(text: &mut Text, record: &Record<N>, offset: usize, fraction: &str) {
    let (seconds, rest) = (record.long(offset) as i64, record.long(offset + 8) as i64);
    text.put(format_args!("{{tv_sec={seconds}, {fraction}={rest}}}"));
}

/// What is left of a sleep: there only if it was interrupted.
pub fn rest(text: &mut Text, call: &Call<'_>, at: usize) {
    const INTERRUPTED: [u16; 4] = [4, 512, 514, 516];
    match call.outcome {
        Some(Outcome::Failed(errno)) if INTERRUPTED.contains(&errno) => spec(text, call, at),
        _ => text.pointer(call.words[at]),
    }
}

/// The time zone of `gettimeofday`.
pub fn zone(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, zone: &Record<8>| {
        let (west, daylight) = (zone.word(0) as i32, zone.word(4) as i32);
        text.put(format_args!("{{tz_minuteswest={west}, tz_dsttime={daylight}}}"));
    });
}

/// `struct tms`.
pub fn process_times(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, times: &Record<32>| {
        let [user, system, user_below, system_below] =
            [0, 8, 16, 24].map(|offset| times.long(offset));
        text.put(format_args!("{{tms_utime={user}, tms_stime={system}, "));
        text.put(format_args!("tms_cutime={user_below}, tms_cstime={system_below}}}"));
    });
}

/// The seconds that `time` filled.
pub fn seconds(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, time: &Record<8>| {
        text.put(format_args!("[{}]", time.long(0)));
    });
}

/// The operation of a futex, its flags, and which further arguments it looks at.
pub fn futex_operation(text: &mut Text, call: &Call<'_>, at: usize) {
    let word = call.words[at] & 0xffff_ffff;
    let name = names::FUTEX.iter().find(|(number, _)| *number == word & 0x7f);
    match name {
        Some((_, name)) => text.push(name),
        None => text.put(format_args!("{:#x}", word & 0x7f)),
    }
    text.push(if word & 128 != 0 { "_PRIVATE" } else { "" });
    text.push(if word & 256 != 0 { "|FUTEX_CLOCK_REALTIME" } else { "" });
}

/// The fourth argument of a futex call: a time, or a count.
pub fn futex_time(call: &Call<'_>) -> Kind {
    match call.words[1] & 0x7f {
        0 | 6 | 9 | 11 => Kind::In(spec),
        3 | 4 | 5 | 12 => Kind::Size,
        _ => Kind::Nothing,
    }
}

/// The fifth: another futex.
pub fn futex_second(call: &Call<'_>) -> Kind {
    if matches!(call.words[1] & 0x7f, 3 | 4 | 5 | 9 | 11 | 12) {
        Kind::Pointer
    } else {
        Kind::Nothing
    }
}

/// The sixth: a value or a set of bits.
pub fn futex_value(call: &Call<'_>) -> Kind {
    match call.words[1] & 0x7f {
        4 | 12 => Kind::Int,
        5 => Kind::Hex,
        9 | 10 => Kind::In(bits),
        _ => Kind::Nothing,
    }
}

fn bits(text: &mut Text, call: &Call<'_>, at: usize) {
    text.choice(call.words[at] & 0xffff_ffff, &[(0xffff_ffff, "FUTEX_BITSET_MATCH_ANY")]);
}
