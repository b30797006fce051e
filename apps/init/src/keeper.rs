//! Keeps the servers: starts one again that has ended, stopped or hangs, as it was started first.
//!
//! The dead one's record is kept until the next one is published: until then no other environment
//! can have the id that clients ask. Nothing here needs memory of init's own heap but what
//! `xok::spawn` asks for, and that may fail: then the server is started later.
//!
//! ```text
//!  ends or stops    the kernel tells (`EVENT_CHILD`)
//!  hangs            asked for a heartbeat (`xok::beat`), it has run, or slept, too long without
//! ```

use abi::id::{AccountId, DomainId, EnvId, Frame, RegionId};
use abi::memory::ANY_FRAME;
use abi::published::{EnvRecord, EnvState};
use alloc::vec::Vec;
use core::fmt;
use image::elf::Plan;
use xok::call::{self, OWN, Refused};
use xok::services::Service;
use xok::spawn::{self, Gift};
use xok::{beat, clock, published};

use crate::payer;
use crate::programs::Image;
use crate::publish;
use crate::terminal::Terminal;

/// Nanoseconds between two questions.
const ASK_NS: u64 = 1_000_000_000;
/// Nanoseconds of processor time within which a server that was asked must have beaten.
const RUN_NS: u64 = 2_000_000_000;
/// Nanoseconds within which it must have if it is not kept from running.
const SLEEP_NS: u64 = 5_000_000_000;
/// Nanoseconds before a server that has just been started is started again; twice as long each
/// time.
const PAUSE_NS: u64 = 50_000_000;
/// The longest pause.
const PAUSE_MAX_NS: u64 = 5_000_000_000;
/// Lives of a server: file numbers tell so many apart.
const LIVES: u64 = unix::tree::LIVES;
/// In which role a server has its notes: one that reads and writes.
const NOTES: u16 = 0;
/// Digits of a number.
const DIGITS: usize = 20;

/// What a server's domain is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Nothing.
    Nothing,
    /// The terminal, and the table of others.
    Terminal,
    /// The table of terminals.
    Table,
    /// A region of its own, where it finds again in its next life what it has noted; its start
    /// block says which.
    Notes,
}

/// A server, as it is started each time.
#[derive(Debug)]
pub struct Server {
    /// Its name, below /xok in the image.
    pub name: &'static str,
    /// The word of init's page that names its environment.
    pub service: Service,
    /// What it holds.
    pub gifts: &'static [Gift<'static>],
    /// What it is attached to.
    pub attach: Attach,
    /// Its start block is the number of lives before this one.
    pub counts_lives: bool,
}

/// One that is kept.
struct Kept {
    /// Who pays: an account of its own, which outlives it.
    account: AccountId,
    server: &'static Server,
    /// Its notes, if it keeps any.
    notes: RegionId,
    plan: Plan,
    file: &'static [u8],
    frame: Frame,
    env: EnvId,
    domain: DomainId,
    lives: u64,
    /// Not before then it is started again; 0: it runs.
    due_ns: u64,
    pause_ns: u64,
    started_ns: u64,
    asked: Option<Asked>,
}

/// A question for a heartbeat: the count then, and what the server had run.
#[derive(Clone, Copy)]
struct Asked {
    beats: u64,
    at_ns: u64,
    run_ns: u64,
}

/// Why a server is started again.
enum End {
    Exit(u64),
    Fault(u32),
    Killed(u64),
    Hangs,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(word) => write!(f, "ended with {word:#x}"),
            Self::Fault(cause) => write!(f, "stopped by fault {cause}"),
            Self::Killed(word) => write!(f, "was destroyed with {word:#x}"),
            Self::Hangs => f.write_str("does not answer"),
        }
    }
}

/// All that are kept.
pub struct Keeper {
    kept: Vec<Kept>,
    terminal: Terminal,
}

impl Keeper {
    /// Keeps none yet.
    pub fn new(terminal: Terminal) -> Self {
        Self { kept: Vec::new(), terminal }
    }

    /// Starts a server, if the image has it, and keeps it.
    pub fn start(&mut self, image: &Image, server: &'static Server) {
        let Some(mut kept) = Kept::find(image, server) else { return };
        kept.start(Some(&self.terminal));
        self.kept.push(kept);
    }

    /// Is this environment's record one that is kept?
    pub fn has(&self, env: EnvId) -> bool {
        self.kept.iter().any(|kept| kept.env == env)
    }

    /// Looks at each server, and does what is due; when to look again at the latest.
    pub fn look(&mut self) -> u64 {
        let now = clock::now_ns();
        for kept in &mut self.kept {
            kept.look(now);
            if kept.due_ns != 0 && kept.due_ns <= now {
                kept.start(Some(&self.terminal));
            }
        }
        let soonest = self.kept.iter().map(|kept| match kept.due_ns {
            0 => now + ASK_NS,
            due => due.max(now + 1),
        });
        soonest.min().unwrap_or(0)
    }
}

/// Starts a server that nobody keeps: when it ends, it has ended.
pub fn start(image: &Image, server: &'static Server) -> Option<EnvId> {
    let mut kept = Kept::find(image, server)?;
    kept.start(None);
    (!kept.env.is_none()).then_some(kept.env)
}

impl Kept {
    /// A server as the image has it, not started yet.
    fn find(image: &Image, server: &'static Server) -> Option<Self> {
        let name = server.name;
        let Some(file) = image.file(&alloc::format!("/xok/{name}")) else {
            xok::log!(OWN, "init: no {name} in the image");
            return None;
        };
        let plan = match Plan::parse_in(file.bytes, 0x1000..u64::MAX) {
            Ok(plan) => plan,
            Err(error) => {
                xok::log!(OWN, "init: {name}: {error}");
                return None;
            }
        };
        let notes = match server.attach {
            Attach::Notes => make_notes(),
            _ => Ok(RegionId::NONE),
        };
        let Ok(notes) = notes else {
            xok::log!(OWN, "init: {name}: no room for its notes");
            return None;
        };
        Some(Self {
            account: payer::account(matches!(server.service, Service::Files)),
            server,
            notes,
            plan,
            file: file.bytes,
            frame: file.frame(),
            env: EnvId::NONE,
            domain: DomainId::NONE,
            lives: 0,
            due_ns: clock::now_ns(),
            pause_ns: PAUSE_NS,
            started_ns: 0,
            asked: None,
        })
    }

    fn look(&mut self, now: u64) {
        if self.due_ns != 0 {
            return;
        }
        let record = published::env(self.env);
        let Some(end) = record.map_or(Some(End::Killed(0)), |record| self.end(&record, now)) else {
            return;
        };
        let name = self.server.name;
        xok::tell!(OWN, "init: {name} {end}; it is started again");
        // What is left of it goes, whatever state that is in; it may have gone already.
        let _ = call::domain_destroy(OWN, self.domain);
        if now - self.started_ns > PAUSE_MAX_NS {
            self.pause_ns = 0;
        }
        self.due_ns = now + self.pause_ns;
        self.pause_ns = (2 * self.pause_ns).clamp(PAUSE_NS, PAUSE_MAX_NS);
        self.asked = None;
    }

    /// Has it ended, or as good as ended? If not, and time has come, it is asked.
    fn end(&mut self, record: &EnvRecord, now: u64) -> Option<End> {
        if record.state == EnvState::Dead as u32 {
            let by_itself = record.killer == self.env.0;
            return Some(if by_itself { End::Exit(record.word) } else { End::Killed(record.word) });
        }
        if record.state == EnvState::Stopped as u32 {
            return Some(End::Fault(record.cause));
        }
        let beats = beat::of(self.env);
        let Some(asked) = self.asked.filter(|asked| asked.beats == beats) else {
            if self.asked.is_none_or(|asked| now - asked.at_ns >= ASK_NS / 2) {
                self.asked = Some(Asked { beats, at_ns: now, run_ns: record.run_ns });
                // One that has just ended is noticed the next time.
                let _ = call::post(OWN, self.env, beat::ASKED);
            }
            return None;
        };
        // One that waits for the processor is not to blame.
        let waits = record.state == EnvState::Ready as u32;
        let slept = !waits && now - asked.at_ns >= SLEEP_NS;
        let ran = record.run_ns.saturating_sub(asked.run_ns) >= RUN_NS;
        (slept || ran).then_some(End::Hangs)
    }

    /// Starts it, or says why it cannot be and tries later.
    fn start(&mut self, terminal: Option<&Terminal>) {
        let now = clock::now_ns();
        if self.lives == LIVES {
            self.due_ns = u64::MAX;
            return;
        }
        match self.make(terminal) {
            Ok(spawned) => {
                let former = core::mem::replace(&mut self.env, spawned.env);
                self.domain = spawned.domain;
                publish::set(self.server.service, u64::from(self.env.0));
                // Only now may another environment have its id. The first one has no former.
                let _ = call::env_forget(former);
                self.lives += 1;
                self.due_ns = 0;
                self.started_ns = now;
            }
            Err((error, number)) => {
                xok::tell!(OWN, "init: {}: {} ({number})", self.server.name, error.name());
                self.due_ns = now + self.pause_ns;
                self.pause_ns = (2 * self.pause_ns).clamp(PAUSE_NS, PAUSE_MAX_NS);
            }
        }
    }

    fn make(&self, terminal: Option<&Terminal>) -> Result<spawn::Spawned, Refused> {
        let mut text = [0; DIGITS];
        let argument = match self.server.attach {
            Attach::Notes => decimal(self.notes.0, &mut text),
            _ if self.server.counts_lives => decimal(self.lives, &mut text),
            _ => &[],
        };
        let (file, frame) = (self.file, Some(self.frame));
        let gifts = self.server.gifts;
        let spawned = spawn::paid_by(self.account, &self.plan, file, frame, argument, gifts)?;
        let domain = spawned.domain;
        let attached = match (self.server.attach, terminal) {
            (Attach::Notes, _) => call::region_attach(OWN, self.notes, NOTES, domain).map(|_| ()),
            (Attach::Nothing, _) | (_, None) => Ok(()),
            (Attach::Terminal, Some(terminal)) => terminal.attach_server(domain),
            (Attach::Table, Some(terminal)) => terminal.attach_table(domain),
        };
        let made = attached.and_then(|()| call::env_release(OWN, spawned.env));
        if made.is_err() {
            // Nothing of it is left behind; the first refusal is the answer.
            let _ = call::domain_destroy(OWN, domain);
        }
        made.map(|_| spawned)
    }
}

/// A region that lives as long as init, which stays attached.
fn make_notes() -> Result<RegionId, Refused> {
    let region = call::region_alloc(OWN, &[ANY_FRAME])?;
    call::region_attach(OWN, region, NOTES, DomainId::NONE)?;
    Ok(region)
}

/// A number's digits.
fn decimal(number: u64, text: &mut [u8; DIGITS]) -> &[u8] {
    let (mut rest, mut at) = (number, DIGITS);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &text[at..];
        }
    }
}
