//! The short way of a switch ends where the long one ends.

use crate::index::EnvIndex;

use super::random::Random;
use super::turns::{process, user};
use super::ways::{self, Ways, note};
use super::*;
use crate::handover::{self, Way};
use abi::call::{TRANSFER_REPLY, TRANSFER_SHIFT, TRANSFER_WAIT, number};
use abi::limits::SLICE_NS;
use abi::setup::FLAG_BORROW;
use std::string::String;

const ENVS: usize = 7;

/// Everything that a switch may change, but for what dispatch counts elsewhere.
fn digest(world: &mut World) -> String {
    let mut all = ways::records(world, ENVS, [number::Yield, number::TransferSync]);
    for index in 1..=ENVS {
        if let Some((_, physical)) = env::save_area(&world.state, EnvIndex::new(index)) {
            let words = [offset::PENDING, offset::EVENTS, offset::MASK, offset::ACCEPTING];
            note(&mut all, &words.map(|at| world.machine.word(physical + at as u64)));
        }
    }
    all
}

/// By the short way, if it is open: then the long one has nothing to add.
fn by_the_short_way(
    world: &mut World,
    (cpu, index): (usize, usize),
    word: u64,
    to: u64,
) -> Option<Way> {
    let number = word as u16;
    let (state, machine) = (&mut world.state, &mut world.machine);
    if number != number::TransferSync && (number != number::Yield || to == 0) {
        return None;
    }
    let plan =
        handover::check(state, machine, (CpuIndex::new(cpu), EnvIndex::new(index)), word, to)?;
    handover::apply(state, machine, (CpuIndex::new(cpu), EnvIndex::new(index)), number, &plan);
    let before = digest(world);
    assert_eq!(world.pick(cpu), plan.target.at());
    assert_eq!(digest(world), before, "the long way would do more");
    Some(plan.way)
}

/// One environment's life for a moment: bits, masks, debts, time, then a call.
fn step(world: &mut World, random: &mut Random, short: bool) -> Option<Way> {
    let cpu = usize::from(random.below(8) == 0);
    world.machine.now += random.below(SLICE_NS / 16);
    let index = world.pick(cpu);
    if random.below(8) == 0 || index == 0 {
        let other = 1 + random.below(ENVS as u64) as usize;
        crate::work::begin(&mut world.state);
        sched::event(&mut world.state, &mut world.machine, EnvIndex::new(other), 1 << 4);
        crate::work::end(&mut world.state);
    }
    if index == 0 {
        return None;
    }
    world.save(index, offset::MASK, u64::from(random.below(8) == 0));
    world.save(index, offset::DEPTH, 0);
    if random.below(8) != 0 {
        world.save(index, offset::PENDING, 0);
        world.save(index, offset::EVENTS, 0);
    }
    let context = world.machine.context(index);
    (context.rbx, context.rdi, context.rsp) = (random.below(99), random.below(99), random.below(9));
    let other = world.id(1 + random.below(ENVS as u64) as usize);
    let to = if random.below(8) == 0 { EnvId::NONE } else { other };
    let soon = world.machine.now + random.below(2 * SLICE_NS);
    let call = match random.below(40) {
        0..=9 => Call::Yield { to },
        10..=15 => Call::Sleep {
            deadline: if random.below(3) == 0 { soon } else { 0 },
            posted: 1,
            events: 1 << 4,
            flags: u64::from(random.below(4) != 0),
        },
        16 => Call::Post { env: other, bits: random.below(4) },
        17 => Call::TimerSet { deadline: soon },
        18 if random.below(4) == 0 => Call::EnvHold { env: other },
        19..=21 => Call::EnvRelease { env: other },
        22 => Call::TransferAsync {},
        23 if random.below(4) == 0 => {
            world.state.published.envs[index].excess = random.below(2) as u32;
            Call::Yield { to: EnvId::NONE }
        }
        _ => Call::TransferSync {},
    };
    world.machine.now += random.below(SLICE_NS / 16);
    let (number, words) = call.encode();
    // Mostly to whoever waits for the reply, if anybody does.
    let waits = |&at: &usize| world.state.published.envs[at].donated_to == world.id(index).0;
    let donor = (1..=ENVS).find(waits).map(|at| world.id(at));
    let target = if random.below(8) == 0 { other } else { donor.unwrap_or(other) };
    let accept = if random.below(4) == 0 { 0 } else { TRANSFER_REPLY };
    let word = u64::from(number)
        | u64::from(ROOT) << CAPABILITY_SHIFT
        | accept
        | if random.below(4) == 0 { TRANSFER_WAIT } else { 0 }
        | u64::from(target.0) << TRANSFER_SHIFT;
    if short && let Some(way) = by_the_short_way(world, (cpu, index), word, words[0]) {
        return Some(way);
    }
    world.raw(cpu, index, call, word);
    world.pick(cpu);
    None
}

fn populated() -> World {
    let mut world = World::new();
    let domain = world.domain();
    // What is borrowed is a debt where there are several accounts.
    let (account, _) = user(&mut world);
    for at in 2..=ENVS {
        let index = match at % 2 {
            0 => {
                let own = world.domain();
                process(&mut world, (account, own))
            }
            _ => world.spawn(domain),
        };
        assert_eq!(index, at);
        if at < 5 {
            world.state.envs.slots[EnvIndex::new(index)].flags |= FLAG_BORROW as u8;
        }
        if at % 3 == 0 {
            let env = world.id(index);
            let cpu = (at % 2) as u16;
            world.by(1, Call::SliceAlloc { cpu, position: Which::Any, env });
        }
    }
    world
}

#[test]
fn both_ways_end_in_the_same_state() {
    let kind = |way: &Way| match way {
        Way::Yield => 0,
        Way::Call { .. } => 1,
        Way::Reply => 2,
    };
    Ways { populated, step, digest, kind, least: 30 }.end_alike();
}
