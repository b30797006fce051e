//! Entries of rings at their limits, the shortest packet, and rings whose memory is revoked.

use crate::index::EnvIndex;

use super::*;
use crate::net;
use abi::id::RingId;
use abi::limits::{PACKET_BYTES, RING_ENTRIES, Resource};

/// Where owner words and buffers lie, behind the entries.
const OWNERS: u64 = SCRATCH + 0x800;
const BUFFERS: u64 = SCRATCH + 0xa00;
/// A page that is revoked, and one with nothing behind it.
const PAGE: u64 = 0x60_0000;
/// The interface's address, as the first bytes of a packet.
const MAC: u64 = 0x0900_0000_0002;

fn world() -> World {
    let mut world = World::new();
    net::attach(&mut world.state, 0, MAC);
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    world.map(own, PAGE);
    world
}

fn alloc(world: &mut World, entries: &[[u64; 3]]) -> Outcome {
    world.put(1, entries.concat().as_slice());
    let count = entries.len() as u64;
    world.by(1, Call::RingAlloc { entries: UserAddress(SCRATCH), count })
}

fn one(owner: u64, buffer: u64, capacity: u64) -> [[u64; 3]; 1] {
    [[owner, buffer, capacity]]
}

fn ring(outcome: Outcome) -> RingId {
    match outcome {
        Outcome::Answer(0, id) => RingId(id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_entry_over_the_end_of_its_page() {
    let mut world = world();
    let too_large = error(Error::TooLarge, PAGE_SIZE);
    let bad = error(Error::BadArgument, 0);
    for (entry, answer) in [
        ((OWNERS, PAGE + PAGE_SIZE - 64, 65), bad),
        ((OWNERS, PAGE + 1, PAGE_SIZE), bad),
        ((OWNERS, PAGE, PAGE_SIZE + 1), too_large),
        ((OWNERS, PAGE, 0), too_large),
        ((OWNERS, PAGE, 64 | 1 << 32), too_large),
        ((OWNERS + 4, PAGE, 64), bad),
        ((PAGE + PAGE_SIZE, PAGE, 64), error(Error::BadAddress, PAGE + PAGE_SIZE)),
        ((OWNERS, PAGE + PAGE_SIZE, 64), error(Error::BadAddress, PAGE + PAGE_SIZE)),
    ] {
        let (owner, buffer, capacity) = entry;
        assert_eq!(alloc(&mut world, &one(owner, buffer, capacity)), answer, "{entry:x?}");
    }
    let id = ring(alloc(&mut world, &one(OWNERS, PAGE + PAGE_SIZE - 64, 64)));
    // Nor may it be put there later.
    world.put(1, &[OWNERS, PAGE + PAGE_SIZE - 64, 65]);
    let modify = |index| Call::RingModify { ring: id, index, entry: UserAddress(SCRATCH) };
    assert_eq!(world.by(1, modify(0)), bad);
    world.put(1, &[OWNERS, PAGE, PAGE_SIZE]);
    assert_eq!(world.by(1, modify(0)), OK);
    assert_eq!(world.by(1, modify(1)), error(Error::TooLarge, 1));
}

#[test]
fn a_ring_may_have_as_many_entries_as_are_allowed() {
    let mut world = world();
    let entries: Vec<[u64; 3]> =
        (0..=RING_ENTRIES as u64).map(|at| [OWNERS + 8 * at, BUFFERS + 16 * at, 16]).collect();
    let most = RING_ENTRIES as u64;
    let too_large = error(Error::TooLarge, most);
    assert_eq!(alloc(&mut world, &[]), too_large);
    // One more than that is refused before it is read.
    let call = Call::RingAlloc { entries: UserAddress(SCRATCH), count: most + 1 };
    assert_eq!(world.by(1, call), too_large);
    let id = ring(alloc(&mut world, &entries[..RING_ENTRIES]));
    let pins = |world: &World| world.state.published.accounts[1].used[Resource::Pins as usize];
    assert_eq!(u64::from(pins(&world)), 2 * most);
    // Each of them gets its packet, in order; then there is no room.
    for packet in 0..=most {
        let bytes = [packet as u8; 16];
        net::ring::deliver(&mut world.state, &mut world.machine, 0, id, &bytes);
    }
    for entry in 0..most {
        assert_eq!(world.peek(1, OWNERS + 8 * entry), 16, "entry {entry}");
        assert_eq!(world.peek(1, BUFFERS + 16 * entry), entry * 0x0101_0101_0101_0101);
    }
    assert_eq!(world.state.published.rings[id.index()].dropped, 1);
    assert_eq!(world.by(1, Call::RingFree { ring: id }), OK);
    assert_eq!(pins(&world), 0);
}

#[test]
fn transmit_less_than_a_header_or_more_than_a_packet() {
    let mut world = world();
    let mut transmit = |pieces: &[[u64; 2]]| {
        world.put(1, pieces.concat().as_slice());
        let (count, pending) = (pieces.len() as u64, UserAddress(OWNERS));
        let pieces = UserAddress(SCRATCH);
        world.by(1, Call::NetTransmit { interface: 0, pieces, count, pending })
    };
    let (shortest, longest) = (14, PACKET_BYTES as u64);
    assert_eq!(transmit(&[[PAGE, shortest - 1]]), error(Error::TooLarge, shortest));
    assert_eq!(transmit(&[[PAGE, 1], [PAGE, 12]]), error(Error::TooLarge, shortest));
    assert_eq!(transmit(&[[PAGE, longest + 1]]), error(Error::TooLarge, longest));
    assert_eq!(transmit(&[[PAGE, longest], [PAGE, 1]]), error(Error::TooLarge, longest));
    assert_eq!(transmit(&[[PAGE, 14], [PAGE, 0]]), error(Error::TooLarge, longest));
    assert_eq!(transmit(&[[PAGE, 14], [PAGE, u64::MAX]]), error(Error::TooLarge, longest));
    assert_eq!(transmit(&[[PAGE, shortest]]), OK);
    assert_eq!(transmit(&[[PAGE, longest - 14], [PAGE, 14]]), OK);
    assert_eq!(world.machine.sending.len(), 2);
}

#[test]
fn a_revoked_frame_is_in_no_ring() {
    let mut world = world();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let root = domain::root(&world.state, DomainIndex::new(own));
    let frame = table::look_up(&world.machine, root, PAGE).unwrap().frame;
    // In all the rings there may be: as owner word, as buffer, as both, with another page beside.
    let mut rings = vec![];
    loop {
        let at = 8 * rings.len() as u64;
        let entries = [
            [OWNERS + at, PAGE + at, 8],
            [PAGE + at, OWNERS + at, 8],
            [OWNERS + at, OWNERS + at, 8],
            [PAGE + at, PAGE + at, 8],
        ];
        match alloc(&mut world, &entries[rings.len() % 4..]) {
            Outcome::Answer(0, id) => rings.push(RingId(id)),
            full => break assert_eq!(full, error(Error::Exhausted, 0)),
        }
    }
    assert_eq!(rings.len() + 1, world.state.net.rings.len());
    let pinned = |world: &World| net::pins(&world.state).iter().any(|&(pin, _)| pin == frame);
    assert!(pinned(&world));
    world.by(1, Call::FrameRevoke { frame, flags: 0 });
    world.settle();
    assert!(!pinned(&world), "the frame is in a ring");
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
    let used = world.state.published.accounts[1].used[Resource::Pins as usize];
    assert_eq!(used as usize, net::pins(&world.state).len());
    // What would have gone there goes nowhere, and the other page gets what is its.
    for &id in &rings {
        for _ in 0..4 {
            net::ring::deliver(&mut world.state, &mut world.machine, 0, id, &[1; 8]);
        }
    }
    assert_eq!(world.machine.word(frame.address()), 0);
}

/// A packet is its sender's account's until it is sent, so that no account takes the whole queue.
#[test]
fn a_packet_under_way_is_paid_for() {
    let mut world = world();
    let slot = Resource::Sends as usize;
    world.state.published.accounts[1].limit[slot] = 1;
    world.put(1, &[PAGE, 40]);
    let (pieces, pending) = (UserAddress(SCRATCH), UserAddress(OWNERS));
    let call = Call::NetTransmit { interface: 0, pieces, count: 1, pending };
    assert_eq!(world.by(1, call), OK);
    assert_eq!(world.by(1, call), error(Error::WouldBlock, 0), "soon");
    net::transmit::sent(&mut world.state, &mut world.machine, 0, 0);
    assert_eq!(world.by(1, call), OK);
}

#[test]
fn transmit_when_the_device_is_full() {
    let mut world = world();
    world.put(1, &[PAGE, 20, PAGE, 200]);
    let (pieces, pending) = (UserAddress(SCRATCH), UserAddress(OWNERS));
    let call = Call::NetTransmit { interface: 0, pieces, count: 2, pending };
    // Their copied beginnings want one place, and the rest of the second one another.
    let room = world.machine.transmit_room(0);
    for taken in [room, room - 1] {
        world.machine.sending = vec![(0, 63); taken];
        assert_eq!(world.by(1, call), error(Error::WouldBlock, 0), "{taken} of {room}");
    }
    assert_eq!(world.state.published.interfaces[0].full, 2);
    assert!(net::pins(&world.state).is_empty());
    world.machine.sending = vec![(0, 63); room - 2];
    assert_eq!(world.by(1, call), OK);
}
