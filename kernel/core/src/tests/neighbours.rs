//! What one account destroys is worked off in its own time, and in none of its neighbours'.

use super::turns::{process, sleep_for_ever};
use super::*;
use crate::index::AccountIndex;
use crate::work;
use abi::limits::{Resource, SLICE_NS};
use abi::setup::FLAG_BORROW;

/// Where everything runs.
const CPU: CpuIndex = CpuIndex::new(0);
/// A long hold takes as many nanoseconds as instructions are reckoned; a short one so many.
const HOLD_NS: u64 = 1_000;
/// What a program does between two calls.
const STEP_NS: u64 = 50_000;
/// How long it is looked at.
const LONG_NS: u64 = 30 * SLICE_NS;
/// Where the attacker maps what it destroys.
const AREA: u64 = 0x4000_0000;

/// An account, and a domain that it pays for.
fn user(world: &mut World) -> (AccountId, DomainId) {
    let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(1) };
    let Outcome::Answer(0, id) = world.by(1, make) else { panic!("no account") };
    let account = AccountId(id);
    for resource in 0..RESOURCES as u16 {
        let call = Call::AccountLimit { account, resource, limit: 1_000, reserve: 0 };
        assert_eq!(world.by(1, call), OK);
    }
    (account, domain(world, 1, account).expect("a domain"))
}

/// A domain of an account's, with all rights.
fn domain(world: &mut World, by: usize, account: AccountId) -> Option<DomainId> {
    let (which, root) = (Which::Any, Which::Any);
    let make = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, id) = call(world, by, make) else { return None };
    let domain = DomainId(id);
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.state.domains.records[domain.into()].capabilities[usize::from(ROOT)] = root;
    world.map(domain.index(), SCRATCH);
    Some(domain)
}

/// Maps so many pages far from each other, as far as the account may.
fn fill(world: &mut World, domain: DomainId, pages: u64) {
    for page in 0..pages {
        let payer = crate::domain::account(&world.state, domain.into());
        let record = &world.state.published.accounts[payer];
        if record.limit[0] - record.used[Resource::Frames as usize] < 8 {
            return;
        }
        world.map(domain.index(), AREA + (page << 30));
    }
}

/// A processor's way out of the kernel, in time; who runs then.
fn leave(world: &mut World) -> usize {
    loop {
        let (state, machine) = (&mut world.state, &mut world.machine);
        work::begin(state);
        work::first(state, machine, CPU);
        let next = sched::pick(state, machine, CPU);
        let more = work::is_here(state, CPU) && work::step(state, machine, CPU);
        machine.interrupts.clear();
        machine.now += HOLD_NS + u64::from(state.spent);
        let ticket = frame::ticket(state);
        frame::limbo_release(state, machine, ticket);
        work::end(state);
        if let Some(index) = next {
            return index.at();
        }
        let soon =
            sched::next_deadline(&world.state, CPU).is_some_and(|at| at <= world.machine.now);
        assert!(more || soon, "idle beside a neighbour");
    }
}

/// A call of whoever runs, which takes its time.
fn call(world: &mut World, index: usize, call: Call) -> Outcome {
    let outcome = world.by(index, call);
    world.machine.now += HOLD_NS + u64::from(world.state.spent);
    outcome
}

/// What of the processor a neighbour has that makes a call now and then, beside another account's
/// environments which do this whenever they run; in thousandths, of time by its own clock: what it
/// finds between two instructions of its own is no time of its.
fn share(attackers: usize, mut attack: impl FnMut(&mut World, usize, usize)) -> u64 {
    let mut world = World::new();
    let [neighbour, attacker] = [(); 2].map(|()| user(&mut world));
    let victim = process(&mut world, neighbour);
    let crowd: Vec<usize> = (0..attackers).map(|_| process(&mut world, attacker)).collect();
    sleep_for_ever(&mut world, 1);
    let (mut had, mut round) = (0, 0);
    let began = world.machine.now;
    while world.machine.now < began + LONG_NS {
        let runs = leave(&mut world);
        world.machine.now += STEP_NS;
        if runs == victim {
            had += STEP_NS;
            call(&mut world, victim, Call::TimerSet { deadline: 0 });
        } else if crowd.contains(&runs) {
            attack(&mut world, runs, round);
            round += 1;
        }
    }
    world.settle();
    assert!(round > 10, "the attacker runs");
    1_000 * had / (world.machine.now - began)
}

fn beside_one_that_computes() -> u64 {
    share(1, |_, _, _| {})
}

fn no_less_than_beside_one_that_computes(share: u64) {
    let fair = beside_one_that_computes();
    assert!(share * 100 >= fair * 97, "{share} of 1000, {fair} beside one that computes");
}

/// An account that owes a turn pays it also when it begins the next one with work: what the work
/// leaves of its slice is as short as that slice was.
#[test]
fn work_pays_nothing_that_its_account_owes() {
    for (owed, turn_ns) in [(0, 9_900_000..=10_100_000), (SLICE_NS as u32, 0..=300_000)] {
        let mut world = World::new();
        let [neighbour, attacker] = [(); 2].map(|()| user(&mut world));
        let victim = process(&mut world, neighbour);
        process(&mut world, attacker);
        sleep_for_ever(&mut world, 1);
        let account = AccountIndex::from(attacker.0);
        for turn in 0..8 {
            while leave(&mut world) != victim {
                world.machine.now = world.state.sched.cpus[CPU].slice_end_ns;
            }
            world.state.accounts.records[account].turns[CPU].debt_ns = owed;
            // As when a domain is told which account pays for it.
            crate::sweep::look_for_bereaved(&mut world.state, account);
            let begins = world.state.sched.cpus[CPU].slice_end_ns;
            world.machine.now = begins;
            while leave(&mut world) != victim {
                world.machine.now = world.state.sched.cpus[CPU].slice_end_ns;
            }
            let had = world.state.sched.cpus[CPU].since_ns - begins;
            assert!(turn == 0 || turn_ns.contains(&had), "{had} ns for one that owes {owed}");
        }
    }
}

/// Tables and pages, by ten domains that end at once.
#[test]
fn who_destroys_domains_takes_no_time_of_its_neighbours() {
    let share = share(1, |world, attacker, _| {
        if let Some(domain) = domain(world, attacker, AccountId::NONE) {
            fill(world, domain, 60);
            call(world, attacker, Call::DomainDestroy { domain });
        }
    });
    no_less_than_beside_one_that_computes(share);
}

/// A crowd that ends at once, with all who hear of it.
#[test]
fn who_ends_crowds_takes_no_time_of_its_neighbours() {
    let share = share(2, |world, attacker, _| {
        let (which, account, vector) = (Which::Any, AccountId::NONE, Which::Any);
        let Some(domain) = domain(world, attacker, account) else { return };
        for _ in 0..16 {
            let make = Call::EnvAlloc { which, domain, account, vector };
            let Outcome::Answer(0, env) = call(world, attacker, make) else { break };
            let _ = call(world, attacker, Call::EnvRelease { env: EnvId(env as u32) });
        }
        call(world, attacker, Call::DomainDestroy { domain });
        for index in world.state.envs.used() {
            let record = &world.state.published.envs[index];
            if record.holder == world.id(attacker).0 && record.state == EnvState::Dead as u32 {
                let env = EnvId(record.id);
                call(world, attacker, Call::EnvForget { env });
            }
        }
    });
    no_less_than_beside_one_that_computes(share);
}

/// What an account that has ended has left is worked off beside those that compute, and no later
/// than in as many turns as its work has pieces.
#[test]
fn what_the_dead_have_left_has_its_turns() {
    let mut world = World::new();
    let [neighbour, ended] = [(); 2].map(|()| user(&mut world));
    let victim = process(&mut world, neighbour);
    fill(&mut world, ended.1, 40);
    assert_eq!(world.by(1, Call::AccountDestroy { account: ended.0 }), OK);
    sleep_for_ever(&mut world, 1);
    let mut turns = 0;
    while world.state.published.accounts[ended.0.index()].id != 0 {
        assert_eq!(leave(&mut world), victim);
        world.machine.now += SLICE_NS;
        turns += 1;
        assert!(turns < 100, "it does not end");
    }
    // Nothing is left of it in the round.
    assert!(!work::waiting(&world.state));
}

/// One that is destroyed has no time for anything but its end.
#[test]
fn who_is_destroyed_does_not_run_on() {
    let mut world = World::new();
    let [neighbour, ended] = [(); 2].map(|()| user(&mut world));
    let victim = process(&mut world, neighbour);
    let crowd: Vec<usize> = (0..40).map(|_| process(&mut world, ended)).collect();
    assert_eq!(world.by(1, Call::AccountDestroy { account: ended.0 }), OK);
    sleep_for_ever(&mut world, 1);
    while work::waiting(&world.state) {
        assert_eq!(leave(&mut world), victim);
        world.machine.now += SLICE_NS;
    }
    assert!(crowd.iter().all(|&index| world.state_of(index) == EnvState::Dead));
}

/// Who looks for those that its own dead have left behind has no time for others' crowds.
#[test]
fn a_round_ends_nothing_of_others() {
    let mut world = World::new();
    let [neighbour, ended] = [(); 2].map(|()| user(&mut world));
    let crowd: Vec<usize> = (0..12).map(|_| process(&mut world, ended)).collect();
    crate::domain::condemn(&mut world.state, ended.1.into(), EnvId::NONE);
    let own = AccountIndex::from(neighbour.0);
    crate::sweep::begin(&mut world.state, own);
    work::begin(&mut world.state);
    while crate::sweep::work(&mut world.state, &mut world.machine, own) {
        work::begin(&mut world.state);
    }
    assert!(crowd.iter().all(|&index| world.state_of(index) == EnvState::Ready));
    crate::sweep::begin(&mut world.state, ended.0.into());
    world.settle();
    assert!(crowd.iter().all(|&index| world.state_of(index) == EnvState::Dead));
}

/// What the work leaves of a turn is its account's, and no more.
#[test]
fn work_and_environments_share_a_turn() {
    let mut world = World::new();
    let [neighbour, attacker] = [(); 2].map(|()| user(&mut world));
    let victim = process(&mut world, neighbour);
    let other = process(&mut world, attacker);
    sleep_for_ever(&mut world, 1);
    let mut ends = vec![];
    for _ in 0..12 {
        let runs = leave(&mut world);
        let end = world.state.sched.cpus[CPU].slice_end_ns;
        ends.push((runs, end));
        if runs == other {
            let domain = domain(&mut world, other, AccountId::NONE).unwrap();
            fill(&mut world, domain, 60);
            world.state.spent = work::PIECE;
            call(&mut world, other, Call::DomainDestroy { domain });
        }
        world.machine.now = end;
    }
    let of_victim: Vec<u64> =
        ends.iter().filter(|(runs, _)| *runs == victim).map(|&(_, end)| end).collect();
    assert!(of_victim.len() > 4, "{ends:?}");
    for pair in of_victim.windows(2) {
        let round = pair[1] - pair[0];
        assert!(round < 2 * SLICE_NS + SLICE_NS / 20, "{round} ns: {of_victim:?} {ends:?}");
    }
}

/// On time that is borrowed of an account with work left no way out does any of it, so the short
/// ways stay open; as soon as the lender goes on they are shut.
#[test]
fn who_borrows_of_one_with_work_left_goes_the_short_way() {
    let mut world = World::new();
    let [lending, borrowing] = [(); 2].map(|()| user(&mut world));
    let (lender, borrower) = (process(&mut world, lending), process(&mut world, borrowing));
    let setup = EnvSetup { flags: FLAG_BORROW, ..EnvSetup::default() };
    assert_eq!(world.set_by(lender, EnvId::NONE, field::FLAGS, &setup), OK);
    mask(&mut world, borrower);
    let sleep = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };
    assert_eq!(world.by(borrower, sleep), Outcome::Left);
    sleep_for_ever(&mut world, 1);
    assert_eq!(world.pick(0), lender);
    let dying = domain(&mut world, lender, AccountId::NONE).expect("a domain");
    fill(&mut world, dying, 60);
    world.state.spent = work::PIECE;
    call(&mut world, lender, Call::DomainDestroy { domain: dying });
    // Its place in the round.
    crate::left::place(&mut world.state, CPU);
    let account = crate::domain::account(&world.state, lending.1.into());
    assert!(crate::left::waits(&world.state, account) && work::due(&world.state, CPU));
    let env = world.id(borrower);
    assert_eq!(world.by(lender, Call::Post { env, bits: 1 }), OK);
    assert_eq!(world.pick(0), borrower);
    assert_eq!(usize::from(world.state.sched.cpus[CPU].lender), lender);
    assert!(crate::left::waits(&world.state, account), "nothing is left");
    assert!(!work::due(&world.state, CPU) && !work::is_here(&world.state, CPU));
    let again = Call::Sleep { deadline: 0, posted: 2, events: 0, flags: 0 };
    assert_eq!(world.by(borrower, again), Outcome::Left);
    assert_eq!(world.pick(0), lender);
    assert!(work::due(&world.state, CPU), "the lender works off nothing");
}
