//! Receive rings and gather transmission (appnet K9, K10, K13).
//!
//! ```text
//!  entry of a ring, in the owner's memory:
//!  owner word (u64, own cache line recommended): 0 = the kernel's, free for reception;
//!                                                n = the application's, a packet of n bytes
//!  buffer: `capacity` bytes within one page; a longer packet is cut, n says its true length
//! ```
//! The kernel keeps its own list of entries from `RingAlloc`; of shared memory it reads only the
//! owner words. The owner gives a buffer back by storing 0: no call.

/// One buffer, as `RingAlloc` and `RingModify` take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RingEntry {
    /// Address of the owner word, a multiple of 8, writable by the caller.
    pub owner: u64,
    /// Address of the buffer, writable by the caller, within one page.
    pub buffer: u64,
    /// Bytes of the buffer, 1..=4096.
    pub capacity: u32,
    /// Zero.
    pub zero: u32,
}

/// One piece of a packet to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// Where it lies; readable by the caller.
    pub address: u64,
    /// Its length, 1..=65535; the pieces of a packet sum to at most `PACKET_BYTES`.
    pub len: u64,
}

const _: () = assert!(core::mem::size_of::<RingEntry>() == 24);
const _: () = assert!(core::mem::size_of::<Piece>() == 16);
