//! `DomainSwitch`: one environment goes between several domains, none of which ends by that.

use crate::index::EnvIndex;

use super::*;
use crate::context::Context;
use crate::{handover, upcall, visit};
use abi::call::{TRANSFER_REPLY, TRANSFER_SHIFT, number};
use abi::domain::Property;
use abi::setup::FLAG_SLICE_END;
use abi::upcall::Cause;

/// Where visitors of the domains here arrive.
const ENTRY: u64 = 0x9000;

fn go(world: &mut World, index: usize, domain: DomainId) -> Outcome {
    world.by(index, Call::DomainSwitch { domain })
}

fn name_entry(domain: DomainId, value: u64) -> Call {
    Call::DomainSet { domain, property: Property::Entry as u16, value }
}

/// All registers different, as a program has them at a call.
fn full(index: usize, world: &mut World) -> Context {
    let away = visit::is_away(&world.state, EnvIndex::new(index));
    let context = world.machine.context(index);
    let words = [
        &mut context.r15,
        &mut context.r14,
        &mut context.r13,
        &mut context.r12,
        &mut context.r11,
        &mut context.r10,
        &mut context.r9,
        &mut context.r8,
        &mut context.rbp,
        &mut context.rdi,
        &mut context.rsi,
        &mut context.rdx,
        &mut context.rcx,
        &mut context.rbx,
        &mut context.rax,
        &mut context.rsp,
        &mut context.fs_base,
        &mut context.gs_base,
    ];
    for (at, word) in words.into_iter().enumerate() {
        *word = 0x70_0000 + 0x100 * index as u64 + at as u64;
    }
    context.rip = if away { ENTRY + 0x20 } else { RIP + 2 };
    context.rflags = 0x2d7;
    *context
}

/// What arrives: the message, where from, as whom.
fn message(of: &Context, from: DomainId, own: EnvId) -> Context {
    let &Context { rsi, rdx, r8, r9, r10, .. } = of;
    let (rdi, rcx) = (from.0, u64::from(own.0));
    Context { rsi, rdx, r8, r9, r10, rdi, rcx, ..Context::starting(0, 0, 0) }
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

/// An environment at home in the first domain, and a second one that it may go to. The second one
/// is its maker's: no environment has been in it.
fn visitor(world: &mut World) -> (usize, DomainId, DomainId) {
    let home = world.domain();
    let index = world.spawn(home);
    let Outcome::Answer(0, other) = world.by(index, alloc()) else { panic!("a domain") };
    let other = DomainId(other);
    let capabilities = &mut world.state.domains.records[other.into()].capabilities;
    capabilities[usize::from(ROOT)] = Capability { rights: ALL, zero: 0, name: Name::ROOT };
    world.map(other.index(), SCRATCH);
    assert_eq!(world.by(index, name_entry(other, ENTRY)), OK);
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
fn it_arrives_at_the_entry_and_comes_home_behind_its_call() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    world.put(index, &[1]);
    let own = world.id(index);
    for _ in 0..3 {
        let before = full(index, &mut world);
        world.state.envs.slots[EnvIndex::new(index)].prepared = true;
        world.machine.loaded.clear();
        assert_eq!(go(&mut world, index, other), Outcome::Moved);
        assert!(
            !world.state.envs.slots[EnvIndex::new(index)].prepared,
            "another space is to be loaded"
        );
        assert_eq!(place(&world, index, [home, other]), (other.0, home.0, [1, 1]));
        assert_eq!(world.peek(index, SCRATCH), 0, "the page of the other domain");
        let arrived = Context { rip: ENTRY, ..message(&before, home, own) };
        assert_eq!(*world.machine.context(index), arrived, "at the entry, with the message");
        assert_eq!(world.state.envs.slots[EnvIndex::new(index)].entries, env::Entries::default());

        let there = full(index, &mut world);
        world.state.envs.slots[EnvIndex::new(index)].prepared = true;
        assert_eq!(go(&mut world, index, home), Outcome::Moved);
        assert!(
            !world.state.envs.slots[EnvIndex::new(index)].prepared,
            "its own space is to be loaded"
        );
        assert_eq!(place(&world, index, [home, other]), (home.0, 0, [1, 0]));
        assert_eq!(world.peek(index, SCRATCH), 1);
        let Context { rip, rsp, fs_base, gs_base, .. } = before;
        let back = Context { rip, rsp, fs_base, gs_base, ..message(&there, other, own) };
        assert_eq!(*world.machine.context(index), back, "behind its call, on its stack");
        assert_eq!(world.state.envs.slots[EnvIndex::new(index)].entries, entries_of_spawned());
        assert_eq!(world.machine.loaded, [index, index], "bases and vector registers");
        assert!(lives(&world, home) && lives(&world, other));
    }
}

fn entries_of_spawned() -> env::Entries {
    env::Entries { fault: FAULT, event: EVENT, foreign: 0, sync: SYNC, asynchronous: ASYNC }
}

#[test]
fn from_one_visited_to_the_next_it_stays_at_home_where_it_was() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let third = world.domain();
    world.state.domains.records[third.into()].entry = ENTRY + 0x100;
    let resident = world.spawn(third);
    let before = full(index, &mut world);
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    full(index, &mut world);
    assert_eq!(go(&mut world, index, third), Outcome::Moved);
    assert_eq!(place(&world, index, [home, other]), (third.0, home.0, [1, 0]));
    assert_eq!(world.machine.context(index).rip, ENTRY + 0x100);
    // The last resident goes; who visits keeps the domain, and takes it along.
    let killed = Call::EnvDestroy { env: world.id(resident), word: 0 };
    assert_eq!(world.by(1, killed), OK);
    world.settle();
    assert!(lives(&world, third));
    assert_eq!(go(&mut world, index, home), Outcome::Moved);
    let Context { rip, rsp, .. } = *world.machine.context(index);
    assert_eq!((rip, rsp), (before.rip, before.rsp), "where it left its home");
    world.settle();
    assert!(!lives(&world, third), "nobody is there any more");
    assert!(lives(&world, other), "its maker's, as before");
}

#[test]
fn who_may_not_or_is_not_admitted_stays() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let before = place(&world, index, [home, other]);
    let stale = DomainId(other.0 + (1 << 16));
    let closed = world.domain();
    for (capability, domain, answer) in [
        (ROOT, home, error(Error::WrongState, 0)),
        (ROOT, closed, error(Error::WrongState, 0)),
        (ROOT, stale, error(Error::NoSuchDomain, 0)),
        (ROOT, DomainId::NONE, error(Error::NoSuchDomain, 0)),
        (0, other, error(Error::NotPermitted, 0)),
        (9, other, error(Error::NoSuchCapability, 0)),
    ] {
        let registers = full(index, &mut world);
        let call = Call::DomainSwitch { domain };
        let got = world.with(index, capability, call);
        let Outcome::Answer(number, _) = got else { panic!("{got:?}") };
        let Outcome::Answer(expected, _) = answer else { unreachable!() };
        assert_eq!(number, expected, "{domain:?} by {capability}");
        assert_eq!(place(&world, index, [home, other]), before);
        let mut answered = registers;
        let value = world.machine.context(index).rdx;
        answered.answer(number, value);
        assert_eq!(*world.machine.context(index), answered);
        assert_eq!(world.state.envs.slots[EnvIndex::new(index)].entries, entries_of_spawned());
    }
    // Its own entry is of no use to one that is there.
    world.state.domains.records[home.into()].entry = ENTRY;
    assert_eq!(go(&mut world, index, home), error(Error::WrongState, 0));
    // Home it goes without any name.
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    let went = world.with(index, 9, Call::DomainSwitch { domain: home });
    assert_eq!(went, Outcome::Moved);
}

/// The domain itself names it, or its builder, and nobody else; where programs may run.
#[test]
fn the_domain_says_where_visitors_arrive() {
    let mut world = World::new();
    let (index, _, other) = visitor(&mut world);
    let entry = |world: &World| world.state.domains.records[other.into()].entry;
    let stranger = world.domain();
    let stranger = world.spawn(stranger);
    assert_eq!(world.by(stranger, name_entry(other, 0x100)), error(Error::NotPermitted, 0));
    let last = abi::layout::PROGRAM_END - PAGE_SIZE;
    for address in [last, 1 << 47, 1 << 63, u64::MAX] {
        let refused = error(Error::BadAddress, 0);
        assert_eq!(world.by(index, name_entry(other, address)), refused, "{address:#x}");
    }
    assert_eq!(entry(&world), ENTRY);
    let resident = world.spawn(other);
    assert_eq!(world.by(index, name_entry(other, 0x100)), error(Error::NotPermitted, 0));
    assert_eq!(world.by(resident, name_entry(DomainId::NONE, 0x100)), OK);
    assert_eq!(entry(&world), 0x100);
    assert_eq!(world.by(resident, name_entry(DomainId::NONE, 0)), OK);
    assert_eq!(go(&mut world, index, other), error(Error::WrongState, 0));
}

#[test]
fn a_fault_abroad_brings_it_home() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let own = world.id(index);
    let before = full(index, &mut world);
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    full(index, &mut world);
    let depth = world.saved(index, offset::DEPTH);
    let (state, machine) = (&mut world.state, &mut world.machine);
    let cause = Cause::PageFault as u8;
    assert!(!upcall::deliver_fault(state, machine, EnvIndex::new(index), cause, 4, 0x4242));
    assert_eq!(place(&world, index, [home, other]), (home.0, 0, [1, 0]));
    let Context { rip, rsp, fs_base, gs_base, .. } = before;
    let (rax, rdx) = (Error::Dead as u64, cause.into());
    let nothing = message(&Context::default(), other, own);
    let back = Context { rip, rsp, fs_base, gs_base, rax, rdx, ..nothing };
    assert_eq!(*world.machine.context(index), back);
    assert_eq!(world.saved(index, offset::DEPTH), depth, "no upcall");
    assert_eq!(world.pick(0), index);
    // At home its faults are its own again.
    let (state, machine) = (&mut world.state, &mut world.machine);
    assert!(upcall::deliver_fault(state, machine, EnvIndex::new(index), cause, 4, 0x4242));
    assert_eq!(world.machine.context(index).rip, FAULT);
}

/// What is sent to one that is away is not delivered at an address of anybody's choice: it waits.
#[test]
fn events_wait_at_home() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    let post = Call::Post { env: world.id(index), bits: 1 << 40 };
    assert_eq!(world.by(1, post), OK);
    world.on(0, index);
    assert_eq!(world.pick(0), index);
    assert_eq!(world.machine.context(index).rip, ENTRY);
    assert_eq!(go(&mut world, index, home), Outcome::Moved);
    assert_eq!(world.pick(0), index);
    assert_eq!(world.machine.context(index).rip, EVENT);
    assert_eq!(world.saved(index, offset::PENDING), 1 << 40);
}

/// One that switches its own context at the end of its slice does not where nobody tells it.
#[test]
fn the_end_of_its_slice_is_the_kernels_abroad() {
    let mut world = World::new();
    let (index, _, other) = visitor(&mut world);
    world.state.envs.slots[EnvIndex::new(index)].flags = FLAG_SLICE_END as u8;
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    world.machine.now = world.state.sched.cpus[CpuIndex::new(0)].end_ns();
    assert_ne!(world.pick(0), index);
    assert_eq!(world.state.envs.slots[EnvIndex::new(index)].ending, 0);
    assert_eq!(world.saved(index, offset::EVENTS), 0);
}

/// Code abroad has the environment, not what it is at home.
#[test]
fn what_it_is_at_home_is_not_changed_abroad() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let next = world.domain();
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    world.put(index, &[0; 16]);
    let setup = UserAddress(SCRATCH);
    let before = world.state.envs.slots[EnvIndex::new(index)];
    for call in [
        Call::EnvSet { env: EnvId::NONE, fields: field::FLAGS | field::FAULT_ENTRY, setup },
        Call::EnvMove { domain: next, fields: 0, setup },
        Call::PredicateSet { atoms: setup, count: 1 },
        Call::PredicateSet { atoms: setup, count: 0 },
        Call::TimerSet { deadline: 1 },
    ] {
        assert_eq!(world.by(index, call), error(Error::WrongState, 0), "{call:?}");
    }
    let after = world.state.envs.slots[EnvIndex::new(index)];
    assert_eq!((after.entries, after.flags, after.timer), (before.entries, before.flags, 0));
    assert_eq!(place(&world, index, [home, other]), (other.0, home.0, [1, 1]));
    assert_eq!(go(&mut world, index, home), Outcome::Moved);
    let setup = EnvSetup { fault_entry: 0x77, ..EnvSetup::default() };
    assert_eq!(world.set_by(index, EnvId::NONE, field::FAULT_ENTRY, &setup), OK);
}

/// Who waits for the home's reply gets none from a domain that the home visits, on no way.
#[test]
fn nobody_replies_for_its_home() {
    for fast in [false, true] {
        let mut world = World::new();
        world.machine.fast = fast;
        let (index, home, other) = visitor(&mut world);
        let client_domain = world.domain();
        let client = world.spawn(client_domain);
        world.save(index, offset::ACCEPTING, 1);
        let call = |to: EnvId| u64::from(number::TransferSync) | u64::from(to.0) << TRANSFER_SHIFT;
        let (own, asks) = (world.id(index), world.id(client));
        world.on(0, client);
        let called = world.raw(0, client, Call::TransferSync {}, call(own));
        assert_eq!(called, Outcome::Enter(EnvIndex::new(index)));
        assert_eq!(go(&mut world, index, other), Outcome::Moved);
        let word = call(asks) | TRANSFER_REPLY;
        let short = |world: &mut World| {
            world.state.settled = true;
            handover::check(
                &world.state,
                &world.machine,
                (CpuIndex::new(0), EnvIndex::new(index)),
                word,
                0,
            )
            .is_some()
        };
        assert!(!short(&mut world));
        let answered = world.raw(0, index, Call::TransferSync {}, word);
        assert_eq!(answered, error(Error::Busy, 0));
        assert_eq!(go(&mut world, index, home), Outcome::Moved);
        assert!(short(&mut world));
        let answered = world.raw(0, index, Call::TransferSync {}, word);
        assert_eq!(answered, Outcome::Enter(EnvIndex::new(client)));
    }
}

/// Whoever ends one of both domains ends the visitor, and all is given back.
#[test]
fn it_ends_with_its_home_and_with_whom_it_visits() {
    for ended in 0..3 {
        let mut world = World::new();
        let before = world.census();
        let (index, home, other) = visitor(&mut world);
        assert_eq!(go(&mut world, index, other), Outcome::Moved);
        let call = match ended {
            0 => Call::DomainDestroy { domain: home },
            1 => Call::DomainDestroy { domain: other },
            _ => Call::EnvDestroy { env: world.id(index), word: 3 },
        };
        assert_eq!(world.by(1, call), OK);
        world.settle();
        assert_eq!(world.state_of(index), EnvState::Dead, "{ended}");
        // Whoever holds the record ends what it has left at home, and nothing where it was.
        let EnvRecord { domain, home: away_from, .. } = world.state.published.envs[index];
        assert_eq!((domain, away_from), (home.0, 0), "{ended}");
        // What nobody has lived in ends with its maker.
        assert!(!lives(&world, home) && !lives(&world, other), "{ended}");
        let forget = Call::EnvForget { env: world.id(index) };
        assert!(matches!(world.by(1, forget), Outcome::Answer(0, _)));
        assert_eq!(world.census(), before, "{ended}");
    }
}

/// A packet's event and its ring's domain: who is away is told.
#[test]
fn who_is_away_belongs_to_both() {
    let mut world = World::new();
    let (index, home, other) = visitor(&mut world);
    let of = |world: &World, id: DomainId| {
        env::belongs_to(&world.state, EnvIndex::new(index), id.into())
    };
    assert!(of(&world, home) && !of(&world, other));
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    assert!(of(&world, home) && of(&world, other));
}

/// What a visitor makes is the visited domain's to end, whoever ends that, and nobody's later.
#[test]
fn what_is_made_abroad_ends_with_the_domain_that_made_it() {
    for visitor_ends in [false, true] {
        let mut world = World::new();
        let before = world.census();
        let (index, home, other) = visitor(&mut world);
        assert_eq!(go(&mut world, index, other), Outcome::Moved);
        let Outcome::Answer(0, made) = world.by(index, alloc()) else { panic!("a domain") };
        let made = DomainId(made);
        assert_eq!(go(&mut world, index, home), Outcome::Moved);
        let call = match visitor_ends {
            true => Call::EnvDestroy { env: world.id(index), word: 0 },
            false => Call::DomainDestroy { domain: other },
        };
        assert_eq!(world.by(1, call), OK);
        world.settle();
        assert!(!lives(&world, other) && !lives(&world, made), "{visitor_ends}");
        let record = &world.state.domains.records[other.into()];
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
        let own = env::domain(&world.state, EnvIndex::new(1)).index();
        assert_ne!(world.state.domains.records[DomainIndex::new(own)].unborn, 0);
        assert_eq!(world.by(1, Call::DomainDestroy { domain: DomainId(made) }), OK);
        world.settle();
        assert_eq!(world.state.domains.records[DomainIndex::new(own)].unborn, 0);
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
    assert_eq!(go(&mut world, index, other), Outcome::Moved);
    let env = world.id(child);
    let kill = Call::EnvDestroy { env, word: 9 };
    assert_eq!(world.by(1, kill), OK);
    let forget = Call::EnvForget { env };
    for stranger in [resident, index] {
        assert_eq!(world.by(stranger, forget), error(Error::NotPermitted, 0));
        let entrust = Call::EnvEntrust { env, holder: EnvId::NONE };
        assert_eq!(world.by(stranger, entrust), error(Error::NotPermitted, 0));
    }
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
