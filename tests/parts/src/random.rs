//! Random words for programs that try a great deal, from a seed.

/// xorshift64 (Marsaglia 2003), from anything but 0.
pub struct Random(pub u64);

impl Random {
    /// Any word but 0.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A word below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.word() % count
    }

    /// True once in so many times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len() as u64) as usize]
    }
}
