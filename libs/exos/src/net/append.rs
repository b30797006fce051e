//! Puts bytes into a ring of a plain region, also around its end.
//!
//! A piece that reaches the ring's end goes in by two operations: the first fills the end and
//! claims the ring, the second fills the beginning and moves the head, if both head and claim are
//! still its own; else it starts again. Nothing ever waits for a claim.

use abi::id::RegionId;
use abi::region::WordAt;
use core::sync::atomic::{AtomicU32, Ordering};
use unix::Errno;
use unix::ring::HEAD;

use crate::fs::pipe::{RING, WRITER};
use crate::fs::region::{Done, Region};

/// Offset of the claim word.
const CLAIM: u64 = 16;
static CLAIMS: AtomicU32 = AtomicU32::new(0);

/// Puts one piece in at `head`, for which there is room; all of it or nothing.
pub fn append(region: RegionId, head: u64, part: &[u8]) -> Result<Done, Errno> {
    let writer = Region { id: region, role: WRITER };
    let len = part.len() as u64;
    let at_head = WordAt { offset: HEAD, value: head };
    let behind = [WordAt { offset: HEAD, value: head + len }];
    let span = RING.span(head, len);
    if span.len == len {
        return writer.copy_in(span.offset, part, &[at_head], &behind);
    }
    let number = CLAIMS.fetch_add(1, Ordering::Relaxed);
    let owner = u64::from(crate::thread::process().id.0);
    let claim = WordAt { offset: CLAIM, value: owner << 32 | u64::from(number) };
    let (end, beginning) = part.split_at(span.len as usize);
    let first = writer.copy_in(span.offset, end, &[at_head], &[claim])?;
    if first == Done::Changed {
        return Ok(first);
    }
    writer.copy_in(RING.data, beginning, &[at_head, claim], &behind)
}
