//! Region operations in the few shapes that the server needs.

use abi::error::Error;
use abi::id::RegionId;
use abi::predicate::{Atom, Operator, Source};
use abi::published::{RegionRecord, Table};
use abi::region::{
    COPY_IN, COPY_NONE, COPY_OUT, FIFO_HEAD, FIFO_TAIL, NO_PEER, RegionOperation, Step, WordAt,
};
use unix::ring::{HEAD, Ring, TAIL};
use xok::call::{self, Refused};
use xok::published;

/// One of the terminal's regions and the role in which this server is attached to it.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its id.
    pub id: RegionId,
    /// The role.
    pub role: u16,
}

impl Region {
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

    /// Is it there, and a domain attached to it in this role?
    pub fn has(&self, role: u16) -> bool {
        let record: Option<RegionRecord> = published::record(Table::Regions, self.id.index());
        let id = self.id.0;
        record.is_some_and(|record| record.id == id && record.attached[usize::from(role)] != 0)
    }

    /// What ends a sleep when the last domain has gone that was attached in this role.
    pub fn left_by(&self, role: u16) -> Atom {
        let attached = published::record_address(Table::Regions, self.id.index())
            + core::mem::offset_of!(RegionRecord, attached) as u64
            + 8 * u64::from(role);
        Atom {
            operator: Operator::Equal as u8,
            left: Source::Memory as u8,
            last: 1,
            left_value: attached,
            ..Atom::default()
        }
    }

    /// Copies from the region.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Refused> {
        let mut operation = self.operation(&[], &[]);
        operation.direction = COPY_OUT;
        operation.address = into.as_mut_ptr() as u64;
        operation.offset = offset;
        operation.len = into.len() as u32;
        call::region_operate(&operation).map(|_| ())
    }

    /// Copies to the region, then writes words, if the compares hold.
    pub fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        compare: &[WordAt],
        write: &[WordAt],
    ) -> Result<(), Refused> {
        let mut operation = self.operation(compare, write);
        if !bytes.is_empty() {
            operation.direction = COPY_IN;
            operation.address = bytes.as_ptr() as u64;
            operation.offset = offset;
            operation.len = bytes.len() as u32;
        }
        call::region_operate(&operation).map(|_| ())
    }

    /// Takes what lies from `offset` on, behind the tail, out of a fifo.
    pub fn take(&self, (tail, offset): (u64, u64), into: &mut [u8]) -> Result<(), Refused> {
        let step = Step {
            region: self.id.0,
            role: self.role as u8,
            peer: NO_PEER,
            len: into.len() as u32,
            offset: offset as u32,
            moves: FIFO_TAIL,
            beside: FIFO_HEAD,
            ..Step::NONE
        };
        call::region_step(&step, into.as_mut_ptr() as u64, tail, 0).map(|_| ())
    }

    /// Empties a ring whose counters cannot be, because a program stored nonsense there: its users
    /// begin anew. Something was to be done, also if the counters are others already.
    pub fn empty(&self, head: u64, tail: u64) -> Result<bool, Refused> {
        let word = |offset, value| WordAt { offset, value };
        let compare = [word(HEAD, head), word(TAIL, tail)];
        let begin = Ring::begin_again(tail);
        match self.write(0, &[], &compare, &[word(HEAD, begin), word(TAIL, begin)]) {
            Ok(()) | Err((Error::Changed, _)) => Ok(true),
            Err(refused) => Err(refused),
        }
    }

    /// The two counters of a ring: head and tail.
    pub fn counters(&self) -> Result<(u64, u64), Refused> {
        let mut bytes = [0; 16];
        self.read(0, &mut bytes)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Ok((word(0), word(8)))
    }
}
