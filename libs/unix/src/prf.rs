//! SipHash-2-4 of words: what says under a key that a word was seen before.
//!
//! Who uses it for messages of different lengths has to put the length in, as its authors do.
//! Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.

/// A hash under way.
#[derive(Clone, Copy, Debug)]
pub struct Hash([u64; 4]);

impl Hash {
    /// Of nothing yet, under this key.
    #[inline]
    pub fn new([low, high]: [u64; 2]) -> Self {
        Self([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(self) -> Self {
        let [a, b, c, d] = self.0;
        let (a, c) = (a.wrapping_add(b), c.wrapping_add(d));
        let (b, d) = (b.rotate_left(13) ^ a, d.rotate_left(16) ^ c);
        let (a, c) = (a.rotate_left(32).wrapping_add(d), c.wrapping_add(b));
        let (b, d) = (b.rotate_left(17) ^ c, d.rotate_left(21) ^ a);
        Self([a, b, c.rotate_left(32), d])
    }

    /// With this word behind the others.
    #[inline]
    pub fn with(mut self, word: u64) -> Self {
        self.0[3] ^= word;
        self = self.round().round();
        self.0[0] ^= word;
        self
    }

    /// Of what there is.
    #[inline]
    pub fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        let [a, b, c, d] = self.round().round().round().round().0;
        a ^ b ^ c ^ d
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The authors' test vector: key 00 01 … 0f, message 00 01 … 0e.
    #[test]
    fn it_is_siphash() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let hash = Hash::new(key).with(key[0]).with(key[1] & !(0xff << 56) | 15 << 56);
        assert_eq!(hash.finish(), 0xa129_ca61_49be_45e5);
    }
}
