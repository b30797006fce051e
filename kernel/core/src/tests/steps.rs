//! Steps along a ring: what they compare, copy and move, what a fault leaves alone, who waits.

use crate::index::EnvIndex;

use super::*;
use crate::context::SYSCALL_BYTES;
use abi::call::number;
use abi::limits::{REGION_COPY_BYTES, REGION_FRAMES};
use abi::memory::{ACCESSED, DIRTY};
use abi::region::{STEP_BESIDE, STEP_IN, Step};
use abi::upcall::woken;

/// Program memory that is copied from and to.
const DATA: u64 = SCRATCH + 0x400;
/// Where the caller's `syscall` is.
const CALL: u64 = 0x1230;
/// Nobody's memory.
const ABSENT: u64 = 0x60_0000;
const HEAD: u16 = 0;
const TAIL: u16 = 1;

/// A region of so many frames, to which the first environment is attached as 0, another as 1.
fn setting(frames: u64) -> (World, Step, usize) {
    let mut world = World::new();
    world.put(1, &[u64::MAX; REGION_FRAMES.div_ceil(2)]);
    let Outcome::Answer(0, id) =
        world.by(1, Call::RegionAlloc { frames: UserAddress(SCRATCH), count: frames })
    else {
        panic!("RegionAlloc")
    };
    let region = RegionId(id);
    let domain = world.domain();
    let attach = |role, domain| Call::RegionAttach { region, role, domain };
    assert_eq!(world.by(1, attach(0, DomainId::NONE)), OK);
    assert_eq!(world.by(1, attach(1, domain)), OK);
    let reader = world.spawn_masked(domain);
    (world, Step { region: region.0, ..Step::default() }, reader)
}

fn step(world: &mut World, index: usize, step: Step, at: u64, from: u64, beside: u64) -> Outcome {
    let [which, piece, words] = step.to_words();
    world.by(index, Call::RegionStep { which, address: at, piece, words, from, beside })
}

fn wait(world: &mut World, index: usize, step: Step, from: u64, posted: u64) -> Outcome {
    let [which, piece, words] = step.to_words();
    let address = DATA;
    // As entry code leaves them.
    let context = world.machine.context(index);
    context.rip = CALL + SYSCALL_BYTES;
    context.rax = number::RegionStepOrWait.into();
    (context.rdi, context.rsi, context.rdx) = (which, address, piece);
    (context.r10, context.r8, context.r9) = (words, from, posted);
    world.by(index, Call::RegionStepOrWait { which, address, piece, words, from, posted })
}

/// Eight bytes to `offset` by the one who writes, and from there by the one who reads.
fn ends(step: Step, offset: u32) -> (Step, Step) {
    let both = Step { len: 8, offset, ..step };
    let put = Step { role: 0, flags: STEP_IN | STEP_BESIDE, moves: HEAD, beside: TAIL, ..both };
    (put, Step { role: 1, flags: 0, moves: TAIL, beside: HEAD, ..both })
}

#[test]
fn a_step_compares_copies_and_moves() {
    for (frames, offset) in [(0, 40), (2, 4092)] {
        let (mut world, base, reader) = setting(frames);
        let (put, take) = ends(base, offset);
        world.poke(1, DATA, 0x1122_3344_5566_7788);
        assert_eq!(
            step(&mut world, 1, put, DATA, 1, 0),
            error(Error::Changed, 0),
            "not from there"
        );
        assert_eq!(step(&mut world, 1, put, DATA, 0, 8), error(Error::Changed, 0), "nor beside it");
        assert_eq!(step(&mut world, 1, put, DATA, 0, 0), OK);
        assert_eq!(step(&mut world, 1, put, DATA, 0, 0), error(Error::Changed, 8), "it has moved");
        let without = Step { flags: STEP_IN, ..put };
        assert_eq!(step(&mut world, 1, without, DATA, 8, 77), OK, "what is beside does not count");
        let compares = Step { flags: STEP_BESIDE, ..take };
        assert_eq!(step(&mut world, reader, compares, DATA, 0, 8), error(Error::Changed, 16));
        assert_eq!(step(&mut world, reader, take, DATA, 0, 8), OK);
        assert_eq!(world.peek(reader, DATA), 0x1122_3344_5566_7788);
        assert_eq!(step(&mut world, reader, compares, DATA, 8, 16), OK);
        let region = RegionId(base.region).index();
        assert_eq!(world.state.published.regions[region].operations, 4);
    }
}

#[test]
fn a_fault_leaves_the_word_alone_and_the_call_runs_again() {
    let (mut world, base, reader) = setting(0);
    let (put, take) = ends(base, 40);
    let Outcome::Fault(fault) = step(&mut world, 1, put, ABSENT, 0, 0) else { panic!() };
    assert_eq!((fault.address, fault.write), (ABSENT, false));
    assert_eq!(step(&mut world, 1, put, DATA, 0, 0), OK, "it has not moved");
    let Outcome::Fault(fault) = step(&mut world, reader, take, ABSENT, 0, 0) else { panic!() };
    assert_eq!((fault.address, fault.write), (ABSENT, true));
    let domain = env::domain(&world.state, EnvIndex::new(reader)).index();
    world.map(domain, ABSENT);
    assert_eq!(step(&mut world, reader, take, ABSENT, 0, 0), OK);
}

#[test]
fn each_refusal_of_a_step() {
    let (mut world, base, reader) = setting(0);
    let (put, take) = ends(base, 40);
    let refused = |world: &mut World, bad, at| step(world, 1, bad, at, 0, 0);
    let none = Step { region: 99, ..put };
    assert_eq!(refused(&mut world, none, DATA), error(Error::NoSuchRegion, 0));
    assert_eq!(refused(&mut world, take, DATA), error(Error::NotPermitted, 0), "another role");
    let region = RegionId(base.region);
    let reads = Call::RegionAttach { region, role: 2, domain: DomainId::NONE };
    assert_eq!(world.by(1, reads), OK);
    let only_reads = Step { role: 2, ..put };
    assert_eq!(refused(&mut world, only_reads, DATA), error(Error::NotPermitted, 0));
    for bad in [Step { role: 4, ..put }, Step { flags: 4, ..put }] {
        let outcome = refused(&mut world, bad, DATA);
        assert!(matches!(outcome, Outcome::Answer(2, _)), "{outcome:?}");
    }
    for bad in [
        Step { moves: 8, ..put },
        Step { beside: 8, ..put },
        Step { moves: u16::MAX, ..put },
        Step { offset: 57, ..put },
        Step { offset: u32::MAX, ..put },
        Step { len: 65, offset: 0, ..put },
    ] {
        assert_eq!(refused(&mut world, bad, DATA), error(Error::BadAddress, 0));
    }
    let end = abi::layout::PROGRAM_END - abi::layout::PAGE_SIZE - 4;
    assert_eq!(refused(&mut world, put, end), error(Error::BadAddress, 0), "not all the caller's");
    let kernels = refused(&mut world, put, abi::layout::DIRECT_MAP);
    assert_eq!(kernels, error(Error::BadAddress, 0));
    let large = Step { len: REGION_COPY_BYTES as u32 + 1, ..put };
    assert_eq!(refused(&mut world, large, DATA), error(Error::TooLarge, REGION_COPY_BYTES as u64));
    let peer = Step { peer: 4, ..take };
    let outcome = wait(&mut world, reader, peer, 0, 0);
    assert_eq!(outcome, error(Error::BadArgument, 0));
    assert_eq!(step(&mut world, reader, take, DATA, 0, 0), OK);
    assert_eq!(world.by(reader, Call::RegionDetach { region, role: 1 }), OK);
    let gone = step(&mut world, reader, take, DATA, 8, 0);
    assert_eq!(gone, error(Error::NotPermitted, 0), "who has left is forgotten");
}

/// Marks the page as stores of the environment's own would.
pub fn touch(world: &mut World, index: usize, address: u64, bits: u64) {
    let root = domain::root(&world.state, env::domain(&world.state, EnvIndex::new(index)).into());
    let way = crate::table::Way::Thawed;
    let place = crate::table::place(&world.machine, root, address, 1, way).unwrap();
    let entry = world.machine.entry(place.table, place.index);
    world.machine.entry_swap(place.table, place.index, entry & !(ACCESSED | DIRTY) | bits);
}

#[test]
fn who_wakes_the_one_that_waits_does_its_step_for_it() {
    let (mut world, base, reader) = setting(0);
    let (put, take) = ends(base, 40);
    let take = Step { peer: u8::MAX, ..take };
    touch(&mut world, reader, DATA, ACCESSED | DIRTY);
    assert_eq!(wait(&mut world, reader, take, 0, 0), Outcome::Left);
    world.poke(1, DATA, 77);
    world.on(0, 1);
    assert_eq!(step(&mut world, 1, put, DATA, 0, 0), OK);
    assert_eq!(world.state_of(reader), EnvState::Ready);
    let context = *world.machine.context(reader);
    assert_eq!((context.rip, context.rcx), (CALL + SYSCALL_BYTES, CALL + SYSCALL_BYTES));
    assert_eq!((context.rax, context.rdx, context.rdi), (0, 0, 0), "answered");
    assert_eq!(world.peek(reader, DATA), 77);
    assert_eq!(step(&mut world, reader, take, DATA, 0, 0), error(Error::Changed, 8), "it moved");
    assert_eq!(wait(&mut world, reader, take, 8, 0), Outcome::Left, "and waits like any other");
    // One whose page a store would change, who wants another length or who is held begins anew.
    touch(&mut world, reader, DATA, ACCESSED);
    world.on(0, 1);
    assert_eq!(step(&mut world, 1, put, DATA, 8, 8), OK);
    assert_eq!(world.machine.context(reader).rip, CALL);
    touch(&mut world, reader, DATA, ACCESSED | DIRTY);
    assert_eq!(wait(&mut world, reader, take, 8, 0), OK);
    let short = Step { len: 4, ..take };
    assert_eq!(wait(&mut world, reader, short, 16, 0), Outcome::Left);
    world.on(0, 1);
    assert_eq!(step(&mut world, 1, put, DATA, 16, 16), OK);
    assert_eq!(world.machine.context(reader).rip, CALL);
    assert_eq!(wait(&mut world, reader, take, 16, 0), OK);
    assert_eq!(wait(&mut world, reader, take, 24, 0), Outcome::Left);
    let env = world.id(reader);
    world.on(0, 1);
    assert_eq!(world.by(1, Call::EnvHold { env }), OK);
    assert_eq!(step(&mut world, 1, put, DATA, 24, 24), OK);
    assert_eq!(world.machine.context(reader).rip, CALL);
    assert_eq!(world.state_of(reader), EnvState::Held);
}

#[test]
fn the_step_of_one_that_waits_is_looked_at_again_when_somebody_leaves() {
    let (mut world, base, reader) = setting(0);
    let (_, take) = ends(base, 40);
    let take = Step { peer: u8::MAX, ..take };
    let piece = |world: &World| world.state.envs.slots[EnvIndex::new(reader)].wait.piece.len;
    assert_eq!(wait(&mut world, reader, take, 0, 0), Outcome::Left);
    assert_eq!(piece(&world), 8);
    let other = world.spawn_masked(env::domain(&world.state, EnvIndex::new(reader)));
    let region = RegionId(base.region);
    assert_eq!(world.by(other, Call::RegionDetach { region, role: 1 }), OK);
    assert_eq!(piece(&world), 0);

    // One that goes in, or lies in two frames, is no such step; neither is one that moves a word
    // behind the first frame, which need not lie behind it in memory.
    let goes_in = Step { flags: STEP_IN, ..take };
    let lies_in_two = Step { offset: 4092, ..take };
    let moves_elsewhere = Step { moves: 512, ..take };
    for (frames, bad) in [(0, goes_in), (2, lies_in_two), (2, moves_elsewhere)] {
        let (mut world, base, reader) = setting(frames);
        let bad = Step { region: base.region, ..bad };
        assert_eq!(wait(&mut world, reader, bad, 0, 0), Outcome::Left);
        assert_eq!(world.state.envs.slots[EnvIndex::new(reader)].wait.piece.len, 0);
    }
}

/// No bytes may be at the end of the largest region: the sleeper's call begins anew.
#[test]
fn a_step_of_no_bytes_at_the_end_is_not_done_for_a_sleeper() {
    let (mut world, base, reader) = setting(REGION_FRAMES as u64);
    let first = world.state.regions.slots[RegionId(base.region).into()].first;
    let offset = REGION_FRAMES as u32 * PAGE_SIZE as u32;
    let take = Step { role: 1, peer: u8::MAX, offset, beside: 1, ..base };
    touch(&mut world, reader, DATA, ACCESSED | DIRTY);
    world.machine.word_set(first, 1);
    assert_eq!(wait(&mut world, reader, take, 0, 0), Outcome::Left);
    world.machine.word_set(first, 0);
    let sleeper = EnvIndex::new(reader);
    assert!(!crate::step::finish(&mut world.state, &mut world.machine, sleeper));
}

#[test]
fn who_finds_the_ring_empty_sleeps_until_a_step_fills_it() {
    let (mut world, base, reader) = setting(0);
    let (put, take) = ends(base, 40);
    let take = Step { peer: 0, events: 2, ..take };
    touch(&mut world, reader, DATA, 0);
    assert_eq!(wait(&mut world, reader, take, 0, 0), Outcome::Left);
    assert_eq!(world.state_of(reader), EnvState::Sleeping);
    assert_eq!(world.pick(0), 1);
    let looked = world.state.published.cpus[0].predicates;
    assert_eq!(step(&mut world, 1, put, DATA, 0, 0), OK);
    assert_eq!(world.state_of(reader), EnvState::Ready, "at once");
    assert_eq!(world.machine.context(reader).rip, CALL, "it begins anew");
    assert_eq!(world.state.published.cpus[0].predicates, looked, "nobody was asked");
    assert_eq!(wait(&mut world, reader, take, 0, 0), OK);
    // More than was asked for, or another place: the caller is told at once.
    assert_eq!(step(&mut world, 1, put, DATA, 8, 8), OK);
    let short = Step { len: 4, ..take };
    assert_eq!(wait(&mut world, reader, short, 8, 0), error(Error::Changed, 16));
    assert_eq!(wait(&mut world, reader, take, 0, 0), error(Error::Changed, 8));
    assert_eq!(wait(&mut world, reader, take, 8, 0), OK);
    // What else ends the wait.
    let post = Call::Post { env: world.id(reader), bits: 4 };
    assert_eq!(world.by(1, post), OK);
    assert_eq!(wait(&mut world, reader, take, 16, 4), error(Error::WouldBlock, woken::POSTED));
    sched::event(&mut world.state, &mut world.machine, EnvIndex::new(reader), 2);
    assert_eq!(wait(&mut world, reader, take, 16, 0), error(Error::WouldBlock, woken::EVENT));
    let deaf = Step { events: 0, ..take };
    assert_eq!(wait(&mut world, reader, deaf, 16, 0), Outcome::Left);
    let detach = Call::RegionDetach { region: RegionId(base.region), role: 0 };
    world.on(0, 1);
    assert_eq!(world.by(1, detach), OK);
    world.pick(0);
    assert_eq!(world.state_of(reader), EnvState::Ready, "its last peer has gone");
    assert_eq!(wait(&mut world, reader, deaf, 16, 0), error(Error::Changed, 16));
}
