//! What a predicate keeps: nothing that another account pays for.

use super::predicates::{A_, atom, constant, memory, set};
use super::turns::{domain_of, user};
use super::*;
use abi::layout::PUBLISHED;
use abi::limits::{REGION_FRAMES, Resource};
use abi::memory::PRESENT;
use abi::predicate::{Operator, Source};

/// A process of an account of its own.
fn process(world: &mut World) -> (usize, AccountId) {
    let (account, _) = user(world);
    let domain = domain_of(world, account);
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.state.domains.records[domain.into()].capabilities[usize::from(ROOT)] = root;
    (super::turns::process(world, (account, domain)), account)
}

fn frames(world: &World, account: AccountId) -> u32 {
    world.state.published.accounts[account.index()].used[Resource::Frames as usize]
}

/// Whoever is attached names a word of each of a region's frames; when the region has ended its
/// account has them no more, whatever predicate is set still.
#[test]
fn frames_of_a_region_that_has_ended_are_nobodys() {
    let mut world = World::new();
    let [(victim, payer), (attacker, _)] = [(); 2].map(|()| process(&mut world));
    let before = frames(&world, payer);
    let make = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: REGION_FRAMES as u64 };
    world.put(victim, &[u64::MAX; REGION_FRAMES / 2 + 1]);
    let Outcome::Answer(0, id) = world.by(victim, make) else { panic!("no region") };
    let region = RegionId(id);
    for index in [victim, attacker] {
        let attach = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
        assert_eq!(world.by(index, attach), OK);
    }
    let word = |frame: usize| {
        let left = (Source::Region, frame as u64 * PAGE_SIZE);
        let mut word = atom(left, Operator::NotEqual, constant(0));
        word.region = id;
        word
    };
    let words: Vec<A_> = (0..REGION_FRAMES).map(word).collect();
    assert_eq!(set(&mut world, attacker, &words), OK);
    for index in [victim, attacker] {
        assert_eq!(world.by(index, Call::RegionDetach { region, role: 0 }), OK);
    }
    world.settle();
    assert_eq!(frames(&world, payer), before, "the predicate keeps them");
    // All comparisons are true from now on, and read nothing of whoever has the frames next.
    let index = EnvIndex::new(attacker);
    assert!(crate::predicate::holds(&mut world.state, &mut world.machine, index));
}

/// What a process shows is watched by the predicates of its own account alone: the page stays that
/// account's as long as a predicate names it.
#[test]
fn shown_pages_of_the_dead_are_nobodys() {
    let mut world = World::new();
    let [(victim, payer), (attacker, _)] = [(); 2].map(|()| process(&mut world));
    let friend = {
        let domain = env::domain(&world.state, EnvIndex::new(victim));
        super::turns::process(&mut world, (payer, domain))
    };
    // The published pages, as the machine maps the page of the one at `victim` there.
    let page = world.machine.application_pages[victim].expect("it shows a page");
    world.machine.entry_swap(Frame(2), 0, 0x8000 | PRESENT);
    world.machine.entry_swap(Frame(8), 0, 0x9000 | PRESENT);
    world.machine.entry_swap(Frame(9), 3, page.address() | PRESENT);
    let shown = memory(PUBLISHED + 3 * PAGE_SIZE + 8);
    let watch = [atom(shown, Operator::Equal, constant(1))];
    assert_eq!(set(&mut world, friend, &watch), OK);
    assert_eq!(set(&mut world, friend, &[]), OK);
    let answer = set(&mut world, attacker, &watch);
    let domain = env::domain(&world.state, EnvIndex::new(victim));
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    world.settle();
    assert_eq!(frames(&world, payer), 0, "a stranger's predicate keeps the page");
    assert_eq!(answer, error(Error::NotPermitted, 0));
}
