//! Files: descriptors, names, everything that is read and written. (To be written.)
//!
//! The seam to `crate::process`:
//! fork: the heap is copied eagerly, so a child has the same `Files`; `attach` gives the child's
//! domain its attachments first. vfork: `clone` and `attach` to the own domain (attachments count).
//! exec: `without_close_on_exec`, `attach` to the new domain, `save`; there `load`. exit: the kernel
//! drops the domain's attachments; a vfork child's `detach`.

pub mod table;

use abi::id::DomainId;
use alloc::vec::Vec;

use crate::errno::Errno;

/// Open files, working directory, mask.
#[derive(Clone, Debug, Default)]
pub struct Files {}

/// A program that may be executed.
#[derive(Clone, Debug)]
pub struct Program {
    /// Absolute path, links resolved.
    pub path: alloc::string::String,
    /// Where its bytes lie in the boot image, if they do: offset (page-aligned) and size.
    pub image: Option<(u64, u64)>,
    /// Its bytes otherwise.
    pub bytes: Vec<u8>,
}

/// What a private mapping of a file shows.
#[derive(Clone, Copy, Debug)]
pub enum Backing {
    /// Pages of the boot image from this offset on, `bytes` of them meaningful.
    Image {
        /// Offset in the image.
        offset: u64,
        /// Bytes before the file's end.
        bytes: u64,
    },
    /// Nothing to share: read the pages with `Files::read_at` when mapping.
    Copy,
    /// Zeros (`/dev/zero`).
    Zero,
}

impl Files {
    /// Attaches `domain` to all that is shared, by attachments that the caller has.
    pub fn attach(&self, _domain: DomainId) -> Result<(), Errno> {
        Ok(())
    }
    /// Gives one attachment of the own domain back for each open file.
    pub fn detach(&mut self) {}
    /// Closes what `exec` closes; called on a clone in the caller's process.
    pub fn without_close_on_exec(&mut self) {}
    /// Writes everything `load` needs.
    pub fn save(&self, _out: &mut Vec<u8>) {}
    /// Nothing: the first process, on the terminal or the streams (`xok::services`), which init has
    /// attached. Else reads what `save` wrote; the attachments are there. The rest of `bytes` comes back.
    pub fn load(bytes: &[u8]) -> Result<(Self, &[u8]), Errno> {
        Ok((Self::default(), bytes))
    }
    /// Finds a program by path for `exec` (from `directory`, a descriptor or AT_FDCWD): may it be
    /// executed, where are its bytes?
    pub fn program(&self, _directory: i32, _path: &[u8], _flags: u32) -> Result<Program, Errno> {
        Err(Errno::ENOENT)
    }
    /// What `mmap` of descriptor `fd` at `offset` shows.
    pub fn backing(&self, _fd: i32, _offset: u64) -> Result<Backing, Errno> {
        Err(Errno::EBADF)
    }
    /// Reads at `offset` without moving the descriptor's own (for `Backing::Copy`).
    pub fn read_at(&self, _fd: i32, _offset: u64, _into: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }
}
