//! Secrecy: two runs that differ in the victim's data alone look the same to the attacker.

use super::attacker::{Attacker, told};
use super::ground::Ground;
use super::integrity::{idle, rest};
use super::script::{Script, Secret};
use super::victim::Victim;
use abi::trace::ALL_KINDS;

use super::{CALLS, LARGE, Random, Reproduce, calls, mixed, seed, view};

/// Pieces of a script: more than are ever done.
const PIECES: u64 = if cfg!(miri) { 8 } else { 600 };
/// Turns between two looks at everything.
const LOOK: u64 = 512;
/// Turns without a call of the attacker's after which a world is left.
const STILL: u64 = 4_000;

/// One of two worlds.
struct World {
    ground: Ground,
    victim: Victim,
    attacker: Attacker,
}

impl World {
    fn new(seed: u64, secret: u64) -> Self {
        let large = seed.is_multiple_of(LARGE);
        let mut ground = Ground::new(seed.is_multiple_of(2), large);
        // Somebody who may has the trace on, or not.
        ground.parts().1.tracing = if seed.is_multiple_of(3) { ALL_KINDS } else { 0 };
        let victim = Victim::new(Script::new(seed, PIECES, large), Secret(secret));
        Self { ground, victim, attacker: Attacker::new(seed ^ 0x5eed) }
    }

    /// A turn of a processor: who had it, if it was the attacker's.
    fn turn(&mut self, turn: u64, (cpu, later): (usize, u64), sends: bool) -> Option<usize> {
        let Self { ground, victim, attacker } = self;
        let Some(index) = ground.turn(cpu, later) else {
            idle(ground, turn);
            return None;
        };
        if sends {
            ground.send();
        }
        let payer = ground.payer(index);
        if ground.is_attackers(payer) {
            // Packets are whose filter is first (docs/threat-model.md): the victim's are its own.
            if !victim.has_begun() {
                return None;
            }
            attacker.act(ground, cpu, index);
            return Some(index);
        }
        if payer == ground.victim.account.into() {
            victim.act(ground, cpu, index);
        } else {
            rest(ground, cpu, index);
        }
        None
    }
}

/// Runs both worlds side by side; how many calls the attacker made in each.
fn play(seed: u64) -> u64 {
    let mut random = Random(mixed(seed));
    let mut worlds = [1, 2].map(|secret| World::new(seed, mixed(seed ^ secret)));
    let (mut turn, mut last) = (0, (0, 0));
    loop {
        let (cpu, later) = (random.below(2) as usize, 20_000 + random.below(100_000));
        let sends = random.one_in(8);
        let [one, other] = &mut worlds;
        let ran = [one, other].map(|world| world.turn(turn, (cpu, later), sends));
        assert_eq!(ran[0], ran[1], "which environment of the attacker's has turn {turn}");
        let [one, other] = &mut worlds;
        if ran[0].is_some() {
            let answers = [&one.attacker, &other.attacker].map(|attacker| told(attacker.last));
            assert_eq!(answers[0], answers[1], "what the attacker is told in turn {turn}");
        }
        if turn % LOOK == LOOK - 1 {
            look(one, other);
        }
        turn += 1;
        if one.attacker.calls != last.0 {
            last = (one.attacker.calls, turn);
        }
        if last.0 >= CALLS || turn - last.1 > STILL || one.victim.is_done() {
            look(one, other);
            return last.0;
        }
    }
}

fn look(one: &mut World, other: &mut World) {
    let [one, other] = [one, other].map(|world| view::of_attacker(&mut world.ground));
    if one != other {
        let differs = one.lines().zip(other.lines()).filter(|(one, other)| one != other);
        let lines: Vec<String> =
            differs.take(4).map(|(one, other)| format!("{one}\n{other}\n")).collect();
        panic!("the attacker sees a difference:\n{}", lines.concat());
    }
}

#[test]
fn what_a_victim_has_is_seen_by_no_attacker() {
    let (first, all) = (seed(), calls());
    let mut random = Random(first);
    let (mut made, mut worlds) = (0, 0);
    let _place = Reproduce { seed: first, calls: all, test: "what_a_victim_has" };
    while made < all {
        made += play(random.next() >> 8);
        worlds += 1;
    }
    eprintln!("{made} calls in {worlds} worlds");
}
