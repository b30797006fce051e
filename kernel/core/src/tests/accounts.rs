//! Quotas: what an account may have, its parents may have too.

use crate::index::{AccountIndex, EnvIndex};

use super::*;
use crate::account::{self, DEPTH};
use crate::work;
use abi::domain::Property;
use abi::limits::Resource;

/// All but accounts, of which a family has some.
const RESOURCES_TRIED: [Resource; RESOURCES - 1] = [
    Resource::Frames,
    Resource::Envs,
    Resource::Domains,
    Resource::Slices,
    Resource::Regions,
    Resource::Filters,
    Resource::Rings,
    Resource::Pins,
    Resource::Attachments,
    Resource::Folds,
    Resource::Code,
    Resource::Sends,
    Resource::Retractions,
    Resource::Cells,
];

/// An account below `parent` that may have so much of each resource.
fn below(world: &mut World, parent: AccountId, limit: u32) -> AccountId {
    let call = Call::AccountAlloc { which: Which::Any, parent };
    let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no account") };
    let account = AccountId(id);
    for resource in 0..RESOURCES as u16 {
        assert_eq!(world.by(1, Call::AccountLimit { account, resource, limit, reserve: 0 }), OK);
    }
    account
}

/// A grandchild that may have more than its parent, and a sibling beside it.
fn family(world: &mut World) -> [AccountId; 3] {
    let parent = below(world, AccountId(1), 10);
    [parent, below(world, parent, 100), below(world, parent, 100)]
}

#[test]
fn charge_a_child_beyond_its_parents_limit() {
    let mut world = World::new();
    let [parent, child, sibling] = family(&mut world);
    let used = |world: &World, account: AccountId, resource: Resource| {
        world.state.published.accounts[account.index()].used[resource as usize]
    };
    for resource in RESOURCES_TRIED {
        let over = Err(crate::answer::Refusal::new(Error::OverQuota, resource as u64));
        let first = used(&world, AccountId(1), resource);
        let mut charge =
            |account: AccountId, n| account::charge(&mut world.state, account.into(), resource, n);
        assert_eq!(charge(child, 11), over, "{resource:?}");
        assert_eq!(charge(child, 7), Ok(()));
        assert_eq!(charge(sibling, 4), over, "{resource:?}: between two of them");
        assert_eq!(charge(sibling, 3), Ok(()));
        assert_eq!(charge(parent, 1), over);
        for (account, count) in [(parent, 10), (child, 7), (sibling, 3), (AccountId(1), first + 10)]
        {
            assert_eq!(used(&world, account, resource), count, "{resource:?} of {account:?}");
        }
        account::uncharge(&mut world.state, child.into(), resource, 7);
        assert_eq!(account::charge(&mut world.state, sibling.into(), resource, 7), Ok(()));
    }
}

#[test]
fn map_frames_beyond_a_parents_limit() {
    let mut world = World::new();
    let [parent, child, _] = family(&mut world);
    let (root, window) = (Which::Any, 0);
    let call =
        Call::DomainAlloc { which: Which::Any, account: child, root, window, bytes: u64::MAX };
    let Outcome::Answer(0, domain) = world.by(1, call) else { panic!("no domain") };
    let domain = DomainId(domain).index();
    world.map(domain, SCRATCH);
    // Root, three tables, the links of the lowest, and a page.
    let mut allocate = |page: u64| {
        let item = Item {
            operation: Operation::Allocate as u8,
            level: 1,
            more: 0,
            frame: ANY_FRAME,
            address: SCRATCH + page * PAGE_SIZE,
            value: 0,
        };
        world.update((domain, domain), 0, &item)
    };
    let refusal = (1..100).find_map(|page| allocate(page).err().map(|refusal| (page, refusal)));
    let over = crate::answer::Refusal::new(Error::OverQuota, Resource::Frames as u64);
    assert_eq!(refusal, Some((5, over)));
    let record = &world.state.published.accounts[parent.index()];
    assert_eq!(record.used[0], record.limit[0]);
}

#[test]
fn use_an_ended_accounts_id() {
    let mut world = World::new();
    let mut stale = vec![];
    for _ in 0..4 {
        let account = below(&mut world, AccountId(1), 5);
        assert!(!stale.contains(&account), "{account:?} for the second time");
        for &account in &stale {
            let call = Call::AccountLimit { account, resource: 0, limit: 1, reserve: 0 };
            assert_eq!(world.by(1, call), error(Error::NoSuchAccount, 0));
        }
        world.by(1, Call::AccountDestroy { account });
        world.settle();
        stale.push(account);
        assert_eq!(stale[0].index(), account.index(), "the index is used again");
    }
}

/// A domain that this account pays for.
pub(super) fn domain_for(world: &mut World, account: AccountId) -> DomainId {
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no domain") };
    DomainId(id)
}

/// An account ends, and another one gets its index: what it had is not for that one, as often as
/// that may happen.
#[test]
fn frames_of_a_dead_account_are_clear() {
    let mut world = World::new();
    for life in 0..if cfg!(miri) { 3 } else { 600 } {
        let account = below(&mut world, AccountId(1), 100);
        assert_eq!(account.index(), 2, "the same index again");
        let domain = domain_for(&mut world, account);
        for page in 0..4 {
            let frame = world.map(domain.index(), SAVE + page * PAGE_SIZE);
            let word = world.machine.word(frame.address());
            assert_eq!(word, 0, "what the account before it had, in life {life}");
            world.machine.word_set(frame.address(), 0x5ec7e7);
        }
        assert_eq!(world.by(1, Call::AccountDestroy { account }), OK);
        world.settle();
    }
}

/// What a domain has asked to keep secret is read by no other one of its account; what it has not
/// asked for stays as it is, which costs less.
#[test]
fn frames_of_a_secret_domain_are_clear_for_its_own_account() {
    for secret in [0, 1] {
        let mut world = World::new();
        let account = below(&mut world, AccountId(1), 100);
        let [victim, heir] = [(); 2].map(|()| domain_for(&mut world, account));
        let property = Property::Secret as u16;
        let set = |value| Call::DomainSet { domain: victim, property, value };
        assert_eq!(world.by(1, set(2)), error(Error::BadArgument, 2));
        assert_eq!(world.by(1, set(secret)), OK);
        let frames: Vec<Frame> =
            (0..4).map(|page| world.map(victim.index(), SAVE + page * PAGE_SIZE)).collect();
        for frame in &frames {
            world.machine.word_set(frame.address(), 0x5ec7e7);
        }
        assert_eq!(world.by(1, Call::DomainDestroy { domain: victim }), OK);
        world.settle();
        let found: Vec<Frame> =
            (0..16).map(|page| world.map(heir.index(), SAVE + page * PAGE_SIZE)).collect();
        let again: Vec<_> = found.iter().filter(|frame| frames.contains(frame)).collect();
        let told = again.iter().filter(|frame| world.machine.word(frame.address()) != 0).count();
        assert!(!again.is_empty(), "they are the account's again");
        assert_eq!(told == 0, secret == 1, "{told} of {} tell", again.len());
    }
}

/// What is left in a table of a domain that has ended, payloads of entries that are not present and
/// entries of the boot image, is read by no other one of its account.
#[test]
fn tables_of_a_dead_domain_are_clear() {
    let mut world = World::new();
    let account = below(&mut world, AccountId(1), 100);
    let [victim, heir] = [(); 2].map(|()| domain_for(&mut world, account));
    world.map(victim.index(), SAVE);
    let unmap = Operation::Unmap as u8;
    let value = 0x5ec7e700;
    let payload = Item { operation: unmap, level: 1, address: SAVE, value, ..Item::default() };
    item(&mut world, victim.index(), payload);
    assert_eq!(world.by(1, Call::DomainDestroy { domain: victim }), OK);
    world.settle();
    for page in 0..16 {
        let frame = world.map(heir.index(), SAVE + page * PAGE_SIZE);
        let mut words = (0..PAGE_SIZE / 8).map(|at| world.machine.word(frame.address() + 8 * at));
        assert!(words.all(|word| word == 0), "in page {page}");
    }
}

/// One item for a domain's own table, by its fresh name.
fn item(world: &mut World, domain: usize, item: Item) {
    let answer = world.update((domain, domain), 0, &item);
    assert!(answer.is_ok(), "{item:x?}: {answer:?}");
}

/// Another account's page becomes a table's links, of which the kernel writes only some, and then
/// a page.
#[test]
fn links_do_not_pass_on_what_was_there() {
    let mut world = World::new();
    let domain = |world: &mut World| {
        let account = below(world, AccountId(1), 100);
        domain_for(world, account)
    };
    let (victim, attacker) = (domain(&mut world), domain(&mut world));
    world.map(attacker.index(), SAVE);
    let frame = world.map(victim.index(), SAVE);
    for word in 0..PAGE_SIZE / 8 {
        world.machine.word_set(frame.address() + 8 * word, 0x5ec7e7);
    }
    assert_eq!(world.by(1, Call::DomainDestroy { domain: victim }), OK);
    world.settle();
    let (level, more, address) = (2, 0, SAVE + (2 << 20));
    let any = Item { operation: 0, level, more, frame: ANY_FRAME, address, value: 0 };
    let operation = Operation::Table as u8;
    item(&mut world, attacker.index(), Item { operation, value: frame.0.into(), ..any });
    item(&mut world, attacker.index(), Item { operation: Operation::Unmap as u8, ..any });
    world.settle();
    let (operation, address) = (Operation::Allocate as u8, SAVE + PAGE_SIZE);
    let value = WRITABLE | NO_EXECUTE;
    let page = Item { operation, level: 1, frame: frame.0, address, value, ..any };
    item(&mut world, attacker.index(), page);
    for word in 0..PAGE_SIZE / 8 {
        assert_eq!(world.machine.word(frame.address() + 8 * word), 0, "word {word}");
    }
}

fn set(world: &mut World, account: AccountId, limit: u32, reserve: u32) -> Outcome {
    let resource = Resource::Frames as u16;
    world.by(1, Call::AccountLimit { account, resource, limit, reserve })
}

/// A machine with so many frames more than are in use.
fn rest(world: &mut World, more: u32) {
    let used = world.state.published.accounts[1].used[Resource::Frames as usize];
    assert_eq!(set(world, AccountId(1), used + more, 0), OK);
}

/// What is kept for one of two is the other one's never, and its own always.
#[test]
fn what_is_kept_is_nobody_elses() {
    let mut world = World::new();
    let [kept, other, beside] = [(); 3].map(|()| below(&mut world, AccountId(1), 0));
    let above = below(&mut world, AccountId(1), 100);
    let deep = below(&mut world, above, 0);
    rest(&mut world, 30);
    for account in [other, beside] {
        assert_eq!(set(&mut world, account, 100, 0), OK);
    }
    assert_eq!(set(&mut world, kept, 100, 10), OK);
    assert_eq!(set(&mut world, deep, 100, 5), OK);
    let over = Err(crate::answer::Refusal::new(Error::OverQuota, 0));
    let charge = |world: &mut World, id: AccountId, n| {
        account::charge(&mut world.state, id.into(), Resource::Frames, n)
    };
    let uncharge = |world: &mut World, id: AccountId, n| {
        account::uncharge(&mut world.state, id.into(), Resource::Frames, n);
    };
    assert_eq!(charge(&mut world, other, 16), over, "15 are kept of 30");
    assert_eq!(charge(&mut world, other, 15), Ok(()));
    assert_eq!(charge(&mut world, beside, 1), over);
    assert_eq!(charge(&mut world, kept, 11), over, "one more than is kept");
    assert_eq!(charge(&mut world, kept, 4), Ok(()));
    assert_eq!(charge(&mut world, kept, 6), Ok(()));
    assert_eq!(charge(&mut world, above, 1), over, "what is kept is for the one below");
    assert_eq!(charge(&mut world, deep, 5), Ok(()));
    uncharge(&mut world, kept, 10);
    assert_eq!(charge(&mut world, beside, 1), over, "it is kept again");
    uncharge(&mut world, other, 3);
    assert_eq!(charge(&mut world, kept, 12), Ok(()), "beyond what is kept");
    uncharge(&mut world, kept, 3);
    assert_eq!(charge(&mut world, beside, 4), over);
    assert_eq!(charge(&mut world, beside, 3), Ok(()));
    for (id, count) in [(kept, 9), (beside, 3), (other, 12), (deep, 5)] {
        uncharge(&mut world, id, count);
    }
}

#[test]
fn nothing_is_kept_that_is_not_there() {
    let mut world = World::new();
    let [kept, other] = [(); 2].map(|()| below(&mut world, AccountId(1), 0));
    rest(&mut world, 20);
    let before = world.state.published.accounts[1].used;
    assert_eq!(set(&mut world, kept, 10, 11), error(Error::BadArgument, 3), "beyond its limit");
    assert_eq!(set(&mut world, AccountId(1), 100, 1), error(Error::BadArgument, 3));
    assert_eq!(set(&mut world, kept, 100, 21), error(Error::OverQuota, 0));
    assert_eq!(world.state.published.accounts[kept.index()].limit[0], 0, "all or nothing");
    assert_eq!(world.state.published.accounts[1].used, before);
    assert_eq!(set(&mut world, kept, 100, 20), OK);
    assert_eq!(set(&mut world, other, 100, 1), error(Error::OverQuota, 0));
    assert_eq!(set(&mut world, kept, 100, 19), OK);
    assert_eq!(set(&mut world, other, 100, 1), OK);
    // What has been taken counts once.
    assert_eq!(account::charge(&mut world.state, kept.into(), Resource::Frames, 7), Ok(()));
    assert_eq!(set(&mut world, kept, 100, 5), OK);
    assert_eq!(set(&mut world, other, 100, 14), error(Error::OverQuota, 0));
    assert_eq!(set(&mut world, other, 100, 13), OK);
    account::uncharge(&mut world.state, kept.into(), Resource::Frames, 7);
    for account in [kept, other] {
        world.by(1, Call::AccountDestroy { account });
    }
    world.settle();
    let used = world.state.published.accounts[1].used;
    assert_eq!(used[0], before[0], "what was kept for the dead");
    assert_eq!(used[Resource::Accounts as usize], 0);
}

/// The first account has what the machine has, whatever it is allowed.
#[test]
fn the_machine_is_all_there_is() {
    let mut world = World::new();
    let all = world.state.published.accounts[1].limit;
    assert_eq!(u64::from(all[0]), world.state.published.directory.frames_usable);
    for resource in 0..RESOURCES as u16 {
        for limit in [1, u32::MAX] {
            let account = AccountId(1);
            let call = Call::AccountLimit { account, resource, limit, reserve: 0 };
            assert_eq!(world.by(1, call), OK);
        }
    }
    assert_eq!(world.state.published.accounts[1].limit, all);
    let rest = all[0] - world.state.published.accounts[1].used[0];
    let exhausted = Err(Error::Exhausted.into());
    assert_eq!(account::check(&world.state, 1.into(), Resource::Frames, rest), Ok(()));
    assert_eq!(account::check(&world.state, 1.into(), Resource::Frames, rest + 1), exhausted);
}

/// A dead environment's place is paid for as long as its record is held.
#[test]
fn the_dead_are_paid_for_until_they_are_forgotten() {
    let mut world = World::new();
    let used = |world: &World| world.state.published.accounts[1].used[Resource::Envs as usize];
    let before = used(&world);
    let domain = env::domain(&world.state, EnvIndex::new(1));
    let index = world.spawn(domain);
    let env = env::id(&world.state, EnvIndex::new(index));
    assert_eq!(world.by(1, Call::EnvDestroy { env, word: 3 }), OK);
    world.settle();
    assert_eq!(used(&world), before + 1);
    assert_eq!(world.by(1, Call::EnvForget { env }), Outcome::Answer(0, 3));
    assert_eq!(used(&world), before);
}

/// Of accounts themselves, too.
#[test]
fn accounts_are_paid_for_by_the_one_above() {
    let mut world = World::new();
    let parent = below(&mut world, AccountId(1), 2);
    let make = Call::AccountAlloc { which: Which::Any, parent };
    let children = [(); 2].map(|()| world.by(1, make));
    assert!(children.iter().all(|child| matches!(child, Outcome::Answer(0, _))));
    assert_eq!(world.by(1, make), error(Error::OverQuota, Resource::Accounts as u64));
    let Outcome::Answer(0, id) = children[0] else { unreachable!() };
    assert_eq!(world.by(1, Call::AccountDestroy { account: AccountId(id) }), OK);
    world.settle();
    assert!(matches!(world.by(1, make), Outcome::Answer(0, _)));
}

/// A page of an account far below the first costs more, and is reckoned so: fewer fit in a hold.
#[test]
fn charges_of_deep_accounts_are_reckoned() {
    let mut world = World::new();
    let mut accounts = vec![AccountId(1)];
    for _ in 1..DEPTH {
        let above = accounts[accounts.len() - 1];
        accounts.push(below(&mut world, above, 50));
    }
    for (depth, &account) in accounts.iter().enumerate() {
        let index = AccountIndex::from(account);
        let spent = |world: &mut World, act: &dyn Fn(&mut State)| {
            work::begin(&mut world.state);
            act(&mut world.state);
            world.state.spent
        };
        let charges = spent(&mut world, &|state| {
            account::charge(state, index, Resource::Frames, 1).expect("there is room");
        });
        let back = spent(&mut world, &|state| account::uncharge(state, index, Resource::Frames, 1));
        assert_eq!([charges, back], [depth as u32 * account::LEVEL_COST; 2], "depth {depth}");
    }
}
