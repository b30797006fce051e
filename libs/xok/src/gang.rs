//! Gang scheduling (Ousterhout, 1982): who waits for each other by spinning runs at the same time.
//!
//! ```text
//!                 turn 0   turn 1   turn 2   turn 3
//!   place 0         a0       b0       a0       b0       one processor each; a leader there calls
//!   place 1         a1       b1       a1       b1       `slice` in every slice of its own
//! ```
//! The members take no turns of their own (`FLAG_GIVEN_TIME`); whose turn it is, is what the clock
//! says, which all processors share. So leaders need no word between them, and the kernel knows of
//! no gang: directed yields are enough (thesis98 M-19). Two places may also be one processor's, by
//! turns; then the members follow each other.

use crate::call;
use crate::clock::now_ns;
use abi::id::EnvId;
use alloc::vec::Vec;

/// The gangs that take turns. Each leader has the same ones in the same order.
#[derive(Debug)]
pub struct Gangs {
    gangs: Vec<Vec<EnvId>>,
    turn_ns: u64,
}

impl Gangs {
    /// None yet; a turn is `turn_ns` nanoseconds long, some slices.
    pub fn new(turn_ns: u64) -> Self {
        Self { gangs: Vec::new(), turn_ns: turn_ns.max(1) }
    }

    /// Takes a gang in: its members by place.
    pub fn add(&mut self, members: &[EnvId]) {
        self.gangs.push(members.to_vec());
    }

    /// Gives the rest of the present slice to the member at `place` of the gang whose turn it is;
    /// who it was. Where that one cannot run, the next gang's does, rather than nobody.
    pub fn slice(&self, place: usize) -> Option<EnvId> {
        let turn = now_ns() / self.turn_ns;
        let first = (turn % self.gangs.len().max(1) as u64) as usize;
        let (before, after) = self.gangs.split_at_checked(first)?;
        let members = after.iter().chain(before).filter_map(|gang| gang.get(place));
        members.copied().find(|&env| call::yield_to(env).is_ok())
    }
}
