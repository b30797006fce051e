//! Handles: the words by which the clients of the memory file server name its files.
//!
//! Inboxes that datagrams are sent to have handles, too; their numbers begin where files' end.
//!
//! A handle is a right, as an open directory is: the server looks at what lies on the way to a file
//! when it tells its handle (`Walk`), and at the file itself at each request. So it must not be
//! guessed. It is the file's number, which all may know (`st_ino` is one more), enciphered under a
//! key of the server's: of 2^64 words some thousands are handles.
//!
//! ```text
//!   handle = Speck64/128 (number), applied again until the result is no word of these:
//!   the root directory is 0; the last 2^32 words are no handles and stay as they are
//! ```
//! Speck: Beaulieu et al., "The SIMON and SPECK families of lightweight block ciphers", 2013.
//!
//! What each client has named last is remembered, by client and not by handle: how long an answer
//! takes tells others nothing of the handles that a client has.

use crate::protocol::OF_IMAGE;
use crate::tree::{self, Id, ROOT};

/// Numbers of inboxes begin here. A seal is over a number alone: no file may have an inbox's.
const INBOXES: u64 = 1 << 63;

/// Rounds of Speck64/128.
const ROUNDS: usize = 27;
/// From here on words are no handles.
const END: u64 = OF_IMAGE;
/// Clients whose handles are remembered; those with the same remainder share the place.
const CLIENTS: usize = 128;
/// Handles remembered of each.
const RECENT: usize = 4;

const _: () = assert!(tree::END <= INBOXES && INBOXES < END);

/// The key, if the machine has entropy; else handles are the numbers.
#[derive(Debug)]
pub struct Handles {
    keys: Option<[u32; ROUNDS]>,
    /// Handles and files, by client, the last ones first.
    recent: [[(u64, Id); RECENT]; CLIENTS],
}

/// The halves of a block.
fn halves(block: u64) -> (u32, u32) {
    ((block >> 32) as u32, block as u32)
}

#[inline]
fn encipher(keys: &[u32; ROUNDS], block: u64) -> u64 {
    let (mut high, mut low) = halves(block);
    for key in keys {
        high = high.rotate_right(8).wrapping_add(low) ^ key;
        low = low.rotate_left(3) ^ high;
    }
    u64::from(high) << 32 | u64::from(low)
}

#[inline]
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

/// The number of the inbox that is the `count`th of all that there have been.
pub fn inbox(count: u64) -> u64 {
    INBOXES | count
}

fn is_one(word: u64) -> bool {
    word != ROOT && word < END
}

impl Handles {
    /// Those of this key.
    pub fn new(key: Option<[u64; 2]>) -> Self {
        // That the root is 0 is always true.
        Self { keys: key.map(schedule), recent: [[(ROOT, ROOT); RECENT]; CLIENTS] }
    }

    /// Both ways: what is no handle comes back by no cipher, whose cycles lead back into the range,
    /// nearly always at once.
    #[inline]
    fn through(&self, word: u64, cipher: impl Fn(&[u32; ROUNDS], u64) -> u64) -> u64 {
        let Some(keys) = self.keys.as_ref().filter(|_| is_one(word)) else { return word };
        let mut word = cipher(keys, word);
        while !is_one(word) {
            word = cipher(keys, word);
        }
        word
    }

    /// How this client, and every other, names this file.
    pub fn handle(&mut self, client: usize, file: Id) -> u64 {
        let recent = &self.recent[client % CLIENTS];
        if let Some((handle, _)) = recent.iter().find(|(_, known)| *known == file) {
            return *handle;
        }
        let handle = self.through(file, encipher);
        self.note(client, (handle, file))
    }

    /// The file that clients name so; none has the number if it is no handle.
    #[inline]
    pub fn file(&mut self, client: usize, handle: u64) -> Id {
        let recent = &self.recent[client % CLIENTS];
        match recent.iter().find(|(known, _)| *known == handle) {
            Some((_, file)) => *file,
            None => self.decipher(client, handle),
        }
    }

    fn decipher(&mut self, client: usize, handle: u64) -> Id {
        let file = self.through(handle, decipher);
        self.note(client, (handle, file));
        file
    }

    /// Remembers it first; its handle.
    fn note(&mut self, client: usize, known: (u64, Id)) -> u64 {
        let recent = &mut self.recent[client % CLIENTS];
        recent.copy_within(..RECENT - 1, 1);
        recent[0] = known;
        known.0
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
        let (mut one, mut other) = (Handles::new(Some([1, 2])), Handles::new(Some([1, 3])));
        let mut lower = 0;
        for file in (1..2000).chain((1..2000).map(|file| file << 36 | 7)).chain([END - 1]) {
            let handle = one.handle(0, file);
            assert!(is_one(handle) && handle != file && handle != other.handle(0, file));
            assert_eq!(one.file(1, handle), file);
            let named = one.file(0, file);
            assert!(named >= 1 << 36, "a number is a handle of no file of a small tree");
            lower += u32::from(handle < END / 2);
        }
        assert!((1800..2200).contains(&lower), "{lower}");
        for word in [ROOT, END, END | 5, u64::MAX] {
            assert_eq!((one.handle(0, word), one.file(0, word)), (word, word));
        }
        assert_eq!(Handles::new(None).handle(0, 5), 5);
    }

    /// Whatever is remembered, of whichever clients: the answers are the cipher's.
    #[test]
    fn what_is_remembered_is_so() {
        let mut handles = Handles::new(Some([7, 9]));
        for step in 0..5000_u64 {
            let client = (step * step % 7) as usize * (CLIENTS - 1);
            let file = step * 31 % 11 + 1;
            let handle = handles.through(file, encipher);
            if step % 3 == 0 {
                assert_eq!(handles.handle(client, file), handle);
            } else {
                assert_eq!(handles.file(client, handle), file);
                assert_eq!(handles.file(client, file), handles.through(file, decipher));
            }
        }
    }
}
