//! Loans: those woken by events run on the slice of an environment that lends it.
//!
//! ```text
//!   slice of the lender ──┐ woken: borrows  ┌── the lender goes on, its slice as much longer
//!                         └── loan ─────────┘
//!        the loan: the borrower ─► a server that it calls ─► the borrower     its account owes it
//!                                  a server that it yields to ─► the server's client: a loan
//!                                  of its own, if it may borrow; else the lender goes on
//! ```
//! An account may borrow a slice in each round, and its next turn is as much shorter. What a server
//! does for a client the client's account owes, also on a loan of another one's.
//!
//! A server that is preempted in the midst of a request goes on with it in a turn of its own
//! account's. The reply gives the client none of that turn: the client borrows, or waits for its
//! own turn. Else a client that makes requests without end would have the server's turns as well.

use crate::account::Accounts;
use crate::env::{self, Env, Pending};
use crate::index::{AccountIndex, CpuIndex, EnvIndex};
use crate::list::{self, Kind};
use crate::sched::{Cpu, SHORTEST_NS, has_no_turn, leave_at, lends, run, stay_ready};
use crate::state::State;
use crate::turns::{OnEach, account_of, alone, owes_a_turn};
use abi::limits::{DONATIONS, SLICE_NS, WORK_PIECES};
use abi::published::EnvState;

/// A borrower has left: the lender goes on with its slice.
#[inline(always)]
pub(crate) fn give_back(state: &mut State, cpu: CpuIndex, now: u64) {
    let lender = EnvIndex::from(core::mem::take(&mut state.sched.cpus[cpu].lender));
    let time_left = now < state.sched.cpus[cpu].slice_end_ns;
    if lender != EnvIndex::NONE && time_left && state.envs.slots[lender].state == EnvState::Ready {
        run(state, cpu, lender, now);
    }
}

/// Whoever an event has woken starts at once, if the one that runs lends its slice.
#[inline(always)]
pub(crate) fn borrow(state: &mut State, cpu: CpuIndex, now: u64) {
    let this = &state.sched.cpus[cpu];
    let current = EnvIndex::from(this.current);
    if current == EnvIndex::NONE || this.lender != 0 || !lends(state, current) {
        return;
    }
    for _ in 0..WORK_PIECES {
        let index = EnvIndex::from(state.sched.cpus[cpu].front);
        if index == EnvIndex::NONE {
            return;
        }
        let front = &mut state.sched.cpus[cpu].front;
        list::remove(&mut state.envs.slots, front, Kind::Front, index);
        let left = may_borrow(state, cpu, index);
        if state.envs.slots[index].state == EnvState::Ready && left >= SHORTEST_NS {
            leave_at(state, cpu, now);
            stay_ready(state, current);
            run(state, cpu, index, now);
            let account = account_of(state, index);
            let this = &mut state.sched.cpus[cpu];
            (this.lender, this.borrower) = (current.link(), account.link());
            this.awaits[1] = 0;
            this.borrow_end_ns = now + left;
            return;
        }
    }
}

/// Does the environment at `index` go on at once? The server has replied to it and has just left
/// `cpu`, having worked for it for `ran`. Time that another account has borrowed is not for the
/// client, nor is a turn of the server's account: the client goes on as one that an event has
/// woken, on time of its own, if it may borrow. Its account owes what the server has done for it in
/// such a turn.
pub(crate) fn goes_on(
    state: &mut State,
    cpu: CpuIndex,
    (server, index): (EnvIndex, EnvIndex),
    (now, ran): (u64, u64),
) -> bool {
    if is_clients(state, cpu, server, index) {
        return true;
    }
    let account = account_of(state, index);
    let is_servers = state.sched.cpus[cpu].lender == 0;
    if is_servers && !alone(state, cpu, account) && !owes_a_turn(state, cpu, account) {
        owes(&mut state.accounts, account, cpu, ran);
    }
    let left = may_borrow(state, cpu, index);
    if left < SHORTEST_NS || has_no_turn(state, index) {
        return false;
    }
    let this = &mut state.sched.cpus[cpu];
    if is_servers {
        this.lender = server.link();
    }
    (this.borrower, this.borrow_end_ns) = (account.link(), now + left);
    this.awaits[1] = 0;
    true
}

/// Is the time on which the server runs the client's, too? Not what another account has borrowed,
/// nor a turn of the server's account.
#[inline(always)]
pub(crate) fn is_clients(state: &State, cpu: CpuIndex, server: EnvIndex, client: EnvIndex) -> bool {
    let this = &state.sched.cpus[cpu];
    match this.lender {
        0 => !is_turn_of(state, cpu, server, client),
        _ => this.borrower == account_of(state, client).link(),
    }
}

/// Is the turn the server's account's, and the client, or the one that this works for, of another
/// account?
#[inline(always)]
pub(crate) fn is_turn_of(state: &State, cpu: CpuIndex, server: EnvIndex, client: EnvIndex) -> bool {
    let account = account_of(state, server);
    state.sched.cpus[cpu].account == account.link() && works_for_another(state, client, account)
}

#[inline(never)]
fn works_for_another(state: &State, client: EnvIndex, account: AccountIndex) -> bool {
    let first = client_of(state, client).unwrap_or(client);
    account_of(state, first) != account
}

/// Does the environment at `index`, which an event has woken, start on `cpu` before its turn?
#[inline]
pub(crate) fn may_start(state: &State, cpu: CpuIndex, index: EnvIndex) -> bool {
    let this = &state.sched.cpus[cpu];
    this.lender == 0
        && lends(state, this.current.into())
        && may_borrow(state, cpu, index) >= SHORTEST_NS
}

/// How long the environment at `index` may run on borrowed time.
fn may_borrow(state: &State, cpu: CpuIndex, index: EnvIndex) -> u64 {
    let account = account_of(state, index);
    let debt_ns = state.envs.slots[index].debt_ns;
    left_to_borrow(debt_ns, &state.accounts.records[account].turns, cpu)
}

/// As [`charge`], of one that serves no client, has borrowed the time itself and is in a ring: its
/// account is in the round.
#[inline(always)]
pub(crate) fn charge_borrower(
    accounts: &mut Accounts,
    (this, cpu): (&mut Cpu, CpuIndex),
    (env, account): (&mut Env, AccountIndex),
    ran: u64,
) {
    this.slice_end_ns += ran;
    env.debt_ns = env.debt_ns.saturating_add(ran as u32);
    if this.in_round != 1 {
        owes(accounts, account, cpu, ran);
    }
}

#[inline(always)]
fn owes(accounts: &mut Accounts, account: AccountIndex, cpu: CpuIndex, ran: u64) {
    let debt = &mut accounts.records[account].turns[cpu].debt_ns;
    *debt = debt.saturating_add(ran as u32);
}

/// The environment at `index` leaves the processor, having run for `ran` on time that is borrowed:
/// the lender's slice is as much longer, and the next turn of an account as much shorter. Before
/// anything else is done, which may take another account into the round.
///
/// A server's time is owed by the client that it works for, not by one that has lent the server
/// its time to have it ready sooner; but by the borrower as soon as the client's account owes a
/// whole turn: no more is borrowed in a round than a slice for each account.
#[cold]
#[inline(never)]
pub(crate) fn charge(state: &mut State, cpu: CpuIndex, index: EnvIndex, ran: u64) {
    state.sched.cpus[cpu].slice_end_ns += ran;
    let borrower = AccountIndex::from(state.sched.cpus[cpu].borrower);
    // A server owes nothing itself.
    if borrower == account_of(state, index) {
        let env = &mut state.envs.slots[index];
        env.debt_ns = env.debt_ns.saturating_add(ran as u32);
    }
    if !alone(state, cpu, borrower) {
        let client = client_of(state, index).map(|client| account_of(state, client));
        let owes_less = |&at: &AccountIndex| !owes_a_turn(state, cpu, at);
        let payer = client.filter(owes_less).unwrap_or(borrower);
        owes(&mut state.accounts, payer, cpu, ran);
    }
}

/// The same for one that leaves at `now` by the short way of a transfer.
#[inline(never)]
pub(crate) fn give_back_at(state: &mut State, cpu: CpuIndex, index: EnvIndex, now: u64) {
    let ran = now.saturating_sub(state.sched.cpus[cpu].since_ns);
    charge(state, cpu, index, ran);
}

/// The environment that a server works for: the client of its client, if that is a server itself.
pub(crate) fn client_of(state: &State, index: EnvIndex) -> Option<EnvIndex> {
    let (mut server, mut found) = (index, None);
    for _ in 0..DONATIONS {
        let client = EnvIndex::from(state.envs.slots[server].client);
        let waits_for = state.published.envs[client].donated_to;
        let is_served = state.envs.slots[client].pending == Pending::Reply;
        if client == EnvIndex::NONE || !is_served || waits_for != env::id(state, server).0 {
            break;
        }
        (server, found) = (client, Some(client));
    }
    found
}

/// How long one may borrow for that owes so much itself, beside what its account does.
#[inline(always)]
pub(crate) fn left_to_borrow(debt_ns: u32, turns: &OnEach, cpu: CpuIndex) -> u64 {
    SLICE_NS.saturating_sub(debt_ns.max(turns[cpu].debt_ns).into())
}

/// How long its account may borrow for; 0: not now.
#[cfg(test)]
pub(crate) fn credit(state: &State, cpu: CpuIndex, index: EnvIndex) -> u64 {
    let account = account_of(state, index);
    let debt = u64::from(state.accounts.records[account].turns[cpu].debt_ns);
    let left = SLICE_NS.saturating_sub(debt);
    if left < SHORTEST_NS { 0 } else { left }
}
