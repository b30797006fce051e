//! Regions: rights by role, one atomic operation, what a fault leaves alone, how they end.

use crate::index::EnvIndex;

use super::*;
use crate::work::PIECE;
use abi::limits::{REGION_COPY_BYTES, REGION_FRAMES, REGION_PLACES, Resource};
use abi::region::{COPY_IN, COPY_NONE, COPY_OUT, ONE_GUEST, RegionOperation, WordAt};

/// Program memory that is copied from and to.
const DATA: u64 = SCRATCH + 0x400;

pub fn operation(region: RegionId, role: u8) -> RegionOperation {
    RegionOperation { region: region.0, role, ..RegionOperation::default() }
}

pub fn operate(world: &mut World, index: usize, operation: &RegionOperation) -> Outcome {
    let last = u64::from(operation.len)
        | u64::from(operation.compares) << 32
        | u64::from(operation.writes) << 40
        | u64::from(operation.direction) << 48
        | u64::from(operation.role) << 56;
    let mut words = vec![operation.region, operation.address, operation.offset, last];
    for word in operation.compare.iter().chain(&operation.write) {
        words.extend([word.offset, word.value]);
    }
    world.put(index, &words);
    world.by(index, Call::RegionOperate { operation: UserAddress(SCRATCH) })
}

fn alloc(world: &mut World, index: usize, frames: &[u32]) -> Outcome {
    let words: Vec<u64> = frames
        .chunks(2)
        .map(|pair| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32)
        .collect();
    world.put(index, &words);
    let count = frames.len() as u64;
    world.by(index, Call::RegionAlloc { frames: UserAddress(SCRATCH), count })
}

fn region(world: &mut World, index: usize, frames: &[u32]) -> RegionId {
    match alloc(world, index, frames) {
        Outcome::Answer(0, id) => RegionId(id),
        other => panic!("{other:?}"),
    }
}

fn attach(region: RegionId, role: u16) -> Call {
    Call::RegionAttach { region, role, domain: DomainId::NONE }
}

fn write(offset: u64, value: u64) -> WordAt {
    WordAt { offset, value }
}

#[test]
fn compare_copy_write_is_one_step() {
    for frames in [&[][..], &[u32::MAX, u32::MAX][..]] {
        let mut world = World::new();
        let id = region(&mut world, 1, frames);
        assert_eq!(world.by(1, attach(id, 0)), OK);
        let mut first = operation(id, 0);
        first.writes = 2;
        first.write[0] = write(0, 7);
        first.write[1] = write(8, 8);
        assert_eq!(operate(&mut world, 1, &first), OK);
        let mut second = operation(id, 0);
        second.compares = 2;
        second.compare[0] = write(0, 7);
        second.compare[1] = write(8, 9);
        second.writes = 1;
        second.write[0] = write(0, 1);
        assert_eq!(operate(&mut world, 1, &second), error(Error::Changed, 8));
        second.compare[1] = write(8, 8);
        assert_eq!(operate(&mut world, 1, &second), OK);
        assert_eq!(operate(&mut world, 1, &second), error(Error::Changed, 1));
        // Data goes in and comes out, over a frame's edge where there is one.
        let offset = if frames.is_empty() { 13 } else { 4090 };
        let mut copy = operation(id, 0);
        (copy.direction, copy.address, copy.offset, copy.len) = (COPY_IN, DATA, offset, 16);
        world.poke(1, DATA, 0x1122_3344_5566_7788);
        world.poke(1, DATA + 8, 42);
        assert_eq!(operate(&mut world, 1, &copy), OK);
        (copy.direction, copy.address) = (COPY_OUT, DATA + 0x100);
        assert_eq!(operate(&mut world, 1, &copy), OK);
        assert_eq!(world.peek(1, DATA + 0x100), 0x1122_3344_5566_7788);
        assert_eq!(world.peek(1, DATA + 0x108), 42);
        assert_eq!(world.state.published.regions[id.index()].operations, 4);
    }
}

#[test]
fn a_fault_leaves_every_word_alone_and_the_call_runs_again() {
    let mut world = World::new();
    let id = region(&mut world, 1, &[]);
    assert_eq!(world.by(1, attach(id, 0)), OK);
    let mut copy = operation(id, 0);
    (copy.direction, copy.address, copy.len) = (COPY_IN, 0x60_0000, 8);
    copy.writes = 1;
    copy.write[0] = write(56, 9);
    let Outcome::Fault(fault) = operate(&mut world, 1, &copy) else { panic!() };
    assert_eq!((fault.address, fault.write), (0x60_0000, false));
    let mut compare = operation(id, 0);
    compare.compares = 1;
    compare.compare[0] = write(56, 0);
    assert_eq!(operate(&mut world, 1, &compare), OK);
    copy.direction = COPY_OUT;
    let Outcome::Fault(fault) = operate(&mut world, 1, &copy) else { panic!() };
    assert!(fault.write);
    let domain = env::domain(&world.state, EnvIndex::new(1)).index();
    world.map(domain, 0x60_0000);
    assert_eq!(operate(&mut world, 1, &copy), OK);
}

#[test]
fn each_refusal_of_an_operation() {
    let mut world = World::new();
    let id = region(&mut world, 1, &[]);
    let base = operation(id, 2);
    assert_eq!(operate(&mut world, 1, &base), error(Error::NotPermitted, 0), "not attached");
    assert_eq!(world.by(1, attach(id, 2)), OK);
    assert_eq!(operate(&mut world, 1, &base), OK);
    let none = operation(RegionId(99), 0);
    assert_eq!(operate(&mut world, 1, &none), error(Error::NoSuchRegion, 0));
    let writes = RegionOperation { writes: 1, ..base };
    assert_eq!(operate(&mut world, 1, &writes), error(Error::NotPermitted, 0), "a reader");
    let copies = RegionOperation { direction: COPY_IN, address: DATA, ..base };
    assert_eq!(operate(&mut world, 1, &copies), error(Error::NotPermitted, 0));
    assert_eq!(world.by(1, attach(id, 1)), OK);
    let base = operation(id, 1);
    for bad in [
        RegionOperation { compares: 5, ..base },
        RegionOperation { writes: 5, ..base },
        RegionOperation { direction: 3, ..base },
        RegionOperation { role: 4, ..base },
    ] {
        let outcome = operate(&mut world, 1, &bad);
        assert!(matches!(outcome, Outcome::Answer(2, _)), "{outcome:?}");
    }
    let words = |offset| [write(offset, 0); 4];
    let copy = RegionOperation { direction: COPY_OUT, address: DATA, len: 8, ..base };
    for bad in [
        RegionOperation { compares: 1, compare: words(4), ..base },
        RegionOperation { compares: 1, compare: words(64), ..base },
        RegionOperation { writes: 1, write: words(u64::MAX - 7), ..base },
        RegionOperation { offset: 57, ..copy },
        RegionOperation { offset: u64::MAX, ..copy },
        RegionOperation { address: abi::layout::DIRECT_MAP, ..copy },
        RegionOperation { address: u64::MAX - 3, ..copy },
    ] {
        assert_eq!(operate(&mut world, 1, &bad), error(Error::BadAddress, 0));
    }
    let large = RegionOperation { len: REGION_COPY_BYTES as u32 + 1, ..copy };
    assert_eq!(operate(&mut world, 1, &large), error(Error::TooLarge, REGION_COPY_BYTES as u64));
    assert_eq!(base.direction, COPY_NONE);
}

#[test]
fn each_refusal_of_making_and_attaching() {
    let mut world = World::new();
    let elsewhere = world.domain();
    let foreign = world.spawn(elsewhere);
    let before = world.census();
    let many = vec![u32::MAX; REGION_FRAMES + 1];
    assert_eq!(alloc(&mut world, 1, &many), error(Error::TooLarge, REGION_FRAMES as u64));
    assert_eq!(alloc(&mut world, 1, &[u32::MAX, 0]), error(Error::NoSuchFrame, 0));
    let taken = env::vector(&world.state, EnvIndex::new(1)).unwrap();
    assert_eq!(alloc(&mut world, 1, &[u32::MAX, taken.0]), error(Error::Taken, 0));
    let address = UserAddress(abi::layout::PROGRAM_END - 2 * PAGE_SIZE);
    let call = Call::RegionAlloc { frames: UserAddress(address.0 + 4095), count: 4 };
    assert_eq!(world.by(1, call), error(Error::BadAddress, 0));
    let call = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 0 };
    assert_eq!(world.with(1, 9, call), error(Error::NoSuchCapability, 0));
    assert_eq!(world.census(), before, "what was refused left nothing");
    let [regions, attachments] = [Resource::Regions, Resource::Attachments];
    let all = world.state.published.accounts[1].limit;
    let may_have = |world: &mut World, resource: Resource, more: u32| {
        let record = &mut world.state.published.accounts[1];
        record.limit[resource as usize] = record.used[resource as usize] + more;
    };
    may_have(&mut world, regions, 1);
    may_have(&mut world, attachments, 0);
    let id = region(&mut world, 1, &[u32::MAX]);
    assert_eq!(alloc(&mut world, 1, &[]), error(Error::OverQuota, regions as u64));
    assert_eq!(world.by(1, attach(id, 0)), error(Error::OverQuota, attachments as u64));
    world.state.published.accounts[1].limit = all;
    assert_eq!(world.by(1, attach(id, 4)), error(Error::BadArgument, 1));
    assert_eq!(world.by(1, attach(RegionId(99), 0)), error(Error::NoSuchRegion, 0));
    let domain = DomainId(99);
    let call = Call::RegionAttach { region: id, role: 0, domain };
    assert_eq!(world.by(1, call), error(Error::NoSuchDomain, 0));
    assert_eq!(world.with(foreign, 0, attach(id, 0)), error(Error::NotPermitted, 0));
    let detach = Call::RegionDetach { region: id, role: 0 };
    assert_eq!(world.by(1, detach), error(Error::NotPermitted, 0));
    assert_eq!(world.by(1, attach(id, 0)), OK);
    assert_eq!(world.with(1, 0, attach(id, 0)), OK, "who is attached may again");
    assert_eq!(world.state.published.regions[id.index()].attached, [2, 0, 0, 0]);
    assert_eq!(world.by(1, detach), OK);
    assert_eq!(world.by(1, detach), OK);
    assert_eq!(world.by(1, detach), error(Error::NoSuchRegion, 0), "it has ended");
    let mut ids = vec![];
    while let Outcome::Answer(0, id) = alloc(&mut world, 1, &[]) {
        ids.push(RegionId(id));
    }
    assert_eq!(alloc(&mut world, 1, &[]), error(Error::Exhausted, 0));
    for id in &ids {
        for role in 0..4 {
            assert_eq!(world.by(1, attach(*id, role)), OK);
        }
    }
    let domain = world.domain();
    let other = world.spawn(domain);
    let outcomes: Vec<Outcome> = ids.iter().map(|id| world.by(other, attach(*id, 0))).collect();
    assert_eq!(outcomes[0], OK);
    assert_eq!(outcomes[ids.len() - 1], error(Error::Exhausted, 0));
}

#[test]
fn the_last_writer_is_gone_when_the_count_says_so() {
    let mut world = World::new();
    let before = world.census();
    let (a, b) = (world.domain(), world.domain());
    let (writer, reader) = (world.spawn(a), world.spawn(b));
    let id = region(&mut world, writer, &[u32::MAX]);
    assert_eq!(world.by(writer, attach(id, 0)), OK);
    let call = Call::RegionAttach { region: id, role: 2, domain: b };
    assert_eq!(world.by(writer, call), OK, "by its name, for another domain");
    assert_eq!(world.state.published.regions[id.index()].attached, [1, 0, 1, 0]);
    let call = Call::EnvDestroy { env: world.id(writer), word: 0 };
    assert_eq!(world.by(1, call), OK);
    assert_eq!(world.state.published.regions[id.index()].attached, [0, 0, 1, 0]);
    let mut read = operation(id, 2);
    (read.direction, read.address, read.len) = (COPY_OUT, DATA, 8);
    assert_eq!(operate(&mut world, reader, &read), OK);
    let call = Call::EnvDestroy { env: world.id(reader), word: 0 };
    assert_eq!(world.by(1, call), OK);
    for index in [writer, reader] {
        let id = world.id(index);
        assert_eq!(world.by(1, Call::EnvForget { env: id }), OK);
    }
    assert_eq!(world.census(), before);
}

fn pass(domain: DomainId, count: u64) -> Call {
    Call::RegionPass { domain, places: UserAddress(SCRATCH), count }
}

fn place(region: RegionId, role: u64) -> [u64; 2] {
    [region.0, role]
}

#[test]
fn places_are_passed_one_after_the_other_also_in_pieces() {
    for spent in [0, PIECE] {
        let mut world = World::new();
        let before = world.census();
        let to = world.domain();
        let other = world.spawn(to);
        let ids = [region(&mut world, 1, &[]), region(&mut world, 1, &[u32::MAX])];
        for (id, role) in [(ids[0], 0), (ids[0], 2), (ids[1], 1)] {
            assert_eq!(world.by(1, attach(id, role)), OK);
        }
        let places = [place(ids[0], 2), place(ids[1], 1), place(ids[0], 0), place(ids[0], 2)];
        world.put(1, places.as_flattened());
        world.machine.context(1).r10 = 0;
        let mut call = pass(to, 4);
        for round in 0.. {
            world.spent = spent;
            match world.by(1, call) {
                Outcome::Again => {
                    let context = world.machine.context(1);
                    let (places, count) = (UserAddress(context.rsi), context.rdx);
                    call = Call::RegionPass { domain: to, places, count };
                }
                outcome => {
                    assert_eq!(outcome, Outcome::Answer(0, 4));
                    assert_eq!(round, if spent == 0 { 0 } else { 3 }, "a place at a time");
                    break;
                }
            }
        }
        world.spent = 0;
        let attached =
            |world: &World, id: RegionId| world.state.published.regions[id.index()].attached;
        assert_eq!(attached(&world, ids[0]), [2, 0, 3, 0]);
        assert_eq!(attached(&world, ids[1]), [0, 2, 0, 0]);
        assert_eq!(world.state.published.domains[to.index()].attachments, 3);
        // The receiver may use them, and its end takes them along.
        let mut read = operation(ids[0], 2);
        (read.direction, read.address, read.len) = (COPY_OUT, DATA, 8);
        assert_eq!(operate(&mut world, other, &read), OK);
        let env = world.id(other);
        assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
        assert_eq!(world.by(1, Call::EnvForget { env }), OK);
        assert_eq!(attached(&world, ids[0]), [1, 0, 1, 0]);
        for (id, role) in [(ids[0], 0), (ids[0], 2), (ids[1], 1)] {
            assert_eq!(world.by(1, Call::RegionDetach { region: id, role }), OK);
        }
        assert_eq!(world.census(), before);
    }
}

#[test]
fn each_refusal_of_passing() {
    let mut world = World::new();
    let to = world.domain();
    let other = world.spawn(to);
    let (id, foreign) = (region(&mut world, 1, &[]), region(&mut world, other, &[]));
    assert_eq!(world.by(1, attach(id, 0)), OK);
    assert_eq!(world.by(other, attach(foreign, 0)), OK);
    world.machine.context(1).r10 = 0;
    world.put(1, &place(id, 0));
    assert_eq!(world.by(1, pass(DomainId(99), 1)), error(Error::NoSuchDomain, 0));
    assert_eq!(world.by(1, pass(DomainId::NONE, 1)), error(Error::NoSuchDomain, 0));
    assert_eq!(world.with(1, 0, pass(to, 1)), error(Error::NotPermitted, 0), "no right over it");
    assert_eq!(world.with(1, 9, pass(to, 1)), error(Error::NoSuchCapability, 0));
    let most = REGION_PLACES as u64;
    assert_eq!(world.by(1, pass(to, most + 1)), error(Error::TooLarge, most));
    let nowhere = UserAddress(abi::layout::PROGRAM_END - PAGE_SIZE - 4);
    let call = Call::RegionPass { domain: to, places: nowhere, count: 1 };
    assert_eq!(world.by(1, call), error(Error::BadAddress, 0));
    for (bad, why) in [
        (place(RegionId(99), 0), Error::NoSuchRegion),
        (place(id, 4), Error::BadArgument),
        (place(id, 1 << 16), Error::BadArgument),
        (place(id, 1), Error::NotPermitted),
        (place(foreign, 0), Error::NotPermitted),
    ] {
        // Nothing is passed of the bad one, and what came before it stays.
        let attached = world.state.published.regions[id.index()].attached[0];
        world.put(1, [place(id, 0), bad, place(id, 0)].as_flattened());
        assert_eq!(world.by(1, pass(to, 3)), error(why, 1), "{bad:x?}");
        assert_eq!(world.state.published.regions[id.index()].attached, [attached + 1, 0, 0, 0]);
    }
    assert_eq!(world.state.published.regions[foreign.index()].attached, [1, 0, 0, 0]);
    let another = region(&mut world, 1, &[]);
    assert_eq!(world.by(1, attach(another, 3)), OK);
    let attachments = Resource::Attachments as usize;
    let used = world.state.published.accounts[1].used[attachments];
    world.state.published.accounts[1].limit[attachments] = used;
    world.put(1, [place(id, 0), place(another, 3)].as_flattened());
    assert_eq!(world.by(1, pass(to, 2)), error(Error::OverQuota, 1));
    world.state.published.accounts[1].limit[attachments] = u32::MAX;
    assert_eq!(world.by(1, pass(to, 0)), OK, "none");
}

/// Of two domains that may attach, one is let into a region of `ONE_GUEST`, once: the first, which
/// may bring others. The region's maker comes and goes beside it.
#[test]
fn one_guest_is_let_in_by_a_capability() {
    for (guests, answer) in [(0, OK), (ONE_GUEST, error(Error::Taken, 0))] {
        let mut world = World::new();
        let [(brought, one), (_, other)] = [0; 2].map(|_| {
            let domain = world.domain();
            (domain, world.spawn(domain))
        });
        let call = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: guests };
        let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no region") };
        let id = RegionId(id);
        assert_eq!(world.by(1, attach(id, 0)), OK, "its maker");
        // One that is refused is no guest.
        assert_eq!(world.with(one, 9, attach(id, 1)), error(Error::NoSuchCapability, 0));
        let places = Resource::Attachments as usize;
        let limit = world.state.published.accounts[1].limit[places];
        world.state.published.accounts[1].limit[places] = 1;
        assert_eq!(world.by(one, attach(id, 1)), error(Error::OverQuota, places as u64));
        world.state.published.accounts[1].limit[places] = limit;
        assert_eq!(world.by(other, attach(id, 1)), OK);
        for role in 0..4 {
            assert_eq!(world.by(one, attach(id, role)), answer, "role {role}");
        }
        assert_eq!(world.by(1, attach(id, 1)), OK, "its maker");
        assert_eq!(world.by(other, attach(id, 1)), OK, "in the role in which it is there");
        assert_eq!(world.by(other, attach(id, 3)), answer, "in another role");
        // The guest brings another domain, which has no way in of its own.
        let bring = Call::RegionAttach { region: id, role: 1, domain: brought };
        assert_eq!(world.by(other, bring), OK);
        assert_eq!(world.by(one, attach(id, 1)), OK, "in the role in which it is there");
        assert_eq!(world.by(one, attach(id, 0)), answer);
        // There is no other one when it has left.
        for _ in 0..2 {
            assert_eq!(world.by(other, Call::RegionDetach { region: id, role: 1 }), OK);
        }
        assert_eq!(world.by(one, attach(id, 2)), answer);
        assert_eq!(world.by(other, attach(id, 1)), answer);
    }
}
