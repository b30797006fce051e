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
use abi::predicate::Atom;
use alloc::vec::Vec;
use unix::process_page::Mark;
use unix::tty::shared::TERMINALS;
use xok::call::Refused;

use crate::foreground::{self, Signals};

/// A session that has lost its terminal.
#[derive(Clone, Copy, Debug)]
pub struct HungUp {
    /// The terminal.
    pub mark: Mark,
    /// The session.
    pub session: u32,
    /// The group that was in the foreground.
    pub group: u32,
    /// Is what it has stopped continued, too?
    pub goes_on: bool,
}

impl HungUp {
    fn tell(&self, signals: &mut Signals) -> bool {
        signals.hang_up(self.mark, (self.session, self.group), self.goes_on)
    }
}

/// Those whose foreground has not been told, at most as many as there may be terminals.
pub struct HungUps(Vec<HungUp>);

impl HungUps {
    /// None, with the memory for all.
    pub fn new() -> Result<Self, Refused> {
        let mut all = Vec::new();
        all.try_reserve_exact(TERMINALS).map_err(|_| (Error::Exhausted, 0))?;
        Ok(Self(all))
    }

    /// Adds one. If there is no room, the oldest one's foreground is told although its leader
    /// lives.
    pub fn add(&mut self, new: HungUp, signals: &mut Signals) {
        if new.session == 0 || new.group == 0 {
            return;
        }
        if self.0.len() == TERMINALS {
            let oldest = self.0.remove(0);
            oldest.tell(signals);
        }
        self.0.push(new);
    }

    /// Has those told whose leader has ended; are there others that wait for a signal of the same
    /// number's terminal to be told first?
    pub fn step(&mut self, signals: &mut Signals) -> bool {
        let mut waits = false;
        self.0.retain(|one| {
            if foreground::leads(one.mark, one.session) {
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
        atoms.extend(self.0.iter().map(|one| foreground::leader_ends(one.session)));
    }
}
