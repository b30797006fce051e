//! Pages that a revocation took, and that are entered anew before all processors have been told.

use super::*;

/// Another processor broke the entry, and stands still before it tells the others: the owner sees
/// that the entry has gone, and may use the page again. What it stores must not go where the page
/// led to, which others may still read.
#[test]
fn a_revoked_page_is_forgotten_before_it_is_used_again() {
    let mut world = World::new();
    let parent = world.parent;
    let frame = world.page(parent);
    let root = domain::root(&world.state, parent);
    world.settle();
    revoke::begin(&mut world.state, frame, crate::account::FIRST);
    assert!(!revoke::work(&mut world.state, &mut world.machine, crate::account::FIRST));
    let ticket = frame::ticket(&mut world.state);
    assert_eq!(world.leaf(parent, PAGE), None, "the owner sees it");
    world.machine.flushes.clear();
    world.own(parent, Operation::Allocate, WRITABLE).unwrap();
    assert_eq!(world.machine.flushes, [Flush::Page(root, PAGE)]);
    // When all processors have forgotten it, nothing is in the way.
    let second = frame::ticket(&mut world.state);
    for ticket in [ticket, second] {
        frame::limbo_release(&mut world.state, &mut world.machine, ticket);
    }
    world.own(parent, Operation::Unmap, 0).unwrap();
    world.settle();
    world.machine.flushes.clear();
    world.own(parent, Operation::Allocate, WRITABLE).unwrap();
    assert_eq!(world.machine.flushes, []);
}
