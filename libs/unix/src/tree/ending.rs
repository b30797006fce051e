//! The ends of inodes: those without names wait in a queue until nobody holds them.

use crate::attributes::Attributes;
use crate::map::Map;

use super::owners::Going;
use super::{
    BLOCKS, Body, GENERATION_BITS, INDEX_BITS, Id, Inode, LIFE_BITS, LIVES, NOWHERE, Nameless,
    ROOT, Tree,
};

/// Directories above each other that are looked at on the way to what has lost its names.
const WAY_MAX: usize = 64;

/// How an inode could be found before it lost its names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastWay {
    /// The directory that it lost a name of last.
    directory: Id,
    /// It has lost a name that everybody could find.
    was_public: bool,
}

impl Tree {
    /// An inode loses a name in this directory.
    pub(super) fn loses_name(&mut self, id: Id, directory: Id) {
        let is_public = self.is_found(directory, |above| above.mode & 1 != 0);
        if let Ok(inode) = self.inode_unseen(id) {
            let was_public = inode.way.was_public || is_public;
            inode.way = LastWay { directory, was_public };
        }
    }

    /// Is all searched that leads to this directory, and it itself?
    fn is_found(&self, directory: Id, mut may_search: impl FnMut(&Attributes) -> bool) -> bool {
        let mut at = directory;
        for _ in 0..WAY_MAX {
            let (Ok(inode), Ok(above)) = (self.inode(at), self.directory(at)) else { return false };
            if !may_search(&inode.attributes) {
                return false;
            }
            if at == ROOT {
                return true;
            }
            at = above.parent;
        }
        false
    }

    /// Could an inode without names be found before it lost them, by who may search directories as
    /// this says? By the names that it has lost and the modes of directories as they are now.
    pub fn could_be_found(&self, id: Id, may_search: impl FnMut(&Attributes) -> bool) -> bool {
        self.inode(id).is_ok_and(|inode| {
            inode.way.was_public || self.is_found(inode.way.directory, may_search)
        })
    }

    /// Looks whether an inode has lost its last name or its last holder.
    pub(super) fn collect(&mut self, id: Id) {
        let look = self.nameless.look;
        let Ok(inode) = self.inode_unseen(id) else { return };
        if inode.attributes.links > 0 {
            return;
        }
        inode.stays = look;
        let (held, was_orphan) = (inode.holders > 0, inode.orphan);
        let (listed, user) = (inode.listed, inode.attributes.uid);
        inode.orphan = held;
        inode.listed |= !held;
        self.orphans = self.orphans + u64::from(held) - u64::from(was_orphan);
        if !held && !listed {
            self.owners.list(user);
            self.queue(Self::index(id));
        }
    }

    /// Puts a slot at the end of the nameless ones.
    fn queue(&mut self, index: u32) {
        let last = core::mem::replace(&mut self.nameless.last, index);
        match self.slot_mut(last) {
            Some(slot) => slot.next = index,
            None => self.nameless.first = index,
        }
        self.nameless.count += 1;
    }

    /// The first of the nameless ones.
    fn unqueue(&mut self) -> Option<Id> {
        let index = self.nameless.first;
        let slot = self.slot_mut(index)?;
        let next = core::mem::replace(&mut slot.next, NOWHERE);
        let id = slot.tag << INDEX_BITS | u64::from(index);
        if let Some(inode) = &mut slot.inode {
            inode.listed = false;
        }
        self.nameless.first = next;
        if next == NOWHERE {
            self.nameless.last = NOWHERE;
        }
        self.nameless.count -= 1;
        Some(id)
    }

    /// How many inodes have neither names nor holders that the tree knows.
    pub fn nameless(&self) -> usize {
        self.nameless.count
    }

    /// From now on somebody looks who says that he holds what.
    pub fn begin_look(&mut self) {
        self.nameless.look += 1;
        self.nameless.left = 0;
    }

    /// Is this one of those that end with the look that goes on, unless they are noted?
    pub fn is_in_doubt(&self, id: Id) -> bool {
        let stays = |inode: &Inode| inode.stays >= self.nameless.look;
        let nameless = |inode: &&Inode| inode.attributes.links == 0 && inode.holders == 0;
        self.inode(id).ok().filter(nameless).is_some_and(|inode| !stays(inode))
    }

    /// Notes that somebody holds it: this look does not end it.
    pub fn note_held(&mut self, id: Id) {
        let look = self.nameless.look;
        if let Ok(inode) = self.inode_unseen(id) {
            inode.stays = look;
        }
    }

    /// The look is done: what `settle` finds without a note ends.
    pub fn end_look(&mut self) {
        self.nameless.left = self.nameless.count;
    }

    /// Ends inodes that had neither names nor holders when the look began and were not noted by it,
    /// but for those of users that are `spared`. Goes through so many at `most`; are there more?
    pub fn settle(&mut self, most: usize, spared: impl Fn(u32) -> bool) -> bool {
        let look = self.nameless.look;
        let count = self.nameless.left.min(most);
        self.nameless.left -= count;
        for _ in 0..count {
            let Some(id) = self.unqueue() else { break };
            let Ok(inode) = self.inode(id) else { continue };
            let (user, stays, held) = (inode.attributes.uid, inode.stays, inode.holders > 0);
            self.owners.unlist(user);
            let spared = stays < look && spared(user);
            if held {
                // Its release is noticed; so is the end of all that hold it.
                let nameless = |inode: &&mut Inode| inode.attributes.links == 0 && !inode.orphan;
                if let Some(inode) = self.inode_unseen(id).ok().filter(nameless) {
                    inode.orphan = true;
                    self.orphans += 1;
                }
            } else if stays >= look || spared {
                if let Ok(inode) = self.inode_unseen(id) {
                    inode.listed = true;
                }
                self.owners.list(user);
                if let Some(going) = self.owners.going_mut(user).filter(|_| spared) {
                    going.spared = look;
                }
                self.queue(Self::index(id));
            } else {
                self.end(id);
            }
        }
        if self.nameless.left == 0 {
            self.nameless.settled = look;
        }
        self.nameless.left > 0
    }

    /// The look behind which files without names have ended that were held by no process when this
    /// was asked with 0; what it answered then, it answers again.
    pub(super) fn look_asked_about(&self, since: u64) -> u64 {
        if since == 0 { self.nameless.look + 1 } else { since }
    }

    /// That look, or the next one if it spared some of the user's; `None`: they have ended, or are
    /// open.
    pub(super) fn look_to_come(&self, going: Going, last: u64) -> Option<u64> {
        let Nameless { look, settled, .. } = self.nameless;
        match going.nameless > 0 && settled < last {
            true => Some(last),
            false => (going.nameless > 0 && going.spared >= last).then_some(look + 1),
        }
    }

    /// Ends an inode, which is in no list.
    pub(super) fn end(&mut self, id: Id) {
        let Ok(inode) = self.inode(id) else { return };
        let (user, pages) = (inode.attributes.uid, inode.attributes.blocks / BLOCKS);
        self.inodes -= 1;
        let (index, free) = (Self::index(id), self.free);
        let Some(slot) = self.slot_mut(index) else { return };
        let inode = slot.inode.take();
        let generation = (slot.tag >> LIFE_BITS) + 1;
        slot.tag = generation << LIFE_BITS | slot.tag & (LIVES - 1);
        // A slot whose generations are used up is not used again.
        if generation < 1 << GENERATION_BITS {
            slot.next = free;
            self.free = index;
        }
        let (cut, shown) = match inode {
            Some(Inode { body: Body::File(pages), shown, .. }) => (pages, shown),
            _ => (Map::default(), false),
        };
        self.part_with(user, pages, cut, shown);
        self.owners.remove(user, 0);
    }
}
