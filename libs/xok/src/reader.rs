//! What `ps`, `top`, `free` and a map of memory show, read from the published pages: no call.
//!
//! ```text
//!  Reader::open ──► environments   who there is                ps
//!                   sample, since  who ran meanwhile           top
//!                   memory, owner  how much is whose, by frame free, a map
//!                  seen, oldest   what nobody has used for long
//! ```
//! A reader is opened once, which compares the layouts' versions with those this library was built
//! for; what it reads changes under it, one record at a time, as on any machine that runs.

use crate::{clock, published};
use abi::id::{DomainId, EnvId, Frame};
use abi::limits::CPUS;
use abi::published::*;
use core::ops::Range;

/// Layouts that this library cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Of the directory itself.
    Directory,
    /// Of the records of one table.
    Table(Table),
}

/// The version of the records that this library was built for; fields are only ever appended.
const RECORDS: u32 = 1;

/// What is read, and the size of its records as this library knows them.
const READ: [(Table, usize); 6] = [
    (Table::Envs, size_of::<EnvRecord>()),
    (Table::Domains, size_of::<DomainRecord>()),
    (Table::Frames, size_of::<FrameRecord>()),
    (Table::Ages, size_of::<AgeRecord>()),
    (Table::Cpus, size_of::<CpuRecord>()),
    (Table::Calls, size_of::<CallRecord>()),
];

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No memory is there.
    Absent,
    /// Nobody's.
    Free,
    /// The kernel's own.
    Kernel,
    /// Of the boot image.
    Image,
    /// A region's.
    Region,
    /// Of the domain with this index: mapped by it (the first in the reverse map, where several
    /// do), or one of its tables.
    Domain(usize),
    /// In use, but nobody is named: registers, links, frames on their way to being free.
    Other,
}

/// Frames by owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Frames that programs may have.
    pub usable: u64,
    /// Of those, free, as the directory says.
    pub free: u64,
    /// Free, counted one by one.
    pub counted_free: u64,
    /// The kernel's.
    pub kernel: u64,
    /// The boot image's.
    pub image: u64,
    /// In regions.
    pub regions: u64,
    /// In domains.
    pub domains: u64,
    /// In use otherwise.
    pub other: u64,
}

/// What one environment had run: its id, and nanoseconds.
pub type Ran = (u32, u64);

/// What everybody had run at one time, in memory that the caller lends: `limits::INDICES`
/// places hold all.
#[derive(Debug)]
pub struct Sample<'a> {
    /// When, in nanoseconds since boot.
    pub at_ns: u64,
    /// Nanoseconds that each processor was idle.
    pub idle_ns: [u64; CPUS],
    /// By index of environment.
    ran: &'a mut [Ran],
}

impl<'a> Sample<'a> {
    /// A sample of nothing, to be filled by [`Reader::sample`].
    pub fn new(ran: &'a mut [Ran]) -> Self {
        Sample { at_ns: 0, idle_ns: [0; CPUS], ran }
    }

    /// Nanoseconds that the environment with this id has run since `earlier`.
    pub fn ran_since(&self, earlier: &Sample, id: u32) -> u64 {
        let index = EnvId(id).index();
        let of = |sample: &Sample| match sample.ran.get(index) {
            Some(&(whose, ns)) if whose == id => ns,
            _ => 0,
        };
        of(self).saturating_sub(of(earlier))
    }
}

/// A reader of layouts that it knows.
#[derive(Clone, Copy, Debug)]
pub struct Reader(());

impl Reader {
    /// Compares versions; refuses what it would misread.
    pub fn open() -> Result<Reader, Unknown> {
        if !published::is_known() {
            return Err(Unknown::Directory);
        }
        let misread = READ.iter().find(|&&(table, bytes)| {
            let info = published::table(table);
            info.version != RECORDS || (info.stride as usize) < bytes
        });
        misread.map_or(Ok(Reader(())), |&(table, _)| Err(Unknown::Table(table)))
    }

    /// Every environment there is, the dead whose records are still held among them.
    pub fn environments(self) -> impl Iterator<Item = EnvRecord> {
        let count = published::table(Table::Envs).count as usize;
        let records = (0..count).filter_map(|at| published::record::<EnvRecord>(Table::Envs, at));
        records.filter(|record| record.id != 0)
    }

    /// The processors that run.
    pub fn processors(self) -> impl Iterator<Item = CpuRecord> {
        let count = published::directory().cpus as usize;
        (0..count).filter_map(|cpu| published::record(Table::Cpus, cpu))
    }

    /// Kernel calls made by anybody since boot.
    pub fn calls(self) -> u64 {
        self.processors().map(|cpu| cpu.calls).sum()
    }

    /// Notes what everybody has run until now.
    pub fn sample(self, into: &mut Sample) {
        into.at_ns = clock::now_ns();
        into.ran.fill((0, 0));
        for (idle_ns, cpu) in into.idle_ns.iter_mut().zip(self.processors()) {
            *idle_ns = cpu.idle_ns;
        }
        for record in self.environments() {
            if let Some(place) = into.ran.get_mut(EnvId(record.id).index()) {
                *place = (record.id, record.run_ns);
            }
        }
    }

    /// The frame numbers there are.
    pub fn frames(self) -> Range<u32> {
        0..published::table(Table::Frames).count
    }

    /// Whose a frame is: the reverse map leads from it to a table that maps it, and the table's
    /// record to the domain that it was made for.
    pub fn owner(self, frame: Frame) -> Owner {
        const DATA: u8 = FrameType::Data as u8;
        const FIRST_TABLE: u8 = FrameType::Table1 as u8;
        const LAST_TABLE: u8 = FrameType::Table3 as u8;
        const ROOT: u8 = FrameType::Table4 as u8;
        let Some(record) = published::frame(frame) else { return Owner::Absent };
        match record.kind {
            DATA if record.chain != 0 => match published::frame(Frame(record.chain >> 9)) {
                Some(table) if table.kind == FIRST_TABLE => of_domain(table.chain),
                // The table has gone since.
                _ => Owner::Other,
            },
            FIRST_TABLE..=LAST_TABLE => of_domain(record.chain),
            ROOT => self.of_root(frame),
            kind if kind == FrameType::Free as u8 => Owner::Free,
            kind if kind == FrameType::Kernel as u8 => Owner::Kernel,
            kind if kind == FrameType::Image as u8 => Owner::Image,
            kind if kind == FrameType::Region as u8 => Owner::Region,
            kind if kind == FrameType::Absent as u8 => Owner::Absent,
            _ => Owner::Other,
        }
    }

    fn of_root(self, frame: Frame) -> Owner {
        let count = published::table(Table::Domains).count as usize;
        let is_its = |&index: &usize| {
            let domain = published::record::<DomainRecord>(Table::Domains, index);
            domain.is_some_and(|domain| domain.id != 0 && domain.root == frame.0)
        };
        (0..count).find(is_its).map_or(Owner::Other, Owner::Domain)
    }

    /// When a frame was last seen in use by a domain that has asked for that
    /// (`Property::Ages`), as [`AgeRecord::seen`] says it.
    pub fn seen(self, frame: Frame) -> u32 {
        let record = published::record::<AgeRecord>(Table::Ages, frame.0 as usize);
        record.unwrap_or_default().seen
    }

    /// Of the frames `among` which one looks, those that have not been used for longest, the
    /// oldest first: as many as there are places, or as are found. What nobody has looked at yet
    /// is young.
    pub fn oldest(self, among: impl Fn(Frame) -> bool, places: &mut [Frame]) -> usize {
        let mut found = 0;
        for frame in self.frames().map(Frame) {
            let seen = self.seen(frame);
            if seen == 0 || places.is_empty() || !among(frame) {
                continue;
            }
            let younger = |&&other: &&Frame| self.seen(other) > seen;
            let at = found - places[..found].iter().rev().take_while(younger).count();
            if at == places.len() {
                continue;
            }
            found = (found + 1).min(places.len());
            places[at..found].rotate_right(1);
            places[at] = frame;
        }
        found
    }

    /// Counts all frames by owner.
    pub fn memory(self) -> Memory {
        let directory = published::directory();
        let mut memory = Memory {
            usable: directory.frames_usable,
            free: directory.frames_free,
            ..Memory::default()
        };
        for number in self.frames() {
            match self.owner(Frame(number)) {
                Owner::Absent => {}
                Owner::Free => memory.counted_free += 1,
                Owner::Kernel => memory.kernel += 1,
                Owner::Image => memory.image += 1,
                Owner::Region => memory.regions += 1,
                Owner::Domain(_) => memory.domains += 1,
                Owner::Other => memory.other += 1,
            }
        }
        memory
    }
}

/// The domain whose id has this low half; one that has ended left its tables to others.
fn of_domain(low: u32) -> Owner {
    let index = DomainId(low.into()).index();
    let record = published::record::<DomainRecord>(Table::Domains, index);
    let lives = record.is_some_and(|domain| domain.id as u32 == low && low != 0);
    if lives { Owner::Domain(index) } else { Owner::Other }
}
