//! Random words without end, made of the few that a slow source gave.
//!
//! ```text
//!   word = SipHash-2-4 (key: two words of the source, how many words were made before)
//! ```
//! A device may give a kilobyte in a second, to the whole machine. Were each word the device's, who
//! asks again and again would have all of them, and have the kernel wait for more.

use core::hash::Hasher;
#[expect(
    deprecated,
    reason = "for hash tables; as a pseudo-random function it is SipHash-2-4, which is what we want"
)]
use core::hash::SipHasher;

/// What makes them.
#[derive(Debug)]
pub struct Generator {
    key: [u64; 2],
    made: u64,
}

impl Generator {
    /// One that begins with this key, which is secret.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key, made: 0 }
    }

    /// The next word: there always is one.
    pub fn word(&mut self) -> u64 {
        let [low, high] = self.key;
        #[expect(deprecated, reason = "see above")]
        let mut hasher = SipHasher::new_with_keys(low, high);
        hasher.write_u64(self.made);
        self.made = self.made.wrapping_add(1);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_differ_and_follow_from_the_key() {
        let words = |key| {
            let mut generator = Generator::new(key);
            (0..10_000).map(|_| generator.word()).collect::<Vec<_>>()
        };
        let first = words([1, 2]);
        assert_eq!(first, words([1, 2]));
        let all: HashSet<_> = first.into_iter().chain(words([1, 3])).chain(words([2, 2])).collect();
        assert_eq!(all.len(), 30_000);
    }
}
