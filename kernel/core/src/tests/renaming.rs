//! A domain that takes another name of its own, or another payer, and what its builder keeps.

use super::principals::{ALICE, process};
use super::*;
use abi::capability::{Name, WRITE};
use abi::domain::Property;
use abi::memory::PRESENT;
use abi::region::AS_DOMAIN;

const AT: u64 = SCRATCH + 0x10_0000;

fn rename(value: u64) -> Call {
    let property = Property::OwnName as u16;
    Call::DomainSet { domain: DomainId::NONE, property, value }
}

fn frames_of(world: &World, account: AccountId) -> u32 {
    let used = world.state.published.accounts[account.index()].used;
    used[abi::limits::Resource::Frames as usize]
}

fn own_name(world: &World, domain: DomainId) -> Name {
    world.state.domains.records[domain.into()].capabilities[0].name
}

/// Maps the frame with this number into the domain, writable, by its own name.
fn map(world: &mut World, domain: DomainId, frame: Frame) -> Option<Error> {
    let operation = Operation::Map as u8;
    let value = WRITABLE | NO_EXECUTE;
    let item = Item { operation, level: 1, frame: frame.0, address: AT, value, ..Item::default() };
    let index = domain.index();
    world.update((index, index), 0, &item).err().map(|refusal| refusal.error)
}

/// A domain that the one at `index` builds, guarded by a name that this one may not write by, with
/// a page in it.
fn built(world: &mut World, index: usize) -> (DomainId, Frame) {
    let (which, root, account) = (Which::Any, Which::Any, AccountId::NONE);
    let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, id) = world.with(index, super::principals::USER, call) else {
        panic!("no domain");
    };
    let (own, domain) = (env::domain(&world.state, EnvIndex::new(index)), DomainId(id));
    (domain, world.map_by((own.index(), domain.index()), AT))
}

#[test]
fn a_builder_has_no_way_to_the_frames_that_it_entered() {
    let mut world = World::new();
    let (parent, own) = process(&mut world, ALICE);
    world.map(own.index(), AT);
    let (domain, frame) = built(&mut world, parent);
    assert_eq!(*frame::guard(&world.state, frame), own_name(&world, domain));
    assert_eq!(map(&mut world, own, frame), Some(Error::NotPermitted));
    let revoke = Call::FrameRevoke { frame, flags: 0 };
    assert_eq!(world.with(parent, 0, revoke), error(Error::NotPermitted, 0));
    // Who may write the domain later, too, goes on by its own name.
    let guard = own_name(&world, own);
    world.state.domains.records[domain.into()].guard = guard;
    let operation = Operation::Allocate as u8;
    let item = Item { operation, level: 1, frame: ANY_FRAME, address: AT, ..Item::default() };
    world.update((own.index(), domain.index()), 0, &item).unwrap();
    let root = domain::root(&world.state, domain.into());
    let frame = table::look_up(&world.machine, root, AT).unwrap().frame;
    assert_eq!(*frame::guard(&world.state, frame), guard);
}

#[test]
fn a_domain_with_another_name_has_what_it_maps_and_nothing_more_by_the_former_one() {
    let mut world = World::new();
    let (index, domain) = process(&mut world, ALICE);
    let frame = world.map(domain.index(), AT);
    let others = world.map(domain.index(), AT + PAGE_SIZE);
    let unmap = Item {
        operation: Operation::Unmap as u8,
        level: 1,
        frame: ANY_FRAME,
        address: AT + PAGE_SIZE,
        ..Item::default()
    };
    frame::reference(&mut world.state, others);
    world.update((domain.index(), domain.index()), 0, &unmap).unwrap();
    let former = own_name(&world, domain);
    assert_eq!(world.by(index, rename(1)), error(Error::BadArgument, 2));
    assert_eq!(own_name(&world, domain), former, "nothing has changed");
    let before = world.state.published.domains[DomainIndex::from(domain)].holdings;
    assert_eq!(world.by(index, rename(0)), OK);
    let now = own_name(&world, domain);
    assert!(now != former && now.components[0] == abi::capability::NAME_FRESH);
    assert_ne!(world.state.published.domains[DomainIndex::from(domain)].holdings, before);
    assert_eq!(*frame::guard(&world.state, domain::root(&world.state, domain.into())), now);
    assert_eq!(map(&mut world, domain, others), Some(Error::NotPermitted));
    let revoke = Call::FrameRevoke { frame: others, flags: 0 };
    assert_eq!(world.with(index, 0, revoke), error(Error::NotPermitted, 0));
    // What it maps it still writes, and may take back when it has been shared.
    let root = domain::root(&world.state, domain.into());
    let leaf = table::look_up(&world.machine, root, AT).unwrap();
    assert!(leaf.frame == frame && leaf.writable);
    for value in [NO_EXECUTE, WRITABLE | NO_EXECUTE] {
        let operation = Operation::Protect as u8;
        let item = Item { operation, level: 1, frame: ANY_FRAME, address: AT, value, more: 0 };
        let old = world.update((domain.index(), domain.index()), 0, &item).unwrap();
        assert_ne!(old & PRESENT, 0);
    }
    assert_eq!(*frame::guard(&world.state, frame), now, "it is its own again");
    frame::release(&mut world.state, others);
    check(&world.state);
}

#[test]
fn what_was_made_by_the_former_name_is_not_entered_by_the_new_one() {
    let mut world = World::new();
    let (index, domain) = process(&mut world, ALICE);
    let region = |world: &mut World| {
        let call = Call::RegionAlloc { frames: UserAddress(SCRATCH), count: 0 };
        let Outcome::Answer(0, id) = world.with(index, super::principals::USER, call) else {
            panic!("no region");
        };
        RegionId(id)
    };
    let attach = |region, role| Call::RegionAttach { region, role, domain: DomainId::NONE };
    let (closed, kept) = (region(&mut world), region(&mut world));
    for one in [closed, kept] {
        assert_eq!(world.with(index, 0, attach(one, 0)), OK);
    }
    // Somebody else has it when its maker closes it.
    let (other, by) = (world.domain(), attach(closed, 0));
    let other = world.spawn(other);
    assert_eq!(world.with(other, ROOT, by), OK);
    assert_eq!(world.by(index, Call::RegionDetach { region: closed, role: 0 }), OK);
    // An environment made by its name, as those of children are.
    let child = world.domain();
    let child = world.spawn(child);
    let guard = own_name(&world, domain);
    world.state.envs.slots[EnvIndex::new(child)].guard = guard;
    let post = Call::Post { env: world.id(child), bits: 1 };
    assert_eq!(world.with(index, 0, post), OK);
    assert_eq!(world.by(index, rename(0)), OK);
    for role in 0..4 {
        let answer = world.with(index, 0, attach(closed, role));
        assert_eq!(answer, error(Error::NotPermitted, 0), "role {role}");
    }
    assert_eq!(world.with(index, 0, attach(kept, 0)), OK, "attached to it all the time");
    assert_eq!(world.with(index, 0, post), error(Error::NotPermitted, 0));
    let new = region(&mut world);
    assert_eq!(world.with(index, 0, attach(new, 1)), OK, "made by the new name");
    assert!(!world.state.domains.records[domain.into()].capabilities[0].dominates(&guard, WRITE));
}

/// Who holds the name of the maker's user looks at what the maker makes, but not at a region that
/// is guarded as the maker's domain is; the maker itself need not hold that name.
#[test]
fn a_region_is_guarded_as_its_maker_s_domain_if_asked() {
    let mut world = World::new();
    let (index, own) = process(&mut world, ALICE);
    let (sibling, _) = process(&mut world, ALICE);
    let user = super::principals::USER;
    world.state.domains.records[own.into()].guard = Name::of(&[abi::capability::NAME_USER]);
    for kind in [0, abi::region::FIFO | 2] {
        for (guard, answer) in [(0, OK), (AS_DOMAIN, error(Error::NotPermitted, 0))] {
            world.put(index, &[u64::MAX]);
            let frames = UserAddress(SCRATCH);
            let call = Call::RegionAlloc { frames, count: kind | guard };
            let Outcome::Answer(0, id) = world.with(index, user, call) else { panic!("no region") };
            let attach = |role| {
                let (region, domain) = (RegionId(id), DomainId::NONE);
                Call::RegionAttach { region, role, domain }
            };
            assert_eq!(world.with(index, 0, attach(0)), OK, "its maker");
            assert_eq!(world.with(sibling, user, attach(2)), answer, "{kind:#x} {guard:#x}");
        }
    }
}

#[test]
fn tokens_of_the_former_name_are_void() {
    let mut world = World::new();
    let (index, _) = process(&mut world, ALICE);
    let word = |world: &mut World, word| {
        let Outcome::Answer(0, told) = world.with(index, 0, Call::CapabilityToken { word }) else {
            panic!("no token");
        };
        told
    };
    let [first, second, seal] = [0, 1, 2].map(|at| word(&mut world, at));
    let enter = Call::CapabilityEnter { slot: 9, first, second, seal };
    assert_eq!(world.by(index, enter), OK);
    assert_eq!(world.by(index, Call::CapabilityDrop { slot: 9 }), OK);
    assert_eq!(world.by(index, rename(0)), OK);
    assert_eq!(world.by(index, enter), error(Error::NotPermitted, 0));
}

#[test]
fn a_builder_closes_what_it_builds_as_it_is_closed_itself() {
    let mut world = World::new();
    let (parent, own) = process(&mut world, ALICE);
    let (sibling, _) = process(&mut world, ALICE);
    let (user, root) = (super::principals::USER, Name::of(&[abi::capability::NAME_USER]));
    world.state.domains.records[own.into()].guard = root;
    let property = Property::Guard as u16;
    let set = |domain, value| Call::DomainSet { domain, property, value };
    assert_eq!(world.by(parent, set(DomainId::NONE, 0)), error(Error::WrongState, 0));
    let (domain, _) = built(&mut world, parent);
    assert_eq!(world.by(sibling, set(domain, 0)), error(Error::NotPermitted, 0));
    assert_eq!(world.by(parent, set(domain, 1)), error(Error::BadArgument, 2));
    let (which, vector, account) = (Which::Any, Which::Any, AccountId::NONE);
    let enter = Call::EnvAlloc { which, domain, account, vector };
    let Outcome::Answer(0, _) = world.with(sibling, user, enter) else { panic!("it is a user's") };
    assert_eq!(world.by(parent, set(domain, 0)), OK);
    assert_eq!(*domain::guard(&world.state, domain.into()), root);
    assert_eq!(world.with(sibling, user, enter), error(Error::NotPermitted, 0));
    let Outcome::Answer(0, env) = world.with(parent, 0, enter) else { panic!("it builds it") };
    assert_eq!(world.with(parent, 0, Call::EnvRelease { env: EnvId(env as u32) }), OK);
    assert_eq!(world.by(parent, set(domain, 0)), error(Error::NotPermitted, 0), "it has begun");
}

#[test]
fn a_domain_s_root_is_paid_for_by_who_pays_for_the_domain() {
    let mut world = World::new();
    let [builder, user] = [(); 2].map(|()| {
        let make = Call::AccountAlloc { which: Which::Any, parent: AccountId(1) };
        let Outcome::Answer(0, id) = world.by(1, make) else { panic!("an account") };
        for resource in 0..RESOURCES as u16 {
            let account = AccountId(id);
            let limit = Call::AccountLimit { account, resource, limit: 50, reserve: 0 };
            assert_eq!(world.by(1, limit), OK);
        }
        AccountId(id)
    });
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account: builder, root, window: 0, bytes: u64::MAX };
    let Outcome::Answer(0, id) = world.by(1, call) else { panic!("no domain") };
    let domain = DomainId(id);
    assert_eq!((frames_of(&world, builder), frames_of(&world, user)), (1, 0));
    let (property, value) = (Property::Account as u16, user.0);
    assert_eq!(world.by(1, Call::DomainSet { domain, property, value }), OK);
    assert_eq!((frames_of(&world, builder), frames_of(&world, user)), (0, 1));
    check(&world.state);
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    world.settle();
    assert_eq!((frames_of(&world, builder), frames_of(&world, user)), (0, 0));
}
