//! Breaking everybody's entries for a frame (decisions 2: only `revoke` does).

use crate::answer::Refusal;
use crate::index::{AccountIndex, EnvIndex};
use crate::machine::{Flush, Machine};
use crate::net::ring;
use crate::state::State;
use crate::table::target;
use crate::work::{self, cost};
use crate::{chain, fold, frame, left, lent, predicate};
use abi::capability::{CONTROL, Capability};
use abi::error::Error;
use abi::id::Frame;
use abi::limits::Resource;
use abi::published::FrameType;

/// May the holder of `capability` revoke `frame`?
pub fn check(state: &State, capability: &Capability, frame: Frame) -> Result<(), Refusal> {
    let named = frame::named(state, frame.0);
    match frame::kind(state, named).filter(|_| named == frame) {
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
    if capability.dominates(frame::guard(state, frame), CONTROL) {
        Ok(())
    } else {
        Err(Error::NotPermitted.into())
    }
}

/// Puts a frame on the list of those being revoked for an account: from now on nobody can bind it
/// anew, and [`work`] breaks what binds it, whether or not whoever asked for it lives on. The list
/// refers to it, so that it stays what it is meanwhile.
pub fn begin(state: &mut State, frame: Frame, account: AccountIndex) {
    let record = &mut state.frames.records[frame.0 as usize];
    if !core::mem::replace(&mut record.revoking, true) {
        let account = left::worker(account);
        record.position = 0;
        let first = &mut state.accounts.records[account].left.revoking;
        record.set_next(core::mem::replace(first, frame.0));
        frame::reference(state, frame);
        left::mark(state, account);
    }
}

/// Is the frame being revoked?
pub fn under_way(state: &State, frame: Frame) -> bool {
    state.frames.records.get(frame.0 as usize).is_some_and(|record| record.revoking)
}

/// Breaks what binds the frames on an account's list while this hold of the lock has room; is there
/// more?
pub fn work<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    let account = left::worker(account);
    while state.accounts.records[account].left.revoking != 0 {
        let frame = Frame(state.accounts.records[account].left.revoking);
        if !(break_entries(state, machine, frame) && break_others(state, machine, frame)) {
            return true;
        }
        let record = &mut state.frames.records[frame.0 as usize];
        record.revoking = false;
        state.accounts.records[account].left.revoking = record.next();
        record.set_next(0);
        frame::release(state, frame);
    }
    false
}

/// An entry's value becomes 0 whatever table it is in, frozen ones too; as nothing says who walks
/// that table, everybody flushes.
fn break_entries<M: Machine>(state: &mut State, machine: &mut M, frame: Frame) -> bool {
    let mut broken = false;
    let mut left = chain::first(state, frame);
    while let Some(place) = left.filter(|_| work::room(state, cost::ENTRY)) {
        if fold::is_folded(state, place.table) {
            if !work::room(state, cost::UNFOLD + cost::ENTRY) {
                break;
            }
            work::spend(state, cost::UNFOLD);
            fold::unfold(state, machine, place.table);
        }
        work::spend(state, cost::ENTRY);
        let old = machine.entry_swap(place.table, place.index, 0);
        debug_assert_eq!(target(old), frame);
        chain::remove(state, machine, place, frame);
        frame::release(state, frame);
        broken = true;
        left = chain::first(state, frame);
    }
    if broken {
        machine.flush(Flush::Everything);
    }
    left.is_none()
}

/// Breaks what is no entry: predicates that read the frame count as true, rings drop what would go
/// there, what was lent to the kernel is not used any more ([`lent`]). A packet in a device's queue
/// keeps its frame until the device has sent it.
fn break_others<M: Machine>(state: &mut State, machine: &mut M, frame: Frame) -> bool {
    let (envs, rings) = (state.envs.slots.len(), state.net.rings.len());
    // A look at everybody is long, and most frames have no reference left but the list's.
    while state.published.frames[frame.0 as usize].references > 1 {
        let at = usize::from(state.frames.records[frame.0 as usize].position);
        if at >= envs + rings {
            break;
        }
        if at < envs && !state.envs.used().contains(&at.max(1)) {
            state.frames.records[frame.0 as usize].position = envs as u16;
            continue;
        }
        if !work::room(state, cost::HOLDER) {
            return false;
        }
        if at < envs {
            let index = EnvIndex::new(at);
            predicate::revoke(state, machine, index, frame);
            if !lent::revoke(state, machine, index, frame) {
                return false;
            }
        } else {
            ring::revoke(state, at - envs, frame);
        }
        state.frames.records[frame.0 as usize].position += 1;
    }
    true
}

/// Revokes the next frames that a dying account pays for, whoever maps them, while this hold of the
/// lock has room; is there more?
pub fn sweep<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    let count = state.published.frames.len() as u32;
    while !work(state, machine, account) {
        let left = state.accounts.records[account].left.frames;
        let pays = state.published.accounts[account].used[Resource::Frames as usize] != 0;
        if left == 0 || !pays {
            state.accounts.records[account].left.frames = 0;
            return false;
        }
        let number = count - left;
        if !work::room(state, cost::RECORD) {
            return true;
        }
        work::spend(state, cost::RECORD);
        state.accounts.records[account].left.frames -= 1;
        let record = &state.published.frames[number as usize];
        let data = frame::kind_of(record.kind) == FrameType::Data;
        if data && AccountIndex::from(record.account) == account {
            begin(state, Frame(number), account);
        }
    }
    true
}
