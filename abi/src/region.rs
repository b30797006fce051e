//! Software regions: memory reached by calls only, shared without locks (decisions 6, XK-6).
//!
//! One operation is atomic: if up to four words compare equal, up to 64 KiB are copied, then up to
//! four words are written. Words are 64-bit, at multiples of 8. A domain attaches in a role; the
//! kernel counts attachments by role in the published record and drops them at death, so "the
//! last writer is gone" is a word that a predicate can name.

use crate::limits::REGION_WORDS;

/// An offset and a value: a compare or a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WordAt {
    /// Byte offset in the region, a multiple of 8.
    pub offset: u64,
    /// The value expected, or to be written.
    pub value: u64,
}

/// The argument of `RegionOperate`, read once from program memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionOperation {
    /// The region's id.
    pub region: u32,
    /// Compares that count, 0..=4.
    pub compares: u8,
    /// Writes that count, 0..=4.
    pub writes: u8,
    /// [`COPY_NONE`], [`COPY_OUT`] or [`COPY_IN`].
    pub direction: u8,
    /// Role used: `COPY_OUT` needs a read attachment or right, the rest a write one.
    pub role: u8,
    /// Where in program memory.
    pub address: u64,
    /// Where in the region the copied bytes begin.
    pub offset: u64,
    /// How many bytes, at most `limits::REGION_COPY_BYTES`.
    pub len: u64,
    /// All of these must hold.
    pub compare: [WordAt; REGION_WORDS],
    /// Then these are written.
    pub write: [WordAt; REGION_WORDS],
}

/// The argument of `RegionAwait`, read once from program memory: an operation, and for how long a
/// failed compare of it is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionWait {
    /// What is to be done.
    pub operation: RegionOperation,
    /// The caller sleeps while this word has this value …
    pub unchanged: WordAt,
    /// … and somebody is attached in this role; [`NO_ROLE`]: whoever is.
    pub peer: u64,
}

/// No role's attachments end the wait.
pub const NO_ROLE: u64 = u64::MAX;

/// Nothing is copied.
pub const COPY_NONE: u8 = 0;
/// From the region to program memory.
pub const COPY_OUT: u8 = 1;
/// From program memory to the region.
pub const COPY_IN: u8 = 2;

/// A role's bit says that who attaches in it may change the region; roles 2 and 3 may only read.
pub const fn role_writes(role: u8) -> bool {
    role < 2
}

const _: () = assert!(core::mem::size_of::<RegionOperation>() == 32 + 128);
const _: () = assert!(core::mem::size_of::<RegionWait>() == 32 + 128 + 24);
