//! A reply in a turn of the server's account: the client gets a loan, and nothing of the turn.

use super::crowds::transfer_word;
use super::turns::{process, sleep_for_ever, user};
use super::*;
use abi::call::{TRANSFER_REPLY, number};
use abi::limits::SLICE_NS;

const CPU: CpuIndex = CpuIndex::new(0);

/// A server of one account in the midst of a request of another account's client, whose slice is
/// over; and a program of a third account that computes.
struct Request {
    world: World,
    server: usize,
    client: usize,
    program: usize,
    /// A second process of the server's account.
    sibling: usize,
    /// A second process of the client's account.
    other: usize,
    /// A server of a fourth account.
    called: usize,
}

impl Request {
    fn new() -> Self {
        let mut world = World::of(8192);
        let [computing, asking, serving, called] = [(); 4].map(|()| user(&mut world));
        let program = process(&mut world, computing);
        let [client, other] = [(); 2].map(|()| process(&mut world, asking));
        let [server, sibling] = [(); 2].map(|()| process(&mut world, serving));
        let called = process(&mut world, called);
        [server, called].iter().for_each(|&index| accept(&mut world, index));
        mask(&mut world, sibling);
        sleep_for_ever(&mut world, 1);
        let mut all = Self { world, server, client, program, sibling, other, called };
        all.until(client);
        all.call(client, server, 0);
        all.pass_slice();
        all
    }

    /// Lets others compute until the environment at `index` runs.
    fn until(&mut self, index: usize) {
        for _ in 0..64 {
            if self.world.pick(0) == index {
                return;
            }
            self.pass_slice();
        }
        panic!("{index} never runs");
    }

    fn pass_slice(&mut self) {
        let end = self.world.state.sched.cpus[CPU].end_ns();
        self.world.machine.now = self.world.machine.now.max(end);
    }

    fn call(&mut self, from: usize, to: usize, bits: u64) {
        let word = transfer_word(&self.world, to, bits);
        self.world.raw(0, from, Call::TransferSync {}, word);
    }

    /// The server replies; the client goes on by what its account borrows.
    fn reply_is_a_loan(&mut self) {
        self.world.machine.now += SLICE_NS / 10;
        self.call(self.server, self.client, TRANSFER_REPLY);
        assert_eq!(self.world.pick(0), self.client);
        let this = &self.world.state.sched.cpus[CPU];
        let account = crate::turns::account_of(&self.world.state, EnvIndex::new(self.client));
        assert_eq!((usize::from(this.lender), this.borrower), (self.server, account.link()));
    }
}

fn accept(world: &mut World, index: usize) {
    mask(world, index);
    let call = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 1 };
    assert_eq!(world.by(index, call), Outcome::Left);
}

/// Also where the server has slept in the midst of the request, and been woken.
#[test]
fn a_server_that_has_slept_gives_its_client_no_turn() {
    let mut all = Request::new();
    all.until(all.server);
    let sleep = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };
    assert_eq!(all.world.by(all.server, sleep), Outcome::Left);
    all.until(all.program);
    let env = all.world.id(all.server);
    assert_eq!(all.world.by(all.program, Call::Post { env, bits: 1 }), OK);
    all.until(all.server);
    all.reply_is_a_loan();
}

/// A process of the server's account yields to it, by the short way and by the long one.
#[test]
fn a_server_that_is_yielded_to_gives_its_client_no_turn() {
    for short in [false, true] {
        let mut all = Request::new();
        all.until(all.sibling);
        let to = all.world.id(all.server);
        if short {
            all.world.state.settled = true;
            let (state, machine) = (&mut all.world.state, &mut all.world.machine);
            let caller = (CPU, EnvIndex::new(all.sibling));
            let word = u64::from(number::Yield);
            let plan = crate::handover::check(state, machine, caller, word, u64::from(to.0));
            let plan = plan.expect("a yield by the short way");
            crate::handover::apply(state, machine, caller, number::Yield, &plan);
        } else {
            assert_eq!(all.world.by(all.sibling, Call::Yield { to }), Outcome::Left);
        }
        assert_eq!(all.world.pick(0), all.server);
        all.reply_is_a_loan();
    }
}

/// A server that calls another one in its own turn, and is there again at the end of each slice,
/// has no second one.
#[test]
fn a_turn_is_one_slice_whatever_server_a_server_calls() {
    let mut all = Request::new();
    all.until(all.server);
    let begin = all.world.machine.now;
    let account = crate::turns::account_of(&all.world.state, EnvIndex::new(all.server));
    let called = all.called;
    for _ in 0..8 {
        let end = all.world.state.sched.cpus[CPU].end_ns();
        all.call(all.server, called, 0);
        assert_eq!(all.world.pick(0), called);
        all.world.machine.now = end - 200_000;
        all.call(called, all.server, TRANSFER_REPLY);
        assert_eq!(all.world.pick(0), all.server);
        all.world.machine.now = end;
        if all.world.pick(0) == all.server {
            // Its events are masked: the end is put off once.
            let put_off = all.world.state.sched.cpus[CPU].end_ns() - end;
            assert!(put_off <= sched::CRITICAL_NS, "{put_off} ns more");
            all.pass_slice();
        }
        assert_ne!(all.world.pick(0), all.server, "the turn is over");
        all.until(all.server);
    }
    let turns = all.world.machine.now - begin;
    assert!(turns >= 16 * SLICE_NS, "{turns} ns for eight turns of one of several accounts");
    let debt = all.world.state.accounts.records[account].turns[CPU].debt_ns;
    assert!(u64::from(debt) <= SLICE_NS, "it owes {debt} ns");
}

/// A server that never replies takes no more than its own turns and its client's: another process
/// of the client's account has a quarter.
#[test]
fn a_server_that_never_replies_takes_no_turns_of_an_account() {
    let mut all = Request::new();
    let ran = |all: &Request| all.world.state.published.envs[all.other].run_ns;
    // Two accounts are left: the client's and the server's.
    sleep_for_ever(&mut all.world, all.sibling);
    sleep_for_ever(&mut all.world, all.program);
    let (begin, before) = (all.world.machine.now, ran(&all));
    for _ in 0..200 {
        all.pass_slice();
        all.world.pick(0);
    }
    let share = (ran(&all) - before) * 100 / (all.world.machine.now - begin);
    assert!(share >= 24, "{share} of 100");
}
