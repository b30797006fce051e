//! A short way and a long one, driven side by side by the same random calls: they end alike.

use crate::index::{AccountIndex, EnvIndex};

use super::random::Random;
use super::*;
use std::fmt::Debug;
use std::string::String;

/// Few where an interpreter runs them (`soak --part miri`).
const SEEDS: u64 = if cfg!(miri) { 1 } else { 4 };
/// Steps with each seed.
const STEPS: usize = if cfg!(miri) { 100 } else { 2_000 };

/// Accounts whose turns are compared, and one more.
const ACCOUNTS_SEEN: usize = 4;

/// Notes what is said of a world, a line each.
pub fn note(all: &mut String, what: &dyn Debug) {
    *all += &std::format!("{what:?}\n");
}

/// What any call may change: the first `envs` environments, both processors, what is counted of
/// calls with these `numbers`.
pub fn records(world: &mut World, envs: usize, numbers: [u16; 2]) -> String {
    let mut all = String::new();
    for index in 1..=envs {
        note(&mut all, &world.state.envs.slots[EnvIndex::new(index)]);
        note(&mut all, &world.state.published.envs[index]);
        note(&mut all, world.machine.context(index));
    }
    for cpu in 0..2 {
        note(&mut all, &world.state.sched.cpus[CpuIndex::new(cpu)]);
        note(&mut all, &world.state.published.cpus[cpu]);
        for number in numbers {
            note(&mut all, &world.state.published.calls[cpu][usize::from(number)].read());
        }
    }
    for account in (1..ACCOUNTS_SEEN).map(AccountIndex::new) {
        for cpu in 0..2 {
            note(&mut all, &world.state.accounts.records[account].turns[CpuIndex::new(cpu)]);
        }
    }
    note(&mut all, &world.state.sched.alarms);
    note(&mut all, &world.machine.interrupts);
    all
}

/// What is driven: worlds that are alike, a step in one of them (by the short way, if it is asked
/// for and open: then what it did), and all that a step may change.
pub struct Ways<T> {
    pub populated: fn() -> World,
    pub step: fn(&mut World, &mut Random, bool) -> Option<T>,
    pub digest: fn(&mut World) -> String,
    /// Which of three kinds of endings it was.
    pub kind: fn(&T) -> usize,
    /// How often each kind has to come.
    pub least: u32,
}

impl<T: Debug> Ways<T> {
    /// Drives both, and compares after each step by the short way and some by the long one.
    pub fn end_alike(&self) {
        let mut taken = [0; 3];
        for seed in 1..=SEEDS {
            let (mut long, mut short) = ((self.populated)(), (self.populated)());
            let (mut one, mut other) = (Random(seed), Random(seed));
            for at in 0..STEPS {
                (self.step)(&mut long, &mut one, false);
                let done = (self.step)(&mut short, &mut other, true);
                match &done {
                    Some(done) => taken[(self.kind)(done)] += 1,
                    None if at % 32 != 0 => continue,
                    None => {}
                }
                let (one, other) = ((self.digest)(&mut long), (self.digest)(&mut short));
                for (one, other) in one.lines().zip(other.lines()) {
                    assert_eq!(one, other, "seed {seed}, step {at}: {done:?}");
                }
                assert_eq!(one.len(), other.len(), "seed {seed}, step {at}: {done:?}");
            }
        }
        let least = if cfg!(miri) { None } else { Some(self.least) };
        assert!(taken.iter().all(|&times| Some(times) > least), "{taken:?}");
    }
}
