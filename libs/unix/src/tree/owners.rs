//! Who owns how much of a tree: no user but user 0 may have more than half of it.
//!
//! What a user has is charged to the owner of the file, as quotas are (quotactl(2)): whoever writes
//! into another one's file uses up that one's part, which permissions allow or forbid. A name is
//! charged to the user that made it, whoever has the file, and wherever it is moved: a directory
//! may be everybody's, and a file that all may write may be linked by all. Of names there may be as
//! many as of inodes. What user 0 has is not counted, as nothing depends on it; what it has
//! given up is, as it waits for that.

use super::{Id, Limits, Tree};
use crate::errno::Errno;
use crate::map::Map;

/// What one user's files take.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    pages: u64,
    inodes: u64,
    names: u64,
    /// Pages that are being taken back from others, of those above.
    taken: usize,
    going: Going,
}

/// What a user has given up and still has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Going {
    /// Pages that have left their files, and that others may see.
    pub(super) leaving: u64,
    /// Inodes without names and holders that the tree knows.
    pub(super) nameless: u64,
    /// The last look that spared some of these.
    pub(super) spared: u64,
}

/// What a user may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) pages: u64,
    pub(super) inodes: u64,
    pub(super) names: u64,
}

/// What files take, by user.
#[derive(Debug, Default)]
pub(super) struct Owners {
    all: Map<Owned>,
    /// User 0's.
    going: Going,
}

/// Does it matter how much this user has?
fn is_counted(user: u32) -> bool {
    user != 0
}

impl Owners {
    fn of(&self, user: u32) -> Owned {
        self.all.get(user.into()).copied().unwrap_or_default()
    }

    /// What the user has, to be added to, if it is counted; `ENOSPC`, and nothing has changed.
    fn entry(&mut self, user: u32) -> Result<Option<&mut Owned>, Errno> {
        if !is_counted(user) {
            return Ok(None);
        }
        if self.all.get(user.into()).is_none() {
            self.all.insert(user.into(), Owned::default())?;
        }
        Ok(self.all.get_mut(user.into()))
    }

    /// Takes from what the user has; one who has nothing any more is forgotten.
    fn less(&mut self, user: u32, take: impl FnOnce(&mut Owned)) {
        if !is_counted(user) {
            return;
        }
        let Some(owned) = self.all.get_mut(user.into()) else { return };
        take(owned);
        if owned.inodes == 0 && owned.names == 0 && owned.pages == 0 {
            self.all.remove(user.into());
        }
    }

    /// One more inode of the user's; `ENOSPC`, and nothing has changed.
    pub(super) fn add(&mut self, user: u32) -> Result<(), Errno> {
        if let Some(owned) = self.entry(user)? {
            owned.inodes += 1;
        }
        Ok(())
    }

    /// One more name; `ENOSPC`, and nothing has changed.
    pub(super) fn add_name(&mut self, user: u32) -> Result<(), Errno> {
        if let Some(owned) = self.entry(user)? {
            owned.names += 1;
        }
        Ok(())
    }

    /// One name less.
    pub(super) fn remove_name(&mut self, user: u32) {
        self.less(user, |owned| owned.names = owned.names.saturating_sub(1));
    }

    /// More pages of one who has an inode.
    pub(super) fn grow(&mut self, user: u32, pages: u64) {
        if pages > 0
            && is_counted(user)
            && let Some(owned) = self.all.get_mut(user.into())
        {
            owned.pages += pages;
        }
    }

    /// Fewer pages.
    pub(super) fn shrink(&mut self, user: u32, pages: u64) {
        self.less(user, |owned| owned.pages = owned.pages.saturating_sub(pages));
    }

    /// What the user has given up.
    fn going(&self, user: u32) -> Going {
        if is_counted(user) { self.of(user).going } else { self.going }
    }

    /// The same, to be changed, of one who has something.
    pub(super) fn going_mut(&mut self, user: u32) -> Option<&mut Going> {
        match is_counted(user) {
            true => self.all.get_mut(user.into()).map(|owned| &mut owned.going),
            false => Some(&mut self.going),
        }
    }

    /// So many of the user's pages have left their file, and others may see them.
    pub(super) fn leave(&mut self, user: u32, pages: u64) {
        if let Some(going) = self.going_mut(user) {
            going.leaving += pages;
        }
    }

    /// One of these is memory again.
    pub(super) fn left(&mut self, user: u32) {
        if let Some(going) = self.going_mut(user) {
            going.leaving = going.leaving.saturating_sub(1);
        }
        self.shrink(user, 1);
    }

    /// An inode of the user's is in the list of those without names and holders.
    pub(super) fn list(&mut self, user: u32) {
        if let Some(going) = self.going_mut(user) {
            going.nameless += 1;
        }
    }

    /// It is in it no more.
    pub(super) fn unlist(&mut self, user: u32) {
        if let Some(going) = self.going_mut(user) {
            going.nameless = going.nameless.saturating_sub(1);
        }
    }

    /// One of the user's pages is being taken back from others.
    pub(super) fn take(&mut self, user: u32) {
        if let Some(owned) = self.all.get_mut(user.into()) {
            owned.taken += 1;
        }
    }

    /// It has been.
    pub(super) fn taken_back(&mut self, user: u32) {
        self.less(user, |owned| owned.taken = owned.taken.saturating_sub(1));
    }

    /// How many are.
    pub(super) fn taken(&self, user: u32) -> usize {
        self.of(user).taken
    }

    /// An inode with so many pages is another one's; `ENOSPC`, and nothing has changed.
    pub(super) fn give(&mut self, from: u32, to: u32, pages: u64) -> Result<(), Errno> {
        self.add(to)?;
        self.grow(to, pages);
        self.remove(from, pages);
        Ok(())
    }

    /// One inode less, with so many pages.
    pub(super) fn remove(&mut self, user: u32, pages: u64) {
        self.less(user, |owned| {
            owned.pages = owned.pages.saturating_sub(pages);
            owned.inodes = owned.inodes.saturating_sub(1);
        });
    }
}

impl Tree {
    /// What the user may still take.
    pub(super) fn room_of(&self, user: u32) -> Room {
        let Limits { pages, inodes } = self.limits;
        let free = Room {
            pages: pages.saturating_sub(self.pages),
            inodes: inodes.saturating_sub(self.inodes),
            names: inodes.saturating_sub(self.names),
        };
        if user == 0 {
            return free;
        }
        let owned = self.owners.of(user);
        let rest = |all: u64, taken: u64| (all / 2).saturating_sub(taken);
        Room {
            pages: free.pages.min(rest(pages, owned.pages)),
            inodes: free.inodes.min(rest(inodes, owned.inodes)),
            names: free.names.min(rest(inodes, owned.names)),
        }
    }

    /// Is there to be room soon for pages of this file's owner, or for files of `maker`'s, who has
    /// none? When files without names have ended that were the same user's, and for pages, too,
    /// when others see no more what has left them. Asked with `since` 0 first, then with what the
    /// answer was before.
    pub fn room_to_come(
        &self,
        id: Id,
        maker: Option<u32>,
        since: u64,
    ) -> Result<Option<u64>, Errno> {
        let user = maker.unwrap_or(self.inode(id)?.attributes.uid);
        let going = self.owners.going(user);
        let last = self.look_asked_about(since);
        let leaves_some = maker.is_none() && going.leaving > 0;
        Ok(self.look_to_come(going, last).or(leaves_some.then_some(last)))
    }
}
