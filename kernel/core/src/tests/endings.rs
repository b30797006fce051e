//! Ends under way: nothing begins in a dying domain or leaves it, no dead record stays for good.

use super::*;
use abi::setup::FLAG_GIVEN_TIME;

#[test]
fn nothing_begins_in_a_dying_domain_or_leaves_it() {
    let mut world = World::new();
    let (own, other) = (world.domain(), world.domain());
    let one = world.spawn_masked(own);
    let anew = |domain| Call::EnvAlloc {
        which: Which::Any,
        domain,
        account: AccountId::NONE,
        vector: Which::Any,
    };
    for domain in [DomainId::NONE, own, other] {
        assert!(matches!(world.by(one, anew(domain)), Outcome::Answer(0, _)));
    }
    // As `DomainDestroy` does where others' environments are looked at first.
    domain::condemn(&mut world.state, own.into(), EnvId::NONE);
    for domain in [DomainId::NONE, own, other] {
        assert_eq!(world.by(one, anew(domain)), error(Error::NoSuchDomain, 0));
    }
    let leaves = Call::EnvMove { domain: other, fields: 0, setup: UserAddress(SCRATCH) };
    assert_eq!(world.by(one, leaves), error(Error::NoSuchDomain, 0));
}

/// A dead holder's record goes with the last that it holds, also where another thread of its domain
/// takes that over or lets it go before the sweep comes by.
#[test]
fn records_of_the_dead_go_with_the_last_that_they_hold() {
    for is_let_go in [false, true] {
        let mut world = World::new();
        let domain = world.domain();
        let thread = world.spawn_masked(domain);
        let maker = world.spawn_by(thread, domain);
        let (env, holder) = (world.id(maker), world.id(thread));
        assert_eq!(world.by(thread, Call::EnvEntrust { env, holder: EnvId::NONE }), OK);
        let child = world.spawn_by(maker, domain);
        assert_eq!(world.by(thread, Call::EnvDestroy { env, word: 1 }), OK);
        assert_eq!(world.state_of(maker), EnvState::Dead);
        let holder = if is_let_go { EnvId::NONE } else { holder };
        assert_eq!(world.by(thread, Call::EnvEntrust { env: world.id(child), holder }), OK);
        assert_eq!(world.state_of(maker), EnvState::Free);
    }
}

/// One that is told of the end of its slice, and runs on another's time when it gives its turns up,
/// leaves the other one its slice.
#[test]
fn borrowers_that_give_their_turns_up_end_no_slice_of_their_lenders() {
    for lender in [EnvIndex::NONE, EnvIndex::new(1)] {
        let mut world = World::new();
        let domain = world.domain();
        let one = world.spawn_masked(domain);
        world.on(0, one);
        let cpu = CpuIndex::new(0);
        world.state.sched.cpus[cpu].lender = lender.link();
        world.state.envs.slots[EnvIndex::new(one)].ending = 1;
        let end = world.state.sched.cpus[cpu].slice_end_ns;
        assert_eq!(world.set_flags(one, EnvId::NONE, FLAG_GIVEN_TIME), OK);
        let left = if lender == EnvIndex::NONE { 0 } else { end };
        assert_eq!(world.state.sched.cpus[cpu].slice_end_ns, left);
        assert_eq!(world.state.envs.slots[EnvIndex::new(one)].ending, 0);
    }
}
