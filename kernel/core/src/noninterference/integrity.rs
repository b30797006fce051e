//! Integrity: beside an attacker the victim sees what it sees alone.

use super::attacker::Attacker;
use super::ground::Ground;
use super::script::{Script, Secret};
use super::victim::{Seen, Victim};
use super::{LARGE, Random, Reproduce, calls, mixed, seed};
use crate::index::CpuIndex;
use abi::call::TABLE;
use std::collections::BTreeMap;

/// Pieces of a script.
const PIECES: u64 = if cfg!(miri) { 8 } else { 40 };
/// Turns after which a world that stands still is given up.
const TURNS: u64 = 4_000_000;

/// A world in which the victim's script is done to its end: what it has seen, and the attacker's
/// calls. Without an attacker its environments sleep as soon as they run.
fn play(seed: u64, beside: bool) -> (Vec<Seen>, Attacker) {
    let mut random = Random(mixed(seed));
    let (shared, large) = (seed.is_multiple_of(2), seed.is_multiple_of(LARGE));
    let mut ground = Ground::new(shared, large);
    let mut victim = Victim::new(Script::new(seed, PIECES, large), Secret(seed));
    let mut attacker = Attacker::new(seed ^ 0x5eed);
    for turn in 0..TURNS {
        let cpu = random.below(2) as usize;
        let current = ground.state().sched.cpus[CpuIndex::new(cpu)].current;
        let main = usize::from(current) == ground.victim.envs[0];
        let Some(index) = ground.turn(cpu, if main { 150_000 } else { 20_000 }) else {
            idle(&mut ground, turn);
            continue;
        };
        if random.one_in(8) {
            ground.send();
        }
        let payer = ground.payer(index);
        if payer == ground.victim.account.into() {
            // It computes, most of the time.
            if main && beside && !random.one_in(4) {
                continue;
            }
            victim.act(&mut ground, cpu, index);
        } else if ground.is_attackers(payer) && beside {
            // Filters are whose they are first (docs/threat-model.md): the victim's are its own.
            if !victim.has_begun() {
                continue;
            }
            attacker.act(&mut ground, cpu, index);
        } else {
            rest(&mut ground, cpu, index);
        }
        if victim.is_done() {
            return (victim.trace, attacker);
        }
    }
    panic!("the victim never comes to its end: {} of its steps are done", victim.trace.len());
}

/// Nobody runs here: time passes.
pub(super) fn idle(ground: &mut Ground, turn: u64) {
    ground.parts().1.now += 50_000;
    if turn.is_multiple_of(16) {
        ground.send();
    }
}

/// Sleeps for ever.
pub(super) fn rest(ground: &mut Ground, cpu: usize, index: usize) {
    let sleep = abi::call::Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
    ground.call(cpu, index, &super::ground::Request::new(sleep, 0, &[]));
}

#[test]
fn what_an_attacker_does_reaches_no_victim() {
    let (first, all) = (seed(), calls());
    let mut random = Random(first);
    let mut seen = BTreeMap::new();
    let (mut made, mut worlds, mut done) = (0, 0, [0; TABLE.len()]);
    let _place = Reproduce { seed: first, calls: all, test: "what_an_attacker_does" };
    while made < all {
        let seed = random.next() >> 8;
        let (alone, _) = play(seed, false);
        let (beside, attacker) = play(seed, true);
        compare(&alone, &beside);
        for seen_now in &alone {
            if let Seen::Answer { what, error, .. } = seen_now {
                let count: &mut [u32; 2] = seen.entry(*what).or_default();
                count[usize::from(error.is_some())] += 1;
            }
        }
        made += attacker.calls;
        worlds += 1;
        for (all, one) in done.iter_mut().zip(attacker.done) {
            *all += one;
        }
    }
    let never: Vec<&str> =
        TABLE.iter().zip(done).filter(|(_, done)| *done == 0).map(|(row, _)| row.name).collect();
    eprintln!("{made} calls in {worlds} worlds; rows never done: {never:?}");
    eprintln!("the victim's calls, done and refused: {seen:?}");
}

fn compare(alone: &[Seen], beside: &[Seen]) {
    for (at, (alone, beside)) in alone.iter().zip(beside).enumerate() {
        if let (Seen::Memory(alone), Seen::Memory(beside)) = (alone, beside) {
            for (alone, beside) in alone.iter().zip(beside) {
                assert_eq!(alone, beside, "memory, at {at}: alone, beside");
            }
            assert_eq!(alone.len(), beside.len(), "pages, at {at}");
        }
        assert_eq!(alone, beside, "the victim sees, at {at}: alone, beside");
    }
    assert_eq!(alone.len(), beside.len());
}
