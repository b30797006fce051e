//! Blocking: one predicate, one deadline, and every signal that is not blocked.
//!
//! ```ignore
//! let mut wait = Wait::new();
//! wait.region(id, HEAD, Operator::NotEqual, seen).end_term();   // data …
//! wait.memory(attached, Operator::Equal, 0).end_term();         // … or no writer left
//! match sleep_until(process, &wait, 0)? { Woken::Ready => …, Woken::TimedOut => … }
//! ```

use abi::error::Error;
use abi::id::{EnvId, RegionId};
use abi::layout::{LIBRARY, PUBLISHED};
use abi::limits::PREDICATE_ATOMS;
use abi::predicate::{Atom, Operator, Source};
use abi::upcall::{EVENT_CHILD, EVENT_TIMER, woken};

use crate::errno::{Errno, RESTART, from_kernel};
use crate::futex;
use crate::lock;
use crate::net;
use crate::process::Process;
use crate::signal::{UNMASKABLE, deliver};
use crate::thread::{self, Thread};

/// What to wait for: terms of atoms (`abi::predicate`).
#[derive(Clone, Debug, Default)]
pub struct Wait {
    atoms: [Atom; PREDICATE_ATOMS],
    count: usize,
    overflow: bool,
    events: u64,
    signals: u64,
    dequeued: bool,
    bell: bool,
}

/// Atoms of a downloaded predicate that is worth to be kept.
const KEPT_ATOMS: usize = 2;

/// A downloaded predicate that means the same in the next wait: its words are those of regions,
/// which end with their ids, and published ones, which never move. (Words of one's own memory may
/// lie in another frame by then.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    atoms: [Atom; KEPT_ATOMS],
    count: usize,
}

impl Kept {
    fn of(atoms: &[Atom]) -> Self {
        let stays = |source: u8, value: u64| {
            source != Source::Memory as u8 && source != Source::Memory32 as u8
                || (PUBLISHED..LIBRARY).contains(&value)
        };
        let stay =
            |atom: &Atom| stays(atom.left, atom.left_value) && stays(atom.right, atom.right_value);
        let mut kept = Self::default();
        if atoms.len() <= KEPT_ATOMS && atoms.iter().all(stay) {
            kept.atoms[..atoms.len()].copy_from_slice(atoms);
            kept.count = atoms.len();
        }
        kept
    }

    fn is(&self, atoms: &[Atom]) -> bool {
        self.count > 0 && self.atoms[..self.count] == *atoms
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The predicate held (or an event of `Wait::events` came); look again.
    Ready,
    /// The deadline passed.
    TimedOut,
}

impl Wait {
    /// Nothing to wait for but signals and the deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// `region[offset] operator value`
    pub fn region(
        &mut self,
        id: RegionId,
        offset: u64,
        operator: Operator,
        value: u64,
    ) -> &mut Self {
        self.push(Atom {
            operator: operator as u8,
            left: Source::Region as u8,
            region: id.0,
            left_value: offset,
            right_value: value,
            ..Atom::default()
        })
    }

    /// `region[left] operator region[right]`, both offsets in one region.
    pub fn region_words(
        &mut self,
        id: RegionId,
        left: u64,
        operator: Operator,
        right: u64,
    ) -> &mut Self {
        self.push(Atom {
            operator: operator as u8,
            left: Source::Region as u8,
            right: Source::Region as u8,
            region: id.0,
            left_value: left,
            right_value: right,
            ..Atom::default()
        })
    }

    /// `*address operator value`, 64 bits, at an address that ExOS or everybody can read.
    pub fn memory(&mut self, address: u64, operator: Operator, value: u64) -> &mut Self {
        self.push(Atom {
            operator: operator as u8,
            left: Source::Memory as u8,
            left_value: address,
            right_value: value,
            ..Atom::default()
        })
    }

    /// `*address operator value`, 32 bits.
    pub fn half(&mut self, address: u64, operator: Operator, value: u32) -> &mut Self {
        self.push(Atom {
            operator: operator as u8,
            left: Source::Memory32 as u8,
            left_value: address,
            right_value: u64::from(value),
            ..Atom::default()
        })
    }

    /// Until nanoseconds since boot reach `at`; unlike the deadline it is one of the terms.
    pub fn clock(&mut self, at: u64) -> &mut Self {
        self.push(Atom {
            operator: Operator::AtLeast as u8,
            left: Source::Clock as u8,
            right_value: at,
            ..Atom::default()
        })
    }

    /// Any atom.
    pub fn push(&mut self, atom: Atom) -> &mut Self {
        match self.atoms.get_mut(self.count) {
            Some(place) => {
                *place = atom;
                self.count += 1;
            }
            None => self.overflow = true,
        }
        self
    }

    /// Ends a term: the atoms since the last end are and-ed, the terms or-ed.
    pub fn end_term(&mut self) -> &mut Self {
        if let Some(atom) = self.count.checked_sub(1).and_then(|at| self.atoms.get_mut(at)) {
            atom.last = 1;
        }
        self
    }

    /// Event bits (`abi::upcall::EVENT_…`) that end the wait as well.
    pub fn events(&mut self, bits: u64) -> &mut Self {
        self.events |= bits;
        self
    }

    /// Signals that end the wait although they are blocked, and stay pending.
    pub fn signals(&mut self, set: u64) -> &mut Self {
        self.signals |= set;
        self
    }

    /// Until another thread takes us off the queue of those who sleep for a futex, as well.
    pub fn dequeued(&mut self) -> &mut Self {
        self.dequeued = true;
        self
    }

    /// Until somebody rings at the thread, as well.
    pub fn bell(&mut self) -> &mut Self {
        self.bell = true;
        self
    }

    /// The atoms as `PredicateSet` takes them.
    pub fn atoms(&self) -> &[Atom] {
        self.atoms.get(..self.count).unwrap_or(&[])
    }

    /// Were there more atoms than a predicate can hold? Then the sleeper polls.
    pub fn overflowed(&self) -> bool {
        self.overflow
    }

    /// The event bits.
    pub fn event_bits(&self) -> u64 {
        self.events
    }
}

/// An event of ours, not the kernel's: what is waited for may have changed (`Process::look_again`).
pub const EVENT_LOOK: u64 = 1 << 63;

/// Nanoseconds between looks where no predicate can say when to look.
const POLL_NS: u64 = 2_000_000;

/// Sleeps until `wait` holds or nanoseconds since boot reach `deadline` (0: never).
/// `errno::RESTART` when a signal with a handler came; what needs no handler is done here.
pub fn sleep_until(process: &mut Process, wait: &Wait, deadline: u64) -> Result<Woken, Errno> {
    let polled = !download(wait);
    loop {
        deliver::collect(process);
        let awaited = wait.signals & thread::own().blocked;
        let pending = process.signals.pending.set() | thread::own().directed.set();
        if pending & awaited != 0 {
            return Ok(Woken::Ready);
        }
        if deliver::settle(process).is_some() {
            return Err(RESTART);
        }
        let own = thread::own();
        if (process.events | own.events) & wait.events != 0 {
            own.events &= !wait.events;
            return Ok(Woken::Ready);
        }
        if wait.dequeued && !futex::is_queued(own.id) || wait.bell && own.rung {
            return Ok(Woken::Ready);
        }
        let mut until = if polled { next_look(deadline) } else { deadline };
        // The network goes on while the process waits for anything.
        let (network, network_events) = net::before_sleep(process);
        if network != 0 && (until == 0 || network < until) {
            until = network;
        }
        // What others send comes to the first thread, also what it blocks and another one wants.
        let all = lock::is_shared() && own.is_first();
        let unblocked = if all { !0 } else { !(own.blocked & !UNMASKABLE) | awaited };
        let events = wait.events & !EVENT_LOOK | EVENT_CHILD | EVENT_TIMER | network_events;
        (own.awaits, own.awaits_signals) = (wait.events, awaited);
        let woken = lock::released(process, || xok::call::sleep(until, unblocked, events, 0));
        (own.awaits, own.awaits_signals) = (0, 0);
        match woken {
            Ok(woken::PREDICATE) => return Ok(Woken::Ready),
            Ok(_) => {}
            Err((Error::TimedOut, _)) if polled && !passed(deadline) => return Ok(Woken::Ready),
            Err((Error::TimedOut, _)) if passed(deadline) => return Ok(Woken::TimedOut),
            // The stack's own time: it is tended on the way round.
            Err((Error::TimedOut, _)) => process.events |= net::EVENTS,
            Err((error, _)) => return Err(from_kernel(error)),
        }
    }
}

/// Sleeps until `is_so`, which these atoms watch; no signal ends that. Without a predicate the
/// environment `to` (`NONE`: whichever is next) gets the processor until then.
pub fn sleep_deaf(process: &mut Process, atoms: &[Atom], to: EnvId, is_so: impl Fn() -> bool) {
    let set = xok::call::predicate_set(atoms).is_ok();
    while !is_so() {
        let _ = lock::released(process, || match set {
            true => xok::call::sleep(0, 0, 0, 0),
            false => xok::call::yield_to(to),
        });
    }
    let _ = xok::call::predicate_set(&[]);
    thread::own().has_predicate = false;
}

/// What ends a sleep inside a region's operation: posted bits and event bits.
#[derive(Clone, Copy, Debug)]
pub struct Interrupts {
    /// Signals that are not blocked.
    pub posted: u64,
    /// Events of the process.
    pub events: u64,
}

/// May the process sleep inside a region's operation? Not if there is more to look at than the
/// kernel's bits: other threads, who want the lock meanwhile, or the network.
pub fn direct(process: &Process) -> Option<Interrupts> {
    if lock::is_shared() || process.net.is_some() {
        return None;
    }
    Some(Interrupts { posted: posted(thread::own()), events: EVENT_CHILD | EVENT_TIMER })
}

/// The posted bits that end a thread's sleep.
#[inline(always)]
pub fn posted(own: &Thread) -> u64 {
    !(own.blocked & !UNMASKABLE)
}

/// Looks at what has ended such a sleep: `errno::RESTART` when a signal with a handler came.
pub fn look(process: &mut Process) -> Result<(), Errno> {
    deliver::collect(process);
    if deliver::settle(process).is_some() { Err(RESTART) } else { Ok(()) }
}

/// Downloads the predicate; false if it cannot be one, so that the caller looks again and again.
fn download(wait: &Wait) -> bool {
    let atoms = wait.atoms();
    if atoms.is_empty() && !thread::own().has_predicate {
        return !wait.overflowed();
    }
    let own = thread::own();
    if own.has_predicate && own.predicate.is(atoms) {
        return !wait.overflowed();
    }
    let set = xok::call::predicate_set(atoms).is_ok();
    own.has_predicate = set && !atoms.is_empty();
    own.predicate = if set { Kept::of(atoms) } else { Kept::default() };
    set && !wait.overflowed()
}

fn next_look(deadline: u64) -> u64 {
    let next = xok::clock::now_ns() + POLL_NS;
    if deadline == 0 { next } else { next.min(deadline) }
}

fn passed(deadline: u64) -> bool {
    deadline != 0 && xok::clock::now_ns() >= deadline
}
