//! Fifos: who puts in reads nothing, who takes out adds nothing, and bytes are taken once.

use super::predicates::{A_, atom, constant, set};
use super::random::Random;
use super::regions::{operate, operation};
use super::*;
use abi::predicate::{Operator, Source};
use abi::region::{
    COPY_IN, COPY_OUT, FIFO, FIFO_HEAD, FIFO_TAIL, KINDS, NO_PEER, STEP_BESIDE, STEP_IN, Step,
    WordAt,
};
use std::collections::VecDeque;

/// Program memory that is copied from and to.
const DATA: u64 = SCRATCH + 0x400;
/// Pages of data, and their bytes.
const PAGES: u64 = 2;
const CAPACITY: u64 = PAGES * PAGE_SIZE;
const REFUSED: Outcome = Outcome::Answer(Error::NotPermitted as u64, 0);

fn alloc(world: &mut World, count: u64) -> Outcome {
    world.put(1, &[u64::MAX; 10]);
    world.by(1, Call::RegionAlloc { frames: UserAddress(SCRATCH), count })
}

/// A fifo: the first environment puts in, of the two others one takes out, the second watches.
fn setting() -> (World, RegionId, [usize; 2]) {
    let mut world = World::new();
    let Outcome::Answer(0, id) = alloc(&mut world, FIFO | (1 + PAGES)) else { panic!("alloc") };
    let region = RegionId(id);
    let others = [1, 2].map(|role| {
        let domain = world.domain();
        assert_eq!(world.by(1, Call::RegionAttach { region, role, domain }), OK);
        world.spawn_masked(domain)
    });
    assert_eq!(world.by(1, Call::RegionAttach { region, role: 0, domain: DomainId::NONE }), OK);
    (world, region, others)
}

fn step(world: &mut World, index: usize, step: Step, from: u64, beside: u64) -> Outcome {
    let [which, piece, words] = step.to_words();
    world.by(index, Call::RegionStep { which, address: DATA, piece, words, from, beside })
}

/// The step that puts in, or takes out, `len` bytes from `from` on.
fn good(region: RegionId, puts: bool, from: u64, len: u64) -> Step {
    Step {
        region: region.0,
        role: u8::from(!puts),
        flags: if puts { STEP_IN } else { 0 },
        len: len as u32,
        offset: (PAGE_SIZE + from % CAPACITY) as u32,
        moves: if puts { FIFO_HEAD } else { FIFO_TAIL },
        beside: 5,
        peer: NO_PEER,
        ..Step::NONE
    }
}

fn bytes_of(world: &World, index: usize, len: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|at| world.peek(index, DATA + 8 * at).to_le_bytes());
    words.take(len as usize).collect()
}

fn poke_bytes(world: &mut World, index: usize, bytes: &[u8]) {
    for (at, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        world.poke(index, DATA + 8 * at as u64, u64::from_le_bytes(word));
    }
}

#[test]
fn the_data_are_a_power_of_two_of_pages() {
    let mut world = World::new();
    let before = world.census();
    for count in [0, 1, 4, 6, 7, 8, 10, 16] {
        assert_eq!(alloc(&mut world, FIFO | count), error(Error::BadArgument, 1), "{count}");
    }
    assert_eq!(alloc(&mut world, FIFO | 18), error(Error::TooLarge, 17));
    assert_eq!(alloc(&mut world, (KINDS + FIFO) | 2), error(Error::TooLarge, 17));
    assert_eq!(world.census(), before);
    for count in [2, 3, 5, 9] {
        assert!(matches!(alloc(&mut world, FIFO | count), Outcome::Answer(0, _)), "{count}");
    }
}

#[test]
fn steps_of_the_other_kind_are_refused() {
    let (mut world, region, [reader, watcher]) = setting();
    assert_eq!(step(&mut world, 1, good(region, true, 0, 24), 0, 0), OK);
    let (put, take) = (good(region, true, 24, 8), good(region, false, 0, 8));
    let bad_puts = [
        ("reads", Step { flags: 0, ..put }),
        ("takes out", Step { role: 0, ..take }),
        ("reads where its bytes go", Step { flags: 0, offset: 4096, ..put }),
        ("moves the tail", Step { moves: FIFO_TAIL, ..put }),
        ("moves a word of its users'", Step { moves: 2, ..put }),
        ("stores where others have", Step { offset: 4096, ..put }),
        ("stores before its place", Step { offset: put.offset - 8, ..put }),
        ("stores behind its place", Step { offset: put.offset + 8, ..put }),
        ("stores into the words", Step { offset: 24, ..put }),
        ("compares data", Step { beside: 512, flags: STEP_IN | STEP_BESIDE, ..put }),
    ];
    let bad_takes = [
        ("stores", Step { flags: STEP_IN, ..take }),
        ("puts in", Step { role: 1, ..put }),
        ("moves the head", Step { moves: FIFO_HEAD, ..take }),
        ("reads behind its place", Step { offset: take.offset + 8, ..take }),
        ("reads the words", Step { offset: 0, ..take }),
        ("compares data", Step { beside: 512, flags: STEP_BESIDE, ..take }),
    ];
    for (index, from, steps) in [(1, 24, &bad_puts[..]), (reader, 0, &bad_takes[..])] {
        for &(what, bad) in steps {
            world.poke(index, DATA, 0x55);
            let before = world.state.published.regions[region.index()].operations;
            assert_eq!(step(&mut world, index, bad, from, 0), REFUSED, "{what}");
            assert_eq!(world.peek(index, DATA), 0x55, "{what}");
            let after = world.state.published.regions[region.index()].operations;
            assert_eq!(after, before, "{what}");
        }
    }
    for role in [1, 2] {
        assert_eq!(step(&mut world, 1, Step { role, ..take }, 0, 0), REFUSED, "not attached");
    }
    assert_eq!(step(&mut world, watcher, Step { role: 2, ..take }, 0, 0), REFUSED);
    assert_eq!(step(&mut world, 1, put, 24, 0), OK);
    assert_eq!(step(&mut world, reader, take, 0, 0), OK);
}

#[test]
fn a_sleeper_waits_for_the_other_end() {
    let (mut world, region, [reader, _]) = setting();
    let wait = |world: &mut World, index: usize, step: Step| {
        let [which, piece, words] = step.to_words();
        let call =
            Call::RegionStepOrWait { which, address: DATA, piece, words, from: 0, posted: 0 };
        world.by(index, call)
    };
    let take = Step { beside: FIFO_HEAD, ..good(region, false, 0, 8) };
    for beside in [FIFO_TAIL, 2, 5, 511, 512] {
        assert_eq!(wait(&mut world, reader, Step { beside, ..take }), REFUSED, "word {beside}");
    }
    assert_eq!(wait(&mut world, reader, take), Outcome::Left);
    let asleep = |world: &World| {
        world.state.envs.slots[crate::index::EnvIndex::new(reader)].state == EnvState::Sleeping
    };
    assert!(asleep(&world));
    assert_eq!(step(&mut world, 1, good(region, true, 0, 8), 0, 0), OK);
    assert!(!asleep(&world));
}

#[test]
fn no_more_goes_in_than_is_free_and_out_than_is_there() {
    let (mut world, region, [reader, _]) = setting();
    let take = |from, len| good(region, false, from, len);
    let put = |from, len| good(region, true, from, len);
    assert_eq!(step(&mut world, reader, take(0, 8), 0, 0), error(Error::Changed, 0), "empty");
    let (mut head, mut tail) = (0, 0);
    while head + 2048 <= CAPACITY {
        assert_eq!(step(&mut world, 1, put(head, 2048), head, 0), OK);
        head += 2048;
    }
    assert_eq!(step(&mut world, 1, put(head, 8), head, 0), error(Error::Changed, 0), "full");
    assert_eq!(step(&mut world, reader, take(0, 2048), 0, 0), OK);
    tail += 2048;
    let full = error(Error::Changed, 2048);
    assert_eq!(step(&mut world, 1, put(head, 2056), head, 0), full, "over what is not taken");
    assert_eq!(step(&mut world, 1, put(head, 1024), head, 0), OK);
    head += 1024;
    // What was taken is not there again, neither from its place nor around the end.
    assert_eq!(step(&mut world, reader, take(0, 8), 0, 0), error(Error::Changed, 2048));
    while tail + 2048 <= head {
        assert_eq!(step(&mut world, reader, take(tail, 2048), tail, 0), OK);
        tail += 2048;
    }
    let less = error(Error::Changed, head);
    assert_eq!(step(&mut world, reader, take(tail, 1032), tail, 0), less);
    assert_eq!(step(&mut world, reader, take(tail, head - tail), tail, 0), OK);
}

#[test]
fn operations_reach_the_words_of_the_first_page() {
    let (mut world, region, [reader, watcher]) = setting();
    assert_eq!(step(&mut world, 1, good(region, true, 0, 24), 0, 0), OK);
    for (index, role) in [(1, 0), (reader, 1)] {
        let plain = operation(region, role);
        let words = |compares: u8, writes: u8, offset, value| {
            let mut one = plain;
            (one.compares, one.writes) = (compares, writes);
            one.compare[0] = WordAt { offset, value };
            one.write[0] = WordAt { offset, value };
            one
        };
        let copies = |direction, offset, len| {
            let mut one = plain;
            (one.direction, one.address, one.offset, one.len) = (direction, DATA, offset, len);
            one
        };
        for (what, bad) in [
            ("moves the head", words(0, 1, 0, 32)),
            ("moves the tail", words(0, 1, 8, 8)),
            ("writes data", words(0, 1, PAGE_SIZE, 1)),
            ("compares data", words(1, 0, PAGE_SIZE, 0)),
            ("compares data at the end", words(1, 0, PAGE_SIZE + CAPACITY - 8, 0)),
            ("reads data", copies(COPY_OUT, PAGE_SIZE, 8)),
            ("reads from the words on", copies(COPY_OUT, PAGE_SIZE - 8, 9)),
            ("stores data", copies(COPY_IN, PAGE_SIZE + 24, 8)),
            ("stores counters", copies(COPY_IN, 0, 8)),
            ("stores words", copies(COPY_IN, 24, 8)),
        ] {
            assert_eq!(operate(&mut world, index, &bad), REFUSED, "role {role} {what}");
        }
        let last = PAGE_SIZE - 64;
        for good in [words(1, 0, 0, 24), words(0, 1, 16, 7), copies(COPY_OUT, last, 64)] {
            assert_eq!(operate(&mut world, index, &good), OK, "role {role}");
        }
        let sees = |offset| [region_atom(region, offset)];
        assert_eq!(set(&mut world, index, &sees(8)), OK);
        assert_eq!(set(&mut world, index, &sees(PAGE_SIZE - 8)), OK);
        assert_eq!(set(&mut world, index, &sees(PAGE_SIZE)), REFUSED, "a predicate over data");
        assert_eq!(set(&mut world, index, &[]), OK);
    }
    let mut all = operation(region, 2);
    (all.direction, all.address, all.offset, all.len) = (COPY_OUT, DATA, PAGE_SIZE, 24);
    assert_eq!(operate(&mut world, watcher, &all), OK, "the server that introduces sees all");
}

fn region_atom(region: RegionId, offset: u64) -> A_ {
    let mut atom = atom((Source::Region, offset), Operator::Equal, constant(!0));
    atom.region = region.0;
    atom
}

/// Random steps beside a queue: what goes in comes out, once, in order, also around the end.
#[test]
fn what_goes_in_comes_out_once() {
    let (mut world, region, [reader, _]) = setting();
    let mut random = Random(7);
    let mut queue = VecDeque::new();
    let (mut head, mut tail, mut wraps) = (0, 0, 0);
    for _ in 0..3_000 {
        let puts = random.below(2) == 0;
        let len = if random.below(8) == 0 { 0 } else { random.below(2_000) };
        if puts {
            let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            poke_bytes(&mut world, 1, &bytes);
            let outcome = step(&mut world, 1, good(region, true, head, len), head, 0);
            if len > CAPACITY - (head - tail) {
                assert_eq!(outcome, error(Error::Changed, tail));
                continue;
            }
            assert_eq!(outcome, OK);
            wraps += u32::from(head % CAPACITY + len > CAPACITY);
            queue.extend(bytes);
            head += len;
        } else {
            let outcome = step(&mut world, reader, good(region, false, tail, len), tail, 0);
            if len > head - tail {
                assert_eq!(outcome, error(Error::Changed, head));
                continue;
            }
            assert_eq!(outcome, OK);
            let expected: Vec<u8> = queue.drain(..len as usize).collect();
            assert_eq!(bytes_of(&world, reader, len), expected);
            tail += len;
        }
    }
    assert!(wraps > 20, "{wraps} around the end");
}
