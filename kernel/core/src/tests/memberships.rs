//! A set of groups: who is in it stays in it, whatever domains it makes and regions it lets go of.

use super::principals::{ALICE, SAVED, USER, enter, groups, new_domain, process};
use super::*;
use abi::capability::{NAME_GROUP, NAME_USER, USER_RIGHTS};
use abi::domain::{Property, SET_OF_GROUPS};

/// A file's mode may shut a group out (0604): a process that is in it stays in it.
#[test]
fn groups_are_left_neither_by_a_new_domain_nor_by_detaching() {
    let mut world = World::new();
    let (client, domain) = process(&mut world, ALICE);
    let region = groups(&mut world, client, &[20]);
    enter(&mut world, domain, SAVED, Name::of(&[NAME_GROUP]), USER_RIGHTS);
    let set = |domain, property: Property, value| Call::DomainSet {
        domain,
        property: property as u16,
        value,
    };
    let own = DomainId::NONE;
    assert_eq!(world.with(client, SAVED, set(own, Property::MoreGroups, region.0)), OK);
    enter(&mut world, domain, SAVED, Name::ROOT, 0);
    let asks = |world: &mut World, domain, kind, number| {
        let ask = Call::DomainHolds { domain, kind, number };
        matches!(world.with(1, 0, ask), Outcome::Answer(0, _))
    };
    let child = new_domain(&mut world, client, USER);
    let pass = Call::CapabilityPass { domain: child, slots: 1 << USER };
    assert!(matches!(world.with(client, 0, pass), Outcome::Answer(0, _)));
    assert!(
        asks(&mut world, child, NAME_USER, ALICE) && asks(&mut world, child, SET_OF_GROUPS, 20)
    );
    let give_up = set(child, Property::MoreGroups, 0);
    assert_eq!(world.with(client, USER, give_up), error(Error::NotPermitted, 0));
    // Nobody is attached any more: the region lasts while it is held.
    assert_eq!(world.with(client, 0, Call::RegionDetach { region, role: 2 }), OK);
    for one in [domain, child] {
        assert!(asks(&mut world, one, SET_OF_GROUPS, 20));
    }
    let heir = world.spawn(child);
    let end = |world: &mut World, index| {
        let env = world.id(index);
        assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
        world.settle();
    };
    end(&mut world, client);
    assert!(asks(&mut world, child, SET_OF_GROUPS, 20), "its maker has ended");
    crate::region::check(&world.state);
    end(&mut world, heir);
    let ended = crate::region::find(&world.state, region).is_err();
    assert!(ended, "with the last that holds it, it ends");
}
