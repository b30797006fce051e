//! Quotas: what an account may have, its parents may have too.

use super::*;
use crate::account;
use abi::limits::Resource;

const ALL_RESOURCES: [Resource; RESOURCES] = [
    Resource::Frames,
    Resource::Envs,
    Resource::Domains,
    Resource::Slices,
    Resource::Regions,
    Resource::Filters,
    Resource::Rings,
    Resource::Pins,
];

/// An account below `parent` that may have so much of each resource.
fn below(world: &mut World, parent: AccountId, limit: u32) -> AccountId {
    let call = Call::AccountAlloc { which: Which::Any, parent };
    let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no account") };
    let account = AccountId(id);
    for resource in 0..RESOURCES as u16 {
        assert_eq!(world.by(1, Call::AccountLimit { account, resource, limit }), OK);
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
    for resource in ALL_RESOURCES {
        let over = Err(crate::answer::Refusal::new(Error::OverQuota, resource as u64));
        let first = used(&world, AccountId(1), resource);
        let mut charge =
            |account: AccountId, n| account::charge(&mut world.state, account.index(), resource, n);
        assert_eq!(charge(child, 11), over, "{resource:?}");
        assert_eq!(charge(child, 7), Ok(()));
        assert_eq!(charge(sibling, 4), over, "{resource:?}: between two of them");
        assert_eq!(charge(sibling, 3), Ok(()));
        assert_eq!(charge(parent, 1), over);
        for (account, count) in [(parent, 10), (child, 7), (sibling, 3), (AccountId(1), first + 10)]
        {
            assert_eq!(used(&world, account, resource), count, "{resource:?} of {account:?}");
        }
        account::uncharge(&mut world.state, child.index(), resource, 7);
        assert_eq!(account::charge(&mut world.state, sibling.index(), resource, 7), Ok(()));
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
    let capability = world.state.domains.records[domain].capabilities[0];
    let mut allocate = |page: u64| {
        let item = Item {
            operation: Operation::Allocate as u8,
            level: 1,
            more: 0,
            frame: ANY_FRAME,
            address: SCRATCH + page * PAGE_SIZE,
            value: 0,
        };
        let (state, machine) = (&mut world.state, &mut world.machine);
        table::update_item(state, machine, domain, domain, &capability, &item, 0).1
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
            let call = Call::AccountLimit { account, resource: 0, limit: 1 };
            assert_eq!(world.by(1, call), error(Error::NoSuchAccount, 0));
        }
        world.by(1, Call::AccountDestroy { account });
        world.settle();
        stale.push(account);
        assert_eq!(stale[0].index(), account.index(), "the index is used again");
    }
}

/// An account ends, and another one gets its index: what it had is not for that one, as often as
/// that may happen.
#[test]
fn frames_of_a_dead_account_are_clear() {
    let mut world = World::new();
    for life in 0..if cfg!(miri) { 3 } else { 600 } {
        let account = below(&mut world, AccountId(1), 100);
        assert_eq!(account.index(), 2, "the same index again");
        let (which, root) = (Which::Any, Which::Any);
        let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
        let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no domain") };
        for page in 0..4 {
            let frame = world.map(DomainId(id).index(), SAVE + page * PAGE_SIZE);
            let word = world.machine.word(frame.address());
            assert_eq!(word, 0, "what the account before it had, in life {life}");
            world.machine.word_set(frame.address(), 0x5ec7e7);
        }
        assert_eq!(world.by(1, Call::AccountDestroy { account }), OK);
        world.settle();
    }
}

/// One item for a domain's own table, by its fresh name.
fn item(world: &mut World, domain: usize, item: Item) {
    let name = world.state.domains.records[domain].capabilities[0];
    let (state, machine) = (&mut world.state, &mut world.machine);
    let (_, answer) = table::update_item(state, machine, domain, domain, &name, &item, 0);
    assert!(answer.is_ok(), "{item:x?}: {answer:?}");
}

/// Another account's page becomes a table's links, of which the kernel writes only some, and then
/// a page.
#[test]
fn links_do_not_pass_on_what_was_there() {
    let mut world = World::new();
    let domain = |world: &mut World| {
        let account = below(world, AccountId(1), 100);
        let (which, root) = (Which::Any, Which::Any);
        let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
        let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no domain") };
        DomainId(id)
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
