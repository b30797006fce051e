//! Clients of a server that runs on another processor: whose place is it that a processor notes?

use super::*;

const LENT: u64 = 4 * crate::busy::ASKS_NS;

/// A client on the first processor asks for the server, which runs on the second one, and lends its
/// slice.
fn lending() -> Busy {
    let mut busy = Busy::new();
    let (client, server, thief) = (busy.client, busy.server, busy.sleeps);
    busy.world.state.sched.online = 3;
    busy.run(client);
    busy.world.on(1, server);
    busy.world.state.envs.slots[EnvIndex::new(client)].flags |= FLAG_BORROW as u8;
    assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
    busy.wake(thief);
    assert_eq!(busy.world.pick(0), thief);
    busy
}

/// The server answers the one that it has worked for, which runs then.
fn answers(busy: &mut Busy) {
    let (server, first) = (busy.server, busy.first);
    let ends = Outcome::Enter(EnvIndex::new(first));
    assert_eq!(busy.by_the_other(server, first, TRANSFER_REPLY), ends);
}

/// As `transfer`, by one that runs on the third processor.
fn by_a_third(busy: &mut Busy, from: usize) -> Outcome {
    let word = busy.word(busy.server, TRANSFER_WAIT);
    busy.world.raw(2, from, Call::TransferSync {}, word)
}

/// Whoever borrows a client's slice does not come in that one's place, nor end it by its call.
#[test]
fn borrowers_do_not_come_in_the_place_of_lenders() {
    let mut busy = lending();
    let (first, client, server, thief) = (busy.first, busy.client, busy.server, busy.sleeps);
    busy.world.machine.now += 5_000;
    answers(&mut busy);
    assert_eq!(busy.by_the_other(first, server, 0), error(Error::Busy, 0));
    assert_eq!(busy.transfer(thief, server, TRANSFER_WAIT), error(Error::Busy, 0));
    assert_eq!(busy.world.by(thief, WAIT), Outcome::Left);
    busy.is_taken(client);
}

/// The same where it asks while the server still runs, or calls another server.
#[test]
fn borrowers_end_no_lenders_place() {
    for other in [false, true] {
        let mut busy = lending();
        let (first, client, server, thief) = (busy.first, busy.client, busy.server, busy.sleeps);
        busy.world.machine.now += 5_000;
        if other {
            let runs = busy.computes;
            busy.world.on(2, runs);
            assert_eq!(busy.transfer(thief, runs, TRANSFER_WAIT), error(Error::Busy, 0));
        } else {
            assert_eq!(busy.transfer(thief, server, TRANSFER_WAIT), error(Error::Busy, 0));
        }
        answers(&mut busy);
        assert_eq!(busy.by_the_other(first, server, 0), error(Error::Busy, 0));
        assert_eq!(busy.world.by(thief, WAIT), Outcome::Left);
        assert_eq!(busy.by_the_other(first, server, 0), error(Error::Busy, 0));
        busy.is_taken(client);
    }
}

/// A client that lends its slice for long keeps nobody out meanwhile, but comes before those that
/// have begun to ask then; unless it asks no more when the loan is over.
#[test]
fn lenders_keep_their_seniority() {
    for late in [false, true] {
        let mut busy = lending();
        let (first, client, server) = (busy.first, busy.client, busy.server);
        let (thief, other) = (busy.sleeps, busy.computes);
        answers(&mut busy);
        assert_eq!(busy.by_the_other(first, server, 0), error(Error::Busy, 0));
        busy.world.machine.now += LENT;
        let ends = Outcome::Enter(EnvIndex::new(server));
        assert_eq!(busy.by_the_other(first, server, 0), ends, "nobody waits for a lender");
        busy.world.on(2, other);
        assert_eq!(by_a_third(&mut busy, other), error(Error::Busy, 0));
        busy.world.machine.now += 1_000;
        assert_eq!(busy.world.by(thief, WAIT), Outcome::Left);
        assert_eq!(busy.world.pick(0), client);
        for _ in 0..2 {
            busy.world.machine.now += if late { crate::busy::ASKS_NS / 2 } else { 1_000 };
            assert_eq!(by_a_third(&mut busy, other), error(Error::Busy, 0));
        }
        assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
        answers(&mut busy);
        if late {
            assert_eq!(busy.transfer(client, server, TRANSFER_WAIT), error(Error::Busy, 0));
            assert_eq!(by_a_third(&mut busy, other), ends);
        } else {
            assert_eq!(by_a_third(&mut busy, other), error(Error::Busy, 0));
            busy.is_taken(client);
        }
    }
}

/// A client that is refused as another one has asked longer keeps others out for no longer than
/// that one: the server is idle.
#[test]
fn a_turn_refused_keeps_others_out_no_longer() {
    let mut busy = served_elsewhere();
    let (first, server, other) = (busy.first, busy.server, busy.computes);
    busy.world.state.sched.online = 3;
    busy.world.on(2, other);
    busy.world.machine.now += crate::busy::ASKS_NS - 1_000;
    assert_eq!(busy.by_the_other(first, server, TRANSFER_WAIT), error(Error::Busy, 0));
    busy.world.machine.now += 1_000;
    assert_eq!(by_a_third(&mut busy, other), Outcome::Enter(EnvIndex::new(server)));
}

/// A call that needs no answer does not come before a client that asks, either.
#[test]
fn messages_do_not_come_first() {
    let mut busy = served_elsewhere();
    let (first, client, server) = (busy.first, busy.client, busy.server);
    let at = EnvIndex::new(server);
    busy.world.state.envs.slots[at].entries.asynchronous = 0x5000;
    let row = u64::from(Call::TransferAsync {}.encode().0);
    let word = row | u64::from(busy.world.id(server).0) << 32;
    let message = |busy: &mut Busy| busy.world.raw(1, first, Call::TransferAsync {}, word);
    assert_eq!(message(&mut busy), error(Error::Busy, 0));
    assert_eq!(busy.world.by(client, WAIT), Outcome::Left);
    assert_eq!(message(&mut busy), Outcome::Enter(at));
}
