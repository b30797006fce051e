//! Breaking everybody's entries for a frame (decisions 2: only `revoke` does).
//!
//! Whoever asks for it waits for the end and does the work, or does not wait: then few entries are
//! broken at once, and the frame goes from account to account of those that have the others. Each
//! breaks its own in its turns ([`crate::left`]), so who enters a frame seven million times delays
//! nobody when that is taken back. What else holds the frame is broken by the account that pays for
//! it, and the last entry, which is the oldest, goes behind all others: who made the frame sees in
//! its own table that it is over.
//!
//! ```text
//!  chain of entries   A A A A B B A ... A R
//!  revoked by         └─ A ─► └ B ► └─ A ─► payer: other holders, the last entry
//! ```

use crate::answer::Refusal;
use crate::frame::WANDERS;
use crate::index::{AccountIndex, EnvIndex};
use crate::machine::{Flush, Machine};
use crate::net::ring;
use crate::state::State;
use crate::table::target;
use crate::work::{self, cost};
use crate::{alone, chain, fold, frame, left, lent, predicate};
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

/// Has a frame revoked by an account: from now on nobody can bind it anew, and [`work`] breaks what
/// binds it, whether or not whoever asked for it lives on.
pub fn begin(state: &mut State, frame: Frame, account: AccountIndex) {
    if !under_way(state, frame) {
        mark(state, frame, false);
        queue(state, frame, left::worker(account));
    }
}

/// Has a frame revoked by those that map it, so that however many entries there are, whoever asks
/// for it does not wait: few are broken at once, the others by the accounts that pay for the tables
/// they are in, in their turns. Is anything left?
pub fn begin_later<M: Machine>(state: &mut State, machine: &mut M, frame: Frame) -> bool {
    if under_way(state, frame) {
        return true;
    }
    mark(state, frame, true);
    let next = match break_entries(state, machine, frame, Whose::Few) {
        Next::None if !is_held_otherwise(state, frame) => {
            break_entries(state, machine, frame, Whose::Last)
        }
        Next::None => Next::At(payer(state, frame)),
        next => next,
    };
    match next {
        Next::None => over(state, frame),
        Next::NoRoom => queue(state, frame, worker_of_first(state, frame)),
        Next::At(account) => queue(state, frame, account),
    }
    under_way(state, frame)
}

/// Nobody can bind the frame anew, which stays what it is until [`over`].
fn mark(state: &mut State, frame: Frame, wanders: bool) {
    let record = &mut state.frames.records[frame.0 as usize];
    (record.revoking, record.position) = (true, 0);
    record.marks |= if wanders { WANDERS } else { 0 };
    frame::reference(state, frame);
}

/// Nothing binds the frame any more.
fn over(state: &mut State, frame: Frame) {
    let record = &mut state.frames.records[frame.0 as usize];
    record.revoking = false;
    record.marks &= !WANDERS;
    frame::release(state, frame);
}

/// Puts a frame at the end of those that an account revokes: whoever gives it new ones without end
/// keeps none of them from being done.
fn queue(state: &mut State, frame: Frame, account: AccountIndex) {
    state.frames.records[frame.0 as usize].set_next(0);
    let left = &mut state.accounts.records[account].left;
    let last = core::mem::replace(&mut left.revoking_last, frame.0);
    if left.revoking == 0 {
        left.revoking = frame.0;
    } else {
        state.frames.records[last as usize].set_next(frame.0);
    }
    left::mark(state, account);
}

/// Takes the first frame off an account's list.
fn unqueue(state: &mut State, account: AccountIndex) {
    let left = &mut state.accounts.records[account].left;
    left.revoking = state.frames.records[left.revoking as usize].next();
}

/// The account that pays for a frame, or works off what is nobody's.
fn payer(state: &State, frame: Frame) -> AccountIndex {
    left::worker(state.published.frames[frame.0 as usize].account.into())
}

/// Who breaks the first of a frame's entries; without one, the account that pays for the frame.
fn worker_of_first(state: &State, frame: Frame) -> AccountIndex {
    payer(state, chain::first(state, frame).map_or(frame, |place| place.table))
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
        if !work::room(state, cost::LEAF) {
            return true;
        }
        work::spend(state, cost::LEAF);
        let frame = Frame(state.accounts.records[account].left.revoking);
        match go_on(state, machine, frame, account) {
            Next::NoRoom => return true,
            Next::None => {
                unqueue(state, account);
                over(state, frame);
            }
            Next::At(other) => {
                unqueue(state, account);
                queue(state, frame, other);
            }
        }
    }
    false
}

/// What of a revocation is left.
enum Next {
    /// Nothing.
    None,
    /// More than this hold of the lock has room for.
    NoRoom,
    /// Something that this account is to do.
    At(AccountIndex),
}

/// Which entries of a frame are broken.
#[derive(Clone, Copy)]
enum Whose {
    /// All.
    Everybodys,
    /// So many that nobody is delayed by them, but not the last one.
    Few,
    /// Those in tables that this account pays for, but not the last one.
    Of(AccountIndex),
    /// The last one.
    Last,
}

/// Goes on with a revocation in an account's time.
fn go_on<M: Machine>(
    state: &mut State,
    machine: &mut M,
    frame: Frame,
    account: AccountIndex,
) -> Next {
    if state.frames.records[frame.0 as usize].marks & WANDERS == 0 {
        return match break_entries(state, machine, frame, Whose::Everybodys) {
            Next::None if break_others(state, machine, frame) => Next::None,
            _ => Next::NoRoom,
        };
    }
    match break_entries(state, machine, frame, Whose::Of(account)) {
        Next::None => {}
        next => return next,
    }
    // Who looks at everybody is the account that pays for the frame.
    let payer = payer(state, frame);
    if account != payer {
        return Next::At(payer);
    }
    if break_others(state, machine, frame) {
        break_entries(state, machine, frame, Whose::Last)
    } else {
        Next::NoRoom
    }
}

/// Has anything but entries and the revocation itself a reference to the frame, of which one entry
/// is left at most?
fn is_held_otherwise(state: &State, frame: Frame) -> bool {
    let entries = u32::from(chain::first(state, frame).is_some());
    state.published.frames[frame.0 as usize].references > 1 + entries
}

/// Entries broken for whoever does not wait for the others. Few in tests, so that others are left.
const FEW: u32 = if cfg!(test) { 2 } else { 16 };

/// An entry's value becomes 0 whatever table it is in, frozen ones too; as nothing says who walks
/// that table, everybody flushes. The newest go first.
fn break_entries<M: Machine>(
    state: &mut State,
    machine: &mut M,
    frame: Frame,
    whose: Whose,
) -> Next {
    let mut broken = 0;
    let next = loop {
        let Some(place) = chain::first(state, frame) else { break Next::None };
        let is_last = || chain::next(state, machine, place).is_none();
        let others = match whose {
            Whose::Everybodys | Whose::Last => false,
            Whose::Few | Whose::Of(_) if is_last() => break Next::None,
            Whose::Few => broken == FEW,
            Whose::Of(account) => account != payer(state, place.table),
        };
        if others {
            break Next::At(payer(state, place.table));
        }
        if !work::room(state, cost::ENTRY) {
            break Next::NoRoom;
        }
        if fold::is_folded(state, place.table) {
            if !work::room(state, cost::UNFOLD + cost::ENTRY) || matches!(whose, Whose::Few) {
                break Next::NoRoom;
            }
            work::spend(state, cost::UNFOLD);
            fold::unfold(state, machine, place.table);
        }
        work::spend(state, cost::ENTRY);
        let old = machine.entry_swap(place.table, place.index, 0);
        debug_assert_eq!(target(old), frame);
        chain::remove(state, machine, place, frame);
        frame::release(state, frame);
        broken += 1;
    };
    if broken > 0 {
        machine.flush(Flush::Everything);
        state.revoked = state.frames.ticket;
    }
    next
}

/// May a processor remember an entry that a revocation has broken? Entries are broken in any space,
/// by any processor, and are seen to be gone before the others have been told.
#[inline(always)]
pub(crate) fn is_remembered(state: &mut State) -> bool {
    state.revoked != 0 && may_be_remembered(state)
}

#[cold]
#[inline(never)]
fn may_be_remembered(state: &mut State) -> bool {
    if alone::is_back(state, state.revoked) {
        state.revoked = 0;
    }
    state.revoked != 0
}

/// Has all processors forget what led to a frame before the caller goes on, whoever broke it: this
/// hold of the lock, an earlier one's revocation, a holder that gave it up.
pub(crate) fn have_forgotten<M: Machine>(state: &mut State, machine: &mut M) {
    let now = state.frames.ticket;
    if state.revoked != now && !alone::is_back(state, now - 1) {
        machine.flush(Flush::Everything);
    }
}

/// Breaks what is no entry: predicates that read the frame count as true, rings drop what would go
/// there, what was lent to the kernel is not used any more ([`lent`]). A packet in a device's queue
/// keeps its frame until the device has sent it.
fn break_others<M: Machine>(state: &mut State, machine: &mut M, frame: Frame) -> bool {
    let (envs, rings) = (state.envs.slots.len(), state.net.rings.len());
    // A look at everybody is long, and most frames are held by nobody.
    while is_held_otherwise(state, frame) {
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
