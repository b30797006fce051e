//! Software regions: memory reached by calls only, shared without locks (decisions 6, xok97 XK-6).
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

/// A region and a role in which one is attached to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    /// The region's id.
    pub region: u64,
    /// The role.
    pub role: u64,
}

/// The argument of `RegionOperate`, read once from program memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionOperation {
    /// The region's id.
    pub region: u64,
    /// Where in program memory.
    pub address: u64,
    /// Where in the region the copied bytes begin.
    pub offset: u64,
    /// How many bytes, at most `limits::REGION_COPY_BYTES`.
    pub len: u32,
    /// Compares that count, 0..=4.
    pub compares: u8,
    /// Writes that count, 0..=4.
    pub writes: u8,
    /// [`COPY_NONE`], [`COPY_OUT`] or [`COPY_IN`].
    pub direction: u8,
    /// Role used: `COPY_OUT` needs a read attachment or right, the rest a write one.
    pub role: u8,
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

/// What `RegionStep` and `RegionStepOrWait` do, apart from address and values: one word of a ring
/// moves on by as many bytes as are copied. Their arguments hold it in three words:
///
/// ```text
///  which  the region's id
///  piece  bytes 32, where in the region they begin 32
///  words  number of the word that moves 16, of the one beside it 16, event bits 16,
///         role 4, peers' role 4, STEP_IN … 8
/// ```
/// Words are counted in units of 8 bytes from the region's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The region's id.
    pub region: u64,
    /// Role used; it must be one that writes.
    pub role: u8,
    /// Who waits waits while somebody is attached in this role; [`NO_PEER`]: whoever is.
    pub peer: u8,
    /// [`STEP_IN`], [`STEP_BESIDE`].
    pub flags: u8,
    /// Bytes copied, at most `limits::REGION_COPY_BYTES`; the word moves by as many.
    pub len: u32,
    /// Where in the region they begin.
    pub offset: u32,
    /// The word that moves.
    pub moves: u16,
    /// The word beside it, which is compared.
    pub beside: u16,
    /// Event bits that end the wait.
    pub events: u16,
}

/// The bytes go from program memory to the region; without it the other way.
pub const STEP_IN: u8 = 1;
/// The word beside must be as said (`RegionStepOrWait` always asks for it).
pub const STEP_BESIDE: u8 = 2;
/// Where the flags are in a step's `words`.
pub const STEP_FLAGS_SHIFT: u32 = 56;
/// No role's attachments end a step's wait.
pub const NO_PEER: u8 = 15;

impl Step {
    /// Everything 0.
    pub const NONE: Self = Self {
        region: 0,
        role: 0,
        peer: 0,
        flags: 0,
        len: 0,
        offset: 0,
        moves: 0,
        beside: 0,
        events: 0,
    };

    /// As the arguments `which`, `piece` and `words`.
    #[inline]
    pub const fn to_words(self) -> [u64; 3] {
        let Self { region, role, peer, flags, len, offset, moves, beside, events } = self;
        let piece = len as u64 | (offset as u64) << 32;
        let roles = (role as u64 & 15) << 48 | (peer as u64 & 15) << 52;
        let flags = (flags as u64) << STEP_FLAGS_SHIFT;
        let words = moves as u64 | (beside as u64) << 16 | (events as u64) << 32 | roles | flags;
        [region, piece, words]
    }

    /// From these arguments.
    #[inline]
    pub const fn from_words([which, piece, words]: [u64; 3]) -> Self {
        Self {
            region: which,
            role: (words >> 48) as u8 & 15,
            peer: (words >> 52) as u8 & 15,
            flags: (words >> STEP_FLAGS_SHIFT) as u8,
            len: piece as u32,
            offset: (piece >> 32) as u32,
            moves: words as u16,
            beside: (words >> 16) as u16,
            events: (words >> 32) as u16,
        }
    }
}

/// No role's attachments end the wait.
pub const NO_ROLE: u64 = u64::MAX;

/// Nothing is copied.
pub const COPY_NONE: u8 = 0;
/// From the region to program memory.
pub const COPY_OUT: u8 = 1;
/// From program memory to the region.
pub const COPY_IN: u8 = 2;

/// Added to `RegionAlloc`'s count of frames: the region is a fifo. Its first frame has the words,
/// the others, a power of two of them, the data; role 0 puts bytes in and role 1 takes them out.
pub const FIFO: u64 = 1 << 32;
/// Added to it: the region is guarded as its maker's domain is, which need not hold that name.
/// Whoever has no way into the one has none to the other.
pub const AS_DOMAIN: u64 = 1 << 33;
/// Added to it: beside its maker's domain one domain alone attaches to the region by a capability,
/// the first, once; others by `RegionPass` from this one.
pub const ONE_GUEST: u64 = 1 << 34;
/// What may be added to it.
pub const KINDS: u64 = FIFO | AS_DOMAIN | ONE_GUEST;
/// The word of a fifo that counts the bytes ever put in.
pub const FIFO_HEAD: u16 = 0;
/// The word of a fifo that counts the bytes ever taken out.
pub const FIFO_TAIL: u16 = 1;

/// A role's bit says that who attaches in it may change the region; roles 2 and 3 may only read.
pub const fn role_writes(role: u8) -> bool {
    role < 2
}

const _: () = {
    let words = [0x0123_4567_89ab_cdef, 0x1234_5678_9abc_def0, 0xfedc_ba98_7654_3210];
    let again = Step::from_words(words).to_words();
    assert!(again[0] == words[0] && again[1] == words[1] && again[2] == words[2]);
};
const _: () = assert!(core::mem::size_of::<RegionOperation>() == 32 + 128);
const _: () = assert!(core::mem::size_of::<RegionWait>() == 32 + 128 + 24);
