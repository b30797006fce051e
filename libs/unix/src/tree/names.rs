//! Names: making, removing, moving them, listing them.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use linux_raw_sys::general as raw;

use super::name::Names;
use super::{Body, Directory, Id, Kind, LINKS_MAX, ROOT, Tree};
use crate::attributes::Credentials;
use crate::dirents::Packer;
use crate::errno::Errno;

/// `renameat2`: fail if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// `renameat2`: swap the two.
pub const RENAME_EXCHANGE: u32 = 2;
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
            Kind::File => (Body::File(alloc::vec::Vec::new()), raw::S_IFREG),
            Kind::Fifo => (Body::Special, raw::S_IFIFO),
            Kind::Socket => (Body::Special, raw::S_IFSOCK),
        };
        self.make(directory, name, body, kind | mode & 0o7777, who)
    }

    /// Makes a directory.
    pub fn make_directory(
        &mut self,
        directory: Id,
        name: &[u8],
        mode: u32,
        who: &Credentials,
    ) -> Result<Id, Errno> {
        let body = Directory {
            parent: directory,
            by_name: Names::default(),
            by_position: BTreeMap::new(),
            next: FIRST_POSITION,
        };
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
        self.make(directory, name, Body::Link(target.into()), raw::S_IFLNK | 0o777, who)
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
        match self.inode(id)?.attributes.links {
            0 => return Err(Errno::ENOENT),
            LINKS_MAX.. => return Err(Errno::EMLINK),
            _ => {}
        }
        self.enter(directory, name, id)?;
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
        self.leave(directory, name)?;
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
        if !self.directory(id)?.by_name.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.leave(directory, name)?;
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
        for name in [old.1, new.1] {
            if matches!(name, b"." | b"..") {
                return Err(Errno::EBUSY);
            }
        }
        let id = self.check_old(old.0, old.1, who)?;
        let other = self.child(new.0, new.1);
        match other {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            Some(_) => drop(self.check_old(new.0, new.1, who)?),
            None if flags & RENAME_EXCHANGE != 0 => return Err(Errno::ENOENT),
            None => self.check_new(new.0, new.1, who)?,
        }
        if other == Some(id) {
            return Ok(());
        }
        let moves_directory = self.directory(id).is_ok();
        if moves_directory && self.is_inside(new.0, id) {
            return Err(Errno::EINVAL);
        }
        if let Some(other) = other {
            if flags & RENAME_EXCHANGE != 0 {
                if self.directory(other).is_ok() && self.is_inside(old.0, other) {
                    return Err(Errno::EINVAL);
                }
                return self.exchange(old, new, id, other);
            }
            match (moves_directory, self.directory(other)) {
                (true, Ok(target)) if !target.by_name.is_empty() => return Err(Errno::ENOTEMPTY),
                (true, Err(_)) => return Err(Errno::ENOTDIR),
                (false, Ok(_)) => return Err(Errno::EISDIR),
                _ => {}
            }
            self.leave(new.0, new.1)?;
            if moves_directory {
                self.inode_mut(new.0)?.attributes.links -= 1;
                self.inode_mut(other)?.attributes.links = 0;
                self.collect(other);
            } else {
                self.drop_link(other);
            }
        }
        self.leave(old.0, old.1)?;
        self.enter(new.0, new.1, id)?;
        if moves_directory {
            self.inode_mut(old.0)?.attributes.links -= 1;
            self.inode_mut(new.0)?.attributes.links += 1;
            self.directory_mut(id)?.parent = new.0;
        }
        self.touch_change(id);
        Ok(())
    }

    /// Lists a directory from `position` (0: the beginning) into `packer`; `.` and `..` first.
    pub fn list(&mut self, id: Id, position: u64, packer: &mut Packer) -> Result<(), Errno> {
        let directory = self.directory(id)?;
        let own = self.inode(id)?.attributes;
        let parent = self.inode(directory.parent)?.attributes;
        if position < 1 && !packer.push(own.inode, 1, own.mode, b".") {
            return Ok(());
        }
        if position < 2 && !packer.push(parent.inode, 2, parent.mode, b"..") {
            return Ok(());
        }
        // An entry's position is where a listing goes on behind it.
        for (&at, (name, child)) in directory.by_position.range(position.max(2) + 1..) {
            let child = self.inode(*child)?.attributes;
            if !packer.push(child.inode, at, child.mode, name) {
                break;
            }
        }
        self.touch_read(id)
    }

    /// Is there nothing in this directory?
    pub fn is_empty(&self, id: Id) -> Result<bool, Errno> {
        Ok(self.directory(id)?.by_name.is_empty())
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
        let parent = self.inode(directory)?.attributes;
        let id = self.add(body, mode, who)?;
        if parent.mode & 0o2000 != 0 {
            self.inode_mut(id)?.attributes.gid = parent.gid;
        }
        self.inode_mut(id)?.attributes.links = 1;
        self.enter(directory, name, id)?;
        Ok(id)
    }

    /// May `who` make this name?
    fn check_new(&self, directory: Id, name: &[u8], who: &Credentials) -> Result<(), Errno> {
        Self::check_name(name)?;
        self.directory(directory)?;
        if self.child(directory, name).is_some() || matches!(name, b"." | b"..") {
            return Err(Errno::EEXIST);
        }
        // A directory that was removed while somebody stood in it takes no names.
        if self.inode(directory)?.attributes.links == 0 {
            return Err(Errno::ENOENT);
        }
        self.check(directory, who, 3)
    }

    /// The inode of a name that `who` may remove.
    fn check_old(&self, directory: Id, name: &[u8], who: &Credentials) -> Result<Id, Errno> {
        self.directory(directory)?;
        let id = self.child(directory, name).ok_or(Errno::ENOENT)?;
        self.check(directory, who, 3)?;
        let parent = self.inode(directory)?.attributes;
        let file = self.inode(id)?.attributes;
        let sticky = parent.mode & 0o1000 != 0;
        if sticky && who.uid != 0 && who.uid != parent.uid && who.uid != file.uid {
            return Err(Errno::EPERM);
        }
        Ok(id)
    }

    fn enter(&mut self, directory: Id, name: &[u8], id: Id) -> Result<(), Errno> {
        let entries = self.directory_mut(directory)?;
        let position = entries.next;
        entries.next += 1;
        let name: Rc<[u8]> = name.into();
        entries.by_name.insert(name.clone(), (position, id));
        entries.by_position.insert(position, (name, id));
        self.touch(directory);
        Ok(())
    }

    fn leave(&mut self, directory: Id, name: &[u8]) -> Result<(), Errno> {
        let entries = self.directory_mut(directory)?;
        if let Some((position, _)) = entries.by_name.remove(name) {
            entries.by_position.remove(&position);
        }
        self.touch(directory);
        Ok(())
    }

    fn drop_link(&mut self, id: Id) {
        if let Ok(inode) = self.inode_mut(id) {
            inode.attributes.links = inode.attributes.links.saturating_sub(1);
        }
        self.touch_change(id);
        self.collect(id);
    }

    fn exchange(
        &mut self,
        old: (Id, &[u8]),
        new: (Id, &[u8]),
        id: Id,
        other: Id,
    ) -> Result<(), Errno> {
        for ((directory, name), inode) in [(old, other), (new, id)] {
            let entries = self.directory_mut(directory)?;
            if let Some((position, id)) = entries.by_name.get_mut(name) {
                *id = inode;
                entries.by_position.insert(*position, (name.into(), inode));
            }
            self.touch(directory);
        }
        for (inode, from, to) in [(id, old.0, new.0), (other, new.0, old.0)] {
            if self.directory(inode).is_ok() {
                self.inode_mut(from)?.attributes.links -= 1;
                self.inode_mut(to)?.attributes.links += 1;
                self.directory_mut(inode)?.parent = to;
            }
            self.touch_change(inode);
        }
        Ok(())
    }

    /// Is `inner` the directory `outer` or below it?
    fn is_inside(&self, inner: Id, outer: Id) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.directory(at) {
                Ok(directory) if at != ROOT => at = directory.parent,
                _ => return false,
            }
        }
    }
}
