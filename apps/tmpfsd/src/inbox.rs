//! Datagrams that senders have the server put into the inbox of a name (unix(7)).
//!
//! A sender that could write to the region would read what others sent: an inbox has its owners,
//! which read, and this server, which writes. The sender's ids and name are written by the server,
//! which knows them. A sender that finds the inbox full waits until it was operated on; asked again
//! before that, the server answers from what it has seen, by no operation of its own.

use abi::error::Error;
use abi::id::RegionId;
use abi::region::{COPY_IN, WordAt};
use unix::Errno;
use unix::local::{ENDED, HEAD_BYTES, INBOX, PEER, RECORD, Record, SKIP, room};
use unix::protocol::DATA;
use unix::ring::{HEAD, TAIL};

use crate::clients::{fetch, record, refused};
use crate::sockets::{WRITER, operate, read, word};

/// How often a datagram is put where the owner has read meanwhile.
const TRIES: usize = 8;

/// The head of an inbox, and how many operations there had been on it then.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    operations: u64,
    head: u64,
    tail: u64,
    ended: bool,
    peer: u64,
}

/// A datagram to be put into an inbox.
#[derive(Debug)]
pub struct Letter<'a> {
    /// The client's transport region, in whose data area the bytes are.
    pub transport: RegionId,
    /// How many.
    pub len: u64,
    /// The name of the sender's socket.
    pub name: &'a [u8],
    /// The sender: pid, user, group.
    pub sender: [u32; 3],
}

/// The inbox behind a name.
#[derive(Debug)]
pub struct Inbox<'a> {
    /// Its region.
    pub region: RegionId,
    /// What was seen of it.
    pub seen: &'a mut Option<Seen>,
}

impl Inbox<'_> {
    fn operations(&self) -> Result<u64, Errno> {
        record(self.region).map(|record| record.operations).ok_or(Errno::ECONNREFUSED)
    }

    /// Its head, as it was after the last operation.
    fn look(&mut self) -> Result<Seen, Errno> {
        let before = self.operations()?;
        if let Some(seen) = self.seen.filter(|seen| seen.operations == before) {
            return Ok(seen);
        }
        let mut bytes = [0; HEAD_BYTES];
        read(self.region, WRITER, 0, &mut bytes)?;
        let seen = Seen {
            operations: before + 1,
            head: word(&bytes, HEAD),
            tail: word(&bytes, TAIL),
            ended: word(&bytes, ENDED) != 0,
            peer: word(&bytes, PEER),
        };
        // Something of the owner's between the two counts: the next look reads again.
        *self.seen = Some(seen).filter(|seen| self.operations() == Ok(seen.operations));
        Ok(seen)
    }

    /// Does it take datagrams of the socket with this inbox? One that is connected takes its
    /// peer's alone.
    pub fn admits(&mut self, own: RegionId) -> Result<(), Errno> {
        let peer = self.look()?.peer;
        if peer == 0 || peer == own.0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Puts a datagram in; else it is full after so many operations.
    pub fn take(&mut self, letter: &Letter<'_>) -> Result<Option<u64>, Errno> {
        let begin = RECORD + letter.name.len();
        if letter.len > INBOX.capacity - begin as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let (name, len) = (letter.name.len() as u32, letter.len as u32);
        let head = Record { len, name, sender: letter.sender };
        let mut bytes =
            unix::map::vector(begin + letter.len as usize).map_err(|_| Errno::ENOBUFS)?;
        bytes.extend(head.to_bytes());
        bytes.extend(letter.name);
        bytes.resize(begin + letter.len as usize, 0);
        fetch(letter.transport, DATA, &mut bytes[begin..])?;
        for _ in 0..TRIES {
            let seen = self.look()?;
            if seen.ended {
                return Err(Errno::EPIPE);
            }
            // The owner may store there what it likes: then it is its own trouble.
            let whole = (seen.head | seen.tail).is_multiple_of(RECORD as u64);
            if !whole || !INBOX.can_be(seen.head, seen.tail) {
                return Err(Errno::ECONNREFUSED);
            }
            let Some(place) = room(&INBOX, seen.head, seen.tail, head.bytes()) else {
                return Ok(Some(seen.operations));
            };
            let at = |offset, value| WordAt { offset, value };
            let compare = [at(HEAD, seen.head), at(TAIL, seen.tail)];
            // The owner moves the tail; it matters only where a new one is written.
            let compare = if place.tail.is_some() { &compare[..] } else { &compare[..1] };
            let mut write = [at(HEAD, place.head), WordAt::default(), WordAt::default()];
            let mut count = 1;
            let tail = place.tail.map(|tail| at(TAIL, tail));
            let skip = place.skip.map(|offset| at(offset, u64::from(SKIP)));
            for word in [tail, skip].into_iter().flatten() {
                write[count] = word;
                count += 1;
            }
            let part = (COPY_IN, place.offset, bytes.as_ptr() as u64, bytes.len());
            let put = operate((self.region, WRITER), part, compare, &write[..count]);
            *self.seen = None;
            match put {
                Ok(()) => return Ok(None),
                Err((Error::Changed, _)) => {}
                Err(other) => return Err(refused(other)),
            }
        }
        Err(Errno::EAGAIN)
    }
}
