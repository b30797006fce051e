//! The master of a pseudo-terminal (pty(7)): one end of a connection, in place of the console.

use abi::error::Error;
use abi::id::{DomainId, RegionId};
use abi::predicate::{Atom, Operator, Source};
use abi::region::WordAt;
use alloc::vec::Vec;
use unix::local::{head_of, ring_of};
use unix::ring::{HEAD, TAIL};
use xok::call::{self, Refused};

use crate::foreground::PROCESSES;
use crate::region::Region;

/// Bytes taken at a time.
const CHUNK: usize = 256;
/// The master's users.
const MASTER: u16 = 0;
/// This server's end.
const SERVER: u16 = 1;

/// Bytes that a master has typed, in order, until they are taken.
pub struct Typed {
    bytes: [u8; CHUNK],
    at: usize,
    end: usize,
}

impl Default for Typed {
    fn default() -> Self {
        Self { bytes: [0; CHUNK], at: 0, end: 0 }
    }
}

impl Typed {
    /// Are all of them taken?
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Takes the next one.
    pub fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes[..self.end].get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

/// The way to a master.
pub struct Master {
    /// The terminal's number.
    pub number: usize,
    region: Region,
}

/// Attaches this server to a region of a program's.
pub fn attach(id: u64, role: u16) -> Result<Region, Refused> {
    let id = RegionId(id);
    call::region_attach(PROCESSES, id, role, DomainId::NONE)?;
    Ok(Region { id, role })
}

/// Lets go of it; it may be gone already.
pub fn detach(region: Region) {
    let _ = call::region_detach(region.id, region.role);
}

impl Master {
    /// The master that is reached through this region.
    pub fn open(number: usize, region: u64) -> Result<Self, Refused> {
        Ok(Self { number, region: attach(region, SERVER)? })
    }

    /// Lets go of it.
    pub fn close(&self) {
        detach(self.region);
    }

    /// Has its last user gone?
    pub fn is_gone(&self) -> bool {
        !self.region.has(MASTER)
    }

    /// Head and tail of what an end writes. A master that stores nonsense there has ended.
    fn counters(&self, end: u16) -> Result<(u64, u64), Refused> {
        let mut bytes = [0; 16];
        self.region.read(head_of(end), &mut bytes)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (head, tail) = (word(0), word(8));
        if !ring_of(end).can_be(head, tail) {
            return Err((Error::WrongState, 0));
        }
        Ok((head, tail))
    }

    /// Takes some of what was typed, in place of what has been taken.
    pub fn take(&self, typed: &mut Typed) -> Result<(), Refused> {
        let (head, tail) = self.counters(MASTER)?;
        let ring = ring_of(MASTER);
        let span = ring.span(tail, ring.used(head, tail).min(CHUNK as u64));
        (typed.at, typed.end) = (0, span.len as usize);
        if span.len > 0 {
            self.region.read(span.offset, &mut typed.bytes[..typed.end])?;
            let offset = head_of(MASTER) + TAIL;
            self.region.write(0, &[], &[], &[WordAt { offset, value: tail + span.len }])?;
        }
        Ok(())
    }

    /// Shows as much of `bytes` as there is room for in one piece.
    pub fn show(&self, bytes: &[u8]) -> Result<usize, Refused> {
        let (head, tail) = self.counters(SERVER)?;
        let ring = ring_of(SERVER);
        let room = ring.free(head, tail).min(bytes.len() as u64);
        let span = ring.span(head, room);
        if span.len > 0 {
            let offset = head_of(SERVER) + HEAD;
            let write = [WordAt { offset, value: head + span.len }];
            self.region.write(span.offset, &bytes[..span.len as usize], &[], &write)?;
        }
        Ok(span.len as usize)
    }

    /// Adds what ends a sleep: something typed, room to show more, the master's end.
    pub fn watch(&self, types: bool, shows: bool, atoms: &mut Vec<Atom>) {
        let words = Atom {
            operator: Operator::NotEqual as u8,
            left: Source::Region as u8,
            right: Source::Region as u8,
            last: 1,
            region: self.region.id.0,
            left_value: head_of(MASTER) + HEAD,
            right_value: head_of(MASTER) + TAIL,
            ..Atom::default()
        };
        if types {
            atoms.push(words);
        }
        if shows && let Ok((_, tail)) = self.counters(SERVER) {
            let right = Source::Constant as u8;
            let left_value = head_of(SERVER) + TAIL;
            atoms.push(Atom { right, left_value, right_value: tail, ..words });
        }
        atoms.push(self.region.left_by(MASTER));
    }
}
