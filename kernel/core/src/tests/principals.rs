//! Users and groups: who reaches whose environments, what a domain is asked for, who moves in.

use crate::index::EnvIndex;

use super::*;
use crate::env::Env;
use abi::capability::{
    CONTROL, DERIVE, DEVICE_CONSOLE, DEVICE_NETWORK, DEVICE_POWER, DEVICE_TRACE, NAME_DEVICE,
    NAME_FRESH, NAME_GROUP, NAME_USER, READ, SIGNAL, USER_RIGHTS, WRITE,
};
use abi::domain::{GROUPS_OF_LIST, NO_NAME, Property, SET_OF_GROUPS};

/// The slot of the effective user, and of the saved one.
pub(super) const USER: u8 = 2;
pub(super) const SAVED: u8 = 3;
pub(super) const ALICE: u32 = 1000;
pub(super) const BOB: u32 = 0x1_0002;

pub(super) fn enter(world: &mut World, domain: DomainId, slot: u8, name: Name, rights: u8) {
    let list = &mut world.state.domains.records[domain.into()].capabilities;
    list[usize::from(slot)] = Capability { rights, zero: 0, name };
}

/// A process of a user: an environment in a domain of its own, that has no other name but its own
/// and the user's, and is signalled by the user's.
pub(super) fn process(world: &mut World, number: u32) -> (usize, DomainId) {
    let domain = world.domain();
    let index = world.spawn(domain);
    let name = Name::principal(NAME_USER, number);
    enter(world, domain, ROOT, Name::ROOT, 0);
    enter(world, domain, USER, name, USER_RIGHTS);
    let (state, id) = (&mut world.state, domain.index());
    state.domains.records[DomainIndex::new(id)].guard = name;
    // As after a fork: its maker's own name.
    state.envs.slots[EnvIndex::new(index)].guard = Name::of(&[NAME_FRESH, 9, 9, 9]);
    let value = u64::from(USER) | NO_NAME << 8;
    let set = Call::DomainSet { domain: DomainId::NONE, property: 0, value };
    assert_eq!(world.with(index, USER, set), OK);
    (index, domain)
}

fn signalling(env: EnvId) -> [Call; 4] {
    [
        Call::Post { env, bits: 1 },
        Call::EnvHold { env },
        Call::EnvRelease { env },
        Call::EnvDestroy { env, word: 9 },
    ]
}

#[test]
fn a_user_signals_its_own_processes_and_root_everybody() {
    for (by, of, reached) in
        [(ALICE, ALICE, true), (ALICE, BOB, false), (ALICE, 0, false), (0, BOB, true), (0, 0, true)]
    {
        let mut world = World::new();
        let (sender, _) = process(&mut world, by);
        let (target, _) = process(&mut world, of);
        for call in signalling(world.id(target)) {
            let expected = if reached { OK } else { error(Error::NotPermitted, 0) };
            assert_eq!(world.with(sender, USER, call), expected, "{by} to {of}: {call:?}");
            // And by its own name, nothing.
            if !reached {
                assert_eq!(world.with(sender, 0, call), expected);
            }
        }
    }
}

#[test]
fn a_new_environment_is_begun_by_its_builder_alone() {
    let mut world = World::new();
    let (sender, _) = process(&mut world, ALICE);
    let (target, domain) = process(&mut world, ALICE);
    let new = world.spawn_new(1, domain);
    let env = world.id(new);
    // Nothing else that SIGNAL is for is refused; that it may be ended is the last of it.
    let [post, hold, release, destroy] = signalling(env);
    assert_eq!(world.with(sender, USER, post), OK);
    assert_eq!(world.with(sender, USER, hold), error(Error::WrongState, 0));
    assert_eq!(world.with(sender, USER, release), error(Error::NotPermitted, 0));
    assert_eq!(world.state.envs.slots[EnvIndex::new(new)].state, EnvState::New);
    let another = world.spawn_new(1, domain);
    let release_another = Call::EnvRelease { env: world.id(another) };
    assert_eq!(world.by(target, release_another), OK, "a thread of its own domain");
    assert_eq!(world.with(sender, USER, destroy), OK);
}

#[test]
fn a_dead_one_is_not_reached_by_its_domains_successor() {
    let mut world = World::new();
    let (dead, former) = process(&mut world, BOB);
    let id = world.id(dead);
    assert_eq!(world.by(1, Call::EnvDestroy { env: id, word: 9 }), OK);
    world.settle();
    let (sender, domain) = process(&mut world, ALICE);
    assert_eq!(domain.index(), former.index(), "it has its place");
    for call in [Call::EnvHold { env: id }, Call::EnvRelease { env: id }] {
        assert_eq!(world.with(sender, USER, call), error(Error::NotPermitted, 0), "{call:?}");
    }
}

#[test]
fn the_saved_user_is_asked_too_and_the_names_that_are_set_are_ones_own() {
    let mut world = World::new();
    let (sender, _) = process(&mut world, ALICE);
    let (target, domain) = process(&mut world, BOB);
    let call = Call::Post { env: world.id(target), bits: 1 };
    assert_eq!(world.with(sender, USER, call), error(Error::NotPermitted, 0));
    enter(&mut world, domain, SAVED, Name::principal(NAME_USER, ALICE), USER_RIGHTS);
    let set = |value| Call::DomainSet { domain: DomainId::NONE, property: 0, value };
    assert_eq!(world.by(target, set(u64::from(USER) | u64::from(SAVED) << 8)), OK);
    assert_eq!(world.with(sender, USER, call), OK);
    // A name without SIGNAL, an empty slot, bits too many.
    enter(&mut world, domain, SAVED, Name::principal(NAME_USER, ALICE), READ | WRITE);
    let without = set(u64::from(SAVED) | NO_NAME << 8);
    assert_eq!(world.by(target, without), error(Error::NotPermitted, 0));
    let empty = set(12 | NO_NAME << 8);
    assert_eq!(world.by(target, empty), error(Error::NoSuchCapability, 0));
    assert_eq!(world.by(target, set(1 << 16)), error(Error::BadArgument, 2));
    assert_eq!(world.with(sender, USER, call), OK, "nothing has changed");
    let none = set(NO_NAME | NO_NAME << 8);
    assert_eq!(world.by(target, none), OK);
    assert_eq!(world.with(sender, USER, call), error(Error::NotPermitted, 0));
}

#[test]
fn no_users_capability_dominates_what_a_process_has_for_itself() {
    let mut world = World::new();
    let (root, _) = process(&mut world, 0);
    let (_, domain) = process(&mut world, BOB);
    let own = world.state.domains.records[domain.into()].capabilities[0].name;
    assert_eq!(own.components[0], NAME_FRESH);
    let init = Name::of(&[NAME_FRESH]);
    for number in [0, ALICE, BOB] {
        let user = Capability { rights: ALL, zero: 0, name: Name::principal(NAME_USER, number) };
        assert!(!user.dominates(&own, READ) && !user.dominates(&init, READ));
    }
    // Root enters, by CONTROL, and never writes from outside.
    let items = Call::TableUpdate { domain, items: UserAddress(SCRATCH), count: 0 };
    assert_eq!(world.with(root, USER, items), error(Error::NotPermitted, 0));
    let derive = Call::CapabilityDerive { domain, slot: 9, extend: 0, components: 0, rights: 4 };
    assert_eq!(world.with(root, USER, derive), error(Error::NotPermitted, 0));
}

#[test]
fn fresh_names_are_never_used_again() {
    let mut world = World::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..70_000 {
        let domain = world.raw_domain();
        let name = world.state.domains.records[domain.into()].capabilities[0].name;
        assert!(seen.insert(name.components), "{name:?} again");
        crate::domain::condemn(&mut world.state, domain.into(), EnvId::NONE);
        assert!(crate::death::end_piece(&mut world.state, &mut world.machine, domain.into()));
        world.settle();
        if seen.len() > 600 && cfg!(miri) {
            break;
        }
    }
}

pub(super) fn new_domain(world: &mut World, maker: usize, slot: u8) -> DomainId {
    let make = Call::DomainAlloc {
        which: Which::Any,
        account: AccountId::NONE,
        root: Which::Any,
        window: 0,
        bytes: u64::MAX,
    };
    let Outcome::Answer(0, id) = world.with(maker, slot, make) else { panic!("a domain") };
    DomainId(id)
}

#[test]
fn a_builder_builds_until_the_first_release() {
    let mut world = World::new();
    let (maker, _) = process(&mut world, ALICE);
    let child = new_domain(&mut world, maker, USER);
    let guard = *domain::guard(&world.state, child.into());
    assert_eq!(guard, Name::principal(NAME_USER, ALICE));
    let update = Call::TableUpdate { domain: child, items: UserAddress(SCRATCH), count: 0 };
    let pass = Call::CapabilityPass { domain: child, slots: 1 << USER };
    let calls = [update, pass];
    for call in calls {
        let Outcome::Answer(0, _) = world.with(maker, 0, call) else { panic!("{call:?}") };
    }
    let alloc = Call::EnvAlloc {
        which: Which::Any,
        domain: child,
        account: AccountId::NONE,
        vector: Which::Any,
    };
    let Outcome::Answer(0, id) = world.with(maker, 0, alloc) else { panic!("an environment") };
    let Outcome::Answer(0, _) = world.with(maker, 0, update) else { panic!("still") };
    let release = Call::EnvRelease { env: EnvId(id as u32) };
    assert_eq!(world.with(maker, 0, release), OK);
    for call in calls {
        for slot in [0, USER] {
            assert_eq!(world.with(maker, slot, call), error(Error::NotPermitted, 0), "{call:?}");
        }
    }
    assert_eq!(world.with(maker, 0, alloc), error(Error::NotPermitted, 0));
}

#[test]
fn a_domain_is_asked_for_its_users_and_groups() {
    let mut world = World::new();
    let (client, domain) = process(&mut world, ALICE);
    let (server, _) = process(&mut world, BOB);
    let ask = |world: &mut World, kind, number| {
        world.with(server, 0, Call::DomainHolds { domain, kind, number })
    };
    let no = error(Error::NotPermitted, 0);
    let Outcome::Answer(0, version) = ask(&mut world, NAME_USER, ALICE) else { panic!("is it") };
    assert_eq!(ask(&mut world, NAME_USER, BOB), no);
    assert_eq!(ask(&mut world, NAME_USER, 0), no);
    assert_eq!(ask(&mut world, NAME_GROUP, ALICE), no);
    assert_eq!(ask(&mut world, 8, ALICE), error(Error::BadArgument, 1));
    // A server's rights over users are not the users'.
    enter(&mut world, domain, SAVED, Name::of(&[NAME_USER]), READ | WRITE | SIGNAL);
    assert_eq!(ask(&mut world, NAME_USER, 0), no);
    let drop = Call::CapabilityDrop { slot: USER.into() };
    assert_eq!(world.with(client, 0, drop), OK);
    assert_eq!(ask(&mut world, NAME_USER, ALICE), no);
    let holdings = world.state.published.domains[domain.index()].holdings;
    assert!(holdings != version, "an answer that is kept is known to be old");
    assert_eq!(
        domain::find(&world.state, DomainId(domain.0 + (1 << 20))),
        Err(Error::NoSuchDomain)
    );
}

#[test]
fn group_0_is_a_group_like_others_and_user_0_is_in_all() {
    let groups = [0, 1, 500, u32::MAX - 1];
    for (name, held) in [
        (Name::principal(NAME_GROUP, 0), &groups[..1]),
        (Name::principal(NAME_GROUP, 500), &groups[2..3]),
        (Name::of(&[NAME_GROUP]), &groups[..]),
    ] {
        let mut world = World::new();
        let (_, domain) = process(&mut world, ALICE);
        let (server, _) = process(&mut world, BOB);
        enter(&mut world, domain, SAVED, name, USER_RIGHTS);
        for number in groups {
            let ask = Call::DomainHolds { domain, kind: NAME_GROUP, number };
            let is = matches!(world.with(server, 0, ask), Outcome::Answer(0, _));
            assert_eq!(is, held.contains(&number), "{name:?}: {number}");
        }
    }
}

/// A region of group numbers that the domain is attached to for reading.
pub(super) fn groups(world: &mut World, owner: usize, numbers: &[u32]) -> RegionId {
    world.put(owner, &[u64::from(u32::MAX)]);
    let alloc = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 1 };
    let Outcome::Answer(0, id) = world.with(owner, 0, alloc) else { panic!("a region") };
    let region = RegionId(id);
    let attach = |role| Call::RegionAttach { region, role, domain: DomainId::NONE };
    assert_eq!(world.with(owner, 0, attach(2)), OK);
    let mut padded = numbers.to_vec();
    padded.resize(1024, u32::MAX);
    for (at, pair) in padded.chunks_exact(2).enumerate() {
        let place =
            crate::region::physical(&world.state, RegionIndex::new(region.index()), 8 * at as u64);
        world.machine.word_set(place, u64::from(pair[0]) | u64::from(pair[1]) << 32);
    }
    region
}

#[test]
fn groups_beyond_the_list_are_in_a_region_that_stays_as_it_is() {
    let mut world = World::new();
    let (client, domain) = process(&mut world, ALICE);
    let numbers: Vec<u32> = (0..1000).map(|at| 7 + 13 * at).collect();
    let region = groups(&mut world, client, &numbers);
    let set = |property: Property, value| Call::DomainSet {
        domain: DomainId::NONE,
        property: property as u16,
        value,
    };
    let call = set(Property::Groups, region.0);
    // The right is that over all groups.
    assert_eq!(world.with(client, USER, call), error(Error::NotPermitted, 0));
    enter(&mut world, domain, SAVED, Name::principal(NAME_GROUP, 20), USER_RIGHTS);
    assert_eq!(world.with(client, SAVED, call), error(Error::NotPermitted, 0));
    enter(&mut world, domain, SAVED, Name::of(&[NAME_GROUP]), USER_RIGHTS);
    // It may not be written by anybody.
    let attach = |role| Call::RegionAttach { region, role, domain: DomainId::NONE };
    assert_eq!(world.with(client, 0, attach(0)), OK);
    assert_eq!(world.with(client, SAVED, call), error(Error::WrongState, 0));
    assert_eq!(world.with(client, 0, Call::RegionDetach { region, role: 0 }), OK);
    assert_eq!(world.with(client, SAVED, call), OK);
    for role in [0, 1] {
        assert_eq!(world.with(client, 0, attach(role)), error(Error::WrongState, 0));
    }
    let ask = |world: &mut World, kind, number| {
        world.with(1, 0, Call::DomainHolds { domain, kind, number })
    };
    // By a right over all groups it is in each; of its set are those that are there.
    let is = |outcome| matches!(outcome, Outcome::Answer(0, _));
    assert!(is(ask(&mut world, NAME_GROUP, 8)) && !is(ask(&mut world, SET_OF_GROUPS, 8)));
    assert!(is(ask(&mut world, GROUPS_OF_LIST, 8)) && is(ask(&mut world, GROUPS_OF_LIST, 20)));
    enter(&mut world, domain, SAVED, Name::principal(NAME_GROUP, 8), USER_RIGHTS);
    assert!(is(ask(&mut world, GROUPS_OF_LIST, 8)) && !is(ask(&mut world, GROUPS_OF_LIST, 20)));
    enter(&mut world, domain, SAVED, Name::ROOT, 0);
    for kind in [NAME_GROUP, SET_OF_GROUPS] {
        for number in 0..13_100 {
            let there = is(ask(&mut world, kind, number));
            assert_eq!(there, numbers.contains(&number), "{number}");
        }
        let filled = ask(&mut world, kind, u32::MAX);
        assert_eq!(filled, error(Error::NotPermitted, 0), "what the rest is filled with");
    }
    // One's child may hold the same; to give them up is a right, too, as a mode may shut them out.
    let child = new_domain(&mut world, client, USER);
    let attach = Call::RegionAttach { region, role: 2, domain: child };
    assert_eq!(world.with(client, 0, attach), OK);
    let property = Property::LastGroups as u16;
    let value = region.0;
    assert_eq!(world.with(client, 0, Call::DomainSet { domain: child, property, value }), OK);
    let of = |domain| Call::DomainHolds { domain, kind: NAME_GROUP, number: 20 };
    assert!(matches!(world.with(1, 0, of(child)), Outcome::Answer(0, _)));
    let give_up = set(Property::Groups, 0);
    for slot in [0, USER] {
        assert_eq!(world.with(client, slot, give_up), error(Error::NotPermitted, 0));
    }
    let other = groups(&mut world, client, &[8]);
    let swap = set(Property::Groups, other.0);
    assert_eq!(world.with(client, USER, swap), error(Error::NotPermitted, 0));
    assert!(matches!(world.with(1, 0, of(domain)), Outcome::Answer(0, _)));
    enter(&mut world, domain, SAVED, Name::of(&[NAME_GROUP]), USER_RIGHTS);
    assert_eq!(world.with(client, SAVED, give_up), OK);
    enter(&mut world, domain, SAVED, Name::ROOT, 0);
    assert_eq!(world.with(1, 0, of(domain)), error(Error::NotPermitted, 0));
    let again = set(Property::Groups, region.0);
    assert_eq!(world.with(client, USER, again), error(Error::NotPermitted, 0), "for good");
}

/// Many hold a user's name or a group's: none of them takes it from the others.
#[test]
fn users_and_groups_are_not_taken_back() {
    let mut world = World::new();
    let (index, domain) = process(&mut world, ALICE);
    let (other, others) = process(&mut world, BOB);
    for name in
        [Name::of(&[NAME_USER]), Name::principal(NAME_USER, 7), Name::principal(NAME_GROUP, 5)]
    {
        for list in [domain, others] {
            enter(&mut world, list, USER, name, ALL);
        }
        for (extend, components) in [(0, 0), (1, 9), (2, 9)] {
            let take = Call::CapabilityRetract { extend, components };
            assert_eq!(world.with(index, USER, take), error(Error::NotPermitted, 0));
        }
        world.settle();
        let derive = Call::CapabilityDerive {
            domain: DomainId::NONE,
            slot: 9,
            rights: READ.into(),
            extend: 0,
            components: 0,
        };
        assert_eq!(world.with(other, USER, derive), OK, "{name:?}");
    }
}

#[test]
fn what_goes_with_an_id_is_told_as_no_token() {
    let mut world = World::new();
    let (index, domain) = process(&mut world, ALICE);
    let principals =
        [Name::of(&[NAME_USER]), Name::principal(NAME_USER, 7), Name::principal(NAME_GROUP, 5)];
    let device = |which| Name::of(&[NAME_DEVICE, which]);
    let interface = Name::of(&[NAME_DEVICE, DEVICE_NETWORK, 0]);
    let devices = [DEVICE_CONSOLE, DEVICE_NETWORK, DEVICE_POWER, DEVICE_TRACE].map(device);
    let above = [Name::of(&[NAME_DEVICE]), interface];
    for name in principals.into_iter().chain(devices).chain(above) {
        enter(&mut world, domain, USER, name, ALL);
        for word in 0..3 {
            let told = world.with(index, USER, Call::CapabilityToken { word });
            assert_eq!(told, error(Error::NotPermitted, 0), "{name:?}");
        }
    }
    assert!(matches!(
        world.with(index, 0, Call::CapabilityToken { word: 2 }),
        Outcome::Answer(0, _)
    ));
}

/// A guest of Alice's, and a domain that another program has built for it, guarded by that one's
/// own name, with an environment prepared in it.
fn prepared(world: &mut World) -> (usize, usize, DomainId, usize) {
    let (guest, _) = process(world, ALICE);
    let domain = world.domain();
    let builder = world.spawn(domain);
    let built = new_domain(world, builder, 0);
    world.map(built.index(), SCRATCH);
    let new = world.spawn_new(builder, built);
    world.machine.context(new).rip = 0x1234_5000;
    (guest, builder, built, new)
}

fn admits(world: &World, guest: usize, new: usize) -> u64 {
    u64::from(world.id(guest).0) | u64::from(world.id(new).0) << 32
}

#[test]
fn a_guest_takes_over_what_was_prepared_and_brings_nothing_but_its_id() {
    let mut world = World::new();
    let (guest, builder, built, new) = prepared(&mut world);
    // Another one pays there.
    let first = AccountId(world.state.published.accounts[1].id);
    let make = Call::AccountAlloc { which: Which::Any, parent: first };
    let Outcome::Answer(0, account) = world.by(1, make) else { panic!("an account") };
    let account = AccountId(account);
    for resource in 0..RESOURCES as u16 {
        assert_eq!(
            world.by(1, Call::AccountLimit { account, resource, limit: 50, reserve: 0 }),
            OK
        );
    }
    domain::move_charges(&mut world.state, built.into(), account.into()).unwrap();
    let save = world.state.envs.slots[EnvIndex::new(new)].save;
    let application = world.state.envs.slots[EnvIndex::new(new)].application;
    let admit = Call::DomainSet {
        domain: built,
        property: Property::Admits as u16,
        value: admits(&world, guest, new),
    };
    assert_eq!(world.with(builder, 0, admit), OK);
    world.save(guest, offset::PENDING, 1 << 14);
    world.machine.context(guest).rbx = 0x6666;
    let holder = world.state.published.envs[guest].holder;
    let id = world.id(guest);
    let hostile = EnvSetup { rip: 0x6666_0000, rsp: 0x6666_0000, ..EnvSetup::default() };
    world.put(guest, &setup_words(&hostile));
    let fields = field::RIP | field::RSP;
    let go = Call::EnvMove { domain: built, fields, setup: UserAddress(SCRATCH) };
    assert_eq!(world.with(guest, USER, go), Outcome::Restart);
    let context = *world.machine.context(guest);
    assert_eq!((context.rip, context.rsp, context.rbx), (0x1234_5000, 0x7000, 0));
    assert_eq!((world.id(guest), env::domain(&world.state, EnvIndex::new(guest))), (id, built));
    assert_eq!(world.state.published.envs[guest].holder, holder);
    // A processor that goes from the old user to the new one has to know (`speculation`).
    assert_eq!(world.state.published.envs[guest].user, account.0);
    let env = &world.state.envs.slots[EnvIndex::new(guest)];
    assert_eq!((env.save, env.application), (save, application));
    assert_eq!(world.machine.application_pages[guest], Some(application));
    assert_eq!(world.saved(guest, offset::PENDING) & 1 << 14, 1 << 14, "what was posted");
    assert_eq!(world.state_of(new), EnvState::Dead);
    assert_eq!(world.state.published.domains[built.index()].envs, 1);
    // Alice can't reach it, the builder builds no more.
    let (other, _) = process(&mut world, ALICE);
    for call in signalling(id) {
        assert_eq!(world.with(other, USER, call), error(Error::NotPermitted, 0));
    }
    let update = Call::TableUpdate { domain: built, items: UserAddress(SCRATCH), count: 0 };
    assert!(!domain::is_builder(
        &world.state,
        env::domain(&world.state, EnvIndex::new(builder)).into(),
        built.into()
    ));
    assert_eq!(world.with(other, USER, update), error(Error::NotPermitted, 0));
    world.settle();
}

#[test]
fn a_guest_brings_its_groups_and_the_regions_that_it_has_passed() {
    let mut world = World::new();
    let (guest, builder, built, new) = prepared(&mut world);
    let from = env::domain(&world.state, EnvIndex::new(guest));
    let region = groups(&mut world, guest, &[20, 27]);
    enter(&mut world, from, SAVED, Name::of(&[NAME_GROUP]), USER_RIGHTS);
    let property = Property::Groups as u16;
    let hold = Call::DomainSet { domain: DomainId::NONE, property, value: region.0 };
    assert_eq!(world.with(guest, SAVED, hold), OK);
    let pass = Call::RegionPass { domain: built, places: UserAddress(SCRATCH), count: 1 };
    let offer = |world: &mut World, by: usize, role: u64| {
        world.machine.context(by).r10 = 0;
        world.put(by, &[region.0, role]);
        world.with(by, 0, pass)
    };
    let no = error(Error::NotPermitted, 0);
    assert_eq!(offer(&mut world, guest, 2), no, "before it was admitted");
    let value = admits(&world, guest, new);
    let admit = Call::DomainSet { domain: built, property: Property::Admits as u16, value };
    assert_eq!(world.with(builder, 0, admit), OK);
    // Another one of its user's, which is not let in.
    let (other, _) = process(&mut world, ALICE);
    assert_eq!(offer(&mut world, other, 2), no);
    let thread = world.spawn(from);
    let go = Call::EnvMove { domain: built, fields: 0, setup: UserAddress(SCRATCH) };
    let told = world.with(guest, USER, go);
    assert_eq!(told, error(Error::WrongState, 0), "its groups would not last");
    assert_eq!(offer(&mut world, guest, 3), no, "it is not attached in this role");
    assert_eq!(offer(&mut world, guest, 2), Outcome::Answer(0, 1));
    let ask = Call::DomainHolds { domain: built, kind: NAME_GROUP, number: 27 };
    assert_eq!(world.with(1, 0, ask), no);
    let before = world.state.published.domains[built.index()].holdings;
    assert_eq!(world.with(guest, USER, go), Outcome::Restart);
    assert!(matches!(world.with(1, 0, ask), Outcome::Answer(0, after) if after != before));
    assert_eq!(offer(&mut world, thread, 2), no, "it is over");
    world.settle();
}

/// A revocation that has passed the guest finds nothing of the frame with it afterwards.
#[test]
fn a_guest_brings_no_page_along_that_is_being_revoked() {
    let mut world = World::new();
    let (guest, builder, built, new) = prepared(&mut world);
    let value = admits(&world, guest, new);
    let admit = Call::DomainSet { domain: built, property: Property::Admits as u16, value };
    assert_eq!(world.with(builder, 0, admit), OK);
    let Env { save, application, .. } = world.state.envs.slots[EnvIndex::new(new)];
    for frame in [save, application] {
        assert_ne!(frame.0, 0);
        world.state.frames.records[frame.0 as usize].revoking = true;
    }
    let go = Call::EnvMove { domain: built, fields: 0, setup: UserAddress(SCRATCH) };
    assert_eq!(world.with(guest, USER, go), Outcome::Restart);
    let Env { save, application, .. } = world.state.envs.slots[EnvIndex::new(guest)];
    assert_eq!((save.0, application.0), (0, 0));
    assert_eq!(world.machine.application_pages[guest], None);
}

#[test]
fn nobody_moves_in_who_was_not_admitted() {
    let mut world = World::new();
    let (guest, builder, built, new) = prepared(&mut world);
    let (other, _) = process(&mut world, ALICE);
    let go = Call::EnvMove { domain: built, fields: 0, setup: UserAddress(SCRATCH) };
    let no = error(Error::NotPermitted, 0);
    assert_eq!(world.with(guest, USER, go), no, "before it was admitted");
    let admit = |value| Call::DomainSet { domain: built, property: Property::Admits as u16, value };
    let value = admits(&world, guest, new);
    assert_eq!(world.with(guest, USER, admit(value)), no, "it does not build it");
    let swapped = value.rotate_left(32);
    assert_eq!(world.with(builder, 0, admit(swapped)), error(Error::WrongState, 0));
    let unknown = value & !0xffff_ffff | 0x3fff_ffff;
    assert_eq!(world.with(builder, 0, admit(unknown)), error(Error::NoSuchEnv, 0));
    assert_eq!(world.with(builder, 0, admit(value)), OK);
    assert_eq!(world.with(other, USER, go), no, "another one");
    // What was prepared has gone.
    let destroy = Call::EnvDestroy { env: world.id(new), word: 0 };
    world.state.domains.records[built.into()].guard = Name::of(&[NAME_USER, 0, 1]);
    world.spawn_new(builder, built);
    assert_eq!(world.by(builder, destroy), OK);
    assert_eq!(world.with(guest, USER, go), no);
}

#[test]
fn a_domain_changes_its_account_only_by_a_right_over_both() {
    let mut world = World::new();
    let (index, domain) = process(&mut world, ALICE);
    let first = AccountId(world.state.published.accounts[1].id);
    let make = Call::AccountAlloc { which: Which::Any, parent: first };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("an account") };
    let account = AccountId(id);
    let set = Call::DomainSet {
        domain: DomainId::NONE,
        property: Property::Account as u16,
        value: account.0,
    };
    let names =
        [1, account.index()].map(|at| world.state.accounts.record(AccountIndex::new(at)).name);
    for name in names {
        enter(&mut world, domain, SAVED, name, CONTROL);
        let expected = if names[0].is_prefix_of(&names[1]) && name == names[0] {
            error(Error::OverQuota, abi::limits::Resource::Domains as u64)
        } else {
            error(Error::NotPermitted, 0)
        };
        assert_eq!(world.with(index, SAVED, set), expected);
    }
    for resource in 0..RESOURCES as u16 {
        assert_eq!(
            world.by(1, Call::AccountLimit { account, resource, limit: 50, reserve: 0 }),
            OK
        );
    }
    enter(&mut world, domain, SAVED, Name::ROOT, CONTROL | DERIVE);
    let before = world.state.published.accounts[account.index()].used;
    assert_eq!(world.with(index, SAVED, set), OK);
    let after = world.state.published.accounts[account.index()].used;
    assert_eq!(after[abi::limits::Resource::Domains as usize], before[2] + 1);
    assert_eq!(world.state.published.domains[domain.index()].account, account.0);
    // It dies before its account has told it.
    assert_ne!(world.state.published.envs[index].user, account.0);
    world.by(index, Call::EnvDestroy { env: EnvId::NONE, word: 0 });
    assert_eq!(world.state.published.envs[index].user, account.0);
}
