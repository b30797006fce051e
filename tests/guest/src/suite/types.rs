//! Memory types: a frame has one, and every entry that maps it shows it.

use super::large;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::memory::{NO_EXECUTE, TYPE, TYPE_SHIFT, WRITE_THROUGH};
use abi::published::{FEATURE_SELF_SNOOP, FrameRecord, Table};
use alloc::format;
use alloc::string::String;
use xok::call::{OWN, Refused};
use xok::memory::{DATA, Space};
use xok::published;

const OTHER: u64 = SCRATCH + PAGE_SIZE;

fn said(refused: Refused) -> Failure {
    format!("{refused:?}")
}

fn bits(address: u64) -> Option<u64> {
    xok::own::leaf(address).map(|entry| entry & TYPE)
}

fn published_type(frame: Frame) -> u64 {
    let record = published::record::<FrameRecord>(Table::Frames, frame.0 as usize);
    u64::from(record.map_or(u8::MAX, |record| record.memory_type)) << TYPE_SHIFT
}

/// aegis95 S38 (caching on and off by page), decisions 8: the type is the frame's, so no two
/// entries differ; who is not alone with it is refused; the next holder has plain memory.
pub fn memory_type_is_the_frames(_: &Ground) -> Result<String, Failure> {
    let snoops = published::directory().features & FEATURE_SELF_SNOOP != 0;
    let mut own = Space::own();
    own.allocate_zeroed(SCRATCH, 1, DATA).map_err(said)?;
    let frame = xok::own::frame(SCRATCH).ok_or("the page is not there")?;
    let first = own.set_type(SCRATCH, TYPE);
    if !snoops {
        expect!(matches!(first, Err((Error::NotPresent, _))), "not here: {first:?}");
        own.unmap(SCRATCH, 1).map_err(said)?;
        return Ok("(the processor does not snoop itself)".into());
    }
    first.map_err(said)?;
    for memory_type in [TYPE, WRITE_THROUGH, 0, TYPE] {
        own.set_type(SCRATCH, memory_type).map_err(said)?;
        expect!(bits(SCRATCH) == Some(memory_type), "{:?} is the entry's", bits(SCRATCH));
        expect!(published_type(frame) == memory_type, "the record has another type");
        faults::store(SCRATCH, 7);
        expect!(faults::load(SCRATCH) == Some(7), "memory of type {memory_type:#x}");
    }
    own.map(OTHER, frame, 1, NO_EXECUTE).map_err(said)?;
    expect!(bits(OTHER) == Some(TYPE), "a second entry has {:?}", bits(OTHER));
    let refused = own.set_type(SCRATCH, 0);
    expect!(matches!(refused, Err((Error::Taken, _))), "two entries: {refused:?}");
    expect!([SCRATCH, OTHER].map(bits) == [Some(TYPE); 2], "refused, and changed");
    let malformed = own.set_type(OTHER, 1);
    expect!(matches!(malformed, Err((Error::BadArgument, _))), "no type: {malformed:?}");
    own.unmap(SCRATCH, 2).map_err(said)?;
    // Limbo is left behind with the next hold of the lock.
    Space::of(abi::id::DomainId::NONE, OWN).allocate(SCRATCH, 1, DATA).map_err(said)?;
    let again = xok::own::frame(SCRATCH).map(published_type);
    expect!(again == Some(0) && bits(SCRATCH) == Some(0), "the next holder has {again:?}");
    own.unmap(SCRATCH, 1).map_err(said)?;
    // Nor do the pages of a large one differ.
    large::mapped()?;
    own.set_type(large::AREA + 5 * PAGE_SIZE, TYPE).map_err(said)?;
    let mixed = own.fold(large::AREA);
    expect!(mixed == Err((Error::Changed, 5 << 32)), "a fold of two types: {mixed:?}");
    for page in 0..512 {
        own.set_type(large::AREA + page * PAGE_SIZE, WRITE_THROUGH).map_err(said)?;
    }
    own.fold(large::AREA).map_err(said)?;
    let folded = xok::own::entry(large::AREA, 2).map(|entry| entry & TYPE);
    expect!(folded == Ok(WRITE_THROUGH), "the large entry has {folded:?}");
    // One page of it changes its type: it comes apart.
    own.set_type(large::AREA + 9 * PAGE_SIZE, 0).map_err(said)?;
    let found = [8, 9, 10].map(|page| bits(large::AREA + page * PAGE_SIZE));
    let expected = [Some(WRITE_THROUGH), Some(0), Some(WRITE_THROUGH)];
    expect!(found == expected && !xok::own::is_folded(large::AREA), "apart: {found:?}");
    large::given_back()?;
    Ok(String::new())
}
