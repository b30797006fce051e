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
