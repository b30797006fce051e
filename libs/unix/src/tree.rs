//! A file system in memory: inodes, directories, POSIX's rules; no I/O, no clock of its own.
//!
//! Files are in pages of 4 KiB, absent ones are holes. An inode ends in `settle` when it has no
//! name and nobody holds it open; `hold` and `release` count the holders. Directory positions are
//! numbers that grow with each entry made, so a listing goes on rightly while others remove and add
//! names.
//!
//! Every allocation may fail: then the operation says `ENOSPC` and has changed nothing, or has
//! written less. What takes the longer the larger a file is, giving its pages back, is done in
//! pieces by `work`; until then they wait among the dying.

use alloc::boxed::Box;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;

use crate::attributes::{Attributes, Credentials, Given, Space};
use crate::errno::Errno;
use crate::map::{self, Map};
use crate::{bytes, path};
use name::Names;

mod content;
mod ending;
mod leaving;
#[cfg(test)]
mod leaving_tests;
mod name;
mod names;
mod owners;
#[cfg(test)]
mod permission_tests;
#[cfg(test)]
mod tests;
mod walk;

pub use leaving::Others;
pub use names::{RENAME_EXCHANGE, RENAME_NOREPLACE};
pub use walk::{Outcome, Walk};

/// Bytes of a page of a file.
pub const PAGE: usize = 4096;
/// Units of `st_blocks` in a page.
const BLOCKS: u64 = PAGE as u64 / 512;
/// Largest size of a file, as on Linux.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Most names that one file may have.
pub const LINKS_MAX: u32 = 65_000;
/// The file system's device number.
pub const DEVICE: u64 = 0x17;

/// Names an inode: its index, then the tree's life, then a generation, so that a stale one finds
/// nothing, and one of an earlier life is told from others.
pub type Id = u64;
/// The root directory, in every life.
pub const ROOT: Id = 0;

/// Bits of an [`Id`] that are the index.
const INDEX_BITS: u32 = 24;
/// Bits above them that are the life.
const LIFE_BITS: u32 = 12;
/// Bits above those that are the generation; the highest bit stays clear.
const GENERATION_BITS: u32 = 27;
/// All ids are below.
pub const END: Id = 1 << (INDEX_BITS + LIFE_BITS + GENERATION_BITS);
/// Lives that can be told apart.
pub const LIVES: u64 = 1 << LIFE_BITS;
/// Inodes at most.
const INODES_MAX: u64 = (1 << INDEX_BITS) - 1;
/// Bytes of a symbolic link that takes no page, as in Linux's tmpfs.
const LINK_INLINE: usize = 127;
/// Slots allocated at a time.
const CHUNK: usize = 64;
/// Changes that are kept one by one.
const CHANGES: usize = 64;
/// Files that wait for their pages to be given back, as far as memory is had at once.
const DYING: usize = 64;
/// Pages given back where nothing else helps.
const PIECE: usize = 64;
/// No slot.
const NOWHERE: u32 = u32::MAX;

/// How much a tree may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of files.
    pub pages: u64,
    /// Inodes, and as many names.
    pub inodes: u64,
}

#[derive(Debug)]
struct Directory {
    parent: Id,
    names: Names,
    next: u64,
}

/// The bytes of a page of a file. They lie where a page of memory begins, so that it can be shown.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct PageBytes([u8; PAGE]);

/// A page of memory with such bytes; an array, as that can be had without the program's end if
/// there is none.
pub type PageBox = Box<[PageBytes; 1]>;

#[derive(Debug)]
struct Page {
    bytes: PageBox,
    /// Others may see it: it must be taken from them before it becomes anything else.
    shown: bool,
}

#[derive(Debug)]
enum Body {
    File(Map<Page>),
    Directory(Directory),
    Link(Box<[u8]>),
    /// A fifo or socket: only the name is here.
    Special,
}

#[derive(Debug)]
struct Inode {
    attributes: Attributes,
    /// What is mounted, of which it is a part: a directory in the root.
    mount: Id,
    holders: u32,
    /// Counted in `Tree::orphans`.
    orphan: bool,
    /// In the list of the nameless.
    listed: bool,
    /// Others may see some of its pages.
    shown: bool,
    /// No look up to this one ends it: it had a name or a holder, or was said to be held.
    stays: u64,
    way: ending::LastWay,
    body: Body,
}

#[derive(Debug)]
struct Slot {
    /// What is above the index in its inode's id: life and generation.
    tag: u64,
    inode: Option<Inode>,
    /// The next one in the list in which it is: of the free, or of the nameless.
    next: u32,
}

/// The inodes without names and holders that the tree knows: a queue, linked through the slots.
#[derive(Debug, Default)]
struct Nameless {
    first: u32,
    last: u32,
    count: usize,
    /// Looks at who holds them: the number of the last one that has begun.
    look: u64,
    /// Those that are still to be settled after it.
    left: usize,
    /// The last look behind which all have been settled.
    settled: u64,
}

/// The tree.
#[derive(Debug)]
pub struct Tree {
    life: u64,
    slots: Vec<Vec<Slot>>,
    used: u32,
    free: u32,
    limits: Limits,
    pages: u64,
    inodes: u64,
    names: u64,
    owners: owners::Owners,
    orphans: u64,
    now: u64,
    /// Inodes that changed since somebody asked, as far as there was room.
    changed: Vec<Id>,
    /// There was not.
    all_changed: bool,
    nameless: Nameless,
    /// Pages that have left their files and that nobody else has seen.
    dying: Vec<Map<Page>>,
    /// Those that others may see.
    leaving: leaving::Leaving,
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
    /// The owner is changed (chown(2)), if to nothing else than it was.
    pub owner: bool,
    /// Last read, nanoseconds since 1970.
    pub read_ns: Option<u64>,
    /// Last write.
    pub written_ns: Option<u64>,
    /// The times are set to "now", which whoever may write is allowed to.
    pub touch: bool,
}

impl Tree {
    /// A tree with an empty root directory, the `life`th of its kind: inodes of others are told
    /// from its own. `others` are those that pages are shown to.
    pub fn new(limits: Limits, now: u64, life: u64, others: Others) -> Result<Self, Errno> {
        let mut tree = Self {
            life: life % LIVES,
            slots: Vec::new(),
            used: 0,
            free: NOWHERE,
            limits: Limits { inodes: limits.inodes.min(INODES_MAX), ..limits },
            pages: 0,
            inodes: 0,
            names: 0,
            owners: owners::Owners::default(),
            orphans: 0,
            now,
            changed: map::vector(CHANGES)?,
            all_changed: false,
            nameless: Nameless { first: NOWHERE, last: NOWHERE, ..Nameless::default() },
            dying: map::vector(DYING)?,
            leaving: leaving::Leaving::new(others)?,
        };
        let root = Directory { parent: ROOT, names: Names::default(), next: names::FIRST_POSITION };
        let who = Credentials::default();
        let id = tree.add(Body::Directory(root), raw::S_IFDIR | 0o755, &who)?;
        tree.inode_mut(id)?.attributes.links = 2;
        Ok(tree)
    }

    /// Sets the time that changes are stamped with, nanoseconds since 1970.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Attributes of a file.
    pub fn attributes(&self, id: Id) -> Result<Attributes, Errno> {
        let inode = self.inode(id)?;
        let mut attributes = inode.attributes;
        let mount = self.inode(inode.mount).map_or(&attributes, |mount| &mount.attributes);
        attributes.mount_flags = mount.mount_flags;
        match &inode.body {
            Body::File(_) | Body::Special => {}
            Body::Directory(directory) => attributes.size = 20 * directory.names.len() as u64 + 40,
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

    /// Is it a directory in which `who` may look for names?
    pub fn check_search(&self, id: Id, who: &Credentials) -> Result<(), Errno> {
        self.directory(id)?;
        self.check(id, who, 1)
    }

    /// Changes attributes, as far as `who` may (chmod(2), chown(2), utimensat(2)).
    pub fn change(&mut self, id: Id, change: &Change, who: &Credentials) -> Result<(), Errno> {
        let now = self.now;
        let may_write = self.check(id, who, 2).is_ok();
        let Attributes { uid, blocks, .. } = self.inode(id)?.attributes;
        // Others than user 0 are refused by what follows, user 0 by nothing.
        if let Some(other) = change.uid.filter(|&other| who.uid == 0 && other != uid) {
            self.owners.give(uid, other, blocks / BLOCKS)?;
            if self.inode(id)?.listed {
                self.owners.unlist(uid);
                self.owners.list(other);
            }
        }
        let inode = self.inode_mut(id)?;
        let attributes = &mut inode.attributes;
        let owner = who.uid == 0 || who.uid == attributes.uid;
        let times = change.read_ns.is_some() || change.written_ns.is_some();
        let Change { mode, uid, gid, owner: gives, .. } = *change;
        let given = Given { mode, uid, gid, owner: gives };
        attributes.may_be_given(&given, who)?;
        if times && !owner && !(change.touch && may_write) {
            return Err(if change.touch { Errno::EACCES } else { Errno::EPERM });
        }
        // Others than its owner give it nothing, and so it stays: a program is begun if it is as it
        // was looked at.
        if !owner && !times {
            return Ok(());
        }
        attributes.give(&given, who);
        // Who does not own a file and may write it sets its times to the present one.
        let told = |asked: Option<u64>, before| match asked {
            Some(_) if change.touch => now,
            asked => asked.unwrap_or(before),
        };
        attributes.read_ns = told(change.read_ns, attributes.read_ns);
        attributes.written_ns = told(change.written_ns, attributes.written_ns);
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
    /// the last time; with some several times. After very many changes: with one for each version
    /// word (`crate::versions`), whether it has changed or not.
    #[inline]
    pub fn take_changed(&mut self, tell: impl FnMut(Id)) {
        if core::mem::take(&mut self.all_changed) {
            self.changed.clear();
            (0..u64::from(crate::versions::WORDS)).for_each(tell);
        } else {
            self.changed.iter().copied().for_each(tell);
            self.changed.clear();
        }
    }

    /// Sets how what has this root is mounted.
    pub fn remount(&mut self, id: Id, flags: u64, who: &Credentials) -> Result<(), Errno> {
        if who.uid != 0 {
            return Err(Errno::EPERM);
        }
        if id == ROOT || self.inode(id)?.mount != id || self.directory(id).is_err() {
            return Err(Errno::EINVAL);
        }
        self.inode_mut(id)?.attributes.mount_flags = flags;
        // All that is in there, that is.
        self.all_changed = true;
        Ok(())
    }

    /// Inodes without a name that are still held open.
    pub fn has_orphans(&self) -> bool {
        self.orphans > 0
    }

    /// Why there is no inode of this tag: it has ended, or this life never gave the name.
    fn missing(slot: &Slot, tag: u64) -> Errno {
        let ended = slot.tag & (LIVES - 1) == tag & (LIVES - 1) && tag < slot.tag;
        if ended { Errno::ESTALE } else { Errno::EIO }
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    fn index(id: Id) -> u32 {
        (id & INODES_MAX) as u32
    }

    fn inode(&self, id: Id) -> Result<&Inode, Errno> {
        let slot = self.slot(Self::index(id)).ok_or(Errno::EIO)?;
        let tag = id >> INDEX_BITS;
        let inode = slot.inode.as_ref().filter(|_| slot.tag == tag);
        inode.ok_or_else(|| Self::missing(slot, tag))
    }

    /// An inode to change so that others see it.
    fn inode_mut(&mut self, id: Id) -> Result<&mut Inode, Errno> {
        if self.changed.last() != Some(&id) {
            // Without room the vector would ask for memory.
            if self.changed.len() < self.changed.capacity() {
                self.changed.push(id);
            } else {
                self.all_changed = true;
            }
        }
        self.inode_unseen(id)
    }

    /// An inode to change in what nobody sees.
    fn inode_unseen(&mut self, id: Id) -> Result<&mut Inode, Errno> {
        let slot = self.slot_mut(Self::index(id)).ok_or(Errno::EIO)?;
        let tag = id >> INDEX_BITS;
        if slot.tag != tag {
            return Err(Self::missing(slot, tag));
        }
        slot.inode.as_mut().ok_or(Errno::EIO)
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

    /// A slot that is free.
    fn free_slot(&mut self) -> Result<u32, Errno> {
        if self.free != NOWHERE {
            return Ok(self.free);
        }
        if u64::from(self.used) >= INODES_MAX {
            return Err(Errno::ENOSPC);
        }
        if self.slots.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.slots.try_reserve(1).map_err(|_| Errno::ENOSPC)?;
            self.slots.push(map::vector(CHUNK)?);
        }
        let index = self.used;
        // The first one is the root directory, whose name is the same in every life.
        let tag = if index == 0 { 0 } else { self.life };
        if let Some(chunk) = self.slots.last_mut() {
            chunk.push(Slot { tag, inode: None, next: NOWHERE });
        }
        self.used += 1;
        self.free = index;
        Ok(index)
    }

    /// Makes an inode without a name.
    fn add(&mut self, body: Body, mode: u32, who: &Credentials) -> Result<Id, Errno> {
        let pages = match &body {
            Body::Link(target) => u64::from(target.len() > LINK_INLINE),
            _ => 0,
        };
        let room = self.room_of(who.uid);
        if room.inodes == 0 || room.pages < pages {
            return Err(Errno::ENOSPC);
        }
        let index = self.free_slot()?;
        self.owners.add(who.uid)?;
        let now = self.now;
        let slot = self.slot_mut(index).ok_or(Errno::ENOSPC)?;
        let id = slot.tag << INDEX_BITS | u64::from(index);
        let attributes = Attributes {
            device: DEVICE,
            inode: id + 1,
            mode,
            links: 0,
            uid: who.uid,
            gid: who.gid,
            blocks: pages * BLOCKS,
            read_ns: now,
            written_ns: now,
            changed_ns: now,
            ..Attributes::default()
        };
        let (mount, holders, orphan, listed) = (id, 0, false, false);
        let (shown, stays, way) = (false, 0, ending::LastWay::default());
        let inode = Inode { attributes, mount, holders, orphan, listed, shown, stays, way, body };
        slot.inode = Some(inode);
        self.free = core::mem::replace(&mut slot.next, NOWHERE);
        self.inodes += 1;
        self.pages += pages;
        self.owners.grow(who.uid, pages);
        Ok(id)
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
            inode.attributes.changed(now);
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
        if name.is_empty() || bytes::has_either(name, *b"/\0") {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}
