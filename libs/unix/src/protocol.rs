//! What programs ask of the memory file server: six words each way, and a transport region.
//!
//! ```text
//!  request  0 operation | region << 32   1..=4 arguments        5 uid | gid << 32
//!  reply    0 error number, or 0         1..=4 results
//!
//!  "region << 32": the low half of its id. A client has its region while it asks: so the server
//!  finds that one, and looks whose it is.
//!
//!  transport region, made by the client's domain, of two frames or, to move more, seventeen
//!  0x0000 names     two names of up to 255 bytes: at 0x0000 and at 0x0100; where a link leads
//!  0x1000 data      what is read or written; attributes; link targets; paths
//! ```
//! A node, directory or file is named by its handle (`crate::handles`), which is a right to it:
//! only who may go there is told it.
//!
//! The server obeys a request only with a region that the caller's domain made. An open file is the
//! 64-byte region of its description: the server attaches to it in [`WATCHER`]'s role and sees
//! in the published count of role 0 when the last process has closed it or died.

use core::ops::Range;

use crate::attributes::{ATTRIBUTES_BYTES, Credentials};
use crate::errno::Errno;
use crate::versions::SEEN_MAX;

/// Frames of a transport region: for most requests, and to read and write more at a time.
pub const TRANSPORT_FRAMES: [usize; 2] = [2, 17];
/// Bytes of the data area of every transport region.
pub const DATA_BYTES: u64 = 4096;
/// Bytes of the data area of a large one.
pub const TRANSFER_BYTES: u64 = 16 * 4096;
/// Offset of the first name.
pub const NAME_FIRST: u64 = 0;
/// Offset of the second name.
pub const NAME_SECOND: u64 = 0x100;
/// Offset of the data area.
pub const DATA: u64 = 0x1000;
/// Pages that are shown at a time.
pub const SHOWN_PAGES: usize = 16;
/// Role in which the client attaches to its transport region and its open files.
pub const CLIENT: u16 = 0;
/// Role in which the server attaches to a transport region.
pub const SERVER: u16 = 1;
/// Role in which the server watches an open file, and keeps a named pipe.
pub const WATCHER: u16 = 3;
/// Where in the region `Walk` leaves a link's target, which may fill a page but for one byte: it
/// names nothing, and what it shows lies in the data area.
pub const TARGET: u64 = 0;
/// Bytes of what `Walk` tells of the node: attributes, how many words of `versions` follow, these.
/// No word: the node was reached through too many.
pub const WALK_BYTES: usize = ATTRIBUTES_BYTES + 8 + 8 * SEEN_MAX;

const _: () = assert!(WALK_BYTES as u64 <= DATA_BYTES);

macro_rules! operations {
    ($( $(#[doc = $doc:literal])+ $number:literal $name:ident, )+) => {
        /// What may be asked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Operation { $( $(#[doc = $doc])+ $name = $number, )+ }

        impl Operation {
            /// The operation with this number.
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $( $number => Some(Self::$name), )+ _ => None }
            }
        }
    };
}

operations! {
    /// Directory, path bytes | 1 << 32 if attributes are wanted, path ([`inline`], or in data).
    /// Results: outcome | mode << 32, node, parent, used | target bytes << 32; data: the node's
    /// attributes if wanted and found, the words that say how long all this holds
    /// ([`WALK_BYTES`]); at [`TARGET`] where it leads if it is a link.
    1 Walk,
    /// Node, `open(2)` flags, description region or 0. Checks permission and truncates. Results:
    /// size, the seal that says what it was opened for.
    2 Open,
    /// Directory, name bytes (first name), mode with kind, description region or 0. Results: node,
    /// seal.
    3 Create,
    /// Node, offset, bytes, seal. Result: bytes, in data. Without a seal the mode decides.
    4 Read,
    /// Node, offset (all ones: at the end), bytes, in data, seal. Results: bytes, offset behind.
    5 Write,
    /// Node, size, 0 (1: at least so long), seal.
    6 Truncate,
    /// Node. Data: attributes.
    7 Attributes,
    /// Directory, position, room, seal. Result: bytes of `getdents64` records in data.
    8 List,
    /// Directory, name bytes, mode. Result: node.
    9 MakeDirectory,
    /// Directory, name bytes | 1 << 32 if a directory is meant, name ([`inline`], or first name).
    10 Remove,
    /// Old directory, new directory, bytes of the first name | of the second << 32, flags.
    11 Rename,
    /// Node, directory, name bytes.
    12 Link,
    /// Directory, name bytes, target bytes (in data).
    13 MakeLink,
    /// Node. Result: bytes of the target, in data.
    14 ReadLink,
    /// Node, which (`CHANGE_…`); data: five words: mode (or how it is mounted), uid, gid, read
    /// time, written time.
    15 Change,
    /// Results: blocks, free blocks, inodes, free inodes.
    16 Space,
    /// Node of a named pipe, role (0 writer, 1 reader). Result: region, attached for the caller.
    17 Fifo,
    /// Node, mask | [`BY_SEAL`] if only the seal counts, seal. May the caller do that?
    18 Access,
    /// File (a node, or any number from [`OF_IMAGE`] on), `LOCK_…` | owner << 32 (with
    /// [`LOCK_PROCESS`] a process, by its first environment, which is at home in the caller's
    /// domain, 0: the caller; else a description's region, in which the caller's domain stands at
    /// [`CLAIM`], or the answer is EBUSY), first byte, last byte; data: a node's seal, which counts
    /// where the caller may neither read nor write it. Results: 0; or of a lock in the way 1 |
    /// exclusive << 1 | owner << 32 (of a description's region the low half), first byte, last
    /// byte; with `LOCK_WAIT` in place of these the owner's region or its environment's serial, 0,
    /// and the region whose first word changes, attached for the caller (its low half) | that word
    /// << 32.
    19 Lock,
    /// Node of a local socket (or [`NO_NODE`]: the name is abstract), region of its port or inbox |
    /// type << 32, bytes of the name (in data). See `unix::local`.
    20 SocketBind,
    /// Node or [`NO_NODE`], type | bytes of its name << 8 (in data) | of the caller's own << 16 (at
    /// [`SOCKET_OWN_NAME`]) | 1 << 24 to look only whether it can be done, pid, for a connection
    /// its region, which the caller has made and is attached to as end 0. Results: the inbox's
    /// region, 0, its seal and its handle for [`Self::SocketSend`]; or the connection, and whose
    /// end 1 is (`local::owner`); or 0, the port at which no connection can wait now, attached
    /// for the caller, and its tail.
    21 SocketConnect,
    /// Port, number of the offer that the caller has claimed. Results: the connection, whose end 1
    /// is the caller's, and whose end 0 is (`local::owner`).
    22 SocketAccept,
    /// Makes a pseudo-terminal. Result: its number; data: its regions
    /// (`unix::tty::shared::Entry`); the caller is attached as the master.
    23 TerminalMake,
    /// Number of a pseudo-terminal, mask (4 read, 2 write), region of its settings or 0. Data: its
    /// regions; the caller is attached as one of its programs, if it may do that; with mask 0 it
    /// is told the regions alone. EIO: the number has no terminal, or not that of these settings.
    24 TerminalOpen,
    /// Result: a bit for each pseudo-terminal there is.
    25 TerminalList,
    /// Environment of the caller's domain. From now on the server looks into its application page
    /// (`process_page::held`) before it ends a file.
    26 Holder,
    /// Directory, name bytes | mode << 32, name ([`inline`], or first name). Makes a file that the
    /// caller's page says it holds; one that is there already is left as it is. Results: node,
    /// 1 if it was there, seal, number (`st_ino`).
    27 Make,
    /// Node, first page, where in the caller's space. Maps up to [`SHOWN_PAGES`] pages from the
    /// first one on, as far as there are no holes, read-only, if the caller may read the file, and
    /// notes that it is read. Results: pages, size, the word on which this
    /// depends, nanoseconds for which the read stays noted.
    28 Show,
    /// Number of a pseudo-terminal, region of its settings or 0 (as above). Results: mode, owner,
    /// group.
    29 TerminalAttributes,
    /// Number of a pseudo-terminal | which (`CHANGE_MODE`, `CHANGE_UID`, `CHANGE_GID`) << 32,
    /// region of its settings or 0 (as above), mode | owner << 32, group.
    30 TerminalChange,
    /// Port, pid. Who connects there is told that it is this process of the caller's domain, and
    /// for whom it acts now, if the domain has made the port.
    31 SocketListen,
    /// Handle of an inbox, low half of the caller's own inbox (0: none) | pid << 32, bytes of the
    /// datagram (in data) or [`LOOK`], | [`BY_SEAL`] if the seal counts that stands where the first
    /// name does (else the mode of the inbox's name alone, and the answer is EACCES), user |
    /// group << 32 for which the caller sends. Results: 1 if the inbox has it, else 0: it is full;
    /// operations on the inbox until then. With [`LOOK`], data is the inbox's name and the second
    /// result its length.
    32 SocketSend,
    /// Node, or an inbox's handle; the caller's seal of it; domain, or 0: whoever acts for these;
    /// user | group << 32. Result: the seal that says the same to that domain while it acts for
    /// these (`crate::seals`). EACCES: the caller's says nothing.
    33 Seal,
    /// Node whose owner has no room for pages, 0 (or any node, 1: the asker has none for a file),
    /// and 0, or what this answered before. Result: 0 if none is to come; else a number with which
    /// to ask again, after another attempt.
    34 Room,
}

impl Operation {
    /// How many of the arguments, from the first on, are files' handles (`crate::handles`), and
    /// which of the results are.
    pub fn handles(self) -> (usize, Range<usize>) {
        match self {
            Self::Walk => (1, 1..3),
            Self::Create | Self::MakeDirectory | Self::MakeLink | Self::Make => (1, 0..1),
            Self::Rename | Self::Link => (2, 0..0),
            Self::Space | Self::Holder | Self::SocketAccept | Self::SocketListen => (0, 0..0),
            Self::SocketConnect => (1, 3..4),
            Self::TerminalMake | Self::TerminalOpen | Self::TerminalList => (0, 0..0),
            Self::TerminalAttributes | Self::TerminalChange => (0, 0..0),
            _ => (1, 0..0),
        }
    }
}

/// Instead of a node: the name of a local socket is not in the file system.
pub const NO_NODE: u64 = u64::MAX;
/// `SocketSend`: nothing is sent, but could it be?
pub const LOOK: u64 = u32::MAX as u64;
/// Where in the data area the caller's own name is.
pub const SOCKET_OWN_NAME: u64 = 256;

/// `Lock`: from here on numbers are of files that the server does not have.
pub const OF_IMAGE: u64 = u64::MAX << 32;
/// `Lock`: where in its region who asks for a description's lock has written its domain. Who shares
/// the description may write there, and nobody else.
pub const CLAIM: u64 = 16;
/// Role in which the server reads that.
pub const READER: u16 = 2;
/// `Lock`: excludes every other.
pub const LOCK_EXCLUSIVE: u64 = 1;
/// `Lock`: gives back.
pub const LOCK_UNLOCK: u64 = 2;
/// `Lock`: only looks what is in the way.
pub const LOCK_TEST: u64 = 4;
/// `Lock`: the caller will wait for what is in the way.
pub const LOCK_WAIT: u64 = 8;
/// `Lock`: the owner is a process, as `fcntl`'s are.
pub const LOCK_PROCESS: u64 = 16;

/// `Change`: the mode counts.
pub const CHANGE_MODE: u64 = 1;
/// `Change`: the owner counts.
pub const CHANGE_UID: u64 = 2;
/// `Change`: the group counts.
pub const CHANGE_GID: u64 = 4;
/// `Change`: the time of the last read counts.
pub const CHANGE_READ: u64 = 8;
/// `Change`: the time of the last write counts.
pub const CHANGE_WRITTEN: u64 = 16;
/// `Change`: the times are the present one.
pub const CHANGE_TOUCH: u64 = 32;
/// `Change`: how what has this root is mounted, and nothing else.
pub const CHANGE_MOUNT: u64 = 64;
/// `Change`: the owner is changed, if to nothing else.
pub const CHANGE_OWNER: u64 = 128;
/// `Access`: the asker has the file open for that, or it hasn't. `SocketSend`: it brings a seal.
pub const BY_SEAL: u64 = 1 << 32;
/// `Write`: at the end of the file.
pub const AT_END: u64 = u64::MAX;

/// `Walk`'s outcomes.
pub mod outcome {
    /// See [`Outcome`](crate::tree::Outcome).
    pub const DONE: u64 = 0;
    /// See [`Outcome`](crate::tree::Outcome).
    pub const LINK: u64 = 1;
    /// See [`Outcome`](crate::tree::Outcome).
    pub const UP: u64 = 2;
    /// See [`Outcome`](crate::tree::Outcome).
    pub const MISSING: u64 = 3;
    /// As [`LINK`], one that the asker does not follow at a path's end
    /// ([`may_be_followed`](crate::attributes::Attributes::may_be_followed)).
    pub const STRANGERS_LINK: u64 = 4;
}

/// Bytes of a name or path that travel in two arguments at most.
pub const INLINE_BYTES: usize = 16;

/// A name or path as two arguments, if it fits: most names need no look at the region.
pub fn inline(bytes: &[u8]) -> Option<[u64; 2]> {
    let mut both = [0; INLINE_BYTES];
    both.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let both = u128::from_le_bytes(both);
    Some([both as u64, (both >> 64) as u64])
}

/// The bytes that [`inline`] packed, and as many zeros as are left.
pub fn unpack_inline([first, second]: [u64; 2]) -> [u8; INLINE_BYTES] {
    (u128::from(first) | u128::from(second) << 64).to_le_bytes()
}

/// A request, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub operation: Operation,
    /// The low half of the transport region's id.
    pub region: u32,
    /// Its arguments.
    pub arguments: [u64; 4],
    /// Who asks, as the asker claims.
    pub who: Credentials,
}

impl Request {
    /// As it travels.
    pub fn to_words(&self) -> [u64; 6] {
        let [a, b, c, d] = self.arguments;
        let first = self.operation as u64 | u64::from(self.region) << 32;
        [first, a, b, c, d, u64::from(self.who.uid) | u64::from(self.who.gid) << 32]
    }

    /// Reads a request; `ENOSYS` for an operation there isn't.
    pub fn from_words(words: &[u64; 6]) -> Result<Self, Errno> {
        let operation = Operation::from_number(words[0] as u32).ok_or(Errno::ENOSYS)?;
        Ok(Self {
            operation,
            region: (words[0] >> 32) as u32,
            arguments: [words[1], words[2], words[3], words[4]],
            who: Credentials::of(words[5] as u32, (words[5] >> 32) as u32),
        })
    }
}

/// A reply as it travels.
pub fn reply(result: Result<[u64; 4], Errno>) -> [u64; 6] {
    match result {
        Ok([a, b, c, d]) => [0, a, b, c, d, 0],
        Err(Errno(number)) => [u64::from(number), 0, 0, 0, 0, 0],
    }
}

/// Reads a reply.
pub fn answer(words: &[u64; 6]) -> Result<[u64; 4], Errno> {
    match u16::try_from(words[0]) {
        Ok(0) => Ok([words[1], words[2], words[3], words[4]]),
        Ok(number) => Err(Errno(number)),
        Err(_) => Err(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_travel_in_two_words() {
        for name in [&b""[..], b"a", b"12345678", b"0123456789abcdef"] {
            let words = inline(name).unwrap();
            let bytes = unpack_inline(words);
            assert_eq!(&bytes[..name.len()], name);
            assert!(bytes[name.len()..].iter().all(|&byte| byte == 0));
        }
        assert_eq!(inline(b"0123456789abcdefg"), None);
    }

    #[test]
    fn requests_travel_unchanged() {
        let request = Request {
            operation: Operation::Rename,
            region: 0x3fff_ffff,
            arguments: [1, 2, 3, u64::MAX],
            who: Credentials::of(7, 8),
        };
        assert_eq!(Request::from_words(&request.to_words()), Ok(request));
        assert_eq!(Request::from_words(&[999; 6]), Err(Errno::ENOSYS));
        assert_eq!(answer(&reply(Err(Errno::EROFS))), Err(Errno::EROFS));
        assert_eq!(answer(&reply(Ok([1, 2, 3, 4]))), Ok([1, 2, 3, 4]));
        assert_eq!(answer(&[u64::MAX; 6]), Err(Errno::EIO));
    }
}
