//! What a process asks of the set-id server, and what that tells the process's next life.
//!
//! ```text
//!  request  0 bytes | file kind << 20 | directory kind << 24 | process << 32   1 region of a block
//!           2 file   3 working directory   4 real | effective user << 32   5 groups, likewise
//!  reply    0 error number, or 0   1 domain that the process may move to
//!
//!  next life's block   [`Head`], by the server │ what the old life wrote: hostile
//! ```
//! Here is who a process becomes by a file's mode, too (execve(2)): the server decides by it.

use crate::attributes::Attributes;
use crate::errno::Errno;
use linux_raw_sys::general as raw;

/// Bytes that an old life may hand over: as many as one region holds.
pub const BLOCK_MAX: usize = 17 * 4096;
/// Role in which the server reads them.
pub const READER: u16 = 2;
/// First word of a head: "EXOSSETI".
const MAGIC: u64 = u64::from_le_bytes(*b"EXOSSETI");
/// Words of a head.
const WORDS: usize = 12;
/// Bytes of a head.
pub const HEAD_BYTES: usize = 8 * WORDS;
const BYTES_BITS: u32 = 20;

/// A file or directory that has no name of its own here: a device, or something in /proc.
pub const OTHER: u8 = 0;
/// An entry of the boot image.
pub const IMAGE: u8 = 1;
/// A node of the memory file server.
pub const MEMORY: u8 = 2;

/// A file or directory: what it is part of, and its number or handle there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// [`OTHER`], [`IMAGE`] or [`MEMORY`].
    pub kind: u8,
    /// Its number in the boot image, or the file server's handle of it.
    pub number: u64,
}

/// Real, effective and saved user, and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Users, as `setresuid` orders them.
    pub users: [u32; 3],
    /// Groups.
    pub groups: [u32; 3],
}

impl Ids {
    /// The user that pays for a process of these ids, for which `former` has paid: that one as long
    /// as any of the three is, then the real one. So a set-id program is its starter's to pay, and
    /// user 0's process that steps down for a time stays user 0's.
    pub fn payer(&self, former: u32) -> u32 {
        if self.users.contains(&former) { former } else { self.users[0] }
    }

    /// Who a process of these ids is after it has executed a file of these attributes.
    pub fn after(&self, file: &Attributes) -> Self {
        let counts = file.mount_flags & u64::from(raw::MS_NOSUID) == 0;
        let by = |bits: u32| counts && file.mode & bits == bits;
        let user = if by(raw::S_ISUID) { file.uid } else { self.users[1] };
        // Without the group's right to execute the bit means something else (inode(7)).
        let group = if by(raw::S_ISGID | raw::S_IXGRP) { file.gid } else { self.groups[1] };
        Self { users: [self.users[0], user, user], groups: [self.groups[0], group, group] }
    }

    /// Is a process of these ids one that its starter must not lead astray (`AT_SECURE`)?
    pub fn are_secure(&self) -> bool {
        self.users[0] != self.users[1] || self.groups[0] != self.groups[1]
    }

    /// Does a program that makes these of `before` act for others than its starter does?
    pub fn differ_from(&self, before: &Self) -> bool {
        self.users[1] != before.users[1] || self.groups[1] != before.groups[1]
    }
}

/// A request, taken apart. What it says of its ids is a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The environment that is to become the program: the process's first.
    pub process: u32,
    /// What is to be executed.
    pub file: File,
    /// The working directory.
    pub directory: File,
    /// Real and effective user.
    pub users: [u32; 2],
    /// Real and effective group.
    pub groups: [u32; 2],
    /// The region in which the old life has written its block.
    pub region: u64,
    /// Bytes of that.
    pub bytes: usize,
}

fn pair([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl Request {
    /// As it travels.
    pub fn to_words(&self) -> [u64; 6] {
        let kinds = u64::from(self.file.kind) | u64::from(self.directory.kind) << 4;
        let first = self.bytes as u64 | kinds << BYTES_BITS | u64::from(self.process) << 32;
        let (file, directory) = (self.file.number, self.directory.number);
        [first, self.region, file, directory, pair(self.users), pair(self.groups)]
    }

    /// Reads a request; `E2BIG` if its block is too long.
    pub fn from_words(words: &[u64; 6]) -> Result<Self, Errno> {
        let [first, region, file, directory, users, groups] = *words;
        let bytes = (first & ((1 << BYTES_BITS) - 1)) as usize;
        let kind = |shift: u32| (first >> (BYTES_BITS + shift) & 0xf) as u8;
        if bytes > BLOCK_MAX {
            return Err(Errno::E2BIG);
        }
        Ok(Self {
            process: (first >> 32) as u32,
            file: File { kind: kind(0), number: file },
            directory: File { kind: kind(4), number: directory },
            users: halves(users),
            groups: halves(groups),
            region,
            bytes,
        })
    }

    /// The ids that the asker says it has; of the saved ones nothing depends.
    pub fn ids(&self) -> Ids {
        let three = |[real, effective]: [u32; 2]| [real, effective, effective];
        Ids { users: three(self.users), groups: three(self.groups) }
    }
}

/// What the server says to the next life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The pid.
    pub process: u32,
    /// Who it is now.
    pub ids: Ids,
    /// The program.
    pub file: File,
    /// Of a file of the memory file server: says that it may be read.
    pub seal: u64,
    /// Its size and mode, and when it was changed last: a file that is otherwise is not run.
    pub size: u64,
    /// See `size`.
    pub mode: u32,
    /// See `size`.
    pub changed_ns: u64,
    /// The working directory, in which the asker may search.
    pub directory: File,
}

impl Head {
    /// As it stands before the block.
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let [real, effective, saved] = self.ids.users;
        let [real_group, effective_group, saved_group] = self.ids.groups;
        let kinds = [self.file.kind.into(), self.directory.kind.into()];
        let words: [u64; WORDS] = [
            MAGIC,
            pair([self.process, self.mode]),
            pair([real, effective]),
            pair([saved, real_group]),
            pair([effective_group, saved_group]),
            pair(kinds),
            self.file.number,
            self.seal,
            self.size,
            self.changed_ns,
            self.directory.number,
            0,
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The head of a block, if it has one, and the rest.
    pub fn split(block: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = block.split_first_chunk::<HEAD_BYTES>()?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(head.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        if words[0] != MAGIC {
            return None;
        }
        let [process, mode] = halves(words[1]);
        let [[real, effective], [saved, real_group]] = [words[2], words[3]].map(halves);
        let [effective_group, saved_group] = halves(words[4]);
        let [file, directory] = halves(words[5]).map(|kind| kind as u8);
        let head = Self {
            process,
            mode,
            ids: Ids {
                users: [real, effective, saved],
                groups: [real_group, effective_group, saved_group],
            },
            file: File { kind: file, number: words[6] },
            seal: words[7],
            size: words[8],
            changed_ns: words[9],
            directory: File { kind: directory, number: words[10] },
        };
        Some((head, rest))
    }

    /// Is this the file as the server saw it?
    pub fn is_unchanged(&self, file: &Attributes) -> bool {
        (self.size, self.mode, self.changed_ns) == (file.size, file.mode, file.changed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Ids = Ids { users: [1000; 3], groups: [100; 3] };

    fn file(mode: u32) -> Attributes {
        Attributes { mode: raw::S_IFREG | mode, uid: 7, gid: 8, ..Attributes::default() }
    }

    #[test]
    fn a_files_mode_says_who_its_program_is() {
        let ids = |users, groups| Ids { users, groups };
        for (mode, becomes) in [
            (0o755, ANN),
            (0o4755, ids([1000, 7, 7], [100; 3])),
            (0o2755, ids([1000; 3], [100, 8, 8])),
            (0o2745, ANN),
            (0o6711, ids([1000, 7, 7], [100, 8, 8])),
        ] {
            assert_eq!(ANN.after(&file(mode)), becomes, "{mode:o}");
            assert_eq!(becomes.are_secure(), becomes != ANN);
            assert_eq!(becomes.differ_from(&ANN), becomes != ANN);
        }
        let nosuid = Attributes { mount_flags: raw::MS_NOSUID.into(), ..file(0o6755) };
        assert_eq!(ANN.after(&nosuid), ANN);
        // The saved ones are the effective ones after each program (credentials(7)).
        let stepped_down = ids([0, 1000, 0], [0, 100, 0]);
        let after = stepped_down.after(&file(0o755));
        assert_eq!(after, ids([0, 1000, 1000], [0, 100, 100]));
        assert!(after.are_secure() && !after.differ_from(&stepped_down));
    }

    #[test]
    fn requests_and_heads_travel_unchanged() {
        let request = Request {
            process: 0xfedc_ba98,
            file: File { kind: MEMORY, number: u64::MAX - 1 },
            directory: File { kind: IMAGE, number: 5 },
            users: [1000, u32::MAX],
            groups: [3, 4],
            region: 1 << 40 | 9,
            bytes: BLOCK_MAX,
        };
        assert_eq!(Request::from_words(&request.to_words()), Ok(request));
        let larger = Request { bytes: BLOCK_MAX + 1, ..request };
        assert_eq!(Request::from_words(&larger.to_words()), Err(Errno::E2BIG));
        let head = Head {
            process: 77,
            ids: Ids { users: [1, 2, 3], groups: [4, 5, u32::MAX] },
            file: request.file,
            seal: 1 << 63 | 5,
            size: 9,
            mode: raw::S_IFREG | 0o4755,
            changed_ns: u64::MAX,
            directory: request.directory,
        };
        let mut block = head.to_bytes().to_vec();
        block.extend(b"the rest");
        assert_eq!(Head::split(&block), Some((head, &b"the rest"[..])));
        assert_eq!(Head::split(&block[..HEAD_BYTES - 1]), None);
        block[0] = 0;
        assert_eq!(Head::split(&block), None);
    }

    #[test]
    fn a_file_that_was_touched_is_another_one() {
        let seen = file(0o4755);
        let head = Head { size: seen.size, mode: seen.mode, ..Head::default() };
        assert!(head.is_unchanged(&seen));
        for other in [
            Attributes { size: 1, ..seen },
            Attributes { mode: seen.mode & !0o4000, ..seen },
            Attributes { changed_ns: 1, ..seen },
        ] {
            assert!(!head.is_unchanged(&other));
        }
    }
}
