//! `sockaddr_un`: names in the file system, and abstract ones, which begin with a NUL.

use alloc::vec::Vec;
use linux_raw_sys::general;
use linux_raw_sys::net as raw;
use unix::Errno;
use unix::local::NAME_MAX;
use unix::protocol::NO_NODE;

use super::connection;
use super::connection::End;
use super::{Kind, NOBODY, Peer, UnixSocket};
use crate::errno::Answer;
use crate::fs::memory_sockets::{Inbox, Introduced};
use crate::fs::node::Node;
use crate::fs::open::memory_directory;
use crate::fs::pipe::READER;
use crate::fs::region::Done;
use crate::fs::region::{self, Region};
use crate::fs::walk::Last;
use crate::process::Process;
use crate::user;
use crate::wait::{Wait, sleep_until};
use abi::id::RegionId;
use abi::predicate::Operator;
use unix::local::{CLAIMED, INBOX_FRAMES, PEER, PORT_FRAMES, offer};
use unix::ring::{HEAD, TAIL};

/// Bytes of the family before the name.
const FAMILY: u32 = 2;
/// Names tried for one that nobody asked for: "\0" and five digits.
const AUTOMATIC: u32 = 1 << 20;

/// Reads the name of an address of `len` bytes, up to its NUL if it is a path; empty: none was
/// given.
pub fn read(address: u64, len: u64) -> Result<Vec<u8>, Errno> {
    let len = len as u32;
    if !(FAMILY..=FAMILY + NAME_MAX as u32).contains(&len) {
        return Err(Errno::EINVAL);
    }
    let mut bytes = alloc::vec![0; len as usize];
    user::read_bytes(address, &mut bytes)?;
    let name = bytes.split_off(FAMILY as usize);
    if bytes != (raw::AF_UNIX as u16).to_le_bytes() {
        return Err(Errno::EINVAL);
    }
    Ok(match name.first() {
        Some(0) | None => name,
        Some(_) => name.split(|&byte| byte == 0).next().unwrap_or(&[]).to_vec(),
    })
}

/// The same of an address that must name something.
pub fn read_named(address: u64, len: u64) -> Result<Vec<u8>, Errno> {
    let name = read(address, len)?;
    if name.is_empty() { Err(Errno::EINVAL) } else { Ok(name) }
}

/// Is the family at `address` `AF_UNSPEC`, which takes a datagram socket's peer away?
pub fn is_unspecified(address: u64, len: u64) -> Result<bool, Errno> {
    let family = || user::read_value::<u16>(address).map(u32::from);
    Ok(len as u32 >= FAMILY && family()? == raw::AF_UNSPEC)
}

/// Writes an address into `room` bytes; its true length. A path has a NUL behind it.
pub fn put(address: u64, room: u32, name: &[u8]) -> Result<u32, Errno> {
    let mut bytes = (raw::AF_UNIX as u16).to_le_bytes().to_vec();
    bytes.extend(name);
    if name.first().is_some_and(|&byte| byte != 0) {
        bytes.push(0);
    }
    user::write_bytes(address, &bytes[..bytes.len().min(room as usize)])?;
    Ok(bytes.len() as u32)
}

/// Writes an address where the room for it is the word at `len`, which gets its true length.
pub fn write(address: u64, len: u64, name: &[u8]) -> Result<(), Errno> {
    if address == 0 {
        return Ok(());
    }
    let room: u32 = user::read_value(len)?;
    if room > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    let true_len = put(address, room, name)?;
    user::write_value(len, &true_len)
}

/// The node that a name of the file system leads to; none: the name is abstract.
fn node_of(process: &Process, name: &[u8]) -> Result<u64, Errno> {
    if name.first() == Some(&0) {
        return Ok(NO_NODE);
    }
    match process.files.find(general::AT_FDCWD, name, Last::Follow)?.node {
        Node::Memory(id) => Ok(id),
        _ => Err(Errno::ECONNREFUSED),
    }
}

impl UnixSocket {
    /// Its name; empty: it has none.
    pub(super) fn name(&self) -> Result<Vec<u8>, Errno> {
        if let (Some(id), Some(head)) = (self.port.get(), self.port_head()?) {
            return head.name(Region { id, role: READER }, 0);
        }
        match self.link.get() {
            Some(end) => {
                let written = end.written();
                written.half()?.name(written.region, written.at)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Its peer's.
    pub(super) fn peer_name(&self, process: &Process) -> Result<Vec<u8>, Errno> {
        let channel = match (self.link.get(), self.peer.get()) {
            (Some(end), _) => end.read(),
            (None, Some(Peer::Paired(id))) => Self::outbox(id),
            (None, Some(Peer::Named(inbox))) => {
                // It has a name as long as there is a socket, and takes what we send or not.
                let inbox = self.connected(inbox);
                let found = process.files.client()?.socket_look(&inbox, self.own_inbox());
                return found.or(Err(Errno::ENOTCONN));
            }
            _ => return Err(Errno::ENOTCONN),
        };
        channel.half()?.name(channel.region, channel.at)
    }

    /// `bind` to `name`; empty: to any abstract one.
    pub(super) fn bind(&self, process: &mut Process, name: &[u8]) -> Result<(), Errno> {
        if !name.is_empty() {
            return self.bind_to(process, name);
        }
        if !self.name()?.is_empty() {
            return Ok(());
        }
        let first = xok::call::entropy().unwrap_or_else(|_| xok::clock::now_ns()) as u32;
        for at in 0..AUTOMATIC {
            let number = first.wrapping_add(at) % AUTOMATIC;
            match self.bind_to(process, alloc::format!("\0{number:05x}").as_bytes()) {
                Err(Errno::EADDRINUSE) => {}
                other => return other,
            }
        }
        Err(Errno::ENOSPC)
    }

    fn bind_to(&self, process: &mut Process, name: &[u8]) -> Result<(), Errno> {
        let named = !self.name()?.is_empty();
        if name.first() == Some(&0) {
            if named {
                return Err(Errno::EINVAL);
            }
            return self.register(process, NO_NODE, name);
        }
        let found = process.files.walk(general::AT_FDCWD, name, Last::Name)?;
        if found.place.is_some() {
            return Err(Errno::EADDRINUSE);
        }
        if found.slash {
            return Err(Errno::ENOENT);
        }
        let parent = memory_directory(&found.parent)?;
        if named {
            return Err(Errno::EINVAL);
        }
        let mode = general::S_IFSOCK | 0o777 & !process.files.umask;
        let client = process.files.client()?;
        let made = client.create(parent, &found.name, mode, RegionId::NONE);
        let (node, _) = made.map_err(|errno| match errno {
            Errno::EEXIST => Errno::EADDRINUSE,
            other => other,
        })?;
        self.register(process, node, name).inspect_err(|_| {
            // Nobody is behind that name.
            let _ = client.remove(parent, &found.name, false);
        })
    }

    /// Has the file server know the name.
    fn register(&self, process: &mut Process, node: u64, name: &[u8]) -> Result<(), Errno> {
        let had = self.port.get();
        let id = match had {
            Some(id) => id,
            None => self.make_port()?,
        };
        let region = Region { id, role: READER };
        connection::put_name(region, 0, name)?;
        let client = process.files.client()?;
        let bound = client.socket_bind(node, (id, self.kind as u32), name);
        if let Err(errno) = bound {
            connection::put_name(region, 0, &[])?;
            if had.is_none() {
                region.detach();
                self.port.set(None);
            }
            return Err(errno);
        }
        if let Some(end) = self.link.get() {
            connection::put_name(end.own(), end.written().at, name)?;
        }
        Ok(())
    }

    /// Makes its port, or its inbox.
    pub(super) fn make_port(&self) -> Result<RegionId, Errno> {
        let id = region::make(if self.is_connection() { PORT_FRAMES } else { INBOX_FRAMES })?;
        Region { id, role: READER }.attach()?;
        self.port.set(Some(id));
        if let (Some(inbox), Some(peer)) = (self.inbox(), self.peer.get()) {
            connection::set(inbox.region, PEER, peer.id().0)?;
        }
        Ok(id)
    }

    /// Asks the file server for who is behind `name`, or only whether it can be had (`looks`).
    fn introduce(
        &self,
        process: &mut Process,
        name: &[u8],
        (looks, nonblocking): (bool, bool),
    ) -> Result<(RegionId, [u32; 3]), Errno> {
        node_of(process, name)?;
        let end = if looks { None } else { Some(connection::make_first()?) };
        let made = end.map_or(RegionId::NONE, |end| end.region);
        let found = match self.ask_for(process, name, (looks, nonblocking), made) {
            Ok(Introduced::To(region, owner)) => Ok((region, owner)),
            Ok(_) => Ok((RegionId::NONE, NOBODY)),
            Err(errno) => Err(errno),
        };
        found.inspect_err(|_| end.iter().for_each(|end| end.own().detach()))
    }

    /// The same; a connection's first end is made already.
    fn ask_for(
        &self,
        process: &mut Process,
        name: &[u8],
        (looks, nonblocking): (bool, bool),
        made: RegionId,
    ) -> Result<Introduced, Errno> {
        let which = (self.kind as u32, process.id.0, looks);
        loop {
            let node = node_of(process, name)?;
            let own_name = self.name()?;
            let client = process.files.client()?;
            match client.socket_connect(node, which, name, &own_name, made)? {
                Introduced::Full(port, tail) => {
                    let mut wait = Wait::new();
                    wait.region(port.id, TAIL, Operator::NotEqual, tail).end_term();
                    let owners = region::attached_address(port.id, READER);
                    wait.memory(owners, Operator::Equal, 0).end_term();
                    let slept = match nonblocking {
                        true => Err(Errno::EAGAIN),
                        false => sleep_until(process, &wait, 0).map(|_| ()),
                    };
                    port.detach();
                    slept?;
                }
                found => return Ok(found),
            }
        }
    }

    /// `connect`
    pub(super) fn connect(
        &self,
        process: &mut Process,
        name: &[u8],
        nonblocking: bool,
    ) -> Result<(), Errno> {
        if self.kind == Kind::Datagrams {
            let inbox = self.find_inbox(process, name)?;
            process.files.client()?.socket_look(&inbox, self.own_inbox())?;
            return self.set_peer(Some(Peer::Named(inbox)));
        }
        // What is wrong with the name is told first.
        let refusal = match self.link.get() {
            Some(_) => Some(Errno::EISCONN),
            None if self.listens.get() => Some(Errno::EINVAL),
            None => None,
        };
        let looks = refusal.is_some();
        let (region, owner) = self.introduce(process, name, (looks, nonblocking))?;
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        self.link.set(Some(End { region, end: 0 }));
        self.peer_owner.set(owner);
        Ok(())
    }

    /// Where its datagrams go from now on, and whose alone come.
    pub(super) fn set_peer(&self, peer: Option<Peer>) -> Result<(), Errno> {
        self.full.set((RegionId::NONE, 0));
        self.peer_seal.set(match peer {
            Some(Peer::Named(inbox)) => inbox.seal,
            _ => 0,
        });
        if let Some(before) = self.peer.replace(peer).and_then(Peer::attached) {
            before.detach();
        }
        match self.inbox() {
            Some(inbox) => connection::set(inbox.region, PEER, peer.map_or(0, |peer| peer.id().0)),
            None => Ok(()),
        }
    }

    /// Its own inbox, or none.
    pub(super) fn own_inbox(&self) -> RegionId {
        self.port.get().unwrap_or(RegionId::NONE)
    }

    /// Where a datagram to `name` goes.
    pub(super) fn find_inbox(&self, process: &mut Process, name: &[u8]) -> Result<Inbox, Errno> {
        match self.ask_for(process, name, (false, true), RegionId::NONE)? {
            Introduced::Inbox(inbox) => Ok(inbox),
            _ => Err(Errno::EPROTOTYPE),
        }
    }

    /// `accept`: one end of a connection, and who has the other one.
    pub(super) fn accept(
        &self,
        process: &mut Process,
        nonblocking: bool,
    ) -> Result<(End, [u32; 3]), Errno> {
        if !self.is_connection() {
            return Err(Errno::EOPNOTSUPP);
        }
        let Some(id) = self.port.get().filter(|_| self.listens.get()) else {
            return Err(Errno::EINVAL);
        };
        let port = Region { id, role: READER };
        let domain = crate::fs::memory_files::own_domain();
        loop {
            let (head, tail) = port.pair()?;
            if head == tail {
                if nonblocking {
                    return Err(Errno::EAGAIN);
                }
                let mut wait = Wait::new();
                wait.region_words(id, HEAD, Operator::NotEqual, TAIL).end_term();
                sleep_until(process, &wait, 0)?;
                continue;
            }
            // Who moves the tail has it, and says so where the server looks. Another process that
            // has the socket may have stored there what it likes.
            let at = |offset, value| abi::region::WordAt { offset, value };
            let write = [at(offer(tail), CLAIMED | domain.0), at(TAIL, tail.wrapping_add(1))];
            if port.copy_in(0, &[], &[at(TAIL, tail)], &write)? == Done::Yes {
                let (region, owner) = process.files.client()?.socket_accept(id, tail)?;
                return Ok((End { region, end: 1 }, owner));
            }
        }
    }

    /// Does a connection wait to be accepted?
    pub(super) fn has_offer(&self) -> Result<bool, Errno> {
        Ok(self.port_head()?.is_some_and(|port| port.head != port.tail))
    }
}

/// `bind(fd, address, len)`
pub fn bind(process: &mut Process, socket: &UnixSocket, place: u64, len: u64) -> Answer {
    let name = read(place, len)?;
    socket.bind(process, &name).map(|()| 0)
}
