//! Cells of compiled predicates: charged to the account whose environment has one.

use super::turns::{domain_of, process, user};
use super::*;
use abi::limits::Resource;
use abi::predicate::{Operator, Source};

/// A predicate that never holds; or none.
fn set(world: &mut World, index: usize, count: u64) {
    let sides = u64::from(Source::Constant as u8) * 0x01_0100;
    world.put(index, &[u64::from(Operator::Equal as u8) | sides | 1 << 24, 0, 1, 2, 0]);
    let call = Call::PredicateSet { atoms: UserAddress(SCRATCH), count };
    assert_eq!(world.by(index, call), OK);
}

fn cells(world: &World, all: &[usize]) -> usize {
    all.iter().filter(|&&index| crate::compiled::has(&world.state, EnvIndex::new(index))).count()
}

fn charged(world: &World, account: AccountId) -> u32 {
    world.state.published.accounts[account.index()].used[Resource::Cells as usize]
}

fn limit(world: &mut World, account: AccountId, limit: u32, reserve: u32) {
    let resource = Resource::Cells as u16;
    assert_eq!(world.by(1, Call::AccountLimit { account, resource, limit, reserve }), OK);
}

/// One account has no more cells than it may, and with what is kept for another one that one's
/// predicates are compiled, however many the first one asks for. Who finds none is interpreted.
#[test]
fn an_account_leaves_cells_to_others() {
    let mut world = World::new();
    let all = world.state.downloads.cells.count();
    let [ann, bob] = [(); 2].map(|()| user(&mut world));
    limit(&mut world, ann.0, all as u32 / 2, 0);
    let anns: Vec<usize> = (0..all / 2 + 3).map(|_| process(&mut world, ann)).collect();
    let bobs: Vec<usize> = (0..2).map(|_| process(&mut world, bob)).collect();
    for &index in &anns {
        set(&mut world, index, 1);
    }
    assert_eq!((cells(&world, &anns), charged(&world, ann.0)), (all / 2, all as u32 / 2));
    // Half of it is the limit; without one, what is kept for another.
    limit(&mut world, bob.0, 2, 2);
    limit(&mut world, ann.0, u32::MAX, 0);
    let more: Vec<usize> = (0..all).map(|_| process(&mut world, ann)).collect();
    for &index in anns.iter().chain(&more) {
        set(&mut world, index, 1);
    }
    assert_eq!((charged(&world, ann.0), charged(&world, bob.0)), (all as u32 - 2, 0));
    for &index in &bobs {
        set(&mut world, index, 1);
    }
    assert_eq!((cells(&world, &bobs), charged(&world, bob.0)), (2, 2));
    // What is given back is the next one's, and nothing is left of the dead.
    set(&mut world, bobs[0], 0);
    assert_eq!((cells(&world, &bobs), charged(&world, bob.0)), (1, 1));
    for &index in anns.iter().chain(&more).chain(&bobs) {
        let env = world.id(index);
        assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
    }
    world.settle();
    assert_eq!((charged(&world, ann.0), charged(&world, bob.0)), (0, 0));
    assert_eq!(charged(&world, AccountId(1)), 2, "what is kept");
}

/// A cell goes along with its environment to another account, as far as that one may have it.
#[test]
fn cells_follow_to_another_account() {
    let mut world = World::new();
    let [from, to] = [(); 2].map(|()| user(&mut world));
    let domain = domain_of(&mut world, from.0);
    let all = [(); 3].map(|()| process(&mut world, (from.0, domain)));
    for index in all {
        set(&mut world, index, 1);
    }
    limit(&mut world, to.0, 2, 0);
    let property = abi::domain::Property::Account as u16;
    let join = Call::DomainSet { domain, property, value: to.0.0 };
    assert_eq!(world.with(1, ROOT, join), OK);
    world.settle();
    assert!(all.iter().all(|&index| world.state.published.envs[index].account == to.0.0));
    assert_eq!((charged(&world, from.0), charged(&world, to.0)), (0, 2));
    assert_eq!(cells(&world, &all), 2);
}
