//! Frames with one reference left: their holder's alone once all processors forgot the others.
//!
//! A program that gives a frame up may run on other processors. They are asked to forget the frame
//! after the lock is released: until they have, they read it, or walk it as a table. So the last
//! holder may write a frame, thaw a table or change a memory type only when the ticket is back
//! with which the last reference but one went: the ticket for which the frame would have waited in
//! limbo, had it been the last reference.
//!
//! ```text
//!            another's reference goes              ticket back
//!   shared ─────────────────────────► one left ──────────────► alone: may be written, thawed
//! ```

use crate::frame::Frames;
use crate::state::State;
use abi::id::Frame;
use abi::published::FrameType;

/// Notes that one reference to the frame of this kind is left, in this hold of the lock.
#[inline(always)]
pub(crate) fn note(state: &mut State, frame: Frame, kind: u8) {
    let Frames { records, ticket, alone, .. } = &mut state.frames;
    let record = &mut records[frame.0 as usize];
    // `next` of a frame that is being revoked links a list; revoking holds one more reference.
    let is_in_no_list = kind == FrameType::Data as u8 || kind == FrameType::Table1 as u8;
    if is_in_no_list && !record.revoking {
        record.set_next(*ticket as u32);
        *alone = *ticket;
    }
}

/// Ends a hold of the lock's collection without a ticket: no processor has anything to forget, and
/// nothing is in limbo. What it left with one reference is alone once earlier tickets are back.
#[inline(always)]
pub fn no_ticket(state: &mut State) {
    let Frames { ticket, alone, .. } = &mut state.frames;
    *ticket += u64::from(alone == ticket || state.revoked == *ticket);
}

/// Are this ticket and all before it back?
pub(crate) fn is_back(state: &State, ticket: u64) -> bool {
    ticket < oldest(&state.frames)
}

/// The first ticket that is not back, or the one of this hold of the lock.
fn oldest(frames: &Frames) -> u64 {
    frames.open.iter().copied().filter(|&slot| slot != 0).min().unwrap_or(frames.ticket)
}

/// Is there one reference to the frame (data, or a table of level 1), and has every processor
/// forgotten what the others led to?
pub(crate) fn is(state: &State, frame: Frame) -> bool {
    if state.published.frames[frame.0 as usize].references != 1 {
        return false;
    }
    let Frames { ticket, ref records, .. } = state.frames;
    // The record has the low half of a ticket, and 0 before any reference has gone. Once in 2^32
    // tickets an old one looks open, for as long as the one of now is: the holder has to wait.
    let since = (ticket as u32).wrapping_sub(records[frame.0 as usize].next());
    u64::from(since) > ticket - oldest(&state.frames)
}
