//! Who asks with which seals: one request's view of them (`unix::seals`).

use unix::Errno;
use unix::attributes::{Attributes, Credentials};
use unix::seals;
use unix::tree::{Id, Tree};
use xok::call;

pub use unix::seals::{READ, WRITE};

/// A fresh key.
pub fn key() -> Option<[u64; 2]> {
    call::entropy().and_then(|first| Ok([first, call::entropy()?])).ok()
}

/// The seals of an asker.
#[derive(Clone, Copy, Debug)]
pub struct Seals<'a> {
    /// Of all.
    pub all: &'a seals::Seals,
    /// Whose.
    pub asker: seals::Asker,
}

impl Seals<'_> {
    /// Of what it has made: it may do with that what it likes, whatever mode it gives it (open(2)).
    pub fn made(&self, node: Id) -> u64 {
        self.all.seal(&self.asker, node, READ | WRITE)
    }

    /// Of what its mode permits of this.
    pub fn permitted(&self, node: (Id, &Attributes), who: &Credentials, mask: u64) -> u64 {
        self.all.permitted(&self.asker, node, who, mask)
    }

    /// Does the seal say that the asker has this file open for this?
    #[inline]
    pub fn permits(&self, seal: u64, node: Id, right: u64) -> bool {
        self.all.permits(&self.asker, seal, node, right)
    }

    /// Was the file opened for this, or does its mode permit it now?
    pub fn check(
        &self,
        tree: &Tree,
        who: &Credentials,
        (node, seal): (Id, u64),
        right: u64,
    ) -> Result<(), Errno> {
        if self.permits(seal, node, right) { Ok(()) } else { tree.check(node, who, right as u32) }
    }

    /// Serves `Seal`: node, seal, the other asker.
    pub fn pass(&self, [node, seal, domain, ids]: [u64; 4]) -> Result<[u64; 4], Errno> {
        let passed = self.all.pass(&self.asker, seal, node, (domain, ids));
        Ok([passed.ok_or(Errno::EACCES)?, 0, 0, 0])
    }
}
