//! Roles that use a region made by somebody else, with as much right as they were given.

use super::SPOT;
use super::holder::SLOT;
use crate::faults;
use abi::error::Error;
use abi::id::{DomainId, RegionId};
use abi::memory::{NO_EXECUTE, Operation};
use abi::region::{COPY_IN, COPY_OUT, RegionOperation};
use xok::call::{self, OWN, Refused};
use xok::memory::{Space, item};

/// May read the region in its first word by slot 5, and tries all else. Its second word is one of
/// the region's frames, its third what byte 4,093 holds.
pub const READ_A_REGION: u64 = 23;
/// The report when all was as it should be; another one says where it was not.
pub const READER_CONTENT: u64 = 0x600d;

/// Bytes of a region, in a role.
pub struct RegionBytes {
    /// The region.
    pub region: RegionId,
    /// The role used.
    pub role: u8,
}

impl RegionBytes {
    fn plain(&self, offset: u64, address: u64, len: usize) -> RegionOperation {
        let (region, role) = (self.region.0, self.role);
        RegionOperation { region, role, offset, address, len: len as u32, ..Default::default() }
    }

    /// Copies bytes in.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u64, Refused> {
        let plain = self.plain(offset, bytes.as_ptr() as u64, bytes.len());
        call::region_operate(&RegionOperation { direction: COPY_IN, ..plain })
    }

    /// Copies bytes out.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<u64, Refused> {
        let plain = self.plain(offset, bytes.as_mut_ptr() as u64, bytes.len());
        call::region_operate(&RegionOperation { direction: COPY_OUT, ..plain })
    }
}

fn not_permitted<T>(answer: Result<T, Refused>) -> bool {
    matches!(answer, Err((Error::NotPermitted, _)))
}

pub fn read_a_region(region: RegionId, frame: u32, byte: u8) -> u64 {
    let attach = |slot, role| call::region_attach(slot, region, role, DomainId::NONE);
    let reader = RegionBytes { region, role: 2 };
    let mut found = [0];
    if !not_permitted(reader.read(4093, &mut found)) {
        return 1;
    }
    // By one's own name, which the guard is not below; for writing, which the right is not for.
    if !(0..4).all(|role| not_permitted(attach(OWN, role))) {
        return 2;
    }
    if !(0..2).all(|role| not_permitted(attach(SLOT, role))) {
        return 3;
    }
    if attach(SLOT, 2).is_err() || reader.read(4093, &mut found).is_err() || found != [byte] {
        return 4;
    }
    let writes = |role| RegionBytes { region, role }.write(4093, &[!byte]);
    if !(0..4).all(|role| not_permitted(writes(role))) {
        return 5;
    }
    let words = RegionOperation { region: region.0, role: 2, writes: 1, ..Default::default() };
    if !not_permitted(call::region_operate(&words)) {
        return 6;
    }
    if Space::own().tables_to(SPOT, 1).is_err() {
        return 7;
    }
    let map = item(Operation::Map, 1, SPOT, frame, NO_EXECUTE);
    if call::table_update(SLOT, DomainId::NONE, &[map]).is_ok() || faults::load(SPOT).is_some() {
        return 8;
    }
    if reader.read(4093, &mut found).is_err() || found != [byte] {
        return 9;
    }
    if call::region_detach(region, 2).is_err() || !not_permitted(reader.read(4093, &mut found)) {
        return 10;
    }
    READER_CONTENT
}
