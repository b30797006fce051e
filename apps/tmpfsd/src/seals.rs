//! Seals: what a file was opened for, as data that its descriptor carries.
//!
//! A request names a file by a handle, which says no more than that its way was open. What `Open`
//! permitted is told to the client as a seal over the number and the rights, under a key that
//! nobody else has; requests to read and write bring it along, and so do children and later
//! programs that inherit the descriptor, whoever they have become. Without a seal the file's mode
//! decides anew.
//!
//! ```text
//!   seal = SipHash-2-4 (key of this server; node, rights), its low three bits being the rights
//! ```

use core::hash::Hasher;
#[expect(
    deprecated,
    reason = "for hash tables; as a seal it is SipHash-2-4, which is what we want"
)]
use core::hash::SipHasher;

use unix::tree::Id;
use xok::call;

/// To read, and to write, as in a mode.
pub const READ: u64 = 4;
pub const WRITE: u64 = 2;
const RIGHTS: u64 = 7;

/// The key, if the machine has entropy; else there are no seals.
#[derive(Debug)]
pub struct Seals {
    key: Option<[u64; 2]>,
}

/// A fresh key.
pub fn key() -> Option<[u64; 2]> {
    call::entropy().and_then(|first| Ok([first, call::entropy()?])).ok()
}

impl Seals {
    /// With a key of its own.
    pub fn new() -> Self {
        Self { key: key() }
    }

    /// What says that this file was opened for these rights; 0: nothing.
    pub fn seal(&self, node: Id, rights: u64) -> u64 {
        match self.key {
            Some([low, high]) if rights & RIGHTS != 0 => {
                #[expect(deprecated, reason = "see above")]
                let mut hasher = SipHasher::new_with_keys(low, high);
                hasher.write_u64(node);
                hasher.write_u64(rights & RIGHTS);
                hasher.finish() & !RIGHTS | rights & RIGHTS
            }
            _ => 0,
        }
    }

    /// Does `seal` say that this file was opened for this?
    pub fn permits(&self, seal: u64, node: Id, right: u64) -> bool {
        seal & right == right && seal == self.seal(node, seal)
    }
}
