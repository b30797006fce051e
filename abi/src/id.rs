//! Names of kernel objects: a place in a table, and which of those that it has held is meant.
//!
//! ```text
//!  an environment, 32 bits                every other object, 64 bits
//!   bit 29           14 13           0     bit 62                     14 13           0
//!  ┌───────────────────┬──────────────┐   ┌─────────────────────────────┬──────────────┐
//!  │ generation (16)   │ index (14)   │   │ serial (49)                 │ index (14)   │
//!  └───────────────────┴──────────────┘   └─────────────────────────────┴──────────────┘
//!   0 is nobody: index 0 is never used
//! ```
//! The serial of a place counts on and never begins again: a place whose serials are used up holds
//! nothing any more. So a name has one object, as long as the machine runs, and finds that or
//! nothing.
//!
//! An environment's id is positive and below 2^30, so that Linux's thread ids can be environment
//! ids (FUTEX_TID_MASK, futex(2)). It may come again after 65,536 uses of its place: who keeps one
//! for long keeps the serial of its record ([`EnvRecord`](crate::published::EnvRecord)) with it, as
//! the kernel does.

use crate::word::Word;

/// Bits of an id that are the index.
pub const INDEX_BITS: u32 = 14;
/// Those bits.
pub const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Generations of an environment's place before one repeats.
pub const GENERATIONS: u32 = 1 << (30 - INDEX_BITS);
/// Serials of every other place: all that keep an id positive as a signed word.
pub const SERIALS: u64 = 1 << (63 - INDEX_BITS);

/// A name of an object in one of the kernel's tables.
pub trait Id: Copy + PartialEq {
    /// Position in its table.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($( $(#[doc = $doc:literal])+ $name:ident, )+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nobody.
            pub const NONE: Self = Self(0);

            /// The id of the object that `index` has held as its number `serial`.
            pub const fn new(index: u16, serial: u64) -> Self {
                Self((serial & (SERIALS - 1)) << INDEX_BITS | (index as u64 & INDEX_MASK as u64))
            }
            /// Position in its table.
            pub const fn index(self) -> usize {
                (self.0 & INDEX_MASK as u64) as usize
            }
            /// How many objects the position has held before.
            pub const fn serial(self) -> u64 {
                self.0 >> INDEX_BITS
            }
            /// Is this nobody?
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }
        }

        impl Id for $name {
            #[inline(always)]
            fn index(self) -> usize {
                $name::index(self)
            }
        }

        impl Word for $name {
            fn from_word(word: u64) -> Option<Self> {
                (word >> 63 == 0).then_some(Self(word))
            }
            fn to_word(self) -> u64 {
                self.0
            }
        }
    )+ };
}

/// What a processor runs: registers, save area, entry points, slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EnvId(pub u32);

impl EnvId {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// The id of `index` in its `generation`.
    pub const fn new(index: u16, generation: u32) -> Self {
        Self((generation % GENERATIONS) << INDEX_BITS | (index as u32 & INDEX_MASK))
    }
    /// Position in its table.
    pub const fn index(self) -> usize {
        (self.0 & INDEX_MASK) as usize
    }
    /// How often the position has been used before, as far as the id tells.
    pub const fn generation(self) -> u32 {
        self.0 >> INDEX_BITS
    }
    /// Is this nobody?
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl Id for EnvId {
    #[inline(always)]
    fn index(self) -> usize {
        EnvId::index(self)
    }
}

impl Word for EnvId {
    fn from_word(word: u64) -> Option<Self> {
        (word < 1 << 30).then_some(Self(word as u32))
    }
    fn to_word(self) -> u64 {
        u64::from(self.0)
    }
}

ids! {
    /// What protection is about: a page-table root, capabilities, attachments, a native window.
    DomainId,
    /// Who pays, with limits; a tree.
    AccountId,
    /// A memory area reached by calls only.
    RegionId,
    /// A packet filter.
    FilterId,
    /// A ring of receive buffers.
    RingId,
}

/// A physical frame: 4 KiB at `number * 4096`. Physical names need no generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Frame(pub u32);

impl Frame {
    /// The physical address of its first byte.
    pub const fn address(self) -> u64 {
        (self.0 as u64) << 12
    }
    /// The frame that holds a physical address.
    pub const fn containing(address: u64) -> Self {
        Self((address >> 12) as u32)
    }
}

impl Word for Frame {
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok().map(Self)
    }
    fn to_word(self) -> u64 {
        u64::from(self.0)
    }
}
