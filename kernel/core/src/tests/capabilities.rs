//! Capabilities on the way: tokens, and what is taken back.

use super::*;
use crate::{account, capability, retract, work};
use abi::capability::{CONTROL, DERIVE, NAME_ACCOUNT, READ, WRITE};

/// Slots of the tests' own.
const SLOT: u16 = 5;
const OTHER: u16 = 6;

fn held(world: &World, domain: DomainId, slot: u16) -> Option<Capability> {
    capability::get(&world.state, domain.index(), slot as u8).ok()
}

fn give(world: &mut World, domain: DomainId, slot: u16, name: &[u16], rights: u8) {
    let list = &mut world.state.domains.records[domain.index()].capabilities;
    list[usize::from(slot)] = Capability { rights, zero: 0, name: Name::of(name) };
}

fn token(world: &mut World, index: usize, capability: u8) -> [u64; 3] {
    [0, 1, 2].map(|word| match world.with(index, capability, Call::CapabilityToken { word }) {
        Outcome::Answer(0, word) => word,
        other => panic!("{other:?}"),
    })
}

fn enter(world: &mut World, index: usize, [first, second, seal]: [u64; 3]) -> Outcome {
    world.by(index, Call::CapabilityEnter { slot: SLOT, first, second, seal })
}

/// Two domains with an environment each: the first one's, and another.
fn two(world: &mut World) -> (DomainId, DomainId, usize) {
    let own = env::domain(&world.state, 1);
    let other = world.domain();
    let index = world.spawn(other);
    (own, other, index)
}

#[test]
fn a_token_enters_what_it_was_made_of() {
    let mut world = World::new();
    let (own, other, index) = two(&mut world);
    give(&mut world, own, SLOT, &[300, 7], READ | DERIVE);
    let told = token(&mut world, 1, SLOT as u8);
    assert_eq!(enter(&mut world, index, told), OK);
    assert_eq!(held(&world, other, SLOT), held(&world, own, SLOT));
    // As often as one likes, and by its first holder, too.
    assert_eq!(enter(&mut world, 1, told), OK);
}

#[test]
fn every_bit_of_a_token_counts() {
    let mut world = World::new();
    let (own, other, index) = two(&mut world);
    give(&mut world, own, SLOT, &[300, 7], READ | DERIVE);
    let told = token(&mut world, 1, SLOT as u8);
    for bit in 0..192 {
        let mut forged = told;
        forged[bit / 64] ^= 1 << (bit % 64);
        let outcome = enter(&mut world, index, forged);
        assert_eq!(outcome, error(Error::NotPermitted, 0), "bit {bit}");
        assert_eq!(held(&world, other, SLOT), None, "bit {bit}");
    }
}

#[test]
fn each_error_of_tokens() {
    let mut world = World::new();
    let (own, _, _) = two(&mut world);
    give(&mut world, own, SLOT, &[300, 7], READ | WRITE | CONTROL);
    let make = |word| Call::CapabilityToken { word };
    assert_eq!(world.with(1, SLOT as u8, make(2)), error(Error::NotPermitted, 0), "no DERIVE");
    assert_eq!(world.with(1, 0, make(3)), error(Error::BadArgument, 0));
    assert_eq!(world.with(1, 9, make(0)), error(Error::NoSuchCapability, 0));
    let [first, second, seal] = token(&mut world, 1, 0);
    let call = Call::CapabilityEnter { slot: 16, first, second, seal };
    assert_eq!(world.by(1, call), error(Error::BadArgument, 0));
}

#[test]
fn what_is_taken_back_is_gone_with_everything_below() {
    let mut world = World::new();
    let (own, other, index) = two(&mut world);
    give(&mut world, own, SLOT, &[300], CONTROL | DERIVE);
    give(&mut world, other, SLOT, &[300, 7], READ);
    give(&mut world, other, OTHER, &[300], READ);
    give(&mut world, other, 7, &[300, 7, 1], READ);
    give(&mut world, other, 8, &[301, 7], READ);
    let told = token(&mut world, 1, SLOT as u8);
    let retract = Call::CapabilityRetract { extend: 1, components: 7 };
    assert_eq!(world.with(1, SLOT as u8, retract), OK);
    // At once, though no list has been looked at.
    assert_eq!(held(&world, other, SLOT), None);
    assert_eq!(held(&world, other, 7), None);
    assert!(held(&world, other, OTHER).is_some(), "what lies above stays");
    assert!(held(&world, other, 8).is_some(), "what lies beside stays");
    assert!(held(&world, own, SLOT).is_some(), "the asker's stay");
    assert!(retract::under_way(&world.state));
    while retract::under_way(&world.state) {
        work::begin(&mut world.state);
        work::step(&mut world.state, &mut world.machine);
    }
    assert_eq!(held(&world, other, SLOT), None);
    assert_eq!(held(&world, other, 7), None);
    assert!(held(&world, other, OTHER).is_some());
    // 300 is no account's: tokens of that part of the names are worth nothing any more.
    assert_eq!(enter(&mut world, index, told), error(Error::NotPermitted, 0));
}

#[test]
fn names_that_domains_were_made_with_stay() {
    let mut world = World::new();
    let (_, other, _) = two(&mut world);
    let name = held(&world, other, 0).unwrap().name;
    give(&mut world, other, SLOT, &name.components[..usize::from(name.length)], READ);
    let account = Call::CapabilityRetract { extend: 1, components: u64::from(NAME_ACCOUNT) + 1 };
    assert_eq!(world.with(1, ROOT, account), OK);
    assert!(held(&world, other, 0).is_some(), "its own");
    assert_eq!(held(&world, other, SLOT), None, "the same name, granted");
}

#[test]
fn a_second_retraction_waits_for_the_first() {
    let mut world = World::new();
    let (own, other, _) = two(&mut world);
    give(&mut world, other, SLOT, &[300], READ);
    give(&mut world, other, OTHER, &[301], READ);
    let take = |component| Call::CapabilityRetract { extend: 1, components: component };
    assert_eq!(world.with(1, ROOT, take(300)), OK);
    assert_eq!(world.with(1, ROOT, take(301)), Outcome::Again);
    assert!(held(&world, other, OTHER).is_some(), "nothing has happened");
    work::begin(&mut world.state);
    while work::step(&mut world.state, &mut world.machine) {
        work::begin(&mut world.state);
    }
    assert_eq!(world.with(1, ROOT, take(301)), OK);
    assert_eq!(held(&world, other, OTHER), None);
    give(&mut world, own, SLOT, &[300], READ | WRITE | DERIVE);
    assert_eq!(world.with(1, SLOT as u8, take(1)), error(Error::NotPermitted, 0), "no CONTROL");
    let long = Call::CapabilityRetract { extend: 4, components: 0 };
    assert_eq!(world.with(1, ROOT, long), error(Error::BadArgument, 0));
    let wide = Call::CapabilityRetract { extend: 1, components: 1 << 16 };
    assert_eq!(world.with(1, ROOT, wide), error(Error::BadArgument, 1));
}

#[test]
fn who_kept_an_account_s_name_has_nothing_of_the_next_one() {
    let mut world = World::new();
    let (_, other, index) = two(&mut world);
    let first = AccountId(world.state.published.accounts[1].id);
    let make = Call::AccountAlloc { which: Which::This(5), parent: first };
    let Outcome::Answer(0, id) = world.with(1, ROOT, make) else { panic!() };
    let name = world.state.accounts.record(5).name;
    let kept = &name.components[..usize::from(name.length)];
    give(&mut world, other, SLOT, kept, READ | DERIVE);
    let told = token(&mut world, index, SLOT as u8);
    let end = Call::AccountDestroy { account: AccountId(id as u32) };
    assert_eq!(world.with(1, ROOT, end), OK);
    for _ in 0..1_000 {
        work::begin(&mut world.state);
        work::step(&mut world.state, &mut world.machine);
    }
    let Outcome::Answer(0, next) = world.with(1, ROOT, make) else { panic!("not given again") };
    assert_ne!(id, next);
    assert_eq!(world.state.accounts.record(5).name, name, "the name is the same");
    assert_eq!(account::find(&world.state, AccountId(next as u32)), Ok(5));
    assert_eq!(held(&world, other, SLOT), None);
    assert_eq!(enter(&mut world, index, told), error(Error::NotPermitted, 0));
}

#[test]
fn slots_are_passed_on_as_they_are_or_not_at_all() {
    let mut world = World::new();
    let (own, other, index) = two(&mut world);
    give(&mut world, own, 3, &[300], READ | DERIVE);
    give(&mut world, own, SLOT, &[301, 4], ALL);
    give(&mut world, own, OTHER, &[302], READ | WRITE);
    let pass = |domain, slots| Call::CapabilityPass { domain, slots };
    let refused = world.with(1, ROOT, pass(other, 1 << 3 | 1 << OTHER));
    assert_eq!(refused, error(Error::NotPermitted, OTHER.into()), "without DERIVE");
    assert_eq!(held(&world, other, 3), None, "nothing has happened");
    let slots = 1 << 3 | 1 << SLOT | 1 << 9;
    assert_eq!(world.with(1, ROOT, pass(other, slots)), Outcome::Answer(0, 1 << 3 | 1 << SLOT));
    for slot in [3, SLOT] {
        assert_eq!(held(&world, other, slot), held(&world, own, slot));
    }
    assert_eq!(held(&world, other, 9), None);
    // Whoever may not write the receiver.
    assert_eq!(world.with(index, 0, pass(own, 1 << 3)), error(Error::NotPermitted, 0));
    assert_eq!(world.with(1, ROOT, pass(DomainId(99), 8)), error(Error::NoSuchDomain, 0));
}
