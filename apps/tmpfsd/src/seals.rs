//! Seals: what a file was opened for, as data that its descriptor carries.
//!
//! A request names a file by a handle, which says no more than that its way was open. What `Open`
//! permitted is told to the client as a seal over the number and the rights, under a key that
//! nobody else has; requests to read and write bring it along, and so do children and later
//! programs that inherit the descriptor, whoever they have become. Without a seal the file's mode
//! decides anew.
//!
//! ```text
//!   seal = SipHash-2-4 (key of this server for these rights; node), its low three bits being the
//!          rights
//! ```
//! Messages are of one word, so none has its length in it. Seals that were worked out last are
//! remembered by the file's number, which all may know.

use core::cell::Cell;

use unix::prf::Hash;
use unix::tree::Id;
use xok::call;

/// To read, and to write, as in a mode.
pub const READ: u64 = 4;
pub const WRITE: u64 = 2;
const RIGHTS: u64 = 7;

/// Seals remembered.
const KNOWN: usize = 64;

/// The keys of a PRF.
type Key = [u64; 2];

/// The keys by rights, if the machine has entropy; else there are no seals.
#[derive(Debug)]
pub struct Seals {
    keys: Option<[Key; RIGHTS as usize + 1]>,
    /// Files and seals of theirs; seal 0 is none.
    known: [Cell<(Id, u64)>; KNOWN],
}

/// A fresh key.
pub fn key() -> Option<Key> {
    call::entropy().and_then(|first| Ok([first, call::entropy()?])).ok()
}

impl Seals {
    /// With keys of its own.
    pub fn new() -> Self {
        let mut keys = [[0; 2]; RIGHTS as usize + 1];
        let all = keys.iter_mut().try_for_each(|place| {
            *place = key()?;
            Some(())
        });
        Self { keys: all.map(|()| keys), known: [const { Cell::new((0, 0)) }; KNOWN] }
    }

    /// What says that this file was opened for these rights; 0: nothing.
    #[inline]
    pub fn seal(&self, node: Id, rights: u64) -> u64 {
        let rights = rights & RIGHTS;
        let (file, seal) = self.known[node as usize % KNOWN].get();
        if (file, seal & RIGHTS) == (node, rights) { seal } else { self.reckon(node, rights) }
    }

    fn reckon(&self, node: Id, rights: u64) -> u64 {
        match &self.keys {
            Some(keys) if rights != 0 => {
                let hash = Hash::new(keys[rights as usize]).with(node).finish();
                let seal = hash & !RIGHTS | rights;
                self.known[node as usize % KNOWN].set((node, seal));
                seal
            }
            _ => 0,
        }
    }

    /// Does `seal` say that this file was opened for this?
    #[inline]
    pub fn permits(&self, seal: u64, node: Id, right: u64) -> bool {
        seal & right == right && seal == self.seal(node, seal)
    }
}
