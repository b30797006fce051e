//! When each frame was last seen in use: an order of all memory by age, as far as rounds tell.
//!
//! For whoever looks for something to give up (thesis98 P-8, xok97 XK-14).
//!
//! ```text
//!  frames  ├──────────────┬───────┬──────────────────────────┤
//!                         hand ──► a piece each slice: accessed bits of all entries of a frame,
//!                                  joined and taken; was one set, it is seen now
//! ```
//! Only the entries of domains that have asked for it are looked at (`Property::Ages`): when a page
//! is used tells what a program computes, and everybody reads what is published. A frame that no
//! such entry maps has no age.
//! A hand goes round all frames, a piece for each slice that passes while anybody runs; a machine
//! that is idle uses nothing. An accessed bit that was taken comes back when a processor next
//! walks to the entry: so each processor forgets its translations when its next slice begins.
//! Frames that no entry maps (tables, regions, registers) have no age, nor has the boot image.

use crate::chain::{self, Place};
use crate::index::{AccountIndex, CpuIndex, DomainIndex, Each};
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::work::{self, cost};
use crate::{domain, fold};
use abi::id::{DomainId, Frame};
use abi::limits::{AGE_ENTRIES, CPUS, SLICE_NS};
use abi::memory::ACCESSED;
use abi::published::{AGE_SHIFT, FrameRecord, FrameType};

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
    forgotten: Each<u32>,
}

impl Default for Ages {
    fn default() -> Self {
        Self { hand: 0, due_ns: START_NS, taken: 0, forgotten: Each::new([0; CPUS]) }
    }
}

/// A slice begins on `cpu`: goes on with the hand, if a slice has passed since it went last.
#[inline]
pub fn slice_begins<M: Machine>(state: &mut State, machine: &mut M, cpu: CpuIndex, now: u64) {
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
    let (mut used, mut asked, mut entries) = (false, false, 0);
    let mut next = chain::first(state, frame);
    while let Some(place) = next.filter(|_| entries < AGE_ENTRIES as u32) {
        entries += 1;
        if tells(state, place.table) {
            asked = true;
            used |= take(state, machine, place);
        }
        next = chain::next(state, machine, place);
    }
    *taken |= used;
    let age = &mut state.published.ages[frame.0 as usize].seen;
    if !asked {
        *age = 0;
    } else if used || *age == 0 {
        *age = seen;
    }
    entries + 1
}

/// Takes the accessed bit of one entry, and those of a folded table's page; was one set?
fn take<M: Machine>(state: &mut State, machine: &mut M, place: Place) -> bool {
    let entry = place.table.address() + 8 * place.index as u64;
    // Most are not set, and a look is no locked operation.
    let used = machine.word(entry) & ACCESSED != 0;
    if used {
        machine.word_and(entry, !ACCESSED);
    }
    used | (fold::is_folded(state, place.table) && fold::take_accessed(state, machine, place))
}

/// Was the table made for a domain that has asked for ages? The record names that by the low half
/// of its id, which a later domain may have again: that is told of no other account's tables.
fn tells(state: &State, table: Frame) -> bool {
    let FrameRecord { chain: low, account, .. } = state.published.frames[table.0 as usize];
    let index = DomainIndex::from(DomainId(low.into()));
    let record = state.published.domains.get(index.at());
    let lives = record.is_some_and(|domain| domain.id as u32 == low && low != 0);
    let pays = lives && domain::account(state, index) == AccountIndex::from(account);
    pays && state.domains.records[index].tells_ages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Outcome;
    use crate::tests::{ROOT, World};
    use abi::call::Call;
    use abi::id::AccountId;
    use abi::layout::PAGE_SIZE;
    use abi::memory::{DIRTY, Item, Operation, PRESENT};
    use abi::word::Which;

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
            slice_begins(&mut world.state, &mut world.machine, CpuIndex::new(0), now);
            assert!(world.state.spent <= PIECE);
            let moved = (world.state.ages.hand + frames - from) % frames;
            gone += if moved == 0 { frames } else { moved };
        }
        (now >> AGE_SHIFT) as u32
    }

    /// Has the domain ask for ages.
    fn ask(world: &mut World, domain: usize) {
        world.state.domains.records[DomainIndex::new(domain)].tells_ages = true;
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

    /// Maps a frame into this domain as well.
    fn show(world: &mut World, domain: usize, frame: Frame) {
        let item = Item {
            operation: Operation::Map as u8,
            level: 1,
            more: 0,
            frame: frame.0,
            address: AT + 0x1000,
            value: 0,
        };
        world.update((1, domain), ROOT, &item).expect("mapped");
    }

    #[test]
    fn use_by_any_space_makes_a_frame_young_and_nothing_else_does() {
        let mut world = World::new();
        let other = world.domain().index();
        let (shared, own) = (world.map(1, AT), world.map(other, AT));
        [1, other].into_iter().for_each(|domain| ask(&mut world, domain));
        show(&mut world, other, shared);
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
    fn nobody_is_told_of_the_use_by_a_domain_that_has_not_asked() {
        let mut world = World::new();
        let other = world.domain().index();
        let (shared, own) = (world.map(1, AT), world.map(1, AT + 0x1000));
        world.map(other, AT);
        show(&mut world, other, shared);
        ask(&mut world, other);
        let began = round(&mut world);
        assert_eq!((age(&world, shared), age(&world, own)), (began, 0));
        // The first domain, which has not asked, uses both.
        for frame in [shared, own] {
            let entry = *entries(&world, frame).last().expect("its entry");
            let before = world.machine.word(entry);
            world.machine.word_set(entry, before | ACCESSED);
        }
        round(&mut world);
        assert_eq!((age(&world, shared), age(&world, own)), (began, 0));
        let spy = world.spawn(DomainId(world.state.published.domains[other].id));
        let asked = Call::DomainSet { domain: DomainId::NONE, property: 8, value: 0 };
        assert_eq!(world.by(spy, asked), crate::tests::OK);
        round(&mut world);
        assert_eq!(age(&world, shared), 0, "not any more");
        let victim = DomainId(world.state.published.domains[1].id);
        for (domain, value) in [(victim, 1), (DomainId::NONE, 2)] {
            let asked = Call::DomainSet { domain, property: 8, value };
            assert_ne!(world.by(spy, asked), crate::tests::OK);
        }
    }

    /// A domain has in time the half of an id again by which a table names the domain that it was
    /// made for, which has ended and left the table to another one of its account's.
    #[test]
    fn tables_of_another_account_tell_nothing() {
        let mut world = World::new();
        let other = world.domain().index();
        let frame = world.map(1, AT);
        let [entry] = entries(&world, frame)[..] else { panic!("an entry") };
        let table = (entry / PAGE_SIZE) as usize;
        world.state.published.frames[table].chain = world.state.published.domains[other].id as u32;
        ask(&mut world, other);
        round(&mut world);
        assert_ne!(age(&world, frame), 0, "both are one account's");
        let first = AccountId(world.state.published.accounts[1].id);
        let make = Call::AccountAlloc { which: Which::Any, parent: first };
        let Outcome::Answer(0, account) = world.by(1, make) else { panic!("an account") };
        let account = AccountIndex::from(AccountId(account)).link();
        world.state.domains.records[DomainIndex::new(other)].account = account;
        world.state.published.ages[frame.0 as usize].seen = 0;
        world.machine.word_set(entry, world.machine.word(entry) | ACCESSED);
        round(&mut world);
        assert_eq!(age(&world, frame), 0);
    }

    #[test]
    fn a_frame_given_back_has_no_age() {
        let mut world = World::new();
        let frame = world.map(1, AT);
        ask(&mut world, 1);
        round(&mut world);
        assert_ne!(age(&world, frame), 0);
        world.state.published.frames[frame.0 as usize].kind = FrameType::Free as u8;
        round(&mut world);
        assert_eq!(age(&world, frame), 0);
    }
}
