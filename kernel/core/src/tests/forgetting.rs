//! How often an account has all processors forget their translations.

use super::turns::{process, user};
use super::*;
use abi::limits::{FORGET_NS, FORGETS_AT_ONCE};

/// Calls by the environment, one after the other, until one begins anew; 0: none does.
fn calls(world: &mut World, by: usize, call: &dyn Fn(&mut World, usize) -> Outcome) -> u64 {
    (1..=2 * FORGETS_AT_ONCE).find(|_| call(world, by) == Outcome::Again).unwrap_or(0)
}

/// Shows another page of an environment that is not yet released.
fn shows(new: EnvId) -> impl Fn(&mut World, usize) -> Outcome {
    move |world, by| {
        let save = SAVE + new.index() as u64 * PAGE_SIZE;
        let setup = EnvSetup { application_page: save + 0x10_0000, ..EnvSetup::default() };
        world.set_by(by, new, field::APPLICATION_PAGE, &setup)
    }
}

/// Where there are several processors an account has so many calls at once, and one each
/// `FORGET_NS`; other accounts have theirs.
#[test]
fn an_account_interrupts_all_processors_at_a_pace() {
    let mut world = World::of(8192);
    let [one, other] = [(); 2].map(|()| user(&mut world));
    let [first, second] = [one, other].map(|of| process(&mut world, of));
    let [shown, elsewhere] = [(one, first), (other, second)].map(|((_, domain), by)| {
        let index = world.spawn_for(by, domain, AccountId::NONE);
        world.id(index)
    });
    let passes = |world: &mut World, length| {
        world.machine.now += length;
        world.pick(0);
    };
    passes(&mut world, 1_000_000_000);
    assert_eq!(calls(&mut world, first, &shows(shown)), FORGETS_AT_ONCE + 2);
    assert_eq!(calls(&mut world, second, &shows(elsewhere)), FORGETS_AT_ONCE + 2);
    for passed in 1..4 {
        passes(&mut world, passed * FORGET_NS);
        assert_eq!(calls(&mut world, first, &shows(shown)), passed + 1);
    }
    // What does not have them forget is not counted.
    let setup = EnvSetup::default();
    let rest = |world: &mut World, by| world.set_by(by, shown, field::RIP, &setup);
    assert_eq!(calls(&mut world, first, &rest), 0);
    for call in [
        Call::FrameRevoke { frame: Frame(1), flags: 0 },
        Call::EnvMove { domain: DomainId::NONE, fields: 0, setup: UserAddress(SCRATCH) },
    ] {
        assert_eq!(calls(&mut world, first, &|world, by| world.by(by, call)), 1, "{call:?}");
    }
    // The end of an environment is not put off, but counted.
    let account = crate::turns::account_of(&world.state, shown.into());
    let due = |world: &World| world.state.accounts.records[account].forgets_ns;
    let before = due(&world).max(world.state.sched.picked_ns);
    assert_eq!(world.by(first, Call::EnvDestroy { env: shown, word: 0 }), OK);
    assert_eq!(due(&world), before + FORGET_NS);
    let index = world.spawn_for(first, one.1, AccountId::NONE);
    let shown = world.id(index);
    world.state.sched.online = 1;
    assert_eq!(calls(&mut world, first, &shows(shown)), 0, "on one processor");
}
