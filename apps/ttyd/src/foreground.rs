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
//!  a signal     looks through the table, until one meets nobody for the first time
//! ```
//! A parent that makes a child meanwhile has the signal before its child is seen in the table, and
//! then begins its fork again; or after: then the child is met by a further look, as its place may
//! have been passed. What is made after a look has ended is no child of those times: it is met if
//! the next look, too, meets somebody.
//!
//! Whoever likes makes thousands that say that they are in a foreground, and others all the time.
//! So what has come meanwhile begins with the next look, beside what needs further ones, and a look
//! tells no more than some of each account's.

use abi::error::Error;
use abi::id::{AccountId, EnvId};
use abi::published::{EnvRecord, EnvState, Table};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::Range;
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
/// Looks that tell a signal to all that they meet: one finds what was made since the one before it
/// began.
const ROUNDS: usize = 16;
/// Processes of one account that are told in a look.
const MANY: u16 = 128;
/// Looks in which a signal is told: more than tell all that there may be.
const LOOKS: u64 = 160;
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
    /// The look that told it first; 0: none yet.
    since: u64,
    /// Looks that have told all that they met.
    rounds: usize,
    /// Has this look met anybody for the first time?
    fresh: bool,
    /// Has it left anybody?
    leaves: bool,
    /// Those made later are not met in this look.
    made_ns: u64,
}

impl Asked {
    /// It is told from this look on.
    fn begin(&mut self, look: u64) {
        (self.since, self.made_ns) = (look, u64::MAX);
    }

    /// This look has ended; is it told to all?
    fn end_look(&mut self, look: u64, now: u64) -> bool {
        self.rounds += usize::from(!self.leaves);
        let goes_on = self.leaves || self.fresh && self.rounds < ROUNDS;
        (self.fresh, self.leaves, self.made_ns) = (false, false, now);
        !goes_on || look - self.since >= LOOKS
    }
}

/// Who was told last at a place.
#[derive(Clone, Copy, Default)]
struct Told {
    id: u32,
    /// In this look.
    look: u64,
}

/// The signals of all terminals.
pub struct Signals {
    /// What was typed and waits for the next look, by the number of the terminal's mark.
    asked: [Asked; MARKS],
    /// What the look that goes on tells, and what the next one tells on.
    now: [Asked; MARKS],
    /// What else it tells, or the next one, where terminals were lost: one may have the number of
    /// another one, where signals are typed all the time.
    lost: Vec<Asked>,
    /// Whom it has told, the last one at each place.
    told: Vec<Told>,
    /// How many of each account this look has told, by place.
    spent: Vec<u16>,
    /// Which look goes on, or was the last one.
    look: u64,
    /// The next place; 0: no look goes on.
    place: usize,
    /// No look begins before.
    due_ns: u64,
}

impl Signals {
    /// None, with the memory that a look takes.
    pub fn new() -> Result<Self, Refused> {
        let (told, spent) = (places(Table::Envs)?, places(Table::Accounts)?);
        let mut lost = Vec::new();
        lost.try_reserve_exact(LOST).map_err(|_| (Error::Exhausted, 0))?;
        let asked = [Asked::default(); MARKS];
        let (look, place, due_ns) = (0, 0, 0);
        Ok(Self { asked, now: asked, lost, told, spent, look, place, due_ns })
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
        *asked = Asked { mark, session, group, bits: before | bits, ..Asked::default() };
    }

    /// Has a group of a session told that it has lost the terminal, and continued or not, unless a
    /// look goes on, or the next one is full; will it be?
    pub fn hang_up(&mut self, mark: Mark, (session, group): (u32, u32), goes_on: bool) -> bool {
        let is_taken = self.place == 0 && self.lost.len() < LOST;
        if is_taken {
            let bits = if goes_on { HANG_UP | GO_ON } else { HANG_UP };
            self.lost.push(Asked { mark, session, group, bits, ..Asked::default() });
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
        let console = Mark::CONSOLE.number as usize;
        let is_typed = self.asked[console].bits != 0 && self.now[console].bits == 0;
        if self.place == 0 {
            if !self.is_asked() || !is_typed && clock::now_ns() < self.due_ns {
                return false;
            }
            self.begin(0..MARKS);
        } else if is_typed {
            self.begin(console..console + 1);
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
        let mut all = self.asked.iter().chain(&self.now);
        !self.lost.is_empty() || all.any(|asked| asked.bits != 0)
    }

    /// Begins a look, which tells what is asked for at these terminals, too.
    fn begin(&mut self, marks: Range<usize>) {
        (self.look, self.place) = (self.look + 1, 1);
        self.spent.fill(0);
        for mark in marks {
            if self.now[mark].bits == 0 {
                self.now[mark] = core::mem::take(&mut self.asked[mark]);
                self.now[mark].begin(self.look);
            }
        }
        self.lost.iter_mut().filter(|one| one.since == 0).for_each(|one| one.begin(self.look));
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
        self.place = 0;
        let (look, now) = (self.look, clock::now_ns());
        self.due_ns = now + PAUSE_NS;
        for asked in self.now.iter_mut().filter(|asked| asked.bits != 0) {
            if asked.end_look(look, now) {
                *asked = Asked::default();
            }
        }
        self.lost.retain_mut(|one| !one.end_look(look, now));
        // Others' places are kept free.
        self.lost.truncate(LOST / 2);
    }

    /// Tells the process at a place, if it is one that is meant and was not told; was it told?
    fn meet(&mut self, index: usize) -> bool {
        let Some(page) = published::application(index) else { return false };
        if page.word(0) != MAGIC {
            return false;
        }
        let number = page.half(offset_of!(ProcessPage, terminal));
        if told_at(&self.now, &self.lost, number).next().is_none() {
            return false;
        }
        // Its id first: if another one takes the place now, it is not told what is for this one.
        let Some(record) = published::record::<EnvRecord>(Table::Envs, index) else { return false };
        if record.id == 0 || record.state == EnvState::Dead as u32 {
            return false;
        }
        let group = page.half(offset_of!(ProcessPage, group));
        let look = self.look;
        let Some(told) = self.told.get_mut(index) else { return false };
        let seen = if told.id == record.id { told.look } else { 0 };
        let is_new = |asked: &Asked| asked.since > seen && record.born_ns <= asked.made_ns;
        let is_meant = |asked: &Asked| has(page, asked.mark, asked.session);
        let is_for = |asked: &Asked| asked.group == group && is_new(asked) && is_meant(asked);
        let asked = told_at(&self.now, &self.lost, number).filter(|asked| is_for(asked));
        let bits = asked.fold(0, |bits, asked| bits | asked.bits);
        if bits == 0 {
            return false;
        }
        let Some(spent) = self.spent.get_mut(AccountId(record.account).index()) else {
            return false;
        };
        let leaves = *spent >= MANY;
        let is_met = if leaves {
            false
        } else {
            *spent += 1;
            // One that can be told nothing, as it has nowhere to run yet, is not asked again.
            *told = Told { id: record.id, look };
            post(EnvId(record.id), bits)
        };
        let all = self.now.get_mut(number as usize).into_iter().chain(&mut self.lost);
        for asked in all.filter(|asked| is_for(asked)) {
            asked.fresh |= is_met;
            asked.leaves |= leaves;
        }
        !leaves
    }
}

/// Something for each place of a table.
fn places<T: Clone + Default>(table: Table) -> Result<Vec<T>, Refused> {
    let count = published::table(table).count as usize;
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| (Error::Exhausted, 0))?;
    all.resize(count, T::default());
    Ok(all)
}

/// What the look that goes on tells at terminals of a number.
fn told_at<'a>(
    now: &'a [Asked; MARKS],
    lost: &'a [Asked],
    number: u32,
) -> impl Iterator<Item = &'a Asked> {
    let typed = now.get(number as usize).filter(|asked| asked.bits != 0);
    typed.into_iter().chain(lost.iter().filter(move |one| one.mark.number == number))
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
