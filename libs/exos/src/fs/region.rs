//! Region operations in the shapes that files need.

use abi::call::number;
use abi::error::Error;
use abi::id::{DomainId, RegionId};
use abi::limits::REGION_PLACES;
use abi::published::{RegionRecord, Table};
use abi::region::{
    COPY_IN, COPY_NONE, COPY_OUT, FIFO, NO_PEER, Place, RegionOperation, STEP_BESIDE, STEP_IN,
    Step, WordAt,
};
use core::mem::offset_of;
use unix::Errno;
use xok::published::Word;
use xok::{call, published};

use super::memory_files::own_domain;
use crate::errno::from_kernel;
use crate::wait::Interrupts;
use crate::{identity, thread, user};

/// A region that this domain is attached to in `role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its id.
    pub id: RegionId,
    /// The role.
    pub role: u16,
}

/// What another domain is to be attached to, as this one is: by one call, or one for each so many.
pub struct Heritage {
    domain: DomainId,
    count: usize,
    places: [Place; REGION_PLACES],
}

impl Heritage {
    /// Of none: what would be inherited only gets ready for it.
    pub fn none() -> Self {
        Self::of(DomainId::NONE)
    }

    /// Of this domain, nothing yet.
    pub fn of(domain: DomainId) -> Self {
        Self { domain, count: 0, places: [Place::default(); REGION_PLACES] }
    }

    /// One region more.
    pub fn add(&mut self, region: &Region) -> Result<(), Errno> {
        if self.count == REGION_PLACES {
            self.send()?;
        }
        if let Some(place) = self.places.get_mut(self.count) {
            *place = Place { region: region.id.0, role: region.role.into() };
            self.count += 1;
        }
        Ok(())
    }

    /// Attaches the domain to what was added.
    pub fn send(&mut self) -> Result<(), Errno> {
        let places = self.places.get(..core::mem::take(&mut self.count)).unwrap_or(&[]);
        if places.is_empty() || self.domain.is_none() {
            return Ok(());
        }
        match call::region_pass(call::OWN, self.domain, places) {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(from_kernel(error)),
        }
    }

    /// Is this domain attached to all that was added, and has another one made it? No region has
    /// the id of none.
    pub fn is_from_others(&self) -> bool {
        let own = own_domain();
        let mut added = self.places.iter().take(self.count).filter(|place| place.region != 0);
        added.all(|place| {
            let region = Region { id: RegionId(place.region), role: place.role as u16 };
            let made = record(region.id).is_none_or(|record| record.domain == own.0);
            // Who is not attached may not even do nothing.
            !made && finish(&region.operation(&[], &[])).is_ok()
        })
    }
}

/// How a conditional operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// As asked.
    Yes,
    /// A compare failed: look again.
    Changed,
}

/// A copy between a ring and memory, by which one of the ring's words moves on.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Into the ring, or out of it?
    pub into: bool,
    /// Where in the region.
    pub offset: u64,
    /// Where in memory.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The word that moves on by as many, and what it must be.
    pub moves: WordAt,
    /// The word that must be so as well, …
    pub beside: WordAt,
    /// … if it counts.
    pub beside_counts: bool,
}

/// Why nothing was transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// A compare failed: the word found.
    Found(u64),
    /// The wait ended, as a signal or an event has come.
    Told,
    /// Not all of the memory is there.
    Absent,
    /// Refused.
    Refused(Errno),
}

impl Transfer {
    #[inline]
    fn step(&self, region: &Region) -> Step {
        Step {
            region: region.id.0,
            role: region.role as u8,
            peer: NO_PEER,
            flags: u8::from(self.into) * STEP_IN + u8::from(self.beside_counts) * STEP_BESIDE,
            len: self.len as u32,
            offset: self.offset as u32,
            moves: (self.moves.offset / 8) as u16,
            beside: (self.beside.offset / 8) as u16,
            events: 0,
        }
    }
}

#[inline(always)]
fn missed(answer: Result<u64, (Error, u64)>) -> Result<(), Missed> {
    match answer {
        Ok(_) => Ok(()),
        Err((Error::Changed, found)) => Err(Missed::Found(found)),
        Err((Error::WouldBlock, _)) => Err(Missed::Told),
        Err((Error::BadAddress, _)) => Err(Missed::Absent),
        Err((error, _)) => Err(Missed::Refused(refused(error))),
    }
}

fn finish(operation: &RegionOperation) -> Result<Done, Errno> {
    Ok(if finish_or_found(operation)?.is_ok() { Done::Yes } else { Done::Changed })
}

fn finish_or_found(operation: &RegionOperation) -> Result<Result<(), u64>, Errno> {
    match call::region_operate(operation) {
        Ok(_) => Ok(Ok(())),
        Err((Error::Changed, found)) => Ok(Err(found)),
        Err((error, _)) => Err(refused(error)),
    }
}

fn refused(error: Error) -> Errno {
    if error == Error::NoSuchRegion { Errno::EIO } else { from_kernel(error) }
}

/// Role of all who have a file that is nothing but a region of 64 bytes.
const HOLDER: u16 = 0;

impl Region {
    /// A region all of whose users have the same role: a file of 64 bytes of words, which whoever
    /// has it, also a fork child, changes in one step.
    pub const fn held(id: RegionId) -> Self {
        Self { id, role: HOLDER }
    }

    /// Makes one, all zero, to which this domain is attached.
    pub fn make_held() -> Result<Self, Errno> {
        let region = Self::held(make(0)?);
        region.attach()?;
        Ok(region)
    }

    fn operation(&self, compare: &[WordAt], write: &[WordAt]) -> RegionOperation {
        let mut operation = RegionOperation {
            region: self.id.0,
            compares: compare.len() as u8,
            writes: write.len() as u8,
            direction: COPY_NONE,
            role: self.role as u8,
            ..RegionOperation::default()
        };
        operation.compare[..compare.len()].copy_from_slice(compare);
        operation.write[..write.len()].copy_from_slice(write);
        operation
    }

    /// If the compares hold, copies out, then writes the words.
    pub fn copy_out(
        &self,
        offset: u64,
        into: &mut [u8],
        compare: &[WordAt],
        write: &[WordAt],
    ) -> Result<Done, Errno> {
        let mut operation = self.operation(compare, write);
        if !into.is_empty() {
            operation.direction = COPY_OUT;
            operation.address = into.as_mut_ptr() as u64;
            operation.offset = offset;
            operation.len = into.len() as u32;
        }
        finish(&operation)
    }

    /// Copies between the region at `offset` and memory at `address` that is present: program
    /// memory was probed, and ExOS's own threads are the only ones to unmap it.
    pub fn copy_memory(
        &self,
        direction: u8,
        offset: u64,
        address: u64,
        len: u64,
    ) -> Result<(), Errno> {
        // See `copy_memory_if`.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let (region, role) = (self.id.0, self.role as u8);
        let none = RegionOperation::default();
        finish(&RegionOperation { region, role, direction, address, offset, len, ..none })
            .map(|_| ())
    }

    /// The same if the compares hold, then writes the words; else the first word that differs.
    pub fn copy_memory_if(
        &self,
        direction: u8,
        offset: u64,
        (address, len): (u64, u64),
        compare: &[WordAt],
        write: &[WordAt],
    ) -> Result<Result<(), u64>, Errno> {
        // One too long to be said is too long for the kernel as well.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let operation =
            RegionOperation { direction, address, offset, len, ..self.operation(compare, write) };
        finish_or_found(&operation)
    }

    /// Between the ring and program memory that may not be there.
    #[inline(always)]
    pub fn transfer(&self, transfer: &Transfer) -> Result<(), Missed> {
        let [which, piece, words] = transfer.step(self).to_words();
        let Transfer { address, moves, beside, .. } = *transfer;
        let (from, beside) = (moves.value, beside.value);
        missed(user::native(number::RegionStep, [which, address, piece, words, from, beside]))
    }

    /// The same, if the word beside is where this one would come to; sleeps while both are the
    /// same and somebody is attached in role `peer`, then tries again.
    #[inline(always)]
    pub fn transfer_or_wait(
        &self,
        transfer: &Transfer,
        peer: u16,
        Interrupts { posted, events }: Interrupts,
    ) -> Result<(), Missed> {
        let step = Step { peer: peer as u8, events: events as u16, ..transfer.step(self) };
        let [which, piece, words] = step.to_words();
        let Transfer { address, moves: WordAt { value: from, .. }, .. } = *transfer;
        let words = [which, address, piece, words, from, posted];
        missed(user::native(number::RegionStepOrWait, words))
    }

    /// If the compares hold, copies in, then writes the words.
    pub fn copy_in(
        &self,
        offset: u64,
        from: &[u8],
        compare: &[WordAt],
        write: &[WordAt],
    ) -> Result<Done, Errno> {
        let mut operation = self.operation(compare, write);
        if !from.is_empty() {
            operation.direction = COPY_IN;
            operation.address = from.as_ptr() as u64;
            operation.offset = offset;
            operation.len = from.len() as u32;
        }
        finish(&operation)
    }

    /// The first two words: head and tail of a ring, offset and flags of a description.
    pub fn pair(&self) -> Result<(u64, u64), Errno> {
        let mut bytes = [0; 16];
        self.copy_out(0, &mut bytes, &[], &[])?;
        let (mut first, mut second) = ([0; 8], [0; 8]);
        first.copy_from_slice(&bytes[..8]);
        second.copy_from_slice(&bytes[8..]);
        Ok((u64::from_le_bytes(first), u64::from_le_bytes(second)))
    }

    /// Attaches this domain.
    pub fn attach(&self) -> Result<(), Errno> {
        match call::region_attach(call::OWN, self.id, self.role, DomainId::NONE) {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(from_kernel(error)),
        }
    }

    /// Gives one attachment back. The region may be gone already: then there is nothing to give.
    pub fn detach(&self) {
        let _ = call::region_detach(self.id, self.role);
    }
}

/// Makes a region of so many bytes, not attached to yet.
pub fn make_for(bytes: usize) -> Result<RegionId, Errno> {
    let small = bytes <= abi::limits::REGION_INLINE_BYTES;
    make(if small { 0 } else { bytes.div_ceil(4096) })
}

/// Makes a region of `frames` frames (0: 64 bytes), not attached to yet. The user's name guards it:
/// servers attach, who may for all users, and the user's processes, who may look; those not at
/// what a process makes that is closed to them (`identity`).
pub fn make(frames: usize) -> Result<RegionId, Errno> {
    let any = [u32::MAX; abi::limits::REGION_FRAMES];
    let (process, frames) = (thread::process(), &any[..frames.min(any.len())]);
    made(match process.closed {
        true => call::closed_region_alloc(frames, 0),
        false => call::region_alloc(identity::guard_slot(process), frames),
    })
}

/// The same, a fifo (`abi::region::FIFO`), as large as they are.
pub fn make_fifo() -> Result<RegionId, Errno> {
    let any = [u32::MAX; abi::limits::REGION_FRAMES];
    let process = thread::process();
    made(match process.closed {
        true => call::closed_region_alloc(&any, FIFO),
        false => call::fifo_alloc(identity::guard_slot(process), &any),
    })
}

fn made(answer: Result<RegionId, (Error, u64)>) -> Result<RegionId, Errno> {
    match answer {
        Ok(id) => Ok(id),
        Err((Error::Exhausted | Error::OverQuota, _)) => Err(Errno::ENFILE),
        Err((error, _)) => Err(from_kernel(error)),
    }
}

/// The region's published record.
pub fn record(id: RegionId) -> Option<RegionRecord> {
    published::record::<RegionRecord>(Table::Regions, id.index()).filter(|record| record.id == id.0)
}

/// Where the operations ever done on it are counted.
pub fn operations_word(id: RegionId) -> Option<Word> {
    Word::of_region(id, offset_of!(RegionRecord, operations))
}

/// Where those attached in `role` are counted.
pub fn attached_word(id: RegionId, role: u16) -> Option<Word> {
    Word::of_region(id, offset_of!(RegionRecord, attached) + 8 * usize::from(role))
}

/// Operations ever done on it.
pub fn operations(id: RegionId) -> u64 {
    published::region_word(id, offset_of!(RegionRecord, operations))
}

/// Domains attached in `role`.
#[inline(always)]
pub fn attached(id: RegionId, role: u16) -> u64 {
    published::region_word(id, offset_of!(RegionRecord, attached) + 8 * usize::from(role))
}

/// Where that count is published, for predicates.
pub fn attached_address(id: RegionId, role: u16) -> u64 {
    let offset = core::mem::offset_of!(RegionRecord, attached) as u64;
    published::record_address(Table::Regions, id.index()) + offset + 8 * u64::from(role)
}
