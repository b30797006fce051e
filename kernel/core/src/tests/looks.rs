//! Looks at sleepers, whose predicates may be dear, are paid for by the sleepers' account.

use super::predicates::{atom, constant, memory, set};
use super::turns::{process, sleep_for_ever, user};
use super::*;
use crate::work;
use abi::limits::{Resource, SLICE_NS};
use abi::predicate::Operator;
use abi::setup::FLAG_GIVEN_TIME;

const CPU: CpuIndex = CpuIndex::new(0);
/// What a program does between two calls, and a call, in nanoseconds.
const STEP_NS: u64 = 4_000;
const HOLD_NS: u64 = 1_000;
const LONG_NS: u64 = 60 * SLICE_NS;
/// Sleepers, and comparisons of each: none of them is compiled.
const SLEEPERS: usize = 40;
const COMPARISONS: u64 = 24;

/// What of the processor, in thousandths, one has that computes and calls beside another account:
/// that computes, too, and has sleepers for whose words the first one's calls write something.
fn share(sleepers: usize) -> u64 {
    let mut world = World::new();
    let [neighbour, attacker] = [(); 2].map(|()| user(&mut world));
    let resource = Resource::Pins as u16;
    let call = Call::AccountLimit { account: attacker.0, resource, limit: 2_000, reserve: 0 };
    assert_eq!(world.by(1, call), OK);
    let victim = process(&mut world, neighbour);
    let crowd: Vec<usize> = (0..sleepers).map(|_| process(&mut world, attacker)).collect();
    let computes = process(&mut world, attacker);
    for &index in &crowd {
        world.on(0, index);
        let all: Vec<_> = (0..COMPARISONS)
            .map(|at| atom(memory(SCRATCH), Operator::Equal, constant(1 + at)))
            .collect();
        assert_eq!(set(&mut world, index, &all), OK);
        sleep_for_ever(&mut world, index);
    }
    world.on(0, 1);
    sleep_for_ever(&mut world, 1);
    let (mut had, began) = (0, world.machine.now);
    while world.machine.now < began + LONG_NS {
        let (state, machine) = (&mut world.state, &mut world.machine);
        work::begin(state);
        let runs = sched::pick(state, machine, CPU);
        machine.interrupts.clear();
        machine.now += HOLD_NS + u64::from(state.spent);
        work::end(state);
        // Nobody: the walk along the rings goes on.
        let Some(runs) = runs.map(EnvIndex::at) else { continue };
        assert!([victim, computes].contains(&runs), "a sleeper woke");
        world.machine.now += STEP_NS;
        if runs == victim {
            had += STEP_NS;
            sched::touched(&mut world.state, !0);
        }
    }
    1_000 * had / (world.machine.now - began)
}

#[test]
fn who_has_sleepers_looked_at_takes_no_time_of_its_neighbours() {
    let (alone, beside) = (share(0), share(SLEEPERS));
    assert!(beside * 100 >= alone * 90, "{beside} of 1000, {alone} beside one that computes");
}

/// Whose account owes a turn is looked at when its turn comes, and at once if it has none.
#[test]
fn a_sleeper_whose_account_owes_a_turn_is_looked_at_in_its_turn() {
    for flags in [0, FLAG_GIVEN_TIME as u16] {
        let mut world = World::new();
        let [neighbour, other] = [(); 2].map(|()| user(&mut world));
        let runs = process(&mut world, neighbour);
        let [sleeper, computes] = [(); 2].map(|()| process(&mut world, other));
        world.on(0, sleeper);
        let watch = atom(memory(SCRATCH + 0x800), Operator::Equal, constant(1));
        assert_eq!(set(&mut world, sleeper, &[watch]), OK);
        sleep_for_ever(&mut world, sleeper);
        world.on(0, 1);
        sleep_for_ever(&mut world, 1);
        world.state.envs.slots[EnvIndex::new(sleeper)].flags |= flags;
        sched::turns_changed(&mut world.state, EnvIndex::new(sleeper));
        while world.pick(0) != runs {
            world.machine.now += SLICE_NS;
        }
        let account = EnvIndex::new(computes);
        crate::turns::charge(&mut world.state, CPU, account, 2 * SLICE_NS);
        world.poke(sleeper, SCRATCH + 0x800, 1);
        sched::touched(&mut world.state, !0);
        assert_eq!(world.pick(0), runs);
        let is_ready = world.state_of(sleeper) == EnvState::Ready;
        assert_eq!(is_ready, flags != 0, "at once");
        let slices = (0..8).filter(|_| {
            world.machine.now += SLICE_NS;
            world.pick(0);
            world.state_of(sleeper) == EnvState::Sleeping
        });
        assert!(slices.count() < 8, "it is never looked at");
    }
}
