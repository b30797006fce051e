//! The structures of the network calls, out of the bytes that a program sent.

use crate::answer::Refusal;
use crate::bytes::{u32_at, u64_at};
use abi::error::Error;
use abi::filter::{FilterAtom, FilterProgram};
use abi::limits::FILTER_ATOMS;
use abi::ring::{Piece, RingEntry};

/// `count` structures into `place`; refused when it is too short for them.
pub fn many<'a, T>(
    bytes: &[u8],
    count: u64,
    place: &'a mut [T],
    one: fn(&[u8]) -> T,
) -> Result<&'a [T], Refusal> {
    if count > place.len() as u64 {
        return Err(Refusal::new(Error::TooLarge, place.len() as u64));
    }
    let count = count as usize;
    for (slot, bytes) in place[..count].iter_mut().zip(bytes.chunks(size_of::<T>())) {
        *slot = one(bytes);
    }
    Ok(&place[..count])
}

/// An entry of a ring.
pub fn ring_entry(bytes: &[u8]) -> RingEntry {
    RingEntry {
        owner: u64_at(bytes, 0),
        buffer: u64_at(bytes, 8),
        capacity: u32_at(bytes, 16),
        zero: u32_at(bytes, 20),
    }
}

/// A piece of a packet.
pub fn piece(bytes: &[u8]) -> Piece {
    Piece { address: u64_at(bytes, 0), len: u64_at(bytes, 8) }
}

/// A filter.
pub fn program(bytes: &[u8]) -> FilterProgram {
    let mut atoms = [FilterAtom::default(); FILTER_ATOMS];
    for (number, atom) in atoms.iter_mut().enumerate() {
        let at = 24 + size_of::<FilterAtom>() * number;
        let first = u32_at(bytes, at);
        *atom = FilterAtom {
            offset: first as u16,
            zero: (first >> 16) as u16,
            mask: u32_at(bytes, at + 4),
            value: u32_at(bytes, at + 8),
        };
    }
    let first = u32_at(bytes, 0);
    FilterProgram {
        interface: first as u16,
        flags: (first >> 16) as u16,
        count: u32_at(bytes, 4),
        ring: u64_at(bytes, 8),
        parent: u64_at(bytes, 16),
        atoms,
    }
}
