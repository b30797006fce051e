//! Who may claim, redirect and overhear packets, by filters.

use crate::index::EnvIndex;

use super::*;
use crate::net;
use crate::net::filter::HOLDERS;
use abi::capability::{DEVICE_NETWORK, NAME_DEVICE, READ, WRITE};
use abi::filter::{COPY, SUBSETTABLE};
use abi::id::{FilterId, RingId};
use abi::limits::Resource;

/// Where the rings' only entry has its owner word and its buffer.
const OWNER: u64 = SCRATCH + 0x800;
const BUFFER: u64 = SCRATCH + 0x840;
/// Slots for names of their own, and for a right over the interface.
const OWN: u8 = 5;
const INTERFACE: u8 = 6;
/// Byte 12 and the two behind it, each with a value.
const TYPE: (u16, u32, u32) = (12, 0xff00_0000, 0x0500_0000);
const NEXT: (u16, u32, u32) = (12, 0x00ff_0000, 0x0006_0000);
const LAST: (u16, u32, u32) = (12, 0x0000_ff00, 0x0000_0700);

/// A world with an interface, and an environment beside the first one. Each of both has a
/// name of its own and a ring.
struct Wire {
    world: World,
    other: usize,
    rings: [RingId; 2],
}

impl Wire {
    fn new() -> Self {
        let mut world = World::new();
        net::attach(&mut world.state, 0, 0x0900_0000_0002);
        let domain = world.domain();
        let other = world.spawn(domain);
        let rings = [1, other].map(|index| {
            give(&mut world, index, OWN, ALL, &[300 + index as u16]);
            ring(&mut world, index)
        });
        Self { world, other, rings }
    }

    fn first(&mut self, flags: u16, atoms: &[(u16, u32, u32)]) -> FilterId {
        let ring = self.rings[0];
        filter(insert(&mut self.world, 1, OWN, flags, ring, atoms))
    }

    fn second(&mut self, flags: u16, atoms: &[(u16, u32, u32)]) -> Outcome {
        insert(&mut self.world, self.other, OWN, flags, self.rings[1], atoms)
    }
}

pub fn give(world: &mut World, index: usize, slot: u8, rights: u8, name: &[u16]) {
    let domain = env::domain(&world.state, EnvIndex::new(index)).index();
    world.state.domains.records[DomainIndex::new(domain)].capabilities[usize::from(slot)] =
        Capability { rights, zero: 0, name: Name::of(name) };
}

fn ring(world: &mut World, index: usize) -> RingId {
    world.put(index, &[OWNER, BUFFER, 64]);
    let alloc = Call::RingAlloc { entries: UserAddress(SCRATCH), count: 1 };
    match world.by(index, alloc) {
        Outcome::Answer(0, id) => RingId(id),
        other => panic!("{other:?}"),
    }
}

fn insert(
    world: &mut World,
    index: usize,
    slot: u8,
    flags: u16,
    ring: RingId,
    atoms: &[(u16, u32, u32)],
) -> Outcome {
    let mut halves = vec![u32::from(flags) << 16, atoms.len() as u32];
    // The ring, and no parent.
    halves.extend([ring.0 as u32, (ring.0 >> 32) as u32, 0, 0]);
    halves.extend(atoms.iter().flat_map(|&(offset, mask, value)| [offset.into(), mask, value]));
    halves.resize(halves.len().max(54).next_multiple_of(2), 0);
    let pairs = halves.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32);
    let words: Vec<u64> = pairs.collect();
    world.put(index, &words);
    world.with(index, slot, Call::FilterInsert { program: UserAddress(SCRATCH) })
}

fn filter(outcome: Outcome) -> FilterId {
    match outcome {
        Outcome::Answer(0, id) => FilterId(id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn redirect_a_filter_to_a_foreign_ring() {
    let mut wire = Wire::new();
    let id = wire.first(0, &[TYPE]);
    let [own, foreign] = wire.rings;
    let redirect = |ring| Call::FilterRing { filter: id, ring };
    let world = &mut wire.world;
    assert_eq!(world.with(1, OWN, redirect(foreign)), error(Error::NoSuchRing, 0));
    let refused = insert(world, 1, OWN, 0, foreign, &[LAST]);
    assert_eq!(refused, error(Error::NoSuchRing, 0));
    assert_eq!(net::filter::ring(&world.state, id.index()), own);
    // Nor may the ring's owner take the packets to it.
    assert_eq!(world.with(wire.other, OWN, redirect(foreign)), error(Error::NotPermitted, 0));
    let second = ring(world, 1);
    assert_eq!(world.with(1, OWN, redirect(second)), OK);
    assert_eq!(net::filter::ring(&world.state, id.index()), second);
}

#[test]
fn overhear_with_a_right_to_read() {
    let mut wire = Wire::new();
    let (other, ring) = (wire.other, wire.rings[1]);
    let world = &mut wire.world;
    let device = [NAME_DEVICE, DEVICE_NETWORK, 0];
    for rights in [READ, ALL & !WRITE, WRITE, ALL & !READ] {
        give(world, other, INTERFACE, rights, &device);
        let refused = insert(world, other, INTERFACE, COPY, ring, &[]);
        assert_eq!(refused, error(Error::NotPermitted, 0), "{rights:#x}");
    }
    give(world, other, INTERFACE, READ | WRITE, &device);
    filter(insert(world, other, INTERFACE, COPY, ring, &[]));
}

/// What has no right over the interface takes no packets, and stands in no other's way.
#[test]
fn a_domain_without_the_network_claims_nothing() {
    let mut wire = Wire::new();
    let (other, ring) = (wire.other, wire.rings[1]);
    let domain = env::domain(&wire.world.state, EnvIndex::new(other)).index();
    let list = &mut wire.world.state.domains.records[DomainIndex::new(domain)].capabilities;
    for (slot, capability) in list.iter_mut().enumerate() {
        if slot != usize::from(OWN) {
            *capability = Capability::default();
        }
    }
    let before = wire.world.census();
    assert_eq!(wire.second(0, &[TYPE]), error(Error::NotPermitted, 0), "a name of its own");
    let others = [NAME_DEVICE, DEVICE_NETWORK, 1];
    give(&mut wire.world, other, INTERFACE, WRITE, &others);
    assert_eq!(wire.second(0, &[TYPE]), error(Error::NotPermitted, 0), "another interface");
    let device = [NAME_DEVICE, DEVICE_NETWORK, 0];
    give(&mut wire.world, other, INTERFACE, ALL & !WRITE, &device);
    assert_eq!(wire.second(0, &[TYPE]), error(Error::NotPermitted, 0), "no right to send");
    assert_eq!(wire.world.census(), before);
    give(&mut wire.world, other, INTERFACE, WRITE, &device);
    filter(insert(&mut wire.world, other, OWN, 0, ring, &[TYPE]));
}

#[test]
fn lay_a_filter_around_a_foreign_one() {
    let mut wire = Wire::new();
    let open = wire.first(SUBSETTABLE, &[TYPE, NEXT]);
    let overlap = error(Error::Overlap, open.0);
    // Around it, across it, the same.
    assert_eq!(wire.second(0, &[TYPE]), overlap);
    assert_eq!(wire.second(SUBSETTABLE, &[TYPE]), overlap);
    assert_eq!(wire.second(0, &[TYPE, LAST]), overlap);
    assert_eq!(wire.second(0, &[TYPE, NEXT]), overlap);
    filter(wire.second(0, &[TYPE, NEXT, LAST]));
}

#[test]
fn lay_a_filter_within_a_closed_one() {
    let mut wire = Wire::new();
    let closed = wire.first(0, &[TYPE, NEXT]);
    let overlap = error(Error::Overlap, closed.0);
    assert_eq!(wire.second(0, &[TYPE, NEXT, LAST]), overlap);
    assert_eq!(wire.second(0, &[TYPE]), overlap);
    // Its owner may, on both sides.
    wire.first(0, &[TYPE, NEXT, LAST]);
    wire.first(0, &[TYPE]);
}

#[test]
fn a_filter_may_have_as_many_atoms_as_are_allowed() {
    use abi::limits::FILTER_ATOMS;
    let mut wire = Wire::new();
    let atoms: Vec<_> = (0..=FILTER_ATOMS as u16).map(|at| (12 + 4 * at, 0xff, 1)).collect();
    let too_large = error(Error::TooLarge, FILTER_ATOMS as u64);
    assert_eq!(wire.second(0, &atoms), too_large);
    filter(wire.second(0, &atoms[..FILTER_ATOMS]));
}

#[test]
fn use_a_dropped_filters_id() {
    let mut wire = Wire::new();
    let stale = wire.first(0, &[TYPE]);
    let drop = |filter| Call::FilterDrop { filter };
    assert_eq!(wire.world.by(1, drop(stale)), OK);
    let own = wire.rings[0];
    for _ in 0..3 {
        let id = wire.first(0, &[TYPE]);
        assert_eq!(id.index(), stale.index(), "the index is used again");
        let world = &mut wire.world;
        for call in [
            drop(stale),
            Call::FilterRing { filter: stale, ring: own },
            Call::FilterReference { filter: stale, domain: DomainId::NONE },
        ] {
            assert_eq!(world.by(1, call), error(Error::NoSuchFilter, 0), "{call:?}");
        }
        assert_eq!(world.state.published.filters[id.index()].references, 1);
        assert_eq!(world.by(1, drop(id)), OK);
    }
}

#[test]
fn use_a_freed_rings_id() {
    let mut wire = Wire::new();
    let stale = wire.rings[0];
    let id = wire.first(0, &[TYPE]);
    let world = &mut wire.world;
    assert_eq!(world.by(1, Call::RingFree { ring: stale }), OK);
    let fresh = ring(world, 1);
    assert_eq!(fresh.index(), stale.index(), "the index is used again");
    let redirect = Call::FilterRing { filter: id, ring: stale };
    assert_eq!(world.with(1, OWN, redirect), error(Error::NoSuchRing, 0));
    assert_eq!(world.by(1, Call::RingFree { ring: stale }), error(Error::NoSuchRing, 0));
    // What the filter still names is nobody's: packets for it go nowhere.
    let mut packet = [0; 60];
    packet[12] = 5;
    net::receive(&mut world.state, &mut world.machine, 0, &packet);
    assert_eq!(world.state.published.filters[id.index()].matched, 1);
    assert_eq!(world.state.published.rings[fresh.index()].delivered, 0);
    assert_eq!(world.peek(1, OWNER), 0);
}

#[test]
fn a_reference_counts_once() {
    let mut wire = Wire::new();
    let id = wire.first(0, &[TYPE]);
    let other = wire.other;
    let world = &mut wire.world;
    let domain = env::domain(&world.state, EnvIndex::new(other));
    let references = |world: &World| world.state.published.filters[id.index()].references;
    let refer = Call::FilterReference { filter: id, domain };
    for count in 2..=HOLDERS as u32 {
        assert_eq!(world.by(1, refer), OK);
        assert_eq!(references(world), count);
    }
    assert_eq!(world.by(1, refer), error(Error::Exhausted, HOLDERS as u64));
    let drop = Call::FilterDrop { filter: id };
    assert_eq!(world.by(1, drop), OK);
    assert_eq!(world.by(1, drop), error(Error::NoSuchFilter, 0), "it has none any more");
    for left in (0..HOLDERS as u32 - 1).rev() {
        assert_eq!(world.by(other, drop), OK);
        assert_eq!(references(world), left);
    }
    assert_eq!(world.by(other, drop), error(Error::NoSuchFilter, 0));
    assert_eq!(world.state.net.ordered, 0, "the last reference was the filter's end");
    assert_eq!(world.state.published.accounts[1].used[Resource::Filters as usize], 0);
}

/// A domain that ends gives up no more references in a hold of the lock than there is room for.
#[test]
fn references_go_where_there_is_room() {
    use crate::work::{self, PIECE, cost};
    let mut wire = Wire::new();
    for number in 1..=4 {
        wire.first(0, &[(12, 0xff00_0000, number << 24)]);
    }
    let state = &mut wire.world.state;
    let domain = env::domain(state, EnvIndex::new(1)).into();
    let looks = (state.net.filters.len() + state.net.rings.len()) as u32;
    work::begin(state);
    work::spend(state, PIECE - cost::LOOK * looks - 2 * cost::REFERENCE);
    assert!(!net::end_domain(state, domain));
    assert_eq!((state.net.ordered, state.spent), (2, PIECE));
    work::begin(state);
    assert!(net::end_domain(state, domain));
    assert_eq!(state.net.ordered, 0);
    work::end(state);
}

/// Where a packet and the word beside it lie.
const PACKET: u64 = SCRATCH + 0x900;
const PENDING: u64 = SCRATCH + 0x980;

/// Datagrams over IPv4 to this port.
fn port(number: u16) -> [(u16, u32, u32); 2] {
    [(20, 0x3fff_00ff, 17), (34, 0xffff, number.into())]
}

/// The environment sends a datagram to the interface itself, from one port to another one, with
/// these flags (not to be cut: 0x40); does a filter get it?
fn datagram(world: &mut World, index: usize, ports: [u16; 2], flags: u8) -> bool {
    let link = [2, 0, 0, 0, 0, 9];
    let mut packet = [&link[..], &link, &[8, 0, 0x45]].concat();
    packet.resize(42, 0);
    (packet[20], packet[23]) = (flags, 17);
    packet[34..36].copy_from_slice(&ports[0].to_be_bytes());
    packet[36..38].copy_from_slice(&ports[1].to_be_bytes());
    packet.resize(48, 0);
    for (at, word) in packet.chunks(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        world.poke(index, PACKET + 8 * at as u64, word);
    }
    world.poke(index, PENDING, 1);
    world.put(index, &[PACKET, 42]);
    let (pieces, pending) = (UserAddress(SCRATCH), UserAddress(PENDING));
    let call = Call::NetTransmit { interface: 0, pieces, count: 1, pending };
    match world.with(index, INTERFACE, call) {
        Outcome::Answer(0, unclaimed) => unclaimed == 0,
        other => panic!("{other:?}"),
    }
}

/// A domain that has the interface sends to this machine from no port of another domain's.
#[test]
fn a_port_speaks_for_its_owner_alone() {
    let mut wire = Wire::new();
    let other = wire.other;
    for index in [1, other] {
        give(&mut wire.world, index, INTERFACE, WRITE, &[NAME_DEVICE, DEVICE_NETWORK, 0]);
    }
    // It holds nothing over the first one's filters.
    for slot in [0, ROOT] {
        give(&mut wire.world, other, slot, WRITE, &[400]);
    }
    let first = wire.first(0, &port(5700));
    filter(wire.second(0, &port(5701)));
    let world = &mut wire.world;
    assert!(datagram(world, 1, [5700, 5701], 0), "the owner");
    for flags in [0, 0x40, 0x80] {
        assert!(!datagram(world, other, [5700, 5701], flags), "flags {flags:#x}");
    }
    assert!(datagram(world, other, [5701, 5700], 0), "from its own port");
    assert!(datagram(world, other, [5702, 5700], 0), "from nobody's port");
    // One to which the owner gives a reference has the port, too.
    let domain = env::domain(&world.state, EnvIndex::new(other));
    let pass = Call::FilterReference { filter: first, domain };
    assert_eq!(world.by(1, pass), OK);
    assert!(datagram(world, other, [5700, 5701], 0), "one that has a reference");
}
