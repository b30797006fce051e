//! Software regions: reached by calls alone, byte by byte, by who holds the right to.

use super::roles::{self, region::RegionBytes};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::capability::{ALL, READ};
use abi::error::Error;
use abi::id::{DomainId, Frame, RegionId};
use abi::layout::PAGE_SIZE;
use abi::memory::{NO_EXECUTE, Operation};
use abi::published::{FrameRecord, FrameType, Table};
use abi::region::{COPY_IN, COPY_OUT, RegionOperation, WordAt};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space, item};
use xok::published;
use xok::spawn::Gift;

/// The judge's slot with all rights over the name of the test's own, and that name's last part.
const ALL_OF_IT: u8 = 4;
const BELOW: u16 = 7;
const BYTES: u64 = 2 * PAGE_SIZE;

fn refused(why: call::Refused) -> Failure {
    format!("{why:?}")
}

fn frames_of_regions() -> Vec<Frame> {
    let count = published::table(Table::Frames).count as usize;
    let is_one = |&number: &usize| {
        published::record::<FrameRecord>(Table::Frames, number)
            .is_some_and(|record| record.kind == FrameType::Region as u8)
    };
    (0..count).filter(is_one).map(|number| Frame(number as u32)).collect()
}

/// xok97 T19, thesis98 Z-55: no load reaches a region's frames, calls reach each byte of it and
/// none beyond, and only by the capability that its guard asks for.
pub fn by_call_alone(ground: &Ground) -> Result<String, Failure> {
    call::capability_derive(OWN, DomainId::NONE, ALL_OF_IT.into(), &[BELOW], ALL)
        .map_err(refused)?;
    let before = frames_of_regions();
    let region = call::region_alloc(ALL_OF_IT, &[u32::MAX; 2]).map_err(refused)?;
    call::region_attach(ALL_OF_IT, region, 0, DomainId::NONE).map_err(refused)?;
    let mut frames = frames_of_regions();
    frames.retain(|frame| !before.contains(frame));
    expect!(frames.len() == 2, "two frames, and {} are published", frames.len());
    no_load_reaches(&frames)?;
    let held = every_byte(region)?;
    nothing_beyond(region, &held)?;
    let gift =
        Gift { from: ALL_OF_IT, slot: roles::holder::SLOT.into(), extend: &[], rights: READ };
    let words = [region.0, frames[0].0.into(), held[4093].into(), 0, 0, 0];
    let reader = assistant::spawn(ground.image, roles::region::READ_A_REGION, words, &[gift])?;
    let word = assistant::finish(reader)?;
    expect!(word == roles::region::READER_CONTENT, "who may only read reports {word:#x}");
    call::region_detach(region, 0).map_err(refused)?;
    let ended = RegionBytes { region, role: 0 }.read(0, &mut [0; 1]);
    expect!(matches!(ended, Err((Error::NoSuchRegion, _))), "after its end: {ended:?}");
    call::capability_drop(ALL_OF_IT.into()).map_err(refused)?;
    Ok(String::new())
}

/// Not even their owner, who has every right, maps them.
fn no_load_reaches(frames: &[Frame]) -> Result<(), Failure> {
    Space::own().tables_to(SCRATCH, 1).map_err(refused)?;
    for frame in frames {
        for choice in [NO_EXECUTE, DATA] {
            let map = item(Operation::Map, 1, SCRATCH, frame.0, choice);
            let answer = call::table_update(ALL_OF_IT, DomainId::NONE, &[map]);
            expect!(matches!(answer, Err((Error::WrongType, _))), "mapped: {answer:?}");
        }
        let load = faults::load(SCRATCH);
        expect!(load.is_none(), "a load of {frame:?} gave {load:?}");
        expect!(!faults::store(SCRATCH, 1), "a store to {frame:?} was done");
        let taken = call::region_alloc(ALL_OF_IT, &[frame.0]);
        expect!(matches!(taken, Err((Error::Taken, _))), "made a region again: {taken:?}");
    }
    Ok(())
}

/// Pieces of all lengths at odd offsets, over the frames' border and up to the end; what is
/// beside them stays. Answers what the region holds.
fn every_byte(region: RegionId) -> Result<Vec<u8>, Failure> {
    let access = RegionBytes { region, role: 0 };
    let mut model = vec![0u8; BYTES as usize];
    let mut value = 0u8;
    for offset in [0, 1, 3, 7, 8, 2047, 4091, 4093, 4095, 4096, 4097, 8178, 8190, 8191] {
        for len in [1, 2, 3, 5, 8, 13, 4096] {
            if offset + len > BYTES as usize {
                continue;
            }
            let piece: Vec<u8> = (0..len).map(|at| value.wrapping_add((at * 3) as u8)).collect();
            value = value.wrapping_add(29);
            model[offset..offset + len].copy_from_slice(&piece);
            access.write(offset as u64, &piece).map_err(refused)?;
            let mut back = vec![0u8; len];
            access.read(offset as u64, &mut back).map_err(refused)?;
            expect!(back == piece, "{len} bytes at {offset} came back as others");
            holds(region, &model, &format!("after {len} bytes at {offset}"))?;
        }
    }
    Ok(model)
}

fn holds(region: RegionId, model: &[u8], when: &str) -> Result<(), Failure> {
    let mut all = vec![0u8; model.len()];
    RegionBytes { region, role: 0 }.read(0, &mut all).map_err(refused)?;
    let other = (0..model.len()).find(|&at| all[at] != model[at]);
    expect!(other.is_none(), "{when}: byte {other:?} is another one");
    Ok(())
}

/// What is not wholly inside is refused by its address, and changes nothing.
fn nothing_beyond(region: RegionId, model: &[u8]) -> Result<(), Failure> {
    let mut buffer = vec![0x5au8; 2 * BYTES as usize];
    let address = buffer.as_mut_ptr() as u64;
    let plain = RegionOperation { region: region.0, address, ..RegionOperation::default() };
    let outside =
        [(BYTES, 1), (BYTES - 1, 2), (0, BYTES + 1), (u64::MAX, 1), (u64::MAX - 3, 8), (1, BYTES)];
    for (offset, len) in outside {
        for direction in [COPY_IN, COPY_OUT] {
            let len = len as u32;
            let answer = call::region_operate(&RegionOperation { direction, offset, len, ..plain });
            let bad = matches!(answer, Err((Error::BadAddress, _)));
            expect!(bad, "{len} bytes at {offset:#x}, direction {direction}: {answer:?}");
        }
    }
    let endless = RegionOperation { direction: COPY_IN, offset: 1, len: u32::MAX, ..plain };
    let answer = call::region_operate(&endless);
    expect!(matches!(answer, Err((Error::TooLarge, _))), "an endless copy: {answer:?}");
    for offset in [BYTES - 7, BYTES, u64::MAX - 7] {
        let word = WordAt { offset, value: 0 };
        let mut operation = RegionOperation { writes: 1, ..plain };
        operation.write[0] = word;
        let write = call::region_operate(&operation);
        let mut operation = RegionOperation { compares: 1, ..plain };
        operation.compare[0] = word;
        let compare = call::region_operate(&operation);
        for answer in [write, compare] {
            let bad = matches!(answer, Err((Error::BadAddress, _)));
            expect!(bad, "a word at {offset:#x}: {answer:?}");
        }
    }
    let untouched = buffer.iter().all(|&byte| byte == 0x5a);
    expect!(untouched, "a refused operation wrote to its caller");
    holds(region, model, "after operations that were refused")
}
