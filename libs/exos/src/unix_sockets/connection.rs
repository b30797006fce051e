//! One end of a connection, and the heads of regions' halves.

use abi::id::RegionId;
use abi::predicate::Operator;
use abi::region::WordAt;
use alloc::vec::Vec;
use unix::Errno;
use unix::local::{
    CONNECTION_FRAMES, ENDED, HEAD_BYTES, NAME, NAME_LENGTH, NAME_MAX, PEER, RESET, head_of,
    ring_of,
};
use unix::ring::{HEAD, TAIL};

use super::records::Channel;
use crate::fs::region::{self, Region};
use crate::process::Process;
use crate::wait::Wait;

/// The words before a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Half {
    /// Bytes, or connections, ever written.
    pub head: u64,
    /// Those ever read.
    pub tail: u64,
    /// Will nothing more be written?
    pub ended: bool,
    /// Has nobody accepted it?
    pub reset: bool,
    /// Bytes of the name.
    pub name: u32,
    /// The only inbox whose owner may write to this one.
    pub peer: u64,
}

impl Half {
    /// Reads the head at `at`.
    pub fn read(region: Region, at: u64) -> Result<Self, Errno> {
        let mut bytes = [0; HEAD_BYTES];
        region.copy_out(at, &mut bytes, &[], &[])?;
        let word = |at: u64| {
            let part = bytes.get(at as usize..).and_then(|rest| rest.first_chunk::<8>());
            part.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Ok(Self {
            head: word(HEAD),
            tail: word(TAIL),
            ended: word(ENDED) != 0,
            reset: word(RESET) != 0,
            name: word(NAME_LENGTH) as u32,
            peer: word(PEER),
        })
    }

    /// The name that goes with it.
    pub fn name(&self, region: Region, at: u64) -> Result<Vec<u8>, Errno> {
        let mut name = alloc::vec![0; (self.name as usize).min(NAME_MAX)];
        region.copy_out(at + NAME, &mut name, &[], &[])?;
        Ok(name)
    }
}

/// Writes one word.
pub fn set(region: Region, offset: u64, value: u64) -> Result<(), Errno> {
    region.copy_in(0, &[], &[], &[WordAt { offset, value }]).map(|_| ())
}

/// Who we are to the other end: pid, user, group.
pub fn ourselves(process: &Process) -> [u32; 3] {
    [process.id.0, process.users[1], process.groups[1]]
}

/// Puts a name into the head at `at`.
pub fn put_name(region: Region, at: u64, name: &[u8]) -> Result<(), Errno> {
    let write = [WordAt { offset: at + NAME_LENGTH, value: name.len() as u64 }];
    region.copy_in(at + NAME, name, &[], &write).map(|_| ())
}

/// An end of a connection: its number is the role in which its users are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The connection.
    pub region: RegionId,
    /// 0 or 1.
    pub end: u16,
}

/// Makes a connection, both ends of it ours.
pub fn make_pair() -> Result<(End, End), Errno> {
    let region = region::make(CONNECTION_FRAMES)?;
    let ends = (End { region, end: 0 }, End { region, end: 1 });
    for end in [ends.0, ends.1] {
        end.own().attach()?;
    }
    Ok(ends)
}

/// Makes a connection, the first end of it ours: whoever connects pays for what carries it.
pub fn make_first() -> Result<End, Errno> {
    let end = End { region: region::make(CONNECTION_FRAMES)?, end: 0 };
    end.own().attach()?;
    Ok(end)
}

impl End {
    /// The region, for what this end does.
    pub fn own(&self) -> Region {
        Region { id: self.region, role: self.end }
    }

    /// The other end's number.
    pub fn other(&self) -> u16 {
        1 - self.end
    }

    /// The ring that it writes.
    pub fn written(&self) -> Channel {
        Channel { region: self.own(), at: head_of(self.end), ring: ring_of(self.end) }
    }

    /// The ring that it reads.
    pub fn read(&self) -> Channel {
        let other = self.other();
        Channel { region: self.own(), at: head_of(other), ring: ring_of(other) }
    }

    /// Has the last user of the other end gone?
    pub fn is_alone(&self) -> bool {
        region::attached(self.region, self.other()) == 0
    }

    /// Did it end before everything, or anything, was read (unix(7): ECONNRESET)?
    pub fn is_reset(&self) -> Result<bool, Errno> {
        if !self.is_alone() {
            return Ok(false);
        }
        let mine = self.written().half()?;
        Ok(mine.head != mine.tail || mine.reset)
    }

    /// Shuts reading or writing down, for all users and for the other end.
    pub fn shut_down(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        for (wanted, end) in [(writes, self.end), (reads, self.other())] {
            if wanted {
                set(self.own(), head_of(end) + ENDED, 1)?;
            }
        }
        Ok(())
    }

    /// Adds "the other end has gone".
    pub fn alone_terms(&self, wait: &mut Wait) {
        let users = region::attached_address(self.region, self.other());
        wait.memory(users, Operator::Equal, 0).end_term();
    }
}
