//! Short ways of steps at the ends of regions: each word, offset and length ends as the long way.
//!
//! Regions of no frame, of one, of two and of the most there may be, fifos of the least and of the
//! most pages. After each case the whole memory of the machine is compared, with the strangers'
//! frames that lie behind a region's first one.

use super::relays::enters;
use super::ways::{note, records};
use super::*;
use crate::relay::Done;
use abi::call::number;
use abi::limits::REGION_FRAMES;
use abi::memory::{ACCESSED, DIRTY};
use abi::region::{FIFO, FIFO_HEAD, FIFO_TAIL, NO_PEER, STEP_BESIDE, STEP_IN, Step};
use abi::setup::FLAG_BORROW;
use core::ops::AddAssign;
use std::fmt::Debug;
use std::string::String;

/// Enough for two domains, their tables and a region, with as many free frames between.
const FRAMES: usize = 512;
const WRITER: usize = 1;
/// Two pages of each domain's.
const DATA: u64 = 0x50_0000;
/// What counters begin at where a region is no fifo.
const FROM: u64 = 5;

const KINDS: [u64; 6] = [0, 1, 2, REGION_FRAMES as u64, FIFO | 2, FIFO | REGION_FRAMES as u64];

/// A world with a region of this kind, a writer and a reader in two domains.
struct Setting {
    world: World,
    region: u64,
    reader: usize,
    /// Addresses of the region's frames, none for one without.
    frames: Vec<u64>,
    first: u64,
}

impl Setting {
    fn new(kind: u64) -> Self {
        let mut world = World::of(FRAMES);
        let domain = world.domain();
        let reader = world.spawn_masked(domain);
        let first = env::domain(&world.state, EnvIndex::new(WRITER));
        for index in [WRITER, reader] {
            world.state.envs.slots[EnvIndex::new(index)].flags |= FLAG_BORROW as u8;
            sched::turns_changed(&mut world.state, EnvIndex::new(index));
        }
        for domain in [first.index(), domain.index()] {
            for page in [DATA, DATA + PAGE_SIZE] {
                world.map(domain, page);
            }
        }
        let count = (kind & !FIFO) as usize;
        let is_free = |frame: u32| frame::kind(&world.state, Frame(frame)) == Some(FrameType::Free);
        let chosen: Vec<u32> = (2..FRAMES as u32)
            .step_by(2)
            .filter(|&frame| is_free(frame) && is_free(frame + 1))
            .take(count)
            .collect();
        assert_eq!(chosen.len(), count, "frames that are no neighbours");
        let pairs = chosen.chunks(2).map(|pair| {
            u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(u32::MAX)) << 32
        });
        world.put(WRITER, &pairs.collect::<Vec<_>>());
        let call = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: kind };
        let Outcome::Answer(0, region) = world.by(WRITER, call) else { panic!("RegionAlloc") };
        for (role, domain) in [(0, DomainId::NONE), (1, domain)] {
            let region = RegionId(region);
            assert_eq!(world.by(WRITER, Call::RegionAttach { region, role, domain }), OK);
        }
        for index in [WRITER, reader] {
            for page in [DATA, DATA + PAGE_SIZE] {
                super::steps::touch(&mut world, index, page, ACCESSED | DIRTY);
            }
        }
        let first = world.state.regions.slots[RegionId(region).into()].first;
        let frames = chosen.iter().map(|&frame| Frame(frame).address()).collect();
        Self { world, region, reader, frames, first }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.world.state.published.regions[RegionId(self.region).index()].bytes)
    }

    /// Where a word is, if the region has it.
    fn word(&self, number: u16) -> Option<u64> {
        let at = 8 * u64::from(number);
        match self.frames.get((at / PAGE_SIZE) as usize) {
            Some(frame) => Some(frame + at % PAGE_SIZE),
            None => (self.frames.is_empty() && at < self.bytes()).then_some(self.first + at),
        }
    }

    fn set(&mut self, number: u16, value: u64) {
        if let Some(at) = self.word(number) {
            self.world.machine.word_set(at, value);
        }
    }

    /// The word of a stranger's that lies so far behind the region's first frame.
    fn set_behind(&mut self, number: u16, value: u64) {
        let at = self.first + 8 * u64::from(number);
        let is_its = |frame: &u64| frame / PAGE_SIZE == at / PAGE_SIZE;
        if !self.frames.is_empty() && !self.frames.iter().any(is_its) {
            self.world.machine.word_set(at, value);
        }
    }

    /// The step, and what the world is then.
    fn enters(&mut self, index: usize, call: Call, short: bool) -> (Option<Done>, String) {
        let (region, reader) = (RegionId(self.region), self.reader);
        let digest = |world: &mut World| digest(world, region, reader);
        let way: &dyn Fn(&mut World) -> String = &digest;
        let done = enters(&mut self.world, (0, index), call, short.then_some(way));
        (done, digest(&mut self.world))
    }
}

fn digest(world: &mut World, region: RegionId, reader: usize) -> String {
    let mut all = records(world, reader, [number::RegionStep, number::RegionStepOrWait]);
    let slot = &world.state.regions.slots[region.into()];
    note(&mut all, &(slot.waiters, slot.waiter, slot.watched));
    note(&mut all, &world.state.published.regions[region.index()]);
    all
}

/// Words, offsets and lengths around the ends of a region of so many bytes, and of its frames.
fn words(bytes: u64) -> Vec<u16> {
    let last = (bytes / 8 - 1) as u16;
    let mut all = vec![0, 1, 2, 7, 8, 511, 512, 513, last - 1, last, last + 1, u16::MAX];
    all.sort_unstable();
    all.dedup();
    all
}

fn offsets(bytes: u64) -> Vec<u32> {
    let pages = [0, PAGE_SIZE, bytes];
    let around = |at: u64| [at.wrapping_sub(8), at.wrapping_sub(1), at, at + 1].map(|at| at as u32);
    let mut all: Vec<u32> = pages.into_iter().flat_map(around).collect();
    all.sort_unstable();
    all.dedup();
    all
}

const LENGTHS: [u32; 6] = [0, 1, 8, PAGE_SIZE as u32 - 1, PAGE_SIZE as u32, PAGE_SIZE as u32 + 1];

fn step_of(step: Step, address: u64, from: u64, beside: u64) -> Call {
    let [which, piece, words] = step.to_words();
    Call::RegionStep { which, address, piece, words, from, beside }
}

fn wait_of(step: Step, address: u64, from: u64) -> Call {
    let [which, piece, words] = step.to_words();
    Call::RegionStepOrWait { which, address, piece, words, from, posted: 0 }
}

/// How often the short way was taken.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// The caller went on.
    went_on: u32,
    /// The other one ran.
    switched: u32,
}

impl AddAssign for Taken {
    fn add_assign(&mut self, other: Self) {
        self.went_on += other.went_on;
        self.switched += other.switched;
    }
}

/// Calls made one after the other in two worlds, with the words set before: in one of them by the
/// short way where it is open.
fn alike(
    kind: u64,
    set: &[(u16, u64)],
    behind: Option<(u16, u64)>,
    calls: &[(bool, Call)],
    what: &dyn Debug,
) -> Taken {
    let (mut long, mut short) = (Setting::new(kind), Setting::new(kind));
    let mut taken = Taken::default();
    for setting in [&mut long, &mut short] {
        set.iter().for_each(|&(number, value)| setting.set(number, value));
        if let Some((number, value)) = behind {
            setting.set_behind(number, value);
        }
        for index in [WRITER, setting.reader] {
            setting.world.poke(index, DATA, 0x1111 * index as u64);
            setting.world.poke(index, DATA + PAGE_SIZE - 8, 0x2222 * index as u64);
        }
    }
    for &(writes, call) in calls {
        let index = if writes { WRITER } else { long.reader };
        if long.world.state_of(index) == EnvState::Sleeping {
            continue;
        }
        for world in [&mut long.world, &mut short.world] {
            world.on(0, index);
            assert_eq!(world.pick(0), index);
        }
        let (_, one) = long.enters(index, call, false);
        let (done, other) = short.enters(index, call, true);
        match done {
            Some(Done::Switched { .. }) => taken.switched += 1,
            Some(_) => taken.went_on += 1,
            None => {}
        }
        for (one, other) in one.lines().zip(other.lines()) {
            assert_eq!(one, other, "{kind:#x} {what:?}: {call:?} {done:?}");
        }
        let (one, other) = (long.world.machine.words(), short.world.machine.words());
        // The slices in one go: word by word it takes long where nothing is optimized.
        if one != other {
            let differs = one.iter().zip(other).position(|(one, other)| one != other);
            panic!("{kind:#x} {what:?}: {call:?} {done:?}: {differs:?}");
        }
    }
    taken
}

/// The step of a sleeper that is done by the one that wakes it.
#[test]
fn steps_of_sleepers_end_alike() {
    let mut taken = Taken::default();
    for kind in KINDS.into_iter().filter(|kind| kind & FIFO == 0) {
        let setting = Setting::new(kind);
        let bytes = setting.bytes();
        let mut case = |moves: u16, offset: u32, len: u32, address: u64| {
            let both = Step { region: setting.region, ..Step::NONE };
            // One that takes nothing waits for the word that it would move: the writer moves that.
            let (by, nothing) = if len == 0 { (8, true) } else { (len, false) };
            let put = Step { moves: if nothing { moves } else { 2 }, len: by, ..both };
            let take = Step { role: 1, peer: NO_PEER, moves, offset, beside: 2, len, ..both };
            let at = |times: u64| FROM + times * u64::from(by);
            let from = |times: u64| at(if nothing { 2 } else { times });
            let put = |times| (true, step_of(put, DATA, at(times), 0));
            let take = |times| (false, wait_of(take, address, from(times)));
            // Twice the long way, which looks at who is attached; then asleep and woken by turns.
            let calls = [put(0), take(0), take(1), put(1), take(2), put(2), take(3)];
            let set = [(2, from(0)), (moves, FROM)];
            // As if the word lay behind the first frame in memory.
            let behind = (moves, at(1));
            let what = (moves, offset, len, address);
            taken += alike(kind, &set, Some(behind), &calls, &what);
        };
        for moves in words(bytes) {
            case(moves, 24, 8, DATA);
            case(moves, 24, 0, DATA);
        }
        for offset in offsets(bytes) {
            for len in LENGTHS {
                case(0, offset, len, DATA);
            }
        }
        for (address, len) in [(PAGE_SIZE - 8, 8), (PAGE_SIZE - 4, 8), (1, 1), (8, 4095), (1, 4095)]
        {
            case(1, 0, len, DATA + address);
        }
    }
    assert!(taken.went_on > 200 && taken.switched > 100, "{taken:?}");
}

/// A step of the caller's own, and a wait.
#[test]
fn steps_of_callers_end_alike() {
    let mut taken = Taken::default();
    for kind in KINDS.into_iter().filter(|kind| kind & FIFO == 0) {
        let setting = Setting::new(kind);
        let bytes = setting.bytes();
        let mut case = |step: Step, waits: bool, address: u64| {
            let step = Step { region: setting.region, ..step };
            let end = FROM + u64::from(step.len);
            let set = [(step.beside, if waits { end } else { 9 }), (step.moves, FROM)];
            let again = |from: u64| match waits {
                true => wait_of(step, address, from),
                false => step_of(step, address, from, 9),
            };
            let calls = [(true, again(FROM)), (true, again(FROM)), (true, again(end))];
            taken += alike(kind, &set, None, &calls, &(step, address));
        };
        let eight = Step { peer: NO_PEER, len: 8, offset: 24, ..Step::NONE };
        for (moves, beside) in words(bytes).into_iter().flat_map(|word| [(word, 3), (3, word)]) {
            for flags in [0, STEP_IN, STEP_BESIDE, STEP_IN | STEP_BESIDE] {
                case(Step { moves, beside, flags, ..eight }, false, DATA);
            }
            case(Step { moves, beside, ..eight }, true, DATA);
        }
        for offset in offsets(bytes) {
            for len in LENGTHS {
                let step = Step { offset, len, moves: 0, beside: 1, ..eight };
                case(Step { flags: STEP_IN, ..step }, false, DATA);
                case(step, false, DATA);
                case(step, true, DATA);
            }
        }
    }
    assert!(taken.went_on > 200, "{taken:?}");
}

/// Both ends of a fifo, whose counters are anywhere.
#[test]
fn steps_of_fifos_end_alike() {
    let mut taken = Taken::default();
    for kind in KINDS.into_iter().filter(|kind| kind & FIFO != 0) {
        let setting = Setting::new(kind);
        let capacity = setting.bytes() - PAGE_SIZE;
        let eight = Step { region: setting.region, peer: NO_PEER, ..Step::NONE };
        let begins = [0, 1, 8, PAGE_SIZE - 8, PAGE_SIZE, capacity - 8, capacity - 1, capacity]
            .into_iter()
            .chain([u64::MAX - 7, u64::MAX, 1 << 32, (1 << 32) - 8]);
        for (from, len, off) in begins
            .flat_map(|from| LENGTHS.map(|len| (from, len)))
            .flat_map(|(from, len)| [0, 1, 8, PAGE_SIZE].map(|off| (from, len, off)))
        {
            let at = |from: u64| (PAGE_SIZE + from % capacity + off) as u32;
            let step = |from: u64| Step { len, offset: at(from), ..eight };
            let put = |from: u64| Step {
                flags: STEP_IN | STEP_BESIDE,
                moves: FIFO_HEAD,
                beside: FIFO_TAIL,
                ..step(from)
            };
            let take = |from: u64| Step {
                role: 1,
                moves: FIFO_TAIL,
                beside: FIFO_HEAD,
                flags: 0,
                ..step(from)
            };
            let at = |times: u64| from.wrapping_add(times * u64::from(len));
            let put = |times| (true, step_of(put(at(times)), DATA, at(times), at(times)));
            let take = |times| (false, wait_of(take(at(times)), DATA, at(times)));
            let calls = [put(0), take(0), take(1), put(1), take(2), put(2), put(3), take(3)];
            let set = [(FIFO_HEAD, from), (FIFO_TAIL, from)];
            taken += alike(kind, &set, None, &calls, &(from, len, off));
        }
    }
    assert!(taken.went_on > 200 && taken.switched > 100, "{taken:?}");
}
