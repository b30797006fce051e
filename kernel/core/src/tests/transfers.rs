//! Protected control transfer: what arrives, who runs, what is refused.

use crate::index::EnvIndex;

use super::deaths::transfer;
use super::*;
use abi::call::TRANSFER_REPLY;
use abi::upcall::woken;

const ACCEPT: Call = Call::Sleep { deadline: 0, posted: 0, events: u64::MAX, flags: 1 };

fn sync(world: &mut World, from: usize, to: EnvId, bits: u64) -> Outcome {
    let call = Call::TransferSync {};
    world.raw(0, from, call, u64::from(call.encode().0) | u64::from(to.0) << 32 | bits)
}

fn pair() -> (World, usize, usize) {
    let mut world = World::new();
    let domain = world.domain();
    let server = world.spawn(domain);
    let domain = world.domain();
    let client = world.spawn(domain);
    mask(&mut world, server);
    assert_eq!(world.by(server, ACCEPT), Outcome::Left);
    assert_eq!(world.saved(server, offset::ACCEPTING), 1);
    (world, server, client)
}

/// Fills every general register with a word of its own.
fn fill(world: &mut World, index: usize, base: u64) {
    let context = world.machine.context(index);
    let registers = [
        &mut context.rax,
        &mut context.rbx,
        &mut context.rcx,
        &mut context.rdx,
        &mut context.rsi,
        &mut context.rdi,
        &mut context.rbp,
        &mut context.rsp,
        &mut context.r8,
        &mut context.r9,
        &mut context.r10,
        &mut context.r11,
        &mut context.r12,
        &mut context.r13,
        &mut context.r14,
        &mut context.r15,
    ];
    for (at, register) in registers.into_iter().enumerate() {
        *register = base + at as u64;
    }
}

#[test]
fn every_register_arrives_but_two_and_the_reply_comes_back() {
    let (mut world, server, client) = pair();
    world.on(0, client);
    fill(&mut world, client, 0x100);
    let before = *world.machine.context(client);
    let server_gs = world.machine.context(server).gs_base;
    let server_id = world.id(server);
    assert_eq!(sync(&mut world, client, server_id, 0), Outcome::Enter(EnvIndex::new(server)));
    assert_eq!(world.saved(server, offset::ACCEPTING), 0);
    assert_eq!(world.state_of(client), EnvState::Donating);
    assert_eq!(world.state.published.envs[client].donated_to, server_id.0);
    assert_eq!(world.pick(0), server);
    let entered = *world.machine.context(server);
    assert_eq!((entered.rip, entered.rcx), (SYNC, u64::from(world.id(client).0)));
    assert_eq!(entered.gs_base, server_gs);
    let mut expected = before;
    expected.rip = entered.rip;
    expected.rcx = entered.rcx;
    expected.r11 = entered.r11;
    (expected.fs_base, expected.gs_base) = (entered.fs_base, entered.gs_base);
    expected.rflags = entered.rflags;
    (expected.cs, expected.ss) = (entered.cs, entered.ss);
    assert_eq!(entered, expected);

    fill(&mut world, server, 0x200);
    let message = *world.machine.context(server);
    let client_id = world.id(client);
    assert_eq!(
        sync(&mut world, server, client_id, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(client))
    );
    assert_eq!(world.pick(0), client);
    assert_eq!(world.state_of(server), EnvState::Sleeping);
    assert_eq!(world.saved(server, offset::ACCEPTING), 1);
    let resumed = *world.machine.context(client);
    assert_eq!((resumed.rip, resumed.rsp), (before.rip, before.rsp));
    assert_eq!((resumed.rax, resumed.rcx), (0, u64::from(server_id.0)));
    assert_eq!((resumed.rdx, resumed.rbx, resumed.r15), (message.rdx, message.rbx, message.r15));
    assert_eq!(world.state.envs.slots[EnvIndex::new(server)].donors, 0);
    // And again: the next call finds it accepting.
    transfer(&mut world, client, server);
}

#[test]
fn an_event_wakes_an_accepting_server_where_it_slept() {
    let (mut world, server, client) = pair();
    transfer(&mut world, client, server);
    world.machine.context(server).rip = 0x4321;
    let client_id = world.id(client);
    assert_eq!(
        sync(&mut world, server, client_id, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(client))
    );
    let post = Call::Post { env: world.id(server), bits: 1 << 9 };
    assert_eq!(world.by(1, post), OK);
    assert_eq!(world.state_of(server), EnvState::Ready);
    assert_eq!(world.saved(server, offset::ACCEPTING), 0);
    let context = world.machine.context(server);
    assert_eq!((context.rip, context.rax, context.rdx), (0x4321, 0, woken::POSTED));
    // It does not accept any more.
    world.on(0, client);
    let id = world.id(server);
    assert_eq!(sync(&mut world, client, id, 0), error(Error::Busy, 0));
    // A bit that waits keeps it from falling asleep after its next reply.
    assert_eq!(
        world.by(server, Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 }),
        Outcome::Left
    );
    transfer(&mut world, client, server);
    assert_eq!(
        sync(&mut world, server, client_id, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(client))
    );
    assert_eq!(world.state_of(server), EnvState::Ready);
    assert_eq!(world.machine.context(server).rdx, woken::POSTED);
}

#[test]
fn who_is_not_accepting_is_busy_and_nothing_changes() {
    let (mut world, server, client) = pair();
    let domain = env::domain(&world.state, EnvIndex::new(client));
    let other = world.spawn(domain);
    world.on(0, client);
    let (server_id, other_id, own) = (world.id(server), world.id(other), world.id(client));
    for busy in [other_id, own] {
        let before = *world.machine.context(client);
        let call = Call::TransferSync {};
        let word = u64::from(call.encode().0) | u64::from(busy.0) << 32;
        assert_eq!(world.raw(0, client, call, word), error(Error::Busy, 0));
        assert_eq!(world.machine.context(client).rip, before.rip);
        assert_eq!(world.state_of(client), EnvState::Running);
    }
    assert_eq!(sync(&mut world, client, EnvId(99), 0), error(Error::NoSuchEnv, 0));
    // A ready one that has set the word itself accepts, unless it masks.
    world.save(other, offset::ACCEPTING, 1);
    world.save(other, offset::MASK, 1);
    assert_eq!(sync(&mut world, client, other_id, 0), error(Error::Busy, 0));
    world.save(other, offset::MASK, 0);
    assert_eq!(sync(&mut world, client, other_id, 0), Outcome::Enter(EnvIndex::new(other)));
    assert_eq!(world.saved(other, offset::ACCEPTING), 0);
    // Held ones and ones that run elsewhere do not.
    assert_eq!(world.by(1, Call::EnvHold { env: server_id }), OK);
    world.on(0, other);
    assert_eq!(sync(&mut world, other, server_id, 0), error(Error::Busy, 0));
    assert_eq!(world.by(1, Call::EnvRelease { env: server_id }), OK);
    world.on(0, other);
    assert_eq!(sync(&mut world, other, server_id, 0), Outcome::Enter(EnvIndex::new(server)));
}

#[test]
fn an_asynchronous_transfer_gives_the_slice_and_keeps_the_caller_ready() {
    let (mut world, server, client) = pair();
    world.on(0, client);
    fill(&mut world, client, 0x100);
    let call = Call::TransferAsync {};
    let word = u64::from(call.encode().0) | u64::from(world.id(server).0) << 32;
    assert_eq!(world.raw(0, client, call, word), Outcome::Enter(EnvIndex::new(server)));
    assert_eq!(world.machine.context(server).rip, ASYNC);
    assert_eq!(world.machine.context(server).rdx, 0x103);
    assert_eq!(world.state_of(client), EnvState::Ready);
    assert_eq!((world.machine.context(client).rax, world.machine.context(client).rdx), (0, 0));
    let vector = env::vector(&world.state, EnvIndex::new(client)).unwrap();
    assert_eq!(world.machine.word(vector.address()), u64::from_le_bytes(*b"vectors\0"));
    assert_eq!(world.raw(0, server, call, word), error(Error::Busy, 0), "itself");
    let none = u64::from(call.encode().0) | 99 << 32;
    assert_eq!(world.raw(0, server, call, none), error(Error::NoSuchEnv, 0));
}

/// A → B → C: the slices of A and B run C.
#[test]
fn slices_follow_the_chain_of_donations() {
    let (mut world, server, client) = pair();
    let domain = env::domain(&world.state, EnvIndex::new(server));
    let last = world.spawn(domain);
    assert_eq!(world.by(last, ACCEPT), Outcome::Left);
    transfer(&mut world, client, server);
    transfer(&mut world, server, last);
    for _ in 0..6 {
        world.machine.now += abi::limits::SLICE_NS;
        let next = world.pick(0);
        assert!(next == last || next == 1, "{next}");
    }
    // The first one asleep and the last one without slices, the others' time is the last one's.
    world.on(0, 1);
    assert_eq!(world.by(1, ACCEPT), Outcome::Left);
    let excess = crate::overtime::EXCESS_MAX;
    world.state.published.envs[last].excess = excess;
    assert_eq!(world.pick(0), last);
    let owed = world.state.published.envs[last].excess;
    assert!(owed + 1 >= excess, "by donation, not by paying: {owed}");
    world.state.published.envs[last].excess = 0;
    world.machine.now += abi::limits::SLICE_NS;
    for _ in 0..3 {
        assert_eq!(world.pick(0), last);
        world.machine.now += abi::limits::SLICE_NS;
    }
}

#[test]
fn a_reply_reaches_a_held_client() {
    let (mut world, server, client) = pair();
    transfer(&mut world, client, server);
    assert_eq!(world.by(1, Call::EnvHold { env: world.id(client) }), OK);
    assert_eq!(world.state_of(client), EnvState::Held);
    world.on(0, server);
    world.machine.context(server).rdi = 0x5555;
    let client_id = world.id(client);
    assert_eq!(sync(&mut world, server, client_id, TRANSFER_REPLY), Outcome::Left);
    assert_eq!(world.state_of(client), EnvState::Held);
    assert_eq!(world.state_of(server), EnvState::Sleeping);
    assert_eq!(world.machine.context(client).rdi, 0x5555);
    assert_eq!(world.by(1, Call::EnvRelease { env: client_id }), OK);
    assert_eq!(world.state_of(client), EnvState::Ready);
    // Who does not wait for it cannot be replied to.
    transfer(&mut world, client, server);
    let id = world.id(1);
    assert_eq!(sync(&mut world, server, id, 0), error(Error::Busy, 0));
}

/// The client has ended, and its id is that of an environment that accepts transfers, or of one
/// that waits for another's reply.
#[test]
fn a_reply_is_never_a_call() {
    let (mut world, accepts, client) = pair();
    let domain = world.domain();
    let replier = world.spawn(domain);
    let (id, client_id) = (world.id(accepts), world.id(client));
    let refused = |world: &mut World, to: EnvId| {
        world.on(0, replier);
        assert_eq!(sync(world, replier, to, TRANSFER_REPLY), error(Error::Busy, 0));
        assert_eq!(world.state_of(replier), EnvState::Running);
    };
    refused(&mut world, id);
    assert_eq!(world.saved(accepts, offset::ACCEPTING), 1);
    transfer(&mut world, client, accepts);
    refused(&mut world, client_id);
    assert_eq!(world.state_of(client), EnvState::Donating);
    world.on(0, accepts);
    let reply = sync(&mut world, accepts, client_id, TRANSFER_REPLY);
    assert_eq!(reply, Outcome::Enter(EnvIndex::new(client)));
    // Without the bit it is a call.
    world.on(0, replier);
    assert_eq!(sync(&mut world, replier, id, 0), Outcome::Enter(EnvIndex::new(accepts)));
}
