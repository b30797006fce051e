//! Wakeup predicates: what is refused, what they mean, what they keep, when they are looked at.

use crate::index::EnvIndex;

use super::*;
use crate::fake::KERNEL_FRAMES;
use abi::id::RegionId;
use abi::layout::PUBLISHED;
use abi::limits::{PREDICATE_ATOMS, SLICE_NS};
use abi::memory::{LARGE, PRESENT};
use abi::predicate::{Operator, Source};
use abi::published::Table;
use abi::upcall::woken;

const SLEEP: Call = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
/// Words that the tests compare.
const A: u64 = SCRATCH + 0x800;
const B: u64 = SCRATCH + 0x808;

#[derive(Clone, Copy)]
pub struct A_ {
    operator: u8,
    left: (Source, u64),
    right: (Source, u64),
    last: bool,
    pub region: u64,
    mask: u64,
}

pub fn atom(left: (Source, u64), operator: Operator, right: (Source, u64)) -> A_ {
    A_ { operator: operator as u8, left, right, last: true, region: 0, mask: 0 }
}

pub fn memory(address: u64) -> (Source, u64) {
    (Source::Memory, address)
}

pub fn constant(value: u64) -> (Source, u64) {
    (Source::Constant, value)
}

pub fn set(world: &mut World, index: usize, atoms: &[A_]) -> Outcome {
    let mut words = vec![];
    for atom in atoms {
        let first = u64::from(atom.operator)
            | u64::from(atom.left.0 as u8) << 8
            | u64::from(atom.right.0 as u8) << 16
            | u64::from(atom.last) << 24;
        words.extend([first, atom.region, atom.left.1, atom.right.1, atom.mask]);
    }
    world.put(index, &words);
    let count = atoms.len() as u64;
    world.by(index, Call::PredicateSet { atoms: UserAddress(SCRATCH), count })
}

fn spawned() -> (World, usize) {
    spawned_in(World::new())
}

/// In a machine with room for a hundred and more environments.
fn spawned_in_a_crowd() -> (World, usize) {
    spawned_in(World::of(8192))
}

fn spawned_in(mut world: World) -> (World, usize) {
    let domain = world.domain();
    let index = world.spawn(domain);
    mask(&mut world, index);
    (world, index)
}

/// Does the predicate hold, as `Sleep` sees it?
fn holds(world: &mut World, index: usize) -> bool {
    match world.by(index, SLEEP) {
        Outcome::Answer(0, woken::PREDICATE) => true,
        Outcome::Left => {
            let id = world.id(index);
            env::lookup(&world.state, id).unwrap();
            crate::sleep::end_sleep(&mut world.state, &mut world.machine, EnvIndex::new(index));
            sched::make_ready(&mut world.state, &mut world.machine, EnvIndex::new(index), false);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_operator_compares_memory_with_memory() {
    let (mut world, index) = spawned();
    let cases = [
        (Operator::Equal, [false, true, false]),
        (Operator::NotEqual, [true, false, true]),
        (Operator::Below, [true, false, false]),
        (Operator::AtLeast, [false, true, true]),
    ];
    for (operator, expected) in cases {
        assert_eq!(set(&mut world, index, &[atom(memory(A), operator, memory(B))]), OK);
        for (value, expected) in [4, 5, 6].into_iter().zip(expected) {
            world.poke(index, A, value);
            world.poke(index, B, 5);
            assert_eq!(holds(&mut world, index), expected, "{operator:?} {value}");
        }
    }
    let masked = A_ { mask: 0xf0, ..atom(memory(A), Operator::Equal, constant(0x5f)) };
    assert_eq!(set(&mut world, index, &[masked]), OK);
    world.poke(index, A, 0xa50);
    assert!(holds(&mut world, index));
    let half = atom((Source::Memory32, A + 4), Operator::Equal, constant(7));
    assert_eq!(set(&mut world, index, &[half]), OK);
    world.poke(index, A, 7 << 32 | 9);
    assert!(holds(&mut world, index));
    world.poke(index, A, 7);
    assert!(!holds(&mut world, index));
}

#[test]
fn terms_are_sums_of_products() {
    let (mut world, index) = spawned();
    let is = |address, value| atom(memory(address), Operator::Equal, constant(value));
    // A == 1 and B == 1, or A == 2 and B == 2
    let and = |one: A_, other: A_| [A_ { last: false, ..one }, other];
    let [a, b] = and(is(A, 1), is(B, 1));
    let [c, d] = and(is(A, 2), is(B, 2));
    assert_eq!(set(&mut world, index, &[a, b, c, d]), OK);
    for (first, second, expected) in
        [(1, 1, true), (1, 2, false), (2, 1, false), (2, 2, true), (0, 0, false)]
    {
        world.poke(index, A, first);
        world.poke(index, B, second);
        assert_eq!(holds(&mut world, index), expected, "{first} {second}");
    }
    // An unfinished term counts for nothing.
    assert_eq!(set(&mut world, index, &[A_ { last: false, ..is(A, 0) }]), OK);
    world.poke(index, A, 0);
    assert!(!holds(&mut world, index));
    assert_eq!(set(&mut world, index, &[]), OK);
    assert!(!holds(&mut world, index), "no predicate never holds");
}

#[test]
fn what_the_caller_may_not_read_is_refused() {
    let (mut world, index) = spawned();
    let before = world.census();
    world.machine.zero(Frame(2));
    let bad = |left| [atom(left, Operator::Equal, constant(0))];
    for (source, address) in [
        (Source::Memory, A + 4),
        (Source::Memory32, A + 2),
        (Source::Memory, 0x7000_0000),
        (Source::Memory, abi::layout::DIRECT_MAP),
        (Source::Memory, abi::layout::OWN_TABLES),
        (Source::Memory, PUBLISHED),
    ] {
        let outcome = set(&mut world, index, &bad((source, address)));
        assert_eq!(outcome, error(Error::BadAddress, 0), "{address:#x}");
    }
    let unknown = A_ { operator: 9, ..atom(memory(A), Operator::Equal, constant(0)) };
    assert_eq!(set(&mut world, index, &[unknown]), error(Error::BadArgument, 0));
    let region = A_ { region: 77, ..atom((Source::Region, 0), Operator::Equal, constant(0)) };
    assert_eq!(set(&mut world, index, &[region]), error(Error::NoSuchRegion, 0));
    let count = PREDICATE_ATOMS as u64 + 1;
    let call = Call::PredicateSet { atoms: UserAddress(SCRATCH), count };
    assert_eq!(world.by(index, call), error(Error::TooLarge, PREDICATE_ATOMS as u64));
    let used = world.state.published.accounts[1].used[7];
    world.state.published.accounts[1].limit[7] = used;
    let good = bad(memory(A));
    assert_eq!(set(&mut world, index, &good), error(Error::OverQuota, 7));
    assert_eq!(world.census(), before);
}

#[test]
fn a_page_that_is_unmapped_stays_until_the_next_predicate() {
    let (mut world, index) = spawned();
    let domain = env::domain(&world.state, EnvIndex::new(index)).index();
    let frame = world.map(domain, 0x60_0000);
    let left = memory(0x60_0000);
    assert_eq!(set(&mut world, index, &[atom(left, Operator::Equal, constant(3))]), OK);
    let item = Item {
        operation: Operation::Unmap as u8,
        level: 1,
        more: 0,
        frame: 0,
        address: 0x60_0000,
        value: 0,
    };
    world.update((domain, domain), 0, &item).unwrap();
    world.settle();
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Data));
    world.machine.word_set(frame.address(), 3);
    assert!(holds(&mut world, index));
    // A new one that is refused leaves the old one; one that is accepted lets go.
    let bad = atom(memory(1), Operator::Equal, constant(0));
    assert_eq!(set(&mut world, index, &[bad]), error(Error::BadAddress, 0));
    assert!(holds(&mut world, index));
    assert_eq!(set(&mut world, index, &[]), OK);
    world.settle();
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
}

#[test]
fn the_clock_wakes_at_its_edge() {
    let (mut world, index) = spawned();
    let late = atom((Source::Clock, 0), Operator::AtLeast, constant(50_000));
    assert_eq!(set(&mut world, index, &[late]), OK);
    assert_eq!(world.by(index, SLEEP), Outcome::Left);
    world.pick(0);
    assert_eq!(sched::next_deadline(&world.state, CpuIndex::new(1)), Some(50_000));
    world.machine.now = 49_999;
    world.pick(0);
    assert_eq!(world.state_of(index), EnvState::Sleeping);
    world.machine.now = 50_000;
    world.pick(0);
    assert_ne!(world.state_of(index), EnvState::Sleeping);
    assert_eq!(world.machine.context(index).rdx, woken::PREDICATE);
}

/// Of a masked clock nobody can say when it will have the value: it is looked at again and again.
#[test]
fn a_masked_clock_has_no_edge_at_its_value() {
    const BIT: u64 = 1 << 23;
    for (operator, value) in [(Operator::NotEqual, 0), (Operator::Equal, BIT)] {
        let (mut world, index) = spawned();
        world.machine.now = 1 << 30;
        let compared = atom((Source::Clock, 0), operator, constant(value));
        assert_eq!(set(&mut world, index, &[A_ { mask: BIT, ..compared }]), OK);
        assert_eq!(world.by(index, SLEEP), Outcome::Left);
        assert_eq!(world.by(1, SLEEP), Outcome::Left);
        assert_eq!(world.pick(0), 0, "nobody runs");
        let again = sched::next_deadline(&world.state, CpuIndex::new(0));
        assert_eq!(again, Some(world.machine.now + SLICE_NS), "{operator:?}");
        world.machine.now += SLICE_NS;
        assert_ne!(world.machine.now & BIT, 0);
        assert_eq!(world.pick(0), index, "{operator:?}");
    }
}

/// Both sides are masked, by all bits if the mask is 0: the lowest and the highest one count.
#[test]
fn a_mask_counts_from_its_lowest_to_its_highest_bit() {
    let (mut world, index) = spawned();
    for bit in [0, 1, 31, 32, 62, 63].map(|shift| 1_u64 << shift) {
        for mask in [0, bit, !bit] {
            let equal = A_ { mask, ..atom(memory(A), Operator::Equal, constant(bit | 4)) };
            assert_eq!(set(&mut world, index, &[equal]), OK);
            for value in [bit | 4, bit, 4, 0, !0] {
                world.poke(index, A, value);
                let all = if mask == 0 { u64::MAX } else { mask };
                let expected = (value ^ (bit | 4)) & all == 0;
                let held = holds(&mut world, index);
                assert_eq!(held, expected, "{value:#x} under {mask:#x}, bit {bit:#x}");
            }
        }
    }
}

#[test]
fn a_compiled_comparison_has_the_same_mask() {
    let world = World::new();
    for (mask, all) in [(0, u64::MAX), (1, 1), (1 << 63, 1 << 63)] {
        let constant = Source::Constant as u8;
        let atom =
            abi::predicate::Atom { left: constant, right: constant, mask, ..Default::default() };
        let compared = crate::compiled::comparison(&world.state, &world.machine, &atom);
        assert_eq!(compared.mask, all);
    }
}

#[test]
fn what_the_kernel_writes_is_looked_at_at_once() {
    let (mut world, index) = spawned();
    let mut region = |call| match world.by(index, call) {
        Outcome::Answer(0, value) => value,
        other => panic!("{other:?}"),
    };
    let id = RegionId(region(Call::RegionAlloc { frames: UserAddress(0), count: 0 }));
    region(Call::RegionAttach { region: id, role: 0, domain: DomainId::NONE });
    let watch = atom((Source::Region, 8), Operator::NotEqual, constant(0));
    assert_eq!(set(&mut world, index, &[A_ { region: id.0, ..watch }]), OK);
    assert_eq!(world.by(index, SLEEP), Outcome::Left);
    let attach = Call::RegionAttach { region: id, role: 1, domain: DomainId::NONE };
    assert_eq!(world.by(1, attach), OK);
    let mut words = [0; 20];
    (words[0], words[3]) = (id.0, 1 << 40 | 1 << 56);
    (words[12], words[13]) = (8, 5);
    world.put(1, &words);
    // What was written before is settled; only the region's word is new.
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.state_of(index), EnvState::Sleeping);
    assert_eq!(world.by(1, Call::RegionOperate { operation: UserAddress(SCRATCH) }), OK);
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.state_of(index), EnvState::Ready, "without its turn");
}

#[test]
fn what_a_program_writes_is_looked_at_at_the_sleepers_turn() {
    let (mut world, index) = spawned();
    let watch = atom(memory(A), Operator::Equal, constant(1));
    assert_eq!(set(&mut world, index, &[watch]), OK);
    assert_eq!(world.by(index, SLEEP), Outcome::Left);
    world.on(0, 1);
    world.poke(index, A, 1);
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.state_of(index), EnvState::Sleeping);
    let mut turns = vec![];
    for _ in 0..2 {
        world.machine.now += SLICE_NS;
        turns.push(world.pick(0));
    }
    assert!(turns.contains(&index), "{turns:?}");
    // Or at once when somebody yields to it, or nobody else is left.
    for way in ["yield", "idle"] {
        world.poke(index, A, 0);
        assert_eq!(world.by(index, SLEEP), Outcome::Left);
        world.on(0, 1);
        world.poke(index, A, 1);
        let call = match way {
            "yield" => Call::Yield { to: world.id(index) },
            _ => Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 },
        };
        assert_eq!(world.by(1, call), Outcome::Left);
        assert_eq!(world.pick(0), index, "{way}");
    }
}

#[test]
fn an_idle_processor_looks_at_everybody_in_pieces() {
    let (mut world, bystander) = spawned_in_a_crowd();
    assert_eq!(world.by(bystander, SLEEP), Outcome::Left);
    let sleepers = a_hundred_sleepers(&mut world);
    for wanted in [sleepers[0], sleepers[50], sleepers[99]] {
        let deadline = world.machine.now + 1000;
        let call = Call::Sleep { deadline, posted: 0, events: 0, flags: 0 };
        assert_eq!(world.by(1, call), Outcome::Left);
        world.poke(wanted, A, wanted as u64);
        let mut picks = 0;
        while world.pick(0) != wanted {
            picks += 1;
            let soon =
                sched::next_deadline(&world.state, CpuIndex::new(0)).is_some_and(|at| at == 0);
            assert!(soon && picks < 16, "{wanted}: idle, but not all were looked at");
        }
        world.poke(wanted, A, 0);
        assert_eq!(world.by(wanted, SLEEP), Outcome::Left);
        let mut idle = false;
        for _ in 0..32 {
            assert_eq!(world.pick(0), 0);
            idle |= sched::next_deadline(&world.state, CpuIndex::new(0)) == Some(deadline);
        }
        assert!(idle, "then it is idle");
        world.machine.now = deadline;
        assert!((0..8).any(|_| world.pick(0) == 1), "its turn comes");
    }
}

/// As many at one position, each of which waits until the word at `A` is its index.
fn a_hundred_sleepers(world: &mut World) -> Vec<usize> {
    let domain = world.domain();
    let sleepers: Vec<usize> = (0..100).map(|_| world.spawn_masked(domain)).collect();
    for &index in &sleepers {
        let watch = atom(memory(A), Operator::Equal, constant(index as u64));
        assert_eq!(set(world, index, &[watch]), OK);
        assert_eq!(world.by(index, SLEEP), Outcome::Left);
    }
    sleepers
}

/// Picks until somebody runs; how often.
fn pieces(world: &mut World) -> usize {
    let mut pieces = 1;
    while world.pick(0) == 0 {
        pieces += 1;
        let soon = sched::next_deadline(&world.state, CpuIndex::new(0)).is_some_and(|at| at == 0);
        assert!(soon && pieces <= 6, "idle after {pieces}, but somebody is ready");
    }
    pieces
}

/// Whoever is ready is found behind any number of sleepers, a piece in each hold of the lock; and
/// all of these are looked at in turn, those that a hold has walked past, too.
#[test]
fn a_long_ring_is_walked_in_pieces() {
    let (mut world, busy) = spawned_in_a_crowd();
    // Beside an idle processor all sleepers are looked at: it must be the ring that finds them.
    let call = Call::SliceAlloc { cpu: 1, position: Which::Any, env: world.id(busy) };
    assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
    assert_eq!(world.pick(1), busy);
    let sleepers = a_hundred_sleepers(&mut world);
    let mut most = 0;
    for wanted in [sleepers[99], sleepers[3], sleepers[40], sleepers[80]] {
        world.on(0, 1);
        world.poke(wanted, A, wanted as u64);
        // A turn looks at eleven: of a hundred, everybody's comes within ten, and one to begin.
        let mut turns = 0;
        while world.state_of(wanted) == EnvState::Sleeping {
            turns += 1;
            assert!(turns <= 11, "{wanted} is never looked at");
            assert_eq!(world.by(1, Call::Yield { to: EnvId::NONE }), Outcome::Left);
            most = most.max(pieces(&mut world));
        }
        world.poke(wanted, A, 0);
        assert_eq!(world.by(wanted, SLEEP), Outcome::Left);
    }
    assert!(most > 4, "a hundred in {most} holds");
}

/// Shows a table in a page of words: the address of its records and where they are.
fn show(world: &mut World, table: Table) -> (u64, u64) {
    // Directory tables: one large page at the kernel's frame 512 of them, which holds words of
    // ours.
    let physical = u64::from(KERNEL_FRAMES - 1) * PAGE_SIZE;
    world.machine.entry_swap(Frame(2), 0, 0x8000 | PRESENT);
    world.machine.entry_swap(Frame(8), 0, 0x9000 | PRESENT);
    world.machine.entry_swap(Frame(9), 3, physical | PRESENT);
    world.machine.entry_swap(Frame(8), 1, LARGE | PRESENT);
    let address = PUBLISHED + 3 * PAGE_SIZE;
    let info = &mut world.state.published.directory.tables[table as usize];
    (info.address, info.stride, info.count) = (address, 128, 16);
    (address, physical)
}

/// What the sleepers are to be looked at for, after this.
fn touches(world: &mut World, change: impl FnOnce(&mut World)) -> u64 {
    (world.state.sched.watched, world.state.sched.dirty) = (!0, 0);
    change(world);
    world.state.sched.dirty
}

/// The classes of records are shared with other words: what happens to a record concerns sleepers
/// only if one has named it.
#[test]
fn records_that_no_predicate_names_concern_no_sleeper() {
    let (mut world, index) = spawned();
    let (address, _) = show(&mut world, Table::Envs);
    let change = |world: &mut World| env::changed(&mut world.state, EnvIndex::new(5));
    assert_eq!(touches(&mut world, change), 0);
    let watch = |at: u64| atom(memory(at), Operator::NotEqual, constant(0));
    assert_eq!(set(&mut world, index, &[watch(address + 5 * 128)]), OK);
    let class = crate::predicate::published_bit(Table::Envs, 5);
    assert_eq!(touches(&mut world, change), class);
    // Also if it is another one's by then.
    env::forget(&mut world.state, EnvIndex::new(5));
    assert_eq!(touches(&mut world, change), class);
}

/// The same of frames: what the kernel writes there, events and packets, concerns sleepers only if
/// one has named a word of the frame.
#[test]
fn frames_that_no_predicate_names_concern_no_sleeper() {
    let (mut world, index) = spawned();
    let domain = env::domain(&world.state, EnvIndex::new(index));
    let root = domain::root(&world.state, domain.into());
    let frame = crate::table::look_up(&world.machine, root, A).unwrap().frame;
    let write = |world: &mut World| crate::sched::written(&mut world.state, frame);
    assert_eq!(touches(&mut world, write), 0);
    let named = atom(memory(A), Operator::NotEqual, constant(0));
    assert_eq!(set(&mut world, index, &[named]), OK);
    assert_eq!(touches(&mut world, write), crate::predicate::frame_bit(frame));
    // It has been revoked and taken again: no predicate names it.
    let revoke = Call::FrameRevoke { frame, flags: 0 };
    assert_eq!(world.by(1, revoke), Outcome::Answer(0, 0));
    world.settle();
    let (payer, guard, kind) = (AccountIndex::new(1), Name::ROOT, FrameType::Data);
    let which = Which::This(frame.0);
    let taken = frame::allocate(&mut world.state, &mut world.machine, which, payer, guard, kind);
    assert_eq!(taken.map(|taken| taken.0), Ok(frame.0), "it is free again");
    assert_eq!(touches(&mut world, write), 0);
}

/// The same of how many are attached to a region.
#[test]
fn regions_that_no_predicate_names_concern_no_sleeper() {
    let (mut world, index) = spawned();
    world.put(1, &[u64::MAX]);
    let make = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 1 };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no region") };
    let region = RegionId(id);
    let attach = |world: &mut World| {
        let call = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
        assert_eq!(world.by(1, call), OK);
    };
    assert_eq!(touches(&mut world, attach), 0);
    let (address, _) = show(&mut world, Table::Regions);
    let record = address + region.index() as u64 * 128;
    let named = atom(constant(0), Operator::NotEqual, memory(record + 8));
    assert_eq!(set(&mut world, index, &[named]), OK);
    let class = crate::predicate::published_bit(Table::Regions, region.index());
    assert_eq!(touches(&mut world, attach), class);
    let detach = |world: &mut World| {
        assert_eq!(world.by(1, Call::RegionDetach { region, role: 0 }), OK);
    };
    assert_eq!(touches(&mut world, detach), class);
    assert_eq!(touches(&mut world, detach), class);
}

/// A comparison with a word of a region is true when the region ends: who sleeps is told, though no
/// predicate names the record.
#[test]
fn the_end_of_a_region_ends_sleeps_on_its_words() {
    let (mut world, index) = spawned();
    let make = Call::RegionAlloc { frames: UserAddress(0), count: 0 };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no region") };
    let region = RegionId(id);
    let attach = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
    assert_eq!((world.by(1, attach), world.by(index, attach)), (OK, OK));
    let watch = atom((Source::Region, 8), Operator::NotEqual, constant(0));
    assert_eq!(set(&mut world, index, &[A_ { region: id, ..watch }]), OK);
    let detach = Call::RegionDetach { region, role: 0 };
    assert_eq!(world.by(index, detach), OK);
    assert_eq!(world.by(index, SLEEP), Outcome::Left);
    // What was written before is settled.
    world.on(0, 1);
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.state_of(index), EnvState::Sleeping);
    assert_eq!(world.by(1, detach), OK);
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.state_of(index), EnvState::Ready, "without its turn");
}

#[test]
fn published_records_can_be_watched() {
    let (mut world, index) = spawned();
    let (address, physical) = show(&mut world, Table::Envs);
    world.machine.word_set(physical + 0x68, 0);
    let watch = atom(memory(address + 0x68), Operator::NotEqual, constant(0));
    assert_eq!(set(&mut world, index, &[watch]), OK);
    let class = crate::predicate::published_bit(Table::Envs, 0);
    assert_eq!(world.state.envs.slots[EnvIndex::new(index)].watched, class);
    assert!(!holds(&mut world, index));
    world.machine.word_set(physical + 0x68, 1);
    assert!(holds(&mut world, index));
    // A 2 MiB page holds physical 0 to 2 MiB.
    let watch = atom(memory(PUBLISHED + 0x20_0000 + physical + 0x68), Operator::Equal, constant(1));
    assert_eq!(set(&mut world, index, &[watch]), OK);
    assert!(holds(&mut world, index));
}

#[test]
fn a_revoked_frame_makes_its_atoms_true() {
    let (mut world, index) = spawned();
    let domain = env::domain(&world.state, EnvIndex::new(index)).index();
    let frame = world.map(domain, 0x60_0000);
    let watch = atom(memory(0x60_0000), Operator::Equal, constant(99));
    assert_eq!(set(&mut world, index, &[watch]), OK);
    assert_eq!(world.by(index, SLEEP), Outcome::Left);
    assert_eq!(world.by(1, Call::FrameRevoke { frame, flags: 0 }), OK);
    world.pick(0);
    assert_eq!(world.state_of(index), EnvState::Ready);
    world.settle();
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
    assert_eq!(world.by(1, Call::FrameRevoke { frame, flags: 0 }), error(Error::NoSuchFrame, 0));
}

/// Its home idles without a timer; who stores runs on another processor and never sleeps.
#[test]
fn a_store_elsewhere_is_noticed_for_the_sleepers_of_an_idle_processor() {
    let (mut world, sleeper) = spawned();
    let domain = env::domain(&world.state, EnvIndex::new(sleeper));
    let writer = world.spawn_masked(domain);
    let call = Call::SliceAlloc { cpu: 1, position: Which::Any, env: world.id(writer) };
    assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
    let watch = atom(memory(A), Operator::Equal, constant(1));
    assert_eq!(set(&mut world, sleeper, &[watch]), OK);
    assert_eq!(world.by(sleeper, SLEEP), Outcome::Left);
    assert_eq!(world.by(1, SLEEP), Outcome::Left);
    assert_eq!(world.pick(0), 0);
    assert_eq!(sched::next_deadline(&world.state, CpuIndex::new(0)), None, "nobody runs");
    assert_eq!(world.pick(1), writer);
    world.poke(sleeper, A, 1);
    world.machine.interrupts.clear();
    world.machine.now += SLICE_NS;
    world.pick(1);
    world.machine.now += SLICE_NS;
    assert_eq!(world.pick(1), writer);
    assert_eq!(world.machine.interrupts, [0]);
    assert_eq!(world.pick(0), sleeper);
}
