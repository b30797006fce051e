//! Items whose sources lie in several tables, and bits that are taken from an entry.

use super::*;

/// The last page of a table, and the first of the next: 2 MiB apart in one piece of 4 MiB.
const LAST: u64 = 0x5f_f000;
const NEXT: u64 = 0x60_0000;
/// Where they are mapped a second time.
const COPY: u64 = 0x100_0000;

#[test]
fn sources_go_on_in_the_next_table() {
    for (operation, value) in [(Operation::Map, WRITABLE), (Operation::Allocate, 0)] {
        let mut world = World::new();
        let parent = world.parent;
        for address in [PAGE, LAST, NEXT, NEXT + PAGE_SIZE] {
            world.tables(parent, address, 2);
            let item = leaf(Operation::Allocate, ANY_FRAME, address, WRITABLE);
            world.item(parent, parent, item).unwrap();
            let frame = world.leaf(parent, address).unwrap().frame;
            world.machine.word_set(frame.address(), address);
        }
        world.tables(parent, COPY, 2);
        let item = Item { more: 2, ..leaf(operation, ANY_FRAME, COPY, from_source(LAST, value)) };
        world.item(parent, parent, item).unwrap();
        for (page, from) in [LAST, NEXT, NEXT + PAGE_SIZE].into_iter().enumerate() {
            let copy = world.leaf(parent, COPY + page as u64 * PAGE_SIZE).unwrap().frame;
            assert_eq!(world.machine.word(copy.address()), from, "{operation:?} of {from:#x}");
            let shared = copy == world.leaf(parent, from).unwrap().frame;
            assert_eq!(shared, operation == Operation::Map);
        }
    }
}

#[test]
fn a_source_in_a_missing_table_is_no_source() {
    let mut world = World::new();
    let parent = world.parent;
    for address in [PAGE, LAST] {
        world.tables(parent, address, 2);
        let item = leaf(Operation::Allocate, ANY_FRAME, address, WRITABLE);
        world.item(parent, parent, item).unwrap();
    }
    world.tables(parent, COPY, 2);
    let item = Item { more: 1, ..leaf(Operation::Map, ANY_FRAME, COPY, from_source(LAST, 0)) };
    assert_eq!(world.item(parent, parent, item), refused(Error::BadAddress, 0));
    assert_eq!(world.leaf(parent, COPY + PAGE_SIZE), None);
}

/// A processor that keeps the entry may set the bit no more, or allow what it forbids.
#[test]
fn clear_a_bit_without_a_flush() {
    let all = WRITABLE | ACCESSED | DIRTY;
    for (before, after, flushed) in [
        (all, WRITABLE | ACCESSED, true),
        (all, WRITABLE | DIRTY, true),
        (all, ACCESSED | DIRTY, true),
        (all, all | NO_EXECUTE, true),
        (all, all, false),
        (all, all | SOFTWARE, false),
        (all | SOFTWARE, all, false),
        (ACCESSED, all, false),
        (all | NO_EXECUTE, all, false),
    ] {
        let mut world = World::new();
        let parent = world.parent;
        world.tables(parent, PAGE, 2);
        world.own(parent, Operation::Allocate, before).unwrap();
        world.machine.flushes.clear();
        world.own(parent, Operation::Protect, after).unwrap();
        let root = domain::root(&world.state, parent);
        let expected = if flushed { vec![Flush::Page(root, PAGE)] } else { vec![] };
        assert_eq!(world.machine.flushes, expected, "{before:#x} becomes {after:#x}");
    }
}

/// Who protects a page for a time has the right back, and whoever has got it from there.
#[test]
fn an_entry_keeps_the_right_to_be_written() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.own(parent, Operation::Protect, KEEPS_WRITE).unwrap();
    assert!(!world.leaf(parent, PAGE).unwrap().writable);
    world.tables(child, PAGE, 2);
    let map = |world: &mut World, value| {
        let item = leaf(Operation::Map, ANY_FRAME, PAGE, from_source(PAGE, value));
        let (state, machine) = (&mut world.state, &mut world.machine);
        let none = Capability { rights: ALL, zero: 0, name: Name::of(&[7]) };
        update_alone(state, machine, (parent, child), &none, &item, 0).1
    };
    map(&mut world, KEEPS_WRITE).unwrap();
    // By no name: the frame's is another's meanwhile, for both.
    world.state.frames.records[frame.0 as usize].guard = Name::of(&[8]);
    for domain in [parent, child] {
        for value in [WRITABLE, KEEPS_WRITE, WRITABLE | KEEPS_WRITE] {
            world.own(domain, Operation::Protect, value).unwrap();
            let writable = value & WRITABLE != 0;
            assert_eq!(world.leaf(domain, PAGE).unwrap().writable, writable);
        }
    }
    assert_eq!(*frame::guard(&world.state, frame), Name::of(&[8]));
    world.own(child, Operation::Protect, 0).unwrap();
    for value in [WRITABLE, KEEPS_WRITE] {
        let answer = world.own(child, Operation::Protect, value);
        assert_eq!(answer, refused(Error::NotPermitted, 0), "it has given it up");
    }
    // From an entry that has not kept it nobody gets it.
    world.own(parent, Operation::Protect, 0).unwrap();
    for value in [WRITABLE, KEEPS_WRITE] {
        assert_eq!(map(&mut world, value), refused(Error::NotPermitted, 0));
    }
}

/// A page that is copied when it is written does not keep the right.
#[test]
fn a_frozen_table_keeps_no_right() {
    for thawed in [false, true] {
        let mut world = World::new();
        let (parent, child) = (world.parent, world.child);
        let frame = world.page(parent);
        world.own(parent, Operation::Protect, WRITABLE | KEEPS_WRITE).unwrap();
        world.fork();
        world.split(child).unwrap();
        if thawed {
            world.settle();
            let thaw = at_level(Operation::Thaw, 2, PAGE, 0);
            world.item(parent, parent, thaw).unwrap();
        } else {
            world.split(parent).unwrap();
        }
        world.state.frames.records[frame.0 as usize].guard = Name::of(&[8]);
        for domain in [parent, child] {
            for value in [WRITABLE, KEEPS_WRITE] {
                let answer = world.own(domain, Operation::Protect, value);
                assert_eq!(answer, refused(Error::NotPermitted, 0));
            }
        }
    }
}

/// What may be written in a table that is copied is copied, too, whether it is protected or not.
#[test]
fn a_copied_table_shares_no_page_that_may_be_written() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.own(parent, Operation::Protect, KEEPS_WRITE).unwrap();
    world.tables(child, PAGE, 3);
    let capability = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let item = at_level(Operation::Share, 2, PAGE, PAGE | 1);
    let (state, machine) = (&mut world.state, &mut world.machine);
    update_alone(state, machine, (parent, child), &capability, &item, 0).1.unwrap();
    assert_ne!(world.leaf(child, PAGE).unwrap().frame, frame);
}
