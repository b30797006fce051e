//! Long work is done in pieces, and goes on whoever began it.

use crate::index::EnvIndex;

use super::*;
use crate::machine::Flush;
use crate::{revoke, sweep, work};
use abi::call::REVOKE_LATER;
use abi::limits::Resource;

fn an_account(world: &mut World) -> AccountId {
    let call = Call::AccountAlloc { which: Which::Any, parent: AccountId(1) };
    let Outcome::Answer(0, account) = world.by(1, call) else { panic!() };
    let account = AccountId(account);
    for resource in 0..RESOURCES as u16 {
        let call = Call::AccountLimit { account, resource, limit: 100, reserve: 0 };
        assert_eq!(world.by(1, call), OK);
    }
    account
}

fn item(operation: Operation, level: u8, frame: Frame, address: u64, value: u64) -> Item {
    Item { operation: operation as u8, level, more: 0, frame: frame.0, address, value }
}

/// An item for the first domain, by the domain at index `by`, with the root name.
fn update(world: &mut World, by: usize, item: &Item) {
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    world.update((by, own), ROOT, item).unwrap();
}

#[test]
fn a_crowd_dies_in_pieces() {
    let mut world = World::new();
    let before = world.census();
    let domain = world.domain();
    let crowd: Vec<usize> = (0..12).map(|_| world.spawn(domain)).collect();
    let dead = |world: &World| {
        crowd.iter().filter(|&&index| world.state_of(index) == EnvState::Dead).count()
    };
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    let first = dead(&world);
    assert!((1..12).contains(&first), "{first} of 12 die at once");
    assert!(work::waiting(&world.state));
    // None of them comes back meanwhile.
    let last = world.id(crowd[11]);
    assert_eq!(domain::find(&world.state, domain), Err(Error::NoSuchDomain));
    world.settle();
    assert_eq!(dead(&world), 12);
    assert_eq!(world.state.published.envs[last.index()].killer, world.id(1).0);
    for index in crowd {
        let id = world.id(index);
        assert_eq!(world.by(1, Call::EnvForget { env: id }), Outcome::Answer(0, 0));
    }
    assert_eq!(world.census(), before);
}

/// In a hold of the lock that has done something already, an environment ends only if there is room
/// for what that costs.
#[test]
fn environments_end_where_there_is_room() {
    let mut ended = 0;
    for begun in (1..=work::PIECE).step_by(500) {
        let mut world = World::new();
        let domain = world.domain();
        let crowd: Vec<usize> = (0..12).map(|_| world.spawn(domain)).collect();
        world.spent = work::PIECE;
        assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
        let own = env::domain(&world.state, EnvIndex::new(1));
        let account = domain::account(&world.state, own.into());
        world.state.spent = begun;
        work::piece(&mut world.state, &mut world.machine, account);
        // The look at the last one is reckoned when it has ended.
        let most = work::PIECE + work::cost::ENV;
        assert!(world.state.spent <= most, "{} of a hold", world.state.spent);
        let dead = |&&index: &&usize| world.state_of(index) == EnvState::Dead;
        ended += crowd.iter().filter(dead).count();
    }
    assert!(ended > 60, "{ended} have ended");
}

#[test]
fn a_revocation_outlives_its_caller() {
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let domain = world.domain();
    let frame = world.map(domain.index(), SCRATCH + 0x20_0000);
    let revoker = world.spawn(domain);
    world.map(own, 0x60_0000);
    for page in 1..=200 {
        let address = 0x60_0000 + page * PAGE_SIZE;
        update(&mut world, own, &item(Operation::Map, 1, frame, address, 0));
    }
    assert_eq!(world.by(revoker, Call::FrameRevoke { frame, flags: 0 }), Outcome::Again);
    let id = world.id(revoker);
    assert_eq!(world.by(1, Call::EnvDestroy { env: id, word: 0 }), OK);
    assert_ne!(world.state.published.frames[frame.0 as usize].chain, 0, "half-way");
    world.settle();
    assert!(!revoke::under_way(&world.state, frame));
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free), "nobody keeps it");
}

/// An environment that waits for a revocation hears that it is over when the processors have been
/// told, also of the entries that another processor has broken for it.
#[test]
fn a_revocation_that_others_finish_is_told_behind_a_flush() {
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let frame = world.map(own, 0x60_0000);
    for page in 1..=200 {
        let address = 0x60_0000 + page * PAGE_SIZE;
        update(&mut world, own, &item(Operation::Map, 1, frame, address, 0));
    }
    let call = Call::FrameRevoke { frame, flags: 0 };
    assert_eq!(world.by(1, call), Outcome::Again);
    let ticket = frame::ticket(&mut world.state);
    frame::limbo_release(&mut world.state, &mut world.machine, ticket);
    // Another processor does the rest, and stands still.
    let account = domain::account(&world.state, env::domain(&world.state, EnvIndex::new(1)).into());
    work::begin(&mut world.state);
    while revoke::work(&mut world.state, &mut world.machine, account) {
        work::begin(&mut world.state);
    }
    assert!(!revoke::under_way(&world.state, frame));
    let ticket = frame::ticket(&mut world.state);
    world.machine.flushes.clear();
    assert_eq!(world.by(1, call), OK);
    assert_eq!(world.machine.flushes, [Flush::Everything]);
    frame::limbo_release(&mut world.state, &mut world.machine, ticket);
}

/// It hears so, too, when the last entry was no revocation's: its holder gave the frame up, and
/// stands still before it has told the others.
#[test]
fn a_revocation_waits_for_what_holders_gave_up() {
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let (kept, given_up) = (0x60_0000, 0x60_1000);
    let frame = world.map(own, kept);
    update(&mut world, own, &item(Operation::Map, 1, frame, given_up, 0));
    update(&mut world, own, &item(Operation::Unmap, 1, frame, kept, 0));
    // A packet that is still to be sent keeps the frame.
    frame::pin(&mut world.state, frame);
    frame::ticket(&mut world.state);
    update(&mut world, own, &item(Operation::Unmap, 1, frame, given_up, 0));
    let ticket = frame::ticket(&mut world.state);
    world.machine.flushes.clear();
    assert_eq!(world.by(1, Call::FrameRevoke { frame, flags: 0 }), OK);
    assert_eq!(world.machine.flushes, [Flush::Everything]);
    frame::limbo_release(&mut world.state, &mut world.machine, ticket);
    frame::unpin(&mut world.state, frame);
}

/// A frame of the first account's with so many entries in a space of another account's.
fn entered_by_another(world: &mut World, entries: u64) -> (Frame, AccountId, usize) {
    let account = an_account(world);
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, domain) = world.by(1, call) else { panic!() };
    let (domain, own) = (DomainId(domain), env::domain(&world.state, EnvIndex::new(1)).index());
    let frame = world.map(own, 0x60_0000);
    world.map(domain.index(), 0x60_0000);
    for page in 1..=entries {
        let address = 0x60_0000 + page * PAGE_SIZE;
        let entry = item(Operation::Map, 1, frame, address, 0);
        world.update((1, domain.index()), ROOT, &entry).unwrap();
    }
    (frame, account, domain.index())
}

/// Whoever does not wait has a few entries broken, and the rest is the others' work: the revoker's
/// account does none of it, and what it has left goes last.
#[test]
fn those_who_map_a_frame_break_their_entries() {
    let mut world = World::new();
    let (frame, account, domain) = entered_by_another(&mut world, 300);
    let at = crate::index::AccountIndex::from(account);
    let first = crate::account::FIRST;
    let call = Call::FrameRevoke { frame, flags: REVOKE_LATER };
    work::begin(&mut world.state);
    assert_eq!(world.with(1, ROOT, call), Outcome::Answer(0, 1));
    assert!(world.state.spent < work::PIECE / 2, "{} spent", world.state.spent);
    let references = |world: &World| world.state.published.frames[frame.0 as usize].references;
    let left = references(&world);
    assert!(left > 290, "{left} references");
    assert_eq!(world.with(1, ROOT, call), Outcome::Answer(0, 1), "asked again");
    let entry = item(Operation::Map, 1, frame, 0x60_0000, 0);
    assert!(world.update((1, domain), ROOT, &entry).is_err(), "bound anew");

    work::begin(&mut world.state);
    while work::piece(&mut world.state, &mut world.machine, first) {
        work::begin(&mut world.state);
    }
    assert_eq!(references(&world), left, "not in the revoker's time");
    let mut pieces = 0;
    loop {
        work::begin(&mut world.state);
        let more = work::piece(&mut world.state, &mut world.machine, at);
        assert!(world.state.spent <= work::PIECE);
        pieces += 1;
        if !more {
            break;
        }
    }
    assert!(pieces > 2, "{pieces} pieces");
    let own = env::domain(&world.state, EnvIndex::new(1));
    let root = domain::root(&world.state, own.into());
    let leaf = table::look_up(&world.machine, root, 0x60_0000);
    assert_eq!(leaf.map(|leaf| leaf.frame), Some(frame), "the oldest entry goes last");
    assert_eq!(references(&world), 2);
    world.settle();
    assert_eq!(table::look_up(&world.machine, root, 0x60_0000), None);
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
}

/// Whoever destroys without end is done with what others wait for all the same.
#[test]
fn a_storm_of_deaths_holds_no_revocation_up() {
    let mut world = World::new();
    let (frame, account, _) = entered_by_another(&mut world, 40);
    // To look at all of them takes more than one piece.
    let crowd = world.domain();
    for _ in 0..20 {
        world.spawn(crowd);
    }
    let at = crate::index::AccountIndex::from(account);
    let call = Call::FrameRevoke { frame, flags: REVOKE_LATER };
    assert_eq!(world.with(1, ROOT, call), Outcome::Answer(0, 1));
    for _ in 0..200 {
        // As if one had died before each piece, of which there is room for a little.
        sweep::look_for_bereaved(&mut world.state, at);
        work::begin(&mut world.state);
        work::spend(&mut world.state, work::PIECE - 2_000);
        work::piece(&mut world.state, &mut world.machine, at);
    }
    assert!(world.state.published.frames[frame.0 as usize].references <= 2);
}

/// What else holds the frame is broken behind the entries of others and before the last one.
#[test]
fn a_frame_revoked_later_is_held_by_nobody_in_the_end() {
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let frame = world.map(own, 0x60_0000);
    let spare = world.map(own, 0x60_1000);
    world.state.envs.slots[EnvIndex::new(1)].application = frame;
    frame::pin(&mut world.state, frame);
    let call = Call::FrameRevoke { frame, flags: REVOKE_LATER };
    assert_eq!(world.with(1, ROOT, call), Outcome::Answer(0, 1));
    let root = domain::root(&world.state, DomainIndex::new(own));
    assert!(table::look_up(&world.machine, root, 0x60_0000).is_some(), "the sign that it goes on");
    world.settle();
    assert_eq!(world.state.envs.slots[EnvIndex::new(1)].application, Frame(0));
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Free));
    // Nothing holds this one: it is gone at once.
    let call = Call::FrameRevoke { frame: spare, flags: REVOKE_LATER };
    assert_eq!(world.with(1, ROOT, call), OK);
    let bad = Call::FrameRevoke { frame: spare, flags: 2 };
    assert_eq!(world.with(1, ROOT, bad), error(Error::BadArgument, 1));
}

#[test]
fn a_revoked_frame_that_is_held_otherwise_can_be_bound_again() {
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    let frame = world.map(own, 0x60_0000);
    frame::reference(&mut world.state, frame);
    assert_eq!(world.with(1, ROOT, Call::FrameRevoke { frame, flags: 0 }), OK);
    let root = domain::root(&world.state, DomainIndex::new(own));
    assert_eq!(table::look_up(&world.machine, root, 0x60_0000), None);
    update(&mut world, own, &item(Operation::Map, 1, frame, 0x60_0000, 0));
    assert!(table::look_up(&world.machine, root, 0x60_0000).is_some());
    frame::release(&mut world.state, frame);
}

/// What is in it goes with the account; the empty table and its links are paid for until the last
/// who entered it lets go.
#[test]
fn a_shared_table_outlives_its_account_empty() {
    const SHARED: u64 = 0xa0_0000;
    let mut world = World::new();
    let own = env::domain(&world.state, EnvIndex::new(1)).index();
    world.map(own, 0x60_0000);
    let before = world.census();
    let account = an_account(&mut world);
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, sharer) = world.by(1, call) else { panic!() };
    let sharer = DomainId(sharer).index();
    world.map(sharer, SHARED);
    update(&mut world, sharer, &item(Operation::Share, 2, Frame(0), SHARED, SHARED));
    let root = domain::root(&world.state, DomainIndex::new(own));
    assert!(table::look_up(&world.machine, root, SHARED).is_some());
    assert_eq!(world.by(1, Call::AccountDestroy { account }), OK);
    world.settle();
    assert_eq!(table::look_up(&world.machine, root, SHARED), None);
    let record = world.state.published.accounts[account.index()];
    assert_eq!((record.id, record.used[Resource::Frames as usize]), (account.0, 2));
    update(&mut world, own, &item(Operation::Unmap, 2, Frame(0), SHARED, 0));
    world.settle();
    assert_eq!(world.state.published.accounts[account.index()].id, 0, "forgotten");
    assert_eq!(world.census(), before);
}

#[test]
fn nothing_is_swept_when_nothing_is_condemned() {
    let mut world = World::new();
    world.settle();
    assert!(!work::waiting(&world.state));
}

/// An account of which a device is reading a frame.
fn a_pinned_account(world: &mut World) -> (AccountId, Frame) {
    let account = an_account(world);
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, domain) = world.by(1, call) else { panic!() };
    let domain = DomainId(domain);
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.state.domains.records[domain.into()].capabilities[usize::from(ROOT)] = root;
    world.map(domain.index(), SCRATCH);
    world.spawn(domain);
    let frame = world.map(domain.index(), 0x5000_0000);
    frame::pin(&mut world.state, frame);
    (account, frame)
}

/// It waits for the last who holds something of it, and nobody pays for that meanwhile.
#[test]
fn an_account_that_cannot_end_costs_nothing() {
    let mut world = World::new();
    let (account, frame) = a_pinned_account(&mut world);
    assert!(!work::waiting(&world.state));
    assert_eq!(world.by(1, Call::AccountDestroy { account }), OK);
    world.settle();
    let record = |world: &World| world.state.published.accounts[account.index()];
    assert_eq!(record(&world).used[Resource::Frames as usize], 1, "the page that is read");
    assert!(!work::waiting(&world.state), "nothing can be done");
    let at = crate::index::AccountIndex::from(account);
    assert!(!world.state.accounts.records[at].left.lighter, "nor looked at, until it is lighter");
    // The last pin wakes it.
    frame::unpin(&mut world.state, frame);
    world.settle();
    assert_eq!(record(&world).id, 0, "it has ended");
    assert_eq!(world.state.accounts.dying, 0);
}

/// Accounts end from below whatever their order, and the one above hears of it.
#[test]
fn accounts_end_from_below() {
    let mut world = World::new();
    let above = an_account(&mut world);
    let make = Call::AccountAlloc { which: Which::Any, parent: above };
    let Outcome::Answer(0, below) = world.by(1, make) else { panic!() };
    assert_eq!(world.by(1, Call::AccountDestroy { account: above }), OK);
    world.settle();
    world.settle();
    for account in [above, AccountId(below)] {
        assert_eq!(world.state.published.accounts[account.index()].id, 0);
    }
    assert!(!work::waiting(&world.state));
}

/// A storm of deaths begins the look for those left behind again and again; all are found.
#[test]
fn a_storm_of_deaths_holds_nobody_up() {
    let mut world = World::new();
    let domain = world.domain();
    let parent = world.spawn(domain);
    let children: Vec<usize> = (0..30).map(|_| world.spawn_by(parent, domain)).collect();
    let call = Call::EnvDestroy { env: world.id(parent), word: 0 };
    assert_eq!(world.by(1, call), OK);
    let orphans = |world: &World| {
        children.iter().filter(|&&child| world.state.published.envs[child].holder == 0).count()
    };
    for _ in 0..200 {
        // As if another one had died before each piece, of which there is room for a little.
        sweep::look_for_bereaved(&mut world.state, crate::account::FIRST);
        work::begin(&mut world.state);
        work::spend(&mut world.state, work::PIECE - 2_000);
        sweep::work(&mut world.state, &mut world.machine, crate::account::FIRST);
    }
    assert_eq!(orphans(&world), children.len());
}

/// What a domain has made that nobody attached to ends with it, wherever in the table it is.
#[test]
fn unused_regions_end_with_their_maker_wherever_they_are() {
    let mut world = World::of(if cfg!(miri) { 512 } else { 1 << 17 });
    let (domain, keeper) = (world.domain(), world.domain());
    let (maker, other) = (world.spawn(domain), world.spawn(keeper));
    // Nobody looks at everything between two of them.
    let some = world.state.published.regions.len() - 1;
    for at in 1..=some {
        let by = if at == some { maker } else { other };
        let (state, machine) = (&mut world.state, &mut world.machine);
        crate::region::allocate(state, machine, EnvIndex::new(by), ROOT, 0, &[]).unwrap();
    }
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    world.settle();
    assert_eq!(world.state.published.domains[domain.index()].id, 0, "it has ended");
    let left = world.state.published.regions.iter().filter(|region| region.id != 0).count();
    assert_eq!(left, some - 1, "its region has ended with it");
    assert!(!work::waiting(&world.state));
}
