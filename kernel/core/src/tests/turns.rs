//! Turns go by account first: how many an account has made changes nothing for another one.

use super::*;
use abi::limits::{Resource, SLICE_NS};
use abi::setup::FLAG_BORROW;

/// An account that may have a hundred of everything, and a domain of its.
fn user(world: &mut World) -> (AccountId, DomainId) {
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(1) };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no account") };
    let account = AccountId(id);
    for resource in 0..RESOURCES as u16 {
        let call = Call::AccountLimit { account, resource, limit: 300, reserve: 0 };
        assert_eq!(world.by(1, call), OK);
    }
    (account, world.domain())
}

fn process(world: &mut World, (account, domain): (AccountId, DomainId)) -> usize {
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

fn sleep_for_ever(world: &mut World, index: usize) {
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
    assert_eq!(usize::from(world.state.envs.slots[index].position), crate::turns::COMMON);
    assert_eq!(world.state.published.slices[0].sharers, sharers);
    let call = Call::SliceAlloc { cpu: 0, position: Which::This(9), env: world.id(index) };
    assert_eq!(world.by(1, call), Outcome::Answer(0, 9));
    let child = process(&mut world, user);
    world.by(1, Call::SliceFree { cpu: 0, position: 9 });
    let slots = &world.state.envs.slots;
    assert!(
        [index, child].iter().all(|&one| usize::from(slots[one].position) == crate::turns::COMMON)
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
        let domain = env::domain(&world.state, lender).index();
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
