//! A seeded generator for the tests that mutate: splitmix64, so that a failure can be repeated.

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Changes one to four bytes, mostly to the values that break things.
    pub(crate) fn mutate(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            bytes[at] = match self.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << self.below(8)),
                _ => self.next() as u8,
            };
        }
    }
}
