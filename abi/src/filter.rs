//! Packet filters: a conjunction of comparisons at fixed offsets (xok97 XK-16, appnet K11).
//!
//! Filters are declarative, so that overlap is decidable: two filters do not overlap when they
//! contradict each other in some bit. A packet goes to the most specific filter that accepts it;
//! a packet too short for an atom does not match.

use crate::limits::FILTER_ATOMS;

/// `(packet[offset..offset+4], big-endian) & mask == value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FilterAtom {
    /// Byte offset from the start of the Ethernet header; `offset + 4 <= FILTER_BYTES`.
    pub offset: u16,
    /// Zero.
    pub zero: u16,
    /// Bits compared; a packet that ends inside unmasked bits still matches.
    pub mask: u32,
    /// What they must be; no bit outside `mask`.
    pub value: u32,
}

const _: () = assert!(core::mem::size_of::<FilterAtom>() == 12);

/// The argument of `FilterInsert`, read once from program memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FilterProgram {
    /// Network interface.
    pub interface: u16,
    /// [`COPY`], [`SUBSETTABLE`].
    pub flags: u16,
    /// Atoms that count, 1..=FILTER_ATOMS (a copy filter may have none).
    pub count: u32,
    /// The ring that matching packets go to.
    pub ring: u64,
    /// The filter that the caller means to subset (its capability is the one named), or 0.
    pub parent: u64,
    /// The comparisons.
    pub atoms: [FilterAtom; FILTER_ATOMS],
}

/// Matches are copied, the regular receiver keeps the packet; needs READ and WRITE over the
/// interface: what others are sent is more than what comes to oneself.
pub const COPY: u16 = 1;
/// Anyone may take a subset.
pub const SUBSETTABLE: u16 = 2;

const _: () = assert!(core::mem::size_of::<FilterProgram>() == 24 + 12 * FILTER_ATOMS);
