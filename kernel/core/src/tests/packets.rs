//! Packets to the interface itself, and packets that claim to come from it.

use super::turns::{domain_of, process, user};
use super::*;
use crate::net;
use abi::id::RingId;
use abi::limits::Resource;
use abi::trace::{ALL_KINDS, Event, Kind};
use abi::upcall::EVENT_SENT;

/// The interface's address as a word: 2.0.0.0.0.9 on the wire.
const MAC: u64 = 0x0900_0000_0002;
/// Where the packet, the word beside it and the ring's only entry lie.
const PACKET: u64 = SCRATCH + 0x100;
const PENDING: u64 = SCRATCH + 0x200;
const OWNER: u64 = SCRATCH + 0x300;
const BUFFER: u64 = SCRATCH + 0x400;

/// A world with an interface, and a packet to itself whose byte 12 is `kind`.
fn world(kind: u8) -> World {
    let mut world = World::new();
    net::attach(&mut world.state, 0, MAC);
    world.poke(1, PACKET, MAC | 0x0002 << 48);
    world.poke(1, PACKET + 8, 0x0900_0000 | u64::from(kind) << 32);
    world.poke(1, PENDING, 1);
    world
}

/// Claims packets whose byte 12 is 5 into a ring of one buffer.
fn claim(world: &mut World) {
    world.put(1, &[OWNER, BUFFER, 64]);
    let alloc = Call::RingAlloc { entries: UserAddress(SCRATCH), count: 1 };
    let Outcome::Answer(0, ring) = world.by(1, alloc) else { panic!("no ring") };
    let mut words = vec![1 << 32, ring, 0];
    words.extend([12 | 0xff00_0000 << 32, 0x0500_0000]);
    words.resize(3 + 24, 0);
    world.put(1, &words);
    assert_ne!(RingId(ring), RingId::NONE);
    let insert = Call::FilterInsert { program: UserAddress(SCRATCH) };
    assert!(matches!(world.by(1, insert), Outcome::Answer(0, _)));
}

fn transmit(world: &mut World) -> Outcome {
    // In two pieces, the first of which ends within the address.
    world.put(1, &[PACKET, 3, PACKET + 3, 13]);
    let (pieces, pending) = (UserAddress(SCRATCH), UserAddress(PENDING));
    world.by(1, Call::NetTransmit { interface: 0, pieces, count: 2, pending })
}

#[test]
fn a_packet_to_oneself_comes_back() {
    let mut world = world(5);
    claim(&mut world);
    assert_eq!(transmit(&mut world), OK);
    assert_eq!(world.peek(1, OWNER), 16, "the length hands the buffer over");
    assert_eq!(world.peek(1, BUFFER), world.peek(1, PACKET));
    assert_eq!(world.peek(1, PENDING), 0);
    assert_ne!(world.saved(1, offset::EVENTS) & EVENT_SENT, 0);
    assert!(world.machine.sending.is_empty(), "the device sees nothing of it");
}

#[test]
fn the_sender_hears_that_nobody_wants_it() {
    let mut world = world(6);
    claim(&mut world);
    assert_eq!(transmit(&mut world), Outcome::Answer(0, 1));
    assert_eq!(world.peek(1, OWNER), 0);
    assert_eq!(world.peek(1, PENDING), 0);
}

/// Who shares the interface speaks to the others for itself, and for no station on the wire.
#[test]
fn the_sender_speaks_for_itself_alone() {
    let mut world = world(5);
    claim(&mut world);
    world.poke(1, PACKET + 8, 0x0800_0000 | 5 << 32);
    assert_eq!(transmit(&mut world), Outcome::Answer(0, 1));
    assert_eq!(world.peek(1, OWNER), 0);
    assert_eq!(world.peek(1, PENDING), 0);
}

#[test]
fn what_goes_elsewhere_goes_to_the_device() {
    let mut world = world(5);
    claim(&mut world);
    world.poke(1, PACKET, (MAC ^ 1) | 0x0002 << 48);
    assert_eq!(transmit(&mut world), OK);
    assert_eq!(world.machine.sending.len(), 1);
    assert_eq!(world.peek(1, OWNER), 0);
}

#[test]
fn the_wire_does_not_speak_for_the_interface() {
    let mut world = world(5);
    claim(&mut world);
    let mut packet = [0; 16];
    packet[12] = 5;
    packet[6..12].copy_from_slice(&MAC.to_le_bytes()[..6]);
    net::receive(&mut world.state, &mut world.machine, 0, &packet);
    assert_eq!(world.peek(1, OWNER), 0);
    packet[11] ^= 1;
    net::receive(&mut world.state, &mut world.machine, 0, &packet);
    assert_eq!(world.peek(1, OWNER), 16);
}

#[test]
fn packets_are_traced_with_who_gets_them() {
    let mut world = world(5);
    world.machine.tracing = ALL_KINDS;
    claim(&mut world);
    let env = world.id(1).0;
    let ring = world.state.published.rings[1].id;
    assert_eq!(transmit(&mut world), OK);
    let mut packet = [0; 60];
    net::receive(&mut world.state, &mut world.machine, 0, &packet);
    packet[12] = 5;
    // The ring's only buffer has not been given back.
    net::receive(&mut world.state, &mut world.machine, 0, &packet);
    let of_ring = |kind, len| Event { argument: ring, ..Event::new(kind, len, env) };
    let expected = [
        Event::new(Kind::PacketOut, 16, env),
        of_ring(Kind::PacketIn, 16),
        Event::new(Kind::PacketIn, 60, 0),
        of_ring(Kind::PacketDropped, 60),
    ];
    assert_eq!(world.machine.traced, expected);
}

/// A user that may have half of what the queue takes, as accountd gives it, with so much kept.
fn sender(world: &mut World) -> usize {
    let (account, _) = user(world);
    let domain = domain_of(world, account);
    let resource = Resource::Sends as u16;
    let all = world.state.accounts.machine[usize::from(resource)];
    let (limit, reserve) = (all / 2, all / 128);
    let call = Call::AccountLimit { account, resource, limit, reserve };
    assert_eq!(world.by(1, call), OK);
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.state.domains.records[domain.into()].capabilities[usize::from(ROOT)] = root;
    process(world, (account, domain))
}

/// Sends a packet in pieces of so many bytes.
fn send(world: &mut World, index: usize, pieces: &[u64]) -> Outcome {
    let words: Vec<u64> = pieces.iter().flat_map(|&len| [PACKET, len]).collect();
    world.put(index, &words);
    let (count, pieces) = (pieces.len() as u64, UserAddress(SCRATCH));
    let pending = UserAddress(PENDING);
    world.by(index, Call::NetTransmit { interface: 0, pieces, count, pending })
}

/// Packets of one account under way, however many, or in however many pieces, leave others what is
/// kept for them of the device's queue.
#[test]
fn packets_under_way_leave_others_their_part() {
    let mut scattered = vec![128];
    scattered.extend([1; 15]);
    for pieces in [vec![20], scattered] {
        let mut world = World::new();
        net::attach(&mut world.state, 0, MAC);
        let [many, few] = [(); 2].map(|()| sender(&mut world));
        let most = world.state.accounts.machine[Resource::Sends as usize];
        let sent = (0..most).take_while(|_| send(&mut world, many, &pieces) == OK).count();
        assert!(sent > 1 && sent < most as usize, "{sent} of {most}");
        assert_eq!(send(&mut world, many, &pieces), error(Error::WouldBlock, 0));
        assert_eq!(send(&mut world, few, &[20]), OK, "{sent} packets under way");
    }
}
