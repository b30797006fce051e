//! What refers to an object finds that one or nothing, whatever has become of its place since.

use crate::index::EnvIndex;

use super::*;
use crate::identity::{Serial, Thread};
use crate::region;
use abi::id::{FilterId, RingId};
use abi::predicate::{Operator, Source};
use abi::ring::RingEntry;

/// Uses of a place after which ids of 16 bits of generation would have begun again.
const AGAIN: u64 = 1 << 16;

fn region_of(world: &mut World, index: usize) -> RegionId {
    let make = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 0 };
    let Outcome::Answer(0, id) = world.by(index, make) else { panic!("no region") };
    RegionId(id)
}

fn attach(world: &mut World, index: usize, region: RegionId) -> Outcome {
    let domain = DomainId::NONE;
    world.by(index, Call::RegionAttach { region, role: 0, domain })
}

fn detach(world: &mut World, index: usize, region: RegionId) -> Outcome {
    world.by(index, Call::RegionDetach { region, role: 0 })
}

/// The place of a region that has ended is used as often as it takes an id of 30 bits to come
/// again; the next region there is the victim's.
fn place_of(world: &mut World, ended: RegionId, victim: usize) -> RegionId {
    let serial = &mut world.state.regions.slots[RegionIndex::new(ended.index())].serial;
    assert_eq!(serial.number(), ended.serial() + 1);
    *serial = Serial::after(ended.serial() + AGAIN - 1);
    let between = region_of(world, victim);
    assert_eq!(between.index(), ended.index());
    assert_eq!(attach(world, victim, between), OK);
    assert_eq!(detach(world, victim, between), OK);
    let other = region_of(world, victim);
    assert_eq!(other.index(), ended.index());
    other
}

/// An account below the one at `parent`, with so much of everything.
fn account_below(world: &mut World, parent: AccountId) -> AccountId {
    let make = Call::AccountAlloc { which: Which::Any, parent };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no account") };
    let account = AccountId(id);
    for resource in 0..RESOURCES as u16 {
        let call = Call::AccountLimit { account, resource, limit: 100, reserve: 0 };
        assert_eq!(world.by(1, call), OK);
    }
    account
}

/// A domain with the root name and a page for arguments, charged to an account.
fn domain_of(world: &mut World, account: AccountId) -> DomainId {
    let (which, root) = (Which::Any, Which::Any);
    let make = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no domain") };
    let domain = DomainId(id);
    world.state.domains.records[domain.into()].capabilities[usize::from(ROOT)] =
        Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.map(domain.index(), SCRATCH);
    domain
}

fn first_account(world: &World) -> AccountId {
    AccountId(world.state.published.accounts[1].id)
}

#[test]
fn destroying_the_first_account() {
    let mut world = World::new();
    let account = first_account(&world);
    let before = world.census();
    assert_eq!(world.by(1, Call::AccountDestroy { account }), error(Error::NotPermitted, 0));
    assert_eq!(world.census(), before);
    // Nor by a program of another account, with every right.
    let other = account_below(&mut world, account);
    let domain = domain_of(&mut world, other);
    let program = world.spawn(domain);
    assert_eq!(world.by(program, Call::AccountDestroy { account }), error(Error::NotPermitted, 0));
    world.settle();
    assert_eq!(world.state_of(1), EnvState::Ready);
}

#[test]
fn destroying_the_account_that_one_is_in() {
    let mut world = World::new();
    let before = world.census();
    let first = first_account(&world);
    let above = account_below(&mut world, first);
    let own = account_below(&mut world, above);
    let domain = domain_of(&mut world, own);
    let program = world.spawn(domain);
    let id = world.id(program);
    assert_eq!(world.by(program, Call::AccountDestroy { account: above }), Outcome::Left);
    world.on(0, 1);
    assert_eq!(world.by(1, Call::AccountDestroy { account: own }), error(Error::NoSuchAccount, 0));
    assert_eq!(world.by(1, Call::EnvForget { env: id }), OK);
    assert_eq!(world.census(), before);
    assert_eq!(world.state.accounts.dying, 0);
}

#[test]
fn predicate_reads_the_next_owners_region() {
    let mut world = World::new();
    let (own, others) = (world.domain(), world.domain());
    let (attacker, victim) = (world.spawn_masked(own), world.spawn(others));
    let id = region_of(&mut world, attacker);
    assert_eq!(attach(&mut world, attacker, id), OK);
    // Its first word is at least that.
    const LEAST: u64 = 0x5ec0;
    let first = Operator::AtLeast as u64
        | (Source::Region as u64) << 8
        | (Source::Constant as u64) << 16
        | 1 << 24;
    world.put(attacker, &[first, id.0, 0, LEAST, 0]);
    let set = Call::PredicateSet { atoms: UserAddress(SCRATCH), count: 1 };
    assert_eq!(world.by(attacker, set), OK);
    assert_eq!(detach(&mut world, attacker, id), OK);
    assert!(region::find(&world.state, id).is_err());
    let other = place_of(&mut world, id, victim);
    assert_eq!(attach(&mut world, victim, other), OK);
    let at = region::physical(&world.state, RegionIndex::new(other.index()), 0);
    for secret in [0, LEAST - 1, LEAST, u64::MAX] {
        world.machine.word_set(at, secret);
        let holds =
            crate::predicate::holds(&mut world.state, &mut world.machine, EnvIndex::new(attacker));
        assert!(holds, "a region that has ended counts as true, whatever is in {secret:#x}");
    }
}

/// A domain attached to a region whose account has been destroyed, and the one that has its place.
fn outlived() -> (World, usize, RegionId) {
    let mut world = World::new();
    let (own, others) = (world.domain(), world.domain());
    let (attacker, victim) = (world.spawn(own), world.spawn(others));
    let first = first_account(&world);
    let account = account_below(&mut world, first);
    let tenant = domain_of(&mut world, account);
    let maker = world.spawn(tenant);
    let id = region_of(&mut world, maker);
    assert_eq!(attach(&mut world, maker, id), OK);
    assert_eq!(attach(&mut world, attacker, id), OK);
    assert_eq!(world.by(1, Call::AccountDestroy { account }), OK);
    world.settle();
    assert!(region::find(&world.state, id).is_err(), "the account's region is gone");
    assert_eq!(region::records(&world.state, own.into()), 0, "the attachment went with it");
    let other = place_of(&mut world, id, victim);
    assert_eq!(attach(&mut world, victim, other), OK);
    (world, attacker, other)
}

#[test]
fn attachment_outlives_its_region_into_anothers() {
    let (world, attacker, other) = outlived();
    let own = env::domain(&world.state, EnvIndex::new(attacker)).index();
    assert!(!region::attached_any(
        &world.state,
        DomainIndex::new(own),
        RegionIndex::new(other.index())
    ));
}

#[test]
fn detaching_what_one_was_never_attached_to() {
    let (mut world, attacker, other) = outlived();
    assert_eq!(detach(&mut world, attacker, other), error(Error::NotPermitted, 0));
    // Its end takes nothing of the other's along.
    let domain = env::domain(&world.state, EnvIndex::new(attacker));
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    world.settle();
    assert_eq!(world.state.published.regions[other.index()].attached, [1, 0, 0, 0]);
}

/// A ring of one buffer, whose owner word and buffer lie in the page for arguments.
fn ring_of(world: &mut World, index: usize) -> RingId {
    let entry =
        RingEntry { owner: SCRATCH + 0x300, buffer: SCRATCH + 0x400, capacity: 64, zero: 0 };
    world.poke(index, entry.owner, 0);
    world.put(index, &[entry.owner, entry.buffer, entry.capacity.into()]);
    let make = Call::RingAlloc { entries: UserAddress(SCRATCH), count: 1 };
    let Outcome::Answer(0, id) = world.by(index, make) else { panic!("no ring") };
    RingId(id)
}

/// A filter for packets of one type that go to a ring of one's own.
fn filter_of(world: &mut World, index: usize, ring: RingId) -> FilterId {
    use abi::capability::{DEVICE_NETWORK, NAME_DEVICE, WRITE};
    super::filters::give(world, index, 9, WRITE, &[NAME_DEVICE, DEVICE_NETWORK, 0]);
    let mut words = vec![1 << 32, ring.0, 0, 12 | 0xff00_0000 << 32, 0x0500_0000];
    words.resize(27, 0);
    world.put(index, &words);
    let insert = Call::FilterInsert { program: UserAddress(SCRATCH) };
    let Outcome::Answer(0, filter) = world.by(index, insert) else { panic!("no filter") };
    FilterId(filter)
}

fn packet() -> [u8; 32] {
    let mut packet = [0x77; 32];
    packet[12] = 5;
    packet
}

#[test]
fn packets_of_a_filter_whose_ring_has_gone() {
    let mut world = World::new();
    crate::net::attach(&mut world.state, 0, 0x0900_0000_0002);
    let [servers, heirs, own] = [0; 3].map(|_| world.domain());
    let (server, _heir) = (world.spawn(servers), world.spawn(heirs));
    let attacker = world.spawn(own);
    let ring = ring_of(&mut world, server);
    let filter = filter_of(&mut world, server, ring);
    // As a fork child's: it has the filter, and is to give it a ring.
    assert_eq!(world.by(server, Call::FilterReference { filter, domain: heirs }), OK);
    assert_eq!(world.by(1, Call::DomainDestroy { domain: servers }), OK);
    world.settle();
    assert_eq!(world.state.published.filters[filter.index()].references, 1);
    let serial = &mut world.state.net.rings[ring.index()].serial;
    *serial = Serial::after(ring.serial() + AGAIN - 1);
    let between = ring_of(&mut world, attacker);
    assert_eq!(world.by(attacker, Call::RingFree { ring: between }), OK);
    let last = ring_of(&mut world, attacker);
    assert_eq!([between.index(), last.index()], [ring.index(); 2]);
    crate::net::receive(&mut world.state, &mut world.machine, 0, &packet());
    assert_eq!(world.peek(attacker, SCRATCH + 0x300), 0, "delivered to who has the ring's place");
}

/// To hold a filter's reference is a domain's own business, or of who may give it capabilities.
#[test]
fn reference_for_a_domain_that_was_not_asked() {
    let mut world = World::new();
    crate::net::attach(&mut world.state, 0, 0x0900_0000_0002);
    let [own, others] = [0; 2].map(|_| world.domain());
    let attacker = world.spawn(own);
    let ring = ring_of(&mut world, attacker);
    let name = Name::of(&[300, 1]);
    let list = &mut world.state.domains.records[own.into()].capabilities;
    list[usize::from(ROOT)] = Capability { rights: ALL, zero: 0, name };
    let filter = filter_of(&mut world, attacker, ring);
    let give = Call::FilterReference { filter, domain: others };
    assert_eq!(world.by(attacker, give), error(Error::NotPermitted, 0));
    assert_eq!(world.state.net.held[others.index()], 0);
    // By a right over it.
    let guard = world.state.domains.records[others.into()].guard;
    world.state.domains.records[others.into()].guard = name;
    assert_eq!(world.by(attacker, give), OK);
    world.state.domains.records[others.into()].guard = guard;
}

#[test]
fn news_for_a_thread_whose_id_has_come_again() {
    let mut world = World::new();
    crate::net::attach(&mut world.state, 0, 0x0900_0000_0002);
    let domain = world.domain();
    let (stays, maker) = (world.spawn_masked(domain), world.spawn_masked(domain));
    let ring = ring_of(&mut world, maker);
    filter_of(&mut world, maker, ring);
    let thread = Thread::of(&world.state, EnvIndex::new(maker));
    assert_eq!(thread.living(&world.state), Some(EnvIndex::new(maker)));
    // Another thread of the same space, with the same id.
    let id = world.id(maker);
    for uses in 1.. {
        let old = world.id(maker);
        assert_eq!(world.by(stays, Call::EnvDestroy { env: old, word: 0 }), OK);
        assert_eq!(world.by(1, Call::EnvForget { env: old }), OK);
        assert_eq!(world.spawn_masked(domain), maker);
        if world.id(maker) == id {
            assert!(uses > 1);
            break;
        }
    }
    assert_eq!(thread.living(&world.state), None);
    crate::net::receive(&mut world.state, &mut world.machine, 0, &packet());
    assert_eq!(world.peek(maker, SCRATCH + 0x300), 32, "the ring is the space's");
    assert_eq!(world.saved(maker, offset::EVENTS), 0, "told of what another one asked for");
}

#[test]
fn place_is_used_after_its_last_serial() {
    let mut world = World::new();
    let one = region_of(&mut world, 1);
    assert_eq!(attach(&mut world, 1, one), OK);
    assert_eq!(detach(&mut world, 1, one), OK);
    world.state.regions.slots[RegionIndex::new(one.index())].serial = Serial::before_the_last(1);
    let (mut places, mut ids) = (vec![], vec![]);
    for _ in 0..4 {
        let id = region_of(&mut world, 1);
        assert!((id.0 as i64) > 0);
        assert_eq!(attach(&mut world, 1, id), OK);
        assert_eq!(detach(&mut world, 1, id), OK);
        places.push(id.index());
        ids.push(id);
    }
    let place = one.index();
    assert_eq!(places, [place, place, place + 1, place + 1]);
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn place_is_asked_for_by_number_after_its_last_serial() {
    let mut world = World::new();
    let first = first_account(&world);
    let asked = Call::AccountAlloc { which: Which::This(9), parent: first };
    world.state.accounts.records[AccountIndex::new(9)].serial = Serial::before_the_last(0).next();
    assert_eq!(world.by(1, asked), error(Error::Taken, 0));
    let (which, root) = (Which::This(9), Which::Any);
    world.state.domains.records[9.into()].serial = Serial::before_the_last(0).next();
    let asked = Call::DomainAlloc { which, account: first, root, window: 0, bytes: u64::MAX };
    assert_eq!(world.by(1, asked), error(Error::Taken, 0));
}
