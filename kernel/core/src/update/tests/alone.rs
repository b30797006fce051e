//! A frame is one holder's alone when all processors have forgotten those that gave it up.

use super::*;

/// A page that parent and child have, each in a table of its own.
fn two_holders() -> (World, Frame) {
    let mut world = World::new();
    let frame = world.page(world.parent);
    world.fork();
    for domain in [world.child, world.parent] {
        world.split(domain).unwrap();
    }
    world.settle();
    (world, frame)
}

/// The former holder may run on a processor that has not forgotten its translation yet: the frame
/// is not the last holder's alone before the ticket is back.
#[test]
fn a_last_holder_is_alone_when_others_have_forgotten() {
    let (mut world, frame) = two_holders();
    let (parent, child) = (world.parent, world.child);
    // The parent gives its entry up; its other processors are still to be asked.
    world.machine.flushes.clear();
    world.own(parent, Operation::Unmap, 0).unwrap();
    let ticket = frame::ticket(&mut world.state);
    let told = world.machine.flushes.clone();
    assert_eq!(told, [Flush::Page(domain::root(&world.state, parent), PAGE)]);
    assert_eq!(world.record(frame).references, 1);
    let early = world.own(child, Operation::Protect, WRITABLE);
    assert_eq!(early, refused(Error::NotPermitted, 0));
    frame::limbo_release(&mut world.state, &mut world.machine, ticket);
    world.own(child, Operation::Protect, WRITABLE).unwrap();
}

/// The same of a table, which processors may walk by a way that they remember.
#[test]
fn a_table_thaws_when_others_have_forgotten_it() {
    let mut world = World::new();
    let (parent, child) = (world.parent, world.child);
    world.page(parent);
    world.fork();
    world.settle();
    let item = at_level(Operation::Unmap, 2, PAGE, 0);
    world.item(child, child, item).unwrap();
    let ticket = frame::ticket(&mut world.state);
    let thaw = at_level(Operation::Thaw, 2, PAGE, 0);
    assert_eq!(world.item(parent, parent, thaw), refused(Error::WrongState, 0));
    frame::limbo_release(&mut world.state, &mut world.machine, ticket);
    world.item(parent, parent, thaw).unwrap();
}

/// The same of a frame that is to get a memory type: no translation may have another one.
#[test]
fn a_type_changes_when_others_have_forgotten() {
    let (mut world, _) = two_holders();
    let (parent, child) = (world.parent, world.child);
    world.own(child, Operation::Unmap, 0).unwrap();
    let ticket = frame::ticket(&mut world.state);
    assert_eq!(world.own(parent, Operation::Type, TYPE), refused(Error::Taken, 0));
    frame::limbo_release(&mut world.state, &mut world.machine, ticket);
    world.own(parent, Operation::Type, TYPE).unwrap();
}

/// A hold of the lock after which no processor has anything to forget needs no ticket.
#[test]
fn what_needs_no_flush_is_alone_behind_its_hold() {
    let mut world = World::new();
    let parent = world.parent;
    let frame = world.page(parent);
    world.settle();
    frame::reference(&mut world.state, frame);
    frame::release(&mut world.state, frame);
    assert_eq!(world.own(parent, Operation::Type, TYPE), refused(Error::Taken, 0));
    crate::alone::no_ticket(&mut world.state);
    world.own(parent, Operation::Type, TYPE).unwrap();
}
