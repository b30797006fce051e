//! `DomainSwitch`: one environment goes between several domains, none of which ends by that.

use super::*;

fn go(world: &mut World, index: usize, domain: DomainId) -> Outcome {
    world.by(index, Call::DomainSwitch { domain })
}

fn alloc() -> Call {
    Call::DomainAlloc {
        which: Which::Any,
        account: AccountId::NONE,
        root: Which::Any,
        window: 0,
        bytes: u64::MAX,
    }
}

/// The save area of an environment at the same address of another domain.
fn shown(world: &mut World, index: usize, domain: DomainId) {
    let (address, physical) = env::save_area(&world.state, index).unwrap();
    world.map(domain.index(), address);
    let item = Item {
        operation: Operation::Map as u8,
        level: 1,
        more: 0,
        frame: Frame::containing(physical).0,
        address,
        value: WRITABLE | NO_EXECUTE,
    };
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    let (state, machine) = (&mut world.state, &mut world.machine);
    let target = domain.index();
    table::update_item(state, machine, target, target, &root, &item, 0).1.unwrap();
}

/// An environment at home in the first domain, and a second one that it has been shown to. The
/// second one is its maker's: no environment has been in it.
fn visitor(world: &mut World) -> (usize, DomainId, DomainId) {
    let home = world.domain();
    let index = world.spawn(home);
    let Outcome::Answer(0, other) = world.by(index, alloc()) else { panic!("a domain") };
    let other = DomainId(other);
    let capabilities = &mut world.state.domains.records[other.index()].capabilities;
    capabilities[usize::from(ROOT)] = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.map(other.index(), SCRATCH);
    shown(world, index, other);
    (index, home, other)
}

/// Where it is, where it is at home, and how many environments both domains count.
fn place(world: &World, index: usize, domains: [DomainId; 2]) -> (u64, u64, [u32; 2]) {
    let EnvRecord { domain, home, .. } = world.state.published.envs[index];
    (domain, home, domains.map(|id| world.state.published.domains[id.index()].envs))
}

fn lives(world: &World, domain: DomainId) -> bool {
    domain::find(&world.state, domain).is_ok()
}

#[test]
fn it_goes_on_elsewhere_with_all_it_has() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    world.put(index, &[1]);
    let before = *world.machine.context(index);
    for _ in 0..3 {
        world.state.envs.slots[index].prepared = true;
        assert_eq!(go(&mut world, index, other), OK);
        assert!(!world.state.envs.slots[index].prepared, "another space is to be loaded");
        assert_eq!(place(&world, index, [home, other]), (other.0, home.0, [1, 1]));
        assert_eq!(world.peek(index, SCRATCH), 0, "the page of the other domain");
        assert_eq!(go(&mut world, index, home), OK);
        assert_eq!(place(&world, index, [home, other]), (home.0, 0, [1, 0]));
        assert_eq!(world.peek(index, SCRATCH), 1);
        assert!(lives(&world, home) && lives(&world, other));
    }
    let after = *world.machine.context(index);
    assert_eq!((after.rip, after.rsp, after.rbx), (before.rip, before.rsp, before.rbx));
}

#[test]
fn from_one_visited_to_the_next_it_stays_at_home_where_it_was() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let third = world.domain();
    let resident = world.spawn(third);
    shown(&mut world, index, third);
    assert_eq!(go(&mut world, index, other), OK);
    assert_eq!(go(&mut world, index, third), OK);
    assert_eq!(place(&world, index, [home, other]), (third.0, home.0, [1, 0]));
    // The last resident goes; who visits keeps the domain, and takes it along.
    let killed = Call::EnvDestroy { env: world.id(resident), word: 0 };
    assert_eq!(world.by(1, killed), OK);
    world.settle();
    assert!(lives(&world, third));
    assert_eq!(go(&mut world, index, home), OK);
    world.settle();
    assert!(!lives(&world, third), "nobody is there any more");
    assert!(lives(&world, other), "its maker's, as before");
}

#[test]
fn who_may_not_or_has_no_save_area_there_stays() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let before = place(&world, index, [home, other]);
    let stale = DomainId(other.0 + (1 << 16));
    for (capability, domain, answer) in [
        (ROOT, home, error(Error::WrongState, 0)),
        (ROOT, stale, error(Error::NoSuchDomain, 0)),
        (ROOT, DomainId::NONE, error(Error::NoSuchDomain, 0)),
        (0, other, error(Error::NotPermitted, 0)),
        (9, other, error(Error::NoSuchCapability, 0)),
    ] {
        let call = Call::DomainSwitch { domain };
        let got = world.with(index, capability, call);
        let Outcome::Answer(number, _) = got else { panic!("{got:?}") };
        let Outcome::Answer(expected, _) = answer else { unreachable!() };
        assert_eq!(number, expected, "{domain:?} by {capability}");
        assert_eq!(place(&world, index, [home, other]), before);
    }
    // Another frame at its address, a read-only one, none.
    let (address, _) = env::save_area(&world.state, index).unwrap();
    let root = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    for operation in [Operation::Protect, Operation::Unmap] {
        let frame = ANY_FRAME;
        let operation = operation as u8;
        let item = Item { operation, level: 1, more: 0, frame, address, value: 0 };
        let (state, machine) = (&mut world.state, &mut world.machine);
        let at = other.index();
        table::update_item(state, machine, at, at, &root, &item, 0).1.unwrap();
        assert_eq!(go(&mut world, index, other), error(Error::BadAddress, 0));
    }
    world.map(other.index(), address);
    assert_eq!(go(&mut world, index, other), error(Error::BadAddress, 0));
    assert_eq!(place(&world, index, [home, other]), before);
}

/// Whoever ends one of both domains ends the visitor, and all is given back.
#[test]
fn it_ends_with_its_home_and_with_whom_it_visits() {
    for ended in 0..3 {
        let mut world = World::new();
        let before = world.census();
        let (index, home, other) = visitor(&mut world);
        assert_eq!(go(&mut world, index, other), OK);
        let call = match ended {
            0 => Call::DomainDestroy { domain: home },
            1 => Call::DomainDestroy { domain: other },
            _ => Call::EnvDestroy { env: world.id(index), word: 3 },
        };
        assert_eq!(world.by(1, call), OK);
        world.settle();
        assert_eq!(world.state_of(index), EnvState::Dead, "{ended}");
        assert_eq!(world.state.published.envs[index].home, 0);
        // What nobody has lived in ends with its maker.
        assert!(!lives(&world, home) && !lives(&world, other), "{ended}");
        let forget = Call::EnvForget { env: world.id(index) };
        assert!(matches!(world.by(1, forget), Outcome::Answer(0, _)));
        assert_eq!(world.census(), before, "{ended}");
    }
}

#[test]
fn exec_while_away_leaves_both() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    assert_eq!(go(&mut world, index, other), OK);
    let next = world.domain();
    let setup = UserAddress(SCRATCH);
    let call = Call::EnvMove { domain: next, fields: 0, setup };
    assert_eq!(world.by(index, call), Outcome::Restart);
    world.settle();
    assert_eq!(place(&world, index, [next, next]), (next.0, 0, [1, 1]));
    assert!(!lives(&world, home) && !lives(&world, other));
}

/// A packet's event and its ring's domain: who is away is told.
#[test]
fn who_is_away_belongs_to_both() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let of = |world: &World, id: DomainId| env::belongs_to(&world.state, index, id.index());
    assert!(of(&world, home) && !of(&world, other));
    assert_eq!(go(&mut world, index, other), OK);
    assert!(of(&world, home) && of(&world, other));
}

/// What a visitor makes is the visited domain's to end, whoever ends that, and nobody's later.
#[test]
fn what_is_made_abroad_ends_with_the_domain_that_made_it() {
    for visitor_ends in [false, true] {
        let mut world = World::new();
        let before = world.census();
        let (index, home, other) = visitor(&mut world);
        assert_eq!(go(&mut world, index, other), OK);
        let Outcome::Answer(0, made) = world.by(index, alloc()) else { panic!("a domain") };
        let made = DomainId(made);
        assert_eq!(go(&mut world, index, home), OK);
        let call = match visitor_ends {
            true => Call::EnvDestroy { env: world.id(index), word: 0 },
            false => Call::DomainDestroy { domain: other },
        };
        assert_eq!(world.by(1, call), OK);
        world.settle();
        assert!(!lives(&world, other) && !lives(&world, made), "{visitor_ends}");
        let record = &world.state.domains.records[other.index()];
        assert_eq!((record.unborn, record.maker), (0, 0));
        if !visitor_ends {
            let env = world.id(index);
            assert_eq!(world.by(1, Call::EnvDestroy { env, word: 0 }), OK);
        }
        world.settle();
        let forget = Call::EnvForget { env: world.id(index) };
        assert!(matches!(world.by(1, forget), Outcome::Answer(0, _)));
        assert_eq!(world.census(), before, "{visitor_ends}");
    }
}

#[test]
fn a_domain_that_is_destroyed_unborn_is_its_makers_no_more() {
    let mut world = World::new();
    for _ in 0..3 {
        let Outcome::Answer(0, made) = world.by(1, alloc()) else { panic!("a domain") };
        let own = env::domain(&world.state, 1).index();
        assert_ne!(world.state.domains.records[own].unborn, 0);
        assert_eq!(world.by(1, Call::DomainDestroy { domain: DomainId(made) }), OK);
        world.settle();
        assert_eq!(world.state.domains.records[own].unborn, 0);
    }
}

/// What one thread holds is all its threads', also while that one is away; not the residents'.
#[test]
fn what_a_visitor_holds_is_its_homes() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let sibling = world.spawn(home);
    let child = world.spawn_by(index, home);
    let resident = world.spawn(other);
    assert_eq!(go(&mut world, index, other), OK);
    let env = world.id(child);
    let kill = Call::EnvDestroy { env, word: 9 };
    assert_eq!(world.by(1, kill), OK);
    let forget = Call::EnvForget { env };
    assert_eq!(world.by(resident, forget), error(Error::NotPermitted, 0));
    assert_eq!(world.by(sibling, forget), Outcome::Answer(0, 9));
}

/// Everybody sees an application page, write-back.
#[test]
fn a_page_of_another_memory_type_is_nobodys_application_page() {
    let mut world = World::new();
    let domain = world.domain();
    let new = world.spawn_new(1, domain);
    let page = 0x60_0000;
    let frame = world.map(domain.index(), page);
    world.state.published.frames[frame.0 as usize].memory_type = 3;
    let setup = EnvSetup { application_page: page, save_area: page, ..EnvSetup::default() };
    for field in [field::APPLICATION_PAGE, field::SAVE_AREA] {
        let answer = world.set_by(1, world.id(new), field, &setup);
        assert_eq!(answer, error(Error::BadAddress, 0));
    }
}
