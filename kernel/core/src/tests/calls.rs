//! Each listed error of the remaining calls, and that refusals change nothing.

use crate::index::EnvIndex;

use super::*;
use crate::upcall;
use crate::work::{self, cost};
use abi::capability::{DEVICE_CONSOLE, DEVICE_POWER, DEVICE_TRACE, NAME_DEVICE, READ, WRITE};
use abi::memory::CLEARED;
use abi::trace::{ALL_KINDS, Event, Kind};

const NEVER: EnvId = EnvId(99);

#[test]
fn a_name_that_does_not_dominate_reaches_nobody() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    let env = world.id(other);
    world.state.envs.slots[EnvIndex::new(other)].guard = Name::of(&[5]);
    for call in [
        Call::Post { env, bits: 1 },
        Call::EnvHold { env },
        Call::EnvRelease { env },
        Call::EnvDestroy { env, word: 0 },
        Call::EnvSet { env, fields: 0, setup: UserAddress(SCRATCH) },
        Call::SliceAlloc { cpu: 0, position: Which::Any, env },
        Call::DomainDestroy { domain },
        Call::AccountDestroy { account: AccountId(1) },
        Call::EnvMove { domain, fields: 0, setup: UserAddress(SCRATCH) },
        Call::MachineEnd { how: 0, status: 3 },
        Call::TraceSet { kinds: 2 },
        Call::ConsoleWrite { stream: 0, bytes: UserAddress(SCRATCH), len: 4 },
        Call::ConsoleRing { page: SCRATCH },
    ] {
        assert_eq!(world.with(1, 0, call), error(Error::NotPermitted, 0), "{call:?}");
        assert_eq!(world.with(1, 7, call), error(Error::NoSuchCapability, 0), "{call:?}");
        assert_eq!(world.with(1, 200, call), error(Error::NoSuchCapability, 0), "{call:?}");
    }
    assert_eq!(world.state_of(other), EnvState::Ready);
    assert_eq!(world.saved(other, offset::PENDING), 0);
    let read_only = Capability { rights: READ, zero: 0, name: Name::ROOT };
    world.state.domains.records[1.into()].capabilities[2] = read_only;
    assert_eq!(world.with(1, 2, Call::Post { env, bits: 1 }), error(Error::NotPermitted, 0));
    let counters = world.state.published.calls[0][4].read();
    assert_eq!((counters.count, counters.errors), (4, 4));
}

#[test]
fn ids_of_nobody_are_refused() {
    let mut world = World::new();
    let domain = world.domain();
    let other = world.spawn(domain);
    let stale = world.id(other);
    assert_eq!(world.by(1, Call::EnvDestroy { env: stale, word: 0 }), OK);
    for env in [NEVER, stale, EnvId(0x3fff_ffff)] {
        for call in [Call::Post { env, bits: 1 }, Call::EnvDestroy { env, word: 0 }] {
            assert_eq!(world.by(1, call), error(Error::NoSuchEnv, 0));
        }
    }
    for call in [
        Call::EnvHold { env: stale },
        Call::EnvRelease { env: stale },
        Call::EnvSet { env: stale, fields: 0, setup: UserAddress(SCRATCH) },
        Call::Yield { to: stale },
    ] {
        assert_eq!(world.by(1, call), error(Error::WrongState, 0), "{call:?}");
    }
    assert_eq!(world.by(1, Call::EnvForget { env: stale }), OK);
    for call in [
        Call::EnvHold { env: stale },
        Call::EnvRelease { env: stale },
        Call::EnvForget { env: stale },
        Call::EnvEntrust { env: stale, holder: EnvId(1) },
        Call::EnvSet { env: stale, fields: 0, setup: UserAddress(SCRATCH) },
    ] {
        assert_eq!(world.by(1, call), error(Error::NoSuchEnv, 0), "{call:?}");
    }
    let domain = world.domain();
    let again = world.spawn(domain);
    assert_eq!(again, other, "the index is used again, under another id");
    assert_ne!(world.id(again), stale);
}

#[test]
fn each_error_of_making_an_environment() {
    let mut world = World::new();
    let domain = world.domain();
    let own = AccountId::NONE;
    let any = Which::Any;
    let alloc = |which, domain, account, vector| Call::EnvAlloc { which, domain, account, vector };
    let before = world.census();
    let call = alloc(any, DomainId(99), own, any);
    assert_eq!(world.by(1, call), error(Error::NoSuchDomain, 0));
    let call = alloc(any, domain, AccountId(99), any);
    assert_eq!(world.by(1, call), error(Error::NoSuchAccount, 0));
    let call = alloc(Which::This(1), domain, own, any);
    assert_eq!(world.by(1, call), error(Error::Taken, 0));
    for index in [0, 9999] {
        let call = alloc(Which::This(index), domain, own, any);
        assert_eq!(world.by(1, call), error(Error::BadArgument, 0));
    }
    let call = alloc(any, domain, own, Which::This(0));
    assert_eq!(world.by(1, call), error(Error::NoSuchFrame, 0));
    let taken = env::vector(&world.state, EnvIndex::new(1)).unwrap().0;
    let call = alloc(any, domain, own, Which::This(taken));
    assert_eq!(world.by(1, call), error(Error::Taken, 0));
    let call = alloc(any, domain, own, any);
    assert_eq!(world.with(1, 0, call), error(Error::NotPermitted, 0));
    world.state.published.accounts[1].limit[1] = 1;
    assert_eq!(world.by(1, call), error(Error::OverQuota, 1));
    world.state.published.accounts[1].limit[1] = u32::MAX;
    assert_eq!(world.census(), before);
    for _ in 2..world.state.envs.slots.len() {
        assert!(matches!(world.by(1, call), Outcome::Answer(0, _)));
    }
    assert_eq!(world.by(1, call), error(Error::Exhausted, 0));
}

#[test]
fn each_error_of_setting_one() {
    let mut world = World::new();
    let domain = world.domain();
    let new = world.spawn_new(1, domain);
    let id = world.id(new);
    let setup = EnvSetup {
        rip: abi::layout::DIRECT_MAP,
        fs_base: 1 << 47,
        gs_base: 1 << 63,
        fault_entry: u64::MAX,
        sync_entry: 1 << 47,
        flags: 1 << 40,
        save_area: 0x7000_0000,
        application_page: SCRATCH + 8,
        guard: 300,
        ..EnvSetup::default()
    };
    for bad in [
        field::RIP,
        field::FS_BASE,
        field::GS_BASE,
        field::FAULT_ENTRY,
        field::SYNC_ENTRY,
        field::SAVE_AREA,
        field::APPLICATION_PAGE,
    ] {
        assert_eq!(world.set_by(1, id, bad, &setup), error(Error::BadAddress, 0), "{bad:#x}");
    }
    let outcome = world.set_by(1, id, field::FLAGS, &setup);
    assert_eq!(outcome, error(Error::BadArgument, 2));
    let outcome = world.set_by(1, id, field::GUARD, &setup);
    assert_eq!(outcome, error(Error::NoSuchCapability, 0));
    let outcome = world.set_by(1, id, 1 << 15, &setup);
    assert_eq!(outcome, error(Error::BadArgument, 1));
    // A queue lies in the save area, where the kernel writes nothing else, or nowhere.
    let room = PAGE_SIZE - abi::queue::BYTES;
    for bad in [8, SAVE, SAVE + 0x4f8, SAVE + 0x504, SAVE + room + 8, SAVE + PAGE_SIZE, u64::MAX] {
        let setup = EnvSetup { queue: bad, ..EnvSetup::default() };
        let outcome = world.set_by(1, EnvId::NONE, field::QUEUE, &setup);
        assert_eq!(outcome, error(Error::BadAddress, 0), "{bad:#x}");
    }
    for good in [SAVE + 0x500, SAVE + room, 0] {
        let setup = EnvSetup { queue: good, ..EnvSetup::default() };
        assert_eq!(world.set_by(1, EnvId::NONE, field::QUEUE, &setup), OK, "{good:#x}");
        let distance = good.saturating_sub(SAVE);
        assert_eq!(u64::from(world.state.envs.slots[EnvIndex::new(1)].queue), distance);
    }
    // A running one changes what it may while running, and nobody else changes it.
    let fine = EnvSetup { fault_entry: 0x6000, guard: 0, ..EnvSetup::default() };
    assert_eq!(world.set_by(1, EnvId::NONE, field::RIP, &fine), error(Error::WrongState, 0));
    let fields = field::FAULT_ENTRY | field::GUARD;
    assert_eq!(world.set_by(1, EnvId::NONE, fields, &fine), OK);
    assert_eq!(world.state.envs.slots[EnvIndex::new(1)].entries.fault, 0x6000);
    let name = world.state.domains.records[1.into()].capabilities[0].name;
    assert_eq!(world.state.envs.slots[EnvIndex::new(1)].guard, name);
    assert_eq!(world.by(1, Call::EnvRelease { env: id }), OK);
    assert_eq!(world.set_by(1, id, field::FAULT_ENTRY, &fine), error(Error::WrongState, 0));
    let far = UserAddress(abi::layout::PROGRAM_END - PAGE_SIZE - 8);
    let call = Call::EnvSet { env: EnvId::NONE, fields: 0, setup: far };
    assert_eq!(world.by(1, call), error(Error::BadAddress, 0));
}

/// What a setup does not name stays, whatever its other words are.
#[test]
fn set_one_field_and_change_another() {
    use abi::setup::{FLAG_BORROW, FLAG_SLICE_END, FLAG_SLICE_START};
    let mut world = World::new();
    let domain = world.domain();
    let index = world.spawn(domain);
    let flags = FLAG_SLICE_START | FLAG_SLICE_END | FLAG_BORROW;
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    assert_eq!(world.set_by(index, EnvId::NONE, field::FLAGS, &setup), OK);
    let look = |world: &World| {
        let env = &world.state.envs.slots[EnvIndex::new(index)];
        (env.flags, env.entries, env.guard, env.save, env.save_address, env.application, env.queue)
    };
    let before = look(&world);
    assert_eq!(u64::from(before.0), flags);
    let there = EnvSetup { rsp: 0xa000, argument: 9, ..EnvSetup::default() };
    let new = world.spawn_new(1, domain);
    let id = world.id(new);
    assert_eq!(world.set_by(1, id, field::RSP, &there), OK);
    assert_eq!(world.set_by(1, id, field::ARGUMENT, &there), OK);
    let context = *world.machine.context(new);
    assert_eq!((context.rip, context.rsp, context.rdi), (RIP, 0xa000, 9));
    let other = EnvSetup { fault_entry: 0x9000, event_entry: 0x9100, ..EnvSetup::default() };
    assert_eq!(world.set_by(index, EnvId::NONE, 0, &other), OK);
    assert_eq!(look(&world), before, "no field is named");
    assert_eq!(world.set_by(index, EnvId::NONE, field::FAULT_ENTRY, &other), OK);
    let entries = env::Entries { fault: 0x9000, ..before.1 };
    assert_eq!(look(&world), (before.0, entries, before.2, before.3, before.4, before.5, before.6));
    assert_eq!(world.set_by(index, EnvId::NONE, field::FLAGS, &other), OK);
    assert_eq!(world.state.envs.slots[EnvIndex::new(index)].flags, 0);
}

#[test]
fn each_error_of_moving() {
    let mut world = World::new();
    let (old, new) = (world.domain(), world.domain());
    let index = world.spawn(old);
    let go = |domain, fields| Call::EnvMove { domain, fields, setup: UserAddress(SCRATCH) };
    world.put(index, &[0; 16]);
    assert_eq!(world.by(index, go(DomainId(99), 0)), error(Error::NoSuchDomain, 0));
    assert_eq!(world.by(index, go(old, 0)), error(Error::WrongState, 0));
    assert_eq!(world.by(index, go(new, 1 << 20)), error(Error::BadArgument, 1));
    let mut words = [0; 16];
    words[11] = SAVE;
    world.put(index, &words);
    let outcome = world.by(index, go(new, field::SAVE_AREA));
    assert_eq!(outcome, error(Error::BadAddress, 0), "not mapped there");
    assert_eq!(env::domain(&world.state, EnvIndex::new(index)), old);
    assert_eq!(world.state_of(index), EnvState::Running);
    assert_eq!(world.with(index, 0, go(new, 0)), error(Error::NotPermitted, 0));
}

#[test]
fn the_machine_ends_for_who_holds_power() {
    let mut world = World::new();
    let name = Name::of(&[NAME_DEVICE, DEVICE_POWER]);
    let power = Capability { rights: ALL, zero: 0, name };
    world.state.domains.records[1.into()].capabilities[3] = power;
    assert_eq!(
        world.with(1, 3, Call::MachineEnd { how: 2, status: 3 }),
        error(Error::BadArgument, 0)
    );
    assert_eq!(world.machine.ended, None);
    assert_eq!(world.with(1, 3, Call::MachineEnd { how: 1, status: 3 }), OK);
    assert_eq!(world.machine.ended, Some((1, 3)));
    let Outcome::Answer(0, one) = world.by(1, Call::Entropy {}) else { panic!() };
    let Outcome::Answer(0, other) = world.by(1, Call::Entropy {}) else { panic!() };
    assert_ne!(one, other);
}

#[test]
fn the_console_writes_and_fills_its_ring() {
    let mut world = World::new();
    let name = Name::of(&[NAME_DEVICE, DEVICE_CONSOLE]);
    let console = Capability { rights: ALL, zero: 0, name };
    world.state.domains.records[1.into()].capabilities[3] = console;
    world.put(1, &[u64::from_le_bytes(*b"abcdefgh")]);
    let bytes = UserAddress(SCRATCH);
    let write = |stream, bytes, len| Call::ConsoleWrite { stream, bytes, len };
    assert_eq!(world.with(1, 3, write(0, bytes, 5)), Outcome::Answer(0, 5));
    assert_eq!(world.machine.console, b"abcde");
    assert_eq!(world.with(1, 3, write(0, bytes, 1 << 40)), Outcome::Answer(0, 4096));
    assert_eq!(world.with(1, 3, write(3, bytes, 5)), error(Error::NoSuchDevice, 0));
    let high = UserAddress(abi::layout::PROGRAM_END - PAGE_SIZE - 2);
    assert_eq!(world.with(1, 3, write(0, high, 5)), error(Error::BadAddress, 0));
    let ring = |page| Call::ConsoleRing { page };
    assert_eq!(world.with(1, 3, ring(SCRATCH + 8)), error(Error::BadAddress, 0));
    assert_eq!(world.with(1, 3, ring(0x7000_0000)), error(Error::BadAddress, 0));
    let domain = env::domain(&world.state, EnvIndex::new(1)).index();
    let frame = world.map(domain, 0x60_0000);
    assert_eq!(world.with(1, 3, ring(0x60_0000)), OK);
    assert!(crate::console::input(&mut world.state, &mut world.machine, b'x'));
    assert_eq!(world.machine.word(frame.address()), 1);
    assert_eq!(world.machine.word(frame.address() + 16) & 0xff, u64::from(b'x'));
    assert_eq!(world.saved(1, offset::EVENTS), abi::upcall::EVENT_CONSOLE);
    for _ in 1..abi::console::ROOM {
        assert!(crate::console::input(&mut world.state, &mut world.machine, b'y'));
    }
    assert!(!crate::console::input(&mut world.state, &mut world.machine, b'z'), "full");
    world.machine.word_set(frame.address() + 8, 1);
    assert!(crate::console::input(&mut world.state, &mut world.machine, b'z'));
    assert_eq!(world.machine.word(frame.address() + 16) & 0xff, u64::from(b'z'), "round");
    let other = world.domain();
    let other = world.spawn(other);
    assert_eq!(world.by(other, ring(SCRATCH)), error(Error::Taken, 0));
    assert_eq!(world.with(1, 3, ring(0)), OK);
    assert_eq!(world.by(other, ring(SCRATCH)), OK);
    assert_eq!(frame::kind(&world.state, frame), Some(FrameType::Data));
    assert_eq!(world.state.published.frames[frame.0 as usize].pins, 0);
}

#[test]
fn a_batch_of_table_items_goes_in_rounds() {
    let mut world = World::new();
    let domain = env::domain(&world.state, EnvIndex::new(1)).index();
    world.map(domain, 0x60_0000);
    world.map(domain, 0x40_1000);
    let mut words = vec![];
    for page in 1..=100u64 {
        let first = Operation::Allocate as u64 | 1 << 8 | u64::from(ANY_FRAME) << 32;
        words.extend([first, 0x60_0000 + page * PAGE_SIZE, WRITABLE]);
    }
    world.put(1, &words);
    let update = |items, count| Call::TableUpdate { domain: DomainId::NONE, items, count };
    *world.machine.context(1) = crate::context::Context::starting(RIP, 0, 0);
    let outcome = world.with(1, 0, update(UserAddress(SCRATCH), 100));
    assert_eq!(outcome, Outcome::Again);
    // Frames that nobody has held are cleared: as many as there is room for in one hold.
    let context = *world.machine.context(1);
    let done = context.r10;
    let cleared = u64::from(work::PIECE / (cost::ENTRY + cost::ZERO));
    assert_eq!((context.rsi, context.rdx, done), (SCRATCH + cleared * 24, 100 - cleared, cleared));
    assert!((16..64).contains(&done), "{done} of 64");
    let mut outcome = Outcome::Again;
    while outcome == Outcome::Again {
        let context = *world.machine.context(1);
        outcome = world.with(1, 0, update(UserAddress(context.rsi), context.rdx));
    }
    assert_eq!(outcome, Outcome::Answer(0, 100));
    // What is cheap goes 64 at a time.
    for first in words.iter_mut().step_by(3) {
        *first = *first & !0xff | Operation::Protect as u64;
    }
    world.put(1, &words);
    world.machine.context(1).r10 = 0;
    assert_eq!(world.with(1, 0, update(UserAddress(SCRATCH), 100)), Outcome::Again);
    let context = *world.machine.context(1);
    assert_eq!((context.rsi, context.rdx, context.r10), (SCRATCH + 64 * 24, 36, 64));
    for first in words.iter_mut().step_by(3) {
        *first = *first & !0xff | Operation::Allocate as u64;
    }
    world.machine.context(1).r10 = 0;
    // The third item is refused: two are done.
    words[7] = 0x1ead_0000_0000;
    world.put(1, &words);
    let outcome = world.with(1, 0, update(UserAddress(SCRATCH), 100));
    assert_eq!(outcome, error(Error::NoTable, 2 | 4 << 32), "two done; no level-4 table");
    world.machine.context(1).r10 = u64::from(u32::MAX);
    let outcome = world.with(1, 0, update(UserAddress(SCRATCH), 100));
    assert_eq!(outcome, error(Error::NoTable, 1 | 4 << 32), "whatever r10 says");
    world.machine.context(1).r10 = 1 << 32;
    let outcome = world.with(1, 0, update(UserAddress(SCRATCH), 100));
    assert_eq!(outcome, error(Error::BadArgument, 1 << 32), "a page that the item does not have");
    world.machine.context(1).r10 = 0;
    let outcome = world.with(1, 0, update(UserAddress(SCRATCH), 1));
    assert!(matches!(outcome, Outcome::Answer(0, old) if old != 0), "the old entry");
    let outcome = world.with(1, 0, update(UserAddress(SCRATCH), 1 << 20));
    assert!(matches!(outcome, Outcome::Answer(29, _)), "{outcome:?}");
    let other = world.domain();
    let call = Call::TableUpdate { domain: other, items: UserAddress(SCRATCH), count: 1 };
    assert_eq!(world.with(1, 0, call), error(Error::NotPermitted, 0));
    assert_eq!(
        world.by(
            1,
            Call::TableUpdate { domain: DomainId(99), items: UserAddress(SCRATCH), count: 1 }
        ),
        error(Error::NoSuchDomain, 0)
    );
}

#[test]
fn the_trace_is_set_by_who_may_write_it() {
    let mut world = World::new();
    let name = Name::of(&[NAME_DEVICE, DEVICE_TRACE]);
    world.state.domains.records[1.into()].capabilities[3] =
        Capability { rights: WRITE, zero: 0, name };
    for kinds in [1, ALL_KINDS + 2, 1 << 63] {
        let refused = world.with(1, 3, Call::TraceSet { kinds });
        assert_eq!(refused, error(Error::BadArgument, 0), "{kinds:#x}");
    }
    assert_eq!(world.machine.tracing, 0);
    assert_eq!(world.with(1, 3, Call::TraceSet { kinds: ALL_KINDS }), OK);
    assert_eq!(world.machine.tracing, ALL_KINDS);
    // A refusal and an upcall show; the end of the trace, too.
    let env = world.id(1).0;
    assert_eq!(world.by(1, Call::Yield { to: NEVER }), error(Error::NoSuchEnv, 0));
    upcall::deliver_fault(&mut world.state, &mut world.machine, EnvIndex::new(1), 6, 0, 0);
    assert_eq!(world.with(1, 3, Call::TraceSet { kinds: 0 }), OK);
    assert_eq!(world.by(1, Call::Yield { to: NEVER }), error(Error::NoSuchEnv, 0));
    let refused = Event { argument: Error::NoSuchEnv as u64, ..Event::new(Kind::Refused, 0, env) };
    assert_eq!(world.machine.traced, [refused, Event::new(Kind::Upcall, 6, env)]);
}

/// The machine layer asks what a call reads only if its bit says that it may read.
#[test]
fn whatever_reads_memory_has_its_bit() {
    for number in 0..abi::call::TABLE.len() as u16 {
        let words = [SCRATCH, SCRATCH, SCRATCH, SCRATCH, SCRATCH, SCRATCH];
        let counts = [SCRATCH, 1, 1, 1, 1, 1];
        let small = [0, SCRATCH, 1, 0, 0, 0];
        let third = [0, 0, SCRATCH, 1, 0, 0];
        for words in [words, counts, small, third] {
            let reads = dispatch::buffer(number, words).is_some();
            assert!(!reads || dispatch::reads_memory(number), "call {number}");
        }
    }
}

#[test]
fn an_item_for_many_pages_goes_in_rounds() {
    let mut world = World::new();
    let domain = env::domain(&world.state, EnvIndex::new(1)).index();
    world.map(domain, 0x60_0000);
    world.map(domain, 0x40_1000);
    let head = |operation| operation as u64 | 1 << 8 | 99 << 16 | u64::from(ANY_FRAME) << 32;
    let update = |items, count| {
        let items = UserAddress(items);
        Call::TableUpdate { domain: DomainId::NONE, items, count }
    };
    *world.machine.context(1) = crate::context::Context::starting(RIP, 0, 0);
    world.put(1, &[head(Operation::Allocate), 0x60_1000, WRITABLE | CLEARED]);
    assert_eq!(world.with(1, 0, update(SCRATCH, 1)), Outcome::Again);
    let context = *world.machine.context(1);
    let pages = context.r10 >> 32;
    assert_eq!((context.rsi, context.rdx, context.r10 as u32), (SCRATCH, 1, 0));
    assert!((16..99).contains(&pages), "{pages} pages");
    let mut outcome = Outcome::Again;
    while outcome == Outcome::Again {
        let context = *world.machine.context(1);
        outcome = world.with(1, 0, update(context.rsi, context.rdx));
    }
    assert_eq!(outcome, Outcome::Answer(0, 1));
    world.machine.context(1).r10 = 0;
    world.put(1, &[head(Operation::Protect), 0x60_1000, 0]);
    let outcome = world.with(1, 0, update(SCRATCH, 1));
    assert!(matches!(outcome, Outcome::Answer(0, old) if old & WRITABLE != 0), "all at once");
}

#[test]
fn a_table_names_the_domain_it_was_made_for() {
    let mut world = World::new();
    let domain = world.domain();
    let page = world.map(domain.index(), SCRATCH + 0x1000);
    let chain = |world: &World, frame: Frame| world.state.published.frames[frame.0 as usize].chain;
    let table = Frame(chain(&world, page) >> 9);
    assert_eq!(chain(&world, table), domain.0 as u32);
    assert_eq!(world.by(1, Call::DomainDestroy { domain }), OK);
    world.pick(0);
    for record in world.state.published.frames.iter() {
        let is_table = (2..=5).contains(&record.kind);
        assert!(is_table || record.chain != domain.0 as u32, "{record:?}");
    }
}
