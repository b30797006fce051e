//! Fifos: regions into which one role puts bytes, and from which another one takes them (pipe(7)).
//!
//! ```text
//!  0 head: bytes ever put in   8 tail: bytes ever taken   16 words of the users' own
//!  4096 data, 2^n pages, used as a ring: byte `p` of all time lies at 4096 + p % (its size)
//! ```
//! Role 0 puts in, role 1 takes out, by steps ([`crate::step`]) alone, which wrap around at the
//! end. A step of role 0 moves the head over the bytes that it has stored, and fills no more than
//! what is free; one of role 1 moves the tail over the bytes that it has read, up to the head. So
//! what is in a fifo is read by those that take, once, and changed by none; and bytes that were
//! taken come back to none. Operations reach the words of the first page: those of role 0 and 1
//! write all of them but head and tail. Roles 2 and 3 read everything, as in any region.

use crate::answer::Refusal;
use abi::error::Error;
use abi::layout::PAGE_SIZE;
use abi::limits::REGION_FRAMES;
use abi::region::{FIFO_HEAD, FIFO_TAIL, STEP_IN, Step, role_writes};

/// Bytes of data of a fifo; 0: the region is none.
pub(crate) type Capacity = u32;

/// The capacity of a fifo of so many pages.
pub(crate) fn capacity(pages: u64) -> Result<Capacity, Refusal> {
    let data = pages.wrapping_sub(1);
    if pages > REGION_FRAMES as u64 || !data.is_power_of_two() {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    Ok((data * PAGE_SIZE) as Capacity)
}

/// Is this a step that the role may make? `sleeps`: it waits for the word beside the one it moves.
#[inline]
pub(crate) fn allows(step: &Step, sleeps: bool) -> bool {
    let (puts, other) = match step.moves {
        FIFO_HEAD => (true, FIFO_TAIL),
        FIFO_TAIL => (false, FIFO_HEAD),
        _ => return false,
    };
    puts == (step.flags & STEP_IN != 0)
        && step.role == u8::from(!puts)
        && u64::from(step.beside) < PAGE_SIZE / 8
        && (!sleeps || step.beside == other)
}

/// Do the bytes of a step from `from` on begin at `offset`?
#[inline(always)]
pub(crate) fn lies(capacity: Capacity, offset: u64, from: u64) -> bool {
    offset == PAGE_SIZE + (from & u64::from(capacity - 1))
}

/// May bytes be put in up to `end`, where the tail is `tail`?
#[inline(always)]
pub(crate) fn has_room(capacity: Capacity, end: u64, tail: u64) -> bool {
    end.wrapping_sub(tail) <= capacity.into()
}

/// Are there bytes up to `end`, where the head is `head`?
#[inline(always)]
pub(crate) fn is_there(capacity: Capacity, end: u64, head: u64) -> bool {
    head.wrapping_sub(end) <= capacity.into()
}

/// May an operation in this role name the word at `offset`, and write it?
#[inline]
pub(crate) fn allows_word(role: u8, offset: u64, writes: bool) -> bool {
    let counter = offset < 8 * (u64::from(FIFO_TAIL) + 1);
    !role_writes(role) || offset < PAGE_SIZE && !(writes && counter)
}

/// May an operation in this role copy these bytes?
#[inline]
pub(crate) fn allows_copy(role: u8, into: bool, (offset, len): (u64, u64)) -> bool {
    !role_writes(role) || !into && offset + len <= PAGE_SIZE
}
