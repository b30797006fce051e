//! Looks at sleepers, whose predicates may be dear, are paid for by the sleepers' account.

use super::predicates::{A_, atom, constant, memory, set};
use super::turns::{process, sleep_for_ever, user};
use super::waiting::{set as set_word, take};
use super::*;
use crate::work;
use abi::limits::{Resource, SLICE_NS};
use abi::predicate::Operator;
use abi::region::NO_ROLE;
use abi::setup::FLAG_GIVEN_TIME;

const CPU: CpuIndex = CpuIndex::new(0);
/// A word that a sleeper watches.
const WORD: u64 = SCRATCH + 0x800;
/// What a program does between two calls, and a call, in nanoseconds.
const STEP_NS: u64 = 4_000;
const HOLD_NS: u64 = 1_000;
const LONG_NS: u64 = 60 * SLICE_NS;
/// Sleepers, and comparisons of each: none of them is compiled.
const SLEEPERS: usize = 40;
const COMPARISONS: u64 = 24;

/// Two accounts' environments that run, one of each, and sleepers of the second account's.
struct Beside {
    world: World,
    neighbour: usize,
    computes: usize,
}

/// They and so many sleepers, whose predicates have these comparisons each and never hold.
fn beside(sleepers: usize, comparisons: &[A_]) -> Beside {
    let mut world = World::new();
    let [first, second] = [(); 2].map(|()| user(&mut world));
    let resource = Resource::Pins as u16;
    let call = Call::AccountLimit { account: second.0, resource, limit: 9_000, reserve: 0 };
    assert_eq!(world.by(1, call), OK);
    let neighbour = process(&mut world, first);
    let crowd: Vec<usize> = (0..sleepers).map(|_| process(&mut world, second)).collect();
    let computes = process(&mut world, second);
    for &index in &crowd {
        world.on(0, index);
        assert_eq!(set(&mut world, index, comparisons), OK);
        sleep_for_ever(&mut world, index);
    }
    world.on(0, 1);
    sleep_for_ever(&mut world, 1);
    Beside { world, neighbour, computes }
}

/// Comparisons of a word with so many numbers that it never is.
fn never(comparisons: u64) -> Vec<A_> {
    let compare = |at| atom(memory(SCRATCH), Operator::Equal, constant(1 + at));
    (0..comparisons).map(compare).collect()
}

impl Beside {
    /// What of the processor, in thousandths, `counted` has: a way out of the kernel takes `hold`
    /// and what is reckoned, and what runs does `step` then, and says for how long.
    fn share(&mut self, counted: usize, hold: u64, step: impl Fn(&mut World, usize) -> u64) -> u64 {
        let Self { world, neighbour, computes } = self;
        let (mut had, began) = (0, world.machine.now);
        while world.machine.now < began + LONG_NS {
            let (state, machine) = (&mut world.state, &mut world.machine);
            work::begin(state);
            let runs = sched::pick(state, machine, CPU);
            machine.interrupts.clear();
            machine.now += hold + u64::from(state.spent);
            work::end(state);
            // Nobody: the walk along the rings goes on.
            let Some(runs) = runs.map(EnvIndex::at) else { continue };
            assert!([*neighbour, *computes].contains(&runs), "a sleeper woke");
            let ran = step(world, runs);
            world.machine.now += ran;
            had += if runs == counted { ran } else { 0 };
        }
        1_000 * had / (world.machine.now - began)
    }
}

/// What one has that computes and calls beside another account: that computes, too, and has
/// sleepers for whose words the first one's calls write something.
fn share(sleepers: usize) -> u64 {
    let mut all = beside(sleepers, &never(COMPARISONS));
    let victim = all.neighbour;
    all.share(victim, HOLD_NS, |world, runs| {
        if runs == victim {
            sched::touched(&mut world.state, !0);
        }
        STEP_NS
    })
}

#[test]
fn who_has_sleepers_looked_at_takes_no_time_of_its_neighbours() {
    let (alone, beside) = (share(0), share(SLEEPERS));
    assert!(beside * 100 >= alone * 90, "{beside} of 1000, {alone} beside one that computes");
}

/// A sleeper of one account that waits for a word to be 1, an environment of the same account, and
/// one of another account's, which runs.
struct Watching {
    world: World,
    runs: usize,
    sleeper: usize,
    computes: usize,
}

impl Watching {
    /// They, where this is done to the sleeper before it sleeps.
    fn new(word: u64, prepare: impl FnOnce(&mut World, usize)) -> Self {
        let mut world = World::new();
        let [neighbour, other] = [(); 2].map(|()| user(&mut world));
        let runs = process(&mut world, neighbour);
        let [sleeper, computes] = [(); 2].map(|()| process(&mut world, other));
        prepare(&mut world, sleeper);
        world.on(0, sleeper);
        let watch = atom(memory(word), Operator::Equal, constant(1));
        assert_eq!(set(&mut world, sleeper, &[watch]), OK);
        sleep_for_ever(&mut world, sleeper);
        world.on(0, 1);
        sleep_for_ever(&mut world, 1);
        while world.pick(0) != runs {
            world.machine.now += SLICE_NS;
        }
        Self { world, runs, sleeper, computes }
    }

    /// The sleeper's account owes two turns, and the word becomes what it waits for.
    fn owes_and_is_written(&mut self, word: u64) {
        let Self { world, runs, sleeper, computes } = self;
        crate::turns::charge(&mut world.state, CPU, EnvIndex::new(*computes), 2 * SLICE_NS);
        world.poke(*sleeper, word, 1);
        sched::touched(&mut world.state, !0);
        assert_eq!(world.pick(0), *runs);
    }
}

/// A sleeper whose account owes a turn is looked at when its turn comes, and by the clock if it has
/// none.
#[test]
fn a_sleeper_whose_account_owes_a_turn_is_looked_at_in_its_turn() {
    for flags in [0, FLAG_GIVEN_TIME as u8] {
        let mut all = Watching::new(WORD, |world, sleeper| {
            world.state.envs.slots[EnvIndex::new(sleeper)].flags |= flags;
            sched::turns_changed(&mut world.state, EnvIndex::new(sleeper));
        });
        all.owes_and_is_written(WORD);
        let Watching { mut world, sleeper, .. } = all;
        assert_eq!(world.state_of(sleeper), EnvState::Sleeping, "at once");
        let most = if flags == 0 { 8 } else { 20 };
        let slices = (0..most).filter(|_| {
            world.machine.now += SLICE_NS;
            world.pick(0);
            world.state_of(sleeper) == EnvState::Sleeping
        });
        assert!(slices.count() < most, "it is never looked at");
    }
}

/// What one has that computes and has such sleepers, beside another account's environment that
/// writes at each call what they may watch.
fn share_of_owner(sleepers: usize, comparisons: u64) -> u64 {
    let mut all = beside(sleepers, &never(comparisons));
    let owner = all.computes;
    all.share(owner, 700, |world, runs| {
        if runs == owner {
            return STEP_NS;
        }
        sched::touched(&mut world.state, !0);
        300
    })
}

/// Whoever writes what others watch as often as it can takes little of their time.
#[test]
fn who_writes_what_sleepers_watch_takes_no_time_of_their_owner() {
    let alone = share_of_owner(0, 1);
    for (sleepers, comparisons) in [(1, 3), (4, 3), (SLEEPERS, 3), (SLEEPERS, COMPARISONS)] {
        let beside = share_of_owner(sleepers, comparisons);
        assert!(beside * 100 >= alone * 95, "{beside} of 1000, {alone} without {sleepers}");
    }
}

/// Nor does one that waits for a region beside others sleep through what was written meanwhile,
/// however many of them there are.
#[test]
fn who_waits_for_a_region_is_looked_at_in_its_turn() {
    let mut world = World::new();
    let [neighbour, other] = [(); 2].map(|()| user(&mut world));
    let runs = process(&mut world, neighbour);
    let takers: Vec<usize> = (0..SLEEPERS).map(|_| process(&mut world, other)).collect();
    let make = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 0 };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no region") };
    let region = RegionId(id);
    for (role, domain) in
        [(0, DomainId(world.state.published.envs[EnvIndex::new(1)].domain)), (1, other.1)]
    {
        assert_eq!(world.by(1, Call::RegionAttach { region, role, domain }), OK);
    }
    for &taker in &takers {
        world.on(0, taker);
        assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), Outcome::Left);
    }
    world.on(0, 1);
    // Where another one is idle all sleepers are looked at in each slice.
    world.state.sched.online = 1;
    let sleeping = |world: &World| {
        takers.iter().filter(|&&taker| world.state_of(taker) == EnvState::Sleeping).count()
    };
    let account = EnvIndex::new(takers[0]);
    crate::turns::charge(&mut world.state, CPU, account, 2 * SLICE_NS);
    assert_eq!(set_word(&mut world, 1, region, 0, 7), OK);
    assert_eq!((world.pick(0), world.pick(0)), (1, 1));
    assert_eq!(sleeping(&world), SLEEPERS, "at once");
    sleep_for_ever(&mut world, 1);
    for _ in 0..8 * SLEEPERS {
        world.pick(0);
        world.machine.now += SLICE_NS / 2;
    }
    assert_eq!(sleeping(&world), 0, "some are never looked at");
    assert_eq!(world.state_of(runs), EnvState::Ready);
}

/// The slice in which a sleeper of another account is looked at is as much longer.
#[test]
fn looks_at_others_sleepers_take_nothing_of_a_slice() {
    let Watching { mut world, runs, sleeper, .. } = Watching::new(SCRATCH, |_, _| {});
    let end = |world: &World| world.state.sched.cpus[CPU].slice_end_ns;
    let before = end(&world);
    sched::touched(&mut world.state, !0);
    assert_eq!(world.pick(0), runs);
    let cost = work::cost::SLEEPER + crate::predicate::cost(&world.state, EnvIndex::new(sleeper));
    assert_eq!(end(&world), before + u64::from(cost));
}

/// What one has that computes beside another account, which computes, too, and has sleepers that
/// compare words with the clock.
fn share_beside_clocks(sleepers: usize) -> u64 {
    let clock = (abi::predicate::Source::Clock, 0);
    let compare = |_| atom(memory(SCRATCH), Operator::Equal, clock);
    let mut all = beside(sleepers, &(0..COMPARISONS).map(compare).collect::<Vec<_>>());
    let victim = all.neighbour;
    // The timer's interrupt comes at once if more deadlines have passed.
    all.share(victim, HOLD_NS, |world, _| {
        STEP_NS.min(world.state.sched.alarms.soonest().saturating_sub(world.machine.now))
    })
}

#[test]
fn who_compares_words_with_the_clock_takes_no_time_of_its_neighbours() {
    let alone = share_beside_clocks(0);
    for sleepers in [SLEEPERS, 100] {
        let beside = share_beside_clocks(sleepers);
        assert!(beside * 100 >= alone * 90, "{beside} of 1000, {alone} without {sleepers}");
    }
}

/// Nor are looks by the clock at one that has no turns of its own free, where the account of who
/// runs is alone in the round.
#[test]
fn who_has_no_turns_pays_for_looks_by_the_clock() {
    let mut world = World::new();
    let [neighbour, attacker] = [(); 2].map(|()| user(&mut world));
    let victim = process(&mut world, neighbour);
    let sleeper = process(&mut world, attacker);
    world.on(0, sleeper);
    let clock = (abi::predicate::Source::Clock, 0);
    let watch = atom(memory(SCRATCH), Operator::Equal, clock);
    assert_eq!(set(&mut world, sleeper, &[watch]), OK);
    sleep_for_ever(&mut world, sleeper);
    world.state.envs.slots[EnvIndex::new(sleeper)].flags |= FLAG_GIVEN_TIME as u8;
    sched::turns_changed(&mut world.state, EnvIndex::new(sleeper));
    world.on(0, 1);
    sleep_for_ever(&mut world, 1);
    assert_eq!(world.pick(0), victim);
    world.machine.now = world.state.sched.alarms.soonest();
    assert_eq!(world.pick(0), victim);
    let credit = crate::loan::credit(&world.state, CPU, EnvIndex::new(sleeper));
    assert!(credit < SLICE_NS, "nobody has paid");
}

/// Sleepers without turns of their own, beside one that makes short calls, alone in the round: they
/// take no more than half.
#[test]
fn sleepers_without_turns_take_no_more_than_half() {
    let share = |sleepers: usize| {
        let mut all = beside(sleepers, &never(COMPARISONS));
        let victim = all.neighbour;
        sleep_for_ever(&mut all.world, all.computes);
        for index in (victim + 1..all.computes).map(EnvIndex::new) {
            all.world.state.envs.slots[index].flags |= FLAG_GIVEN_TIME as u8;
            sched::turns_changed(&mut all.world.state, index);
        }
        all.share(victim, 700, |world, _| {
            sched::touched(&mut world.state, !0);
            500
        })
    };
    let (alone, beside) = (share(0), share(SLEEPERS));
    assert!(beside * 100 >= alone * 45, "{beside} of 1000, {alone} alone");
}

/// Nor is a sleeper put off that is at home on a processor with nothing else to do, which has no
/// turns to look at it in.
#[test]
fn sleepers_of_an_idle_processor_are_looked_at_at_once() {
    let mut all = Watching::new(WORD, |world, sleeper| {
        let call = Call::SliceAlloc { cpu: 1, position: Which::Any, env: world.id(sleeper) };
        assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
        assert_eq!(world.state.envs.slots[EnvIndex::new(sleeper)].cpu, 1, "its home");
    });
    assert_eq!(all.world.state.sched.cpus[CpuIndex::new(1)].current, 0, "idle");
    all.owes_and_is_written(WORD);
    assert_eq!(all.world.state_of(all.sleeper), EnvState::Ready);
}
