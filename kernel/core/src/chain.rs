//! The reverse map: from a frame to every leaf entry that maps it (decisions 14).
//!
//! Each level-1 table comes with a frame of links, one 64-bit word for each entry: the next and
//! the previous entry that maps the same frame. The frame's record holds the head. An entry is
//! named by its table's frame number and its index; 0 ends the chain. Frames of the boot image are
//! nobody's to revoke and never in limbo, so who maps them is not kept.
//!
//! ```text
//!  frame record        links of table A        links of table B
//!  chain = A:7   ───►  [7] next B:0, prev 0 ─► [0] next 0, prev A:7
//! ```

use crate::frame;
use crate::machine::Machine;
use crate::state::State;
use abi::id::Frame;
use abi::published::FrameType;

/// An entry's name in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The level-1 table.
    pub table: Frame,
    /// The entry's index in it.
    pub index: usize,
}

impl Place {
    fn number(self) -> u32 {
        self.table.0 << 9 | self.index as u32
    }

    /// The place with this number; 0 is none.
    pub fn from_number(number: u32) -> Option<Self> {
        let place = Self { table: Frame(number >> 9), index: (number & 511) as usize };
        (number != 0).then_some(place)
    }

    fn link(self, state: &State) -> u64 {
        let links = state.frames.records[self.table.0 as usize].links;
        Frame(links).address() | (self.index as u64) << 3
    }
}

fn pack(next: u32, previous: u32) -> u64 {
    u64::from(next) | u64::from(previous) << 32
}

/// The first entry that maps `frame`; no leaf entry maps a table, whose record has another use of
/// the field.
pub fn first(state: &State, frame: Frame) -> Option<Place> {
    let record = &state.published.frames[frame.0 as usize];
    let is_table = (FrameType::Table1 as u8..=FrameType::Table4 as u8).contains(&record.kind);
    Place::from_number(if is_table { 0 } else { record.chain })
}

/// The entry after `place` in its chain.
pub fn next<M: Machine>(state: &State, machine: &M, place: Place) -> Option<Place> {
    Place::from_number(machine.word(place.link(state)) as u32)
}

/// Puts `place`, which now maps `frame`, at the head of its chain.
pub(crate) fn insert<M: Machine>(state: &mut State, machine: &mut M, place: Place, frame: Frame) {
    let image = frame::is_image(state, frame);
    let record = &mut state.frames.records[place.table.0 as usize];
    record.count_entry(place.index);
    if image {
        return;
    }
    let links = record.links;
    state.frames.mark_chained(links, place.index);
    link(state, machine, place, links, frame);
}

/// As [`insert`], of an entry that is counted and marked otherwise, in a table with these links,
/// for a frame that is not the boot image's.
#[inline(always)]
pub(crate) fn link<M: Machine>(
    state: &mut State,
    machine: &mut M,
    place: Place,
    links: u32,
    frame: Frame,
) {
    let record = &mut state.published.frames[frame.0 as usize];
    let head = core::mem::replace(&mut record.chain, place.number());
    let own = Frame(links).address() | (place.index as u64) << 3;
    machine.word_set(own, pack(head, 0));
    if let Some(head) = Place::from_number(head) {
        let link = head.link(state);
        let next = machine.word(link) as u32;
        machine.word_set(link, pack(next, place.number()));
    }
}

/// Takes `place`, which no longer maps `frame`, out of its chain.
pub(crate) fn remove<M: Machine>(state: &mut State, machine: &mut M, place: Place, frame: Frame) {
    let record = &mut state.frames.records[place.table.0 as usize];
    record.discount_entry();
    let links = record.links;
    if frame::is_image(state, frame) {
        return;
    }
    unlink(state, machine, place, links, frame);
}

/// As [`remove`], of an entry that is counted otherwise, in a table with these links, for a frame
/// that is not the boot image's.
#[inline(always)]
pub(crate) fn unlink<M: Machine>(
    state: &mut State,
    machine: &mut M,
    place: Place,
    links: u32,
    frame: Frame,
) {
    let word = machine.word(Frame(links).address() | (place.index as u64) << 3);
    let (next, previous) = (word as u32, (word >> 32) as u32);
    match Place::from_number(previous) {
        None => state.published.frames[frame.0 as usize].chain = next,
        Some(before) => {
            let link = before.link(state);
            let word = machine.word(link);
            machine.word_set(link, pack(next, (word >> 32) as u32));
        }
    }
    if let Some(after) = Place::from_number(next) {
        let link = after.link(state);
        let word = machine.word(link);
        machine.word_set(link, pack(word as u32, previous));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::Range;
    use abi::layout::PAGE_SIZE;

    #[test]
    fn each_frame_with_a_number_has_a_place_of_its_own() {
        let all = frame::numbered(Range { start: 0, end: u64::MAX });
        let highest = Frame((all.end / PAGE_SIZE - 1) as u32);
        for table in [Frame(1), Frame(highest.0 / 2), highest] {
            for index in [0, 511] {
                let place = Place { table, index };
                assert_eq!(Place::from_number(place.number()), Some(place));
            }
        }
        let low = Range { start: PAGE_SIZE, end: 3 * PAGE_SIZE };
        assert_eq!(frame::numbered(low), low);
        let high = frame::numbered(Range { start: 40 << 30, end: 41 << 30 });
        assert!(high.start >= high.end, "nothing of it is used");
    }
}
