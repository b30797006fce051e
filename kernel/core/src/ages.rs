//! When each frame was last seen in use: an order of all memory by age, as far as rounds tell.
//!
//! For whoever looks for something to give up (thesis98 P-8, xok97 XK-14).
//!
//! ```text
//!  frames  ├──────────────┬───────┬──────────────────────────┤
//!                         hand ──► a piece each slice: accessed bits of all entries of a frame,
//!                                  joined and taken; was one set, it is seen now
//! ```
//! A hand goes round all frames, a piece for each slice that passes while anybody runs; a machine
//! that is idle uses nothing. An accessed bit that was taken comes back when a processor next
//! walks to the entry: so each processor forgets its translations when its next slice begins.
//! Frames that no entry maps (tables, regions, registers) have no age, nor has the boot image.

use crate::chain;
use crate::fold;
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::work::{self, cost};
use abi::id::Frame;
use abi::limits::{AGE_ENTRIES, CPUS, SLICE_NS};
use abi::memory::ACCESSED;
use abi::published::{AGE_SHIFT, FrameType};

/// What a piece may spend, in instructions: less than one in a thousand of a slice.
const PIECE: u32 = 8_000;
/// The hand starts when the machine has been up for so long: what boots is in use.
const START_NS: u64 = 1_000_000_000;

/// The hand.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    /// The frame that is next.
    hand: u32,
    /// When the next piece is due.
    due_ns: u64,
    /// Pieces in which bits were taken.
    taken: u32,
    /// The same when each processor last forgot its translations.
    forgotten: [u32; CPUS],
}

impl Default for Ages {
    fn default() -> Self {
        Self { hand: 0, due_ns: START_NS, taken: 0, forgotten: [0; CPUS] }
    }
}

/// A slice begins on `cpu`: goes on with the hand, if a slice has passed since it went last.
#[inline]
pub fn slice_begins<M: Machine>(state: &mut State, machine: &mut M, cpu: usize, now: u64) {
    if now >= state.ages.due_ns {
        piece(state, machine, now);
    }
    if state.ages.forgotten[cpu] != state.ages.taken {
        state.ages.forgotten[cpu] = state.ages.taken;
        machine.flush(Flush::Own);
    }
}

#[cold]
fn piece<M: Machine>(state: &mut State, machine: &mut M, now: u64) {
    if !work::room(state, PIECE) {
        return;
    }
    state.ages.due_ns = now + SLICE_NS;
    // Never 0, which says that nobody has looked.
    let seen = ((now >> AGE_SHIFT) as u32).max(1);
    let count = state.published.frames.len() as u32;
    let (mut left, mut taken) = (PIECE, false);
    for _ in 0..count {
        let frame = Frame(state.ages.hand);
        let mut spent = cost::LOOK;
        if state.published.frames[frame.0 as usize].kind == FrameType::Data as u8 {
            if !work::room(state, PIECE - left + AGE_ENTRIES as u32 * cost::AGE) {
                break;
            }
            spent += cost::AGE * look(state, machine, frame, seen, &mut taken);
        } else {
            state.published.ages[frame.0 as usize].seen = 0;
        }
        state.ages.hand = if frame.0 + 1 == count { 0 } else { frame.0 + 1 };
        left = left.saturating_sub(spent);
        if left == 0 {
            break;
        }
    }
    work::spend(state, PIECE - left);
    state.ages.taken = state.ages.taken.wrapping_add(u32::from(taken));
}

/// Looks at one frame of program memory; for how many entries' worth.
fn look<M: Machine>(
    state: &mut State,
    machine: &mut M,
    frame: Frame,
    seen: u32,
    taken: &mut bool,
) -> u32 {
    let (mut used, mut entries) = (false, 0);
    let mut next = chain::first(state, frame);
    while let Some(place) = next.filter(|_| entries < AGE_ENTRIES as u32) {
        let entry = place.table.address() + 8 * place.index as u64;
        // Most are not set, and a look is no locked operation.
        if machine.word(entry) & ACCESSED != 0 {
            machine.word_and(entry, !ACCESSED);
            used = true;
        }
        if fold::is_folded(state, place.table) {
            used |= fold::take_accessed(state, machine, place);
        }
        next = chain::next(state, machine, place);
        entries += 1;
    }
    *taken |= used;
    let age = &mut state.published.ages[frame.0 as usize].seen;
    if used || *age == 0 {
        *age = seen;
    }
    entries + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use crate::tests::World;
    use abi::capability::{ALL, Capability, Name};
    use abi::memory::{DIRTY, Item, Operation, PRESENT};

    const AT: u64 = 0x5000_0000;

    /// Lets the hand go once round all frames; the age that it gives.
    fn round(world: &mut World) -> u32 {
        world.machine.now = world.machine.now.max(START_NS) + (1 << AGE_SHIFT);
        let now = world.machine.now;
        let frames = world.state.published.frames.len() as u32;
        let mut gone = 0;
        while gone < frames {
            let from = world.state.ages.hand;
            (world.state.ages.due_ns, world.state.spent) = (now, 0);
            slice_begins(&mut world.state, &mut world.machine, 0, now);
            assert!(world.state.spent <= PIECE);
            let moved = (world.state.ages.hand + frames - from) % frames;
            gone += if moved == 0 { frames } else { moved };
        }
        (now >> AGE_SHIFT) as u32
    }

    fn age(world: &World, frame: Frame) -> u32 {
        world.state.published.ages[frame.0 as usize].seen
    }

    /// Where the entries that map a frame are, the last one first.
    fn entries(world: &World, frame: Frame) -> Vec<u64> {
        let mut found = vec![];
        let mut next = chain::first(&world.state, frame);
        while let Some(place) = next {
            found.push(place.table.address() + 8 * place.index as u64);
            next = chain::next(&world.state, &world.machine, place);
        }
        found
    }

    #[test]
    fn use_by_any_space_makes_a_frame_young_and_nothing_else_does() {
        let mut world = World::new();
        let other = world.domain().index();
        let (shared, own) = (world.map(1, AT), world.map(other, AT));
        let item = Item {
            operation: Operation::Map as u8,
            level: 1,
            more: 0,
            frame: shared.0,
            address: AT + 0x1000,
            value: 0,
        };
        let all = Capability { rights: ALL, zero: 0, name: Name::ROOT };
        let (state, machine) = (&mut world.state, &mut world.machine);
        table::update_item(state, machine, 1, other, &all, &item, 0).1.expect("mapped");
        let [second, first] = entries(&world, shared)[..] else { panic!("two entries") };

        let began = round(&mut world);
        assert_eq!((age(&world, shared), age(&world, own)), (began, began), "looked at first");
        for entry in [first, second] {
            let before = world.machine.word(entry);
            assert_eq!(before & (PRESENT | ACCESSED), PRESENT);
            world.machine.word_set(entry, before | ACCESSED | DIRTY);
            let seen = round(&mut world);
            assert_eq!((age(&world, shared), age(&world, own)), (seen, began), "used since");
            assert_eq!(world.machine.word(entry), before | DIRTY, "taken, and nothing else");
            round(&mut world);
            assert_eq!(age(&world, shared), seen, "not used since");
        }
    }

    #[test]
    fn a_frame_given_back_has_no_age() {
        let mut world = World::new();
        let frame = world.map(1, AT);
        round(&mut world);
        assert_ne!(age(&world, frame), 0);
        world.state.published.frames[frame.0 as usize].kind = FrameType::Free as u8;
        round(&mut world);
        assert_eq!(age(&world, frame), 0);
    }
}
