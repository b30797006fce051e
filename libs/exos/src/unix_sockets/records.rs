//! Rings in regions: room, waiting, and datagrams, each in one piece.

use abi::predicate::Operator;
use abi::region::WordAt;
use alloc::vec::Vec;
use unix::Errno;
use unix::local::{self, ENDED, INBOX, NAME_MAX, RECORD, Record, SKIP};
use unix::ring::{HEAD, Ring, TAIL};

use super::connection::Half;
use crate::fs::region::{Done, Region};
use crate::wait::Wait;

/// How often an inbox is emptied in which nonsense is found, before it does not work.
const TRIES: usize = 64;

/// A ring, and where its head is.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// The region, in our role.
    pub region: Region,
    /// Offset of the head.
    pub at: u64,
    /// The ring.
    pub ring: Ring,
}

/// The datagram that is next.
#[derive(Debug)]
pub struct Found {
    /// Its header.
    pub record: Record,
    /// Its sender's name.
    pub name: Vec<u8>,
    /// Where its bytes are.
    offset: u64,
    tail: u64,
    next: u64,
}

impl Channel {
    /// The head; an error if its counters say what cannot be (xok97 EX-17). An inbox is everybody's
    /// that may send to it: then it begins anew, empty.
    pub fn half(&self) -> Result<Half, Errno> {
        for _ in 0..TRIES {
            let half = Half::read(self.region, self.at)?;
            // Datagrams begin and end at multiples of their header.
            let whole = !self.is_inbox() || (half.head | half.tail) % RECORD as u64 == 0;
            if whole && self.ring.can_be(half.head, half.tail) {
                return Ok(half);
            }
            self.begin_again(&half)?;
        }
        Err(Errno::EIO)
    }

    fn is_inbox(&self) -> bool {
        self.ring == INBOX
    }

    /// An inbox in which nonsense was found is emptied, unless it has changed since.
    fn begin_again(&self, found: &Half) -> Result<(), Errno> {
        if !self.is_inbox() {
            return Err(Errno::EIO);
        }
        let begin = Ring::begin_again(found.tail) * RECORD as u64;
        let now = [self.word(HEAD, found.head), self.word(TAIL, found.tail)];
        let anew = [self.word(HEAD, begin), self.word(TAIL, begin)];
        self.region.copy_in(0, &[], &now, &anew).map(|_| ())
    }

    /// A word of the head.
    pub fn word(&self, offset: u64, value: u64) -> WordAt {
        WordAt { offset: self.at + offset, value }
    }

    /// Bytes that are in it.
    pub fn used(&self, half: &Half) -> u64 {
        self.ring.used(half.head, half.tail)
    }

    /// Is so much free that who waits for room should go on (as Linux: three quarters)?
    pub fn is_roomy(&self, half: &Half) -> bool {
        4 * self.used(half) <= self.ring.capacity
    }

    /// Adds "there is something".
    pub fn filled_terms(&self, wait: &mut Wait) {
        let (head, tail) = (self.at + HEAD, self.at + TAIL);
        wait.region_words(self.region.id, head, Operator::NotEqual, tail).end_term();
    }

    /// Adds "it was ended".
    pub fn ended_terms(&self, wait: &mut Wait) {
        wait.region(self.region.id, self.at + ENDED, Operator::NotEqual, 0).end_term();
    }

    /// Adds "so much was read that it is roomy".
    pub fn roomy_terms(&self, half: &Half, wait: &mut Wait) {
        let enough = half.head.saturating_sub(self.ring.capacity / 4);
        wait.region(self.region.id, self.at + TAIL, Operator::AtLeast, enough).end_term();
    }

    /// Adds "something was read".
    pub fn read_terms(&self, half: &Half, wait: &mut Wait) {
        wait.region(self.region.id, self.at + TAIL, Operator::NotEqual, half.tail).end_term();
    }

    /// Puts a datagram in, its header and name before it. `None`: no room, as of this look.
    pub fn put(&self, record: &Record, bytes: &[u8]) -> Result<Option<Half>, Errno> {
        loop {
            let half = self.half()?;
            let room = local::room(&self.ring, half.head, half.tail, record.bytes());
            let Some(room) = room else { return Ok(Some(half)) };
            let compare = [self.word(HEAD, half.head), self.word(TAIL, half.tail)];
            // Without a new tail it may move meanwhile.
            let compare = if room.tail.is_some() { &compare[..] } else { &compare[..1] };
            let mut write = alloc::vec![self.word(HEAD, room.head)];
            write.extend(room.tail.map(|tail| self.word(TAIL, tail)));
            let skip = |offset| WordAt { offset, value: u64::from(SKIP) };
            write.extend(room.skip.map(skip));
            if self.region.copy_in(room.offset, bytes, compare, &write)? == Done::Yes {
                return Ok(None);
            }
        }
    }

    /// The datagram that is next, if there is one.
    pub fn look(&self) -> Result<Option<Found>, Errno> {
        for _ in 0..TRIES {
            let half = self.half()?;
            let at = half.tail % self.ring.capacity;
            let rest = self.ring.capacity - at;
            let used = self.used(&half).min(rest);
            if half.head == half.tail {
                return Ok(None);
            }
            // Records begin and end at multiples of their header.
            if used < RECORD as u64 {
                return Err(Errno::EIO);
            }
            let mut bytes = [0; RECORD + NAME_MAX];
            let there = used.min(bytes.len() as u64) as usize;
            let offset = self.ring.data + at;
            self.region.copy_out(offset, &mut bytes[..there], &[], &[])?;
            let head = bytes.first_chunk::<RECORD>().ok_or(Errno::EIO)?;
            let record = Record::from_bytes(head, used);
            if record.len == SKIP {
                if rest > self.used(&half) {
                    self.begin_again(&half)?;
                    continue;
                }
                self.move_tail(half.tail, half.tail + rest)?;
                continue;
            }
            let behind = RECORD + record.name as usize;
            let name = bytes[RECORD..behind].to_vec();
            let next = half.tail + record.bytes();
            let offset = offset + behind as u64;
            return Ok(Some(Found { record, name, offset, tail: half.tail, next }));
        }
        Err(Errno::EIO)
    }

    fn move_tail(&self, from: u64, to: u64) -> Result<Done, Errno> {
        let write = [self.word(TAIL, to)];
        self.region.copy_out(0, &mut [], &[self.word(TAIL, from)], &write)
    }

    /// Copies the first bytes of what was found, and takes it unless it is only looked at.
    pub fn take(&self, found: &Found, into: &mut [u8], peeks: bool) -> Result<Done, Errno> {
        let compare = [self.word(TAIL, found.tail)];
        let write = [self.word(TAIL, found.next)];
        let write = if peeks { &[][..] } else { &write[..] };
        self.region.copy_out(found.offset, into, &compare, write)
    }
}
