//! What a program of a user asks of others' objects, one test for each demonstration of a review.
//!
//! Each step of a chain is tried alone, with those before it given. docs/threat-model.md says which
//! test holds which demonstration.

use super::principals::{ALICE, BOB, process};
use super::*;
use abi::capability::{CONTROL, DERIVE, NAME_FRESH, NAME_USER, SIGNAL};
use abi::limits::CAPABILITIES;

/// Every call of `calls` is refused for want of a right, whichever slot is named.
fn refused(world: &mut World, caller: usize, calls: &[Call]) {
    for call in calls {
        for slot in 0..CAPABILITIES as u8 {
            let answer = world.with(caller, slot, *call);
            let refused = [Error::NotPermitted, Error::NoSuchCapability].map(|why| error(why, 0));
            assert!(refused.contains(&answer), "{call:?} by slot {slot}: {answer:?}");
        }
    }
}

fn environments(world: &World) -> usize {
    world.state.published.envs.iter().filter(|record| record.id != 0).count()
}

#[test]
fn no_environment_is_made_in_anothers_domain() {
    let mut world = World::new();
    let (attacker, _) = process(&mut world, ALICE);
    let (victim, domain) = process(&mut world, 0);
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    let setup = UserAddress(SCRATCH);
    let before = environments(&world);
    let calls = [
        Call::EnvAlloc { which, domain, account, vector },
        Call::EnvSet { env: world.id(victim), fields: field::RIP, setup },
        Call::EnvMove { domain, fields: 0, setup },
        Call::DomainSwitch { domain },
        Call::TableUpdate { domain, items: setup, count: 0 },
    ];
    refused(&mut world, attacker, &calls);
    assert_eq!(environments(&world), before);
}

#[test]
fn no_account_is_reached_by_its_processes() {
    let mut world = World::new();
    let (attacker, _) = process(&mut world, ALICE);
    let account = AccountId(world.state.published.accounts[1].id);
    let before = (world.state.published.accounts[1].limit, world.state.published.accounts[1].used);
    let mut calls: Vec<Call> = (0..8)
        .map(|resource| Call::AccountLimit { account, resource, limit: 0, reserve: 0 })
        .collect();
    calls.push(Call::AccountAlloc { which: Which::Any, parent: account });
    calls.push(Call::AccountDestroy { account });
    refused(&mut world, attacker, &calls);
    let record = &world.state.published.accounts[1];
    assert_eq!((record.limit, record.used), before);
}

#[test]
fn no_right_of_others_is_taken_back() {
    let mut world = World::new();
    let (attacker, _) = process(&mut world, ALICE);
    // Also of its own user's: it has their names in common with them.
    let others = [0, ALICE, BOB].map(|user| process(&mut world, user).1);
    let list = |world: &World, domain: DomainId| -> Vec<(u8, Name)> {
        let all = &world.state.domains.records[domain.into()].capabilities;
        all.iter().map(|held| (held.rights, held.name)).collect()
    };
    let before = others.map(|domain| list(&world, domain));
    for slot in 0..CAPABILITIES as u8 {
        for (extend, components) in [(0, 0), (1, 0), (1, 7)] {
            world.with(attacker, slot, Call::CapabilityRetract { extend, components });
            world.settle();
        }
    }
    assert_eq!(others.map(|domain| list(&world, domain)), before);
}

#[test]
fn the_machine_is_not_ended_by_a_user() {
    let mut world = World::new();
    let (attacker, _) = process(&mut world, ALICE);
    let calls = [
        Call::MachineEnd { how: 0, status: 42 },
        Call::TraceSet { kinds: 1 },
        Call::ConsoleRing { page: SCRATCH },
    ];
    refused(&mut world, attacker, &calls);
}

#[test]
fn no_frame_of_a_chosen_domain_is_revoked() {
    let mut world = World::new();
    let (attacker, _) = process(&mut world, ALICE);
    let (_, victim) = process(&mut world, BOB);
    let frame = world.map(victim.index(), 0x5000_0000);
    let root = domain::root(&world.state, victim.into());
    // The published map says whose each frame is: these are the victim's, a page and a table.
    let calls = [frame, root].map(|frame| Call::FrameRevoke { frame, flags: 0 });
    for call in calls {
        for slot in 0..CAPABILITIES as u8 {
            assert_ne!(world.with(attacker, slot, call), OK, "{call:?} by slot {slot}");
        }
    }
    assert!(table::look_up(&world.machine, root, 0x5000_0000).is_some());
}

/// The second step alone: who has CONTROL and DERIVE over the name of the account, or of all users,
/// is above no fresh name, so enters nothing by the one that a domain was made with.
#[test]
fn who_controls_an_accounts_name_has_no_fresh_name() {
    let mut world = World::new();
    let domain = world.domain();
    let fresh = world.state.domains.records[domain.into()].capabilities[0].name;
    let account = world.state.accounts.record(1.into()).name;
    for name in [account, Name::of(&[NAME_USER]), Name::principal(NAME_USER, 0)] {
        let given = Capability { rights: CONTROL | DERIVE | SIGNAL, zero: 0, name };
        for own in [fresh, Name::of(&[NAME_FRESH])] {
            assert!(!given.dominates(&own, CONTROL), "{name:?} over {own:?}");
        }
    }
}
