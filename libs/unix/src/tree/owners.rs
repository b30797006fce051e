//! Who owns how much of a tree: no user but user 0 may have more than half of it.
//!
//! What a user has is charged to the owner of the file, as quotas are (quotactl(2)): whoever writes
//! into another one's file uses up that one's part, which permissions allow or forbid.

use super::{Limits, Tree};
use crate::errno::Errno;
use crate::map::Map;

/// What one user's files take.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    pages: u64,
    inodes: u64,
}

/// What files take, by user.
#[derive(Debug, Default)]
pub(super) struct Owners(Map<Owned>);

impl Owners {
    fn of(&self, user: u32) -> Owned {
        self.0.get(user.into()).copied().unwrap_or_default()
    }

    /// One more inode of the user's; `ENOSPC`, and nothing has changed.
    pub(super) fn add(&mut self, user: u32) -> Result<(), Errno> {
        match self.0.get_mut(user.into()) {
            Some(owned) => owned.inodes += 1,
            None => self.0.insert(user.into(), Owned { pages: 0, inodes: 1 })?,
        }
        Ok(())
    }

    /// More pages of one who has an inode.
    pub(super) fn grow(&mut self, user: u32, pages: u64) {
        if let Some(owned) = self.0.get_mut(user.into()) {
            owned.pages += pages;
        }
    }

    /// Fewer pages.
    pub(super) fn shrink(&mut self, user: u32, pages: u64) {
        if let Some(owned) = self.0.get_mut(user.into()) {
            owned.pages = owned.pages.saturating_sub(pages);
        }
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
        self.shrink(user, pages);
        let Some(owned) = self.0.get_mut(user.into()) else { return };
        owned.inodes = owned.inodes.saturating_sub(1);
        if owned.inodes == 0 {
            self.0.remove(user.into());
        }
    }
}

impl Tree {
    /// What the user may still take.
    pub(super) fn room_of(&self, user: u32) -> Limits {
        let Limits { pages, inodes } = self.limits;
        let free = Limits {
            pages: pages.saturating_sub(self.pages),
            inodes: inodes.saturating_sub(self.inodes),
        };
        if user == 0 {
            return free;
        }
        let owned = self.owners.of(user);
        Limits {
            pages: free.pages.min((pages / 2).saturating_sub(owned.pages)),
            inodes: free.inodes.min((inodes / 2).saturating_sub(owned.inodes)),
        }
    }
}
