//! Sleep, post, timers: nobody sleeps through what was for it.

use crate::index::EnvIndex;

use super::*;
use abi::upcall::{EVENT_TIMER, woken};

fn sleep(deadline: u64, posted: u64, events: u64) -> Call {
    Call::Sleep { deadline, posted, events, flags: 0 }
}

fn rdx(world: &mut World, index: usize) -> (u64, u64) {
    let context = world.machine.context(index);
    (context.rax, context.rdx)
}

#[test]
fn a_post_wakes_a_sleeper_and_says_so() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    mask(&mut world, other);
    assert_eq!(world.by(other, sleep(0, 0b100, 0)), Outcome::Left);
    assert_eq!(world.state_of(other), EnvState::Sleeping);
    let post = |bits| Call::Post { env: EnvId(2), bits };
    assert_eq!(world.by(1, post(0b010)), OK);
    assert_eq!(world.state_of(other), EnvState::Sleeping, "another bit");
    assert_eq!(world.by(1, post(0b100)), OK);
    assert_eq!(world.by(1, post(0)), OK, "may it?");
    assert_eq!(world.state_of(other), EnvState::Ready);
    assert_eq!(rdx(&mut world, other), (0, woken::POSTED));
    assert_eq!(world.saved(other, offset::PENDING), 0b110);
    assert_eq!(world.saved(other, 0xc0), 2, "two posts");
    assert_eq!(world.saved(other, 0xc8), 1 | 1 << 32, "both from the first");
    assert_eq!(world.saved(other, 0xf0), 2, "the bits of both are set");
}

/// The program: look at the bits; if there are none, sleep. A post comes before, between or after.
#[test]
fn no_interleaving_of_post_and_sleep_loses_the_bit() {
    for when in 0..4 {
        for masked in [false, true] {
            let mut world = World::new();
            let domain = world.domain();
            let other = world.spawn(domain);
            world.on(1, other);
            if masked {
                mask(&mut world, other);
            }
            let id = world.id(other);
            let post = |world: &mut World, now| {
                if now == when {
                    assert_eq!(world.by(1, Call::Post { env: id, bits: 1 }), OK);
                }
            };
            post(&mut world, 0);
            let seen = world.saved(other, offset::PENDING);
            post(&mut world, 1);
            let mut outcome = Outcome::Left;
            if seen == 0 {
                outcome = world.by(other, sleep(0, 1, 0));
            }
            post(&mut world, 2);
            world.pick(1);
            post(&mut world, 3);
            let next = world.pick(0);
            let awake = matches!(world.state_of(other), EnvState::Running | EnvState::Ready);
            assert!(awake, "{when} {masked} {outcome:?} {next}");
        }
    }
}

#[test]
fn a_deadline_ends_a_sleep() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    world.machine.now = 1000;
    assert_eq!(world.by(other, sleep(1000, 0, 0)), error(Error::TimedOut, 0));
    assert_eq!(world.by(other, sleep(5000, 0, 0)), Outcome::Left);
    world.pick(0);
    assert_eq!(sched::next_deadline(&world.state, CpuIndex::new(1)), Some(5000));
    world.machine.now = 4999;
    world.pick(0);
    assert_eq!(world.state_of(other), EnvState::Sleeping);
    world.machine.now = 5000;
    world.pick(0);
    assert_eq!(world.state_of(other), EnvState::Ready);
    assert_eq!(rdx(&mut world, other), (Error::TimedOut as u64, 0));
    assert_eq!(world.state.envs.slots[EnvIndex::new(other)].heap_slot, 0);
}

#[test]
fn a_timer_is_an_event() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    assert_eq!(world.by(other, Call::TimerSet { deadline: 700 }), OK);
    assert_eq!(world.by(other, sleep(0, 0, EVENT_TIMER)), Outcome::Left);
    world.machine.now = 700;
    world.pick(0);
    assert_eq!(world.state_of(other), EnvState::Ready);
    assert_eq!(rdx(&mut world, other), (0, woken::EVENT));
    assert_eq!(world.saved(other, offset::EVENTS), EVENT_TIMER);
    assert_eq!(world.by(other, sleep(0, 0, EVENT_TIMER)), Outcome::Answer(0, woken::EVENT));
}

#[test]
fn an_unmasked_target_elsewhere_is_interrupted_and_told() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    world.on(1, other);
    world.machine.interrupts.clear();
    let post = Call::Post { env: world.id(other), bits: 1 };
    assert_eq!(world.by(1, post), OK);
    assert_eq!(world.machine.interrupts, [1]);
    assert_eq!(world.pick(1), other);
    assert_eq!(world.machine.context(other).rip, EVENT);
    assert_eq!(world.saved(other, offset::MASK), 1);
    world.machine.interrupts.clear();
    let post = Call::Post { env: world.id(other), bits: 2 };
    assert_eq!(world.by(1, post), OK);
    assert_eq!(world.machine.interrupts, [1], "as nobody can see that it will stay masked");
    assert_eq!(world.pick(1), other);
    assert_eq!(world.saved(other, offset::DEPTH), 1, "and it does");
    assert_eq!(world.saved(other, offset::PENDING), 3);
}

/// The way back from a handler clears the mask, then looks at the bits; on x86 the store may reach
/// memory after the load (SDM 3A §9.2.3.4). Wherever a post comes, one of the two sees it.
#[test]
fn a_post_that_meets_the_clearing_of_a_mask_is_not_lost() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        Clear,
        Reach,
        Look,
        Post,
    }
    use Step::{Clear, Look, Post, Reach};
    for order in [[Clear, Reach, Look], [Clear, Look, Reach]] {
        for place in 0..=3 {
            let mut steps = order.to_vec();
            steps.insert(place, Post);
            let mut world = World::new();
            let domain = world.domain();
            let other = world.spawn(domain);
            world.on(1, other);
            world.save(other, offset::MASK, 1);
            world.machine.interrupts.clear();
            let (mut buffered, mut seen) = (false, false);
            for step in &steps {
                match step {
                    Clear => buffered = true,
                    Reach if buffered => {
                        buffered = false;
                        world.save(other, offset::MASK, 0);
                    }
                    Reach => {}
                    Look => seen |= world.saved(other, offset::PENDING) != 0,
                    Post => {
                        let call = Call::Post { env: world.id(other), bits: 1 };
                        assert_eq!(world.by(1, call), OK);
                    }
                }
                if !core::mem::take(&mut world.machine.interrupts).is_empty() {
                    // An interrupt waits for the stores before it.
                    if core::mem::take(&mut buffered) {
                        world.save(other, offset::MASK, 0);
                    }
                    assert_eq!(world.pick(1), other);
                }
            }
            let told = world.machine.context(other).rip == EVENT;
            assert!(told || seen, "{steps:?}: nobody has seen it");
        }
    }
}

#[test]
fn a_full_queue_counts_what_it_has_no_room_for() {
    use abi::queue::{ENTRIES, POST, offset as at};
    const PLACE: u64 = 0x600;
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    mask(&mut world, other);
    let queue = world.state.envs.slots[EnvIndex::new(other)].save_address + PLACE;
    let setup = EnvSetup { queue, ..EnvSetup::default() };
    assert_eq!(world.set_by(other, EnvId::NONE, field::QUEUE, &setup), OK);
    let env = world.id(other);
    let word = |world: &World, offset: u64| world.saved(other, (PLACE + offset) as usize);
    world.on(0, 1);
    for bit in 0..ENTRIES as u64 + 3 {
        assert_eq!(world.by(1, Call::Post { env, bits: 1 << bit }), OK);
    }
    world.machine.now = 77;
    sched::event(&mut world.state, &mut world.machine, EnvIndex::new(other), 1 << 5);
    assert_eq!(word(&world, at::PUT), ENTRIES as u64);
    let sender = u64::from(world.id(1).0) << 32;
    for entry in 0..ENTRIES as u64 {
        assert_eq!(word(&world, at::ENTRIES + 16 * entry), sender | POST as u64);
        assert_eq!(word(&world, at::ENTRIES + 16 * entry + 8), 1 << entry, "none is lost");
    }
    assert_eq!(word(&world, at::OVERFLOW + 8 * POST as u64), 3);
    assert_eq!(word(&world, at::OVERFLOW + 8 * 5), 1);
    // The bits are set all the same, and what was taken makes room.
    assert_eq!(world.saved(other, offset::PENDING), (1 << (ENTRIES + 3)) - 1);
    world.save(other, (PLACE + at::TAKEN) as usize, 1);
    sched::event(&mut world.state, &mut world.machine, EnvIndex::new(other), 1 << 5);
    assert_eq!(word(&world, at::ENTRIES), 5);
    assert_eq!(word(&world, at::ENTRIES + 8), 77);
    // Whatever the owner writes there, nothing is written beyond.
    for wild in [0, 17, u64::MAX, 1 << 63] {
        world.save(other, (PLACE + at::PUT) as usize, wild);
        world.save(other, (PLACE + at::TAKEN) as usize, wild);
        assert_eq!(world.by(1, Call::Post { env, bits: 1 }), OK);
        assert_eq!(word(&world, at::PUT), wild.wrapping_add(1));
    }
}
