//! Capabilities on the way: tokens, and what is taken back.

use crate::index::EnvIndex;

use super::*;
use crate::{account, capability, retract, work};
use abi::capability::{CONTROL, DERIVE, NAME_ACCOUNT, NAME_FRESH, READ, WRITE};
use abi::limits::Resource;

/// Slots of the tests' own.
const SLOT: u16 = 5;
const OTHER: u16 = 6;

fn held(world: &World, domain: DomainId, slot: u16) -> Option<Capability> {
    capability::get(&world.state, domain.into(), slot as u8).ok()
}

fn give(world: &mut World, domain: DomainId, slot: u16, name: &[u16], rights: u8) {
    let list = &mut world.state.domains.records[domain.into()].capabilities;
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
    let own = env::domain(&world.state, EnvIndex::new(1));
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
    give(&mut world, own, OTHER, &[300, 7, 2], DERIVE);
    let (above, told) = (token(&mut world, 1, SLOT as u8), token(&mut world, 1, OTHER as u8));
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
        work::anybodys(&mut world.state, &mut world.machine);
    }
    assert_eq!(held(&world, other, SLOT), None);
    assert_eq!(held(&world, other, 7), None);
    assert!(held(&world, other, OTHER).is_some());
    // So it is with tokens.
    assert_eq!(enter(&mut world, index, told), error(Error::NotPermitted, 0));
    assert_eq!(enter(&mut world, index, above), OK, "what lies above stays");
}

/// What one's own name and that of an account, of a device, of another one are worth in tokens.
fn told_of(world: &mut World, domain: DomainId, index: usize) -> [[u64; 3]; 4] {
    give(world, domain, SLOT, &[NAME_ACCOUNT + 1, 9], DERIVE);
    give(world, domain, OTHER, &[1, 9, 7], DERIVE);
    give(world, domain, 7, &[1, 9, 8, 5], DERIVE);
    [0, SLOT as u8, OTHER as u8, 7].map(|slot| token(world, index, slot))
}

#[test]
fn anybody_voids_everybodys_tokens() {
    let mut world = World::new();
    let (own, victims) = (world.domain(), world.domain());
    let (attacker, victim) = (world.spawn(own), world.spawn(victims));
    let told = told_of(&mut world, victims, victim);
    // It takes back what it has control over: its own name, and what lies below, time and again.
    for round in 0..300 {
        let retract = Call::CapabilityRetract { extend: 1, components: round };
        assert_eq!(world.with(attacker, 0, retract), OK);
        world.settle();
    }
    give(&mut world, own, SLOT, &[1, 9, 9], CONTROL);
    for round in 0..300 {
        let retract = Call::CapabilityRetract { extend: 1, components: round };
        assert_eq!(world.with(attacker, SLOT as u8, retract), OK);
        world.settle();
    }
    for told in told {
        assert_eq!(enter(&mut world, victim, told), OK, "void");
    }
}

#[test]
fn a_retraction_voids_the_tokens_below() {
    // The name, how many components it is extended by, and which of four tokens are void then.
    for (name, void) in [
        (&[][..], [true, true, true, true]),
        (&[1], [false, false, true, true]),
        (&[1, 9, 8], [false, false, false, true]),
        (&[1, 9, 7], [false, false, true, false]),
        (&[NAME_ACCOUNT + 1], [false, true, false, false]),
        (&[NAME_FRESH], [true, false, false, false]),
        (&[NAME_ACCOUNT + 1, 9], [false, true, false, false]),
        (&[NAME_ACCOUNT + 2], [false; 4]),
    ] {
        let mut world = World::new();
        let (own, others) = (world.domain(), world.domain());
        let (taker, index) = (world.spawn(own), world.spawn(others));
        let told = told_of(&mut world, others, index);
        give(&mut world, own, SLOT, name, CONTROL);
        let retract = Call::CapabilityRetract { extend: 0, components: 0 };
        assert_eq!(world.with(taker, SLOT as u8, retract), OK);
        world.settle();
        let found = told.map(|told| enter(&mut world, index, told) != OK);
        assert_eq!(found, void, "{name:?}");
    }
}

#[test]
fn a_token_outlives_neither_its_domain_nor_what_took_it_back() {
    let mut world = World::new();
    let (maker, others) = (world.domain(), world.domain());
    let (index, receiver) = (world.spawn(maker), world.spawn(others));
    let told = token(&mut world, index, 0);
    assert_eq!(enter(&mut world, receiver, told), OK);
    assert_eq!(world.by(1, Call::DomainDestroy { domain: maker }), OK);
    world.settle();
    assert_eq!(enter(&mut world, receiver, told), error(Error::NotPermitted, 0));
    // Nor is one sealed for it: nothing could make it void.
    let made = world.with(receiver, SLOT as u8, Call::CapabilityToken { word: 2 });
    assert_eq!(made, error(Error::NotPermitted, 0));
    // Nor does a name that was taken back come to be good by others that are.
    let told = told_of(&mut world, others, receiver)[2];
    for device in [7].into_iter().chain(100..400) {
        give(&mut world, others, 8, &[1, 9, device], CONTROL);
        let retract = Call::CapabilityRetract { extend: 0, components: 0 };
        assert_eq!(world.with(receiver, 8, retract), OK);
        world.settle();
        assert_eq!(enter(&mut world, receiver, told), error(Error::NotPermitted, 0), "{device}");
    }
}

#[test]
fn names_that_domains_were_made_with_stay() {
    let mut world = World::new();
    let (_, other, _) = two(&mut world);
    let name = held(&world, other, 0).unwrap().name;
    give(&mut world, other, SLOT, &name.components[..usize::from(name.length)], READ);
    let fresh = Call::CapabilityRetract { extend: 1, components: NAME_FRESH.into() };
    assert_eq!(world.with(1, ROOT, fresh), OK);
    assert!(held(&world, other, 0).is_some(), "its own");
    assert_eq!(held(&world, other, SLOT), None, "the same name, granted");
}

/// An account's own second one waits; nobody else's does.
#[test]
fn retractions_do_not_wait_for_other_accounts() {
    let mut world = World::new();
    let (_, other, index) = two(&mut world);
    let first = AccountId(world.state.published.accounts[1].id);
    let make = Call::AccountAlloc { which: Which::Any, parent: first };
    let Outcome::Answer(0, id) = world.with(1, ROOT, make) else { panic!() };
    let resource = Resource::Retractions as u16;
    let limit = Call::AccountLimit { account: AccountId(id), resource, limit: 1, reserve: 1 };
    world.state.domains.records[other.into()].account = AccountId(id).index() as u16;
    let none = error(Error::OverQuota, resource.into());
    assert_eq!(world.with(index, ROOT, Call::CapabilityRetract { extend: 1, components: 9 }), none);
    assert_eq!(world.with(1, ROOT, limit), OK);
    let third = world.domain();
    for (slot, name) in [(SLOT, 300), (OTHER, 301), (7, 302)] {
        give(&mut world, third, slot, &[name], READ);
    }
    let take = |component| Call::CapabilityRetract { extend: 1, components: component };
    assert_eq!(world.with(1, ROOT, take(300)), OK);
    assert_eq!(world.with(1, ROOT, take(302)), Outcome::Again);
    assert_eq!(world.with(index, ROOT, take(301)), OK, "beside it");
    assert_eq!([SLOT, OTHER].map(|slot| held(&world, third, slot)), [None; 2]);
    assert!(held(&world, third, 7).is_some());
    // Each ends when it has seen all lists since it began.
    work::begin(&mut world.state);
    work::spend(&mut world.state, work::PIECE - 5_000);
    let account = crate::index::AccountIndex::from(AccountId(id));
    retract::work(&mut world.state, account);
    assert!(retract::under_way(&world.state));
    while retract::under_way(&world.state) {
        work::begin(&mut world.state);
        retract::work(&mut world.state, crate::account::FIRST);
        retract::work(&mut world.state, account);
    }
    let list = &world.state.domains.records[third.into()].capabilities;
    assert_eq!(list[usize::from(SLOT)].rights | list[usize::from(OTHER)].rights, 0);
    assert_eq!(world.with(1, ROOT, take(302)), OK);
    world.state.domains.records[other.into()].account = 1;
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
    while work::anybodys(&mut world.state, &mut world.machine) {
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
    let name = world.state.accounts.record(AccountIndex::new(5)).name;
    let kept = &name.components[..usize::from(name.length)];
    give(&mut world, other, SLOT, kept, READ | DERIVE);
    let told = token(&mut world, index, SLOT as u8);
    let end = Call::AccountDestroy { account: AccountId(id) };
    assert_eq!(world.with(1, ROOT, end), OK);
    for _ in 0..1_000 {
        work::begin(&mut world.state);
        work::anybodys(&mut world.state, &mut world.machine);
    }
    let Outcome::Answer(0, next) = world.with(1, ROOT, make) else { panic!("not given again") };
    assert_ne!(id, next);
    assert_eq!(
        world.state.accounts.record(AccountIndex::new(5)).name,
        name,
        "the name is the same"
    );
    assert_eq!(account::find(&world.state, AccountId(next)), Ok(5.into()));
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

fn derive(slot: u16, extend: u16, components: u64, rights: u16) -> Call {
    Call::CapabilityDerive { domain: DomainId::NONE, slot, extend, components, rights }
}

#[test]
fn derive_a_right_that_one_has_not() {
    let mut world = World::new();
    let (own, _, _) = two(&mut world);
    for source in 1..=ALL {
        give(&mut world, own, SLOT, &[300], source);
        for rights in 0..=u16::from(ALL) + 1 {
            give(&mut world, own, OTHER, &[], 0);
            let outcome = world.with(1, SLOT as u8, derive(OTHER, 1, 7, rights));
            let entered = held(&world, own, OTHER);
            let fits = u8::try_from(rights).is_ok_and(|rights| rights & !source == 0);
            match fits && rights != 0 {
                true => {
                    let name = Name::of(&[300, 7]);
                    let expected = Capability { rights: rights as u8, zero: 0, name };
                    assert_eq!((outcome, entered), (OK, Some(expected)), "{rights} of {source}");
                }
                false => {
                    let wrong = rights == 0 || rights > 0xff;
                    let refused = if wrong { Error::BadArgument } else { Error::NotPermitted };
                    let value = if wrong { 4 } else { 0 };
                    assert_eq!(outcome, error(refused, value), "{rights} of {source}");
                    assert_eq!(entered, None);
                }
            }
        }
    }
}

#[test]
fn each_error_of_deriving() {
    let mut world = World::new();
    let (own, other, index) = two(&mut world);
    give(&mut world, own, SLOT, &[300, 1, 2, 3], READ);
    let mut by = |call| world.with(1, SLOT as u8, call);
    assert_eq!(by(derive(16, 0, 0, 1)), error(Error::BadArgument, 1));
    assert_eq!(by(derive(OTHER, 4, 0, 1)), error(Error::BadArgument, 2));
    assert_eq!(by(derive(OTHER, 1, 1 << 16, 1)), error(Error::BadArgument, 3));
    assert_eq!(by(derive(OTHER, 3, 0, 1)), error(Error::TooLarge, 6), "six components at most");
    assert_eq!(by(derive(15, 2, 0x5_0004, 1)), OK);
    let name = Name::of(&[300, 1, 2, 3, 4, 5]);
    assert_eq!(held(&world, own, 15), Some(Capability { rights: READ, zero: 0, name }));
    // To another domain: over its guard, and what may be passed on.
    let to = Call::CapabilityDerive {
        domain: other,
        slot: OTHER,
        extend: 0,
        components: 0,
        rights: READ.into(),
    };
    let refused = error(Error::NotPermitted, 0);
    give(&mut world, own, 0, &[], WRITE);
    assert_eq!(world.with(1, SLOT as u8, to), refused, "without DERIVE");
    give(&mut world, own, SLOT, &[300], READ | DERIVE);
    give(&mut world, own, 0, &[301], ALL);
    assert_eq!(world.with(1, SLOT as u8, to), refused, "with no right over the domain");
    assert_eq!(held(&world, other, OTHER), None);
    give(&mut world, own, 0, &[], WRITE);
    assert_eq!(world.with(1, SLOT as u8, to), OK);
    let entered = Capability { rights: READ, zero: 0, name: Name::of(&[300]) };
    assert_eq!(held(&world, other, OTHER), Some(entered));
    // And to be dropped.
    let drop = |slot| Call::CapabilityDrop { slot };
    assert_eq!(world.by(index, drop(16)), error(Error::BadArgument, 0));
    assert_eq!(world.by(index, drop(OTHER)), OK);
    assert_eq!(held(&world, other, OTHER), None);
}
