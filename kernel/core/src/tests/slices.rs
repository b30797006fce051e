//! Slices: positions are honoured, time nobody uses goes round, excess is paid, borrowing too.

use crate::index::EnvIndex;

use super::*;
use crate::overtime::{EXCESS_MAX, EXCESS_WORD};
use crate::sched::CRITICAL_NS;
use abi::limits::{SLICE_NS, SLICES};
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME, FLAG_SLICE_END, FLAG_SLICE_START};
use abi::upcall::{EVENT_SLICE_END, EVENT_SLICE_START};

const SLEEP: Call = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };

fn give(world: &mut World, index: usize, position: usize) {
    let env = world.id(index);
    let call = Call::SliceAlloc { cpu: 0, position: Which::This(position as u32), env };
    assert_eq!(world.by(1, call), Outcome::Answer(0, position as u64));
}

/// Who gets the slices that follow, as many as `count`.
fn round(world: &mut World, count: usize) -> Vec<usize> {
    (0..count)
        .map(|_| {
            world.machine.now += SLICE_NS + CRITICAL_NS;
            world.pick(0)
        })
        .collect()
}

#[test]
fn positions_decide_the_order_contiguous_or_equidistant() {
    let mut world = World::new();
    let domain = world.domain();
    let (batch, quick) = (world.spawn(domain), world.spawn(domain));
    for position in [10, 11, 12, 20, 21, 22] {
        give(&mut world, batch, position);
    }
    for position in [15, 30] {
        give(&mut world, quick, position);
    }
    world.on(0, 1);
    world.state.accounts.records[1.into()].turns[CpuIndex::new(0)].position = 0;
    let order = round(&mut world, 9);
    let (b, q) = (batch, quick);
    assert_eq!(order, [b, b, b, q, b, b, b, q, 1]);
    // What a sleeper does not use costs nothing.
    mask(&mut world, quick);
    assert_eq!(world.by(quick, SLEEP), Outcome::Left);
    world.on(0, 1);
    world.state.accounts.records[1.into()].turns[CpuIndex::new(0)].position = 0;
    assert_eq!(round(&mut world, 7), [b, b, b, b, b, b, 1]);
    let used = world.state.published.slices[10].used;
    assert_eq!(used, 2);
}

#[test]
fn those_who_share_a_position_take_turns() {
    let mut world = World::new();
    let domain = world.domain();
    let (a, b) = (world.spawn(domain), world.spawn(domain));
    assert_eq!(world.state.published.slices[0].sharers, 3);
    let order = round(&mut world, 6);
    for index in [1, a, b] {
        assert_eq!(order.iter().filter(|&&who| who == index).count(), 2, "{order:?}");
    }
}

#[test]
fn each_error_of_the_slice_calls() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    let env = world.id(other);
    let alloc = |cpu, position, env| Call::SliceAlloc { cpu, position, env };
    let this = Which::This(3);
    assert_eq!(world.by(1, alloc(2, this, env)), error(Error::NoSuchDevice, 0), "offline");
    assert_eq!(world.by(1, alloc(99, this, env)), error(Error::NoSuchDevice, 0));
    assert_eq!(world.by(1, alloc(0, Which::This(128), env)), error(Error::NoSuchDevice, 0));
    assert_eq!(world.by(1, alloc(0, this, EnvId(99))), error(Error::NoSuchEnv, 0));
    assert_eq!(world.with(1, 9, alloc(0, this, env)), error(Error::NoSuchCapability, 0));
    assert_eq!(world.with(1, 0, alloc(0, this, env)), error(Error::NotPermitted, 0));
    assert_eq!(world.by(1, alloc(0, this, env)), Outcome::Answer(0, 3));
    assert_eq!(world.by(1, alloc(0, this, env)), error(Error::Taken, 0));
    let used = world.state.published.accounts[1].used[3];
    assert_eq!(used, 2);
    world.state.published.accounts[1].limit[3] = used;
    assert_eq!(world.by(1, alloc(0, Which::Any, env)), error(Error::OverQuota, 3));
    world.state.published.accounts[1].limit[3] = u32::MAX;
    for _ in 2..SLICES {
        assert!(matches!(world.by(1, alloc(0, Which::Any, env)), Outcome::Answer(0, _)));
    }
    assert_eq!(world.by(1, alloc(0, Which::Any, env)), error(Error::Exhausted, 0));

    let free = |cpu, position| Call::SliceFree { cpu, position };
    assert_eq!(world.by(1, free(0, 128)), error(Error::NoSuchDevice, 0));
    assert_eq!(world.by(1, free(1, 3)), error(Error::NoSuchDevice, 0), "nobody's");
    assert_eq!(world.with(1, 0, free(0, 3)), error(Error::NotPermitted, 0));
    for position in 1..SLICES as u32 {
        assert_eq!(world.by(1, free(0, position)), OK);
    }
    assert_eq!(world.state.published.accounts[1].used[3], 1);
    assert_eq!(world.state.published.slices[0].sharers, 2, "back at the first one's");
    assert_eq!(world.by(1, free(0, 0)), error(Error::BadArgument, 1));
    world.on(0, 1);
    assert_eq!(round(&mut world, 2), [1, other]);
}

#[test]
fn a_home_passes_to_those_who_share_it() {
    let mut world = World::new();
    let domain = world.domain();
    // News of children do not mask it.
    world.state.envs.slots[EnvIndex::new(1)].entries.event = 0;
    let parent = world.spawn(domain);
    give(&mut world, parent, 5);
    let child = world.spawn_by(parent, domain);
    assert_eq!(world.state.published.slices[5].sharers, 2);
    let call = Call::EnvDestroy { env: world.id(parent), word: 0 };
    assert_eq!(world.by(1, call), OK);
    // Nobody else is given it while its heir is looked for.
    let taken = Call::SliceAlloc { cpu: 0, position: Which::This(5), env: EnvId::NONE };
    assert_eq!(world.by(1, taken), error(Error::Taken, 0));
    world.settle();
    assert_eq!(world.state.published.slices[5].env, world.id(child).0);
    assert_eq!(world.state.published.slices[5].sharers, 1);
    assert_eq!(world.state.published.accounts[1].used[3], 2);
    assert_eq!(round(&mut world, 2), [child, 1]);
    // Nobody can pay for it: the child shares the first one's.
    let grandchild = world.spawn_by(child, domain);
    world.state.published.accounts[1].limit[3] = 1;
    let call = Call::EnvDestroy { env: world.id(child), word: 0 };
    assert_eq!(world.by(1, call), OK);
    world.settle();
    let record = world.state.published.slices[5];
    assert_eq!((record.env, record.sharers), (0, 0));
    assert_eq!(round(&mut world, 2), [1, grandchild]);
    assert_eq!(world.state.published.slices[0].sharers, 2);
}

#[test]
fn a_critical_section_puts_the_end_off_once() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    world.on(0, other);
    world.pick(0);
    mask(&mut world, other);
    world.machine.now += SLICE_NS;
    assert_eq!(world.pick(0), other);
    assert_eq!(world.state.envs.slots[EnvIndex::new(other)].debt_ns, CRITICAL_NS as u32);
    assert_eq!(world.saved(other, offset::HELD_OFF), 1, "it can see that it was waited for");
    world.machine.now += CRITICAL_NS;
    assert_eq!(world.pick(0), 1, "still masked");
    mask(&mut world, 1);
    world.machine.now += SLICE_NS + 1;
    world.pick(0);
    world.machine.now += CRITICAL_NS;
    assert_eq!(world.pick(0), other);
    let end = world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns;
    assert_eq!(end, world.machine.now + SLICE_NS - CRITICAL_NS, "it pays");
}

#[test]
fn who_ignores_the_end_pays_and_at_last_dies() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    let flags = FLAG_SLICE_START | FLAG_SLICE_END;
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    assert_eq!(world.set_by(other, EnvId::NONE, field::FLAGS, &setup), OK);
    mask(&mut world, other);
    world.on(0, 1);
    assert_eq!(round(&mut world, 2), [1, other]);
    assert_eq!(world.saved(other, offset::EVENTS), EVENT_SLICE_START);
    world.machine.now += SLICE_NS;
    assert_eq!(world.pick(0), other, "told, not taken off");
    assert_eq!(world.saved(other, offset::EVENTS), EVENT_SLICE_START | EVENT_SLICE_END);
    for excess in 1..=3 {
        world.machine.now += SLICE_NS;
        assert_eq!(world.pick(0), other);
        assert_eq!(world.state.published.envs[other].excess, excess);
    }
    world.machine.now += SLICE_NS / 4;
    assert_eq!(world.by(other, Call::Yield { to: EnvId::NONE }), Outcome::Left);
    assert_eq!(world.pick(0), 1);
    for owed in [2, 1, 0] {
        world.machine.now += SLICE_NS;
        assert_eq!(world.pick(0), 1, "a slice forfeited");
        assert_eq!(world.state.published.envs[other].excess, owed);
    }
    world.machine.now += SLICE_NS;
    assert_eq!(world.pick(0), other);
    let end = world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns;
    assert_eq!(end, world.machine.now + SLICE_NS * 3 / 4, "a part of a slice is paid, too");
    for _ in 0..=EXCESS_MAX + 1 {
        world.machine.now += SLICE_NS;
        world.pick(0);
    }
    assert_eq!(world.state_of(other), EnvState::Dead);
    assert_eq!(world.state.published.envs[other].word, EXCESS_WORD);
}

#[test]
fn nobody_gets_what_is_left_of_an_end_held_off() {
    for way in 0..3 {
        let mut world = World::new();
        let domain = world.domain();
        let (slow, friend) = (world.spawn(domain), world.spawn(domain));
        let setup = EnvSetup { flags: FLAG_SLICE_END, ..EnvSetup::default() };
        assert_eq!(world.set_by(slow, EnvId::NONE, field::FLAGS, &setup), OK);
        mask(&mut world, slow);
        give(&mut world, slow, 1);
        give(&mut world, friend, 2);
        world.on(0, 1);
        assert_eq!(round(&mut world, 1), [slow]);
        world.machine.now += SLICE_NS;
        assert_eq!(world.pick(0), slow, "told");
        world.machine.now += 1000;
        let to = world.id(friend);
        match way {
            0 => assert_eq!(world.by(slow, Call::Yield { to }), Outcome::Left),
            1 => assert_eq!(world.by(slow, SLEEP), Outcome::Left),
            _ => {
                let setup = EnvSetup { flags: FLAG_GIVEN_TIME, ..EnvSetup::default() };
                assert_eq!(world.set_by(slow, EnvId::NONE, field::FLAGS, &setup), OK);
            }
        }
        assert_eq!(world.pick(0), friend, "its slice, or the rest that is enough to run in");
        let left = world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns - world.machine.now;
        let expected = if way == 0 { crate::sched::SHORTEST_NS } else { SLICE_NS };
        assert_eq!(left, expected, "by way {way}");
        let debt = if way == 2 { 0 } else { 1000 };
        assert_eq!(world.state.envs.slots[EnvIndex::new(slow)].debt_ns, debt, "by way {way}");
    }
}

#[test]
fn a_woken_one_borrows_and_pays_back() {
    for lends in [true, false] {
        let mut world = World::new();
        let domain = world.domain();
        let (sleeper, runner) = (world.spawn(domain), world.spawn(domain));
        mask(&mut world, sleeper);
        let flags = if lends { FLAG_BORROW } else { 0 };
        let setup = EnvSetup { flags, ..EnvSetup::default() };
        assert_eq!(world.set_by(runner, EnvId::NONE, field::FLAGS, &setup), OK);
        assert_eq!(world.by(sleeper, SLEEP), Outcome::Left);
        world.on(0, runner);
        assert_eq!(world.pick(0), runner);
        let end = world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns;
        let id = world.id(sleeper);
        world.on(1, 1);
        assert_eq!(world.by(1, Call::Post { env: id, bits: 1 }), OK);
        world.machine.now += 10;
        if !lends {
            assert_eq!(world.pick(0), runner);
            continue;
        }
        assert_eq!(world.pick(0), sleeper);
        world.machine.now += 1_000_000;
        world.save(sleeper, offset::PENDING, 0);
        assert_eq!(world.by(sleeper, SLEEP), Outcome::Left);
        assert_eq!(world.pick(0), runner, "the lender goes on");
        assert_eq!(world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns, end + 1_000_000);
        assert_eq!(world.state.envs.slots[EnvIndex::new(sleeper)].debt_ns, 1_000_000);
        assert_eq!(world.by(1, Call::Post { env: id, bits: 1 }), OK);
        world.pick(0);
        // At most a slice less the debt is lent.
        let borrowed = world.state.sched.cpus[CpuIndex::new(0)].borrow_end_ns - world.machine.now;
        assert_eq!(borrowed, SLICE_NS - 1_000_000);
        world.machine.now += SLICE_NS;
        assert_eq!(world.pick(0), runner);
    }
}

/// Who sleeps when its turn comes has not used that slice: it owes nothing more, however often it
/// was woken since, and can borrow again.
#[test]
fn a_turn_slept_through_pays_a_debt() {
    let mut world = World::new();
    let domain = world.domain();
    let (sleeper, one, other) = (world.spawn(domain), world.spawn(domain), world.spawn(domain));
    mask(&mut world, sleeper);
    let setup = EnvSetup { flags: FLAG_BORROW, ..EnvSetup::default() };
    for runner in [one, other] {
        assert_eq!(world.set_by(runner, EnvId::NONE, field::FLAGS, &setup), OK);
    }
    assert_eq!(world.by(sleeper, SLEEP), Outcome::Left);
    world.on(1, 1);
    world.on(0, one);
    let id = world.id(sleeper);
    let rounds = 40;
    let mut owed = 0;
    for _ in 0..rounds {
        world.machine.now += SLICE_NS / 2;
        world.pick(0);
        assert_eq!(world.by(1, Call::Post { env: id, bits: 1 }), OK);
        assert_eq!(world.pick(0), sleeper, "it starts at once, always");
        world.machine.now += SLICE_NS / 8;
        world.save(sleeper, offset::PENDING, 0);
        assert_eq!(world.by(sleeper, SLEEP), Outcome::Left);
        assert_ne!(world.pick(0), sleeper);
        owed = owed.max(world.state.envs.slots[EnvIndex::new(sleeper)].debt_ns);
    }
    assert!(u64::from(owed) <= SLICE_NS, "{owed}");
    // The two others shared what was left.
    let ran = |index: usize| world.state.published.envs[index].run_ns;
    assert!(ran(one).abs_diff(ran(other)) <= 2 * SLICE_NS, "{} {}", ran(one), ran(other));
    round(&mut world, 3);
    assert_eq!(world.state.envs.slots[EnvIndex::new(sleeper)].debt_ns, 0);
    check(&world.state);
}

#[test]
fn yielding_is_directed_or_to_the_next() {
    let mut world = World::new();
    let domain = world.domain();
    let (a, b) = (world.spawn(domain), world.spawn(domain));
    world.on(0, 1);
    let yields = |env| Call::Yield { to: env };
    let (a_id, b_id) = (world.id(a), world.id(b));
    let end = world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns;
    assert_eq!(world.by(1, yields(b_id)), Outcome::Left);
    assert_eq!(world.pick(0), b);
    assert_eq!(world.state.sched.cpus[CpuIndex::new(0)].slice_end_ns, end, "the rest of the slice");
    assert_eq!(world.by(b, yields(b_id)), OK);
    assert_eq!(world.by(b, yields(EnvId(99))), error(Error::NoSuchEnv, 0));
    mask(&mut world, a);
    assert_eq!(world.by(a, SLEEP), Outcome::Left);
    assert_eq!(world.by(b, yields(a_id)), error(Error::WrongState, 0));
    assert_eq!(world.by(b, yields(EnvId::NONE)), Outcome::Left);
    assert_eq!(world.pick(0), 1);
    assert_eq!(world.by(1, yields(EnvId::NONE)), Outcome::Left);
    assert_eq!(world.pick(0), b);
    world.on(1, 1);
    assert_eq!(world.by(b, yields(EnvId(1))), error(Error::WrongState, 0), "runs elsewhere");
}

/// Whoever ran elsewhere, by a yield to it, goes on at home when that slice ends.
#[test]
fn an_idle_home_takes_back_who_was_run_elsewhere() {
    for way in ["slice end", "yield", "asynchronous transfer", "home moves"] {
        let mut world = World::new();
        let domain = world.domain();
        let there = world.spawn(domain);
        let env = world.id(there);
        let call = Call::SliceAlloc { cpu: 1, position: Which::Any, env };
        assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
        assert_eq!(world.pick(1), there);
        mask(&mut world, 1);
        // The first one's home falls idle while processor 1 runs it.
        assert_eq!(world.by(1, Call::Yield { to: EnvId::NONE }), Outcome::Left);
        assert_eq!(world.by(there, Call::Yield { to: EnvId(1) }), Outcome::Left);
        assert_eq!(world.pick(1), 1, "{way}");
        assert_eq!(world.pick(0), 0, "{way}");
        world.machine.interrupts.clear();
        match way {
            "slice end" => {
                world.save(1, offset::MASK, 0);
                world.machine.now += SLICE_NS + CRITICAL_NS;
            }
            "yield" => {
                let call = Call::Yield { to: env };
                assert_eq!(world.by(1, call), Outcome::Left);
            }
            "asynchronous transfer" => {
                world.save(there, offset::ACCEPTING, 1);
                let call = Call::TransferAsync {};
                let word = u64::from(call.encode().0) | u64::from(env.0) << 32;
                assert_eq!(world.raw(1, 1, call, word), Outcome::Enter(EnvIndex::new(there)));
            }
            _ => {
                let call = Call::SliceFree { cpu: 1, position: 0 };
                assert_eq!(world.by(1, call), OK);
            }
        }
        world.pick(1);
        assert_eq!(world.machine.interrupts, [0], "{way}");
        let taken = world.pick(0);
        assert_ne!(taken, 0, "{way}");
    }
}

#[test]
fn who_has_no_turns_runs_on_given_time_only() {
    let mut world = World::new();
    let domain = world.domain();
    let (client, hog) = (world.spawn_new(1, domain), world.spawn(domain));
    give(&mut world, hog, 7);
    assert_eq!(world.set_flags(1, world.id(client), FLAG_GIVEN_TIME), OK);
    let env = world.id(client);
    assert_eq!(world.by(1, Call::EnvRelease { env }), OK);
    for ran in round(&mut world, 12) {
        assert_ne!(ran, client, "it has no turn");
    }
    world.on(0, 1);
    assert_eq!(world.by(1, Call::Yield { to: env }), Outcome::Left);
    assert_eq!(world.pick(0), client);
    // The slice was the giver's, and ends when that ends; the giver's next one is its own again.
    let order = round(&mut world, 4);
    assert!(!order.contains(&client), "{order:?}");
    assert!(order.contains(&1) && order.contains(&hog), "{order:?}");
    assert_eq!(world.state.envs.slots[EnvIndex::new(client)].debt_ns, 0);
    let both = FLAG_GIVEN_TIME | FLAG_SLICE_END;
    let other = world.spawn_new(1, domain);
    assert_eq!(world.set_flags(1, world.id(other), both), error(Error::BadArgument, 2));
}
