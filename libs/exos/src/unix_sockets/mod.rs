//! Local sockets (unix(7)): connections and inboxes in regions, names by way of the file server.
//!
//! ```text
//!  calls ──► UnixSocket ──► link: one end of a connection   two rings, an end is a role
//!               │           port: its own name              connections offered; or an inbox
//!               │           peer: where datagrams go        another one's inbox
//!  fs::Description
//! ```
//! Data goes from end to end of a connection through a region that only the two ends, and processes
//! that inherit one, are attached to (layouts: `unix::local`). The file server introduces them to
//! each other: it offers one end at the port, and attaches the one of the port's owners that takes
//! it. Bytes of connections never pass it; a datagram to a name does, as only its owners may read
//! an inbox (`named`). There are no locks: the kernel counts a dead process out.

pub mod calls;
pub mod connection;
mod messages;
mod named;
mod names;
pub mod options;
mod ready;
pub mod records;
pub mod streams;

use abi::id::RegionId;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::net as raw;
use unix::Errno;
use unix::local::{INBOX, LIMIT};

use crate::fs::memory_sockets::Inbox;
use crate::fs::pipe::{READER, WRITER};
use crate::fs::region::{Heritage, Region};
use crate::fs::seal::Seal;
use crate::process::Process;
use connection::{End, Half};
use records::Channel;

static NUMBERS: AtomicU32 = AtomicU32::new(0);
/// The first number: those below are IPv4 sockets.
const FIRST_NUMBER: u32 = 1 << 16;

/// What is kept apart: bytes, packets of a connection, datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SOCK_STREAM`
    Stream = 1,
    /// `SOCK_DGRAM`
    Datagrams = 2,
    /// `SOCK_SEQPACKET`
    Packets = 5,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        match number {
            raw::SOCK_STREAM => Some(Kind::Stream),
            raw::SOCK_DGRAM => Some(Kind::Datagrams),
            raw::SOCK_SEQPACKET => Some(Kind::Packets),
            _ => None,
        }
    }
}

/// A local socket.
#[derive(Debug)]
pub struct UnixSocket {
    /// What it transports.
    pub kind: Kind,
    /// What /proc shows.
    pub number: u32,
    /// Its end of a connection.
    link: Cell<Option<End>>,
    /// Its name's region: a port, or an inbox of datagrams.
    port: Cell<Option<RegionId>>,
    /// Does it accept connections?
    listens: Cell<bool>,
    /// The inbox that its datagrams go to.
    peer: Cell<Option<Peer>>,
    /// What says that it was connected there.
    peer_seal: Seal,
    /// The inbox of which the file server said last that it is full, and after how many operations.
    full: Cell<(RegionId, u64)>,
    /// Of datagrams: was writing shut down?
    ended: Cell<bool>,
    /// A reset was told already.
    told: Cell<bool>,
    /// Options set, a bit each by their number.
    options: Cell<u64>,
    /// Who is at the other end, or listens: pid, user, group. The file server has said so, or it
    /// was we: it stands where only we write.
    peer_owner: Cell<[u32; 3]>,
}

/// An inbox that is not one's own.
#[derive(Clone, Copy, Debug)]
enum Peer {
    /// Of the other socket of a pair; the own domain is attached.
    Paired(RegionId),
    /// Of a name: the file server puts datagrams in.
    Named(Inbox),
}

impl Peer {
    fn id(self) -> RegionId {
        match self {
            Peer::Paired(id) | Peer::Named(Inbox { id, .. }) => id,
        }
    }

    /// What is attached for it.
    fn attached(self) -> Option<Region> {
        match self {
            Peer::Paired(id) => Some(Region { id, role: WRITER }),
            Peer::Named(_) => None,
        }
    }

    /// Its region, and its handle or 0.
    fn words(self) -> (u64, u64) {
        match self {
            Peer::Paired(id) => (id.0, 0),
            Peer::Named(Inbox { handle, id, .. }) => (id.0, handle),
        }
    }

    fn from_words(id: RegionId, handle: u64) -> Self {
        match handle {
            0 => Peer::Paired(id),
            _ => Peer::Named(Inbox { handle, id, seal: 0 }),
        }
    }
}

/// Nobody: what is told where there is no peer.
const NOBODY: [u32; 3] = [0, u32::MAX, u32::MAX];

impl UnixSocket {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            number: FIRST_NUMBER + NUMBERS.fetch_add(1, Ordering::Relaxed),
            link: Cell::default(),
            port: Cell::default(),
            listens: Cell::default(),
            peer: Cell::default(),
            peer_seal: Seal::default(),
            full: Cell::new((RegionId::NONE, 0)),
            ended: Cell::default(),
            told: Cell::default(),
            options: Cell::default(),
            peer_owner: Cell::new(NOBODY),
        }
    }

    fn linked(kind: Kind, end: End, peer_owner: [u32; 3]) -> Self {
        let socket = Self::new(kind);
        socket.link.set(Some(end));
        socket.peer_owner.set(peer_owner);
        socket
    }

    /// The regions it is attached to.
    fn regions(&self) -> impl Iterator<Item = Region> {
        let link = self.link.get().map(|end| end.own());
        let port = self.port.get().map(|id| Region { id, role: READER });
        let peer = self.peer.get().and_then(Peer::attached);
        [link, port, peer].into_iter().flatten()
    }

    /// The inbox that its datagrams go to, and what says that it was connected there.
    pub fn sealed(&self) -> Option<(u64, &Seal)> {
        match self.peer.get()? {
            Peer::Named(inbox) => Some((inbox.handle, &self.peer_seal)),
            Peer::Paired(_) => None,
        }
    }

    /// The inbox, with its seal as it is now.
    fn connected(&self, inbox: Inbox) -> Inbox {
        Inbox { seal: self.peer_seal.get(), ..inbox }
    }

    /// Attaches another domain to what it has.
    pub fn attach(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        self.regions().try_for_each(|region| heritage.add(&region))
    }

    /// The last descriptor is closed.
    pub fn close(&self) {
        self.regions().for_each(|region| region.detach());
    }

    /// The words that bring it through `exec`.
    pub fn saved(&self) -> [u64; 8] {
        let id = |region: Option<RegionId>| region.map_or(0, |id| id.0);
        let (link, end) = self.link.get().map_or((0, 0), |end| (end.region.0, end.end));
        // Datagrams have no connection: the handle of the inbox that they go to has its place.
        let (peer, handle) = self.peer.get().map_or((0, 0), Peer::words);
        let link = if self.is_connection() { link } else { handle };
        let flags = [self.listens.get(), self.ended.get(), self.told.get()];
        let flags = flags.iter().enumerate().map(|(at, &on)| u64::from(on) << (8 + at));
        let first = self.kind as u64 | flags.sum::<u64>() | u64::from(end) << 16;
        let [pid, user, group] = self.peer_owner.get().map(u64::from);
        let port = id(self.port.get());
        let seal = self.peer_seal.next();
        [first, link, port, peer, self.options.get(), pid | user << 32, group, seal]
    }

    /// Reads them.
    pub fn loaded(words: [u64; 8]) -> Result<Self, Errno> {
        let [first, link, port, peer, options, owner, group, seal] = words;
        let id = |word: u64| Some(RegionId(word)).filter(|id| !id.is_none());
        let socket = Self::new(Kind::from_number(first as u8 as u32).ok_or(Errno::EINVAL)?);
        socket.listens.set(first >> 8 & 1 != 0);
        socket.ended.set(first >> 9 & 1 != 0);
        socket.told.set(first >> 10 & 1 != 0);
        let end = |region| End { region, end: (first >> 16) as u16 & 1 };
        socket.link.set(id(link).filter(|_| socket.is_connection()).map(end));
        socket.port.set(id(port));
        socket.peer.set(id(peer).map(|id| Peer::from_words(id, link)));
        socket.options.set(options);
        socket.peer_seal.set(seal);
        socket.peer_owner.set(unix::local::owner([owner, group]));
        Ok(socket)
    }

    fn is_connection(&self) -> bool {
        self.kind != Kind::Datagrams
    }

    /// Its end of a connection, or `error`.
    fn end(&self, error: Errno) -> Result<End, Errno> {
        self.link.get().ok_or(error)
    }

    /// The inbox that it reads, if it has one.
    fn inbox(&self) -> Option<Channel> {
        let id = self.port.get().filter(|_| !self.is_connection())?;
        Some(Channel { region: Region { id, role: READER }, at: 0, ring: INBOX })
    }

    /// An inbox that it writes to.
    fn outbox(id: RegionId) -> Channel {
        Channel { region: Region { id, role: WRITER }, at: 0, ring: INBOX }
    }

    /// The head of the port or inbox of its own.
    fn port_head(&self) -> Result<Option<Half>, Errno> {
        let half = |id| Half::read(Region { id, role: READER }, 0);
        self.port.get().map(half).transpose()
    }

    /// `listen`
    fn listen(&self, process: &Process, backlog: i32) -> Result<(), Errno> {
        if !self.is_connection() {
            return Err(Errno::EOPNOTSUPP);
        }
        let Some(id) = self.port.get().filter(|_| self.link.get().is_none()) else {
            return Err(Errno::EINVAL);
        };
        // One more may wait than is said.
        let most = unix::local::OFFER_COUNT - 1;
        let limit = u64::try_from(backlog).map_or(most, |backlog| backlog.min(most)) + 1;
        let region = Region { id, role: READER };
        process.files.client()?.socket_listen(id, process.id.0)?;
        self.peer_owner.set(connection::ourselves(process));
        connection::set(region, LIMIT, limit)?;
        self.listens.set(true);
        Ok(())
    }

    /// `shutdown`
    fn shutdown(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        if let Some(end) = self.link.get() {
            return end.shut_down(reads, writes);
        }
        if self.is_connection() {
            return Ok(());
        }
        self.ended.set(self.ended.get() | writes);
        match self.inbox() {
            Some(inbox) if reads => connection::set(inbox.region, unix::local::ENDED, 1),
            _ => Ok(()),
        }
    }

    /// Is that a failure to be told, by `SO_ERROR` or a read?
    fn is_reset(&self) -> Result<bool, Errno> {
        match self.link.get() {
            Some(end) if !self.told.get() => end.is_reset(),
            _ => Ok(false),
        }
    }
}
