//! Waiting for a region: who is woken by what, and that nobody sleeps through it.

use crate::index::EnvIndex;

use super::*;
use crate::context::SYSCALL_BYTES;
use abi::region::NO_ROLE;
use abi::upcall::woken;

/// Where the caller's `syscall` is.
const CALL: u64 = 0x1230;

/// Sets a word of a region, as somebody attached in role 0.
pub(super) fn set(
    world: &mut World,
    index: usize,
    region: RegionId,
    offset: u64,
    value: u64,
) -> Outcome {
    let mut words = [0; 20];
    (words[0], words[3]) = (region.0, 1 << 40);
    (words[12], words[13]) = (offset, value);
    world.put(index, &words);
    world.by(index, Call::RegionOperate { operation: UserAddress(SCRATCH) })
}

/// In role 1: if word 0 is `value`, makes it 0; as long as it is 0 and peers are there, waits.
pub(super) fn take(
    world: &mut World,
    index: usize,
    region: RegionId,
    value: u64,
    peer: u64,
) -> Outcome {
    take_until(world, index, region, value, peer, (0, 0, 0))
}

fn take_until(
    world: &mut World,
    index: usize,
    region: RegionId,
    value: u64,
    peer: u64,
    (deadline, posted, events): (u64, u64, u64),
) -> Outcome {
    let mut words = [0; 23];
    (words[0], words[3]) = (region.0, 1 << 32 | 1 << 40 | 1 << 56);
    words[5] = value;
    words[22] = peer;
    world.put(index, &words);
    world.machine.context(index).rip = CALL + SYSCALL_BYTES;
    let wait = UserAddress(SCRATCH);
    world.by(index, Call::RegionAwait { wait, deadline, posted, events })
}

/// Does its call begin anew when it runs?
fn begins_anew(world: &mut World, index: usize) -> bool {
    world.state_of(index) == EnvState::Ready && world.machine.context(index).rip == CALL
}

/// A region to which the first environment is attached as a writer, and so many others that may
/// take from it, masked.
fn setting(takers: usize) -> (World, RegionId, Vec<usize>) {
    let mut world = World::new();
    let Outcome::Answer(0, id) =
        world.by(1, Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 0 })
    else {
        panic!("RegionAlloc")
    };
    let region = RegionId(id);
    let attach = |role, domain| Call::RegionAttach { region, role, domain };
    assert_eq!(world.by(1, attach(0, DomainId::NONE)), OK);
    let takers = (0..takers).map(|_| {
        let domain = world.domain();
        assert_eq!(world.by(1, attach(1, domain)), OK);
        world.spawn_masked(domain)
    });
    let takers = takers.collect();
    (world, region, takers)
}

#[test]
fn a_write_wakes_the_one_that_waits_and_its_call_begins_anew() {
    let (mut world, region, takers) = setting(1);
    let taker = takers[0];
    assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), Outcome::Left);
    assert_eq!(world.state_of(taker), EnvState::Sleeping);
    assert_eq!(world.pick(0), 1);
    assert_eq!(set(&mut world, 1, region, 8, 1), OK);
    assert_eq!(world.state_of(taker), EnvState::Sleeping, "another word");
    let looked = world.state.published.cpus[0].predicates;
    assert_eq!(set(&mut world, 1, region, 0, 7), OK);
    assert!(begins_anew(&mut world, taker), "at once, by the write itself");
    assert_eq!(world.state.published.cpus[0].predicates, looked, "nobody was asked");
    assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), OK);
    assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), Outcome::Left, "it took it");
    assert_eq!(set(&mut world, 1, region, 0, 8), OK);
    assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), error(Error::Changed, 8));
}

/// The taker looks, then waits; a write comes before, between or after.
#[test]
fn no_interleaving_of_write_and_wait_loses_it() {
    for when in 0..3 {
        let (mut world, region, takers) = setting(1);
        world.on(1, takers[0]);
        if when == 0 {
            assert_eq!(set(&mut world, 1, region, 0, 7), OK);
        }
        let mut outcome = take(&mut world, takers[0], region, 7, NO_ROLE);
        assert_eq!(outcome == OK, when == 0);
        if when == 1 {
            assert_eq!(set(&mut world, 1, region, 0, 7), OK);
        }
        world.pick(1);
        if when == 2 {
            assert_eq!(set(&mut world, 1, region, 0, 7), OK);
        }
        if when > 0 {
            let awake = [EnvState::Ready, EnvState::Running];
            world.pick(1);
            assert!(awake.contains(&world.state_of(takers[0])), "{when}");
            outcome = take(&mut world, takers[0], region, 7, NO_ROLE);
        }
        assert_eq!(outcome, OK, "{when}");
    }
}

#[test]
fn of_many_that_wait_for_one_region_each_is_woken_that_should_be() {
    let (mut world, region, takers) = setting(40);
    for &taker in &takers {
        assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), Outcome::Left);
    }
    world.on(0, 1);
    assert_eq!(set(&mut world, 1, region, 8, 7), OK);
    world.pick(0);
    world.pick(0);
    let sleeping = |world: &World, at: &usize| {
        world.state.envs.slots[EnvIndex::new(*at)].state == EnvState::Sleeping
    };
    assert!(takers.iter().all(|taker| sleeping(&world, taker)), "another word");
    world.on(0, 1);
    assert_eq!(set(&mut world, 1, region, 0, 7), OK);
    for _ in 0..3 {
        world.pick(0);
    }
    assert!(!takers.iter().any(|taker| sleeping(&world, taker)), "all, so many at a time");
    // One takes it; the others go back to sleep, and the last that came is not the last that waits.
    for (at, &taker) in takers.iter().take(3).enumerate() {
        let outcome = take_until(&mut world, taker, region, 7, NO_ROLE, (0, 1, 0));
        assert_eq!(outcome, if at == 0 { OK } else { Outcome::Left });
    }
    let id = world.id(takers[2]);
    assert_eq!(world.by(1, Call::Post { env: id, bits: 1 }), OK);
    world.on(0, 1);
    assert_eq!(set(&mut world, 1, region, 0, 7), OK);
    world.pick(0);
    assert!(!sleeping(&world, &takers[1]), "the one that is left");
}

#[test]
fn bits_and_deadlines_end_a_wait() {
    let (mut world, region, takers) = setting(1);
    let taker = takers[0];
    let wait = |world: &mut World, until| take_until(world, taker, region, 7, NO_ROLE, until);
    let told = error(Error::WouldBlock, woken::POSTED);
    assert_eq!(wait(&mut world, (0, 4, 0)), Outcome::Left);
    let post = Call::Post { env: world.id(taker), bits: 2 };
    assert_eq!(world.by(1, post), OK);
    assert_eq!(world.state_of(taker), EnvState::Sleeping, "another bit");
    let post = Call::Post { env: world.id(taker), bits: 4 };
    assert_eq!(world.by(1, post), OK);
    assert!(begins_anew(&mut world, taker));
    assert_eq!(wait(&mut world, (0, 4, 0)), told);
    assert_eq!(wait(&mut world, (0, 2, 0)), told, "posted before");
    sched::event(&mut world.state, &mut world.machine, EnvIndex::new(taker), 1);
    assert_eq!(wait(&mut world, (0, 1, 1)), error(Error::WouldBlock, woken::EVENT));
    world.machine.now = 1000;
    assert_eq!(wait(&mut world, (1000, 1, 2)), error(Error::TimedOut, 0));
    assert_eq!(wait(&mut world, (5000, 1, 2)), Outcome::Left);
    world.on(0, 1);
    world.machine.now = 5000;
    world.pick(0);
    assert!(begins_anew(&mut world, taker));
    assert_eq!(wait(&mut world, (5000, 1, 2)), error(Error::TimedOut, 0));
    // What there is is taken, whatever else has come.
    assert_eq!(set(&mut world, 1, region, 0, 7), OK);
    assert_eq!(wait(&mut world, (5000, 4, 2)), OK);
}

#[test]
fn peers_that_go_end_a_wait_and_so_does_the_region() {
    let (mut world, region, takers) = setting(2);
    let detach = Call::RegionDetach { region, role: 0 };
    for (at, &taker) in takers.iter().enumerate() {
        let peer = if at == 0 { 0 } else { NO_ROLE };
        assert_eq!(take(&mut world, taker, region, 7, peer), Outcome::Left);
    }
    world.on(0, 1);
    assert_eq!(world.by(1, detach), OK);
    world.pick(0);
    assert!(begins_anew(&mut world, takers[0]));
    assert_eq!(world.state_of(takers[1]), EnvState::Sleeping, "it has no peer to wait for");
    assert_eq!(take(&mut world, takers[0], region, 7, 0), error(Error::Changed, 0));
    world.on(0, 1);
    crate::region::destroy(&mut world.state, RegionIndex::new(region.index()));
    world.pick(0);
    assert!(begins_anew(&mut world, takers[1]));
    assert_eq!(take(&mut world, takers[1], region, 7, NO_ROLE), error(Error::NoSuchRegion, 0));
}

#[test]
fn who_dies_or_is_held_while_it_waits_is_waited_for_by_nobody() {
    let (mut world, region, takers) = setting(3);
    for &taker in &takers {
        assert_eq!(take(&mut world, taker, region, 7, NO_ROLE), Outcome::Left);
    }
    let destroy = Call::EnvDestroy { env: world.id(takers[2]), word: 0 };
    assert_eq!(world.by(1, destroy), OK);
    let (hold, release) = (world.id(takers[1]), world.id(takers[1]));
    assert_eq!(world.by(1, Call::EnvHold { env: hold }), OK);
    assert_eq!(set(&mut world, 1, region, 0, 7), OK);
    world.pick(0);
    assert!(begins_anew(&mut world, takers[0]));
    assert_eq!(world.state_of(takers[1]), EnvState::Held);
    world.on(0, 1);
    assert_eq!(world.by(1, Call::EnvRelease { env: release }), OK);
    assert!(begins_anew(&mut world, takers[1]));
    // One that is released before anything happened finds out that it must go on waiting.
    assert_eq!(take(&mut world, takers[0], region, 7, NO_ROLE), OK);
    assert_eq!(take(&mut world, takers[1], region, 7, NO_ROLE), Outcome::Left);
    assert_eq!(world.by(1, Call::EnvHold { env: hold }), OK);
    assert_eq!(world.by(1, Call::EnvRelease { env: release }), OK);
    assert!(begins_anew(&mut world, takers[1]));
    assert_eq!(take(&mut world, takers[1], region, 7, NO_ROLE), Outcome::Left);
}

#[test]
fn each_refusal_of_a_wait() {
    let (mut world, region, takers) = setting(1);
    let taker = takers[0];
    assert_eq!(take(&mut world, taker, RegionId(99), 7, NO_ROLE), error(Error::NoSuchRegion, 0));
    assert_eq!(take(&mut world, taker, region, 7, 4), error(Error::BadArgument, 0));
    for offset in [4, 64, u64::MAX - 7] {
        let mut words = [0; 23];
        (words[0], words[3]) = (region.0, 1 << 56);
        (words[20], words[22]) = (offset, NO_ROLE);
        world.put(taker, &words);
        let wait = UserAddress(SCRATCH);
        let call = Call::RegionAwait { wait, deadline: 0, posted: 0, events: 0 };
        assert_eq!(world.by(taker, call), error(Error::BadAddress, 0));
    }
    let stranger = world.domain();
    let stranger = world.spawn_masked(stranger);
    let refused = error(Error::NotPermitted, 0);
    assert_eq!(take(&mut world, stranger, region, 7, NO_ROLE), refused);
}
