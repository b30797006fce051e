//! Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).

/// Bytes of a date.
pub const DATE: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const SECONDS_PER_DAY: u64 = 86_400;
/// Days of 400 years: the calendar repeats after them.
const CYCLE: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: u64 = 719_468;
/// Days from 1 March to the first of each month from March on.
const MONTH_STARTS: [u64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];

/// Writes the date of `seconds` since 1970 into `out`; years beyond 9999 are taken for 9999.
pub fn write_date(seconds: u64, out: &mut [u8; DATE]) {
    let days = (seconds / SECONDS_PER_DAY).min(2_932_896);
    let time = seconds % SECONDS_PER_DAY;
    let (year, month, day) = civil(days);
    out.copy_from_slice(b"Xxx, 00 Xxx 0000 00:00:00 GMT");
    out[0..3].copy_from_slice(DAYS[(days % 7) as usize]);
    put(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[month]);
    put(&mut out[12..16], year);
    put(&mut out[17..19], time / 3600);
    put(&mut out[20..22], time / 60 % 60);
    put(&mut out[23..25], time % 60);
}

/// Year, month from 0, and day from 1 of a day since 1970, counted in years that begin in March so
/// that a leap day is the last day of its year.
fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + EPOCH;
    let in_cycle = days % CYCLE;
    let leaps = in_cycle / 1460 - in_cycle / 36_524 + in_cycle / 146_096;
    let year_in_cycle = (in_cycle - leaps) / 365;
    let in_year = in_cycle - (365 * year_in_cycle + year_in_cycle / 4 - year_in_cycle / 100);
    let from_march = MONTH_STARTS.iter().rposition(|start| *start <= in_year).unwrap_or(0);
    let day = in_year - MONTH_STARTS[from_march] + 1;
    let next_year = u64::from(from_march >= 10);
    (days / CYCLE * 400 + year_in_cycle + next_year, (from_march + 2) % 12, day)
}

fn put(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (seconds, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
        ] {
            let mut out = [0; DATE];
            write_date(seconds, &mut out);
            assert_eq!(core::str::from_utf8(&out), Ok(expected));
        }
    }

    #[test]
    fn every_day_follows_the_last_one() {
        let mut last = (1969, 11, 31);
        for days in 0..200_000 {
            let (year, month, day) = civil(days);
            let next_day = (year, month, day) == (last.0, last.1, last.2 + 1);
            let next_month = (year, month, day) == (last.0, last.1 + 1, 1);
            let next_year = (year, month, day, last.1) == (last.0 + 1, 0, 1, 11);
            assert!(next_day || (next_month && last.2 >= 28) || next_year, "{days}");
            assert!(day <= 31);
            last = (year, month, day);
        }
    }
}
