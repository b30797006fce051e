//! Open file descriptions: what `open` makes and `dup`, `fork` and `exec` share.
//!
//! Offset and status flags lie in this process until a second process shares them; then they move
//! to a 64-byte region (word 0 offset, word 1 flags), which all change by compare-and-write. When
//! the others are gone (the region's published count says so) they come back.

use abi::id::RegionId;
use abi::region::WordAt;
use alloc::borrow::Cow;
use alloc::format;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::path::Canonical;
use unix::protocol::CLIENT;

use super::open_file::OpenFile;
use super::pipe::Level;
use super::region::{self, Done, Heritage, Region};
use super::seal::Seal;
use crate::page::Hold;
use xok::published::Word;

/// Offset of the flags word.
const FLAGS: u64 = 8;

/// An open file description.
#[derive(Debug)]
pub struct Description {
    /// What is open.
    pub file: OpenFile,
    /// The name it was opened by, canonical; for `/proc/self/fd`, `fchdir` and the `…at` calls.
    pub path: Canonical,
    /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`, and the flags that never change.
    pub access: u32,
    /// How often a read, and a write, found nothing more to do: what an edge begins after.
    pub drained: Cell<(u32, u32)>,
    region: Cell<Option<RegionId>>,
    /// Says in the process's page that the file is open, while no region says so to its server.
    hold: RefCell<Option<Hold>>,
    /// What the memory file server said it was opened for.
    pub seal: Seal,
    shared: Cell<bool>,
    offset: Cell<u64>,
    flags: Cell<u32>,
    /// Operations on the region up to the last look at its flags, and those.
    seen: Cell<(u64, u32)>,
    /// How often a file was read by it: one that is read often is worth showing.
    pub reads: Cell<u32>,
    /// Of a pipe: how full it was when this process last looked.
    pub level: Cell<Level>,
    /// Of a pipe that may be read: what a step along its ring is told of it, else 0.
    pub reads_by: u64,
    /// Of a pipe that may be written: the same.
    pub writes_by: u64,
    /// Of a pipe: how many may read it.
    pub readers: Word,
    /// Of a pipe that may be read: while this word is so, nobody has changed the flags, and they
    /// say that calls wait if they have to.
    patient: Cell<(Word, u64)>,
}

/// It is not known whether calls wait.
const UNKNOWN: (Word, u64) = (Word::CONSTANT, 0);

/// Status flags that `F_SETFL` changes.
pub const CHANGEABLE: u32 =
    raw::O_APPEND | raw::O_NONBLOCK | raw::FASYNC | raw::O_DIRECT | raw::O_NOATIME;

impl Description {
    /// A description of `file`, opened with `flags`; `region` is the one that a server watches.
    pub fn new(file: OpenFile, path: Canonical, flags: u32, region: Option<RegionId>) -> Rc<Self> {
        let description = Self::of(file, path, flags & !CHANGEABLE);
        description.region.set(region);
        description.flags.set(flags & CHANGEABLE);
        Rc::new(description)
    }

    fn of(file: OpenFile, path: Canonical, access: u32) -> Self {
        let mut description = Self {
            file,
            path,
            access,
            drained: Cell::new((0, 0)),
            region: Cell::new(None),
            hold: RefCell::new(None),
            seal: Seal::default(),
            shared: Cell::new(false),
            offset: Cell::new(0),
            flags: Cell::new(0),
            reads: Cell::new(0),
            seen: Cell::default(),
            level: Cell::default(),
            reads_by: 0,
            writes_by: 0,
            readers: Word::CONSTANT,
            patient: Cell::new(UNKNOWN),
        };
        if let OpenFile::Pipe(pipe) = &description.file
            && let Some(readers) = pipe.readers()
        {
            let pipe = pipe.clone();
            description.readers = readers;
            if description.readable() {
                description.reads_by = pipe.region.0;
            }
            if description.writable() {
                description.writes_by = pipe.region.0;
                description.level = Cell::new(Level::EMPTY);
            }
        }
        description
    }

    /// One that another process shares: offset and flags are in `region`.
    pub fn inherited(file: OpenFile, path: Canonical, access: u32, region: RegionId) -> Rc<Self> {
        let description = Self::of(file, path, access);
        description.region.set(Some(region));
        description.shared.set(true);
        Rc::new(description)
    }

    /// One of a file that the process's page says is open.
    pub fn held(file: OpenFile, path: Canonical, flags: u32, hold: Hold) -> Rc<Self> {
        let description = Self::new(file, path, flags, None);
        description.hold.replace(Some(hold));
        description
    }

    /// Is it only this process's page that says that the file is open?
    pub fn is_held(&self) -> bool {
        self.hold.borrow().is_some()
    }

    /// From now on its server watches `region` instead.
    pub fn set_watched(&self, region: RegionId) {
        self.region.set(Some(region));
        self.hold.replace(None);
    }

    /// What /proc shows for it.
    pub fn name(&self) -> Cow<'_, [u8]> {
        match &self.file {
            OpenFile::Pipe(pipe) => Cow::Owned(format!("pipe:[{}]", pipe.region.0).into_bytes()),
            OpenFile::Stream(number) => {
                Cow::Owned(format!("pipe:[{}]", u32::from(*number) + 1).into_bytes())
            }
            OpenFile::Socket(socket) => {
                Cow::Owned(format!("socket:[{}]", socket.number).into_bytes())
            }
            OpenFile::UnixSocket(socket) => {
                Cow::Owned(format!("socket:[{}]", socket.number).into_bytes())
            }
            OpenFile::EventCounter(_) => Cow::Borrowed(b"anon_inode:[eventfd]"),
            OpenFile::Timer(_) => Cow::Borrowed(b"anon_inode:[timerfd]"),
            OpenFile::Signals(_) => Cow::Borrowed(b"anon_inode:[signalfd]"),
            OpenFile::Epoll(_) => Cow::Borrowed(b"anon_inode:[eventpoll]"),
            OpenFile::Own(_) => Cow::Borrowed(b"anon_inode:[own]"),
            OpenFile::Terminal(tty) if tty.number.is_none() => Cow::Borrowed(b"/dev/console"),
            _ => Cow::Borrowed(self.path.as_bytes()),
        }
    }

    /// A call has found nothing more to read, or to write.
    pub fn note_drained(&self, reads: bool) {
        let (read, written) = self.drained.get();
        self.drained.set(match reads {
            true => (read.wrapping_add(1), written),
            false => (read, written.wrapping_add(1)),
        });
    }

    /// The region, if it has one.
    pub fn region(&self) -> Option<RegionId> {
        self.region.get()
    }

    /// May it be read?
    pub fn readable(&self) -> bool {
        self.access & (raw::O_ACCMODE | raw::O_PATH) != raw::O_WRONLY
            && self.access & raw::O_PATH == 0
    }

    /// May it be written?
    pub fn writable(&self) -> bool {
        self.access & raw::O_ACCMODE != raw::O_RDONLY && self.access & raw::O_PATH == 0
    }

    /// Status flags and access mode, as `F_GETFL` gives them.
    pub fn flags(&self) -> Result<u32, Errno> {
        let changeable = match self.shared() {
            Some(region) => self.seen_flags(region)?,
            None => self.flags.get(),
        };
        let never = raw::O_CREAT | raw::O_EXCL | raw::O_NOCTTY | raw::O_TRUNC | raw::O_CLOEXEC;
        Ok(self.access & !never | changeable)
    }

    /// The region's flags: looked at if anything was done there since the last look.
    fn seen_flags(&self, region: Region) -> Result<u32, Errno> {
        let before = region::operations(region.id);
        let (done, flags) = self.seen.get();
        if done == before && done > 0 {
            return Ok(flags);
        }
        let flags = region.pair()?.1 as u32 & CHANGEABLE;
        // This look was one. If it was not the next one, the number is not met again.
        self.seen.set((before + 1, flags));
        Ok(flags)
    }

    /// Sets the changeable flags.
    pub fn set_flags(&self, flags: u32) -> Result<(), Errno> {
        let flags = flags & CHANGEABLE;
        self.patient.set(UNKNOWN);
        match self.shared() {
            Some(region) => {
                let write = [WordAt { offset: FLAGS, value: u64::from(flags) }];
                region.copy_in(0, &[], &[], &write).map(|_| ())
            }
            None => {
                self.flags.set(flags);
                Ok(())
            }
        }
    }

    /// Must calls on it not wait?
    pub fn nonblocking(&self) -> bool {
        if self.is_patient() {
            return false;
        }
        let nonblocking = self.flags().is_ok_and(|flags| flags & raw::O_NONBLOCK != 0);
        if !nonblocking && self.reads_by != 0 {
            self.patient.set(self.while_unchanged());
        }
        nonblocking
    }

    /// The word that changes with the flags, as it was at the last look at them.
    fn while_unchanged(&self) -> (Word, u64) {
        let Some(id) = self.region.get().filter(|_| self.shared.get()) else {
            return (Word::CONSTANT, Word::CONSTANT.load());
        };
        let (done, _) = self.seen.get();
        region::operations_word(id).filter(|_| done > 0).map_or(UNKNOWN, |word| (word, done))
    }

    /// Is it a pipe that may be read, and is it known that calls wait if they have to?
    #[inline(always)]
    pub fn is_patient(&self) -> bool {
        let (word, value) = self.patient.get();
        word.load() == value
    }

    /// The offset.
    pub fn offset(&self) -> Result<u64, Errno> {
        match self.shared() {
            // Who shares it may have stored nonsense: no file is that long.
            Some(region) => match region.pair()?.0 {
                offset if offset > i64::MAX as u64 => Err(Errno::EOVERFLOW),
                offset => Ok(offset),
            },
            None => Ok(self.offset.get()),
        }
    }

    /// Sets the offset whatever it was.
    pub fn set_offset(&self, offset: u64) -> Result<(), Errno> {
        match self.shared() {
            Some(region) => {
                let write = [WordAt { offset: 0, value: offset }];
                region.copy_in(0, &[], &[], &write).map(|_| ())
            }
            None => {
                self.offset.set(offset);
                Ok(())
            }
        }
    }

    /// Moves the offset if nobody else has meanwhile.
    pub fn move_offset(&self, from: u64, to: u64) -> Result<Done, Errno> {
        match self.shared() {
            Some(region) => {
                let compare = [WordAt { offset: 0, value: from }];
                region.copy_in(0, &[], &compare, &[WordAt { offset: 0, value: to }])
            }
            None => {
                self.offset.set(to);
                Ok(Done::Yes)
            }
        }
    }

    /// Does another process have it too?
    pub fn is_shared(&self) -> bool {
        self.shared().is_some()
    }

    /// The region, if offset and flags are in it now.
    fn shared(&self) -> Option<Region> {
        let id = self.region.get().filter(|_| self.shared.get())?;
        let region = Region { id, role: CLIENT };
        if region::attached(id, CLIENT) == 1
            && let Ok((offset, flags)) = region.pair()
        {
            // Nobody else has it: nobody else can get it but from here.
            self.offset.set(offset.min(i64::MAX as u64));
            self.flags.set(flags as u32 & CHANGEABLE);
            self.shared.set(false);
            return None;
        }
        Some(region)
    }

    /// Moves offset and flags to a region that is inherited, as is what the file has.
    pub fn share(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        let id = match self.region.get() {
            Some(id) => id,
            None => {
                let id = region::make(0)?;
                Region { id, role: CLIENT }.attach()?;
                self.region.set(Some(id));
                id
            }
        };
        self.patient.set(UNKNOWN);
        let region = Region { id, role: CLIENT };
        // Where others have had it, the words are there, whoever has it now.
        if !self.shared.get() {
            let write = [
                WordAt { offset: 0, value: self.offset.get() },
                WordAt { offset: FLAGS, value: u64::from(self.flags.get()) },
            ];
            region.copy_in(0, &[], &[], &write)?;
        }
        heritage.add(&region)?;
        self.shared.set(true);
        self.file.attach(heritage)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        if let Some(id) = self.region.get() {
            Region { id, role: CLIENT }.detach();
        }
        self.file.close();
    }
}
