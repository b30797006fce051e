//! Sessions that have lost their terminal: the foreground is told when the leader has ended.
//!
//! ```text
//!  the leader ended ─────────────────────────────────────────────────────▶ SIGHUP
//!  the master was closed ──▶ SIGHUP to the leader ──▶ kept until it ends ──▶ SIGHUP and SIGCONT
//! ```
//! A leader whose terminal was hung up may handle that and live on: its foreground hears nothing
//! until it ends. This server tells the foreground, not the leader, as it may be another user's:
//! what `su` runs, say. Linux tells the same (drivers/tty/tty_jobctrl.c, `disassociate_ctty`).

use abi::error::Error;
use abi::id::{AccountId, EnvId};
use abi::predicate::{Atom, Operator};
use abi::published::EnvRecord;
use alloc::vec::Vec;
use core::mem::offset_of;
use unix::process_page::Mark;
use unix::tty::shared::TERMINALS;
use xok::call::Refused;
use xok::published;

use crate::foreground::{self, GO_ON, HANG_UP, Signals};

/// A session that has lost its terminal.
#[derive(Clone, Copy, Debug)]
struct HungUp {
    mark: Mark,
    session: u32,
    /// The group that was in the foreground.
    group: u32,
    /// Was the master closed? Then the leader may live on, and what it has stopped is continued,
    /// too. Else the leader has ended.
    closed: bool,
}

impl HungUp {
    fn tell(&self, signals: &mut Signals) -> bool {
        signals.hang_up(self.mark, (self.session, self.group), self.closed)
    }
}

/// The account that pays for a session's leader, if that lives and has the terminal: what a program
/// says of other sessions counts for none.
fn payer(one: &HungUp) -> AccountId {
    let domain = published::env_domain(EnvId(one.session));
    let domain = domain.filter(|_| leads(one.mark, one.session));
    domain.and_then(published::domain_account).unwrap_or(AccountId::NONE)
}

/// Those whose foreground has not been told.
pub struct HungUps {
    /// At most as many as there may be terminals.
    all: Vec<HungUp>,
    /// Those that have given way to others, and wait for a look to end; as many at most.
    due: Vec<HungUp>,
}

impl HungUps {
    /// None, with the memory for all.
    pub fn new() -> Result<Self, Refused> {
        let (mut all, mut due) = (Vec::new(), Vec::new());
        all.try_reserve_exact(TERMINALS).map_err(|_| (Error::Exhausted, 0))?;
        due.try_reserve_exact(TERMINALS).map_err(|_| (Error::Exhausted, 0))?;
        Ok(Self { all, due })
    }

    /// Adds a session, with the group that was in the foreground of the terminal `mark`. If there
    /// is no room, a foreground is told although its leader lives: the oldest one of the account
    /// that has the most.
    pub fn add(&mut self, mark: Mark, (session, group): (u32, u32), closed: bool) {
        if session == 0 || group == 0 {
            return;
        }
        if self.all.len() == TERMINALS {
            let oldest = self.all.remove(self.oldest_of_most());
            // One more than a look's is not told.
            if self.due.len() < TERMINALS {
                self.due.push(oldest);
            }
        }
        self.all.push(HungUp { mark, session, group, closed });
    }

    /// The place of the oldest one of the account that has the most.
    fn oldest_of_most(&self) -> usize {
        let payers: [_; TERMINALS] =
            core::array::from_fn(|at| self.all.get(at).map_or(AccountId::NONE, payer));
        let has = |at: &usize| payers.iter().filter(|&&payer| payer == payers[*at]).count();
        // Of several that are the greatest this is the last one.
        (0..TERMINALS).rev().max_by_key(has).unwrap_or(0)
    }

    /// Has those told whose leader has ended; are there others that wait for a look to end?
    pub fn step(&mut self, signals: &mut Signals) -> bool {
        self.due.retain(|one| !one.tell(signals));
        let mut waits = !self.due.is_empty();
        self.all.retain(|one| {
            if one.closed && leads(one.mark, one.session) {
                return true;
            }
            let told = one.tell(signals);
            waits |= !told;
            !told
        });
        waits
    }

    /// Adds what ends a sleep: the end of a leader.
    pub fn watch(&self, atoms: &mut Vec<Atom>) {
        atoms.extend(self.all.iter().map(|one| leader_ends(one.session)));
    }
}

/// Does the leader of a session live, and say that it has the terminal `mark`?
pub fn leads(mark: Mark, session: u32) -> bool {
    let leader = EnvId(session);
    let page = published::application(leader.index());
    published::env_lives(leader) && page.is_some_and(|page| foreground::has(page, mark, session))
}

/// What ends a sleep when the leader of a session has ended: at once if it has already.
pub fn leader_ends(session: u32) -> Atom {
    let leader = EnvId(session);
    // First, and then whether it lives: the kernel changes the state first, and this behind it.
    let sequence = published::env_sequence(leader).filter(|_| published::env_lives(leader));
    let offset = offset_of!(EnvRecord, sequence);
    let seen = sequence.unwrap_or(u64::MAX);
    published::env_word_atom(leader, offset, Operator::NotEqual, seen)
}

/// Tells the leader of a session that its terminal is hung up, if it lives and has that terminal.
pub fn hang_up_leader(mark: Mark, session: u32) {
    if leads(mark, session) {
        foreground::post(EnvId(session), HANG_UP | GO_ON);
    }
}
