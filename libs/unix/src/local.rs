//! What programs and the file server share of local sockets (unix(7)): layouts of regions.
//!
//! ```text
//!  a half's head   0 head  8 tail (crate::ring)   16 ended   24 reset
//!                 40 bytes of the name
//!                 64 limit  72 peer  80 taken      128 name, 108 bytes
//!
//!  connection      0 head of end 0, which writes ring 0     2048 head of end 1
//!               4096 ring 0                                36864 ring 1
//!  port            0 head; 1024 connections that are offered, a word each
//!  inbox           0 head; 4096 ring of datagrams
//! ```
//! Who has a role in one writes all of it: whose an end is does not stand there, but is told by the
//! file server. An end of a connection is a role: who has gone is known by the kernel's counts.
//! Datagrams and packets lie in one piece, each behind a header; what is left at the ring's end is
//! passed over.

use crate::ring::Ring;

/// Offset of the word that is not 0 when nothing more will be written.
pub const ENDED: u64 = 16;
/// Offset of the word that is not 0 when nobody accepted the connection.
pub const RESET: u64 = 24;
/// Offset of the bytes that the name has.
pub const NAME_LENGTH: u64 = 40;
/// Of a port: how many connections may wait; 0: it does not listen.
pub const LIMIT: u64 = 64;
/// Of an inbox: the inbox of the only one who may write to it, or 0.
pub const PEER: u64 = 72;
/// Of a port: how many connections the server has handed out.
pub const TAKEN: u64 = 80;
/// Offset of the name.
pub const NAME: u64 = 128;
/// Bytes of a name at most (`sun_path`).
pub const NAME_MAX: usize = 108;
/// Bytes of a half's head that are read at once.
pub const HEAD_BYTES: usize = 88;
/// Bytes from one end's head to the other's.
pub const END_BYTES: u64 = 2048;
/// Frames of a connection.
pub const CONNECTION_FRAMES: usize = 17;
/// Frames of a port of connections.
pub const PORT_FRAMES: usize = 1;
/// Frames of an inbox.
pub const INBOX_FRAMES: usize = 17;
/// Offset of the first connection that is offered.
pub const OFFERS: u64 = 1024;
/// Connections that can wait to be accepted.
pub const OFFER_COUNT: u64 = 128;
/// Set in an offer that was taken: the domain of who did stands in it instead.
pub const CLAIMED: u64 = 1 << 63;
/// The ring of an inbox.
pub const INBOX: Ring = Ring { data: 4096, capacity: 16 * 4096 };

/// The ring that end `end` of a connection writes.
pub const fn ring_of(end: u16) -> Ring {
    Ring { data: 4096 + end as u64 * 8 * 4096, capacity: 8 * 4096 }
}

/// Where its head is.
pub const fn head_of(end: u16) -> u64 {
    end as u64 * END_BYTES
}

/// Where the offer with this number is.
pub const fn offer(number: u64) -> u64 {
    OFFERS + number % OFFER_COUNT * 8
}

/// Pid, user and group, as they travel: pid and user, group.
pub const fn owner([first, group]: [u64; 2]) -> [u32; 3] {
    [first as u32, (first >> 32) as u32, group as u32]
}

/// Bytes of a datagram's header, and what its place is a multiple of.
pub const RECORD: usize = 32;
/// In place of a length: the rest of the ring is passed over.
pub const SKIP: u32 = u32::MAX;

/// What stands before a datagram or packet: then come the sender's name and the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Bytes of it; [`SKIP`]: none.
    pub len: u32,
    /// Bytes of the sender's name.
    pub name: u32,
    /// Who sent it: pid, user, group.
    pub sender: [u32; 3],
}

impl Record {
    /// As it lies in the ring.
    pub fn to_bytes(&self) -> [u8; RECORD] {
        let [pid, uid, gid] = self.sender;
        let mut bytes = [0; RECORD];
        let words = [self.len, self.name, pid, uid, gid];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads it. Who may write to the ring may have written nonsense: nothing in it is larger than
    /// `used`.
    pub fn from_bytes(bytes: &[u8; RECORD], used: u64) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let most = used.saturating_sub(RECORD as u64);
        let name = word(4).min(NAME_MAX as u32).min(most as u32);
        let len = match word(0) {
            SKIP => SKIP,
            len => len.min((most - u64::from(name)) as u32),
        };
        Self { len, name, sender: [word(8), word(12), word(16)] }
    }

    /// Bytes that it takes in the ring.
    pub fn bytes(&self) -> u64 {
        (RECORD as u64 + u64::from(self.name) + u64::from(self.len)).next_multiple_of(RECORD as u64)
    }
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Offset in the region.
    pub offset: u64,
    /// The head when it is there.
    pub head: u64,
    /// Offset of a header that says that the rest of the ring is passed over.
    pub skip: Option<u64>,
    /// The tail, if the ring was empty and begins anew.
    pub tail: Option<u64>,
}

/// Where a record of `bytes` bytes goes in one piece, if there is room.
pub fn room(ring: &Ring, head: u64, tail: u64, bytes: u64) -> Option<Room> {
    let at = head % ring.capacity;
    let rest = ring.capacity - at;
    if bytes <= rest {
        let fits = ring.free(head, tail) >= bytes;
        let place = Room { offset: ring.data + at, head: head + bytes, skip: None, tail: None };
        return fits.then_some(place);
    }
    let begin = head + rest;
    let place = Room { offset: ring.data, head: begin + bytes, skip: None, tail: None };
    if head == tail {
        return (bytes <= ring.capacity).then_some(Room { tail: Some(begin), ..place });
    }
    let fits = ring.free(head, tail) >= rest + bytes;
    fits.then_some(Room { skip: Some(ring.data + at), ..place })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring { data: 4096, capacity: 1024 };

    #[test]
    fn records_lie_in_one_piece() {
        let plain = room(&RING, 0, 0, 64).unwrap();
        assert_eq!(plain, Room { offset: 4096, head: 64, skip: None, tail: None });
        // 96 bytes are left before the end.
        let skipping = room(&RING, 928, 512, 128).unwrap();
        let skip = Some(4096 + 928);
        assert_eq!(skipping, Room { offset: 4096, head: 1024 + 128, skip, tail: None });
        assert_eq!(room(&RING, 928, 96, 128), None);
        assert_eq!(room(&RING, 1024, 0, 32), None);
    }

    #[test]
    fn an_empty_ring_takes_the_largest_record() {
        let whole = room(&RING, 928, 928, 1024).unwrap();
        assert_eq!(whole, Room { offset: 4096, head: 2048, skip: None, tail: Some(1024) });
        assert_eq!(room(&RING, 0, 0, 1056), None);
    }

    #[test]
    fn headers_travel_and_nonsense_is_cut() {
        let record = Record { len: 5, name: 3, sender: [7, 8, 9] };
        assert_eq!(Record::from_bytes(&record.to_bytes(), 64), record);
        assert_eq!(record.bytes(), 64);
        let wild = Record { len: 1 << 30, name: 1 << 30, ..record };
        let read = Record::from_bytes(&wild.to_bytes(), 256);
        assert!(read.bytes() <= 256 && read.name as usize <= NAME_MAX);
        let skip = Record { len: SKIP, ..Record::default() };
        assert_eq!(Record::from_bytes(&skip.to_bytes(), 32).len, SKIP);
    }
}
