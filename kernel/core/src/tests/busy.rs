//! Clients that wait until a busy server accepts.

use super::turns::{process, sleep_for_ever, user};
use super::*;
use crate::env::{ASKED, Pending};
use crate::handover;
use abi::call::{TRANSFER_REPLY, TRANSFER_WAIT};
use abi::limits::SLICE_NS;
use abi::setup::{FLAG_BORROW, FLAG_GIVEN_TIME};
use abi::upcall::woken;

mod asking;

const CPU: CpuIndex = CpuIndex::new(0);
const ACCEPT: Call = Call::Sleep { deadline: 0, posted: 0, events: 1, flags: 1 };
const WAIT: Call = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };

/// A server on its clients' time, which has begun the request of one client as that one's slice has
/// ended; another user's client, a program that computes, and one that sleeps.
struct Busy {
    world: World,
    server: usize,
    first: usize,
    client: usize,
    computes: usize,
    sleeps: usize,
}

impl Busy {
    fn new() -> Self {
        let mut world = World::of(8192);
        let all: [usize; 5] = core::array::from_fn(|_| {
            let of = user(&mut world);
            process(&mut world, of)
        });
        let [server, first, client, computes, sleeps] = all;
        for index in [server, client, first, sleeps] {
            mask(&mut world, index);
        }
        assert_eq!(world.set_flags(server, EnvId::NONE, FLAG_GIVEN_TIME | FLAG_BORROW), OK);
        assert_eq!(world.by(server, ACCEPT), Outcome::Left);
        assert_eq!(world.by(sleeps, WAIT), Outcome::Left);
        sleep_for_ever(&mut world, 1);
        let mut busy = Self { world, server, first, client, computes, sleeps };
        busy.run(first);
        assert_eq!(busy.transfer(first, server, 0), Outcome::Enter(EnvIndex::new(server)));
        assert_eq!(busy.world.pick(0), server);
        busy
    }

    /// Slices pass until this one has the processor, or its time is the server's.
    fn run(&mut self, index: usize) {
        for _ in 0..32 {
            if self.world.pick(0) == index {
                return;
            }
            self.world.machine.now += SLICE_NS;
        }
        panic!("{index} has no turn");
    }

    /// An event wakes it.
    fn wake(&mut self, index: usize) {
        let at = EnvIndex::new(index);
        let (state, machine) = (&mut self.world.state, &mut self.world.machine);
        crate::sleep::end_sleep(state, machine, at);
        sched::make_ready(state, machine, at, true);
    }

    /// The word that transfers to this one.
    fn word(&self, to: usize, bits: u64) -> u64 {
        u64::from(Call::TransferSync {}.encode().0) | u64::from(self.world.id(to).0) << 32 | bits
    }

    fn transfer(&mut self, from: usize, to: usize, bits: u64) -> Outcome {
        let word = self.word(to, bits);
        self.world.raw(0, from, Call::TransferSync {}, word)
    }

    /// The client waits in its slice, of which the other program borrows, and waits as well; the
    /// end of the slice.
    fn wait_behind_a_loan(&mut self) -> u64 {
        let (client, third) = (self.client, self.computes);
        self.run(third);
        assert_eq!(self.world.by(third, WAIT), Outcome::Left);
        self.run(client);
        let end = self.world.state.sched.cpus[CPU].slice_end_ns;
        self.wait(client);
        assert_eq!(self.world.pick(0), self.server);
        self.wake(third);
        assert_eq!(self.world.pick(0), third);
        self.wait(third);
        end
    }

    /// The processor is lost: the server runs on another one.
    fn runs_elsewhere(&mut self) {
        let now = self.world.machine.now;
        sched::leave_at(&mut self.world.state, CPU, now);
        let server = EnvIndex::new(self.server);
        sched::run(&mut self.world.state, CpuIndex::new(1), server, now);
    }

    /// As `transfer`, by one that runs on the second processor.
    fn by_the_other(&mut self, from: usize, to: usize, bits: u64) -> Outcome {
        let word = self.word(to, bits);
        self.world.raw(1, from, Call::TransferSync {}, word)
    }

    /// Would its call, on the second processor, go the short way?
    fn goes_the_short_way(&mut self, from: usize, to: usize) -> bool {
        let cpu = CpuIndex::new(1);
        let word = self.word(to, 0);
        let (state, machine) = (&mut self.world.state, &self.world.machine);
        state.settled = true;
        state.sched.cpus[cpu].slice_end_ns = machine.now + SLICE_NS;
        handover::check(state, machine, (cpu, EnvIndex::new(from)), word, 0).is_some()
    }

    /// Waits, and the server runs meanwhile; where its call is.
    fn wait(&mut self, index: usize) -> u64 {
        let rip = self.world.machine.context(index).rip;
        assert_eq!(self.transfer(index, self.server, TRANSFER_WAIT), Outcome::Left);
        assert_eq!(self.world.state_of(index), EnvState::Donating);
        assert_eq!(self.world.machine.context(index).rip, rip - crate::context::SYSCALL_BYTES);
        rip - crate::context::SYSCALL_BYTES
    }

    /// The client runs, its call begins anew and is taken.
    fn is_taken(&mut self, index: usize) {
        assert_eq!(self.world.pick(0), index);
        assert_eq!(self.pending(index), Pending::Nothing);
        let server = self.server;
        assert_eq!(
            self.transfer(index, server, TRANSFER_WAIT),
            Outcome::Enter(EnvIndex::new(server))
        );
        assert_eq!(self.world.pick(0), server);
    }

    fn pending(&self, index: usize) -> Pending {
        self.world.state.envs.slots[EnvIndex::new(index)].pending
    }

    fn donors(&self) -> u16 {
        self.world.state.envs.slots[EnvIndex::new(self.server)].donors
    }
}

/// The client's slice is the server's until that one has answered the other client; then it is the
/// client's again, and the other one waits for its turn.
#[test]
fn whose_slice_it_is_calls_next() {
    let mut busy = Busy::new();
    busy.run(busy.client);
    let (first, client, server) = (busy.first, busy.client, busy.server);
    let end = busy.world.state.sched.cpus[CPU].slice_end_ns;
    busy.wait(client);
    assert_eq!(busy.world.pick(0), server);
    busy.world.machine.now += SLICE_NS / 4;
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Left);
    assert_eq!(busy.world.state_of(first), EnvState::Ready);
    busy.is_taken(client);
    assert_eq!(busy.world.state.sched.cpus[CPU].slice_end_ns, end);
    assert_eq!(
        busy.transfer(server, client, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(client))
    );
    assert_eq!(busy.donors(), 0);
}

/// The same of time that the client has borrowed, while the server ran on the first one's slice: it
/// is not lost, and that slice's rest is the first one's.
#[test]
fn whose_loan_it_is_calls_next() {
    let mut busy = Busy::new();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    busy.run(client);
    assert_eq!(busy.world.by(client, WAIT), Outcome::Left);
    busy.run(server);
    busy.wake(client);
    assert_eq!(busy.world.pick(0), client, "it borrows");
    assert_eq!(busy.world.state.sched.cpus[CPU].lender as usize, server);
    busy.wait(client);
    assert_eq!(busy.world.pick(0), server);
    busy.world.machine.now += SLICE_NS / 8;
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Left);
    busy.is_taken(client);
    assert_eq!(
        busy.transfer(server, client, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(client))
    );
    assert_eq!(busy.world.pick(0), client);
    assert_eq!(busy.world.by(client, WAIT), Outcome::Left);
    assert_eq!(busy.world.pick(0), first, "the rest is its own");
}

/// What a client waits for is done by those that come first, and its time is not touched by loans
/// that others have meanwhile.
#[test]
fn loans_in_between_change_nothing() {
    let mut busy = Busy::new();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    busy.wait_behind_a_loan();
    let end = busy.world.state.sched.cpus[CPU].borrow_end_ns;
    busy.world.machine.now = end;
    assert_eq!(busy.world.pick(0), server, "the loan is over");
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Left);
    busy.is_taken(client);
}

/// A client whose time is over while the server is busy calls when its turn comes.
#[test]
fn a_turn_is_enough() {
    let mut busy = Busy::new();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    busy.run(client);
    busy.wait(client);
    busy.run(busy.computes);
    // On a slice of the first one, which goes on then, and sleeps.
    while busy.world.pick(0) != server || busy.world.state.sched.cpus[CPU].awaits[0] != 0 {
        busy.world.machine.now += SLICE_NS;
    }
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Enter(EnvIndex::new(first)));
    assert_eq!(busy.world.pick(0), first);
    assert_eq!(busy.world.by(first, WAIT), Outcome::Left);
    assert_eq!(busy.pending(client), Pending::Busy);
    busy.run(client);
    busy.is_taken(client);
}

/// A server that accepts without a reply, or has an event to look at first, is the client's too.
#[test]
fn servers_accept_by_sleeping() {
    for event in [false, true] {
        let mut busy = Busy::new();
        let (first, client, server) = (busy.first, busy.client, busy.server);
        busy.run(client);
        busy.wait(client);
        assert_eq!(busy.world.pick(0), server);
        if event {
            busy.world.save(server, offset::EVENTS, 1);
            assert_eq!(
                busy.transfer(server, first, TRANSFER_REPLY),
                Outcome::Answer(0, woken::EVENT)
            );
            assert_eq!(busy.world.pick(0), server, "on the client's time");
            busy.world.save(server, offset::EVENTS, 0);
        }
        assert_eq!(busy.world.by(server, ACCEPT), Outcome::Left);
        busy.is_taken(client);
    }
}

/// The reply of a server to a client that it has not heard is none.
#[test]
fn who_waits_has_asked_for_nothing() {
    let mut busy = Busy::new();
    let (client, server) = (busy.client, busy.server);
    busy.run(client);
    let rip = busy.wait(client);
    assert_eq!(busy.world.pick(0), server);
    for bits in [TRANSFER_REPLY, 0] {
        assert_eq!(busy.transfer(server, client, bits), error(Error::Busy, 0));
    }
    assert_eq!(busy.world.machine.context(client).rip, rip);
    assert_eq!(busy.pending(client), Pending::Busy);
}

/// Whatever ends the wait, the server counts one environment less that waits: its own end, which
/// lets the call begin anew; that of the client; a hold.
#[test]
fn every_wait_ends() {
    let mut busy = Busy::new();
    busy.run(busy.client);
    let (client, server) = (busy.client, busy.server);
    busy.wait(client);
    assert_eq!(busy.donors(), 2);
    let env = busy.world.id(client);
    // By one that is always ready.
    let third = busy.computes;
    assert_eq!(busy.world.by(third, Call::EnvHold { env }), OK);
    assert_eq!((busy.donors(), busy.pending(client)), (1, Pending::Nothing));
    assert_eq!(busy.world.by(third, Call::EnvRelease { env }), OK);
    busy.run(client);
    busy.wait(client);
    assert_eq!(busy.world.by(third, Call::EnvDestroy { env, word: 0 }), OK);
    assert_eq!(busy.donors(), 1);

    let mut busy = Busy::new();
    busy.run(busy.client);
    let rip = busy.wait(client);
    let env = busy.world.id(server);
    let account = crate::turns::account_of(&busy.world.state, EnvIndex::new(server));
    assert_eq!(busy.world.by(third, Call::EnvDestroy { env, word: 0 }), OK);
    let (state, machine) = (&mut busy.world.state, &mut busy.world.machine);
    while crate::sweep::work(state, machine, account) {
        crate::work::begin(state);
    }
    busy.run(client);
    assert_eq!(busy.world.machine.context(client).rip, rip, "it calls again");
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::NoSuchEnv, 0));
}

/// Environments that no server is are not waited for, nor one that waits for something itself.
#[test]
fn only_servers_that_are_ready_are_waited_for() {
    let mut busy = Busy::new();
    busy.run(busy.client);
    let (client, computes) = (busy.client, busy.computes);
    assert_eq!(busy.world.state_of(computes), EnvState::Ready);
    busy.world.state.envs.slots[EnvIndex::new(computes)].entries.sync = 0;
    assert_eq!(busy.transfer(client, computes, TRANSFER_WAIT), error(Error::WrongState, 0));
    let server = busy.server;
    let env = busy.world.id(server);
    assert_eq!(busy.world.by(computes, Call::EnvHold { env }), OK);
    busy.run(client);
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
}

/// A server that sleeps before it has answered leaves the processor of its client idle: that one
/// hears of it where the server has gone on on another processor, and accepts.
#[test]
fn idle_processors_hear_that_a_server_accepts() {
    let mut busy = Busy::new();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    busy.run(client);
    busy.wait(client);
    assert_eq!(busy.world.pick(0), server);
    let now = busy.world.machine.now;
    sched::leave_at(&mut busy.world.state, CPU, now);
    env::set_state(&mut busy.world.state, EnvIndex::new(server), EnvState::Held);
    let third = busy.computes;
    assert_eq!(busy.world.by(third, WAIT), Outcome::Left);
    while busy.world.pick(0) != 0 {
        busy.world.machine.now += SLICE_NS;
    }
    env::set_state(&mut busy.world.state, EnvIndex::new(server), EnvState::Ready);
    sched::run(&mut busy.world.state, CpuIndex::new(1), EnvIndex::new(server), now);
    busy.world.machine.interrupts.clear();
    busy.by_the_other(server, first, TRANSFER_REPLY);
    busy.world.pick(1);
    assert!(busy.world.machine.interrupts.contains(&0), "it stays idle");
    assert!([first, client].contains(&busy.world.pick(0)));
}

/// The second processor has a client of the server, which has accepted that one's call; the one
/// here asks for the server, refused as it runs there.
fn served_elsewhere() -> Busy {
    let mut busy = Busy::new();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    busy.world.state.sched.online = 2;
    busy.run(client);
    busy.world.on(1, server);
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
    assert_eq!(busy.world.pick(0), client);
    assert_eq!(
        busy.by_the_other(server, first, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(first))
    );
    busy
}

/// A client on another processor that calls a server again at once does not come before one that
/// has asked for it meanwhile; then it is the next one.
#[test]
fn clients_elsewhere_do_not_come_first() {
    let mut busy = served_elsewhere();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    for bits in [0, TRANSFER_WAIT] {
        assert_eq!(busy.by_the_other(first, server, bits), error(Error::Busy, 0));
    }
    assert!(!busy.goes_the_short_way(first, server));
    busy.world.state.envs.slots[EnvIndex::new(server)].marks &= !ASKED;
    assert!(busy.goes_the_short_way(first, server));
    busy.world.state.envs.slots[EnvIndex::new(server)].marks |= ASKED;
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), Outcome::Enter(EnvIndex::new(server)));
    assert_eq!(
        busy.transfer(server, client, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(client))
    );
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
    assert_eq!(busy.by_the_other(first, server, 0), Outcome::Enter(EnvIndex::new(server)));
    // The one here goes on asking.
    assert_eq!(
        busy.by_the_other(server, first, TRANSFER_REPLY),
        Outcome::Enter(EnvIndex::new(first))
    );
    assert_eq!(busy.by_the_other(first, server, 0), error(Error::Busy, 0));
}

/// One that asks no more, or has no processor, keeps no other client out.
#[test]
fn who_ceases_to_ask_is_not_waited_for() {
    for late in [false, true] {
        let mut busy = served_elsewhere();
        let (first, client, server) = (busy.first, busy.client, busy.server);
        if late {
            busy.world.machine.now += crate::busy::ASKS_NS;
        } else {
            assert_eq!(busy.world.by(client, WAIT), Outcome::Left);
        }
        assert_eq!(busy.by_the_other(first, server, 0), Outcome::Enter(EnvIndex::new(server)));
        assert!(!busy.world.state.envs.slots[EnvIndex::new(server)].is_waited_for());
    }
}

/// A server that waits for another one, which is ready, is waited for, too: the other one runs on
/// the client's time.
#[test]
fn servers_that_wait_are_waited_for() {
    let mut busy = Busy::new();
    let (client, server, third) = (busy.client, busy.server, busy.computes);
    mask(&mut busy.world, third);
    busy.world.by(third, ACCEPT);
    busy.run(server);
    assert_eq!(busy.transfer(server, third, 0), Outcome::Enter(EnvIndex::new(third)));
    busy.run(client);
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), Outcome::Left);
    assert_eq!(busy.world.pick(0), third);
    assert_eq!(busy.transfer(third, server, TRANSFER_REPLY), Outcome::Enter(EnvIndex::new(server)));
    assert_eq!(busy.transfer(server, busy.first, TRANSFER_REPLY), Outcome::Left);
    busy.is_taken(client);
}

/// Time that another environment borrows from the server, which runs on a client's slice, ends with
/// that client's slice, though the server has answered a third one meanwhile.
#[test]
fn slices_are_their_clients_behind_loans() {
    let mut busy = Busy::new();
    let (first, client, server, third) = (busy.first, busy.client, busy.server, busy.computes);
    let end = busy.wait_behind_a_loan();
    assert_eq!(busy.world.pick(0), server);
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Left);
    assert_eq!(busy.world.pick(0), third);
    assert_eq!(busy.world.by(third, WAIT), Outcome::Left);
    busy.is_taken(client);
    assert_eq!(busy.world.state.sched.cpus[CPU].slice_end_ns, end);
}

/// A server that waits for another one on its client's time answers on that time, and the client is
/// the next to call it.
#[test]
fn a_servers_wait_is_its_clients() {
    let mut busy = Busy::new();
    let (client, server) = (busy.client, busy.server);
    let (asker, front) = (busy.computes, busy.sleeps);
    busy.wake(front);
    busy.run(front);
    assert_eq!(busy.world.by(front, ACCEPT), Outcome::Left);
    busy.run(asker);
    assert_eq!(busy.transfer(asker, front, 0), Outcome::Enter(EnvIndex::new(front)));
    assert_eq!(busy.world.pick(0), front);
    busy.world.machine.now += SLICE_NS;
    busy.run(client);
    assert_eq!(busy.transfer(client, front, TRANSFER_WAIT), Outcome::Left);
    assert_eq!(busy.world.pick(0), front);
    busy.wait(front);
    assert_eq!(busy.world.pick(0), server);
    let first = busy.first;
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Left);
    busy.is_taken(front);
    assert_eq!(busy.transfer(server, front, TRANSFER_REPLY), Outcome::Enter(EnvIndex::new(front)));
    assert_eq!(busy.world.pick(0), front);
    assert_eq!(busy.transfer(front, asker, TRANSFER_REPLY), Outcome::Left);
    assert_eq!(busy.world.pick(0), client, "the one that asked before goes on in its slice");
}

/// A client whose turn comes while the server runs on another processor has it nevertheless, to
/// call when the server accepts: else it would have to come just then.
#[test]
fn turns_do_not_pass_while_the_server_runs_elsewhere() {
    let mut busy = Busy::new();
    let (client, server) = (busy.client, busy.server);
    busy.run(client);
    let rip = busy.wait(client);
    assert_eq!(busy.world.pick(0), server);
    busy.runs_elsewhere();
    busy.run(client);
    assert_eq!(busy.world.machine.context(client).rip, rip);
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
}

/// While an environment waits for a server, that one's replies go the long way, to all clients: so
/// no environment waits that is held or has no turns, as it might for good.
#[test]
fn who_has_no_turn_does_not_wait() {
    for held in [false, true] {
        let mut busy = Busy::new();
        let (first, client, server, third) = (busy.first, busy.client, busy.server, busy.computes);
        busy.run(client);
        busy.wait(client);
        if held {
            let env = busy.world.id(client);
            assert_eq!(busy.world.by(third, Call::EnvHold { env }), OK);
        } else {
            busy.world.state.envs.slots[EnvIndex::new(client)].flags |= FLAG_GIVEN_TIME as u8;
            sched::turns_changed(&mut busy.world.state, EnvIndex::new(client));
            assert_eq!(busy.world.state_of(client), EnvState::Ready);
            busy.world.on(0, client);
            assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::WrongState, 0));
        }
        busy.run(server);
        assert_eq!(
            busy.transfer(server, first, TRANSFER_REPLY),
            Outcome::Enter(EnvIndex::new(first))
        );
        assert!(!busy.world.state.envs.slots[EnvIndex::new(server)].is_waited_for());
    }
}

/// A server without turns, at home on another processor, that sleeps before it has answered: its
/// client's processor, which is idle meanwhile, hears that it is ready.
#[test]
fn idle_processors_hear_that_their_clients_server_is_ready() {
    let mut busy = Busy::new();
    let (first, server, third) = (busy.first, busy.server, busy.computes);
    let at = EnvIndex::new(server);
    busy.world.state.envs.slots[at].cpu = 1;
    assert_eq!(busy.world.by(server, WAIT), Outcome::Left);
    for index in [third, busy.client] {
        assert_eq!(busy.world.by(index, WAIT), Outcome::Left);
    }
    while busy.world.pick(0) != 0 {
        busy.world.machine.now += SLICE_NS;
    }
    busy.world.machine.interrupts.clear();
    let (state, machine) = (&mut busy.world.state, &mut busy.world.machine);
    crate::sleep::end_sleep(state, machine, at);
    sched::make_ready(state, machine, at, true);
    assert_eq!(busy.world.pick(1), 0);
    assert!(busy.world.machine.interrupts.contains(&0), "it stays idle");
    assert_eq!(busy.world.pick(0), server);
    assert_eq!(busy.transfer(server, first, TRANSFER_REPLY), Outcome::Enter(EnvIndex::new(first)));
}

/// A client that lends its slice for a moment keeps its place.
#[test]
fn loans_take_no_place() {
    let mut busy = served_elsewhere();
    let (first, client, server, thief) = (busy.first, busy.client, busy.server, busy.sleeps);
    busy.world.state.envs.slots[EnvIndex::new(client)].flags |= FLAG_BORROW as u8;
    busy.wake(thief);
    assert_eq!(busy.world.pick(0), thief);
    busy.world.machine.now += 5_000;
    assert_eq!(busy.by_the_other(first, server, 0), error(Error::Busy, 0));
    assert_eq!(busy.world.by(thief, WAIT), Outcome::Left);
    busy.is_taken(client);
}

/// What asks for a program that accepts no transfer sends its yields the long way for no longer
/// than it has a processor.
#[test]
fn who_leaves_is_asked_for_no_more() {
    let mut busy = Busy::new();
    let (client, server) = (busy.client, busy.server);
    busy.world.state.sched.online = 2;
    busy.run(client);
    busy.world.on(1, server);
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
    let is_asked =
        |busy: &Busy| busy.world.state.envs.slots[EnvIndex::new(server)].marks & ASKED != 0;
    let now = busy.world.machine.now;
    let leaves = |busy: &mut Busy| {
        sched::leave_at(&mut busy.world.state, CpuIndex::new(1), now);
        sched::stay_ready(&mut busy.world.state, EnvIndex::new(server));
    };
    leaves(&mut busy);
    assert!(is_asked(&busy));
    sched::run(&mut busy.world.state, CpuIndex::new(1), EnvIndex::new(server), now);
    assert_eq!(busy.world.by(client, WAIT), Outcome::Left);
    leaves(&mut busy);
    assert!(!is_asked(&busy));
}
