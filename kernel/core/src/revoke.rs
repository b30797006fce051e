//! Breaking everybody's entries for a frame (decisions 2: only `revoke` does).

use crate::answer::Refusal;
use crate::machine::{Flush, Machine};
use crate::net::ring;
use crate::state::State;
use crate::table::target;
use crate::work::{self, cost};
use crate::{chain, frame, predicate};
use abi::capability::{Capability, WRITE};
use abi::error::Error;
use abi::id::Frame;
use abi::published::FrameType;

/// May the holder of `capability` revoke `frame`?
pub fn check(state: &State, capability: &Capability, frame: Frame) -> Result<(), Refusal> {
    match frame::kind(state, frame) {
        Some(FrameType::Data) => {}
        None
        | Some(
            FrameType::Free
            | FrameType::Limbo
            | FrameType::Absent
            | FrameType::Kernel
            | FrameType::Image,
        ) => return Err(Error::NoSuchFrame.into()),
        Some(_) => return Err(Error::WrongType.into()),
    }
    if capability.dominates(frame::guard(state, frame), WRITE) {
        Ok(())
    } else {
        Err(Error::NotPermitted.into())
    }
}

/// Breaks what is no entry: predicates that read the frame count as true, rings drop what would go
/// there. A packet in a device's queue keeps its frame until the device has sent it.
pub fn begin<M: Machine>(state: &mut State, machine: &mut M, frame: Frame) {
    predicate::revoke(state, machine, frame);
    // A look at every ring is long, and few frames are pinned.
    if state.published.frames[frame.0 as usize].pins != 0 {
        ring::revoke(state, frame);
    }
}

/// Breaks entries while this hold of the lock has room; are there more? Meanwhile nobody can bind
/// the frame anew. An entry's value becomes 0 whatever table it is in, frozen ones too; as nothing
/// says who walks that table, everybody flushes. With the last reference the frame is gone.
pub fn step<M: Machine>(state: &mut State, machine: &mut M, frame: Frame) -> bool {
    let mut broken = false;
    while work::room(state, cost::ENTRY) {
        let Some(place) = chain::first(state, frame) else { break };
        work::spend(state, cost::ENTRY);
        let old = machine.entry_swap(place.table, place.index, 0);
        debug_assert_eq!(target(old), frame);
        chain::remove(state, machine, place, frame);
        frame::release(state, frame);
        broken = true;
    }
    if broken {
        machine.flush(Flush::Everything);
    }
    let more = chain::first(state, frame).is_some();
    if frame::kind(state, frame) == Some(FrameType::Data) {
        state.frames.records[frame.0 as usize].revoking = more;
    }
    more
}

/// Revokes the next frames that dying accounts pay for, whoever maps them, while this hold of the
/// lock has room; is there more?
pub fn sweep<M: Machine>(state: &mut State, machine: &mut M) -> bool {
    let count = state.published.frames.len() as u32;
    while work::room(state, cost::LOOK) {
        let number = state.accounts.sweep;
        if number >= count {
            return false;
        }
        work::spend(state, cost::LOOK);
        let record = &state.published.frames[number as usize];
        let data = frame::kind_of(record.kind) == FrameType::Data;
        if data && state.accounts.records[usize::from(record.account)].dying {
            begin(state, machine, Frame(number));
            if step(state, machine, Frame(number)) {
                return true;
            }
        }
        state.accounts.sweep += 1;
    }
    true
}
