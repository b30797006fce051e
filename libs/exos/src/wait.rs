//! Blocking: one predicate, one deadline, and every signal that is not blocked.
//!
//! ```ignore
//! let mut wait = Wait::new();
//! wait.region(id, HEAD, Operator::NotEqual, seen).end_term();   // data …
//! wait.memory(attached, Operator::Equal, 0).end_term();         // … or no writer left
//! match sleep_until(process, &wait, 0)? { Woken::Ready => …, Woken::TimedOut => … }
//! ```

use abi::id::RegionId;
use abi::limits::PREDICATE_ATOMS;
use abi::predicate::{Atom, Operator, Source};

use crate::errno::Errno;
use crate::process::Process;

/// What to wait for: terms of atoms (`abi::predicate`).
#[derive(Clone, Debug, Default)]
pub struct Wait {
    atoms: [Atom; PREDICATE_ATOMS],
    count: usize,
    overflow: bool,
    events: u64,
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

/// Sleeps until `wait` holds or nanoseconds since boot reach `deadline` (0: never).
/// `errno::RESTART` when a signal that is not blocked came; nothing is lost then.
pub fn sleep_until(_process: &mut Process, wait: &Wait, deadline: u64) -> Result<Woken, Errno> {
    let _ = (wait, deadline);
    Err(Errno::ENOSYS)
}
