//! What folding asks for, what unfolds, and that nothing a page's entry says is lost by either.

use super::*;
use crate::answer::Answer;
use crate::index::{CpuIndex, DomainIndex};
use crate::machine::{Flush, Machine};
use crate::table::{Leaf, look_up, update_alone};
use crate::tests::World;
use crate::{ages, domain, dying, revoke};
use abi::capability::{ALL, Capability, Name};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Item, Operation, from_source};

/// Where the block is mapped.
const AT: u64 = 0x80_4000_0000;
/// Its frames: aligned, free in a new world.
const BLOCK: u32 = if cfg!(miri) { 1024 } else { 4096 };
/// Frames of the machine: those, and as many again.
const FRAMES: usize = 2 * BLOCK as usize;
const DATA: u64 = WRITABLE | NO_EXECUTE;
const ROOT: Capability = Capability { rights: ALL, zero: 0, name: Name::ROOT };

fn leaf(operation: Operation, page: u64, frame: u32, value: u64) -> Item {
    let address = AT + page * PAGE_SIZE;
    Item { operation: operation as u8, level: 1, more: 0, frame, address, value }
}

fn above(operation: Operation, level: u8, value: u64) -> Item {
    Item { operation: operation as u8, level, more: 0, frame: ANY_FRAME, address: AT, value }
}

fn fold_item() -> Item {
    above(Operation::Fold, 2, 0)
}

/// An item for a domain of the world's, by the first one with the root name.
fn item(world: &mut World, target: usize, item: Item) -> Answer {
    let (state, machine) = (&mut world.state, &mut world.machine);
    let mut done = 0;
    loop {
        state.spent = 0;
        let (after, answer) =
            update_alone(state, machine, (1.into(), DomainIndex::new(target)), &ROOT, &item, done);
        if answer.is_err() || after > u32::from(item.more) {
            return answer;
        }
        done = after;
    }
}

fn tables(world: &mut World, target: usize) {
    for level in [4, 3, 2] {
        let made = item(world, target, above(Operation::Table, level, u64::from(ANY_FRAME)));
        assert!(made.is_ok() || made == Err(Error::NotEmpty.into()));
    }
}

/// The block, mapped into the first domain.
fn mapped() -> World {
    let mut world = World::of(FRAMES);
    tables(&mut world, 1);
    let all = Item { more: 511, ..leaf(Operation::Allocate, 0, BLOCK, DATA) };
    item(&mut world, 1, all).unwrap();
    world
}

/// And folded there.
fn folded() -> World {
    let mut world = mapped();
    item(&mut world, 1, fold_item()).unwrap();
    world
}

fn entry(world: &World, target: usize, level: u8, page: u64) -> u64 {
    let root = domain::root(&world.state, DomainIndex::new(target));
    let place = place_of(world, root, level, page);
    world.machine.entry(place.table, place.index)
}

fn place_of(world: &World, root: Frame, level: u8, page: u64) -> Place {
    let (state, machine) = (&world.state, &world.machine);
    let at = AT + page * PAGE_SIZE;
    let folded = self::page(state, machine, root, at).filter(|_| level == 1);
    folded.or_else(|| table::place(machine, root, at, level, Way::Any).ok()).expect("a table")
}

fn is_large(world: &World, target: usize) -> bool {
    entry(world, target, 2, 0) & LARGE != 0
}

fn set(world: &mut World, level: u8, page: u64, bits: u64) {
    let root = domain::root(&world.state, 1.into());
    let place = place_of(world, root, level, page);
    world.machine.word_or(place.table.address() + 8 * place.index as u64, bits);
}

fn seen(world: &World, target: usize, page: u64) -> Option<Leaf> {
    let root = domain::root(&world.state, DomainIndex::new(target));
    look_up(&world.machine, root, AT + page * PAGE_SIZE)
}

#[test]
fn a_large_entry_says_what_its_table_says() {
    let mut world = mapped();
    let before: Vec<_> = (0..512).map(|page| seen(&world, 1, page)).collect();
    let table = entry(&world, 1, 2, 0);
    set(&mut world, 1, 77, DIRTY | ACCESSED);
    world.machine.flushes.clear();
    assert_eq!(item(&mut world, 1, fold_item()), Ok(table), "what was there is answered");
    assert_eq!(world.machine.flushes, [Flush::Space(domain::root(&world.state, 1.into()))]);
    let large = entry(&world, 1, 2, 0);
    let expected = Frame(BLOCK).address() | DATA | PRESENT | USER | LARGE | ACCESSED | DIRTY;
    assert_eq!(large & !(SOFTWARE | KEEPS_WRITE), expected, "{large:#x}: one page was dirty");
    for (page, before) in before.into_iter().enumerate() {
        assert_eq!(seen(&world, 1, page as u64), before, "page {page}");
    }
    assert_eq!(item(&mut world, 1, above(Operation::Unfold, 2, 0)), Ok(large));
    assert_eq!(entry(&world, 1, 2, 0), table);
    assert_eq!(world.state.folds.used(), 0);
}

#[test]
fn what_the_processor_set_in_the_large_entry_all_its_pages_have() {
    for bits in [0, ACCESSED, ACCESSED | DIRTY] {
        let mut world = folded();
        set(&mut world, 2, 0, bits);
        item(&mut world, 1, above(Operation::Unfold, 2, 0)).unwrap();
        for page in 0..512 {
            assert_eq!(entry(&world, 1, 1, page) & (ACCESSED | DIRTY), bits, "page {page}");
        }
    }
}

#[test]
fn what_cannot_be_folded_is_named_and_left() {
    let any = u64::from(ANY_FRAME);
    let image = u64::from(crate::fake::KERNEL_FRAMES) as u32;
    let refused = |error, value| Err(Refusal::new(error, value));
    let protect = |page, value| leaf(Operation::Protect, page, ANY_FRAME, value);
    let map = |page, frame, value| leaf(Operation::Map, page, frame, value);
    for (change, answer) in [
        (leaf(Operation::Unmap, 300, 0, 0), refused(Error::BadAddress, 300)),
        (leaf(Operation::Unmap, 0, 0, 0), refused(Error::BadAddress, 0)),
        (map(511, BLOCK + 510, DATA), refused(Error::Changed, 511)),
        (map(0, BLOCK + 1, DATA), refused(Error::Changed, 0)),
        (protect(5, NO_EXECUTE), refused(Error::Changed, 5)),
        (protect(0, NO_EXECUTE), refused(Error::Changed, 1)),
        (protect(9, WRITABLE), refused(Error::Changed, 9)),
        (protect(0, WRITABLE), refused(Error::Changed, 0)),
        (map(7, image, NO_EXECUTE), refused(Error::WrongType, 7)),
    ] {
        let mut world = mapped();
        item(&mut world, 1, change).unwrap();
        let before: Vec<u64> = (0..512).map(|page| entry(&world, 1, 1, page)).collect();
        let table = entry(&world, 1, 2, 0);
        assert_eq!(item(&mut world, 1, fold_item()), answer, "{change:x?}");
        assert_eq!(entry(&world, 1, 2, 0), table, "{change:x?}");
        let after: Vec<u64> = (0..512).map(|page| entry(&world, 1, 1, page)).collect();
        assert!(before == after && world.state.folds.used() == 0, "{change:x?}");
    }
    let mut world = mapped();
    for (wrong, answer) in [
        (above(Operation::Unfold, 2, 0), refused(Error::WrongState, 0)),
        (above(Operation::Fold, 2, 1), refused(Error::BadArgument, 1)),
        (above(Operation::Fold, 3, 0), refused(Error::BadArgument, 1)),
        (above(Operation::Unfold, 1, 0), refused(Error::BadArgument, 1)),
        (Item { more: 1, ..fold_item() }, refused(Error::BadArgument, 1)),
        (Item { address: AT + 1, ..fold_item() }, refused(Error::BadArgument, 1)),
        (Item { address: AT + (2 << 20), ..fold_item() }, refused(Error::NoTable, 2)),
        (Item { address: AT + (1 << 39), ..fold_item() }, refused(Error::NoTable, 4)),
    ] {
        assert_eq!(item(&mut world, 1, wrong), answer, "{wrong:x?}");
    }
    item(&mut world, 1, fold_item()).unwrap();
    for (wrong, answer) in [
        (fold_item(), refused(Error::WrongState, 0)),
        (above(Operation::Table, 2, any), refused(Error::NotEmpty, 0)),
        (above(Operation::Split, 2, any), refused(Error::WrongState, 0)),
        (above(Operation::Thaw, 2, 0), refused(Error::WrongState, 0)),
        (above(Operation::Unfold, 2, 8), refused(Error::BadArgument, 1)),
        (map(3, 0, DATA), refused(Error::NoSuchFrame, 0)),
        (leaf(Operation::Unmap, 3, 0, 1), refused(Error::BadArgument, 1)),
        (map(3, BLOCK, DATA | USER), refused(Error::BadArgument, 1)),
    ] {
        assert_eq!(item(&mut world, 1, wrong), answer, "{wrong:x?}");
        assert!(is_large(&world, 1), "refused, and unfolded: {wrong:x?}");
    }
}

/// The account that pays for a table pays for its being folded.
#[test]
fn a_folded_table_is_paid_for() {
    let mut world = mapped();
    let slot = Resource::Folds as usize;
    world.state.published.accounts[1].limit[slot] = 0;
    let over = Err(Refusal::new(Error::OverQuota, slot as u64));
    assert_eq!(item(&mut world, 1, fold_item()), over);
    world.state.published.accounts[1].limit[slot] = 1;
    assert!(item(&mut world, 1, fold_item()).is_ok());
    assert_eq!(world.state.published.accounts[1].used[slot], 1);
    item(&mut world, 1, leaf(Operation::Unmap, 7, ANY_FRAME, 0)).unwrap();
    assert_eq!(world.state.published.accounts[1].used[slot], 0, "unfolded");
}

#[test]
fn there_are_so_many_and_then_none() {
    let mut world = mapped();
    let fresh = world.state.folds.fresh;
    world.state.folds.fresh = world.state.folds.records.len() as u32;
    assert_eq!(item(&mut world, 1, fold_item()), Err(Error::Exhausted.into()));
    assert!(!is_large(&world, 1));
    world.state.folds.fresh = fresh;
    assert_eq!(item(&mut world, 1, fold_item()).map(|_| ()), Ok(()));
    for number in [1, 7, 8, 4095, MOST - 1] {
        assert_eq!(index(bits(number)), number);
        assert_eq!(bits(number) & !(SOFTWARE | KEEPS_WRITE), 0);
    }
}

#[test]
fn whatever_changes_a_page_unfolds_its_table() {
    let page = 9;
    let other = leaf(Operation::Map, page, BLOCK + 8, NO_EXECUTE);
    let fresh = leaf(Operation::Allocate, page, ANY_FRAME, DATA);
    let own = AT + (page + 1) * PAGE_SIZE;
    for change in [
        leaf(Operation::Unmap, page, 0, 0),
        leaf(Operation::Unmap, page, 0, 0x77_0000),
        leaf(Operation::Protect, page, ANY_FRAME, NO_EXECUTE),
        leaf(Operation::Protect, page, ANY_FRAME, from_source(own, NO_EXECUTE)),
        leaf(Operation::Map, page, ANY_FRAME, from_source(own, DATA)),
        leaf(Operation::Allocate, page, ANY_FRAME, from_source(own, DATA)),
        other,
        fresh,
    ] {
        let mut world = folded();
        let before = seen(&world, 1, page);
        set(&mut world, 2, 0, DIRTY | ACCESSED);
        world.machine.flushes.clear();
        let old = item(&mut world, 1, change).unwrap();
        assert_eq!(old & (DIRTY | ACCESSED | PRESENT), DIRTY | ACCESSED | PRESENT, "{change:x?}");
        assert!(!is_large(&world, 1) && world.state.folds.used() == 0, "{change:x?}");
        let space = Flush::Space(domain::root(&world.state, 1.into()));
        assert!(world.machine.flushes.contains(&space), "{change:x?}");
        assert_ne!(seen(&world, 1, page), before, "{change:x?}");
        for page in (0..512).filter(|&at| at != page) {
            let frame = Frame(BLOCK + page as u32);
            let leaf = Leaf { frame, writable: true, executable: false };
            assert_eq!(seen(&world, 1, page), Some(leaf), "{change:x?}");
            assert_ne!(entry(&world, 1, 1, page) & DIRTY, 0, "{change:x?}");
        }
    }
}

#[test]
fn a_hold_without_room_changes_nothing_yet() {
    let mut world = folded();
    let unmap = leaf(Operation::Unmap, 0, 0, 0);
    world.state.spent = crate::work::PIECE - 100;
    let (state, machine) = (&mut world.state, &mut world.machine);
    assert_eq!(update_alone(state, machine, (1.into(), 1.into()), &ROOT, &unmap, 0), (0, Ok(0)));
    assert!(is_large(&world, 1));
    assert!(item(&mut world, 1, unmap).is_ok() && !is_large(&world, 1));
}

#[test]
fn a_revoked_page_is_gone_from_every_large_page_and_no_other_is() {
    let mut world = folded();
    let other = world.domain().index();
    tables(&mut world, other);
    let all = Item { more: 511, ..leaf(Operation::Map, 0, BLOCK, NO_EXECUTE) };
    item(&mut world, other, all).unwrap();
    item(&mut world, other, fold_item()).unwrap();
    assert_eq!(world.state.folds.used(), 2);
    revoke::begin(&mut world.state, Frame(BLOCK + 300), crate::account::FIRST);
    world.machine.flushes.clear();
    loop {
        world.state.spent = 0;
        if !revoke::work(&mut world.state, &mut world.machine, crate::account::FIRST) {
            break;
        }
    }
    assert!(world.machine.flushes.contains(&Flush::Everything));
    for target in [1, other] {
        assert!(!is_large(&world, target));
        for page in 0..512 {
            assert_eq!(seen(&world, target, page).is_some(), page != 300, "{target}: {page}");
        }
    }
}

#[test]
fn a_shared_table_is_unfolded_and_frozen() {
    let mut world = folded();
    let child = world.domain().index();
    tables(&mut world, child);
    item(&mut world, child, above(Operation::Unmap, 2, 0)).unwrap();
    set(&mut world, 2, 0, DIRTY);
    // Too many for a copy.
    item(&mut world, child, above(Operation::Share, 2, AT | 16)).unwrap();
    assert!(!is_large(&world, 1) && !is_large(&world, child));
    for page in [0, 511] {
        let shared = seen(&world, child, page).unwrap();
        assert_eq!(shared.frame, Frame(BLOCK + page as u32));
        assert_eq!((seen(&world, 1, page), shared.writable), (Some(shared), false));
        assert_ne!(entry(&world, child, 1, page) & DIRTY, 0);
    }
    assert_eq!(item(&mut world, 1, fold_item()), Err(Error::WrongState.into()), "it is frozen");
}

#[test]
fn a_large_page_goes_with_the_table_it_is_in() {
    for level in [2, 3, 4] {
        let mut world = mapped();
        let free = world.state.frames.free_count();
        item(&mut world, 1, fold_item()).unwrap();
        item(&mut world, 1, above(Operation::Unmap, level, 0)).unwrap();
        loop {
            world.state.spent = 0;
            if !dying::work(&mut world.state, &mut world.machine, crate::account::FIRST) {
                break;
            }
        }
        world.settle();
        assert_eq!(world.state.folds.used(), 0);
        // The table, its links, and those above it.
        assert_eq!(world.state.frames.free_count(), free + 512 + u32::from(level));
    }
}

#[test]
fn a_store_through_a_large_page_makes_all_of_it_young() {
    let mut world = folded();
    world.state.domains.records[1.into()].tells_ages = true;
    let frames = world.state.published.frames.len();
    let round = |world: &mut World| {
        world.machine.now += 20_000_000_000;
        for _ in 0..frames {
            world.machine.now += 10_000_000;
            world.state.spent = 0;
            let now = world.machine.now;
            ages::slice_begins(&mut world.state, &mut world.machine, CpuIndex::new(0), now);
        }
        [0, 200, 511].map(|at| world.state.published.ages[BLOCK as usize + at].seen)
    };
    let first = round(&mut world);
    assert_eq!(round(&mut world), first, "nobody has used it");
    set(&mut world, 2, 0, ACCESSED);
    let then = round(&mut world);
    assert!(first.iter().zip(then).all(|(first, then)| *first < then), "{first:?} {then:?}");
    assert_eq!(entry(&world, 1, 2, 0) & (ACCESSED | LARGE), LARGE, "taken, and still folded");
}
