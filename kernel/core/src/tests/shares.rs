//! What programs can do with loans, overtime and turns given up to have more than their share.

use super::crowds::{WAIT, wake};
use super::turns::{process, sleep_for_ever, user};
use super::*;
use abi::limits::SLICE_NS;
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME, FLAG_SLICE_END};

const CPU: CpuIndex = CpuIndex::new(0);

/// Time passes until this one runs.
fn until_it_runs(world: &mut World, index: usize) {
    while world.pick(0) != index {
        world.machine.now += SLICE_NS;
    }
}

/// A program that computes lends its slice. One that is woken gives its turns up, and yields the
/// time that it has borrowed to one that has none, which computes: their account owes that time,
/// though it has left the round.
#[test]
fn loans_are_owed_out_of_the_round() {
    for given in [false, true] {
        let mut world = World::of(8192);
        let [a, v] = [(); 2].map(|()| user(&mut world));
        let v = process(&mut world, v);
        let [x, y] = [(); 2].map(|()| process(&mut world, a));
        assert_eq!(world.set_flags(v, EnvId::NONE, FLAG_BORROW), OK);
        for index in [x, y] {
            mask(&mut world, index);
        }
        assert_eq!(world.set_flags(y, EnvId::NONE, FLAG_GIVEN_TIME), OK);
        assert_eq!(world.by(x, WAIT), Outcome::Left);
        sleep_for_ever(&mut world, 1);
        until_it_runs(&mut world, v);
        let begin = world.machine.now;
        let mut had = 0;
        let (mut back, mut loans) = (false, 0);
        while world.machine.now < begin + 200 * SLICE_NS {
            let runs = world.pick(0);
            if runs == v {
                world.machine.now += 100_000;
                had += 100_000;
                if world.state_of(x) == EnvState::Sleeping {
                    wake(&mut world, x);
                }
                back = false;
            } else if runs == x && !back {
                loans += 1;
                world.machine.now += 5_000;
                if given {
                    assert_eq!(world.set_flags(x, EnvId::NONE, FLAG_GIVEN_TIME), OK);
                    world.machine.now += 5_000;
                }
                let to = world.id(y);
                assert_eq!(world.by(x, Call::Yield { to }), Outcome::Left);
                back = true;
            } else if runs == y {
                let end = world.state.sched.cpus[CPU].end_ns();
                world.machine.now = world.machine.now.max(end.saturating_sub(60_000));
                let to = world.id(x);
                assert_eq!(world.by(y, Call::Yield { to }), Outcome::Left);
            } else if runs == x {
                world.machine.now += 5_000;
                assert_eq!(world.set_flags(x, EnvId::NONE, 0), OK);
                world.machine.now += 5_000;
                assert_eq!(world.by(x, WAIT), Outcome::Left);
                back = false;
            }
        }
        let share = had * 1_000 / (world.machine.now - begin);
        assert!(share >= 450 && loans > 10, "given {given}: {share} of 1000, {loans} loans");
    }
}

/// One that is told of the end of its slice takes a home on another processor before it lets go.
#[test]
fn overtime_is_owed_by_those_that_move() {
    for moves in [false, true] {
        let mut world = World::of(8192);
        let [a, v] = [(); 2].map(|()| user(&mut world));
        let v = process(&mut world, v);
        let x = process(&mut world, a);
        mask(&mut world, x);
        assert_eq!(world.set_flags(x, EnvId::NONE, FLAG_SLICE_END), OK);
        sleep_for_ever(&mut world, 1);
        until_it_runs(&mut world, v);
        let begin = world.machine.now;
        let mut had = 0;
        while world.machine.now < begin + 200 * SLICE_NS {
            let runs = world.pick(0);
            let end = world.state.sched.cpus[CPU].end_ns();
            if runs == v {
                had += end - world.machine.now;
                world.machine.now = end;
                continue;
            }
            assert_eq!(runs, x);
            if world.state.envs.slots[EnvIndex::new(x)].ending == 0 {
                world.machine.now = end;
                continue;
            }
            world.machine.now = world.machine.now.max(end - 100_000);
            if !moves {
                assert_eq!(world.by(x, Call::Yield { to: EnvId::NONE }), Outcome::Left);
                continue;
            }
            let env = world.id(x);
            let take = Call::SliceAlloc { cpu: 1, position: Which::Any, env };
            let Outcome::Answer(0, position) = world.by(x, take) else { panic!("no slice") };
            assert_eq!(world.pick(0), x);
            assert_eq!(world.by(x, Call::Yield { to: EnvId::NONE }), Outcome::Left);
            // There: what it owes itself is forgotten, and it comes home.
            assert_eq!(world.pick(1), x);
            assert_eq!(world.set_flags(x, EnvId::NONE, FLAG_GIVEN_TIME), OK);
            assert_eq!(world.set_flags(x, EnvId::NONE, FLAG_SLICE_END), OK);
            let free = Call::SliceFree { cpu: 1, position: position as u32 };
            assert_eq!(world.by(x, free), OK);
            assert_eq!(world.by(x, Call::Yield { to: EnvId::NONE }), Outcome::Left);
        }
        let share = had * 1_000 / (world.machine.now - begin);
        assert!(share >= 450, "moves {moves}: {share} of 1000");
    }
}

/// One that is told of the end of its slice gives its turns up, and has them again when the other
/// one of its account wakes.
#[test]
fn overtime_is_owed_by_those_without_turns() {
    let mut world = World::of(8192);
    let [a, v] = [(); 2].map(|()| user(&mut world));
    let v = process(&mut world, v);
    let [x, y] = [(); 2].map(|()| process(&mut world, a));
    for index in [x, y] {
        mask(&mut world, index);
    }
    sleep_for_ever(&mut world, 1);
    // y has no turn and is ready; x is what wakes.
    assert_eq!(world.set_flags(y, EnvId::NONE, FLAG_GIVEN_TIME), OK);
    assert_eq!(world.by(y, Call::Yield { to: EnvId::NONE }), Outcome::Left);
    until_it_runs(&mut world, v);
    let begin = world.machine.now;
    let mut had = 0;
    let mut freed = false;
    while world.machine.now < begin + 200 * SLICE_NS {
        let runs = world.pick(0);
        let end = world.state.sched.cpus[CPU].end_ns();
        if runs == v {
            if world.state_of(x) == EnvState::Sleeping && !freed {
                wake(&mut world, x);
            }
            had += end - world.machine.now;
            world.machine.now = end;
        } else if runs == x {
            if freed {
                // It has yielded back: to the end, then it sleeps.
                world.machine.now = world.machine.now.max(end - 20_000);
                assert_eq!(world.by(x, WAIT), Outcome::Left);
                continue;
            }
            let to = world.id(y);
            assert_eq!(world.by(x, Call::Yield { to }), Outcome::Left);
        } else if !freed {
            assert_eq!(world.set_flags(y, EnvId::NONE, FLAG_SLICE_END), OK);
            let to = world.id(x);
            freed = true;
            assert_eq!(world.by(y, Call::Yield { to }), Outcome::Left);
        } else if world.state.envs.slots[EnvIndex::new(y)].ending == 0 {
            world.machine.now = end;
        } else {
            world.machine.now = world.machine.now.max(end - 20_000);
            assert_eq!(world.set_flags(y, EnvId::NONE, FLAG_GIVEN_TIME), OK);
            freed = false;
        }
    }
    let share = had * 1_000 / (world.machine.now - begin);
    assert!(share >= 450, "{share} of 1000");
}

/// Several hand the ends of their slices on to a program of one account, which owes a turn already.
#[test]
fn overtime_is_for_none_that_owe_a_turn() {
    for lenders in [1, 2, 3] {
        let mut world = World::of(8192);
        let [o, v] = [(); 2].map(|()| user(&mut world));
        let lends: Vec<usize> = (0..lenders)
            .map(|_| {
                let of = user(&mut world);
                process(&mut world, of)
            })
            .collect();
        let o = process(&mut world, o);
        let v = process(&mut world, v);
        mask(&mut world, o);
        assert_eq!(world.set_flags(o, EnvId::NONE, FLAG_SLICE_END), OK);
        assert_eq!(world.by(o, WAIT), Outcome::Left);
        sleep_for_ever(&mut world, 1);
        let begin = world.machine.now;
        let (mut had, mut handed) = (0, 0);
        while world.machine.now < begin + 400 * SLICE_NS {
            let runs = world.pick(0);
            let end = world.state.sched.cpus[CPU].end_ns();
            if runs == v {
                had += end.saturating_sub(world.machine.now);
                world.machine.now = world.machine.now.max(end);
            } else if lends.contains(&runs) {
                if world.machine.now + 50_000 < end {
                    world.machine.now = end - 50_000;
                } else {
                    if world.state_of(o) == EnvState::Sleeping {
                        wake(&mut world, o);
                    }
                    if world.pick(0) == runs {
                        let to = world.id(o);
                        assert_eq!(world.by(runs, Call::Yield { to }), Outcome::Left);
                        handed += 1;
                    }
                }
            } else if runs == o {
                if world.state.envs.slots[EnvIndex::new(o)].ending == 0 {
                    world.machine.now = world.machine.now.max(end);
                } else {
                    world.machine.now = world.machine.now.max(end - 100_000);
                    assert_eq!(world.by(o, WAIT), Outcome::Left);
                }
            }
        }
        let share = had * 1_000 / (world.machine.now - begin);
        let fair = 1_000 / (lenders + 2);
        let is_fair = share * 100 >= fair * 95;
        assert!(is_fair && handed > 10, "beside {lenders} and a debtor {share} of 1000; {handed}");
    }
}

/// Environments that are told of the ends of their slices, and hand the time that they have beyond
/// them on to each other, have no more than one of another account that computes.
#[test]
fn ends_that_are_handed_on_take_no_time_of_others() {
    let mut world = World::of(8192);
    let [many, few] = [(); 2].map(|()| user(&mut world));
    let crowd: [usize; 3] = core::array::from_fn(|_| process(&mut world, many));
    let one = process(&mut world, few);
    sleep_for_ever(&mut world, 1);
    until_it_runs(&mut world, one);
    for &index in &crowd {
        assert_eq!(world.set_flags(index, EnvId::NONE, FLAG_SLICE_END), OK);
    }
    let ran = |world: &World| world.state.published.envs[one].run_ns;
    let (begin, before) = (world.machine.now, ran(&world));
    let (mut last, mut longest) = (begin, 0);
    while world.machine.now < begin + 100 * SLICE_NS {
        let runs = world.pick(0);
        if runs == one {
            longest = longest.max(world.machine.now - last);
            world.machine.now += SLICE_NS;
            last = world.machine.now;
            continue;
        }
        let end = world.state.sched.cpus[CPU].slice_end_ns;
        if world.machine.now + SLICE_NS / 2 > end {
            world.machine.now = world.machine.now.max(end);
            if world.pick(0) != runs {
                continue;
            }
        }
        world.machine.now += SLICE_NS / 2;
        let at = crowd.iter().position(|&index| index == runs).expect("one of the crowd");
        let to = world.id(crowd[(at + 1) % crowd.len()]);
        assert_eq!(world.by(runs, Call::Yield { to }), Outcome::Left);
    }
    longest = longest.max(world.machine.now - last);
    let share = (ran(&world) - before) * 100 / (world.machine.now - begin);
    assert!(share >= 45 && longest <= 3 * SLICE_NS, "{share} %, waits for {longest} ns");
}

/// What two users can do together to a third one's program that computes: one has the other's
/// environment borrow from its slice, and hands the end of it on to another one of those, which
/// takes a slice beyond it and sleeps, as all of its account then do.
struct Pair {
    world: World,
    /// Lends its slice and hands it on.
    lends: usize,
    /// Borrows, and sleeps again.
    borrows: usize,
    /// Takes what is beyond the end of the slice, and sleeps again.
    overruns: usize,
    computes: usize,
    /// What has been done in the slice of the first one.
    step: u32,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::of(8192);
        let [owes, lends, computes] = [(); 3].map(|()| user(&mut world));
        let lends = process(&mut world, lends);
        let computes = process(&mut world, computes);
        let [borrows, overruns] = [(); 2].map(|()| process(&mut world, owes));
        assert_eq!(world.set_flags(lends, EnvId::NONE, FLAG_BORROW), OK);
        for index in [borrows, overruns] {
            mask(&mut world, index);
        }
        assert_eq!(world.set_flags(overruns, EnvId::NONE, FLAG_SLICE_END), OK);
        for index in [borrows, overruns] {
            assert_eq!(world.by(index, WAIT), Outcome::Left);
        }
        sleep_for_ever(&mut world, 1);
        Self { world, lends, borrows, overruns, computes, step: 0 }
    }

    /// The one that has the processor does its part; which it is, and how long it took.
    fn goes_on(&mut self) -> (usize, u64) {
        let runs = self.world.pick(0);
        let begins = self.world.machine.now;
        let end = self.world.state.sched.cpus[CPU].end_ns();
        let until = |world: &mut World, at: u64| world.machine.now = world.machine.now.max(at);
        if runs == self.computes {
            until(&mut self.world, end);
            self.step = 0;
        } else if runs == self.lends {
            self.lend(end);
        } else if runs == self.borrows {
            until(&mut self.world, end - 60_000);
            assert_eq!(self.world.by(runs, WAIT), Outcome::Left);
        } else {
            assert_eq!(runs, self.overruns);
            if self.world.state.envs.slots[EnvIndex::new(runs)].ending == 0 {
                until(&mut self.world, end);
            } else {
                until(&mut self.world, end - 100_000);
                assert_eq!(self.world.by(runs, WAIT), Outcome::Left);
            }
        }
        (runs, self.world.machine.now - begins)
    }

    fn lend(&mut self, end: u64) {
        let world = &mut self.world;
        if self.step == 0 {
            wake(world, self.borrows);
            self.step = 1;
        } else if world.machine.now + 50_000 < end {
            world.machine.now = end - 50_000;
        } else if self.step == 1 {
            if world.state_of(self.overruns) == EnvState::Sleeping {
                wake(world, self.overruns);
            }
            if world.pick(0) == self.lends {
                let to = world.id(self.overruns);
                assert_eq!(world.by(self.lends, Call::Yield { to }), Outcome::Left);
            }
            self.step = 2;
        } else {
            world.machine.now = world.machine.now.max(end);
        }
    }
}

#[test]
fn two_users_together_leave_a_third_its_share() {
    let mut pair = Pair::new();
    let begins = pair.world.machine.now;
    let mut computed = 0;
    while pair.world.machine.now < begins + 300 * SLICE_NS {
        let (runs, took) = pair.goes_on();
        computed += if runs == pair.computes { took } else { 0 };
    }
    let share = computed * 1_000 / (pair.world.machine.now - begins);
    assert!(share >= 320, "{share} of 1000 for one of three");
}
