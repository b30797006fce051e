//! The boot image: one archive of files, whose pages can be mapped as they lie.
//!
//! ```text
//!            0 +--------------------------------------------------------------+
//!              | header, 64 bytes, zeros up to the end of the page            |
//!         4096 +--------------------------------------------------------------+
//!              | entries: 64 bytes each, sorted by path (bytewise), "/" first |
//! names_offset +--------------------------------------------------------------+
//!              | names: the paths' bytes, then the symbolic links' targets    |
//!              | (no terminators), zeros up to the end of the page            |
//!              +--------------------------------------------------------------+
//!              | data of the first file, zeros up to the end of the page      |
//!              +--------------------------------------------------------------+
//!              | data of the next one; in the order of their entries          |
//!   total_size +--------------------------------------------------------------+
//!
//! header  0 magic[8]  8 version u32  12 entry_count u32  16 total_size u64
//!        24 entries_offset u64  32 names_offset u64  40 names_size u64
//!        48 directory_crc u32 (entries and names)  52 zero u32
//!        56 header_crc u32 (bytes 0..56)  60 zero u32
//! entry   0 kind u32  4 mode u32  8 uid u32  12 gid u32  16 mtime u64 (s since 1970)
//!        24 data_offset u64  32 size u64  40 path_offset u32 (in names)  44 path_length u32
//!        48 parent u32  52 zero[12]
//! ```
//!
//! All words are little-endian, checksums CRC-32 (IEEE 802.3), offsets from the archive's first
//! byte. A link's data is its target, inside the names; a directory and an empty file have offset
//! and size zero.
//!
//! Invariant: after [`Archive::open`] everything that the archive says about itself holds, so that
//! no later question can fail for the archive's sake.

use core::fmt;
use core::str;

use crate::bytes::{crc32, range, word32, word64};

#[cfg(any(test, feature = "write"))]
mod build;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "write"))]
pub use build::{Attributes, BuildError, Builder};

/// The first eight bytes of an archive.
pub const MAGIC: [u8; 8] = *b"XOKIMAGE";
/// The layout's version; another one is refused.
pub const VERSION: u32 = 1;
/// Bytes of a page; files begin at multiples of it.
pub const PAGE_SIZE: usize = 4096;
/// Bytes of the header that mean something.
pub const HEADER_SIZE: usize = 64;
/// Bytes of an entry.
pub const ENTRY_SIZE: usize = 64;
/// Most entries that an archive may have.
pub const ENTRIES_MAX: usize = 65536;
/// Most bytes of a path and of a link's target, as Linux's `PATH_MAX` less the terminator.
pub const PATH_MAX: usize = 4095;
/// Most bytes of one name in a path, as Linux's `NAME_MAX`.
pub const NAME_MAX: usize = 255;

/// Where each word of the header lies.
mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = MAGIC + 8;
    pub const ENTRY_COUNT: usize = VERSION + 4;
    pub const TOTAL_SIZE: usize = ENTRY_COUNT + 4;
    pub const ENTRIES_OFFSET: usize = TOTAL_SIZE + 8;
    pub const NAMES_OFFSET: usize = ENTRIES_OFFSET + 8;
    pub const NAMES_SIZE: usize = NAMES_OFFSET + 8;
    pub const DIRECTORY_CRC: usize = NAMES_SIZE + 8;
    pub const ZERO: usize = DIRECTORY_CRC + 4;
    pub const HEADER_CRC: usize = ZERO + 4;
    pub const ZERO_AFTER: usize = HEADER_CRC + 4;
    pub const END: usize = ZERO_AFTER + 4;
}

/// Where each word of an entry lies.
mod field {
    pub const KIND: usize = 0;
    pub const MODE: usize = KIND + 4;
    pub const UID: usize = MODE + 4;
    pub const GID: usize = UID + 4;
    pub const MTIME: usize = GID + 4;
    pub const DATA_OFFSET: usize = MTIME + 8;
    pub const SIZE: usize = DATA_OFFSET + 8;
    pub const PATH_OFFSET: usize = SIZE + 8;
    pub const PATH_LENGTH: usize = PATH_OFFSET + 4;
    pub const PARENT: usize = PATH_LENGTH + 4;
    pub const ZERO: usize = PARENT + 4;
    pub const END: usize = ZERO + 12;
}

const _: () = assert!(header::END == HEADER_SIZE && header::HEADER_CRC == 56);
const _: () = assert!(field::END == ENTRY_SIZE && field::PARENT == 48);
const _: () = assert!(PAGE_SIZE.is_multiple_of(ENTRY_SIZE) && HEADER_SIZE <= PAGE_SIZE);

/// Why an archive is refused. `entry` is the number of the entry at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    /// It does not begin with [`MAGIC`].
    BadMagic,
    /// Its version is not [`VERSION`].
    BadVersion(u32),
    /// The header's checksum is wrong.
    BadHeaderChecksum,
    /// The checksum over entries and names is wrong.
    BadDirectoryChecksum,
    /// It has fewer bytes than it says; the first number is what it says.
    Truncated(u64, u64),
    /// It has more bytes than it says; the first number is what it says.
    Oversized(u64, u64),
    /// The tables' offsets and sizes do not fit together.
    BadLayout,
    /// It has no entry, or more than [`ENTRIES_MAX`].
    BadEntryCount(u32),
    /// A word that must be zero isn't.
    NotZero,
    /// The kind is none of file, directory, link.
    BadKind(u32),
    /// The mode has bits beyond 0o7777.
    BadMode(u32),
    /// The path lies outside the names.
    PathOutOfRange(u32),
    /// The path is not UTF-8, not absolute, too long, or has an empty, `.`, `..` or NUL part.
    BadPath(u32),
    /// The path is not greater than the one before.
    Unsorted(u32),
    /// The parent is not the directory that the path names.
    BadParent(u32),
    /// The data lies outside the archive, or a link's target outside the names.
    DataOutOfRange(u32),
    /// A file's data does not begin at a page.
    Misaligned(u32),
    /// A file's data begins before the end of another one's or of the tables.
    Overlapping(u32),
    /// A link's target is empty, too long, not UTF-8 or holds a NUL.
    BadTarget(u32),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadMagic => write!(f, "not a boot image: it does not begin with XOKIMAGE"),
            Self::BadVersion(version) => {
                write!(f, "boot image of version {version}; this one reads version {VERSION}")
            }
            Self::BadHeaderChecksum => write!(f, "boot image: wrong checksum of the header"),
            Self::BadDirectoryChecksum => write!(f, "boot image: wrong checksum of the tables"),
            Self::Truncated(says, has) => {
                write!(f, "boot image cut short: {has} of {says} bytes are there")
            }
            Self::Oversized(says, has) => {
                write!(f, "boot image of {says} bytes is followed by others: {has} bytes")
            }
            Self::BadLayout => write!(f, "boot image: its tables do not fit together"),
            Self::BadEntryCount(count) => write!(f, "boot image with {count} entries"),
            Self::NotZero => write!(f, "boot image: a reserved word is not zero"),
            Self::BadKind(entry) => write!(f, "boot image entry {entry}: unknown kind"),
            Self::BadMode(entry) => write!(f, "boot image entry {entry}: mode beyond 07777"),
            Self::PathOutOfRange(entry) => {
                write!(f, "boot image entry {entry}: path outside of the names")
            }
            Self::BadPath(entry) => write!(f, "boot image entry {entry}: malformed path"),
            Self::Unsorted(entry) => write!(f, "boot image entry {entry}: not in order"),
            Self::BadParent(entry) => write!(f, "boot image entry {entry}: wrong parent"),
            Self::DataOutOfRange(entry) => {
                write!(f, "boot image entry {entry}: data outside of the image")
            }
            Self::Misaligned(entry) => {
                write!(f, "boot image entry {entry}: data not at a page's beginning")
            }
            Self::Overlapping(entry) => {
                write!(f, "boot image entry {entry}: data overlaps what is before it")
            }
            Self::BadTarget(entry) => write!(f, "boot image entry {entry}: malformed target"),
        }
    }
}

impl core::error::Error for ArchiveError {}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link; its data is the target.
    Symlink = 3,
}

impl Kind {
    fn from_word(word: u32) -> Option<Self> {
        match word {
            1 => Some(Self::File),
            2 => Some(Self::Directory),
            3 => Some(Self::Symlink),
            _ => None,
        }
    }
}

/// One file, directory or link of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its number: the place in the order of paths, usable as a stable inode number.
    pub index: u32,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, 0o7777 at most.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Last modification, in seconds since 1970.
    pub mtime: u64,
    /// Bytes of data.
    pub size: u64,
    /// Where the data begins, from the archive's first byte; a multiple of [`PAGE_SIZE`] for files.
    pub data_offset: u64,
    /// The number of the directory that it lies in; the root's is its own.
    pub parent: u32,
    path: &'a str,
}

impl<'a> Entry<'a> {
    /// The absolute path, such as `/bin/sh`.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The last part of the path; empty for the root.
    pub fn name(&self) -> &'a str {
        self.path.rsplit_once('/').map_or("", |(_, name)| name)
    }
}

/// An archive whose bytes have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Archive<'a> {
    bytes: &'a [u8],
    entry_count: u32,
    entries_offset: u64,
    names_offset: u64,
    names_size: u64,
}

impl<'a> Archive<'a> {
    /// Checks the whole archive: header, tables, each entry. File contents are not summed.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ArchiveError> {
        let archive = Self::open_header(bytes, true)?;
        archive.check_directory()?;
        Ok(archive)
    }

    /// Opens an archive that [`Archive::open`] accepted before, such as the one that the kernel
    /// booted from: checks that the header makes sense, and sums nothing. Should something be wrong
    /// after all, then entries are missing; nothing worse can come of it.
    pub fn open_checked(bytes: &'a [u8]) -> Result<Self, ArchiveError> {
        Self::open_header(bytes, false)
    }

    fn open_header(bytes: &'a [u8], sum: bool) -> Result<Self, ArchiveError> {
        let has = bytes.len() as u64;
        let short = ArchiveError::Truncated(HEADER_SIZE as u64, has);
        let word = |offset| word32(bytes, offset).ok_or(short);
        let long = |offset| word64(bytes, offset).ok_or(short);

        // Is it an archive, and one that this code understands?
        let magic = bytes.get(header::MAGIC..header::MAGIC + MAGIC.len()).ok_or(short)?;
        if magic != MAGIC {
            return Err(ArchiveError::BadMagic);
        }
        let version = word(header::VERSION)?;
        if version != VERSION {
            return Err(ArchiveError::BadVersion(version));
        }

        // Is the header whole?
        let summed = bytes.get(..header::HEADER_CRC).ok_or(short)?;
        if sum && crc32(summed) != word(header::HEADER_CRC)? {
            return Err(ArchiveError::BadHeaderChecksum);
        }
        if word(header::ZERO)? != 0 || word(header::ZERO_AFTER)? != 0 {
            return Err(ArchiveError::NotZero);
        }

        // Are there exactly the bytes that it speaks of?
        let total_size = long(header::TOTAL_SIZE)?;
        if has < total_size {
            return Err(ArchiveError::Truncated(total_size, has));
        }
        if has > total_size {
            return Err(ArchiveError::Oversized(total_size, has));
        }

        let archive = Self {
            bytes,
            entry_count: word(header::ENTRY_COUNT)?,
            entries_offset: long(header::ENTRIES_OFFSET)?,
            names_offset: long(header::NAMES_OFFSET)?,
            names_size: long(header::NAMES_SIZE)?,
        };
        archive.check_layout(total_size)?;
        Ok(archive)
    }

    /// How many entries there are.
    pub fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// The entry of a number, in the order of paths; the root is number 0.
    pub fn entry(&self, index: u32) -> Option<Entry<'a>> {
        if index >= self.entry_count {
            return None;
        }
        self.read_entry(index).ok()
    }

    /// The root directory.
    pub fn root(&self) -> Option<Entry<'a>> {
        self.entry(0)
    }

    /// The entry of exactly this absolute path; links are not followed.
    pub fn lookup(&self, path: &str) -> Option<Entry<'a>> {
        let found = self.entry(self.first_not_below([path.as_bytes()]))?;
        (found.path == path).then_some(found)
    }

    /// What lies directly in a directory, in the order of paths.
    pub fn children(&self, directory: &Entry<'a>) -> Children<'a> {
        let path = if directory.path == "/" { "" } else { directory.path };
        let next = self.first_not_below([path.as_bytes(), b"/"]);
        // The root's own path is the prefix of its children; it isn't one of them.
        Children { archive: *self, directory: directory.index, path, next: next.max(1) }
    }

    /// The entry of this name in a directory.
    pub fn child(&self, directory: &Entry<'a>, name: &str) -> Option<Entry<'a>> {
        // Without this, the name "b/c" would find a grandchild.
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let path = if directory.path == "/" { "" } else { directory.path };
        let low = self.first_not_below([path.as_bytes(), b"/", name.as_bytes()]);
        let found = self.entry(low)?;
        (found.parent == directory.index && found.name() == name).then_some(found)
    }

    /// An entry's bytes: a file's content, a link's target, nothing for a directory.
    pub fn data(&self, entry: &Entry<'_>) -> &'a [u8] {
        range(self.bytes, entry.data_offset, entry.size).unwrap_or(&[])
    }

    /// Where a link leads; nothing for what isn't one.
    pub fn target(&self, entry: &Entry<'_>) -> Option<&'a str> {
        if entry.kind != Kind::Symlink {
            return None;
        }
        str::from_utf8(self.data(entry)).ok()
    }

    /// The number of the first entry whose path is not less than these parts, one behind the other.
    fn first_not_below<const PARTS: usize>(&self, parts: [&[u8]; PARTS]) -> u32 {
        let (mut low, mut high) = (0, self.entry_count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.path_of(middle) {
                Some(path) if is_below(path, parts) => low = middle + 1,
                Some(_) => high = middle,
                None => return self.entry_count,
            }
        }
        low
    }

    /// The bytes of an entry's path, whatever else the entry says.
    fn path_of(&self, index: u32) -> Option<&'a [u8]> {
        let offset = self.entries_offset + u64::from(index) * ENTRY_SIZE as u64;
        let place = range(self.bytes, offset + field::PATH_OFFSET as u64, 8)?;
        let (offset, length) = (word32(place, 0)?, word32(place, 4)?);
        let names = range(self.bytes, self.names_offset, self.names_size)?;
        range(names, offset.into(), length.into())
    }

    fn read_entry(&self, index: u32) -> Result<Entry<'a>, ArchiveError> {
        let offset = self.entries_offset + u64::from(index) * ENTRY_SIZE as u64;
        let raw = range(self.bytes, offset, ENTRY_SIZE as u64).ok_or(ArchiveError::BadLayout)?;
        let word = |offset| word32(raw, offset).ok_or(ArchiveError::BadLayout);
        let long = |offset| word64(raw, offset).ok_or(ArchiveError::BadLayout);

        let names =
            range(self.bytes, self.names_offset, self.names_size).ok_or(ArchiveError::BadLayout)?;
        let path_offset = u64::from(word(field::PATH_OFFSET)?);
        let path = range(names, path_offset, u64::from(word(field::PATH_LENGTH)?))
            .ok_or(ArchiveError::PathOutOfRange(index))?;

        Ok(Entry {
            index,
            kind: Kind::from_word(word(field::KIND)?).ok_or(ArchiveError::BadKind(index))?,
            mode: word(field::MODE)?,
            uid: word(field::UID)?,
            gid: word(field::GID)?,
            mtime: long(field::MTIME)?,
            size: long(field::SIZE)?,
            data_offset: long(field::DATA_OFFSET)?,
            parent: word(field::PARENT)?,
            path: str::from_utf8(path).map_err(|_| ArchiveError::BadPath(index))?,
        })
    }

    /// Do the tables lie one behind the other, inside the archive?
    fn check_layout(&self, total_size: u64) -> Result<(), ArchiveError> {
        if self.entry_count == 0 || self.entry_count as usize > ENTRIES_MAX {
            return Err(ArchiveError::BadEntryCount(self.entry_count));
        }
        let entries_size = u64::from(self.entry_count) * ENTRY_SIZE as u64;
        let names_end = self.names_offset.checked_add(self.names_size);
        let fits = self.entries_offset == PAGE_SIZE as u64
            && self.names_offset == PAGE_SIZE as u64 + entries_size
            && names_end.is_some_and(|end| end <= total_size)
            && total_size.is_multiple_of(PAGE_SIZE as u64);
        if fits { Ok(()) } else { Err(ArchiveError::BadLayout) }
    }

    fn check_directory(&self) -> Result<(), ArchiveError> {
        let size = self.names_offset + self.names_size - self.entries_offset;
        let directory =
            range(self.bytes, self.entries_offset, size).ok_or(ArchiveError::BadLayout)?;
        if word32(self.bytes, header::DIRECTORY_CRC) != Some(crc32(directory)) {
            return Err(ArchiveError::BadDirectoryChecksum);
        }

        let mut data_end = self.names_offset + self.names_size;
        let mut before: Option<Entry<'a>> = None;
        for index in 0..self.entry_count {
            let entry = self.read_entry(index)?;
            self.check_entry(&entry)?;
            if before.is_some_and(|before| before.path.as_bytes() >= entry.path.as_bytes()) {
                return Err(ArchiveError::Unsorted(index));
            }
            self.check_parent(&entry)?;
            data_end = self.check_data(&entry, data_end)?;
            before = Some(entry);
        }
        Ok(())
    }

    fn check_entry(&self, entry: &Entry<'a>) -> Result<(), ArchiveError> {
        let offset = self.entries_offset + u64::from(entry.index) * ENTRY_SIZE as u64;
        let zeros = range(self.bytes, offset + field::ZERO as u64, 12);
        if zeros.is_none_or(|zeros| zeros.iter().any(|&byte| byte != 0)) {
            return Err(ArchiveError::NotZero);
        }
        if entry.mode & !0o7777 != 0 {
            return Err(ArchiveError::BadMode(entry.index));
        }
        if !is_path(entry.path) {
            return Err(ArchiveError::BadPath(entry.index));
        }
        Ok(())
    }

    /// Is the parent, which stands before its children, the directory that the path names?
    fn check_parent(&self, entry: &Entry<'a>) -> Result<(), ArchiveError> {
        let wrong = ArchiveError::BadParent(entry.index);
        if entry.index == 0 {
            let is_root = entry.path == "/" && entry.kind == Kind::Directory && entry.parent == 0;
            return if is_root { Ok(()) } else { Err(wrong) };
        }
        if entry.parent >= entry.index {
            return Err(wrong);
        }
        let parent = self.read_entry(entry.parent)?;
        let named = entry.path.rsplit_once('/').map(|(path, _)| path).ok_or(wrong)?;
        let named = if named.is_empty() { "/" } else { named };
        if parent.kind == Kind::Directory && parent.path == named { Ok(()) } else { Err(wrong) }
    }

    /// Is the data where it may be? Answers where data ends so far: files come in their entries'
    /// order, so that one comparison with the end before finds every overlap.
    fn check_data(&self, entry: &Entry<'a>, data_end: u64) -> Result<u64, ArchiveError> {
        let outside = ArchiveError::DataOutOfRange(entry.index);
        let end = entry.data_offset.checked_add(entry.size).ok_or(outside)?;
        match entry.kind {
            Kind::Symlink => {
                let names_end = self.names_offset + self.names_size;
                if entry.data_offset < self.names_offset || end > names_end {
                    return Err(outside);
                }
                let target = self.target(entry).unwrap_or("");
                if target.is_empty() || target.len() > PATH_MAX || target.contains('\0') {
                    return Err(ArchiveError::BadTarget(entry.index));
                }
                Ok(data_end)
            }
            Kind::File if entry.size > 0 => {
                if end > self.bytes.len() as u64 {
                    return Err(outside);
                }
                if !entry.data_offset.is_multiple_of(PAGE_SIZE as u64) {
                    return Err(ArchiveError::Misaligned(entry.index));
                }
                if entry.data_offset < data_end {
                    return Err(ArchiveError::Overlapping(entry.index));
                }
                Ok(end)
            }
            Kind::File | Kind::Directory if end != 0 => Err(outside),
            Kind::File | Kind::Directory => Ok(data_end),
        }
    }
}

/// The entries that lie directly in one directory; see [`Archive::children`].
#[derive(Clone, Debug)]
pub struct Children<'a> {
    archive: Archive<'a>,
    directory: u32,
    /// The directory's path without its last slash: empty for the root.
    path: &'a str,
    next: u32,
}

impl<'a> Iterator for Children<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        // Everything below a directory stands together: its paths have a common beginning.
        loop {
            let entry = self.archive.entry(self.next)?;
            if !entry.path.strip_prefix(self.path).is_some_and(|rest| rest.starts_with('/')) {
                return None;
            }
            self.next += 1;
            if entry.parent == self.directory {
                return Some(entry);
            }
        }
    }
}

/// Is `path` less than these parts, one behind the other?
fn is_below<const PARTS: usize>(path: &[u8], parts: [&[u8]; PARTS]) -> bool {
    let mut rest = path;
    for part in parts {
        let common = rest.len().min(part.len());
        let differing = (0..common).find(|&at| rest[at] != part[at]);
        if let Some(at) = differing {
            return rest[at] < part[at];
        }
        if common < part.len() {
            return true;
        }
        rest = &rest[common..];
    }
    false
}

const _: () = assert!(field::PATH_LENGTH == field::PATH_OFFSET + 4);

/// Is it absolute, and does each part name something?
fn is_path(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let named = |part: &str| {
        !part.is_empty()
            && part.len() <= NAME_MAX
            && part != "."
            && part != ".."
            && !part.contains('\0')
    };
    path.len() <= PATH_MAX && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(named))
}
