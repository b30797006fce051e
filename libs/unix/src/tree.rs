//! A file system in memory: inodes, directories, POSIX's rules; no I/O, no clock of its own.
//!
//! Files are in pages of 4 KiB, absent ones are holes. An inode ends in `settle` when it has no
//! name and nobody holds it open; `hold` and `release` count the holders. Directory positions are
//! numbers that grow with each entry made, so a listing goes on rightly while others remove and add
//! names.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;

use crate::attributes::{Attributes, Credentials, Space};
use crate::errno::Errno;
use crate::{bytes, path};
use name::Names;

mod content;
mod name;
mod names;
#[cfg(test)]
mod tests;
mod walk;

pub use names::{RENAME_EXCHANGE, RENAME_NOREPLACE};
pub use walk::{Outcome, Walk};

/// Bytes of a page of a file.
pub const PAGE: usize = 4096;
/// Units of `st_blocks` in a page.
const BLOCKS: u64 = PAGE as u64 / 512;
/// Largest size of a file.
pub const SIZE_MAX: u64 = 1 << 40;
/// Most names that one file may have.
pub const LINKS_MAX: u32 = 65_000;
/// The file system's device number.
pub const DEVICE: u64 = 0x17;

/// Names an inode: index in the low 32 bits, generation in the high ones, so that a stale one finds
/// nothing.
pub type Id = u64;
/// The root directory.
pub const ROOT: Id = 0;

/// How much a tree may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of files.
    pub pages: u64,
    /// Inodes.
    pub inodes: u64,
}

#[derive(Debug)]
struct Directory {
    parent: Id,
    by_name: Names,
    by_position: BTreeMap<u64, (Rc<[u8]>, Id)>,
    next: u64,
}

/// The bytes of a page of a file. They lie where a page of memory begins, so that it can be shown.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct PageBytes([u8; PAGE]);

#[derive(Debug)]
struct Page {
    bytes: Box<PageBytes>,
    /// Others may see it: it must be taken from them before it becomes anything else.
    shown: bool,
}

#[derive(Debug)]
enum Body {
    File(Vec<Option<Page>>),
    Directory(Directory),
    Link(Box<[u8]>),
    /// A fifo or socket: only the name is here.
    Special,
}

#[derive(Debug)]
struct Inode {
    attributes: Attributes,
    holders: u32,
    /// Counted in `Tree::orphans`.
    orphan: bool,
    body: Body,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    inode: Option<Inode>,
}

/// The tree.
#[derive(Debug)]
pub struct Tree {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limits: Limits,
    pages: u64,
    inodes: u64,
    orphans: u64,
    now: u64,
    /// Inodes that changed since somebody asked.
    changed: Vec<Id>,
    /// Inodes that have neither names nor holders that the tree knows.
    nameless: Vec<Id>,
    /// Pages that were shown and have left their file.
    retired: Vec<Box<PageBytes>>,
}

/// What kind of file to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A named pipe.
    Fifo,
    /// A name of a local socket.
    Socket,
}

/// Attributes to change; `None` leaves one alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// Last read, nanoseconds since 1970.
    pub read_ns: Option<u64>,
    /// Last write.
    pub written_ns: Option<u64>,
    /// The times are set to "now", which whoever may write is allowed to.
    pub touch: bool,
}

impl Tree {
    /// A tree with an empty root directory.
    pub fn new(limits: Limits, now: u64) -> Self {
        let mut tree = Self {
            slots: Vec::new(),
            free: Vec::new(),
            limits,
            pages: 0,
            inodes: 0,
            orphans: 0,
            now,
            changed: Vec::new(),
            nameless: Vec::new(),
            retired: Vec::new(),
        };
        let root = Directory {
            parent: ROOT,
            by_name: Names::default(),
            by_position: BTreeMap::new(),
            next: names::FIRST_POSITION,
        };
        let who = Credentials::default();
        // The first inode always fits: nothing has been counted yet.
        if let Ok(id) = tree.add(Body::Directory(root), raw::S_IFDIR | 0o755, &who)
            && let Ok(inode) = tree.inode_mut(id)
        {
            inode.attributes.links = 2;
        }
        tree
    }

    /// Sets the time that changes are stamped with, nanoseconds since 1970.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Attributes of a file.
    pub fn attributes(&self, id: Id) -> Result<Attributes, Errno> {
        let inode = self.inode(id)?;
        let mut attributes = inode.attributes;
        match &inode.body {
            Body::File(_) | Body::Special => {}
            Body::Directory(directory) => {
                attributes.size = 20 * directory.by_name.len() as u64 + 40
            }
            Body::Link(target) => attributes.size = target.len() as u64,
        }
        Ok(attributes)
    }

    /// How full it is.
    pub fn space(&self) -> Space {
        Space {
            kind: 0x0102_1994,
            blocks: self.limits.pages,
            blocks_free: self.limits.pages.saturating_sub(self.pages),
            files: self.limits.inodes,
            files_free: self.limits.inodes.saturating_sub(self.inodes),
            flags: 0,
        }
    }

    /// May `who` do what `mask` says (4 read, 2 write, 1 execute or search)?
    pub fn check(&self, id: Id, who: &Credentials, mask: u32) -> Result<(), Errno> {
        let inode = self.inode(id)?;
        if inode.attributes.permits(who, mask) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Changes attributes, as far as `who` may (chmod(2), chown(2), utimensat(2)).
    pub fn change(&mut self, id: Id, change: &Change, who: &Credentials) -> Result<(), Errno> {
        let now = self.now;
        let may_write = self.check(id, who, 2).is_ok();
        let inode = self.inode_mut(id)?;
        let attributes = &mut inode.attributes;
        let owner = who.uid == 0 || who.uid == attributes.uid;
        let times = change.read_ns.is_some() || change.written_ns.is_some();
        if change.mode.is_some() && !owner {
            return Err(Errno::EPERM);
        }
        if change.uid.is_some_and(|uid| uid != attributes.uid || !owner) && who.uid != 0 {
            return Err(Errno::EPERM);
        }
        let own_group = |gid| owner && (gid == who.gid || gid == attributes.gid);
        if change.gid.is_some_and(|gid| !own_group(gid)) && who.uid != 0 {
            return Err(Errno::EPERM);
        }
        if times && !owner && !(change.touch && may_write) {
            return Err(if change.touch { Errno::EACCES } else { Errno::EPERM });
        }
        let kind = attributes.kind();
        if let Some(mode) = change.mode {
            attributes.mode = kind | mode & 0o7777;
        }
        if change.uid.is_some() || change.gid.is_some() {
            attributes.uid = change.uid.unwrap_or(attributes.uid);
            attributes.gid = change.gid.unwrap_or(attributes.gid);
            if kind == raw::S_IFREG && attributes.mode & 0o111 != 0 {
                // A new owner must not inherit the right to act as the old one.
                attributes.mode &= !0o4000;
                if attributes.mode & 0o10 != 0 {
                    attributes.mode &= !0o2000;
                }
            }
        }
        attributes.read_ns = change.read_ns.unwrap_or(attributes.read_ns);
        attributes.written_ns = change.written_ns.unwrap_or(attributes.written_ns);
        attributes.changed_ns = now;
        Ok(())
    }

    /// One more holder (an open file): the inode outlives its names.
    pub fn hold(&mut self, id: Id) -> Result<(), Errno> {
        self.inode_unseen(id)?.holders += 1;
        Ok(())
    }

    /// One holder less.
    pub fn release(&mut self, id: Id) {
        if let Ok(inode) = self.inode_unseen(id) {
            inode.holders = inode.holders.saturating_sub(1);
        }
        self.collect(id);
    }

    /// Calls `tell` with each inode that changed in attributes, content or entries, or ended, since
    /// the last time; with some several times.
    pub fn take_changed(&mut self, tell: impl FnMut(Id)) {
        self.changed.drain(..).for_each(tell);
    }

    /// Inodes without a name that are still held open.
    pub fn has_orphans(&self) -> bool {
        self.orphans > 0
    }

    fn inode(&self, id: Id) -> Result<&Inode, Errno> {
        let slot = self.slots.get(id as u32 as usize).ok_or(Errno::ESTALE)?;
        if u64::from(slot.generation) != id >> 32 {
            return Err(Errno::ESTALE);
        }
        slot.inode.as_ref().ok_or(Errno::ESTALE)
    }

    /// An inode to change so that others see it.
    fn inode_mut(&mut self, id: Id) -> Result<&mut Inode, Errno> {
        if self.changed.last() != Some(&id) {
            self.changed.push(id);
        }
        self.inode_unseen(id)
    }

    /// An inode to change in what nobody sees.
    fn inode_unseen(&mut self, id: Id) -> Result<&mut Inode, Errno> {
        let slot = self.slots.get_mut(id as u32 as usize).ok_or(Errno::ESTALE)?;
        if u64::from(slot.generation) != id >> 32 {
            return Err(Errno::ESTALE);
        }
        slot.inode.as_mut().ok_or(Errno::ESTALE)
    }

    fn directory(&self, id: Id) -> Result<&Directory, Errno> {
        match &self.inode(id)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn directory_mut(&mut self, id: Id) -> Result<&mut Directory, Errno> {
        match &mut self.inode_mut(id)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Makes an inode without a name.
    fn add(&mut self, body: Body, mode: u32, who: &Credentials) -> Result<Id, Errno> {
        if self.inodes >= self.limits.inodes {
            return Err(Errno::ENOSPC);
        }
        self.inodes += 1;
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let now = self.now;
        let slot = &mut self.slots[index as usize];
        let id = u64::from(slot.generation) << 32 | u64::from(index);
        let attributes = Attributes {
            device: DEVICE,
            inode: id + 1,
            mode,
            links: 0,
            uid: who.uid,
            gid: who.gid,
            read_ns: now,
            written_ns: now,
            changed_ns: now,
            ..Attributes::default()
        };
        slot.inode = Some(Inode { attributes, holders: 0, orphan: false, body });
        Ok(id)
    }

    /// Looks whether an inode has lost its last name or its last holder.
    fn collect(&mut self, id: Id) {
        let Ok(inode) = self.inode_unseen(id) else { return };
        if inode.attributes.links > 0 {
            return;
        }
        let (held, was_orphan) = (inode.holders > 0, inode.orphan);
        inode.orphan = held;
        self.orphans = self.orphans + u64::from(held) - u64::from(was_orphan);
        if !held {
            self.nameless.push(id);
        }
    }

    /// Ends the inodes that have neither names nor holders, but for those that `in_use` knows of:
    /// they are asked about again the next time.
    pub fn settle(&mut self, in_use: impl Fn(Id) -> bool) {
        if self.nameless.is_empty() {
            return;
        }
        let mut list = core::mem::take(&mut self.nameless);
        list.retain(|&id| match self.inode(id) {
            Ok(inode) if inode.holders == 0 => {
                let used = in_use(id);
                if !used {
                    self.end(id);
                }
                used
            }
            // It has a holder now, whose release is noticed, or has ended.
            _ => false,
        });
        self.nameless = list;
    }

    /// Ends an inode.
    fn end(&mut self, id: Id) {
        let Ok(inode) = self.inode(id) else { return };
        self.pages -= inode.attributes.blocks / BLOCKS;
        self.inodes -= 1;
        let index = id as u32;
        let slot = &mut self.slots[index as usize];
        if let Some(Inode { body: Body::File(pages), .. }) = slot.inode.take() {
            self.retire(pages);
        }
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        self.free.push(index);
    }

    /// Stamps a read, but only if the last one was before a change or a day ago (mount(8),
    /// relatime): what is read again and again does not change by it.
    fn touch_read(&mut self, id: Id) -> Result<(), Errno> {
        let now = self.now;
        if self.inode(id)?.attributes.read_stays_noted(now) > 0 {
            return Ok(());
        }
        self.inode_mut(id)?.attributes.read_ns = now;
        Ok(())
    }

    /// Stamps a change of content.
    fn touch(&mut self, id: Id) {
        let now = self.now;
        if let Ok(inode) = self.inode_mut(id) {
            inode.attributes.written_ns = now;
            inode.attributes.changed_ns = now;
        }
    }

    fn touch_change(&mut self, id: Id) {
        let now = self.now;
        if let Ok(inode) = self.inode_mut(id) {
            inode.attributes.changed_ns = now;
        }
    }

    fn check_name(name: &[u8]) -> Result<(), Errno> {
        if name.len() > path::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if name.is_empty() || bytes::position(name, b'/').or(bytes::position(name, 0)).is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}
