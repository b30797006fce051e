//! Whose session has a terminal: its leader says so in its page, and the settings alone do not.
//!
//! Any program that has the terminal open writes its settings. What they say of the session is
//! believed as far as it cannot hurt another one: a leader that says that it has the terminal has
//! it until it has ended or given it up, and its end is told once.

use abi::id::EnvId;
use abi::predicate::Atom;
use alloc::vec::Vec;
use unix::process_page::Mark;
use unix::tty::shared::Control;
use xok::published;

use crate::foreground::Signals;
use crate::hung_up::{self, leads};

/// A session and the group in its foreground.
type Group = (u32, u32);

/// What is known of the sessions of one terminal.
#[derive(Debug, Default)]
pub struct Leader {
    /// The last session whose leader was seen to have the terminal, and the foreground that the
    /// settings named then.
    led: Group,
    /// The last one of these whose end was noticed.
    ended: u32,
    /// Those that have lost the terminal and are not told yet: one of these, and one that only the
    /// settings named.
    untold: [Group; 2],
}

impl Leader {
    /// Has those told that have lost the terminal, as far as signals can be asked for.
    pub fn tell(&mut self, mark: Mark, signals: &mut Signals) {
        for group in &mut self.untold {
            if group.0 != 0 && signals.hang_up(mark, *group, false) {
                *group = (0, 0);
            }
        }
    }

    /// Takes what the settings say now of the session, and of the end of its leader.
    pub fn take_word(&mut self, mark: Mark, old: &Control, new: &Control) {
        let says = new.left.0 != 0 && new.left != old.left && !leads(mark, new.left.0);
        let is_anothers = ![0, new.session].contains(&old.session) && new.session != 0;
        if says {
            self.lose(new.left);
        } else if is_anothers && !published::env_lives(EnvId(old.session)) {
            self.lose((old.session, old.foreground));
        }
        let has_changed = old.session == self.led.0 && new.session != old.session;
        if has_changed && new.left == old.left && !leads(mark, self.led.0) {
            // It has given the terminal up, and lives on (`TIOCNOTTY`).
            self.led = (0, 0);
        }
    }

    /// Looks whether a leader has the terminal, and whether one has lost it that had it and of
    /// which the settings say nothing; has one, so that it is to be told?
    pub fn look(&mut self, mark: Mark, state: &Control) -> bool {
        let has_lost = self.is_elsewhere(state) && !leads(mark, self.led.0);
        if has_lost {
            // It ends: without the settings it has no terminal that it could give up.
            self.lose(self.led);
        }
        if state.session != 0 && self.led.0 == 0 && leads(mark, state.session) {
            self.led = (state.session, 0);
            if self.ended == state.session {
                self.ended = 0;
            }
        }
        // A session that has a terminal has had a foreground since.
        if state.session != 0 && self.led.0 == state.session && state.foreground != 0 {
            self.led.1 = state.foreground;
        }
        has_lost
    }

    /// Do the settings name another session than the one that was led, or none?
    fn is_elsewhere(&self, state: &Control) -> bool {
        self.led.0 != 0 && self.led.0 != state.session
    }

    /// A session has lost the terminal, as its leader has ended: its foreground is told with the
    /// next step, or look. Of each kind there is one at a time, whatever the settings say.
    pub fn lose(&mut self, group: Group) {
        let was_led = group.0 == self.led.0;
        let led = if was_led { core::mem::take(&mut self.led) } else { (0, 0) };
        if group.0 == self.ended {
            return;
        }
        if was_led {
            self.ended = group.0;
        }
        let foreground = if group.1 != 0 { group.1 } else { led.1 };
        if group.0 != 0 && foreground != 0 {
            self.untold[usize::from(!was_led)] = (group.0, foreground);
        }
    }

    /// The terminal goes, and its settings are these, behind those that were `seen`: the sessions
    /// that have it, as the settings and as a leader says, and those that are to be told of their
    /// leader's end.
    pub fn end(&mut self, mark: Mark, seen: &Control, state: &Control) -> [[Group; 2]; 2] {
        self.look(mark, seen);
        self.take_word(mark, seen, state);
        self.look(mark, state);
        let named = (state.session, state.foreground);
        let is_same = self.led.0 == state.session;
        let have = if is_same { [self.led, (0, 0)] } else { [named, self.led] };
        [have, core::mem::take(&mut self.untold)]
    }

    /// Adds what ends a sleep: the end of the leader, or of one that had the terminal.
    pub fn watch(&self, state: &Control, atoms: &mut Vec<Atom>) {
        let led = if self.is_elsewhere(state) { self.led.0 } else { 0 };
        let all = [state.session, led].into_iter().filter(|&session| session != 0);
        atoms.extend(all.map(hung_up::leader_ends));
    }
}
