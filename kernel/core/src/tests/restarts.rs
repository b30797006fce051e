//! Calls that run again: interrupted at whatever step, they leave what they leave in one go.
//!
//! The table of calls says which these are (`Completion::Restartable`); l4stack 22.

use crate::index::EnvIndex;

use super::*;
use crate::work::{self, PIECE};
use abi::call::{Completion, TABLE};
use abi::limits::REGION_FRAMES;
use abi::memory::SOFTWARE;
use abi::region::COPY_IN;

/// What the batches shape: one level-1 table's pages.
const AREA: u64 = 0x5000_0000_0000;
const PAGES: u64 = 96;
/// Program memory that is copied to a region: the last page's half is not needed.
const SOURCE: u64 = 0x60_0000;
const SOURCE_PAGES: u64 = 3;

fn item(operation: Operation, level: u8, page: u64, more: u16, value: u64) -> [u64; 3] {
    let first = operation as u64 | u64::from(level) << 8 | u64::from(more) << 16;
    [first | u64::from(ANY_FRAME) << 32, AREA + page * PAGE_SIZE, value]
}

/// A batch of items of all kinds that a program's memory is shaped by, many pages in some.
fn batch() -> Vec<u64> {
    let data = WRITABLE | NO_EXECUTE;
    let table = u64::from(ANY_FRAME);
    let mut items = vec![
        item(Operation::Table, 4, 0, 0, table),
        item(Operation::Table, 3, 0, 0, table),
        item(Operation::Table, 2, 0, 0, table),
        item(Operation::Allocate, 1, 0, 10, data),
        item(Operation::Protect, 1, 0, 10, NO_EXECUTE),
        item(Operation::Unmap, 1, 5, 5, 0),
        item(Operation::Allocate, 1, 6, 2, data | SOFTWARE & 1 << 9),
    ];
    items.extend((60..64).map(|page| item(Operation::Allocate, 1, page, 0, data)));
    items.extend((62..64).map(|page| item(Operation::Unmap, 1, page, 0, 0xbeef << 12)));
    items.concat()
}

/// All that anybody can see of the world.
fn picture(world: &mut World) -> String {
    world.settle();
    let root = domain::root(&world.state, env::domain(&world.state, EnvIndex::new(1)).into());
    let leaf = |page| {
        let leaf = table::look_up(&world.machine, root, AREA + page * PAGE_SIZE);
        leaf.map(|leaf| (leaf.frame, leaf.writable, leaf.executable))
    };
    let leaves: Vec<_> = (0..PAGES).map(leaf).collect();
    let published = &world.state.published;
    let used = published.accounts[1].used;
    let in_use = |kind| !matches!(frame::kind_of(kind), FrameType::Free | FrameType::Absent);
    let frames: Vec<_> =
        (0..).zip(&published.frames[..]).filter(|(_, record)| in_use(record.kind)).collect();
    let domains: Vec<_> = published.domains.iter().filter(|record| record.id != 0).collect();
    format!("{leaves:?} {used:?} {frames:?} {domains:?} {}", world.state.frames.free_count())
}

/// Does the batch, with so much spent before each of its rounds: what is left behind, the answer,
/// and the rounds.
fn update(spent: impl Fn(usize) -> u32) -> (String, Outcome, usize) {
    let mut world = World::new();
    let words = batch();
    world.put(1, &words);
    world.machine.context(1).r10 = 0;
    let (mut items, mut count) = (SCRATCH, words.len() as u64 / 3);
    let mut round = 0;
    loop {
        world.spent = spent(round);
        let domain = DomainId::NONE;
        let call = Call::TableUpdate { domain, items: UserAddress(items), count };
        let outcome = world.by(1, call);
        round += 1;
        if outcome != Outcome::Again {
            world.spent = 0;
            return (picture(&mut world), outcome, round);
        }
        // As the machine layer does: the call runs again with the registers that were advanced.
        let context = world.machine.context(1);
        (items, count) = (context.rsi, context.rdx);
        assert!(round < 1000, "it gets nowhere");
    }
}

#[test]
fn table_updates_restart_at_each_step() {
    let (whole, answer, rounds) = update(|_| 0);
    assert_eq!(rounds, 1, "the reference is not interrupted");
    assert!(matches!(answer, Outcome::Answer(0, _)), "{answer:?}");
    // At one step, early or late.
    let mut most = 0;
    for spent in (0..=PIECE).step_by(4 * work::cost::ENTRY as usize) {
        let (left, again, rounds) = update(|round| if round == 0 { spent } else { 0 });
        assert_eq!((&left, again), (&whole, answer), "{spent} spent at first");
        most = most.max(rounds);
    }
    assert!(most > 1, "it was never interrupted");
    // At every step.
    let (left, again, rounds) = update(|_| PIECE);
    assert!(rounds > 30, "{rounds} rounds");
    assert_eq!((left, again), (whole, answer));
}

/// Copies three pages of program memory to a region, with a write behind; those missing come when
/// they are asked for. What the region holds then, and the faults.
fn copy(missing: u64) -> (Vec<u64>, usize) {
    const LEN: u64 = 2 * PAGE_SIZE + 80;
    let mut world = World::new();
    let domain = env::domain(&world.state, EnvIndex::new(1)).index();
    let map = |world: &mut World, page: u64| {
        let address = SOURCE + page * PAGE_SIZE;
        world.map(domain, address);
        for at in (0..PAGE_SIZE).step_by(8) {
            world.poke(1, address + at, address + at);
        }
    };
    for page in (0..SOURCE_PAGES).filter(|page| missing >> page & 1 == 0) {
        map(&mut world, page);
    }
    let frames = vec![u64::MAX; 2];
    world.put(1, &frames);
    let alloc = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 4 };
    let Outcome::Answer(0, id) = world.by(1, alloc) else { panic!("RegionAlloc") };
    let region = RegionId(id);
    let attach = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
    assert_eq!(world.by(1, attach), OK);
    let mut words = [0; 20];
    // One compare, one write, bytes in: word 1 becomes 1 if it is 0.
    words[0] = region.0;
    (words[1], words[2]) = (SOURCE, 64);
    words[3] = LEN | 1 << 32 | 1 << 40 | u64::from(COPY_IN) << 48;
    (words[4], words[5]) = (8, 0);
    (words[12], words[13]) = (8, 1);
    world.put(1, &words);
    let mut faults = 0;
    loop {
        let call = Call::RegionOperate { operation: UserAddress(SCRATCH) };
        match world.by(1, call) {
            Outcome::Fault(fault) => {
                faults += 1;
                map(&mut world, (fault.address - SOURCE) / PAGE_SIZE);
            }
            outcome => {
                assert_eq!(outcome, OK);
                break;
            }
        }
        assert!(faults <= SOURCE_PAGES as usize, "a page faults twice");
    }
    let held: Vec<Frame> = (0..world.state.published.frames.len() as u32)
        .map(Frame)
        .filter(|&frame| frame::kind(&world.state, frame) == Some(FrameType::Region))
        .collect();
    assert!((1..=REGION_FRAMES).contains(&held.len()));
    let words = held.iter().flat_map(|frame| {
        (0..PAGE_SIZE).step_by(8).map(|at| world.machine.word(frame.address() + at))
    });
    let mut words: Vec<u64> = words.collect();
    words.push(world.state.published.regions[region.index()].operations);
    (words, faults)
}

#[test]
fn region_operations_restart_at_each_page() {
    let (whole, faults) = copy(0);
    assert_eq!(faults, 0);
    assert!(whole.contains(&(SOURCE + 2 * PAGE_SIZE + 72)), "it was copied");
    for missing in 1..1 << SOURCE_PAGES {
        let (left, faults) = copy(missing);
        assert_eq!(faults as u32, u64::count_ones(missing), "pages missing: {missing:#b}");
        assert_eq!(left, whole, "pages missing: {missing:#b}");
    }
}

/// Who adds one finds here where the others are tried: those that copy or wait in `steps` and
/// `waiting`, too, woken for nothing; retraction in `capabilities`, the binding of methods by the
/// model, which begins it anew until it is done.
#[test]
fn these_calls_restart() {
    let restartable = TABLE.iter().filter(|row| row.completion == Completion::Restartable);
    let names: Vec<_> = restartable.map(|row| row.name).collect();
    let known = [
        "TableUpdate",
        "RegionOperate",
        "ConsoleWrite",
        "RegionAwait",
        "CapabilityRetract",
        "RegionStep",
        "RegionStepOrWait",
        "MethodBind",
        "RegionPass",
    ];
    assert_eq!(names, known);
}
