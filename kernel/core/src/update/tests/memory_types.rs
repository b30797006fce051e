//! A frame has one memory type, which every entry that maps it shows.

use super::*;
use abi::memory::{CACHE_DISABLE, TYPE_SHIFT, WRITE_THROUGH};

/// Another page of the same table.
const OTHER: u64 = PAGE + PAGE_SIZE;

fn typed(world: &mut World, domain: DomainIndex, value: u64) -> Answer {
    world.own(domain, Operation::Type, value)
}

fn entry(world: &World, domain: DomainIndex, address: u64) -> u64 {
    let root = domain::root(&world.state, domain);
    let place = place(&world.machine, root, address, 1, Way::Any).unwrap();
    world.machine.entry(place.table, place.index)
}

fn kept(world: &World, frame: Frame) -> u64 {
    u64::from(world.record(frame).memory_type) << TYPE_SHIFT
}

#[test]
fn later_entries_have_the_type_of_their_frame() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    world.tables(child, PAGE, 2);
    for value in [TYPE, WRITE_THROUGH, 0, TYPE] {
        let before = entry(&world, parent, PAGE);
        world.machine.flushes.clear();
        assert_eq!(typed(&mut world, parent, value), Ok(before));
        assert_eq!(entry(&world, parent, PAGE), before & !TYPE | value, "its choice is left");
        assert_eq!(kept(&world, frame), value);
        let root = domain::root(&world.state, parent);
        assert_eq!(world.machine.flushes, [Flush::Page(root, PAGE)]);
    }
    // By its name, by an own entry, for another domain; rights change, the type does not.
    let map = leaf(Operation::Map, frame.0, OTHER, WRITABLE);
    world.item(parent, parent, map).unwrap();
    let copied = leaf(Operation::Map, ANY_FRAME, OTHER + PAGE_SIZE, from_source(PAGE, 0));
    world.item(parent, parent, copied).unwrap();
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let theirs = leaf(Operation::Map, frame.0, PAGE, 0);
    let (state, machine) = (&mut world.state, &mut world.machine);
    update_alone(state, machine, (parent, child), &root, &theirs, 0).1.unwrap();
    world.own(parent, Operation::Protect, NO_EXECUTE).unwrap();
    for (domain, address) in
        [(parent, PAGE), (parent, OTHER), (parent, OTHER + PAGE_SIZE), (child, PAGE)]
    {
        assert_eq!(entry(&world, domain, address) & TYPE, TYPE, "{domain:?} at {address:#x}");
    }
    // A private copy of the table has other entries for the same frames.
    world.item(child, child, leaf(Operation::Unmap, 0, PAGE, 0)).unwrap();
    world.item(child, child, at_level(Operation::Unmap, 2, PAGE, 0)).unwrap();
    world.fork();
    world.split(child).unwrap();
    assert_eq!(entry(&world, child, OTHER) & (TYPE | WRITABLE), TYPE);
}

#[test]
fn a_copy_and_the_next_holder_have_plain_memory() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    typed(&mut world, parent, TYPE).unwrap();
    let copy = leaf(Operation::Allocate, ANY_FRAME, OTHER, from_source(PAGE, WRITABLE));
    world.item(parent, parent, copy).unwrap();
    assert_eq!(entry(&world, parent, OTHER) & TYPE, 0, "a copy of a page is a frame of its own");
    // `Share` with a count copies what is writable.
    world.tables(child, PAGE, 3);
    let item = at_level(Operation::Share, 2, PAGE, PAGE | 16);
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let (state, machine) = (&mut world.state, &mut world.machine);
    update_alone(state, machine, (parent, child), &root, &item, 0).1.unwrap();
    let theirs = entry(&world, child, PAGE);
    assert!(theirs & (TYPE | WRITABLE) == WRITABLE && target(theirs) != frame, "{theirs:#x}");
    assert_eq!(kept(&world, target(theirs)), 0);
    world.own(parent, Operation::Unmap, 0).unwrap();
    world.settle();
    assert_eq!(world.record(frame).memory_type, 0);
    world.item(parent, parent, leaf(Operation::Allocate, frame.0, PAGE, WRITABLE)).unwrap();
    assert_eq!(entry(&world, parent, PAGE) & TYPE, 0, "the next holder's");
}

#[test]
fn a_type_is_refused_to_who_is_not_alone_or_not_its_own() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    let frame = world.page(parent);
    let before = entry(&world, parent, PAGE);
    for value in [1, CACHE_DISABLE, TYPE | 1, TYPE | WRITABLE, 1 << 7, u64::MAX] {
        let answer = typed(&mut world, parent, value);
        assert_eq!(answer, refused(Error::BadArgument, ITEMS), "{value:#x}");
    }
    let nowhere = leaf(Operation::Type, ANY_FRAME, OTHER, TYPE);
    assert_eq!(world.item(parent, parent, nowhere), refused(Error::BadAddress, 0));
    let above = at_level(Operation::Type, 2, PAGE, TYPE);
    assert_eq!(world.item(parent, parent, above), refused(Error::BadArgument, ITEMS));
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let image = leaf(Operation::Map, fake::KERNEL_FRAMES, OTHER, 0);
    let item = leaf(Operation::Type, ANY_FRAME, OTHER, TYPE);
    let (state, machine) = (&mut world.state, &mut world.machine);
    update_alone(state, machine, (parent, parent), &root, &image, 0).1.unwrap();
    let (_, answer) = update_alone(state, machine, (parent, parent), &root, &item, 0);
    assert_eq!(answer, refused(Error::WrongType, 0), "the boot image's");
    world.item(parent, parent, leaf(Operation::Unmap, 0, OTHER, 0)).unwrap();
    // The child's name is not over it, whatever it may change of the parent's.
    let (state, machine) = (&mut world.state, &mut world.machine);
    let other = state.domains.records[child].capabilities[0];
    let item = leaf(Operation::Type, ANY_FRAME, PAGE, TYPE);
    let (_, answer) = update_alone(state, machine, (child, parent), &other, &item, 0);
    assert_eq!(answer, refused(Error::NotPermitted, 0));
    frame::pin(&mut world.state, frame);
    assert_eq!(typed(&mut world, parent, TYPE), refused(Error::Taken, 0));
    frame::unpin(&mut world.state, frame);
    world.item(parent, parent, leaf(Operation::Map, frame.0, OTHER, 0)).unwrap();
    assert_eq!(typed(&mut world, parent, TYPE), refused(Error::Taken, 0));
    world.item(parent, parent, leaf(Operation::Unmap, 0, OTHER, 0)).unwrap();
    world.state.published.directory.features = 0;
    assert_eq!(typed(&mut world, parent, TYPE), refused(Error::NotPresent, 0));
    assert_eq!((entry(&world, parent, PAGE), kept(&world, frame)), (before, 0));
}

#[test]
fn what_the_processor_sets_meanwhile_is_not_lost() {
    let mut world = World::new();
    let parent = world.parent;
    world.page(parent);
    let root = domain::root(&world.state, parent);
    let place = place(&world.machine, root, PAGE, 1, Way::Any).unwrap();
    let at = place.table.address() + 8 * place.index as u64;
    // Another processor stores to the page between the check and the exchange.
    world.machine.word_or(at, ACCESSED | DIRTY);
    let entry = world.machine.word(at) & !(ACCESSED | DIRTY) | TYPE;
    let own = world.capability(parent);
    let item = leaf(Operation::Type, ANY_FRAME, PAGE, TYPE);
    let mut request = Request::new(&world.state, parent, parent, &own);
    request.item = item;
    let (state, machine) = (&mut world.state, &mut world.machine);
    memory_type::change(state, machine, &request, &mut Lost::default(), place, entry);
    assert_eq!(world.machine.word(at) & (ACCESSED | DIRTY | TYPE), ACCESSED | DIRTY | TYPE);
}
