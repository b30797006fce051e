//! Memory types: one for each frame, so that no two entries that map it differ (decisions 8, 0033).
//!
//! The type is asked for by who is alone with a frame, at its only entry; whoever maps it later
//! gets the type with it. A frame that is given back is write-back again.

use super::{Lost, Plan, Request, malformed};
use crate::alone;
use crate::answer::Refusal;
use crate::chain::Place;
use crate::frame;
use crate::machine::Machine;
use crate::state::State;
use crate::table::target;
use abi::capability::WRITE;
use abi::error::Error;
use abi::id::Frame;
use abi::memory::{ACCESSED, DIRTY, PRESENT, TYPE, TYPE_SHIFT, WRITE_THROUGH};
use abi::published::{FEATURE_SELF_SNOOP, FrameType};

/// The bits of each entry that maps this frame.
#[inline(always)]
pub(crate) fn of(state: &State, frame: Frame) -> u64 {
    u64::from(state.published.frames[frame.0 as usize].memory_type) << TYPE_SHIFT
}

/// The entry at `place`, with another type: its frame's, if nobody else refers to that.
pub(super) fn check<M: Machine>(
    state: &State,
    machine: &M,
    request: &Request,
    place: Place,
) -> Result<Plan, Refusal> {
    let bits = request.item.value;
    if ![0, WRITE_THROUGH, TYPE].contains(&bits) {
        return Err(malformed());
    }
    if state.published.directory.features & FEATURE_SELF_SNOOP == 0 {
        return Err(Error::NotPresent.into());
    }
    let entry = machine.entry(place.table, place.index);
    if entry & PRESENT == 0 {
        return Err(Error::BadAddress.into());
    }
    let frame = target(entry);
    if frame::kind(state, frame) != Some(FrameType::Data) {
        return Err(Error::WrongType.into());
    }
    let may = request.capability.dominates(frame::guard(state, frame), WRITE);
    if !may || frame::is_leaving(state, frame) {
        return Err(Error::NotPermitted.into());
    }
    if !alone::is(state, frame) {
        return Err(Error::Taken.into());
    }
    Ok(Plan::Type { place, entry: entry & !TYPE | bits })
}

/// Stores the entry. What caches have of the frame is written back when the processor finds it
/// there, as it does for the kernel's own view.
pub(super) fn change<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    lost: &mut Lost,
    place: Place,
    entry: u64,
) -> u64 {
    let bits = entry & TYPE;
    state.published.frames[target(entry).0 as usize].memory_type = (bits >> TYPE_SHIFT) as u8;
    let old = machine.entry_swap(place.table, place.index, entry);
    // What another processor has set since the entry was read.
    machine.word_or(place.table.address() + 8 * place.index as u64, old & (ACCESSED | DIRTY));
    if (old ^ entry) & TYPE != 0 {
        lost.add(request.item.address);
    }
    old
}
