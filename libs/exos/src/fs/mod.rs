//! Files: descriptors, names, everything that is read and written.
//!
//! ```text
//!  table ──► open, transfers, names, status, control, poll     a module for a family of calls
//!               │
//!  Files: descriptor ──► Description (offset, flags; shared by fork) ──► OpenFile
//!               │                                                          │
//!            walk: path ──► Node in: image_files  memory_files  node (/dev)  proc_files
//!                                    pipe  terminal  (regions)
//! ```
//! The seam to `crate::process`:
//! fork: the heap is copied eagerly, so a child has the same `Files`; `attach` gives the child's
//! domain its attachments and seals first, `adopt` takes them there. vfork: `clone`, which shares
//! the descriptions. exec: `close_on_exec`, or, to a new domain, `without_close_on_exec`, `attach`,
//! `save`; there `load`. exit: the kernel drops the domain's attachments; a vfork child's `detach`.

pub mod at_once;
pub mod control;
pub mod description;
pub mod epoll;
pub mod event_counter;
pub mod extended;
pub mod image_files;
pub mod locks;
pub mod lookups;
pub mod memory_files;
pub mod memory_sockets;
pub mod names;
pub mod node;
pub mod open;
pub mod open_file;
pub mod pipe;
pub mod poll;
pub mod proc_files;
mod proc_records;
pub mod processor;
pub mod pty;
pub mod region;
mod room;
pub mod saved;
pub mod seal;
pub mod shown;
pub mod signal_file;
pub mod status;
pub mod table;
pub mod terminal;
pub mod terminal_control;
pub mod timer_file;
pub mod transfer;
pub mod transfers;
pub mod walk;
pub mod whose;

use abi::id::EnvId;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use image::archive::Kind;
use linux_raw_sys::general as raw;
use unix::attributes::{Attributes, Credentials, Membership};
use unix::path::Canonical;
use unix::process_page::{DIRECTORY, Mark, ROOT_DIRECTORY};
use unix::protocol::DATA_BYTES;
use unix::tree::Id;

use crate::errno::Errno;
use crate::process::Process;
use crate::{group_list, identity};
use description::Description;
use lookups::Lookups;
use memory_files::{Client, Transport};
use node::{Device, Node, Place};
use open_file::OpenFile;
use region::Heritage;
use seal::Heir;
use shown::Shown;
use terminal::Tty;
use transfer::Memory;
use walk::Last;

#[derive(Clone, Debug)]
struct Descriptor {
    description: Rc<Description>,
    close_on_exec: bool,
}

impl Descriptor {
    /// Does `exec` close it?
    fn ends_with_program(&self) -> bool {
        self.close_on_exec || matches!(self.description.file, OpenFile::Own(_))
    }
}

/// Open files, working directory, mask.
#[derive(Clone, Debug)]
pub struct Files {
    table: Vec<Option<Descriptor>>,
    /// Working directory.
    pub directory: Place,
    /// Where absolute paths begin.
    pub root: Place,
    /// File mode mask.
    pub umask: u32,
    /// Keeps the working directory, should somebody remove it.
    keeper: Option<Rc<Description>>,
    /// The memory file server that knows `holder`, and that `mounts` are of.
    server: Cell<EnvId>,
    /// The process whose page the memory file server knows to look into.
    holder: Cell<EnvId>,
    /// Has the process watched descriptors by epoll?
    pub watches: bool,
    /// Of the space: a child that borrows it may widen the transport, and both go on with that.
    transport: Rc<Cell<Transport>>,
    /// Files on which the process has taken locks of its own (`F_SETLK`).
    pub locked: Vec<u64>,
    mounts: RefCell<Vec<(&'static [u8], Id)>>,
    lookups: Rc<Lookups>,
    shown: Rc<Shown>,
    /// The library's memory may tell what the process may not do any more.
    stale: Cell<bool>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            table: Vec::new(),
            directory: Place::default(),
            root: Place::default(),
            umask: 0o22,
            keeper: None,
            server: Cell::default(),
            holder: Cell::default(),
            watches: false,
            transport: Rc::default(),
            locked: Vec::new(),
            mounts: RefCell::new(Vec::new()),
            lookups: Rc::default(),
            shown: Rc::default(),
            stale: Cell::default(),
        }
    }
}

/// A program that may be executed.
#[derive(Clone, Debug)]
pub struct Program {
    /// Absolute path, links resolved.
    pub path: String,
    /// Where its bytes lie in the boot image, if they do: offset (page-aligned) and size.
    pub image: Option<(u64, u64)>,
    /// Its bytes otherwise.
    pub bytes: Vec<u8>,
    /// It may be executed and not read: there are no bytes of it.
    pub hidden: bool,
    /// What it is, and its attributes; none where nobody asks whose program it is.
    pub origin: Option<(Node, Attributes)>,
}

/// What a private mapping of a file shows.
#[derive(Clone, Copy, Debug)]
pub enum Backing {
    /// Pages of the boot image from this offset on, `bytes` of them meaningful.
    Image {
        /// Offset in the image.
        offset: u64,
        /// Bytes before the file's end.
        bytes: u64,
    },
    /// Nothing to share: read the pages with `Files::read_at` when mapping.
    Copy,
    /// Zeros (`/dev/zero`).
    Zero,
}

impl Files {
    /// The first process's: descriptors 0 to 2 on the terminal, or on the standard streams.
    pub fn initial() -> Self {
        let mut files = Self::default();
        let streams = !terminal::exists();
        for number in 0..3 {
            let access = match (streams, number) {
                (false, _) => raw::O_RDWR,
                (true, 0) => raw::O_RDONLY,
                (true, _) => raw::O_WRONLY,
            };
            let tty = terminal::Tty::console().ok().filter(|_| !streams);
            let file = tty.map_or(OpenFile::Stream(number), OpenFile::Terminal);
            let path = Canonical::from_canonical(b"/dev/console");
            let description = Description::new(file, path, access, None);
            files.table.push(Some(Descriptor { description, close_on_exec: false }));
        }
        files
    }

    /// Who the process is, for files.
    pub fn who(&self) -> Credentials {
        let process = crate::thread::process();
        let more = (process.more_groups.count != 0).then_some(Membership {
            of: 0,
            asks: |_, group| group_list::contains(crate::thread::process(), group),
        });
        let [user, group] = identity::for_files(process);
        Credentials { more, ..Credentials::of(user, group) }
    }

    /// The way to the memory file server.
    pub fn client(&self) -> Result<Client, Errno> {
        self.client_to_move(DATA_BYTES)
    }

    /// The memory file server as init names it now. Of what an earlier one said nothing holds.
    pub fn server(&self) -> EnvId {
        let server = memory_files::server();
        if self.server.replace(server) != server {
            self.holder.set(EnvId::NONE);
            self.mounts.borrow_mut().clear();
        }
        server
    }

    /// The same, to read or write that many bytes.
    pub fn client_to_move(&self, bytes: u64) -> Result<Client, Errno> {
        self.server();
        Client::open(&self.transport, self.who(), bytes)
    }

    /// The description of a descriptor that was opened for something, not for its place alone
    /// (`O_PATH`), as what is done with files asks for.
    pub fn get(&self, fd: i32) -> Result<Rc<Description>, Errno> {
        let description = self.any(fd)?;
        if description.access & raw::O_PATH != 0 { Err(Errno::EBADF) } else { Ok(description) }
    }

    /// The description of any descriptor, for what also a place is good for (open(2)).
    pub fn any(&self, fd: i32) -> Result<Rc<Description>, Errno> {
        self.slot(fd).map(|slot| slot.description.clone())
    }

    /// The same, only looked at; of a number as a register has it.
    #[inline(always)]
    pub fn at(&self, number: u32) -> Option<&Description> {
        Some(&self.table.get(number as usize)?.as_ref()?.description)
    }

    fn slot(&self, fd: i32) -> Result<&Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.table.get(at).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// Numbers of the open descriptors.
    pub fn open_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.iter().enumerate().filter(|(_, slot)| slot.is_some()).map(|(at, _)| at as u32)
    }

    /// This pseudo-terminal, if a descriptor of it is open that reads; written to as by any.
    pub fn terminal(&self, wanted: Mark) -> Option<Tty> {
        let files = self.table.iter().flatten().map(|slot| &slot.description.file);
        let mut open = files.filter_map(|file| match file {
            OpenFile::Terminal(tty) if tty.mark() == wanted => Some(tty),
            _ => None,
        });
        let read = open.clone().find(|tty| tty.reads())?;
        let written = if read.writes() { None } else { open.find(|tty| tty.writes()) };
        Some(Tty { output: written.unwrap_or(read).output, ..*read })
    }

    /// Enters `description` at the lowest free number from `least` on, below `limit`.
    pub fn enter(
        &mut self,
        description: Rc<Description>,
        close_on_exec: bool,
        least: usize,
        limit: u64,
    ) -> Result<u64, Errno> {
        let free = (least..self.table.len()).find(|&at| self.table[at].is_none());
        let at = free.unwrap_or(self.table.len().max(least));
        if at as u64 >= limit {
            return Err(Errno::EMFILE);
        }
        self.put(at, description, close_on_exec);
        Ok(at as u64)
    }

    /// Enters `description` at a number, closing what was there.
    pub fn put(&mut self, at: usize, description: Rc<Description>, close_on_exec: bool) {
        if self.table.len() <= at {
            self.table.resize(at + 1, None);
        }
        let slot = Descriptor { description: description.clone(), close_on_exec };
        let before = self.table[at].replace(slot);
        let fresh = before.is_none();
        if let Some(before) = before {
            self.has_left(&before.description);
        }
        if !(fresh && crate::page::own().enter_file(at as u16, &description.name())) {
            self.publish();
        }
    }

    /// Closes a descriptor.
    pub fn close(&mut self, fd: i32) -> Result<Rc<Description>, Errno> {
        let description = self.any(fd)?;
        self.table[fd as usize] = None;
        self.has_left(&description);
        if !crate::page::own().leave_file(fd as u16) {
            self.publish();
        }
        Ok(description)
    }

    /// Lists the open files in the process's page, for everybody's /proc.
    pub fn publish(&self) {
        let page = crate::page::own();
        page.clear_files();
        page.add_file(DIRECTORY, self.directory.path.as_bytes());
        if self.root.path.as_bytes() != b"/" {
            page.add_file(ROOT_DIRECTORY, self.root.path.as_bytes());
        }
        let mut count = 0;
        for (at, slot) in self.table.iter().enumerate() {
            let Some(slot) = slot else { continue };
            count += 1;
            page.add_file(at as u16, &slot.description.name());
        }
        page.descriptors = count;
    }

    /// Goes to a directory; one that can be removed is held.
    pub fn enter_directory(&mut self, place: Place) -> Result<(), Errno> {
        self.keeper = match place.node {
            Node::Memory(id) => Some(open::hold(self, id, place.path.clone())?),
            _ => None,
        };
        self.directory = place;
        self.publish();
        Ok(())
    }

    /// Is it closed by `exec`?
    pub fn closes_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.slot(fd).map(|slot| slot.close_on_exec)
    }

    /// Sets whether it is.
    pub fn set_close_on_exec(&mut self, fd: i32, close: bool) -> Result<(), Errno> {
        self.slot(fd)?;
        if let Some(Some(slot)) = self.table.get_mut(fd as usize) {
            slot.close_on_exec = close;
        }
        Ok(())
    }

    /// The descriptions, each once.
    pub fn descriptions(&self) -> Vec<Rc<Description>> {
        let mut list: Vec<Rc<Description>> = Vec::new();
        let open = self.table.iter().flatten().map(|slot| &slot.description);
        for description in open.chain(&self.keeper) {
            if !list.iter().any(|known| Rc::ptr_eq(known, description)) {
                list.push(description.clone());
            }
        }
        list
    }

    /// Is a socket among them?
    pub fn has_sockets(&self) -> bool {
        let mut open = self.table.iter().flatten();
        open.any(|slot| matches!(slot.description.file, OpenFile::Socket(_)))
    }

    /// Can all that is open be offered to a program that acts for another user? Of sockets their
    /// peers would have to be told.
    pub fn can_be_offered(&self) -> bool {
        let is_socket =
            |file: &OpenFile| matches!(file, OpenFile::Socket(_) | OpenFile::UnixSocket(_));
        !self.descriptions().iter().any(|description| is_socket(&description.file))
    }

    /// The sockets, each once.
    pub fn sockets(&self) -> Vec<Rc<Description>> {
        let mut all = self.descriptions();
        all.retain(|description| matches!(description.file, OpenFile::Socket(_)));
        all
    }

    /// Has all that is shared inherited, by attachments that the caller has; who inherits gets
    /// seals of its own.
    pub fn attach(&self, heritage: &mut Heritage, heir: Option<Heir>) -> Result<(), Errno> {
        if self.has_console() {
            terminal::attach(heritage)?;
        }
        self.descriptions().iter().try_for_each(|description| {
            self.entrust(description)?;
            description.share(heritage)?;
            heir.into_iter().for_each(|heir| self.pass(description, heir));
            Ok(())
        })
    }

    /// Does the process keep the console: by a descriptor, as its session's terminal, or because
    /// one of its users is 0, who may always open it? And has it not let go of it?
    fn has_console(&self) -> bool {
        let mut open = self.table.iter().flatten().map(|slot| &slot.description.file);
        let is_open = open.any(is_console);
        let users = crate::thread::process().users;
        let keeps = is_open || crate::page::own().terminal == 1 || users.contains(&0);
        keeps && terminal::has_console()
    }

    /// The process has become another user, or leads a session, or has closed a descriptor: without
    /// a reason to keep the console it lets go of it, and cannot have it again. The attachments of
    /// a child that borrows its parent's space are the parent's.
    pub fn leave_console(&self) {
        if !crate::thread::process().borrows_space && !self.has_console() {
            terminal::leave_console();
        }
    }

    /// A descriptor of `description` is no more.
    fn has_left(&mut self, description: &Description) {
        locks::closed(self, description);
        self.note_end(description);
        if is_console(&description.file) {
            self.leave_console();
        }
    }

    /// Lets go of everything: the end of a process whose domain stays.
    pub fn detach(&mut self) {
        self.table.clear();
        self.keeper = None;
    }

    /// Closes what `exec` closes; called on a clone in the caller's process.
    pub fn without_close_on_exec(&mut self) {
        for slot in &mut self.table {
            if slot.as_ref().is_some_and(Descriptor::ends_with_program) {
                *slot = None;
            }
        }
    }

    /// Closes what `exec` closes.
    pub fn close_on_exec(&mut self) {
        for fd in 0..self.table.len() as i32 {
            if self.slot(fd).is_ok_and(Descriptor::ends_with_program) {
                // It is open, and so it closes.
                let _ = self.close(fd);
            }
        }
    }

    /// Writes everything `load` needs.
    pub fn save(&self, out: &mut Vec<u8>) {
        saved::save(self, out);
    }

    /// Reads what `save` wrote; the attachments are there.
    pub fn load(bytes: &[u8]) -> Result<Self, Errno> {
        saved::load(bytes)
    }

    /// Finds a program by path for `exec` (from `directory`, a descriptor or AT_FDCWD): may it be
    /// executed, where are its bytes?
    pub fn program(&self, directory: i32, path: &[u8], flags: u32) -> Result<Program, Errno> {
        let place = if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 {
            self.start(directory)?
        } else if flags & raw::AT_SYMLINK_NOFOLLOW != 0 {
            self.find(directory, path, Last::Keep)?
        } else {
            self.find(directory, path, Last::Follow)?
        };
        let attributes = place.node.attributes(self)?;
        if attributes.kind() == raw::S_IFLNK {
            return Err(Errno::ELOOP);
        }
        if attributes.kind() != raw::S_IFREG || !attributes.permits(&self.who(), 1) {
            return Err(Errno::EACCES);
        }
        let path = String::from_utf8_lossy(place.path.as_bytes()).into_owned();
        let origin = Some((place.node, attributes));
        match place.node {
            Node::Image(index) => {
                let entry = image_files::entry(index).ok_or(Errno::EIO)?;
                let image = Some((entry.data_offset, entry.size));
                Ok(Program { path, image, bytes: Vec::new(), hidden: false, origin })
            }
            Node::Memory(_) if !attributes.permits(&self.who(), 4) => {
                Ok(Program { path, image: None, bytes: Vec::new(), hidden: true, origin })
            }
            Node::Memory(id) => {
                let client = self.client_to_move(attributes.size)?;
                let mut bytes = alloc::vec![0; attributes.size as usize];
                let mut done = 0;
                while done < bytes.len() {
                    let count = client.read((id, 0), done as u64, &mut bytes[done..])?;
                    if count == 0 {
                        break;
                    }
                    done += count;
                }
                bytes.truncate(done);
                Ok(Program { path, image: None, bytes, hidden: false, origin })
            }
            _ => Err(Errno::EACCES),
        }
    }

    /// What `mmap` of descriptor `fd` at `offset` shows.
    pub fn backing(&self, fd: i32, offset: u64) -> Result<Backing, Errno> {
        let description = self.get(fd)?;
        if !description.readable() {
            return Err(Errno::EACCES);
        }
        match &description.file {
            OpenFile::Node(Node::Image(index)) => {
                let entry = image_files::entry(*index).ok_or(Errno::EIO)?;
                if entry.kind != Kind::File {
                    return Err(Errno::ENODEV);
                }
                let bytes = entry.size.saturating_sub(offset);
                Ok(Backing::Image { offset: entry.data_offset.saturating_add(offset), bytes })
            }
            OpenFile::Node(Node::Memory(_)) => Ok(Backing::Copy),
            OpenFile::Node(Node::Device(Device::Zero)) => Ok(Backing::Zero),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Reads at `offset` without moving the descriptor's own (for `Backing::Copy`).
    pub fn read_at(&self, fd: i32, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let description = self.get(fd)?;
        let count = open_file::read_at(self, &description, offset, &mut Memory::buffer(into))?;
        Ok(count as usize)
    }
}

/// Writes a remark of ours to the process's standard error, if it has one that takes it.
pub fn remark(process: &mut Process, mut text: Vec<u8>) {
    let Ok(description) = process.files.get(2) else { return };
    let mut memory = Memory::buffer(&mut text);
    // It is a remark on an error that is answered in any case.
    let _ = open_file::write(process, &description, &mut memory);
}

/// Is this the console's terminal, or the console itself?
fn is_console(file: &OpenFile) -> bool {
    matches!(file, OpenFile::Terminal(Tty { number: None, .. }) | OpenFile::Stream(_))
}
