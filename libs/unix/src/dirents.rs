//! Directory listings in the form of `getdents64`.

use alloc::vec::Vec;

use crate::errno::Errno;
use crate::map;

/// Bytes of a record before its name.
const HEADER: usize = 19;

/// Packs records until no more fit.
#[derive(Debug)]
pub struct Packer {
    bytes: Vec<u8>,
    room: usize,
}

impl Packer {
    /// A listing of at most `room` bytes.
    pub fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room }
    }

    /// The same with all its memory, or none: nothing is asked for later.
    pub fn with_room(room: usize) -> Result<Self, Errno> {
        Ok(Self { bytes: map::vector(room)?, room })
    }

    /// Adds one record; false, and nothing added, if it does not fit. `next` is the position from
    /// which a later call goes on behind this record; `mode` gives the type.
    pub fn push(&mut self, inode: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let len = (HEADER + name.len() + 1).next_multiple_of(8);
        if self.bytes.len() + len > self.room {
            return false;
        }
        let end = self.bytes.len() + len;
        self.bytes.extend(inode.to_le_bytes());
        self.bytes.extend(next.to_le_bytes());
        self.bytes.extend((len as u16).to_le_bytes());
        self.bytes.push((mode >> 12 & 15) as u8);
        self.bytes.extend(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Has nothing been added?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The records.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// One record, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Inode.
    pub inode: u64,
    /// Position behind it.
    pub next: u64,
    /// `DT_…`
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Reads a listing.
pub fn parse(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while rest.len() > HEADER {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&rest[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let len = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
        if len <= HEADER || len > rest.len() {
            break;
        }
        let name = rest[HEADER..len].split(|&byte| byte == 0).next().unwrap_or(&[]).to_vec();
        records.push(Record { inode: word(0), next: word(8), kind: rest[18], name });
        rest = &rest[len..];
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general as raw;

    #[test]
    fn records_are_aligned_and_bounded() {
        let mut packer = Packer::new(24 + 32);
        assert!(packer.push(1, 1, raw::S_IFDIR | 0o755, b"."));
        assert!(packer.push(9, 2, raw::S_IFREG, b"a-longer-name"[..12].as_ref()));
        assert!(!packer.push(9, 3, raw::S_IFREG, b"x"));
        let bytes = packer.finish();
        assert_eq!(bytes.len(), 56);
        let records = parse(&bytes);
        assert_eq!((records[0].kind, records[1].kind), (raw::DT_DIR as u8, raw::DT_REG as u8));
        assert_eq!((records[1].next, records[1].name.as_slice()), (2, &b"a-longer-nam"[..]));
    }
}
