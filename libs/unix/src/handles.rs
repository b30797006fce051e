//! Handles: the words by which the clients of the memory file server name its files.
//!
//! Inboxes that datagrams are sent to have handles, too; their numbers begin where files' end.
//!
//! A handle is a right, as an open directory is: the server looks at what lies on the way to a file
//! when it tells its handle (`Walk`), and at the file itself at each request. So it must not be
//! guessed. It is the file's number, which all may know (`st_ino` is one more), enciphered under a
//! key of the server's: of 2^63 words some thousands are handles.
//!
//! ```text
//!   handle = Speck64/128 (number), applied again until the result is in 1..2^63
//!   the root directory is 0; words from 2^63 on are no handles and stay as they are
//! ```
//! Speck: Beaulieu et al., "The SIMON and SPECK families of lightweight block ciphers", 2013.

use crate::tree::{Id, ROOT};

/// Rounds of Speck64/128.
const ROUNDS: usize = 27;
/// From here on words are no handles.
const END: u64 = 1 << 63;

/// The key, if the machine has entropy; else handles are the numbers.
#[derive(Debug)]
pub struct Handles {
    keys: Option<[u32; ROUNDS]>,
}

/// The halves of a block.
fn halves(block: u64) -> (u32, u32) {
    ((block >> 32) as u32, block as u32)
}

fn encipher(keys: &[u32; ROUNDS], block: u64) -> u64 {
    let (mut high, mut low) = halves(block);
    for key in keys {
        high = high.rotate_right(8).wrapping_add(low) ^ key;
        low = low.rotate_left(3) ^ high;
    }
    u64::from(high) << 32 | u64::from(low)
}

fn decipher(keys: &[u32; ROUNDS], block: u64) -> u64 {
    let (mut high, mut low) = halves(block);
    for key in keys.iter().rev() {
        low = (low ^ high).rotate_right(3);
        high = (high ^ key).wrapping_sub(low).rotate_left(8);
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The keys of the rounds: the low half of `key`'s first word is the first one's.
fn schedule(key: [u64; 2]) -> [u32; ROUNDS] {
    let mut next = [(key[0] >> 32) as u32, key[1] as u32, (key[1] >> 32) as u32];
    let mut own = key[0] as u32;
    let mut keys = [0; ROUNDS];
    for (round, place) in (0..).zip(&mut keys) {
        *place = own;
        let at = round as usize % next.len();
        next[at] = own.wrapping_add(next[at].rotate_right(8)) ^ round;
        own = own.rotate_left(3) ^ next[at];
    }
    keys
}

fn is_one(word: u64) -> bool {
    word != ROOT && word < END
}

impl Handles {
    /// Those of this key.
    pub fn new(key: Option<[u64; 2]>) -> Self {
        Self { keys: key.map(schedule) }
    }

    /// Both ways: what is no handle comes back by no cipher, whose cycles lead back into the range,
    /// every second step or so.
    fn through(&self, word: u64, cipher: impl Fn(&[u32; ROUNDS], u64) -> u64) -> u64 {
        let Some(keys) = self.keys.as_ref().filter(|_| is_one(word)) else { return word };
        let mut word = cipher(keys, word);
        while !is_one(word) {
            word = cipher(keys, word);
        }
        word
    }

    /// How clients name this file.
    pub fn handle(&self, file: Id) -> u64 {
        self.through(file, encipher)
    }

    /// The file that clients name so; none has the number if it is no handle.
    pub fn file(&self, handle: u64) -> Id {
        self.through(handle, decipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The authors' test vector.
    #[test]
    fn it_is_speck() {
        let keys = schedule([0x0b0a_0908_0302_0100, 0x1b1a_1918_1312_1110]);
        assert_eq!(encipher(&keys, 0x3b72_6574_7475_432d), 0x8c6f_a548_454e_028b);
        assert_eq!(decipher(&keys, 0x8c6f_a548_454e_028b), 0x3b72_6574_7475_432d);
    }

    #[test]
    fn handles_lead_back_and_tell_nothing() {
        let (one, other) = (Handles::new(Some([1, 2])), Handles::new(Some([1, 3])));
        let mut lower = 0;
        for file in (1..2000).chain((1..2000).map(|file| file << 36 | 7)).chain([END - 1]) {
            let handle = one.handle(file);
            assert!(is_one(handle) && handle != file && handle != other.handle(file));
            assert_eq!(one.file(handle), file);
            assert!(one.file(file) >= 1 << 36, "a number is a handle of no file of a small tree");
            lower += u32::from(handle < END / 2);
        }
        assert!((1800..2200).contains(&lower), "{lower}");
        for word in [ROOT, END, END | 5, u64::MAX] {
            assert_eq!((one.handle(word), one.file(word)), (word, word));
        }
        assert_eq!(Handles::new(None).handle(5), 5);
    }
}
