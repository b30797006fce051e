//! Death in every state gives everything back; holders hear of it, donors are refused.

use crate::index::EnvIndex;

use super::*;
use abi::predicate::{Operator, Source};
use abi::setup::{FLAG_BORROW, FLAG_TAKES_RECORDS};
use abi::upcall::EVENT_CHILD;

const WORD: u64 = 0x1234_5678_9abc;

fn destroy(world: &World, index: usize) -> Call {
    Call::EnvDestroy { env: world.id(index), word: WORD }
}

/// One atom that never holds, on the argument page.
fn never(world: &mut World, index: usize) {
    let first = u64::from(Operator::NotEqual as u8)
        | u64::from(Source::Memory as u8) << 8
        | u64::from(Source::Memory as u8) << 16
        | 1 << 24;
    world.put(index, &[first, 0, SCRATCH, SCRATCH, 0]);
    let call = Call::PredicateSet { atoms: UserAddress(SCRATCH), count: 1 };
    assert_eq!(world.by(index, call), OK);
}

const SLEEP: Call = Call::Sleep { deadline: 1 << 40, posted: 1, events: 1, flags: 0 };
const ACCEPT: Call = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 };

/// Brings an environment into a state by its own and others' calls.
fn bring(world: &mut World, index: usize, server: usize, state: &str) {
    let id = world.id(index);
    match state {
        "ready" => {}
        "running here" => world.on(0, index),
        "running elsewhere" => world.on(1, index),
        "sleeping" => assert_eq!(world.by(index, SLEEP), Outcome::Left),
        "watching" => {
            never(world, index);
            assert_eq!(world.by(index, SLEEP), Outcome::Left);
        }
        "accepting" => assert_eq!(world.by(index, ACCEPT), Outcome::Left),
        "donating" => {
            assert_eq!(world.by(server, ACCEPT), Outcome::Left);
            transfer(world, index, server);
        }
        "held" => assert_eq!(world.by(1, Call::EnvHold { env: id }), OK),
        "held asleep" => {
            bring(world, index, server, "watching");
            bring(world, index, server, "held");
        }
        "held donating" => {
            bring(world, index, server, "donating");
            bring(world, index, server, "held");
        }
        "stopped" => {
            world.on(0, index);
            world.state.envs.slots[EnvIndex::new(index)].entries.fault = 0;
            let (state, machine) = (&mut world.state, &mut world.machine);
            assert!(!crate::upcall::deliver_fault(state, machine, EnvIndex::new(index), 6, 0, 0));
        }
        "timer" => assert_eq!(world.by(index, Call::TimerSet { deadline: 1 << 40 }), OK),
        "sliced" => {
            for cpu in [0, 1, 1] {
                let position = Which::Any;
                let call = Call::SliceAlloc { cpu, position, env: id };
                assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
            }
        }
        "console" => {
            let call = Call::ConsoleRing { page: SCRATCH };
            assert_eq!(world.by(index, call), OK);
        }
        "with a region" => {
            let call = Call::RegionAlloc { frames: UserAddress(0), count: 0 };
            let Outcome::Answer(0, region) = world.by(index, call) else { panic!() };
            let region = abi::id::RegionId(region);
            let call = Call::RegionAttach { region, role: 0, domain: DomainId::NONE };
            assert_eq!(world.by(index, call), OK);
            let call = Call::RegionAlloc { frames: UserAddress(0), count: 0 };
            assert!(matches!(world.by(index, call), Outcome::Answer(0, _)), "never attached");
        }
        _ => panic!("{state}"),
    }
}

pub fn transfer(world: &mut World, from: usize, to: usize) {
    world.on(0, from);
    let call = Call::TransferSync {};
    let word = u64::from(call.encode().0) | u64::from(world.id(to).0) << 32;
    assert_eq!(world.raw(0, from, call, word), Outcome::Enter(EnvIndex::new(to)));
}

const STATES: &[&str] = &[
    "ready",
    "running here",
    "running elsewhere",
    "sleeping",
    "watching",
    "accepting",
    "donating",
    "held",
    "held asleep",
    "held donating",
    "stopped",
    "timer",
    "sliced",
    "console",
    "with a region",
];

#[test]
fn death_in_every_state_gives_everything_back() {
    for state in STATES {
        let mut world = World::new();
        let server_domain = world.domain();
        let server = world.spawn(server_domain);
        let before = world.census();
        let domain = world.domain();
        let index = world.spawn(domain);
        bring(&mut world, index, server, state);
        let call = destroy(&world, index);
        if *state == "running here" {
            assert_eq!(world.by(index, call), Outcome::Left);
        } else {
            let killer = if world.state_of(1) == EnvState::Ready { 1 } else { server };
            let killer = if world.state_of(server) == EnvState::Running { server } else { killer };
            assert_eq!(world.by(killer, call), OK);
        }
        world.pick(1);
        world.pick(0);
        assert_eq!(world.state_of(index), EnvState::Dead, "{state}");
        let record = world.state.published.envs[index];
        assert_eq!(record.word, WORD);
        assert_eq!(world.saved(1, offset::EVENTS) & EVENT_CHILD, EVENT_CHILD);
        assert_eq!(env::vector(&world.state, EnvIndex::new(index)), None);
        let id = world.id(index);
        let other_id = world.id(server);
        let Outcome::Answer(error, _) = world.by(server, Call::EnvForget { env: id }) else {
            panic!()
        };
        assert_eq!(error, Error::NotPermitted as u64, "not the holder");
        assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, WORD));
        assert_eq!(world.by(1, Call::EnvForget { env: id }), super::error(Error::NoSuchEnv, 0));
        assert_eq!(
            world.by(1, Call::EnvForget { env: other_id }),
            super::error(Error::WrongState, 0)
        );
        assert_eq!(world.census(), before, "{state}");
    }
}

#[test]
fn a_dying_server_refuses_its_donors() {
    let mut world = World::new();
    let domain = world.domain();
    let server = world.spawn(domain);
    let domain = world.domain();
    let (first, second) = (world.spawn(domain), world.spawn(domain));
    assert_eq!(world.by(server, ACCEPT), Outcome::Left);
    transfer(&mut world, first, server);
    // It takes another one before it answers the first.
    assert_eq!(world.by(server, ACCEPT), Outcome::Left);
    transfer(&mut world, second, server);
    let held = Call::EnvHold { env: world.id(second) };
    assert_eq!(world.by(1, held), OK);
    assert_eq!(world.by(1, destroy(&world, server)), OK);
    world.settle();
    assert_eq!(world.state_of(first), EnvState::Ready);
    assert_eq!(world.state_of(second), EnvState::Held);
    for client in [first, second] {
        assert_eq!(world.machine.context(client).rax, Error::Dead as u64);
        assert_eq!(world.state.published.envs[client].donated_to, 0);
    }
}

#[test]
fn the_children_of_the_dead_are_nobodys() {
    let mut world = World::new();
    let before = world.census();
    let domain = world.domain();
    let parent = world.spawn(domain);
    let dead = world.spawn_by(parent, domain);
    let alive = world.spawn_by(parent, domain);
    assert_eq!(world.by(1, destroy(&world, dead)), OK);
    assert_eq!(world.state_of(dead), EnvState::Dead);
    assert_eq!(world.by(1, destroy(&world, parent)), OK);
    world.settle();
    assert_eq!(world.state_of(dead), EnvState::Free, "nobody is left to ask");
    assert_eq!(world.state.published.envs[alive].holder, 0);
    assert_eq!(world.by(1, destroy(&world, alive)), OK);
    assert_eq!(world.state_of(alive), EnvState::Free, "at once");
    let id = world.id(parent);
    assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, WORD));
    assert_eq!(world.census(), before);
}

/// More children than one piece of work tells: until the last is told, the record of the dead one,
/// which its own holder has released, is there, and its place is not used again.
#[test]
fn the_record_of_a_dead_one_stays_while_children_name_it() {
    let mut world = World::of(8192);
    let before = world.census();
    let domain = world.domain();
    let parent = world.spawn(domain);
    let children: Vec<usize> = (0..20).map(|_| world.spawn_by(parent, domain)).collect();
    let id = world.id(parent);
    world.spent = crate::work::PIECE - 8_000;
    assert_eq!(world.by(1, destroy(&world, parent)), OK);
    assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, WORD));
    world.spent = 0;
    let named = children.iter().any(|&child| world.state.published.envs[child].holder == id.0);
    assert!(named, "one piece has told them all");
    assert_eq!(world.state_of(parent), EnvState::Dead);
    world.settle();
    assert_eq!(world.state_of(parent), EnvState::Free);
    for child in children {
        assert_eq!(world.state.published.envs[child].holder, 0);
        assert_eq!(world.by(1, destroy(&world, child)), OK);
        world.settle();
    }
    assert_eq!(world.census(), before);
}

#[test]
fn what_one_thread_holds_is_all_its_threads() {
    let mut world = World::new();
    let domain = world.domain();
    let first = world.spawn(domain);
    let second = world.spawn_by(first, domain);
    let (stranger_domain, child_domain) = (world.domain(), world.domain());
    let stranger = world.spawn(stranger_domain);
    let child = world.spawn_by(first, child_domain);
    let (child_id, second_id) = (world.id(child), world.id(second));
    assert_eq!(world.by(1, destroy(&world, child)), OK);
    let forget = Call::EnvForget { env: child_id };
    assert_eq!(world.by(stranger, forget), error(Error::NotPermitted, 0));
    assert_eq!(world.by(second, forget), Outcome::Answer(0, WORD));
    assert_eq!(world.state_of(child), EnvState::Free);

    let nobody = |env| Call::EnvEntrust { env, holder: EnvId::NONE };
    let unborn = world.spawn_new(first, domain);
    let unborn_id = world.id(unborn);
    assert_eq!(world.by(first, nobody(unborn_id)), error(Error::WrongState, 0));
    assert_eq!(world.by(1, destroy(&world, unborn)), OK);
    assert_eq!(world.by(second, nobody(unborn_id)), OK);
    assert_eq!(world.state_of(unborn), EnvState::Free, "it was dead already");
    world.save(first, offset::EVENTS, 0);
    assert_eq!(world.by(first, nobody(second_id)), OK);
    assert_eq!(world.by(1, destroy(&world, second)), OK);
    assert_eq!(world.state_of(second), EnvState::Free, "at once");
    assert_eq!(world.saved(first, offset::EVENTS), 0, "nobody is told");
    assert_eq!(world.by(first, nobody(second_id)), error(Error::NoSuchEnv, 0));
}

#[test]
fn a_record_is_entrusted_with_its_news() {
    let mut world = World::new();
    let domain = env::domain(&world.state, EnvIndex::new(1));
    let (child, heir) = (world.spawn(domain), world.spawn(domain));
    let (child_id, heir_id) = (world.id(child), world.id(heir));
    assert_eq!(world.by(1, destroy(&world, child)), OK);
    let entrust = Call::EnvEntrust { env: child_id, holder: heir_id };
    let elsewhere = world.domain();
    let stranger = world.spawn(elsewhere);
    assert_eq!(world.by(stranger, entrust), error(Error::NotPermitted, 0));
    assert_eq!(
        world.by(1, Call::EnvEntrust { env: child_id, holder: child_id }),
        error(Error::WrongState, 0)
    );
    assert_eq!(
        world.by(1, Call::EnvEntrust { env: child_id, holder: EnvId(77) }),
        error(Error::NoSuchEnv, 0)
    );
    assert_eq!(world.by(1, entrust), OK);
    assert_eq!(world.saved(heir, offset::EVENTS), EVENT_CHILD);
    assert_eq!(world.by(heir, Call::EnvForget { env: child_id }), Outcome::Answer(0, WORD));
}

#[test]
fn records_go_to_strangers_that_take_them() {
    let mut world = World::new();
    let (domain, elsewhere) = (world.domain(), world.domain());
    let (child, next) = (world.spawn(domain), world.spawn(domain));
    let stranger = world.spawn(elsewhere);
    let (child_id, stranger_id) = (world.id(child), world.id(stranger));
    let entrust = Call::EnvEntrust { env: child_id, holder: stranger_id };
    assert_eq!(world.by(1, entrust), error(Error::NotPermitted, 0));
    assert_eq!(world.set_flags(stranger, EnvId::NONE, FLAG_BORROW | FLAG_TAKES_RECORDS), OK);
    assert_eq!(world.by(1, entrust), OK);
    assert_eq!(world.by(1, entrust), error(Error::NotPermitted, 0), "given away");
    assert_eq!(world.by(1, destroy(&world, child)), OK);
    assert_eq!(world.saved(stranger, offset::EVENTS), EVENT_CHILD);
    assert_eq!(world.by(stranger, Call::EnvForget { env: child_id }), Outcome::Answer(0, WORD));

    assert_eq!(world.set_flags(stranger, EnvId::NONE, FLAG_BORROW), OK);
    let entrust = Call::EnvEntrust { env: world.id(next), holder: stranger_id };
    assert_eq!(world.by(1, entrust), error(Error::NotPermitted, 0), "it takes no more");
}

#[test]
fn one_that_runs_elsewhere_is_held_when_it_enters_the_kernel() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    world.on(1, other);
    world.machine.interrupts.clear();
    let (hold, release) =
        (Call::EnvHold { env: world.id(other) }, Call::EnvRelease { env: world.id(other) });
    assert_eq!(world.by(1, hold), OK);
    assert_eq!(world.machine.interrupts, [1]);
    assert_eq!(world.state_of(other), EnvState::Running);
    assert_eq!(world.by(1, release), OK);
    assert_eq!(world.pick(1), other, "released before it was served");
    assert_eq!(world.by(1, release), error(Error::WrongState, 0));
    assert_eq!(world.by(1, hold), OK);
    assert_eq!(world.pick(1), 0);
    assert_eq!(world.state_of(other), EnvState::Held);
    assert_eq!(world.by(1, hold), error(Error::WrongState, 0));
    assert_eq!(world.by(1, release), OK);
    assert_eq!(world.state_of(other), EnvState::Ready);
}

#[test]
fn a_held_sleeper_sleeps_on_when_released_or_wakes_held() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    mask(&mut world, other);
    let id = world.id(other);
    assert_eq!(world.by(other, SLEEP), Outcome::Left);
    assert_eq!(world.by(1, Call::EnvHold { env: id }), OK);
    assert_eq!(world.by(1, Call::EnvRelease { env: id }), OK);
    assert_eq!(world.state_of(other), EnvState::Sleeping);
    assert_eq!(world.by(1, Call::EnvHold { env: id }), OK);
    assert_eq!(world.by(1, Call::Post { env: id, bits: 1 }), OK);
    assert_eq!(world.state_of(other), EnvState::Held);
    assert_eq!(world.by(1, Call::EnvRelease { env: id }), OK);
    assert_eq!(world.state_of(other), EnvState::Ready);
    assert_eq!(world.machine.context(other).rdx, abi::upcall::woken::POSTED);
}

#[test]
fn destroying_a_domain_ends_its_environments_wherever_they_run() {
    let mut world = World::new();
    let before = world.census();
    let domain = world.domain();
    let (a, b, c) = (world.spawn(domain), world.spawn(domain), world.spawn(domain));
    world.on(1, b);
    assert_eq!(world.by(c, SLEEP), Outcome::Left);
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    assert_eq!(world.state_of(a), EnvState::Dead);
    assert_eq!(world.state_of(c), EnvState::Dead);
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), error(Error::NoSuchDomain, 0));
    assert_eq!(world.state_of(b), EnvState::Running);
    world.pick(1);
    assert_eq!(world.state_of(b), EnvState::Dead);
    for index in [a, b, c] {
        let id = world.id(index);
        assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, 0));
    }
    assert_eq!(world.census(), before);
}

#[test]
fn one_that_destroys_its_own_domain_has_left() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    assert_eq!(world.by(other, Call::DomainDestroy { domain }), Outcome::Left);
    assert_eq!(world.state_of(other), EnvState::Dead);
    assert_eq!(world.pick(0), 1);
}

#[test]
fn destroying_an_account_ends_what_it_pays_for() {
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    world.map(own, 0x60_1000);
    let before = world.census();
    let call = Call::AccountAlloc { which: Which::Any, parent: AccountId(1) };
    let Outcome::Answer(0, account) = world.by(1, call) else { panic!() };
    let account = AccountId(account);
    for resource in 0..RESOURCES as u16 {
        let call = Call::AccountLimit { account, resource, limit: 100, reserve: 0 };
        assert_eq!(world.by(1, call), OK);
    }
    let call = Call::DomainAlloc {
        which: Which::Any,
        account,
        root: Which::Any,
        window: 0,
        bytes: u64::MAX,
    };
    let Outcome::Answer(0, domain) = world.by(1, call) else { panic!() };
    let domain = DomainId(domain);
    let shared = world.map(domain.index(), SCRATCH);
    let index = world.spawn(domain);
    let item = Item {
        operation: Operation::Map as u8,
        level: 1,
        more: 0,
        frame: shared.0,
        address: 0x60_0000,
        value: 0,
    };
    world.update((own, own), ROOT, &item).unwrap();
    assert_eq!(world.by(1, Call::AccountDestroy { account }), OK);
    assert_eq!(world.state_of(index), EnvState::Dead);
    let id = world.id(index);
    assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, 0));
    assert_eq!(world.by(1, Call::AccountDestroy { account }), error(Error::NoSuchAccount, 0));
    world.settle();
    assert_eq!(world.census(), before);
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let root = domain::root(&world.state, DomainIndex::new(own));
    assert_eq!(table::look_up(&world.machine, root, 0x60_0000), None, "taken from others too");
    assert_eq!(world.state.published.accounts[account.index()].id, 0, "forgotten");
}

#[test]
fn a_mover_keeps_its_id_and_leaves_its_domain_behind() {
    let mut world = World::new();
    let before = world.census();
    let old = world.domain();
    let index = world.spawn(old);
    let new = world.domain();
    world.map(new.index(), SAVE);
    never(&mut world, index);
    let setup = EnvSetup { rip: 0x9000, rsp: 0x8000, save_area: SAVE, ..EnvSetup::default() };
    let words = setup_words(&setup);
    world.put(index, &words);
    let fields = field::RIP | field::RSP | field::SAVE_AREA;
    let call = Call::EnvMove { domain: new, fields, setup: UserAddress(SCRATCH) };
    let id = world.id(index);
    assert_eq!(world.by(index, call), Outcome::Restart);
    assert_eq!(world.id(index), id);
    assert_eq!(env::domain(&world.state, EnvIndex::new(index)), new);
    assert_eq!(world.state.published.domains[old.index()].id, 0);
    let context = *world.machine.context(index);
    assert_eq!((context.rip, context.rsp, context.rbx), (0x9000, 0x8000, 0));
    assert_eq!(world.state.envs.slots[EnvIndex::new(index)].entries.fault, 0);
    assert_eq!(world.state.envs.slots[EnvIndex::new(index)].atoms, 0);
    assert_eq!(world.pick(0), index);
    assert_eq!(world.by(1, destroy(&world, index)), OK);
    assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, WORD));
    assert_eq!(world.census(), before);
}

#[test]
fn move_while_posts_wait() {
    let mut world = World::new();
    let old = world.domain();
    let index = world.spawn_masked(old);
    let new = world.domain();
    world.map(new.index(), SAVE);
    assert_eq!(world.by(1, Call::Post { env: world.id(index), bits: 0x55 }), OK);
    let events = world.saved(index, offset::EVENTS);
    world.save(index, offset::EVENTS, events | 2);
    let setup = EnvSetup { save_area: SAVE, ..EnvSetup::default() };
    world.put(index, &setup_words(&setup));
    let fields = field::SAVE_AREA;
    let call = Call::EnvMove { domain: new, fields, setup: UserAddress(SCRATCH) };
    assert_eq!(world.by(index, call), Outcome::Restart);
    assert_eq!(world.saved(index, offset::PENDING) & 0x55, 0x55, "posts come along");
    assert_ne!(world.saved(index, offset::EVENTS) & 2, 0, "events come along");
}

/// What waits for a mover that names no new save area goes with the old one: into no other frame.
#[test]
fn move_without_a_save_area_while_posts_wait() {
    let mut world = World::new();
    let old = world.domain();
    let index = world.spawn_masked(old);
    let new = world.domain();
    assert_eq!(world.by(1, Call::Post { env: world.id(index), bits: 0x55 }), OK);
    assert_eq!(world.saved(index, offset::PENDING), 0x55);
    let first = |world: &World| {
        [offset::PENDING, offset::EVENTS].map(|word| world.machine.word(word as u64))
    };
    let before = first(&world);
    assert_ne!(before[0] | 0x55, before[0]);
    let call = Call::EnvMove { domain: new, fields: 0, setup: UserAddress(SCRATCH) };
    assert_eq!(world.by(index, call), Outcome::Restart);
    assert_eq!(env::save_area(&world.state, EnvIndex::new(index)), None);
    assert_eq!(first(&world), before, "the first frame is nobody's save area");
}

/// A parent killed in the middle of making a child leaves neither domain nor environment.
#[test]
fn what_was_never_released_dies_with_its_maker() {
    let mut world = World::new();
    let before = world.census();
    let domain = world.domain();
    let parent = world.spawn(domain);
    let make = Call::DomainAlloc {
        which: Which::Any,
        account: AccountId::NONE,
        root: Which::Any,
        window: 0,
        bytes: u64::MAX,
    };
    let mut made = vec![];
    for _ in 0..3 {
        let Outcome::Answer(0, id) = world.by(parent, make) else { panic!() };
        made.push(DomainId(id));
    }
    assert_eq!(world.by(parent, Call::DomainDestroy { domain: made[2] }), OK);
    let call = Call::EnvAlloc {
        which: Which::Any,
        domain: made[1],
        account: AccountId::NONE,
        vector: Which::Any,
    };
    assert!(matches!(world.by(parent, call), Outcome::Answer(0, _)));
    assert_eq!(world.by(1, destroy(&world, parent)), OK);
    let id = world.id(parent);
    assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, WORD));
    assert_eq!(world.census(), before);
}

/// One that is asked for something leaves its processor by a call that it made before it heard.
#[test]
fn who_is_killed_or_held_on_the_way_into_a_call_is() {
    let sleep = Call::Sleep { deadline: 0, posted: 1, events: 1 << 4, flags: 0 };
    for call in [Call::Yield { to: EnvId::NONE }, sleep, Call::TransferSync {}] {
        for (kills, end) in [(true, EnvState::Dead), (false, EnvState::Held)] {
            let mut world = World::new();
            let domain = world.domain();
            let victim = world.spawn(domain);
            world.on(1, victim);
            world.on(0, 1);
            let env = world.id(victim);
            let kill = Call::EnvDestroy { env, word: 7 };
            let asked = world.by(1, if kills { kill } else { Call::EnvHold { env } });
            assert_eq!(asked, OK);
            // Its call stood before the lock.
            world.by(victim, call);
            world.pick(1);
            world.settle();
            assert_eq!(world.state_of(victim), end, "after {call:?}");
        }
    }
}
