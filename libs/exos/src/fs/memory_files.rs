//! The client of the memory file server: requests by control transfer, data in a region.

use abi::id::{DomainId, EnvId, RegionId};
use abi::region::{COPY_IN, COPY_OUT};
use unix::attributes::{ATTRIBUTES_BYTES, Attributes, Credentials, Space};
use unix::protocol::{
    BY_SEAL, CLIENT, DATA, DATA_BYTES, LOCK_PROCESS, NAME_FIRST, NAME_SECOND, Operation, Request,
    TARGET, TRANSFER_BYTES, TRANSPORT_FRAMES, WALK_BYTES, answer, outcome,
};
use unix::tree::Id;
use unix::tty::shared::Entry;
use unix::versions::Seen;
use unix::{Errno, protocol};
use xok::services::{self, Service};
use xok::{call, clock};

use super::locks::Owner;
use super::pty::Name;
use super::region::{self, Region};
use super::room::{Hope, Wanted};
use super::transfer::Memory;
use alloc::vec;
use alloc::vec::Vec;

/// Nanoseconds for which a request waits for the successor of a server that has ended.
const SUCCESSION: u64 = 10_000_000_000;
/// Nanoseconds between two looks whether there is one.
const SUCCESSION_LOOK: u64 = 1_000_000;

/// Bytes moved at a time where memory is not in one piece.
const PIECE: usize = 4096;

/// The way to the server: the domain that the region belongs to, and the region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transport {
    domain: DomainId,
    region: RegionId,
    room: u64,
}

impl Transport {
    /// The region, if there is one and it is this domain's.
    pub fn region_of(&self, domain: DomainId) -> Option<RegionId> {
        (self.domain == domain && !self.region.is_none()).then_some(self.region)
    }
}

/// A file, and the seal that says what it was opened for; 0: its mode decides.
pub type Sealed = (Id, u64);

/// How far the server walked.
#[derive(Debug)]
pub struct Walked {
    /// `unix::protocol::outcome`
    pub outcome: u64,
    /// The node reached.
    pub node: Id,
    /// Where it was found.
    pub parent: Id,
    /// Bytes of the path used up.
    pub used: usize,
    /// The node's kind and permissions.
    pub mode: u32,
    /// The node's attributes, if they were asked for and it is there.
    pub attributes: Option<Attributes>,
    /// What all this depends on, if that was asked for, too, and could be told.
    pub seen: Option<Seen>,
    /// Where a link leads.
    pub target: Vec<u8>,
}

/// A conversation with the server, in one process.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    server: EnvId,
    region: Region,
    room: u64,
    /// The user and the group for which it acts.
    pub(super) ids: [u32; 2],
}

/// Attributes to change, as the protocol's `CHANGE_…` bits and words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Which count.
    pub which: u64,
    /// Mode, uid, gid, read time, written time.
    pub words: [u64; 5],
}

/// The domain that the process runs in.
pub fn own_domain() -> DomainId {
    let own = crate::thread::process().id;
    xok::published::env_domain(own).unwrap_or(DomainId::NONE)
}

/// A directory that was there a moment ago has no names.
fn if_gone(errno: Errno) -> Errno {
    if errno == Errno::ESTALE { Errno::ENOENT } else { errno }
}

/// The server that init names; none: there is none.
pub fn server() -> EnvId {
    EnvId(services::get(Service::Files) as u32)
}

/// The server that takes the place of one that has ended.
fn successor(former: EnvId) -> Result<EnvId, Errno> {
    let end = clock::now_ns() + SUCCESSION;
    loop {
        let server = server();
        if server != former && !server.is_none() {
            return Ok(server);
        }
        let now = clock::now_ns();
        if now >= end {
            return Err(Errno::EIO);
        }
        // Whatever ends the sleep, the loop looks again.
        let _ = call::sleep(now + SUCCESSION_LOOK, 0, 0, 0);
    }
}

impl Client {
    /// Opens the way, or finds it open; a wide one to move more than `DATA_BYTES`, if the account
    /// has the frames.
    pub fn open(
        transport: &core::cell::Cell<Transport>,
        who: Credentials,
        bytes: u64,
    ) -> Result<Self, Errno> {
        let server = server();
        if server.is_none() {
            return Err(Errno::ENODEV);
        }
        let domain = own_domain();
        let mut known = transport.get();
        let exists = known.domain == domain && !known.region.is_none();
        if !exists || known.room < bytes.min(TRANSFER_BYTES) {
            match Self::make_transport(domain, bytes) {
                Ok(made) => {
                    if exists {
                        Region { id: known.region, role: CLIENT }.detach();
                    }
                    known = made;
                    transport.set(known);
                }
                Err(errno) if !exists => return Err(errno),
                Err(_) => {}
            }
        }
        let region = Region { id: known.region, role: CLIENT };
        Ok(Self { server, region, room: known.room, ids: [who.uid, who.gid] })
    }

    /// Makes a transport region, a narrow one if there are no frames for a wide one.
    fn make_transport(domain: DomainId, bytes: u64) -> Result<Transport, Errno> {
        let [narrow, wide] = TRANSPORT_FRAMES;
        let made = match bytes > DATA_BYTES {
            true => region::make(wide).map(|id| (id, TRANSFER_BYTES)).ok(),
            false => None,
        };
        let (id, room) = match made {
            Some(made) => made,
            None => (region::make(narrow)?, DATA_BYTES),
        };
        Region { id, role: CLIENT }.attach()?;
        Ok(Transport { domain, region: id, room })
    }

    /// Bytes that one request reads or writes at most.
    pub fn room(&self) -> u64 {
        self.room
    }

    pub(super) fn ask(&self, operation: Operation, arguments: [u64; 4]) -> Result<[u64; 4], Errno> {
        let region = self.region.id.0 as u32;
        let who = Credentials::of(self.ids[0], self.ids[1]);
        let request = Request { operation, region, arguments, who };
        let mut server = self.server;
        loop {
            match call::transfer_when_free(server, request.to_words()) {
                Ok(reply) => return answer(&reply),
                // It has ended, perhaps by this very request: the next one is asked once. Of what
                // was in the files nothing is left; it answers `EIO` about files that it never had.
                Err(_) if server == self.server => server = successor(server)?,
                Err(_) => return Err(Errno::EIO),
            }
        }
    }

    pub(super) fn send(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.region.copy_in(offset, bytes, &[], &[]).map(|_| ())
    }

    pub(super) fn receive(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        if into.is_empty() {
            return Ok(());
        }
        self.region.copy_out(offset, into, &[], &[]).map(|_| ())
    }

    fn receive_attributes(&self) -> Result<Attributes, Errno> {
        let mut bytes = [0; ATTRIBUTES_BYTES];
        self.receive(DATA, &mut bytes)?;
        Ok(Attributes::from_bytes(&bytes))
    }

    /// What `Walk` shows: attributes, and what they and the way to them depend on.
    fn receive_shown(&self) -> Result<(Attributes, Option<Seen>), Errno> {
        let mut bytes = [0; WALK_BYTES];
        self.receive(DATA, &mut bytes)?;
        let (first, rest) = bytes.split_first_chunk().ok_or(Errno::EIO)?;
        let attributes = Attributes::from_bytes(first);
        let mut words = rest.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let count = words.next().unwrap_or(0);
        let mut seen = Seen::default();
        let whole = count > 0 && words.take(count as usize).all(|word| seen.add(word));
        Ok((attributes, whole.then_some(seen)))
    }

    /// Sends a name or path that fits into two arguments in them, and a longer one as data.
    fn send_short(&self, offset: u64, bytes: &[u8]) -> Result<[u64; 2], Errno> {
        match protocol::inline(bytes) {
            Some(words) => Ok(words),
            None => self.send(offset, bytes).map(|()| [0; 2]),
        }
    }

    /// Walks from `start` along `path`, which has no `..`; `attributes`: brings the node's.
    pub fn walk(&self, start: Id, path: &[u8], attributes: bool) -> Result<Walked, Errno> {
        if path.len() as u64 > DATA_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        let [first, second] = self.send_short(DATA, path)?;
        let which = path.len() as u64 | u64::from(attributes) << 32;
        let [result, node, parent, lengths] =
            self.ask(Operation::Walk, [start, which, first, second])?;
        let outcome = u64::from(result as u32);
        let (attributes, seen) = if attributes && outcome != outcome::MISSING {
            let (attributes, seen) = self.receive_shown()?;
            (Some(attributes), seen)
        } else {
            (None, None)
        };
        let mut target = vec![0; (lengths >> 32).min(DATA - TARGET) as usize];
        self.receive(TARGET, &mut target)?;
        let (used, mode) = (lengths as u32 as usize, (result >> 32) as u32);
        Ok(Walked { outcome, node, parent, used, mode, attributes, seen, target })
    }

    /// Opens for `flags`, watched by `description`, if there is one; the seal.
    pub fn open_node(&self, node: Id, flags: u32, description: RegionId) -> Result<u64, Errno> {
        let arguments = [node, u64::from(flags), description.0, 0];
        Ok(self.ask(Operation::Open, arguments)?[1])
    }

    /// Makes a file (or fifo, socket name); with `description` it is open at once. And the seal.
    pub fn create(
        &self,
        directory: Id,
        name: &[u8],
        mode: u32,
        description: RegionId,
    ) -> Result<Sealed, Errno> {
        self.send(NAME_FIRST, name)?;
        let arguments = [directory, name.len() as u64, u64::from(mode), description.0];
        let create = || self.ask(Operation::Create, arguments);
        let [node, seal, ..] = self.with_room_for_a_file(directory, create)?;
        Ok((node, seal))
    }

    /// Makes a file that the process's page says it holds; it and its number, `None` if there is
    /// something already.
    pub fn make(
        &self,
        directory: Id,
        name: &[u8],
        mode: u32,
    ) -> Result<Option<(Sealed, u64)>, Errno> {
        let [first, second] = self.send_short(NAME_FIRST, name)?;
        let which = name.len() as u64 | u64::from(mode) << 32;
        let made = self.ask(Operation::Make, [directory, which, first, second]);
        let [node, was_there, seal, number] = made.map_err(if_gone)?;
        Ok((was_there == 0).then_some(((node, seal), number)))
    }

    /// Has the server map pages of a file at `address`; how many there are, the file's size,
    /// the word on which this depends, and for how long the read is noted.
    pub fn show(&self, node: Id, first: u64, address: u64) -> Result<[u64; 4], Errno> {
        self.ask(Operation::Show, [node, first, address, 0])
    }

    /// From now on the page of this process says what it has open.
    pub fn holder(&self, process: EnvId) -> Result<(), Errno> {
        self.ask(Operation::Holder, [u64::from(process.0), 0, 0, 0]).map(|_| ())
    }

    /// Reads up to `into`, or the data area, at `offset`.
    pub fn read(&self, file: Sealed, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let count = self.load(file, offset, into.len() as u64)? as usize;
        self.receive(DATA, &mut into[..count])?;
        Ok(count)
    }

    /// Reads up to `len` bytes, or the data area, at `offset` into the data area.
    fn load(&self, (node, seal): Sealed, offset: u64, len: u64) -> Result<u64, Errno> {
        let len = len.min(self.room);
        Ok(self.ask(Operation::Read, [node, offset, len, seal])?[0].min(len))
    }

    /// Reads up to `len` bytes at `offset`; how many there were, and how many `memory` took.
    pub fn read_into(
        &self,
        file: Sealed,
        offset: u64,
        len: u64,
        memory: &mut Memory<'_>,
    ) -> Result<(u64, u64), Errno> {
        let count = self.load(file, offset, len)?;
        if count == 0 {
            return Ok((0, 0));
        }
        if let Some(address) = memory.in_one_piece(count, true) {
            self.region.copy_memory(COPY_OUT, DATA, address, count)?;
            memory.advance(count);
            return Ok((count, count));
        }
        Ok((count, self.take_in_pieces(count, memory)?))
    }

    fn take_in_pieces(&self, count: u64, memory: &mut Memory<'_>) -> Result<u64, Errno> {
        let mut buffer = [0; PIECE];
        let mut taken = 0;
        while taken < count {
            let len = (count - taken).min(PIECE as u64) as usize;
            self.receive(DATA + taken, &mut buffer[..len])?;
            match memory.put(&buffer[..len]) {
                Err(errno) if taken == 0 => return Err(errno),
                Err(_) => break,
                Ok(put) => {
                    taken += put as u64;
                    if put < len {
                        break;
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Writes up to `len` bytes of `memory`, or the data area, at `offset` (`AT_END`: behind the
    /// last byte), and waits for room within `hope`; bytes written, and the offset behind.
    pub(super) fn write_from(
        &self,
        (node, seal): Sealed,
        offset: u64,
        (len, hope): (u64, &mut Hope),
        memory: &mut Memory<'_>,
    ) -> Result<(u64, u64), Errno> {
        let mut len = len.min(self.room);
        match memory.in_one_piece(len, false) {
            Some(address) => self.region.copy_memory(COPY_IN, DATA, address, len)?,
            None => len = self.send_in_pieces(len, memory)?,
        }
        let arguments = [node, offset, len, seal];
        let write = || self.ask(Operation::Write, arguments);
        let [count, behind, ..] = self.with_room(Wanted::Pages(node), hope, write)?;
        let count = count.min(len);
        memory.advance(count);
        Ok((count, behind))
    }

    /// Sends a piece of what lies scattered or is not there to its end.
    fn send_in_pieces(&self, len: u64, memory: &mut Memory<'_>) -> Result<u64, Errno> {
        let mut buffer = [0; PIECE];
        let count = memory.peek(&mut buffer[..len.min(PIECE as u64) as usize])?;
        self.send(DATA, &buffer[..count])?;
        Ok(count as u64)
    }

    /// Sets the size.
    pub fn truncate(&self, (node, seal): Sealed, size: u64) -> Result<(), Errno> {
        self.ask(Operation::Truncate, [node, size, 0, seal]).map(|_| ())
    }

    /// Makes a file at least so long.
    pub fn lengthen(&self, (node, seal): Sealed, size: u64) -> Result<(), Errno> {
        self.ask(Operation::Truncate, [node, size, 1, seal]).map(|_| ())
    }

    /// Attributes.
    pub fn attributes(&self, node: Id) -> Result<Attributes, Errno> {
        self.ask(Operation::Attributes, [node, 0, 0, 0])?;
        self.receive_attributes()
    }

    /// Records of a directory from `position`, at most `room` bytes.
    pub fn list(
        &self,
        (directory, seal): Sealed,
        position: u64,
        room: u64,
    ) -> Result<Vec<u8>, Errno> {
        let room = room.min(DATA_BYTES);
        let count = self.ask(Operation::List, [directory, position, room, seal])?[0].min(room);
        let mut bytes = vec![0; count as usize];
        self.receive(DATA, &mut bytes)?;
        Ok(bytes)
    }

    /// Makes a directory.
    pub fn make_directory(&self, directory: Id, name: &[u8], mode: u32) -> Result<(), Errno> {
        self.send(NAME_FIRST, name)?;
        let arguments = [directory, name.len() as u64, u64::from(mode), 0];
        let make = || self.ask(Operation::MakeDirectory, arguments);
        self.with_room_for_a_file(directory, make).map(|_| ())
    }

    /// Removes a name: of a directory, or of anything else.
    pub fn remove(&self, directory: Id, name: &[u8], is_directory: bool) -> Result<(), Errno> {
        let [first, second] = self.send_short(NAME_FIRST, name)?;
        let which = name.len() as u64 | u64::from(is_directory) << 32;
        let arguments = [directory, which, first, second];
        self.ask(Operation::Remove, arguments).map(|_| ()).map_err(if_gone)
    }

    /// Renames.
    pub fn rename(&self, old: (Id, &[u8]), new: (Id, &[u8]), flags: u32) -> Result<(), Errno> {
        self.send(NAME_FIRST, old.1)?;
        self.send(NAME_SECOND, new.1)?;
        let lengths = old.1.len() as u64 | (new.1.len() as u64) << 32;
        self.ask(Operation::Rename, [old.0, new.0, lengths, u64::from(flags)]).map(|_| ())
    }

    /// One more name for a node.
    pub fn link(&self, node: Id, directory: Id, name: &[u8]) -> Result<(), Errno> {
        self.send(NAME_FIRST, name)?;
        self.ask(Operation::Link, [node, directory, name.len() as u64, 0]).map(|_| ())
    }

    /// A symbolic link.
    pub fn make_link(&self, directory: Id, name: &[u8], target: &[u8]) -> Result<(), Errno> {
        if target.len() as u64 > DATA_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        self.send(DATA, target)?;
        self.send(NAME_FIRST, name)?;
        let arguments = [directory, name.len() as u64, target.len() as u64, 0];
        let make = || self.ask(Operation::MakeLink, arguments);
        self.with_room_for_a_file(directory, make).map(|_| ())
    }

    /// Changes attributes.
    pub fn change(&self, node: Id, change: &Change) -> Result<(), Errno> {
        let mut bytes = [0; 40];
        for (place, word) in bytes.chunks_exact_mut(8).zip(change.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.send(DATA, &bytes)?;
        self.ask(Operation::Change, [node, change.which, 0, 0]).map(|_| ())
    }

    /// Where a symbolic link leads.
    pub fn link_target(&self, node: Id) -> Result<Vec<u8>, Errno> {
        let count = self.ask(Operation::ReadLink, [node, 0, 0, 0])?[0].min(DATA_BYTES);
        let mut bytes = vec![0; count as usize];
        self.receive(DATA, &mut bytes)?;
        Ok(bytes)
    }

    /// How full it is.
    pub fn space(&self) -> Result<Space, Errno> {
        let [blocks, blocks_free, files, files_free] = self.ask(Operation::Space, [0; 4])?;
        Ok(Space { kind: 0x0102_1994, blocks, blocks_free, files, files_free, flags: 0 })
    }

    /// The pipe behind a fifo; the own domain is attached in `role`.
    pub fn fifo(&self, node: Id, role: u16) -> Result<RegionId, Errno> {
        Ok(RegionId(self.ask(Operation::Fifo, [node, u64::from(role), 0, 0])?[0]))
    }

    /// Takes, tests or gives back a lock; see `Operation::Lock`.
    pub fn lock(
        &self,
        (file, seal): Sealed,
        what: u64,
        owner: Owner,
        (first, last): (u64, u64),
    ) -> Result<[u64; 4], Errno> {
        let owner = match owner {
            Owner::Description(region) => region.0 << 32,
            Owner::Process(id) => u64::from(id.0) << 32 | LOCK_PROCESS,
        };
        self.send(DATA, &seal.to_le_bytes())?;
        self.ask(Operation::Lock, [file, what | owner, first, last])
    }

    /// Makes a pseudo-terminal; its number and regions.
    pub fn terminal_make(&self) -> Result<(u32, Entry), Errno> {
        let [number, ..] = self.ask(Operation::TerminalMake, [0; 4])?;
        Ok((number as u32, self.receive_entry()?))
    }

    /// Attaches the own domain to a pseudo-terminal, if it may do there what `mask` says; 0: tells
    /// its regions.
    pub fn terminal_open(&self, (number, settings): Name, mask: u32) -> Result<Entry, Errno> {
        let arguments = [u64::from(number), u64::from(mask), settings.0, 0];
        self.ask(Operation::TerminalOpen, arguments)?;
        self.receive_entry()
    }

    /// Mode, owner and group of a pseudo-terminal.
    pub fn terminal_attributes(&self, (number, settings): Name) -> Result<[u32; 3], Errno> {
        let [mode, uid, gid, _] =
            self.ask(Operation::TerminalAttributes, [number.into(), settings.0, 0, 0])?;
        Ok([mode as u32, uid as u32, gid as u32])
    }

    /// Changes them.
    pub fn terminal_change(&self, (number, settings): Name, change: &Change) -> Result<(), Errno> {
        let [mode, uid, gid, ..] = change.words;
        let which = u64::from(number) | change.which << 32;
        let arguments = [which, settings.0, mode | uid << 32, gid];
        self.ask(Operation::TerminalChange, arguments).map(|_| ())
    }

    fn receive_entry(&self) -> Result<Entry, Errno> {
        let mut bytes = [0; Entry::BYTES];
        self.receive(DATA, &mut bytes)?;
        Entry::from_bytes(&bytes).ok_or(Errno::EIO)
    }

    /// Which pseudo-terminals there are, a bit each.
    pub fn terminals(&self) -> Result<u64, Errno> {
        Ok(self.ask(Operation::TerminalList, [0; 4])?[0])
    }

    /// Is there one with this number?
    pub fn has_terminal(&self, number: u32) -> Result<bool, Errno> {
        Ok(number < u64::BITS && self.terminals()? >> number & 1 != 0)
    }

    /// The same way for others that the domain acts for.
    pub fn acting_for(self, ids: [u32; 2]) -> Self {
        Self { ids, ..self }
    }

    /// The seal that says to another domain (none: whichever), acting for these, what ours does.
    pub fn pass(
        &self,
        (node, seal): Sealed,
        domain: DomainId,
        [user, group]: [u32; 2],
    ) -> Result<u64, Errno> {
        let arguments = [node, seal, domain.0, unix::seals::ids(user, group)];
        Ok(self.ask(Operation::Seal, arguments)?[0])
    }

    /// Have we the file open for what `mask` says, as its seal has it?
    pub fn is_sealed(&self, (node, seal): Sealed, mask: u32) -> bool {
        self.ask(Operation::Access, [node, u64::from(mask) | BY_SEAL, seal, 0]).is_ok()
    }

    /// May the caller do what `mask` says?
    pub fn access(&self, node: Id, mask: u32) -> Result<(), Errno> {
        self.ask(Operation::Access, [node, u64::from(mask), 0, 0]).map(|_| ())
    }
}
