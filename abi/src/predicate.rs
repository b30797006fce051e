//! Wakeup predicates: a sum of products over words, checked at download (xok97 XK-5, appnet K7).
//!
//! A predicate is an array of atoms in terms: the atoms of a term are and-ed, the terms or-ed;
//! [`Atom::last`] marks the end of a term. Every address is translated and its frame pinned at
//! download, so it is evaluated without the sleeper's space. No loops, no computed addresses.

/// One comparison: `word(left) & mask  operator  right`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Atom {
    /// [`Operator`] as a number.
    pub operator: u8,
    /// [`Source`] of the left word.
    pub left: u8,
    /// [`Source`] of the right word.
    pub right: u8,
    /// Non-zero at the last atom of a term.
    pub last: u8,
    /// Zero.
    pub zero: u32,
    /// Region id when a source is `Source::Region`.
    pub region: u64,
    /// Address, offset or constant of the left word.
    pub left_value: u64,
    /// Address, offset or constant of the right word.
    pub right_value: u64,
    /// And-ed to both words before the comparison; 0 stands for all ones.
    pub mask: u64,
}

const _: () = assert!(core::mem::size_of::<Atom>() == 40);

/// Where a word comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// The value itself.
    Constant = 0,
    /// 64 bits at an address the caller can read (own or published), a multiple of 8. Of what
    /// programs show, the pages of the caller's account alone: a predicate keeps the page.
    Memory = 1,
    /// 64 bits at an offset in a region the caller is attached to, a multiple of 8.
    Region = 2,
    /// Nanoseconds since boot; the value is ignored.
    Clock = 3,
    /// 32 bits at an address the caller can read, a multiple of 4.
    Memory32 = 4,
}

impl Source {
    /// The source with this number.
    pub const fn from_number(number: u8) -> Option<Source> {
        Some(match number {
            0 => Source::Constant,
            1 => Source::Memory,
            2 => Source::Region,
            3 => Source::Clock,
            4 => Source::Memory32,
            _ => return None,
        })
    }
}

/// How two words compare (unsigned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operator {
    /// Equal.
    Equal = 1,
    /// Not equal.
    NotEqual = 2,
    /// Left below right.
    Below = 3,
    /// Left at or above right.
    AtLeast = 4,
}

impl Operator {
    /// The operator with this number.
    pub const fn from_number(number: u8) -> Option<Operator> {
        Some(match number {
            1 => Operator::Equal,
            2 => Operator::NotEqual,
            3 => Operator::Below,
            4 => Operator::AtLeast,
            _ => return None,
        })
    }
}
