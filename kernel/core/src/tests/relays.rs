//! The short way of a step along a ring ends where the long one ends.

use crate::index::EnvIndex;

use super::random::Random;
use super::ways::{self, Ways, note};
use super::*;
use crate::env::Request;
use crate::region::Region;
use crate::relay::{self, Done, Rest};
use abi::call::number;
use abi::limits::SLICE_NS;
use abi::memory::{ACCESSED, DIRTY};
use abi::region::{STEP_BESIDE, STEP_IN, Step};
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME};
use std::string::String;

const ENVS: usize = 6;
const REGIONS: usize = 3;
/// Where the bytes are, in the region and in the program.
const BYTES: u64 = 64;
const DATA: u64 = SCRATCH + 0x400;
/// Bytes that are put into a fifo at once now and then: all that the program's page has from there.
const PIECE: u64 = PAGE_SIZE - 0x400;

/// Everything that a step and a switch may change.
fn digest(world: &mut World) -> String {
    let mut all = ways::records(world, ENVS, [number::RegionStep, number::RegionStepOrWait]);
    for index in 1..=ENVS {
        note(&mut all, &world.peek(index, DATA));
        let words = [offset::PENDING, offset::EVENTS, offset::MASK];
        note(&mut all, &words.map(|at| world.saved(index, at)));
    }
    for index in 1..=REGIONS {
        // What is remembered of steps speeds the next one up, no more.
        let region = Region {
            allowed: Default::default(),
            ..world.state.regions.slots[RegionIndex::new(index)]
        };
        note(&mut all, &region);
        note(&mut all, &world.state.published.regions[index]);
        let first = world.state.regions.slots[RegionIndex::new(index)].first;
        let places = [0, 8, 16, BYTES, BYTES + 8];
        note(&mut all, &places.map(|at| world.machine.word(first + at)));
        for frame in region.frames.iter().filter(|_| region.fifo != 0).take(2) {
            let words = (0..8).map(|at| world.machine.word(frame.address() + 8 * at));
            note(&mut all, &words.collect::<Vec<_>>());
        }
    }
    let sched = &world.state.sched;
    note(&mut all, &(sched.watch, sched.watchers, sched.dirty));
    all
}

fn by_the_short_way(world: &mut World, cpu: usize, index: usize, call: Call) -> Option<Done> {
    by_the_short_way_of(world, (cpu, index), call, &digest)
}

/// By the short way, if it is open: then the long one has nothing to add to what is seen.
fn by_the_short_way_of(
    world: &mut World,
    (cpu, index): (usize, usize),
    call: Call,
    digest: &dyn Fn(&mut World) -> String,
) -> Option<Done> {
    let root = domain::root(&world.state, env::domain(&world.state, EnvIndex::new(index)).into());
    world.machine.current = Some(root);
    let (state, machine) = (&mut world.state, &mut world.machine);
    let (number, words) = call.encode();
    let done = match number {
        number::RegionStep => relay::call::<_, { number::RegionStep }>(
            state,
            machine,
            (CpuIndex::new(cpu), EnvIndex::new(index)),
            words,
        ),
        number::RegionStepOrWait => relay::call::<_, { number::RegionStepOrWait }>(
            state,
            machine,
            (CpuIndex::new(cpu), EnvIndex::new(index)),
            words,
        ),
        _ => None,
    }?;
    let done = match done {
        Done::Moved(moved) => {
            relay::tell(state, machine, (CpuIndex::new(cpu), EnvIndex::new(index)), moved)
        }
        Done::Nothing(region) => {
            relay::wait_for(state, machine, (CpuIndex::new(cpu), EnvIndex::new(index)), region)?
        }
        _ => done,
    };
    // What is asked of the caller comes with an interrupt; bits that wait are looked at at once.
    let asked = !matches!(world.state.envs.slots[EnvIndex::new(index)].request, Request::Nothing);
    let bits = [offset::PENDING, offset::EVENTS].map(|at| world.saved(index, at));
    let done = match done {
        Done::Answered if bits != [0; 2] => Done::Disturbed(Rest::Nothing),
        _ => done,
    };
    if !matches!(done, Done::Switched { .. }) {
        world.machine.context(index).answer(0, 0);
    }
    if let Done::Disturbed(rest) = done {
        relay::finish(&mut world.state, &mut world.machine, rest);
    }
    // Whose time is over goes on until the timer says so.
    let now = world.machine.now;
    let sched = &world.state.sched;
    let over = sched.cpus[CpuIndex::new(cpu)].end_ns() <= now || sched.alarms.soonest() <= now;
    let before = digest(world);
    let next = world.pick(cpu);
    match done {
        Done::Answered if over || asked => return Some(done),
        Done::Answered => assert_eq!(next, index),
        Done::Switched { target, .. } => assert_eq!(next, target.at()),
        _ => return Some(done),
    }
    assert_eq!(digest(world), before, "the long way would do more");
    Some(done)
}

fn one_of(world: &World, random: &mut Random) -> RegionId {
    RegionId(world.state.published.regions[1 + random.below(REGIONS as u64) as usize].id)
}

/// Those of the first domain write, the others read.
fn own_role(index: usize) -> u16 {
    u16::from(index != 1 && !index.is_multiple_of(2))
}

/// A step that is as it should be most of the time: a writer's or a reader's.
fn random_step(world: &mut World, random: &mut Random, index: usize) -> Call {
    let at = 1 + random.below(REGIONS as u64) as usize;
    let (region, first) = (
        world.state.published.regions[at].id,
        world.state.regions.slots[RegionIndex::new(at)].first,
    );
    let (head, tail) = (world.machine.word(first), world.machine.word(first + 8));
    let odd = |random: &mut Random| random.below(64) == 0;
    let writes = index.is_multiple_of(2) != odd(random);
    let there = head.wrapping_sub(tail);
    if writes && there > 0 && random.below(4) != 0 {
        return Call::Yield { to: EnvId::NONE };
    }
    let is_fifo = world.state.regions.slots[RegionIndex::new(at)].fifo != 0;
    let len = match there {
        // A few of these are more than a fifo of one page has room for.
        _ if writes && is_fifo && random.below(2) == 0 => PIECE / 3 * (1 + random.below(3)),
        0 => 8,
        _ if writes => 8,
        1..=64 => there,
        _ if is_fifo => there.min(PIECE),
        _ => 8,
    };
    let offset =
        if is_fifo { PAGE_SIZE + (if writes { head } else { tail }) % PAGE_SIZE } else { BYTES };
    let step = Step {
        region,
        role: if odd(random) { 2 } else { u8::from(!writes) },
        peer: if odd(random) { random.below(6) as u8 } else { 0 },
        flags: if odd(random) {
            random.below(8) as u8
        } else if is_fifo && random.below(16) == 0 {
            // Against the role's way.
            if writes { STEP_BESIDE } else { STEP_IN | STEP_BESIDE }
        } else {
            if writes { STEP_IN | STEP_BESIDE } else { STEP_BESIDE }
        },
        len: if odd(random) { 0 } else { len as u32 },
        offset: if odd(random) { random.below(2 * PAGE_SIZE) as u32 } else { offset as u32 },
        moves: if odd(random) { 600 } else { u16::from(!writes) },
        beside: if odd(random) { random.below(9) as u16 } else { u16::from(writes) },
        events: if odd(random) { !0 } else { 0 },
    };
    let [which, piece, words] = step.to_words();
    let address = match random.below(64) {
        0 => 0x60_0000,
        1 => abi::layout::DIRECT_MAP,
        2 => SCRATCH + PAGE_SIZE - 2,
        _ => DATA,
    };
    let from = if odd(random) {
        1
    } else if writes {
        head
    } else {
        tail
    };
    if writes || random.below(8) == 0 {
        let beside = if odd(random) {
            3
        } else if writes {
            tail
        } else {
            head
        };
        return Call::RegionStep { which, address, piece, words, from, beside };
    }
    Call::RegionStepOrWait { which, address, piece, words, from, posted: random.below(2) }
}

/// One environment's life for a moment: bits, masks, time, then mostly a step.
fn step(world: &mut World, random: &mut Random, short: bool) -> Option<Done> {
    let cpu = usize::from(random.below(16) == 0);
    world.machine.now += random.below(SLICE_NS / 16);
    let index = world.pick(cpu);
    if random.below(16) == 0 || index == 0 {
        let other = 1 + random.below(ENVS as u64) as usize;
        crate::work::begin(&mut world.state);
        sched::event(&mut world.state, &mut world.machine, EnvIndex::new(other), !0);
        crate::work::end(&mut world.state);
    }
    if index == 0 {
        return None;
    }
    world.save(index, offset::MASK, u64::from(random.below(8) == 0));
    world.save(index, offset::DEPTH, 0);
    for bits in [offset::PENDING, offset::EVENTS] {
        if random.below(16) != 0 {
            world.save(index, bits, 0);
        }
    }
    let other = world.id(1 + random.below(ENVS as u64) as usize);
    let soon = world.machine.now + random.below(2 * SLICE_NS);
    let call = match random.below(64) {
        0 => Call::Yield { to: EnvId::NONE },
        1 => Call::Sleep { deadline: soon, posted: 1, events: !0, flags: 0 },
        2 => Call::EnvHold { env: other },
        3..=5 => Call::EnvRelease { env: other },
        6 => Call::TimerSet { deadline: soon },
        7 => Call::RegionDetach { region: one_of(world, random), role: own_role(index) },
        8..=10 => Call::RegionAttach {
            region: one_of(world, random),
            role: own_role(index),
            domain: DomainId::NONE,
        },
        _ => random_step(world, random, index),
    };
    world.machine.now += random.below(SLICE_NS / 64);
    enters(world, (cpu, index), call, short.then_some(&digest))
}

/// The environment at `index`, which runs, enters the kernel with this call: by the short way, if
/// that is open and it is said what the long one must not change behind it; then what it did.
pub fn enters(
    world: &mut World,
    (cpu, index): (usize, usize),
    call: Call,
    short: Option<&dyn Fn(&mut World) -> String>,
) -> Option<Done> {
    let (number, words) = call.encode();
    let word = u64::from(number) | u64::from(ROOT) << CAPABILITY_SHIFT;
    // As entry code leaves them.
    let context = world.machine.context(index);
    (context.rip, context.rcx, context.rax) = (RIP, RIP, word);
    (context.rdi, context.rsi, context.rdx) = (words[0], words[1], words[2]);
    (context.r10, context.r8, context.r9) = (words[3], words[4], words[5]);
    let done = short.and_then(|digest| by_the_short_way_of(world, (cpu, index), call, digest));
    if done.is_none() {
        world.raw(cpu, index, call, word);
        world.pick(cpu);
    }
    // Of no effect: a processor asks `pick` anyway.
    world.machine.interrupts.retain(|&other| other != cpu);
    done
}

/// Environments in two domains, with a region of words, one of a frame and a fifo between them.
fn populated() -> World {
    let mut world = World::new();
    let domain = world.domain();
    let first = env::domain(&world.state, EnvIndex::new(1));
    for index in 2..=ENVS {
        let own = if index % 2 == 0 { first } else { domain };
        assert_eq!(world.spawn(own), index);
        world.state.envs.slots[EnvIndex::new(index)].flags |= match index {
            2..=4 => FLAG_BORROW,
            5 => FLAG_BORROW | FLAG_GIVEN_TIME,
            _ => 0,
        } as u8;
        sched::turns_changed(&mut world.state, EnvIndex::new(index));
    }
    world.state.envs.slots[EnvIndex::new(1)].flags |= FLAG_BORROW as u8;
    for count in [abi::region::FIFO | 2, 0, 1] {
        world.put(1, &[u64::MAX]);
        let frames = UserAddress(SCRATCH);
        let Outcome::Answer(0, id) = world.by(1, Call::RegionAlloc { frames, count }) else {
            panic!("RegionAlloc")
        };
        let region = RegionId(id);
        // The last one keeps it, whoever leaves.
        for (role, domain) in [(0, DomainId::NONE), (1, domain), (2, DomainId::NONE)] {
            let attach = Call::RegionAttach { region, role, domain };
            assert_eq!(world.by(1, attach), OK);
        }
    }
    for index in [1, 3] {
        super::steps::touch(&mut world, index, DATA, ACCESSED | DIRTY);
    }
    world
}

#[test]
fn both_ways_end_in_the_same_state() {
    let kind = |done: &Done| match done {
        Done::Answered | Done::Moved(_) | Done::Nothing(_) => 0,
        Done::Disturbed(_) => 1,
        Done::Switched { .. } => 2,
    };
    Ways { populated, step, digest, kind, least: 30 }.end_alike();
}

/// The write of eight bytes by the environment at 1, on from this byte.
fn puts(region: u64, from: u64) -> Call {
    let put = Step { beside: 1, flags: STEP_IN | STEP_BESIDE, ..eight_bytes(region) };
    let [which, piece, words] = put.to_words();
    Call::RegionStep { which, address: DATA, piece, words, from, beside: from }
}

/// The read of eight bytes by the environment at 3, which waits where none are there.
fn takes(region: u64, from: u64) -> Call {
    let take = Step { role: 1, moves: 1, flags: STEP_BESIDE, ..eight_bytes(region) };
    let [which, piece, words] = take.to_words();
    Call::RegionStepOrWait { which, address: DATA, piece, words, from, posted: 0 }
}

fn eight_bytes(region: u64) -> Step {
    Step { region, peer: u8::MAX, len: 8, offset: BYTES as u32, ..Step::NONE }
}

/// The environment at 3 waits for bytes in this region, the one at 1 runs in its own slice. The
/// first steps go the long way, which looks at which domains are attached.
fn a_reader_waits(world: &mut World) -> u64 {
    let region = world.state.published.regions[REGIONS].id;
    assert_eq!(world.by(1, puts(region, 0)), OK);
    assert_eq!(world.by(3, takes(region, 0)), OK);
    assert_eq!(world.by(3, takes(region, 8)), Outcome::Left);
    world.on(0, 1);
    assert_eq!(world.pick(0), 1);
    region
}

/// What one runs on time that it has got by the short way its account owes as well; one whose
/// account owes a slice has no such time.
/// The reader has entered the kernel to take what comes next.
fn enters_to_take(world: &mut World, region: u64) {
    let (number, words) = takes(region, 16).encode();
    let context = world.machine.context(3);
    (context.rip, context.rcx, context.rax) = (RIP, RIP, number.into());
    (context.rdi, context.rsi, context.rdx) = (words[0], words[1], words[2]);
    (context.r10, context.r8, context.r9) = (words[3], words[4], words[5]);
}

#[test]
fn who_borrows_by_the_short_way_pays_with_its_account() {
    let mut world = populated();
    let other = super::turns::user(&mut world);
    super::turns::process(&mut world, other);
    let (cpu, reader) = (CpuIndex::new(0), EnvIndex::new(3));
    let credit = |world: &World| crate::loan::credit(&world.state, cpu, reader);
    let region = a_reader_waits(&mut world);
    assert_eq!(credit(&world), SLICE_NS);
    let done = by_the_short_way(&mut world, 0, 1, puts(region, 8));
    assert!(matches!(done, Some(Done::Switched { target, .. }) if target == reader), "{done:?}");
    world.machine.now += SLICE_NS * 6 / 10;
    enters_to_take(&mut world, region);
    let done = by_the_short_way(&mut world, 0, 3, takes(region, 16));
    assert!(matches!(done, Some(Done::Switched { target, .. }) if target.at() == 1), "{done:?}");
    assert_eq!(credit(&world), SLICE_NS * 4 / 10);
    // As if its turn had come: what it owes itself is paid, and its account owes the rest.
    world.state.envs.slots[reader].debt_ns = 0;
    crate::turns::charge(&mut world.state, cpu, reader, SLICE_NS);
    let done = by_the_short_way(&mut world, 0, 1, puts(region, 16));
    assert!(!matches!(done, Some(Done::Switched { .. })), "{done:?}");
}

/// A sleeper's step may move a word of any frame of the region: by the short way no word of a frame
/// is written that only lies behind the region's first one in memory.
#[test]
fn no_step_moves_words_of_strange_frames() {
    let mut world = populated();
    let is_free = |frame: u32| frame::kind(&world.state, Frame(frame)) == Some(FrameType::Free);
    let mut pairs = (2..1000).step_by(2).filter(|&first| is_free(first) && is_free(first + 1));
    let (first, second) = (pairs.next().unwrap(), pairs.next().unwrap());
    world.put(1, &[u64::from(first) | u64::from(second) << 32]);
    let call = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 2 };
    let Outcome::Answer(0, region) = world.by(1, call) else { panic!("RegionAlloc") };
    let readers = env::domain(&world.state, EnvIndex::new(3));
    for (role, domain) in [(0, DomainId::NONE), (1, readers)] {
        let region = RegionId(region);
        assert_eq!(world.by(1, Call::RegionAttach { region, role, domain }), OK);
    }
    let put = |from| {
        let [which, piece, words] = Step { flags: STEP_IN, ..eight_bytes(region) }.to_words();
        Call::RegionStep { which, address: DATA, piece, words, from, beside: 0 }
    };
    assert_eq!(world.by(1, put(0)), OK);
    let take = Step { role: 1, moves: 512, flags: STEP_BESIDE, ..eight_bytes(region) };
    let [which, piece, words] = take.to_words();
    let wait = Call::RegionStepOrWait { which, address: DATA, piece, words, from: 8, posted: 0 };
    assert_eq!(world.by(3, wait), Outcome::Left);
    world.on(0, 1);
    assert_eq!(world.pick(0), 1);
    let strange = Frame(first + 1).address();
    world.machine.word_set(strange, 8);
    by_the_short_way(&mut world, 0, 1, put(8)).unwrap();
    assert_eq!(world.machine.word(Frame(first).address()), 16, "the writer's word moves");
    assert_eq!(world.machine.word(strange), 8);
}

/// One that runs on the time of another hands none of it on to a sleeper by the short way.
#[test]
fn time_that_is_lent_is_lent_no_further() {
    for lender in [EnvIndex::NONE, EnvIndex::new(2)] {
        let mut world = populated();
        let region = a_reader_waits(&mut world);
        let (cpu, writer) = (CpuIndex::new(0), EnvIndex::new(1));
        world.state.sched.cpus[cpu].lender = lender.link();
        let root = domain::root(&world.state, env::domain(&world.state, writer).into());
        world.machine.current = Some(root);
        let (state, machine) = (&mut world.state, &mut world.machine);
        let words = puts(region, 8).encode().1;
        let done = relay::call::<_, { number::RegionStep }>(state, machine, (cpu, writer), words);
        let Some(Done::Moved(moved)) = done else { panic!("{done:?}") };
        let done = relay::tell(state, machine, (cpu, writer), moved);
        let switched = matches!(done, Done::Switched { .. });
        assert_eq!(switched, lender == EnvIndex::NONE, "{done:?}");
    }
}

/// Who wakes a sleeper copies in the sleeper's space, and is in his own again if that fails.
#[test]
fn where_a_sleeper_has_no_page_its_call_begins_anew() {
    const ABSENT: u64 = 0x60_0000;
    for (address, served) in [(DATA, true), (ABSENT, false)] {
        let mut world = populated();
        let region = world.state.published.regions[REGIONS].id;
        let both = Step { region, peer: u8::MAX, len: 8, offset: BYTES as u32, ..Step::NONE };
        let take = Step { role: 1, moves: 1, flags: STEP_BESIDE, ..both };
        let put = Step { beside: 1, flags: STEP_IN | STEP_BESIDE, ..both };
        // By the long way, which looks who is attached.
        let [which, piece, words] = put.to_words();
        let first = Call::RegionStep { which, address: DATA, piece, words, from: 0, beside: 0 };
        assert_eq!(world.by(1, first), OK);
        let next = [which, DATA, piece, words, 8, 8];
        let [which, piece, words] = take.to_words();
        let wait = |address, from| Call::RegionStepOrWait {
            which,
            address,
            piece,
            words,
            from,
            posted: 0,
        };
        assert_eq!(world.by(3, wait(DATA, 0)), OK);
        let context = world.machine.context(3);
        (context.rip, context.rcx) = (RIP, RIP);
        assert_eq!(world.by(3, wait(address, 8)), Outcome::Left);
        world.on(0, 1);
        assert_eq!(world.pick(0), 1);
        let root = domain::root(&world.state, env::domain(&world.state, EnvIndex::new(1)).into());
        world.machine.current = Some(root);
        let (state, machine) = (&mut world.state, &mut world.machine);
        let made = relay::call::<_, { number::RegionStep }>(
            state,
            machine,
            (CpuIndex::new(0), EnvIndex::new(1)),
            next,
        );
        let Some(Done::Moved(moved)) = made else { panic!("{made:?}") };
        let done = relay::tell(state, machine, (CpuIndex::new(0), EnvIndex::new(1)), moved);
        if served {
            assert!(matches!(done, Done::Switched { target, .. } if target.at() == 3), "{done:?}");
            continue;
        }
        assert_eq!(done, Done::Disturbed(Rest::Told(RegionIndex::new(REGIONS))));
        assert_eq!(machine.current, Some(root));
        assert_eq!(state.envs.slots[EnvIndex::new(3)].state, EnvState::Sleeping);
        relay::finish(state, machine, Rest::Told(RegionIndex::new(REGIONS)));
        assert_eq!(state.envs.slots[EnvIndex::new(3)].state, EnvState::Ready);
        assert_eq!(machine.context(3).rip, RIP - crate::context::SYSCALL_BYTES);
    }
}

/// One that has been told of the end of its slice lends nothing of what it has beyond it, as it
/// does not by the long way.
#[test]
fn the_told_lend_nothing_by_the_short_way() {
    for told in [false, true] {
        let mut world = populated();
        let other = super::turns::user(&mut world);
        super::turns::process(&mut world, other);
        let region = a_reader_waits(&mut world);
        let one = EnvIndex::new(1);
        if told {
            world.state.envs.slots[one].flags |= abi::setup::FLAG_SLICE_END as u8;
            world.save(1, offset::MASK, 1);
            world.machine.now = world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns;
            assert_eq!(world.pick(0), 1);
            world.save(1, offset::EVENTS, 0);
        }
        assert_eq!(world.state.envs.slots[one].ending, u8::from(told));
        by_the_short_way(&mut world, 0, 1, puts(region, 8));
        let lender = world.state.sched.cpus[CpuIndex::new(0)].lender;
        assert_eq!(lender != 0, !told, "told {told}");
    }
}

/// The short way of a wait charges an account that is in the round for what its own environment
/// has borrowed; an environment that has left the rings, or runs on what another account's has
/// borrowed and yielded to it, goes the long way.
#[test]
fn loans_of_others_are_charged_the_long_way() {
    for (leaves_the_ring, anothers) in [(false, false), (true, false), (false, true)] {
        let mut world = populated();
        let other = super::turns::user(&mut world);
        super::turns::process(&mut world, other);
        let cpu = CpuIndex::new(0);
        let region = a_reader_waits(&mut world);
        let own = crate::turns::account_of(&world.state, EnvIndex::new(3));
        by_the_short_way(&mut world, 0, 1, puts(region, 8));
        let another = AccountIndex::from(other.0);
        if leaves_the_ring {
            assert_eq!(world.set_flags(3, EnvId::NONE, FLAG_GIVEN_TIME), OK);
            assert_eq!(world.pick(0), 3);
        }
        if anothers {
            world.state.sched.cpus[cpu].borrower = another.link();
        }
        world.machine.now += SLICE_NS / 10;
        enters_to_take(&mut world, region);
        let done = by_the_short_way(&mut world, 0, 3, takes(region, 16));
        let is_short = matches!(done, Some(Done::Switched { .. }));
        assert_eq!(is_short, !leaves_the_ring && !anothers, "{done:?}");
        let owes = |account| world.state.accounts.records[account].turns[cpu].debt_ns;
        assert_eq!((owes(own) != 0, owes(another) != 0), (is_short, false));
    }
}
