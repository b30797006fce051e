//! Version words of the memory file server: how its clients know that what they keep still holds.
//!
//! The server's application page, which all may read and it alone writes, has a word for each inode
//! (several inodes may have the same one). It grows with each change of the inode's attributes, of
//! its content or, if it is a directory, of its entries, after the change and before whoever asked
//! for it hears. What a client was told together with a word holds as long as the word is the same
//! (decision 0014).
//!
//! ```text
//!  0x000  magic
//!  0x008  words 1..=510
//!  0xff8  the server's heartbeat, which is no word
//! ```

use crate::tree::Id;

/// First word of the page: "TMPFSVER".
pub const MAGIC: u64 = u64::from_le_bytes(*b"TMPFSVER");
/// Words, numbered from 1.
pub const WORDS: u32 = 510;
/// Inodes that one walk shows at most: a longer one cannot be kept.
pub const SEEN_MAX: usize = 7;

/// Where in a word the life begins: changes below it are more than come about.
const LIFE_SHIFT: u32 = 43;

/// Bits of a packed word that hold its number.
const NUMBER_BITS: u32 = 9;

/// What the words of a server's life begin with: those of two lives never agree.
pub fn first(life: u64) -> u64 {
    life << LIFE_SHIFT
}

/// The number of an inode's word.
pub fn number(node: Id) -> u32 {
    1 + (node as u32) % WORDS
}

/// A word and what it was, as it travels: number | value << 9.
pub fn pack(number: u32, value: u64) -> u64 {
    u64::from(number) | value << NUMBER_BITS
}

/// What [`pack`] packed: the number, and the value as far as it travelled.
pub fn unpack(packed: u64) -> (u32, u64) {
    (packed as u32 & ((1 << NUMBER_BITS) - 1), packed >> NUMBER_BITS)
}

/// Words and what they were when something was looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    words: [u64; SEEN_MAX],
    count: usize,
}

impl Seen {
    /// Adds a packed word; `false`: there is no room.
    pub fn add(&mut self, packed: u64) -> bool {
        let Some(place) = self.words.get_mut(self.count) else { return false };
        *place = packed;
        self.count += 1;
        true
    }

    /// The packed words.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.count.min(SEEN_MAX)]
    }

    /// Without the last one: what was seen on the way there.
    pub fn way(&self) -> &[u64] {
        self.words().split_last().map_or(&[], |(_, way)| way)
    }
}

/// Do all of these still hold? `now` reads the word of a number.
pub fn hold(words: &[u64], now: impl Fn(u32) -> u64) -> bool {
    words.iter().all(|&packed| {
        let (number, value) = unpack(packed);
        value == now(number) << NUMBER_BITS >> NUMBER_BITS
    })
}

const _: () = assert!(WORDS < 1 << NUMBER_BITS && 8 * (WORDS + 2) == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_holds_until_one_word_moves() {
        let mut words = [0u64; WORDS as usize + 1];
        words[3] = u64::MAX;
        words[510] = 5;
        let mut seen = Seen::default();
        for number in [3, 510] {
            assert!(seen.add(pack(number, words[number as usize])));
        }
        let now = |words: [u64; WORDS as usize + 1]| move |number| words[number as usize];
        assert!(hold(seen.words(), now(words)));
        words[510] = 6;
        assert!(!hold(seen.words(), now(words)));
        assert!(hold(seen.way(), now(words)), "the way there is the same");
        for _ in 2..SEEN_MAX {
            assert!(seen.add(0));
        }
        assert!(!seen.add(0));
    }

    #[test]
    fn every_inode_has_a_word_behind_the_magic() {
        for node in [0, 1, 509, 510, 1 << 40 | 1022, u64::MAX] {
            assert!((1..=WORDS).contains(&number(node)));
        }
        assert_eq!(unpack(pack(510, 77)), (510, 77));
    }
}
