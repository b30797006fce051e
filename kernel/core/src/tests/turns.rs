//! Turns go by account first: how many an account has made changes nothing for another one.

use crate::index::EnvIndex;

use super::*;
use abi::limits::{Resource, SLICE_NS};
use abi::setup::{EnvSetup, FLAG_BORROW, FLAG_SLICE_END, field};

/// An account that may have a hundred of everything, and a domain of its.
pub(super) fn user(world: &mut World) -> (AccountId, DomainId) {
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(1) };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no account") };
    let account = AccountId(id);
    for resource in 0..RESOURCES as u16 {
        let call = Call::AccountLimit { account, resource, limit: 300, reserve: 0 };
        assert_eq!(world.by(1, call), OK);
    }
    (account, world.domain())
}

pub(super) fn process(world: &mut World, (account, domain): (AccountId, DomainId)) -> usize {
    let index = world.spawn_for(1, domain, account);
    assert_eq!(world.by(1, Call::EnvRelease { env: world.id(index) }), OK);
    index
}

/// Slices that each of these gets of the next `count`.
fn slices(world: &mut World, count: usize, of: &[Vec<usize>]) -> Vec<usize> {
    let mut got = vec![0; of.len()];
    for _ in 0..count {
        world.machine.now += SLICE_NS;
        let runs = world.pick(0);
        if let Some(at) = of.iter().position(|all| all.contains(&runs)) {
            got[at] += 1;
        }
    }
    got
}

/// A domain that this account pays for, with a page for arguments.
pub(super) fn domain_of(world: &mut World, account: AccountId) -> DomainId {
    let domain = super::accounts::domain_for(world, account);
    world.map(domain.index(), SCRATCH);
    domain
}

pub(super) fn sleep_for_ever(world: &mut World, index: usize) {
    let sleep = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
    assert_eq!(world.by(index, sleep), Outcome::Left);
}

#[test]
fn many_of_one_account_get_as_much_as_one_of_another() {
    let mut world = World::new();
    let [many, few] = [(); 2].map(|()| user(&mut world));
    let crowd: Vec<usize> = (0..20).map(|_| process(&mut world, many)).collect();
    let one = vec![process(&mut world, few)];
    // Positions of its own are turns among the account's.
    for &index in &crowd[..5] {
        let call = Call::SliceAlloc { cpu: 0, position: Which::Any, env: world.id(index) };
        assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
    }
    sleep_for_ever(&mut world, 1);
    let all = [crowd.clone(), one.clone()];
    assert_eq!(slices(&mut world, 200, &all), [100, 100]);
    // Within the account each has its turn.
    let each: Vec<Vec<usize>> = crowd.iter().map(|&index| vec![index]).collect();
    let got = slices(&mut world, 2 * 2 * 6 * 15, &each);
    assert!(got.iter().all(|&count| count > 1), "{got:?}");
    // What an account does not use is the others'.
    sleep_for_ever(&mut world, one[0]);
    assert_eq!(slices(&mut world, 50, &all), [50, 0]);
    crate::turns::check(&world.state);
}

/// A child of another account is in no turn of its parent's.
#[test]
fn a_child_of_another_account_takes_that_ones_turns() {
    let mut world = World::new();
    let user = user(&mut world);
    let sharers = world.state.published.slices[0].sharers;
    let index = process(&mut world, user);
    assert_eq!(
        usize::from(world.state.envs.slots[EnvIndex::new(index)].position),
        crate::turns::COMMON
    );
    assert_eq!(world.state.published.slices[0].sharers, sharers);
    let call = Call::SliceAlloc { cpu: 0, position: Which::This(9), env: world.id(index) };
    assert_eq!(world.by(1, call), Outcome::Answer(0, 9));
    let child = process(&mut world, user);
    world.by(1, Call::SliceFree { cpu: 0, position: 9 });
    let slots = &world.state.envs.slots;
    assert!(
        [index, child]
            .iter()
            .all(|&one| usize::from(slots[EnvIndex::new(one)].position) == crate::turns::COMMON)
    );
    for env in [index, child].map(|index| world.id(index)) {
        assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
    }
    world.settle();
    crate::turns::check(&world.state);
    let used = world.state.published.accounts[user.0.index()].used;
    assert_eq!(used[Resource::Slices as usize], 0);
}

/// Of another account's slice all processes of one together borrow no more than one of their own.
#[test]
fn an_account_borrows_one_slice_a_round() {
    let mut world = World::new();
    let [lending, borrowing] = [(); 2].map(|()| user(&mut world));
    let lender = process(&mut world, lending);
    let setup = EnvSetup { flags: FLAG_BORROW, ..EnvSetup::default() };
    assert_eq!(world.set_by(lender, EnvId::NONE, field::FLAGS, &setup), OK);
    let crowd: Vec<usize> = (0..8).map(|_| process(&mut world, borrowing)).collect();
    for &index in &crowd {
        mask(&mut world, index);
        let sleep = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };
        assert_eq!(world.by(index, sleep), Outcome::Left);
    }
    sleep_for_ever(&mut world, 1);
    world.on(0, lender);
    let began = world.machine.now;
    let mut borrowed = 0;
    for &index in &crowd {
        let env = world.id(index);
        let domain = env::domain(&world.state, EnvIndex::new(lender)).index();
        world.state.domains.records[DomainIndex::new(domain)].capabilities[usize::from(ROOT)] =
            Capability { rights: ALL, zero: 0, name: Name::ROOT };
        assert_eq!(world.with(lender, ROOT, Call::Post { env, bits: 1 }), OK);
        if world.pick(0) == index {
            world.machine.now += SLICE_NS * 3 / 5;
            borrowed += 1;
            let sleep = Call::Sleep { deadline: 0, posted: 2, events: 0, flags: 0 };
            assert_eq!(world.by(index, sleep), Outcome::Left);
        }
        assert_eq!(world.pick(0), lender);
    }
    assert_eq!(borrowed, 2, "a slice, and what the last one took");
    assert!(world.machine.now < began + 2 * SLICE_NS);
}

/// A domain becomes another account's: its environments' records, predicates and turns follow, and
/// nothing is left to the former one but what it has paid for elsewhere.
#[test]
fn environments_follow_their_domain_to_another_account() {
    let mut world = World::new();
    let [from, to] = [(); 2].map(|()| user(&mut world));
    let domain = domain_of(&mut world, from.0);
    let all = [(); 3].map(|()| process(&mut world, (from.0, domain)));
    let call = Call::SliceAlloc { cpu: 0, position: Which::This(9), env: world.id(all[0]) };
    assert_eq!(world.by(1, call), Outcome::Answer(0, 9));
    let beside = process(&mut world, from);
    let used = |world: &World, id: AccountId, resource: Resource| {
        world.state.published.accounts[id.index()].used[resource as usize]
    };
    let set = |world: &mut World, capability, value: AccountId| {
        let property = abi::domain::Property::Account as u16;
        world.with(1, capability, Call::DomainSet { domain, property, value: value.0 })
    };
    let resource = Resource::Domains as u16;
    let none = Call::AccountLimit { account: to.0, resource, limit: 0, reserve: 0 };
    assert_eq!(world.by(1, none), OK);
    assert_eq!(set(&mut world, ROOT, to.0), error(Error::OverQuota, resource.into()));
    let enough = Call::AccountLimit { account: to.0, resource, limit: 9, reserve: 0 };
    assert_eq!(world.by(1, enough), OK);
    assert_eq!(set(&mut world, ROOT, to.0), OK);
    world.settle();
    for resource in [Resource::Envs, Resource::Domains] {
        let moved = if resource == Resource::Envs { 3 } else { 1 };
        assert_eq!(used(&world, to.0, resource), moved, "{resource:?}");
    }
    assert_eq!(used(&world, from.0, Resource::Envs), 1);
    assert_eq!(used(&world, from.0, Resource::Slices), 0, "nobody is left who shared it");
    for index in all {
        let record = &world.state.published.envs[index];
        assert_eq!((record.account, record.user), (to.0.0, to.0.0));
    }
    let before = world.state.published.envs[beside].account;
    assert_eq!(before, from.0.0, "of another domain");
    crate::turns::check(&world.state);
    sleep_for_ever(&mut world, 1);
    assert_eq!(slices(&mut world, 60, &[all.to_vec(), vec![beside]]), [30, 30]);
}

/// One that moves into a domain of another account, as a set-id program does, is that one's.
#[test]
fn a_mover_is_paid_for_by_the_domain_it_moves_to() {
    let mut world = World::new();
    let [from, to] = [(); 2].map(|()| user(&mut world));
    for (account, domain) in [from, to] {
        let property = abi::domain::Property::Account as u16;
        let paid = Call::DomainSet { domain, property, value: account.0 };
        assert_eq!(world.by(1, paid), OK);
    }
    let mover = process(&mut world, from);
    // Nothing is looked for any more that the accounts' domains have begun.
    world.settle();
    let call = Call::EnvMove { domain: to.1, fields: 0, setup: UserAddress(SCRATCH) };
    assert_eq!(world.by(mover, call), Outcome::Restart);
    world.settle();
    let record = &world.state.published.envs[mover];
    assert_eq!((record.account, record.user), (to.0.0, to.0.0));
    crate::turns::check(&world.state);
}

/// An account's environments that ignore the ends of their slices take nothing of another account's
/// time, however many there are, whether they let go at last, die of it, or end themselves.
#[test]
fn who_ignores_the_end_takes_nothing_of_other_accounts() {
    for (lets_go, ends) in [(None, false), (Some(0), false), (Some(2), false), (Some(0), true)] {
        let mut world = World::new();
        let [many, few] = [(); 2].map(|()| user(&mut world));
        let one = process(&mut world, few);
        let crowd: [usize; 20] = core::array::from_fn(|_| process(&mut world, many));
        for index in crowd {
            let setup = EnvSetup { flags: FLAG_SLICE_END, ..EnvSetup::default() };
            assert_eq!(world.set_by(index, EnvId::NONE, field::FLAGS, &setup), OK);
            mask(&mut world, index);
        }
        sleep_for_ever(&mut world, 1);
        let ran = |world: &World| world.state.published.envs[one].run_ns;
        let (begin, before) = (world.machine.now, ran(&world));
        let (mut at, mut gap, mut longest) = (0, 0, 0);
        while at < 1_000 && crowd.iter().any(|&at| world.state_of(at) != EnvState::Dead) {
            world.machine.now += SLICE_NS;
            at += 1;
            let mut runs = world.pick(0);
            let ending = world.state.envs.slots[EnvIndex::new(runs)].ending;
            if runs != one && lets_go.is_some_and(|most| ending > most) {
                world.machine.now += SLICE_NS * 9 / 10;
                match ends {
                    true => world.by(runs, Call::EnvDestroy { env: EnvId::NONE, word: 0 }),
                    false => world.by(runs, Call::Yield { to: EnvId::NONE }),
                };
                runs = world.pick(0);
            }
            gap = if runs == one { 0 } else { gap + 1 };
            longest = longest.max(gap);
        }
        let share = (ran(&world) - before) * 100 / (world.machine.now - begin);
        assert!(share >= 45 && longest <= 2, "{lets_go:?}, {ends}: {share} %, {longest} in a row");
        crate::turns::check(&world.state);
    }
}

/// The turn that an environment forfeits is its account's: the next of the account's environments
/// does not run instead.
#[test]
fn an_environment_that_owes_has_its_account_s_turn() {
    let mut world = World::new();
    let [two, one] = [(); 2].map(|()| user(&mut world));
    let [owes, beside] = [(); 2].map(|()| process(&mut world, two));
    let other = process(&mut world, one);
    sleep_for_ever(&mut world, 1);
    while world.pick(0) != other || world.state.envs.slots[EnvIndex::new(owes)].debt_ns != 0 {
        world.machine.now += SLICE_NS;
    }
    world.state.published.envs[owes].excess = 2;
    let all = [vec![owes], vec![beside], vec![other]];
    // The account's first and third turns are forfeited.
    assert_eq!(slices(&mut world, 6, &all), [0, 2, 4]);
    assert_eq!(world.state.published.envs[owes].excess, 0);
    sleep_for_ever(&mut world, other);
    world.state.published.envs[owes].excess = 2;
    assert_eq!(slices(&mut world, 4, &all)[2], 0, "without another account nobody waits");
}

/// What an account owes is not forgotten when its last environment leaves the round: each of
/// a crowd wakes in turn, borrows another account's slice, and is held.
#[test]
fn an_account_that_leaves_the_round_owes_what_it_has_borrowed() {
    let mut world = World::new();
    let [many, few] = [(); 2].map(|()| user(&mut world));
    let crowd: [usize; 20] = core::array::from_fn(|_| process(&mut world, many));
    let lends = process(&mut world, few);
    let setup = EnvSetup { flags: FLAG_BORROW, ..EnvSetup::default() };
    assert_eq!(world.set_by(lends, EnvId::NONE, field::FLAGS, &setup), OK);
    let begin = world.machine.now + 500_000_000;
    let at = |one: usize| begin + one as u64 * SLICE_NS;
    for (one, &index) in crowd.iter().enumerate() {
        let sleep = Call::Sleep { deadline: at(one), posted: 0, events: 0, flags: 0 };
        assert_eq!(world.by(index, sleep), Outcome::Left);
    }
    sleep_for_ever(&mut world, 1);
    while world.machine.now < begin - 1 {
        world.machine.now = (world.machine.now + SLICE_NS / 2).min(begin - 1);
        world.pick(0);
    }
    let before = world.state.published.envs[lends].run_ns;
    let mut borrowed = 0;
    for (one, &index) in crowd.iter().enumerate() {
        world.machine.now = at(one);
        if world.pick(0) == index {
            borrowed += 1;
            world.machine.now += SLICE_NS * 9 / 10;
            let env = world.id(index);
            assert_eq!(world.by(index, Call::EnvHold { env }), Outcome::Left);
            world.pick(0);
        }
    }
    let ran = world.state.published.envs[lends].run_ns - before;
    let share = ran * 100 / (world.machine.now - begin);
    assert!(borrowed > 1 && share >= 45, "{borrowed} have borrowed, {share} % are left");
}

/// Whoever is ready is found, whatever number of another account's sleepers waits in a ring before
/// it: as many as a hold has room for, twice as many, or others.
#[test]
fn a_crowd_of_sleepers_hides_nobody_who_is_ready() {
    use super::predicates::{atom, constant, set};
    use abi::predicate::Operator;

    for count in [1, 23, 24, 25, 48, 49, 71, 72, 96, 100] {
        let mut world = World::of(8192);
        let [many, few] = [(); 2].map(|()| user(&mut world));
        let [one, another] = [(); 2].map(|()| process(&mut world, few));
        world.map(many.1.index(), SCRATCH);
        for _ in 0..count {
            let index = process(&mut world, many);
            mask(&mut world, index);
            let never = atom(constant(0), Operator::Equal, constant(1));
            assert_eq!(set(&mut world, index, &[never]), OK);
            sleep_for_ever(&mut world, index);
        }
        for index in [1, one, another] {
            sleep_for_ever(&mut world, index);
        }
        for wanted in [one, another, one, another] {
            while world.state.sched.cpus[CpuIndex::new(0)].more {
                assert_eq!(world.pick(0), 0);
            }
            let (state, machine) = (&mut world.state, &mut world.machine);
            let index = EnvIndex::new(wanted);
            crate::sleep::end_sleep(state, machine, index);
            sched::make_ready(state, machine, index, true);
            let mut picks = 0;
            while world.pick(0) != wanted {
                picks += 1;
                assert!(picks < 64, "{wanted} is not found behind {count} sleepers");
            }
            sleep_for_ever(&mut world, wanted);
        }
    }
}
