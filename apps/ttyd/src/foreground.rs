//! Sending signals to process groups: one look at the published pages for all terminals.
//!
//! A look at all environments is long where their table is large, and whoever has a terminal may
//! type ^C there without end. So one look serves all terminals at which a signal waits when it
//! begins; it is done in pieces, between which all terminals are served; and after it comes a
//! pause, so that most of the processor is left to others. The console's signals wait for neither
//! pause nor the end of a look: they join it. A terminal takes no more input while a signal waits
//! there: behind it may be what is for whoever it wakes. What is told where a terminal was lost has
//! a place of its own in the look, whatever is typed at a later one of the number.
//!
//! ```text
//!  typed        ask ──▶ asked ──(begin)──▶ now ──▶ posted to whoever is met for the first time
//!  one look     rounds through the table, until one meets nobody for the first time
//! ```
//! A parent that makes a child meanwhile has the signal before its child is seen in the table, and
//! then begins its fork again; or after: then the child is met by a further round, as its place may
//! have been passed. What is made after a round has ended is no child of those times: it is met if
//! the next round, too, meets somebody.

use abi::error::Error;
use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState, Table};
use alloc::vec::Vec;
use core::mem::offset_of;
use unix::process_page::{MAGIC, Mark, ProcessPage};
use unix::tty::shared::{Control, TERMINALS};
use xok::call::{self, Refused};
use xok::clock;
use xok::keeping::Keeping;
use xok::published::{self, ApplicationPage};

/// Index of the capability over all users' names, given by init.
pub const PROCESSES: u8 = 2;

/// Places of terminals, by the numbers of their marks: that of none, the console's, the others'.
const MARKS: usize = 2 + TERMINALS;
/// Groups that have lost a terminal, and are told in one look: one at each that there is, and one
/// of each place for those that have gone (`crate::hung_up`).
const LOST: usize = 2 * TERMINALS;
/// Places of the table looked at in a step.
const PLACES: usize = 4096;
/// Processes told in a step.
const TOLD: usize = 64;
/// Rounds of a look: one finds what was made while the one before it went on.
const ROUNDS: usize = 16;
/// `SIGHUP` as a bit.
pub const HANG_UP: u64 = bit(1);
/// `SIGCONT` as a bit.
pub const GO_ON: u64 = bit(18);
/// Nanoseconds between a look and the next one, but for the console's.
const PAUSE_NS: u64 = 3_000_000;

/// A signal's bit.
const fn bit(signal: u8) -> u64 {
    1 << (signal - 1)
}

/// What a terminal's foreground is to be told.
#[derive(Clone, Copy, Default)]
struct Asked {
    mark: Mark,
    session: u32,
    group: u32,
    /// The signals; 0: nothing.
    bits: u64,
}

/// The signals of all terminals.
pub struct Signals {
    /// What was typed and waits for the next look, by the number of the terminal's mark.
    asked: [Asked; MARKS],
    /// What the look that goes on tells.
    now: [Asked; MARKS],
    /// What else it tells, or the next one, where terminals were lost: one may have the number of
    /// another one, where signals are typed all the time.
    lost: Vec<Asked>,
    /// Whom it has told, the last one at each place.
    told: Vec<u32>,
    /// The next place; 0: no look goes on.
    place: usize,
    rounds: usize,
    /// Has this round met anybody for the first time?
    fresh: bool,
    /// Those made later are not met in this round.
    made_ns: u64,
    /// No look begins before.
    due_ns: u64,
}

impl Signals {
    /// None, with the memory that a look takes.
    pub fn new() -> Result<Self, Refused> {
        let places = published::table(Table::Envs).count as usize;
        let (mut told, mut lost) = (Vec::new(), Vec::new());
        told.try_reserve_exact(places).map_err(|_| (Error::Exhausted, 0))?;
        told.resize(places, 0);
        lost.try_reserve_exact(LOST).map_err(|_| (Error::Exhausted, 0))?;
        let asked = [Asked::default(); MARKS];
        let (place, rounds, fresh, made_ns, due_ns) = (0, 0, false, 0, 0);
        Ok(Self { asked, now: asked, lost, told, place, rounds, fresh, made_ns, due_ns })
    }

    /// Has `signal` told to each process of the terminal `mark` that says it is in the foreground
    /// there. The claim is the process's own; the kernel checks that this server may post to it.
    pub fn ask(&mut self, mark: Mark, state: &Control, signal: u8) {
        if (1..=64).contains(&signal) {
            self.ask_for(mark, (state.session, state.foreground), bit(signal));
        }
    }

    /// The same of a group of any session.
    fn ask_for(&mut self, mark: Mark, (session, group): (u32, u32), bits: u64) {
        let Some(asked) = self.asked.get_mut(mark.number as usize) else { return };
        if group == 0 {
            return;
        }
        let same = (asked.mark, asked.session, asked.group) == (mark, session, group);
        let before = if same { asked.bits } else { 0 };
        *asked = Asked { mark, session, group, bits: before | bits };
    }

    /// Has a group of a session told that it has lost the terminal, and continued or not, unless a
    /// look goes on, or the next one is full; will it be?
    pub fn hang_up(&mut self, mark: Mark, (session, group): (u32, u32), goes_on: bool) -> bool {
        let is_taken = self.place == 0 && self.lost.len() < LOST;
        if is_taken {
            let bits = if goes_on { HANG_UP | GO_ON } else { HANG_UP };
            self.lost.push(Asked { mark, session, group, bits });
        }
        is_taken
    }

    /// Has a group of a session continued, unless another signal waits; will it be?
    pub fn let_go_on(&mut self, mark: Mark, group: (u32, u32)) -> bool {
        let waits = self.wait_at(mark);
        if !waits {
            self.ask_for(mark, group, GO_ON);
        }
        !waits
    }

    /// Does a signal typed at this terminal wait to be told?
    pub fn wait_at(&self, mark: Mark) -> bool {
        let at = mark.number as usize;
        let waits = |all: &[Asked; MARKS]| all.get(at).is_some_and(|one| one.bits != 0);
        waits(&self.asked) || waits(&self.now)
    }

    /// Does a piece of a look, if there is one to do; did it? There is more to do then: of the
    /// look, or what has waited for its end.
    pub fn step(&mut self) -> bool {
        let console = self.asked[Mark::CONSOLE.number as usize];
        if self.place == 0 {
            if !self.is_asked() || console.bits == 0 && clock::now_ns() < self.due_ns {
                return false;
            }
            self.now = core::mem::replace(&mut self.asked, [Asked::default(); MARKS]);
            self.told.fill(0);
            self.begin();
        } else if console.bits != 0 {
            // None of its signals is in this look: else it would take no input.
            self.now[Mark::CONSOLE.number as usize] = console;
            self.asked[Mark::CONSOLE.number as usize].bits = 0;
            self.begin();
        }
        self.look_on();
        true
    }

    /// When the next look begins; 0: nothing waits for it.
    pub fn due(&self) -> u64 {
        if self.place != 0 || self.is_asked() { self.due_ns.max(1) } else { 0 }
    }

    /// Waits anything for the next look?
    fn is_asked(&self) -> bool {
        !self.lost.is_empty() || self.asked.iter().any(|asked| asked.bits != 0)
    }

    fn begin(&mut self) {
        self.rounds = 0;
        self.begin_round(u64::MAX);
    }

    fn begin_round(&mut self, made_ns: u64) {
        (self.place, self.fresh, self.made_ns) = (1, false, made_ns);
    }

    /// Looks at some places, and tells some; those that are told here start when all of them are.
    fn look_on(&mut self) {
        let end = self.told.len().min(self.place + PLACES);
        let mut told = 0;
        let _keeping = Keeping::begin();
        while self.place < end && told < TOLD {
            told += usize::from(self.meet(self.place));
            self.place += 1;
        }
        if self.place < self.told.len() {
            return;
        }
        self.rounds += 1;
        if self.fresh && self.rounds < ROUNDS {
            self.begin_round(clock::now_ns());
            return;
        }
        self.now = [Asked::default(); MARKS];
        self.lost.clear();
        self.place = 0;
        self.due_ns = clock::now_ns() + PAUSE_NS;
    }

    /// What the look that goes on tells at terminals of a number.
    fn told_at(&self, number: u32) -> impl Iterator<Item = &Asked> {
        let typed = self.now.get(number as usize).filter(|asked| asked.bits != 0);
        typed.into_iter().chain(self.lost.iter().filter(move |one| one.mark.number == number))
    }

    /// Tells the process at a place, if it is one that is meant and was not told; was it told?
    fn meet(&mut self, index: usize) -> bool {
        let Some(page) = published::application(index) else { return false };
        if page.word(0) != MAGIC {
            return false;
        }
        let number = page.half(offset_of!(ProcessPage, terminal));
        if self.told_at(number).next().is_none() {
            return false;
        }
        // Its id first: if another one takes the place now, it is not told what is for this one.
        let Some(record) = published::record::<EnvRecord>(Table::Envs, index) else { return false };
        let is_there = record.id != 0 && record.state != EnvState::Dead as u32;
        if !is_there || record.born_ns > self.made_ns {
            return false;
        }
        let group = page.half(offset_of!(ProcessPage, group));
        let is_meant = |asked: &&Asked| has(page, asked.mark, asked.session);
        let asked = self.told_at(number).filter(|asked| asked.group == group);
        let bits = asked.filter(is_meant).fold(0, |bits, asked| bits | asked.bits);
        if bits == 0 {
            return false;
        }
        let Some(told) = self.told.get_mut(index).filter(|told| **told != record.id) else {
            return false;
        };
        if post(EnvId(record.id), bits) {
            *told = record.id;
            self.fresh = true;
        }
        true
    }
}

/// Posts signals to a process, and lets it go on if that is among them; was it there to be told?
pub fn post(id: EnvId, bits: u64) -> bool {
    let told = call::post(PROCESSES, id, bits).is_ok();
    if told && bits & GO_ON != 0 {
        // Refused when it has not stopped.
        let _ = call::env_release(PROCESSES, id);
    }
    told
}

/// The terminal that a process says is its session's.
fn mark_of(page: ApplicationPage) -> Mark {
    Mark {
        number: page.half(offset_of!(ProcessPage, terminal)),
        settings: page.word(offset_of!(ProcessPage, terminal_settings)),
    }
}

/// Does a process say itself that the terminal `mark` is its session's? Session and foreground in a
/// terminal's settings are the words of any program that has the terminal: they lead to no process
/// of another one, nor of one that had the number before.
pub fn has(page: ApplicationPage, mark: Mark, session: u32) -> bool {
    page.word(0) == MAGIC
        && mark_of(page) == mark
        && page.half(offset_of!(ProcessPage, session)) == session
}
