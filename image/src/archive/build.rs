//! Writes archives: the same entries give the same bytes, in whatever order they were added.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{ENTRIES_MAX, ENTRY_SIZE, Kind, MAGIC, PAGE_SIZE, PATH_MAX, VERSION};
use super::{field, header, is_path};
use crate::bytes::crc32;

/// Who owns an entry, what may be done with it, and when it was last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, 0o7777 at most.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Last modification, in seconds since 1970.
    pub mtime: u64,
}

impl Attributes {
    /// Root's, from 1970, with these permission bits.
    pub fn mode(mode: u32) -> Self {
        Self { mode, uid: 0, gid: 0, mtime: 0 }
    }
}

/// Why an entry cannot be part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The path is not absolute, too long, or has an empty, `.`, `..` or NUL part.
    BadPath(String),
    /// A link's target is empty, too long or holds a NUL.
    BadTarget(String),
    /// The mode has bits beyond 0o7777.
    BadMode(String),
    /// What would have to be its directory is a file or a link.
    ParentNotDirectory(String),
    /// There would be more than [`ENTRIES_MAX`] entries.
    TooManyEntries,
    /// The names would not fit their 32-bit offsets.
    NamesTooLong,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPath(path) => write!(f, "{path}: not a path that a boot image can hold"),
            Self::BadTarget(path) => write!(f, "{path}: malformed target of a link"),
            Self::BadMode(path) => write!(f, "{path}: mode beyond 07777"),
            Self::ParentNotDirectory(path) => {
                write!(f, "{path}: what it should lie in is not a directory")
            }
            Self::TooManyEntries => write!(f, "more than {ENTRIES_MAX} entries"),
            Self::NamesTooLong => write!(f, "more than 4 GiB of names"),
        }
    }
}

impl core::error::Error for BuildError {}

struct Node {
    kind: Kind,
    attributes: Attributes,
    data: Vec<u8>,
}

/// Collects entries and writes the archive. Adding a path again replaces what was there.
#[derive(Default)]
pub struct Builder {
    nodes: BTreeMap<String, Node>,
}

impl Builder {
    /// An archive of nothing but its root.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a regular file.
    pub fn file(
        &mut self,
        path: &str,
        attributes: Attributes,
        data: Vec<u8>,
    ) -> Result<(), BuildError> {
        self.add(path, Node { kind: Kind::File, attributes, data })
    }

    /// Adds a directory. Those that are missing on the way to an entry are made by themselves,
    /// root's and with mode 0o755.
    pub fn directory(&mut self, path: &str, attributes: Attributes) -> Result<(), BuildError> {
        self.add(path, Node { kind: Kind::Directory, attributes, data: Vec::new() })
    }

    /// Adds a symbolic link; its mode is 0o777, as on Linux.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), BuildError> {
        if target.is_empty() || target.len() > PATH_MAX || target.contains('\0') {
            return Err(BuildError::BadTarget(path.to_string()));
        }
        let attributes = Attributes::mode(0o777);
        self.add(path, Node { kind: Kind::Symlink, attributes, data: target.into() })
    }

    fn add(&mut self, path: &str, node: Node) -> Result<(), BuildError> {
        if !is_path(path) || (path == "/" && node.kind != Kind::Directory) {
            return Err(BuildError::BadPath(path.to_string()));
        }
        if node.attributes.mode & !0o7777 != 0 {
            return Err(BuildError::BadMode(path.to_string()));
        }
        self.nodes.insert(path.to_string(), node);
        Ok(())
    }

    /// The archive's bytes.
    pub fn build(mut self) -> Result<Vec<u8>, BuildError> {
        self.add_parents()?;
        if self.nodes.len() > ENTRIES_MAX {
            return Err(BuildError::TooManyEntries);
        }
        let numbers: BTreeMap<&str, u32> =
            self.nodes.keys().map(String::as_str).zip(0u32..).collect();

        let names_offset = PAGE_SIZE + self.nodes.len() * ENTRY_SIZE;
        let mut names: Vec<u8> = self.nodes.keys().flat_map(|path| path.bytes()).collect();
        let targets_at = names.len();
        for node in self.nodes.values().filter(|node| node.kind == Kind::Symlink) {
            names.extend_from_slice(&node.data);
        }
        if u32::try_from(names.len()).is_err() {
            return Err(BuildError::NamesTooLong);
        }

        let mut entries = Vec::new();
        let mut contents = Vec::new();
        let data_base = (names_offset + names.len()).next_multiple_of(PAGE_SIZE);
        let (mut path_at, mut target_at) = (0, targets_at);
        for (path, node) in &self.nodes {
            let data_offset = match node.kind {
                Kind::Symlink => names_offset + target_at,
                Kind::File if !node.data.is_empty() => data_base + contents.len(),
                Kind::File | Kind::Directory => 0,
            };
            let parent = numbers.get(parent_of(path)).copied().unwrap_or(0);
            entries.extend_from_slice(&encode(node, path_at, path.len(), data_offset, parent));
            path_at += path.len();
            if node.kind == Kind::Symlink {
                target_at += node.data.len();
            } else {
                contents.extend_from_slice(&node.data);
                contents.resize(contents.len().next_multiple_of(PAGE_SIZE), 0);
            }
        }
        Ok(assemble(self.nodes.len(), &entries, &names, &contents))
    }

    /// Makes the directories that entries lie in and nobody added.
    fn add_parents(&mut self) -> Result<(), BuildError> {
        let paths: Vec<String> = self.nodes.keys().cloned().collect();
        self.nodes.entry("/".into()).or_insert_with(directory_node);
        for path in &paths {
            let mut above = parent_of(path);
            while above != "/" {
                let node = self.nodes.entry(above.into()).or_insert_with(directory_node);
                if node.kind != Kind::Directory {
                    return Err(BuildError::ParentNotDirectory(path.clone()));
                }
                above = parent_of(above);
            }
        }
        Ok(())
    }
}

fn directory_node() -> Node {
    Node { kind: Kind::Directory, attributes: Attributes::mode(0o755), data: Vec::new() }
}

fn parent_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

fn encode(
    node: &Node,
    path_at: usize,
    path_length: usize,
    data_offset: usize,
    parent: u32,
) -> [u8; ENTRY_SIZE] {
    let mut raw = [0; ENTRY_SIZE];
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(field::KIND, &(node.kind as u32).to_le_bytes());
    put(field::MODE, &node.attributes.mode.to_le_bytes());
    put(field::UID, &node.attributes.uid.to_le_bytes());
    put(field::GID, &node.attributes.gid.to_le_bytes());
    put(field::MTIME, &node.attributes.mtime.to_le_bytes());
    put(field::DATA_OFFSET, &(data_offset as u64).to_le_bytes());
    put(field::SIZE, &(node.data.len() as u64).to_le_bytes());
    put(field::PATH_OFFSET, &(path_at as u32).to_le_bytes());
    put(field::PATH_LENGTH, &(path_length as u32).to_le_bytes());
    put(field::PARENT, &parent.to_le_bytes());
    raw
}

fn assemble(count: usize, entries: &[u8], names: &[u8], contents: &[u8]) -> Vec<u8> {
    let names_offset = PAGE_SIZE + entries.len();
    let data_base = (names_offset + names.len()).next_multiple_of(PAGE_SIZE);
    let total_size = data_base + contents.len();

    let mut bytes = vec![0; PAGE_SIZE];
    bytes.reserve_exact(total_size - PAGE_SIZE);
    bytes.extend_from_slice(entries);
    bytes.extend_from_slice(names);
    let directory_crc = crc32(&bytes[PAGE_SIZE..]);
    bytes.resize(data_base, 0);
    bytes.extend_from_slice(contents);

    let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    put(header::MAGIC, &MAGIC);
    put(header::VERSION, &VERSION.to_le_bytes());
    put(header::ENTRY_COUNT, &(count as u32).to_le_bytes());
    put(header::TOTAL_SIZE, &(total_size as u64).to_le_bytes());
    put(header::ENTRIES_OFFSET, &(PAGE_SIZE as u64).to_le_bytes());
    put(header::NAMES_OFFSET, &(names_offset as u64).to_le_bytes());
    put(header::NAMES_SIZE, &(names.len() as u64).to_le_bytes());
    put(header::DIRECTORY_CRC, &directory_crc.to_le_bytes());
    let header_crc = crc32(&bytes[..header::HEADER_CRC]);
    bytes[header::HEADER_CRC..header::HEADER_CRC + 4].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}
