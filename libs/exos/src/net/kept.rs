//! A socket that processes share: what each of them does, in regions between it and the keeper.
//!
//! ```text
//!  users ──── tx: a pipe's ring ────► keeper ──► its own stack, ring, filters
//!    ▲                                   │
//!    └─────── rx: a pipe's ring ─────────┘       a stream's bytes, a datagram or an offer a record
//!
//!  either region:  0 … 64 as a pipe's   64 status   72 shut   80 peer of datagrams   4096 data
//! ```
//! Users read rx and write tx in a pipe's roles, the keeper has the two others: whoever dies is no
//! longer counted, and that is how the end of the last user, and the keeper's, are known. Nobody
//! holds anything while it waits. A connection is offered by its regions' ids; the process that
//! attaches to them first has it ([`super::offers`]).

use abi::id::{DomainId, EnvId, RegionId};
use abi::predicate::{Atom, Operator, Source};
use abi::region::WordAt;
use core::net::{Ipv4Addr, SocketAddrV4};
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::ring::{HEAD, PIPE_BUF, TAIL};
use xok::call::Refused;

use super::append;
use super::transfers::DATAGRAM;
use crate::capabilities::FAMILY_SLOT;
use crate::errno::from_kernel;
use crate::fs::pipe::{Pipe, READER, RING, WRITER};
use crate::fs::region::{self, Done, Heritage, Region};
use crate::fs::whose::Whose;
use crate::wait::Wait;

/// Offset of how far it has come: the keeper's to write.
pub const STATUS: u64 = 64;
/// Offset of the word that says that reading (in rx) or writing (in tx) was shut down.
pub const SHUT: u64 = 72;
/// Offset of the peer that a datagram socket was connected to, packed; 0: none.
const PEER: u64 = 80;
/// Statuses: it is being connected; it is open; the peer has ended its stream.
pub const CONNECTING: u64 = 0;
/// See [`CONNECTING`].
pub const OPEN: u64 = 1;
/// See [`CONNECTING`].
pub const ENDED: u64 = 2;
/// It failed; the error's number stands above the low byte.
pub const FAILED: u64 = 3;
/// Bytes before a datagram: its length, port and address.
pub const DATAGRAM_HEAD: usize = 8;
/// Offset of the word that rings for users that may not post to the keeper: those that have become
/// another user since.
const BELL_WORD: u64 = PEER + 8;
/// Bytes before a region's data that are looked at.
const HEAD_BYTES: usize = BELL_WORD as usize + 8;
/// Nanoseconds that a keeper may take to let go of a port.
const KEEPER_NS: u64 = 1_000_000_000;
/// What the bell posts.
const BELL: u64 = 1;

const _: () = assert!(RING.data > BELL_WORD);

/// What is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A connection.
    Stream = 1,
    /// A port that accepts connections.
    Listener = 2,
    /// A datagram socket.
    Datagrams = 3,
}

/// A shared socket, as one of its users has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it is.
    pub kind: Kind,
    /// What the keeper writes.
    pub rx: RegionId,
    /// What users write; none of a listener.
    pub tx: RegionId,
    /// Who keeps it.
    pub keeper: EnvId,
    /// This end.
    pub local: SocketAddrV4,
    /// The other end of a connection.
    pub peer: SocketAddrV4,
}

/// What is ready of a socket that nonsense was stored into.
const BROKEN: u32 = raw::POLLIN | raw::POLLRDNORM | raw::POLLOUT | raw::POLLWRNORM | raw::POLLERR;

/// The words before a region's data.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Bytes ever written.
    pub head: u64,
    /// Bytes ever read.
    pub tail: u64,
    /// [`OPEN`] and its kin.
    pub status: u64,
    /// Was it shut down?
    pub shut: bool,
    /// The datagram socket's peer.
    pub peer: u64,
    /// What was stored there by the last user that rang.
    pub bell: u64,
}

/// Reads them. Any user writes there what it likes: of counters that can be, sums do not overflow.
/// Others are an error of this socket's.
pub fn head(region: Region) -> Result<Head, Errno> {
    let mut bytes = [0; HEAD_BYTES];
    region.copy_out(0, &mut bytes, &[], &[])?;
    let word = |at: u64| {
        let bytes = bytes.get(at as usize..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let (head, tail) = (word(HEAD), word(TAIL));
    if !RING.can_be(head, tail) {
        return Err(Errno::EIO);
    }
    let (status, shut) = (word(STATUS), word(SHUT) != 0);
    Ok(Head { head, tail, status, shut, peer: word(PEER), bell: word(BELL_WORD) })
}

/// An address in a word, and back.
pub fn pack(address: SocketAddrV4) -> u64 {
    u64::from(address.ip().to_bits()) << 16 | u64::from(address.port())
}

/// See [`pack`].
pub fn unpack(word: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from_bits((word >> 16) as u32), word as u16)
}

/// The end of a ring that is read, and the one that is written.
pub fn reading(region: RegionId) -> Pipe {
    Pipe::new(region, (true, false), Whose::of([0, 0]))
}

/// See [`reading`].
pub fn writing(region: RegionId) -> Pipe {
    Pipe::new(region, (false, true), Whose::of([0, 0]))
}

/// Attaches our own domain, by the name that relatives of one user have.
pub fn attach(region: RegionId, role: u16) -> Result<(), Errno> {
    attach_by(FAMILY_SLOT, region, role).map_err(|(error, _)| from_kernel(error))
}

fn attach_by(slot: u8, region: RegionId, role: u16) -> Result<(), Refused> {
    xok::call::region_attach(slot, region, role, DomainId::NONE).map(|_| ())
}

/// Copies what lies at `position` of a ring, of which so many bytes are there; does not take it.
pub fn look(region: Region, position: u64, into: &mut [u8]) -> Result<(), Errno> {
    let span = RING.span(position, into.len() as u64);
    let (end, beginning) = into.split_at_mut(span.len as usize);
    region.copy_out(span.offset, end, &[], &[])?;
    if !beginning.is_empty() {
        region.copy_out(RING.data, beginning, &[], &[])?;
    }
    Ok(())
}

/// Moves a ring's tail if nobody else has meanwhile: what was looked at is the caller's.
pub fn pass(region: Region, from: u64, to: u64) -> Result<Done, Errno> {
    let compare = [WordAt { offset: TAIL, value: from }];
    region.copy_out(0, &mut [], &compare, &[WordAt { offset: TAIL, value: to }])
}

/// The errno of a failure; another user may have stored what is none.
fn failure_of(status: u64) -> Errno {
    match (status >> 8) as u16 {
        errno @ 1..4096 => Errno(errno),
        _ => Errno::EIO,
    }
}

impl Kept {
    pub(super) fn reader(&self) -> Region {
        Region { id: self.rx, role: READER }
    }

    fn writer(&self) -> Region {
        Region { id: self.tx, role: WRITER }
    }

    fn has_tx(&self) -> bool {
        self.kind != Kind::Listener
    }

    /// Lets another domain become a user.
    pub fn share(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        heritage.add(&self.reader())?;
        if self.has_tx() { heritage.add(&self.writer()) } else { Ok(()) }
    }

    /// Becomes a user oneself.
    pub fn join(&self) -> Result<(), Errno> {
        self.join_by(FAMILY_SLOT).map_err(|(error, _)| from_kernel(error))
    }

    /// The same by the name in another slot.
    pub(super) fn join_by(&self, slot: u8) -> Result<(), Refused> {
        // First where the keeper counts users: it closes what has none.
        if self.has_tx() {
            attach_by(slot, self.tx, WRITER)?;
        }
        let joined = attach_by(slot, self.rx, READER);
        if joined.is_err() && self.has_tx() {
            self.writer().detach();
        }
        joined
    }

    /// Is a user no more. When the last one has left a port, nobody is reached there.
    pub fn leave(&self) {
        let ends = self.kind != Kind::Stream && region::attached(self.rx, READER) == 1;
        self.reader().detach();
        if self.has_tx() {
            self.writer().detach();
        }
        self.ring_bell();
        if ends {
            self.await_keeper();
        }
    }

    /// Waits until the keeper has let go, too; a dead one has.
    fn await_keeper(&self) {
        let end = xok::clock::now_ns() + KEEPER_NS;
        let mut wait = Wait::new();
        let keepers = region::attached_address(self.rx, WRITER);
        wait.memory(keepers, Operator::Equal, 0).end_term();
        while !reading(self.rx).no_writer() && xok::clock::now_ns() < end {
            if xok::call::predicate_set(wait.atoms()).is_err() {
                break;
            }
            // Whatever ends the sleep, the loop looks again.
            let _ = xok::call::sleep(end, 0, 0, 0);
        }
        let _ = xok::call::predicate_set(&[]);
        crate::thread::own().has_predicate = false;
    }

    /// Tells the keeper that there is something to do. A dead one has nothing to do.
    pub fn ring_bell(&self) {
        if xok::call::post(FAMILY_SLOT, self.keeper, BELL).is_err() {
            // Each ring is another value.
            let rung = [WordAt { offset: BELL_WORD, value: xok::clock::tsc() }];
            let _ = self.reader().copy_in(0, &[], &[], &rung);
        }
    }

    /// Is the bell's word something else than that?
    pub fn rings(&self, wait: &mut Wait, heard: u64) {
        wait.region(self.rx, BELL_WORD, Operator::NotEqual, heard).end_term();
    }

    /// Is this process the only user, so that what was written is its own to see off?
    pub fn is_last(&self) -> bool {
        self.kind == Kind::Stream && region::attached(self.tx, WRITER) == 1
    }

    /// Does the keeper still send what was written?
    pub fn is_sending(&self) -> bool {
        region::attached(self.tx, READER) != 0
    }

    /// The failure, if it has failed; the keeper's death is one.
    fn failure(&self, status: u64) -> Option<Errno> {
        match status & 0xff {
            FAILED => Some(failure_of(status)),
            CONNECTING | OPEN if reading(self.rx).no_writer() => Some(Errno::ECONNRESET),
            _ => None,
        }
    }

    /// See [`Kept::failure`]; for `SO_ERROR`.
    pub fn error(&self) -> Option<Errno> {
        self.failure(head(self.reader()).ok()?.status)
    }

    /// Is the connection being made? `None`: it is there.
    pub fn is_connecting(&self) -> Result<bool, Errno> {
        let status = head(self.reader())?.status;
        self.failure(status).map_or(Ok(status == CONNECTING), Err)
    }

    /// Takes bytes of a stream; 0: its end; `None`: nothing yet.
    pub fn take(&self, into: &mut [u8], peeks: bool) -> Result<Option<usize>, Errno> {
        loop {
            // Looked at first: what the keeper wrote before it left must still be seen.
            let ended = reading(self.rx).no_writer();
            let head = head(self.reader())?;
            let used = RING.used(head.head, head.tail).min(into.len() as u64) as usize;
            if head.shut {
                return Ok(Some(0));
            }
            if used > 0 {
                look(self.reader(), head.tail, &mut into[..used])?;
                if peeks || pass(self.reader(), head.tail, head.tail + used as u64)? == Done::Yes {
                    return Ok(Some(used));
                }
                continue;
            }
            if !ended {
                return Ok(None);
            }
            return self.failure(head.status).map_or(Ok(Some(0)), Err);
        }
    }

    /// Writes bytes of a stream; 0: there is no room now.
    pub fn queue(&self, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            let head = head(self.writer())?;
            if head.shut {
                return Err(Errno::EPIPE);
            }
            if writing(self.tx).no_reader() {
                return Err(self.error().unwrap_or(Errno::EPIPE));
            }
            let room = RING.free(head.head, head.tail).min(bytes.len() as u64);
            let part = &bytes[..room.min(PIPE_BUF) as usize];
            if part.is_empty() || append::append(self.tx, head.head, part)? == Done::Yes {
                return Ok(part.len());
            }
        }
    }

    /// Takes a datagram, or looks at it: its length, and who sent it.
    pub fn take_datagram(
        &self,
        into: &mut [u8],
        peeks: bool,
    ) -> Result<Option<(usize, SocketAddrV4)>, Errno> {
        loop {
            let Some((head, len, from)) = self.peers_datagram()? else {
                let gone = reading(self.rx).no_writer();
                return if gone { Err(Errno::ENETDOWN) } else { Ok(None) };
            };
            let taken = len.min(into.len());
            look(self.reader(), head.tail + DATAGRAM_HEAD as u64, &mut into[..taken])?;
            let next = head.tail + (DATAGRAM_HEAD + len) as u64;
            if peeks || pass(self.reader(), head.tail, next)? == Done::Yes {
                return Ok(Some((len, from)));
            }
        }
    }

    /// The next datagram, where it is, and who sent it: a socket that has a peer hears that alone.
    fn peers_datagram(&self) -> Result<Option<(Head, usize, SocketAddrV4)>, Errno> {
        loop {
            let head = head(self.reader())?;
            let Some((len, from)) = next_datagram(self.reader(), &head)? else { return Ok(None) };
            if head.peer == 0 || head.peer == pack(from) {
                return Ok(Some((head, len, from)));
            }
            pass(self.reader(), head.tail, head.tail + (DATAGRAM_HEAD + len) as u64)?;
        }
    }

    /// Queues a datagram; `EAGAIN`: there is no room.
    pub fn queue_datagram(&self, bytes: &[u8], to: Option<SocketAddrV4>) -> Result<(), Errno> {
        let to = to.or(self.datagram_peer()?).ok_or(Errno::EDESTADDRREQ)?;
        if bytes.len() > DATAGRAM - DATAGRAM_HEAD {
            return Err(Errno::EMSGSIZE);
        }
        let mut record = [0; DATAGRAM];
        let record = fill_datagram(&mut record, bytes, to);
        loop {
            if writing(self.tx).no_reader() {
                return Err(Errno::ENETDOWN);
            }
            let head = head(self.writer())?;
            if RING.free(head.head, head.tail) < record.len() as u64 {
                return Err(Errno::EAGAIN);
            }
            if append::append(self.tx, head.head, record)? == Done::Yes {
                return Ok(());
            }
        }
    }

    /// The peer that a datagram socket was connected to.
    pub fn datagram_peer(&self) -> Result<Option<SocketAddrV4>, Errno> {
        let peer = head(self.reader())?.peer;
        Ok((peer != 0).then(|| unpack(peer)))
    }

    /// Connects a datagram socket, for all its users.
    pub fn set_peer(&self, peer: Option<SocketAddrV4>) -> Result<(), Errno> {
        let write = [WordAt { offset: PEER, value: peer.map_or(0, pack) }];
        self.reader().copy_in(0, &[], &[], &write).map(|_| ())
    }

    /// Shuts reading or writing down, for all users.
    pub fn shut_down(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        let shut = [WordAt { offset: SHUT, value: 1 }];
        if reads {
            self.reader().copy_in(0, &[], &[], &shut)?;
        }
        if writes && self.has_tx() {
            self.writer().copy_in(0, &[], &[], &shut)?;
        }
        self.ring_bell();
        Ok(())
    }

    /// Bytes that can be read, or those of the next datagram.
    pub fn waiting(&self) -> Result<u64, Errno> {
        let head = head(self.reader())?;
        match self.kind {
            Kind::Stream => Ok(RING.used(head.head, head.tail)),
            Kind::Listener => Err(Errno::EINVAL),
            Kind::Datagrams => Ok(self.peers_datagram()?.map_or(0, |(_, len, _)| len as u64)),
        }
    }

    /// `POLL…` bits that hold now.
    pub fn ready(&self, told: bool) -> Result<u32, Errno> {
        let ended = reading(self.rx).no_writer();
        // Who acts upon it is told what is wrong with this one; a wait for others goes on.
        if self.kind == Kind::Datagrams && self.peers_datagram().is_err() {
            return Ok(BROKEN);
        }
        let Ok(rx) = head(self.reader()) else { return Ok(BROKEN) };
        let mut found = 0;
        if RING.used(rx.head, rx.tail) > 0 || ended || rx.shut {
            found |= raw::POLLIN | raw::POLLRDNORM;
        }
        if self.kind == Kind::Listener {
            return Ok(found);
        }
        let Ok(tx) = head(self.writer()) else { return Ok(BROKEN) };
        let broken = writing(self.tx).no_reader();
        let room = RING.free(tx.head, tx.tail) >= PIPE_BUF && rx.status != CONNECTING;
        if room || broken || tx.shut {
            found |= raw::POLLOUT | raw::POLLWRNORM;
        }
        if self.kind == Kind::Stream {
            if ended || rx.shut {
                found |= raw::POLLRDHUP;
            }
            if ended && (broken || tx.shut) || rx.shut && tx.shut {
                found |= raw::POLLHUP;
            }
            if self.failure(rx.status).is_some() && !told {
                found |= raw::POLLERR;
            }
        }
        Ok(found)
    }

    /// Adds what ends a wait for reading or for writing, of what does not hold already.
    pub fn wait_terms(&self, reads: bool, writes: bool, wait: &mut Wait) {
        if reads {
            // Whatever comes: both counters are the region's.
            wait.push(Atom {
                operator: Operator::NotEqual as u8,
                left: Source::Region as u8,
                right: Source::Region as u8,
                region: self.rx.0,
                left_value: HEAD,
                right_value: TAIL,
                ..Atom::default()
            });
            wait.end_term();
            wait.region(self.rx, SHUT, Operator::NotEqual, 0).end_term();
        }
        if reads || !reading(self.rx).no_writer() {
            let keepers = region::attached_address(self.rx, WRITER);
            wait.memory(keepers, Operator::Equal, 0).end_term();
        }
        if !writes || !self.has_tx() {
            return;
        }
        match self.is_connecting() {
            Ok(true) => self.connected_terms(wait),
            _ => {
                if let Ok(head) = head(self.writer()) {
                    let enough = (head.head + PIPE_BUF).saturating_sub(RING.capacity);
                    wait.region(self.tx, TAIL, Operator::AtLeast, enough).end_term();
                }
                let keepers = region::attached_address(self.tx, READER);
                wait.memory(keepers, Operator::Equal, 0).end_term();
                wait.region(self.tx, SHUT, Operator::NotEqual, 0).end_term();
            }
        }
    }

    /// Adds the end of an attempt to connect.
    pub fn connected_terms(&self, wait: &mut Wait) {
        wait.region(self.rx, STATUS, Operator::NotEqual, CONNECTING).end_term();
        let keepers = region::attached_address(self.rx, WRITER);
        wait.memory(keepers, Operator::Equal, 0).end_term();
    }

    /// The words that bring it through `exec`.
    pub fn saved(&self) -> [u64; 5] {
        let kind = self.kind as u64 | u64::from(self.keeper.0) << 32;
        [kind, self.rx.0, self.tx.0, pack(self.local), pack(self.peer)]
    }

    /// See [`Kept::saved`]; `None`: it was none.
    pub fn loaded([kind, rx, tx, local, peer]: [u64; 5]) -> Option<Kept> {
        let known = match kind as u32 {
            1 => Kind::Stream,
            2 => Kind::Listener,
            3 => Kind::Datagrams,
            _ => return None,
        };
        Some(Kept {
            kind: known,
            rx: RegionId(rx),
            tx: RegionId(tx),
            keeper: EnvId((kind >> 32) as u32),
            local: unpack(local),
            peer: unpack(peer),
        })
    }
}

/// The head of the datagram that is next in a ring: its length, and whose it is.
pub fn next_datagram(region: Region, head: &Head) -> Result<Option<(usize, SocketAddrV4)>, Errno> {
    let used = RING.used(head.head, head.tail) as usize;
    if used == 0 {
        return Ok(None);
    }
    // No more of it comes, and who waits for more would find that there is something.
    if used < DATAGRAM_HEAD {
        return Err(Errno::EIO);
    }
    let mut bytes = [0; DATAGRAM_HEAD];
    look(region, head.tail, &mut bytes)?;
    let [l0, l1, p0, p1, a, b, c, d] = bytes;
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    // A user may have written nonsense into what others read, too.
    let len = len.min(used - DATAGRAM_HEAD).min(DATAGRAM);
    let address = Ipv4Addr::new(a, b, c, d);
    Ok(Some((len, SocketAddrV4::new(address, u16::from_le_bytes([p0, p1])))))
}

/// Writes a datagram's record.
pub fn fill_datagram<'a>(
    record: &'a mut [u8; DATAGRAM],
    bytes: &[u8],
    address: SocketAddrV4,
) -> &'a [u8] {
    let len = bytes.len().min(DATAGRAM - DATAGRAM_HEAD);
    record[0..2].copy_from_slice(&(len as u16).to_le_bytes());
    record[2..4].copy_from_slice(&address.port().to_le_bytes());
    record[4..8].copy_from_slice(&address.ip().octets());
    record[DATAGRAM_HEAD..DATAGRAM_HEAD + len].copy_from_slice(&bytes[..len]);
    &record[..DATAGRAM_HEAD + len]
}
