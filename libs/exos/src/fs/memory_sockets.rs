//! What the file server does for local sockets: names, introductions, datagrams to names.

use abi::id::RegionId;
use alloc::vec::Vec;
use unix::Errno;
use unix::protocol::{BY_SEAL, DATA, LOOK, NAME_FIRST, Operation, SOCKET_OWN_NAME, WATCHER};

use super::memory_files::Client;
use super::region::Region;

/// Whom the server has introduced us to.
#[derive(Clone, Copy, Debug)]
pub enum Introduced {
    /// A connection, and who has its other end; the own domain is attached.
    To(RegionId, [u32; 3]),
    /// An inbox.
    Inbox(Inbox),
    /// Nobody: that was only looked at.
    Possible,
    /// Nobody yet: no more may wait at this port, whose tail was so.
    Full(Region, u64),
}

/// The inbox of a name.
#[derive(Clone, Copy, Debug)]
pub struct Inbox {
    /// By which the server knows it, and that the client may send there.
    pub handle: u64,
    /// Its region.
    pub id: RegionId,
    /// What says that we were connected to it, whatever its name's mode is by now.
    pub seal: u64,
}

impl Client {
    /// Puts a local socket of this type behind a name.
    pub fn socket_bind(
        &self,
        node: u64,
        (port, kind): (RegionId, u32),
        name: &[u8],
    ) -> Result<(), Errno> {
        self.send(DATA, name)?;
        let which = u64::from(port.0 as u32) | u64::from(kind) << 32;
        let arguments = [node, which, name.len() as u64, 0];
        self.ask(Operation::SocketBind, arguments).map(|_| ())
    }

    /// Goes to whom a name leads; see `Operation::SocketConnect`.
    pub fn socket_connect(
        &self,
        node: u64,
        (kind, pid, looks): (u32, u32, bool),
        name: &[u8],
        own_name: &[u8],
        connection: RegionId,
    ) -> Result<Introduced, Errno> {
        self.send(DATA, name)?;
        self.send(DATA + SOCKET_OWN_NAME, own_name)?;
        let looks = u64::from(looks) << 24;
        let lengths = looks | (name.len() as u64) << 8 | (own_name.len() as u64) << 16;
        let arguments = [node, u64::from(kind) | lengths, u64::from(pid), connection.0];
        let [region, port, tail, handle] = self.ask(Operation::SocketConnect, arguments)?;
        Ok(match region {
            region if handle != 0 => {
                Introduced::Inbox(Inbox { handle, id: RegionId(region), seal: tail })
            }
            0 if port == 0 => Introduced::Possible,
            0 => Introduced::Full(Region { id: RegionId(port), role: WATCHER }, tail),
            region => Introduced::To(RegionId(region), unix::local::owner([port, tail])),
        })
    }

    /// Has the file server put a datagram into an inbox; `None`: it has it, else it is full after
    /// so many operations.
    pub fn socket_send(
        &self,
        inbox: &Inbox,
        own: RegionId,
        bytes: &[u8],
        [pid, user, group]: [u32; 3],
    ) -> Result<Option<u64>, Errno> {
        if bytes.len() as u64 > self.room() {
            return Err(Errno::ENOBUFS);
        }
        self.send(DATA, bytes)?;
        let own = u64::from(own.0 as u32) | u64::from(pid) << 32;
        let ids = u64::from(user) | u64::from(group) << 32;
        let arguments = [inbox.handle, own, bytes.len() as u64, ids];
        let [sent, operations, ..] = self.ask_connected(inbox, arguments)?;
        Ok((sent == 0).then_some(operations))
    }

    /// Asks for what the inbox's mode permits; if that is nothing, by the seal.
    fn ask_connected(&self, inbox: &Inbox, arguments: [u64; 4]) -> Result<[u64; 4], Errno> {
        match self.ask(Operation::SocketSend, arguments) {
            Err(Errno::EACCES) if inbox.seal != 0 => {
                let [handle, own, what, ids] = arguments;
                self.send(NAME_FIRST, &inbox.seal.to_le_bytes())?;
                self.ask(Operation::SocketSend, [handle, own, what | BY_SEAL, ids])
            }
            answer => answer,
        }
    }

    /// The name of an inbox, if it takes datagrams of the socket with the inbox `own`.
    pub fn socket_look(&self, inbox: &Inbox, own: RegionId) -> Result<Vec<u8>, Errno> {
        let ids = u64::from(self.ids[0]) | u64::from(self.ids[1]) << 32;
        let arguments = [inbox.handle, u64::from(own.0 as u32), LOOK, ids];
        let [_, len, ..] = self.ask_connected(inbox, arguments)?;
        let mut name = alloc::vec![0; (len as usize).min(unix::local::NAME_MAX)];
        self.receive(DATA, &mut name)?;
        Ok(name)
    }

    /// Takes the connection of the offer with this number, which we have claimed.
    pub fn socket_accept(
        &self,
        port: RegionId,
        number: u64,
    ) -> Result<(RegionId, [u32; 3]), Errno> {
        let arguments = [port.0, number, 0, 0];
        let [region, first, group, _] = self.ask(Operation::SocketAccept, arguments)?;
        Ok((RegionId(region), unix::local::owner([first, group])))
    }

    /// From now on who connects there is told that it is this process.
    pub fn socket_listen(&self, port: RegionId, pid: u32) -> Result<(), Errno> {
        self.ask(Operation::SocketListen, [port.0, pid.into(), 0, 0]).map(|_| ())
    }
}
