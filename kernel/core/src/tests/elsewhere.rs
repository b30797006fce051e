//! What one that is woken takes of whoever runs on its home, another processor.

use super::turns::{process, sleep_for_ever, user};
use super::*;
use crate::work::cost;
use abi::limits::SLICE_NS;
use abi::setup::FLAG_BORROW;

const ELSEWHERE: CpuIndex = CpuIndex::new(1);
/// A post, a yield to the one posted to, and its sleep, in nanoseconds.
const ROUND_NS: u64 = 20_000;

/// A program, and one of another account on the same processor; a sleeper of that account's at home
/// there, and one that wakes it, on processor 0.
struct Storm {
    world: World,
    runs: usize,
    sleeper: usize,
    wakes: usize,
}

impl Storm {
    fn new() -> Self {
        let mut world = World::new();
        let [one, other] = [(); 2].map(|()| user(&mut world));
        let [runs, hog] = [one, other].map(|of| process(&mut world, of));
        let [sleeper, wakes] = [(); 2].map(|()| process(&mut world, other));
        for index in [runs, hog, sleeper] {
            let env = world.id(index);
            let call = Call::SliceAlloc { cpu: 1, position: Which::Any, env };
            assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
            assert_eq!(world.set_flags(index, EnvId::NONE, FLAG_BORROW), OK);
            mask(&mut world, index);
        }
        let mut storm = Self { world, runs, sleeper, wakes };
        storm.sleeps();
        sleep_for_ever(&mut storm.world, 1);
        assert_eq!(storm.world.pick(0), wakes);
        storm
    }

    fn sleeps(&mut self) {
        self.world.save(self.sleeper, offset::PENDING, 0);
        let sleep = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };
        assert_eq!(self.world.by(self.sleeper, sleep), Outcome::Left);
    }

    /// The sleeper is woken, and gets the time of processor 0 before its own one looks; how often
    /// that was interrupted.
    fn round(&mut self) -> usize {
        let (sleeper, wakes) = (self.sleeper, self.wakes);
        self.world.machine.interrupts.clear();
        let to = self.world.id(sleeper);
        assert_eq!(self.world.by(wakes, Call::Post { env: to, bits: 1 }), OK);
        assert_eq!(self.world.pick(0), wakes);
        assert_eq!(self.world.by(wakes, Call::Yield { to }), Outcome::Left);
        assert_eq!(self.world.pick(0), sleeper);
        self.sleeps();
        assert_eq!(self.world.pick(0), wakes);
        self.world.machine.interrupts.iter().filter(|&&cpu| cpu == ELSEWHERE.at()).count()
    }
}

/// The interrupts that a storm of wakes sends to another processor take nothing of the time of the
/// program there beyond what the storm's account has in the round.
#[test]
fn who_wakes_others_there_without_end_takes_no_time_of_its_neighbours() {
    let mut storm = Storm::new();
    let (mut ran, mut taken, mut sent) = (0, 0, 0);
    let begin = storm.world.machine.now;
    while storm.world.machine.now < begin + 12 * SLICE_NS {
        let runs = storm.world.pick(1) == storm.runs;
        let interrupts = storm.round();
        sent += interrupts;
        if runs {
            ran += ROUND_NS;
            taken += interrupts as u64 * u64::from(cost::INTERRUPT);
        }
        storm.world.machine.now += ROUND_NS;
    }
    let part = (ran - taken) * 100 / (storm.world.machine.now - begin);
    assert!(sent > 100, "there is no storm: {sent}");
    assert!(part >= 48, "{part} of 100 are left, with {sent} interrupts");
}

/// A program that sets its timer anew again and again interrupts the processor of another program
/// at a pace.
#[test]
fn who_sets_timers_without_end_interrupts_others_at_a_pace() {
    const LENGTH_NS: u64 = SLICE_NS / 4;
    let mut storm = Storm::new();
    let begin = storm.world.machine.now;
    let (mut armed, mut interrupts) = (begin, 0);
    while storm.world.machine.now < begin + LENGTH_NS {
        storm.world.machine.now += 2_000;
        let now = storm.world.machine.now;
        assert_eq!(storm.world.by(storm.wakes, Call::TimerSet { deadline: now + 5_000 }), OK);
        if armed <= now {
            interrupts += 1;
            assert_ne!(storm.world.pick(1), 0);
            armed = sched::next_deadline(&storm.world.state, ELSEWHERE).expect("the slice's end");
        }
    }
    let most = LENGTH_NS / sched::ALARMS_NS + 2;
    assert!(interrupts <= most, "{interrupts} in {LENGTH_NS} ns, {most} at most");
}
