//! Seals: what a file was opened for, as data that its descriptor carries, and for whom.
//!
//! A request names a file by a handle, which says no more than that its way was open. What the
//! memory file server permitted when the file was looked up or opened is told to the client as a
//! seal under keys that nobody else has. Requests to read and write bring it along; without one the
//! file's mode decides anew. A seal lies in its owner's memory, where later programs, children
//! and others of its user may find it. So it is over the asker, too:
//!
//! ```text
//!   asker = SipHash-2-4 (key; which of these, domain, user and group, count of holdings)
//!     0   domain, user, group           while the domain acts for that user and that group
//!     1   domain, user, group, count    a further group made the difference: while nothing changes
//!     2   user, group                   whoever acts for these, in whatever domain
//!   seal  = SipHash-2-4 (key for these four bits; file, asker), its low four bits being
//!           1 and 8: which asker;  2 write, 4 read, as in a mode
//! ```
//! The kernel has said for whom the domain acts before a seal is looked at. Who has given a user up
//! has no use of what that one was told; domains never come again. Who is about to change its ids,
//! or makes another domain, has the server turn the seals of what is open into others
//! (`protocol::Operation::Seal`). Docs: decision 0049.
//!
//! Messages are of constant length, so none has its length in it. Seals that were worked out last
//! are remembered.

use core::cell::Cell;

use crate::attributes::{Attributes, Credentials};
use crate::prf::Hash;
use crate::tree::Id;

/// To read, and to write, as in a mode.
pub const READ: u64 = 4;
/// See [`READ`].
pub const WRITE: u64 = 2;
/// Good while the domain's count of changes to what it holds stands still.
pub const SETTLED: u64 = 1;
/// Good for whoever acts for the user and the group.
pub const ANYBODY: u64 = 8;
/// What says which seal it is.
const KIND: u64 = 15;
/// Keys: one for each kind, and that of the askers.
const KEYS: usize = KIND as usize + 2;
/// Seals remembered.
const KNOWN: usize = 64;

/// The keys of a PRF.
type Key = [u64; 2];

/// For whom a request is made, as the kernel has confirmed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    own: u64,
    settled: u64,
    anybody: u64,
}

/// A file, the asker, and the seal; seal 0 is none.
type Known = (Id, u64, u64);

/// The keys, if the machine has entropy; else there are no seals.
#[derive(Debug)]
pub struct Seals {
    keys: Option<[Key; KEYS]>,
    known: [Cell<Known>; KNOWN],
}

/// Both ids in a word.
pub fn ids(user: u32, group: u32) -> u64 {
    u64::from(user) | u64::from(group) << 32
}

impl Seals {
    /// With keys of its own.
    pub fn new(mut key: impl FnMut() -> Option<Key>) -> Self {
        let mut keys = [[0; 2]; KEYS];
        let all = keys.iter_mut().try_for_each(|place| {
            *place = key()?;
            Some(())
        });
        Self { keys: all.map(|()| keys), known: [const { Cell::new((0, 0, 0)) }; KNOWN] }
    }

    fn word(&self, words: [u64; 4]) -> u64 {
        let Some(keys) = &self.keys else { return 0 };
        words.into_iter().fold(Hash::new(keys[KEYS - 1]), Hash::with).finish()
    }

    /// A domain that acts for `ids`, with that count of changes to what it holds.
    pub fn asker(&self, domain: u64, ids: u64, holdings: u64) -> Asker {
        Asker {
            own: self.word([0, domain, ids, 0]),
            settled: self.word([1, domain, ids, holdings]),
            anybody: self.word([2, 0, ids, 0]),
        }
    }

    /// What says that the asker may do this with the file (`rights` and its kind); 0: nothing.
    #[inline]
    pub fn seal(&self, asker: &Asker, node: Id, rights: u64) -> u64 {
        let kind = rights & KIND;
        let who = match kind & (SETTLED | ANYBODY) {
            0 => asker.own,
            SETTLED => asker.settled,
            _ => asker.anybody,
        };
        let (file, asked, seal) = self.known[(node ^ who) as usize % KNOWN].get();
        if (file, asked, seal & KIND) == (node, who, kind) {
            return seal;
        }
        self.reckon(who, node, kind)
    }

    fn reckon(&self, who: u64, node: Id, kind: u64) -> u64 {
        match &self.keys {
            Some(keys) if kind & (READ | WRITE) != 0 => {
                let hash = Hash::new(keys[kind as usize]).with(node).with(who).finish();
                let seal = hash & !KIND | kind;
                self.known[(node ^ who) as usize % KNOWN].set((node, who, seal));
                seal
            }
            _ => 0,
        }
    }

    /// The same for what its mode permits: of what `mask` says and `who` may. A right that one of
    /// its further groups gives is good while it has all of them.
    #[inline]
    pub fn permitted(
        &self,
        asker: &Asker,
        (node, attributes): (Id, &Attributes),
        who: &Credentials,
        mask: u64,
    ) -> u64 {
        let may = |who: &Credentials| {
            let may = |right: u64| if attributes.permits(who, right as u32) { right } else { 0 };
            (may(READ) | may(WRITE)) & mask
        };
        let rights = may(who);
        let alone =
            who.more.is_none() || may(&Credentials::of(who.uid, who.gid)) & rights == rights;
        self.seal(asker, node, if alone { rights } else { rights | SETTLED })
    }

    /// Does `seal` say that the asker has this file open for this?
    #[inline]
    pub fn permits(&self, asker: &Asker, seal: u64, node: Id, right: u64) -> bool {
        seal & right == right && seal == self.seal(asker, node, seal)
    }

    /// What says to another asker what `seal` says to this one; `None` if that is nothing. The
    /// other one is a domain, or 0: whoever acts for `ids`.
    pub fn pass(
        &self,
        asker: &Asker,
        seal: u64,
        node: Id,
        (domain, ids): (u64, u64),
    ) -> Option<u64> {
        let rights = seal & (READ | WRITE);
        if rights == 0 || !self.permits(asker, seal, node, rights) {
            return None;
        }
        let kind = if domain == 0 { ANYBODY } else { 0 };
        // Its count makes no difference: the seal is good whatever groups it has.
        Some(self.seal(&self.asker(domain, ids, 0), node, rights | kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Membership;

    const FILE: Id = 7 << 36 | 5;
    const ROOT: u64 = 0;
    const ANN: u64 = 1000 | 100 << 32;

    fn seals() -> Seals {
        let mut next = 0;
        Seals::new(|| {
            next += 1;
            Some([next, !next])
        })
    }

    #[test]
    fn a_seal_is_one_askers() {
        let seals = seals();
        let root = seals.asker(3, ROOT, 9);
        let seal = seals.seal(&root, FILE, READ | WRITE);
        assert!(seals.permits(&root, seal, FILE, READ) && seals.permits(&root, seal, FILE, WRITE));
        // Whatever changes of what it holds: it is that user still.
        assert!(seals.permits(&seals.asker(3, ROOT, 10), seal, FILE, WRITE));
        let others = [
            seals.asker(3, ANN, 9),
            seals.asker(3, ids(0, 100), 9),
            seals.asker(3 | 1 << 32, ROOT, 9),
            seals.asker(4, ROOT, 9),
        ];
        for other in &others {
            assert!(!seals.permits(other, seal, FILE, READ), "{other:?}");
            assert_eq!(seals.pass(other, seal, FILE, (4, ANN)), None);
        }
        assert!(!seals.permits(&root, seal, FILE + 1, READ));
        for bit in 0..64 {
            assert!(!seals.permits(&root, seal ^ 1 << bit, FILE, READ), "bit {bit}");
        }
    }

    #[test]
    fn a_seal_says_no_more_than_it_was_given_for() {
        let seals = seals();
        let root = seals.asker(3, ROOT, 9);
        let seal = seals.seal(&root, FILE, READ);
        assert!(seals.permits(&root, seal, FILE, READ) && !seals.permits(&root, seal, FILE, WRITE));
        let passed = seals.pass(&root, seal, FILE, (3, ANN)).unwrap();
        let ann = seals.asker(3, ANN, 12);
        assert!(seals.permits(&ann, passed, FILE, READ));
        assert!(
            !seals.permits(&ann, passed, FILE, WRITE) && !seals.permits(&root, passed, FILE, READ)
        );
        assert_eq!(seals.seal(&root, FILE, 0), 0);
        assert!(
            !seals.permits(&root, 0, FILE, READ) && seals.pass(&root, 0, FILE, (3, ANN)).is_none()
        );
    }

    #[test]
    fn seals_are_passed_on_by_those_who_have_them() {
        let seals = seals();
        let (parent, child) = (seals.asker(3, ANN, 9), seals.asker(8, ANN, 1));
        let seal = seals.seal(&parent, FILE, WRITE);
        let passed = seals.pass(&parent, seal, FILE, (8, ANN)).unwrap();
        assert!(
            seals.permits(&child, passed, FILE, WRITE) && !seals.permits(&child, seal, FILE, WRITE)
        );
        assert!(!seals.permits(&parent, passed, FILE, WRITE));
        let anybody = seals.pass(&parent, seal, FILE, (0, ROOT)).unwrap();
        for domain in [3, 8, 9] {
            assert!(seals.permits(&seals.asker(domain, ROOT, 2), anybody, FILE, WRITE));
            assert!(!seals.permits(&seals.asker(domain, ANN, 2), anybody, FILE, WRITE));
        }
    }

    #[test]
    fn what_a_further_group_gives_ends_with_the_set() {
        let seals = seals();
        let attributes = |mode| Attributes { mode, uid: 0, gid: 27, ..Attributes::default() };
        let more = Some(Membership { of: 0, asks: |_, group| group == 27 });
        let who = Credentials { more, ..Credentials::of(1000, 100) };
        let (before, after) = (seals.asker(3, ANN, 9), seals.asker(3, ANN, 10));
        let seal = seals.permitted(&before, (FILE, &attributes(0o660)), &who, READ | WRITE);
        assert!(
            seals.permits(&before, seal, FILE, WRITE) && !seals.permits(&after, seal, FILE, READ)
        );
        // What was opened by it stays open.
        let passed = seals.pass(&before, seal, FILE, (3, ANN)).unwrap();
        assert!(seals.permits(&after, passed, FILE, WRITE));
        assert_eq!(seals.pass(&after, seal, FILE, (3, ANN)), None);
        // Where everybody may, the group makes no difference.
        let seal = seals.permitted(&before, (FILE, &attributes(0o666)), &who, READ | WRITE);
        assert!(seals.permits(&after, seal, FILE, WRITE));
        let seal = seals.permitted(&before, (FILE, &attributes(0o600)), &who, READ | WRITE);
        assert_eq!(seal, 0);
    }

    #[test]
    fn what_is_remembered_is_so() {
        let seals = seals();
        for step in 0..5000_u64 {
            let asker = seals.asker(step % 5, step % 3, 1);
            let (node, kind) = (step * 31 % 17, [2, 4, 6, 3, 12][(step % 5) as usize]);
            let seal = seals.seal(&asker, node, kind);
            let fresh = self::seals();
            assert_eq!(seal, fresh.seal(&fresh.asker(step % 5, step % 3, 1), node, kind));
        }
    }

    #[test]
    fn without_entropy_there_are_none() {
        let seals = Seals::new(|| None);
        let root = seals.asker(3, ROOT, 9);
        assert_eq!(seals.seal(&root, FILE, READ), 0);
        assert!(!seals.permits(&root, READ, FILE, READ));
    }
}
