//! Names: making, removing, moving them, listing them.

use linux_raw_sys::general as raw;

use super::name::{Names, Target};
use super::{Body, Directory, Id, Kind, LINKS_MAX, ROOT, Tree};
use crate::attributes::{Credentials, GROUP_EXECUTES};
use crate::dirents::Packer;
use crate::errno::Errno;
use crate::map::{self, Map};

/// `renameat2`: fail if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// `renameat2`: swap the two.
pub const RENAME_EXCHANGE: u32 = 2;
/// Directories above each other that a move looks through at most.
const DEPTH_MAX: usize = 16_384;
/// Positions 0 and 1 of a listing are before `.` and `..`.
pub(super) const FIRST_POSITION: u64 = 3;

impl Tree {
    /// Makes a file; `EEXIST` if the name is taken.
    pub fn create(
        &mut self,
        directory: Id,
        name: &[u8],
        kind: Kind,
        mode: u32,
        who: &Credentials,
    ) -> Result<Id, Errno> {
        let (body, kind) = match kind {
            Kind::File => (Body::File(Map::default()), raw::S_IFREG),
            Kind::Fifo => (Body::Special, raw::S_IFIFO),
            Kind::Socket => (Body::Special, raw::S_IFSOCK),
        };
        self.make(directory, name, body, kind | mode & (0o7777 | GROUP_EXECUTES), who)
    }

    /// Makes a directory.
    pub fn make_directory(
        &mut self,
        directory: Id,
        name: &[u8],
        mode: u32,
        who: &Credentials,
    ) -> Result<Id, Errno> {
        let body = Directory { parent: directory, names: Names::default(), next: FIRST_POSITION };
        let inherited = self.inode(directory)?.attributes.mode & 0o2000;
        let mode = raw::S_IFDIR | mode & 0o1777 | inherited;
        let id = self.make(directory, name, Body::Directory(body), mode, who)?;
        self.inode_mut(id)?.attributes.links = 2;
        self.inode_mut(directory)?.attributes.links += 1;
        Ok(id)
    }

    /// Makes a symbolic link.
    pub fn make_link(
        &mut self,
        directory: Id,
        name: &[u8],
        target: &[u8],
        who: &Credentials,
    ) -> Result<Id, Errno> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        self.make(directory, name, Body::Link(map::copied(target)?), raw::S_IFLNK | 0o777, who)
    }

    /// Gives a file one more name.
    pub fn link(
        &mut self,
        id: Id,
        directory: Id,
        name: &[u8],
        who: &Credentials,
    ) -> Result<(), Errno> {
        if matches!(self.inode(id)?.body, Body::Directory(_)) {
            return Err(Errno::EPERM);
        }
        self.check_new(directory, name, who)?;
        if !self.inode(id)?.attributes.may_be_linked(who) {
            return Err(Errno::EPERM);
        }
        match self.inode(id)?.attributes.links {
            0 => return Err(Errno::ENOENT),
            LINKS_MAX.. => return Err(Errno::EMLINK),
            _ => {}
        }
        self.enter_new(directory, name, id, who.uid)?;
        self.inode_mut(id)?.attributes.links += 1;
        self.touch_change(id);
        Ok(())
    }

    /// Removes a name of something that isn't a directory.
    pub fn unlink(&mut self, directory: Id, name: &[u8], who: &Credentials) -> Result<(), Errno> {
        let id = self.check_old(directory, name, who)?;
        if matches!(self.inode(id)?.body, Body::Directory(_)) {
            return Err(Errno::EISDIR);
        }
        self.forget(directory, name)?;
        self.loses_name(id, directory);
        self.drop_link(id);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(
        &mut self,
        directory: Id,
        name: &[u8],
        who: &Credentials,
    ) -> Result<(), Errno> {
        match name {
            b"." => return Err(Errno::EINVAL),
            b".." => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let id = self.check_old(directory, name, who)?;
        if !self.directory(id)?.names.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.forget(directory, name)?;
        self.loses_name(id, directory);
        self.inode_mut(directory)?.attributes.links -= 1;
        self.inode_mut(id)?.attributes.links = 0;
        self.collect(id);
        Ok(())
    }

    /// Moves a name, replacing what had the new one (rename(2)).
    pub fn rename(
        &mut self,
        old: (Id, &[u8]),
        new: (Id, &[u8]),
        flags: u32,
        who: &Credentials,
    ) -> Result<(), Errno> {
        let (id, other) = self.check_rename(old, new, flags, who)?;
        if other == Some(id) {
            return Ok(());
        }
        let moves_directory = self.directory(id).is_ok();
        if let Some(other) = other {
            if flags & RENAME_EXCHANGE != 0 {
                return self.exchange(old, new, id, other);
            }
            self.replace(new, old, id)?;
            self.loses_name(other, new.0);
            if moves_directory {
                self.inode_mut(new.0)?.attributes.links -= 1;
                self.inode_mut(other)?.attributes.links = 0;
                self.collect(other);
            } else {
                self.drop_link(other);
            }
        } else {
            // First what may fail. It is charged to whom it was charged to.
            let user = self.payer(old.0, old.1)?;
            self.enter(new.0, new.1, id, user)?;
        }
        self.leave(old.0, old.1)?;
        self.loses_name(id, old.0);
        if moves_directory {
            self.inode_mut(old.0)?.attributes.links -= 1;
            self.inode_mut(new.0)?.attributes.links += 1;
            self.directory_mut(id)?.parent = new.0;
        }
        self.touch_change(id);
        Ok(())
    }

    /// May `who` move this name? What it leads to, and what has the new one.
    fn check_rename(
        &self,
        old: (Id, &[u8]),
        new: (Id, &[u8]),
        flags: u32,
        who: &Credentials,
    ) -> Result<(Id, Option<Id>), Errno> {
        for name in [old.1, new.1] {
            if matches!(name, b"." | b"..") {
                return Err(Errno::EBUSY);
            }
        }
        self.check_search(old.0, who)?;
        self.check_search(new.0, who)?;
        let exchanges = flags & RENAME_EXCHANGE != 0;
        let id = self.child(old.0, old.1).ok_or(Errno::ENOENT)?;
        let other = self.child(new.0, new.1);
        match other {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if exchanges => return Err(Errno::ENOENT),
            _ => {}
        }
        let moves_directory = self.directory(id).is_ok();
        if moves_directory && self.is_inside(new.0, id)? {
            return Err(Errno::EINVAL);
        }
        if let Some(other) = other
            && self.directory(other).is_ok()
            && self.is_inside(old.0, other)?
        {
            return Err(if exchanges { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if other == Some(id) {
            return Ok((id, other));
        }
        self.check_old(old.0, old.1, who)?;
        let Some(other) = other else {
            self.check_new(new.0, new.1, who)?;
            self.check_parent(id, old.0, new.0, who)?;
            return Ok((id, None));
        };
        self.check_old(new.0, new.1, who)?;
        if exchanges {
            self.check_parent(id, old.0, new.0, who)?;
            self.check_parent(other, new.0, old.0, who)?;
            return Ok((id, Some(other)));
        }
        match (moves_directory, self.directory(other)) {
            (true, Err(_)) => return Err(Errno::ENOTDIR),
            (false, Ok(_)) => return Err(Errno::EISDIR),
            (true, Ok(target)) => {
                self.check_parent(id, old.0, new.0, who)?;
                if !target.names.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
            }
            _ => {}
        }
        Ok((id, Some(other)))
    }

    /// Who moves a directory to another one changes where its `..` leads: it must be one that
    /// `who` may write (rename(2)).
    fn check_parent(&self, id: Id, from: Id, to: Id, who: &Credentials) -> Result<(), Errno> {
        if from == to || self.directory(id).is_err() { Ok(()) } else { self.check(id, who, 2) }
    }

    /// Lists a directory from `position` (0: the beginning) into `packer`; `.` and `..` first.
    pub fn list(&mut self, id: Id, position: u64, packer: &mut Packer) -> Result<(), Errno> {
        let directory = self.directory(id)?;
        let own = self.inode(id)?.attributes;
        // It was taken away while it was open: it has not even itself and its parent.
        if own.links == 0 {
            return Err(Errno::ENOENT);
        }
        let parent = self.inode(directory.parent)?.attributes;
        if position < 1 && !packer.push(own.inode, 1, own.mode, b".") {
            return Ok(());
        }
        if position < 2 && !packer.push(parent.inode, 2, parent.mode, b"..") {
            return Ok(());
        }
        // An entry's position is where a listing goes on behind it.
        let mut result = Ok(());
        directory.names.visit_from(position.max(2).saturating_add(1), |at, name, child| match self
            .inode(child)
        {
            Ok(child) => {
                let attributes = &child.attributes;
                packer.push(attributes.inode, at, attributes.mode, name)
            }
            Err(errno) => {
                result = Err(errno);
                false
            }
        });
        result?;
        self.touch_read(id)
    }

    /// Is there nothing in this directory?
    pub fn is_empty(&self, id: Id) -> Result<bool, Errno> {
        Ok(self.directory(id)?.names.is_empty())
    }

    fn make(
        &mut self,
        directory: Id,
        name: &[u8],
        body: Body,
        mode: u32,
        who: &Credentials,
    ) -> Result<Id, Errno> {
        self.check_new(directory, name, who)?;
        let parent = self.inode(directory)?;
        let (sets_group, gid) = (parent.attributes.mode & 0o2000 != 0, parent.attributes.gid);
        let mount = parent.mount;
        let executes = mode & (0o10 | GROUP_EXECUTES) != 0;
        let id = self.add(body, mode & !GROUP_EXECUTES, who)?;
        let inode = self.inode_mut(id)?;
        if directory != ROOT {
            inode.mount = mount;
        }
        let attributes = &mut inode.attributes;
        attributes.links = 1;
        if sets_group {
            attributes.gid = gid;
        }
        if !attributes.is_directory() && executes {
            attributes.mode &= !attributes.foreign_set_group(who);
        }
        match self.enter_new(directory, name, id, who.uid) {
            Ok(()) => Ok(id),
            Err(errno) => {
                self.end(id);
                Err(errno)
            }
        }
    }

    /// May `who` make this name?
    fn check_new(&self, directory: Id, name: &[u8], who: &Credentials) -> Result<(), Errno> {
        Self::check_name(name)?;
        // Who may not search is not told which names there are.
        self.check_search(directory, who)?;
        let inode = self.inode(directory)?;
        let Body::Directory(entries) = &inode.body else { return Err(Errno::ENOTDIR) };
        if matches!(name, b"." | b"..") || entries.names.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        // A directory that was removed while somebody stood in it takes no names.
        if inode.attributes.links == 0 {
            return Err(Errno::ENOENT);
        }
        if inode.attributes.permits(who, 3) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// The inode of a name that `who` may remove.
    fn check_old(&self, directory: Id, name: &[u8], who: &Credentials) -> Result<Id, Errno> {
        self.check_search(directory, who)?;
        let inode = self.inode(directory)?;
        let Body::Directory(entries) = &inode.body else { return Err(Errno::ENOTDIR) };
        let (_, id, _) = entries.names.get(name).ok_or(Errno::ENOENT)?;
        let parent = &inode.attributes;
        if !parent.permits(who, 3) {
            return Err(Errno::EACCES);
        }
        let file = self.inode(id)?.attributes.uid;
        let sticky = parent.mode & 0o1000 != 0;
        if sticky && who.uid != 0 && who.uid != parent.uid && who.uid != file {
            return Err(Errno::EPERM);
        }
        Ok(id)
    }

    /// Enters a name that this user makes; `ENOSPC`, and nothing has changed.
    fn enter_new(&mut self, directory: Id, name: &[u8], id: Id, user: u32) -> Result<(), Errno> {
        if self.room_of(user).names == 0 {
            return Err(Errno::ENOSPC);
        }
        self.owners.add_name(user)?;
        let entered = self.enter(directory, name, id, user);
        match entered {
            Ok(()) => self.names += 1,
            Err(_) => self.owners.remove_name(user),
        }
        entered
    }

    /// Takes a name out, and from what its user has.
    fn forget(&mut self, directory: Id, name: &[u8]) -> Result<(), Errno> {
        let (_, _, user) = self.leave(directory, name)?;
        self.names -= 1;
        self.owners.remove_name(user);
        Ok(())
    }

    /// The user that a name is charged to.
    fn payer(&self, directory: Id, name: &[u8]) -> Result<u32, Errno> {
        let target = self.directory(directory)?.names.get(name);
        target.map(|(_, _, user)| user).ok_or(Errno::ENOENT)
    }

    fn enter(&mut self, directory: Id, name: &[u8], id: Id, user: u32) -> Result<(), Errno> {
        let now = self.now;
        let inode = self.inode_mut(directory)?;
        let Body::Directory(entries) = &mut inode.body else { return Err(Errno::ENOTDIR) };
        entries.names.insert(name, (entries.next, id, user))?;
        entries.next += 1;
        inode.attributes.changed(now);
        Ok(())
    }

    /// Has a name that is there lead to another inode, which the name `from` leads to: it is that
    /// one's user's now, and the other's no more.
    fn replace(&mut self, name: (Id, &[u8]), from: (Id, &[u8]), id: Id) -> Result<(), Errno> {
        let (former, user) = (self.payer(name.0, name.1)?, self.payer(from.0, from.1)?);
        self.lead(name.0, name.1, id, user)?;
        self.names -= 1;
        self.owners.remove_name(former);
        Ok(())
    }

    /// Has a name that is there lead to another inode, and be another user's.
    fn lead(&mut self, directory: Id, name: &[u8], id: Id, user: u32) -> Result<(), Errno> {
        if let Some((_, leads_to, payer)) = self.directory_mut(directory)?.names.get_mut(name) {
            (*leads_to, *payer) = (id, user);
        }
        self.touch(directory);
        Ok(())
    }

    /// Takes a name out; what it led to.
    fn leave(&mut self, directory: Id, name: &[u8]) -> Result<Target, Errno> {
        let now = self.now;
        let inode = self.inode_mut(directory)?;
        let Body::Directory(entries) = &mut inode.body else { return Err(Errno::ENOTDIR) };
        let target = entries.names.remove(name).ok_or(Errno::ENOENT)?;
        inode.attributes.changed(now);
        Ok(target)
    }

    fn drop_link(&mut self, id: Id) {
        let now = self.now;
        if let Ok(inode) = self.inode_mut(id) {
            inode.attributes.links = inode.attributes.links.saturating_sub(1);
            inode.attributes.changed_ns = now;
        }
        self.collect(id);
    }

    fn exchange(
        &mut self,
        old: (Id, &[u8]),
        new: (Id, &[u8]),
        id: Id,
        other: Id,
    ) -> Result<(), Errno> {
        let users = [self.payer(new.0, new.1)?, self.payer(old.0, old.1)?];
        for ((directory, name), inode, user) in [(old, other, users[0]), (new, id, users[1])] {
            self.lead(directory, name, inode, user)?;
        }
        for (inode, from, to) in [(id, old.0, new.0), (other, new.0, old.0)] {
            if self.directory(inode).is_ok() {
                self.inode_mut(from)?.attributes.links -= 1;
                self.inode_mut(to)?.attributes.links += 1;
                self.directory_mut(inode)?.parent = to;
            }
            self.loses_name(inode, from);
            self.touch_change(inode);
        }
        Ok(())
    }

    /// Is `inner` the directory `outer` or below it? Directories nested deeper than `DEPTH_MAX`
    /// are not looked through: `ELOOP`.
    fn is_inside(&self, inner: Id, outer: Id) -> Result<bool, Errno> {
        let mut at = inner;
        for _ in 0..DEPTH_MAX {
            if at == outer {
                return Ok(true);
            }
            match self.directory(at) {
                Ok(directory) if at != ROOT => at = directory.parent,
                _ => return Ok(false),
            }
        }
        Err(Errno::ELOOP)
    }
}
