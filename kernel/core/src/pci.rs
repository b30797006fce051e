//! Where the registers of PCI devices go that the firmware has given no address.
//!
//! ```text
//!  4 GiB      interrupt controllers, firmware              taken
//!  FEC0_0000  ──────────────────────────────────────────
//!             registers, placed downwards, each at a       free but for what the
//!             multiple of its length                       firmware placed itself
//!             configuration space, memory                  taken
//!  1 MiB      ──────────────────────────────────────────
//! ```
//! A firmware that only starts a kernel (qboot) leaves base address registers at zero and the
//! placing to the kernel. (PCI Local Bus 3.0 §6.2.5.1.)

/// Ranges of addresses that are known to be taken, at most.
pub const TAKEN: usize = 128;
/// The I/O APICs' addresses begin here on every PC: nothing is placed from here on.
const CEILING: u64 = 0xfec0_0000;
/// Nothing is placed below.
const FLOOR: u64 = 1 << 20;

/// Addresses below 4 GiB that registers may be placed at.
#[derive(Debug)]
pub struct Window {
    /// First addresses and lengths.
    taken: [(u64, u64); TAKEN],
    count: usize,
    /// A range came when the table was full: nobody knows any more what is free.
    full: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self { taken: [(0, 0); TAKEN], count: 0, full: false }
    }
}

impl Window {
    /// `len` bytes from `start` are somebody's.
    pub fn take(&mut self, start: u64, len: u64) {
        match self.taken.get_mut(self.count) {
            _ if len == 0 => {}
            Some(place) => {
                *place = (start, len);
                self.count += 1;
            }
            None => self.full = true,
        }
    }

    /// Takes the highest free place of `len` bytes, a power of two, and answers its address.
    pub fn place(&mut self, len: u64) -> Option<u64> {
        if !len.is_power_of_two() || len > CEILING || self.full {
            return None;
        }
        let mut end = CEILING;
        // Each look that finds somebody goes below him for good.
        for _ in 0..=self.count {
            let start = end.checked_sub(len)? & !(len - 1);
            if start < FLOOR {
                return None;
            }
            match self.lowest_in(start, len) {
                Some(taken) => end = taken.min(start),
                None => {
                    self.take(start, len);
                    return (!self.full).then_some(start);
                }
            }
        }
        None
    }

    /// Where the lowest range begins that shares an address with this one.
    fn lowest_in(&self, start: u64, len: u64) -> Option<u64> {
        let meets =
            |taken: &&(u64, u64)| taken.0 < start + len && start < taken.0.saturating_add(taken.1);
        self.taken[..self.count].iter().filter(meets).map(|taken| taken.0).min()
    }
}

/// The bytes that a base address register asks for, by what it answers after all ones were written
/// to it; `None` for one that is not there.
pub fn length(answer: u32, upper: Option<u32>) -> Option<u64> {
    let upper = upper.unwrap_or(u32::MAX);
    let bits = u64::from(upper) << 32 | u64::from(answer & !0xf);
    let len = (!bits).wrapping_add(1);
    (answer & !0xf != 0 || upper != u32::MAX).then_some(len).filter(|len| len.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::random::Random;

    #[test]
    fn registers_go_below_the_interrupt_controllers_one_below_the_other() {
        let mut window = Window::default();
        assert_eq!(window.place(0x4000), Some(0xfebf_c000));
        assert_eq!(window.place(0x1000), Some(0xfebf_b000));
        assert_eq!(window.place(0x4000), Some(0xfebf_4000));
    }

    #[test]
    fn what_is_taken_is_passed_over() {
        let mut window = Window::default();
        window.take(0, 0x2000_0000);
        window.take(0xb000_0000, 0x1000_0000);
        window.take(0xfebf_e000, 0x1000);
        window.take(0xfebf_0800, 8);
        // Aligned by its length, it would meet the first; below that, the second.
        assert_eq!(window.place(0x8000), Some(0xfebe_8000));
        assert_eq!(window.place(0x1000), Some(0xfebf_f000));
        assert_eq!(window.place(1 << 30), Some(0x4000_0000));
        assert_eq!(window.place(1 << 30), None);
    }

    #[test]
    fn no_two_places_meet_and_none_meets_what_was_taken() {
        let mut random = Random(7);
        let mut next = move |below| random.below(below);
        for _ in 0..2_000 {
            let mut window = Window::default();
            let mut ranges = Vec::new();
            for _ in 0..next(40) {
                let range = (next(0xff0) << 20, next(64 << 20));
                window.take(range.0, range.1);
                ranges.push(range);
            }
            for _ in 0..next(20) {
                let len = 1 << next(29);
                let Some(start) = window.place(len) else { continue };
                assert_eq!(start % len, 0);
                assert!(start >= FLOOR && start + len <= CEILING);
                for (taken, bytes) in &ranges {
                    assert!(start + len <= *taken || taken + bytes <= start || *bytes == 0);
                }
                ranges.push((start, len));
            }
        }
    }

    #[test]
    fn nonsense_gets_no_place() {
        let mut window = Window::default();
        for len in [0, 3, 0x1800, 1 << 32, 1 << 63] {
            assert_eq!(window.place(len), None, "{len:#x}");
        }
        for _ in 0..=TAKEN {
            window.take(0, 1);
        }
        assert_eq!(window.place(0x1000), None, "with a range forgotten");
    }

    #[test]
    fn lengths_are_what_the_register_keeps() {
        assert_eq!(length(0xffff_f000, None), Some(0x1000));
        assert_eq!(length(0xffff_c00c, Some(u32::MAX)), Some(0x4000));
        assert_eq!(length(0x0000_000c, Some(0xffff_fffe)), Some(1 << 33));
        assert_eq!(length(0, None), None);
        assert_eq!(length(0x00f0_0000, None), None);
    }
}
