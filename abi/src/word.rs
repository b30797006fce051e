//! Types that fit a register and may refuse a word.

/// A value that travels in one register.
pub trait Word: Sized {
    /// Reads the word; `None` if no correct program sends it.
    fn from_word(word: u64) -> Option<Self>;
    /// The word as it travels.
    fn to_word(self) -> u64;
}

impl Word for u64 {
    fn from_word(word: u64) -> Option<Self> {
        Some(word)
    }
    fn to_word(self) -> u64 {
        self
    }
}

impl Word for u32 {
    fn from_word(word: u64) -> Option<Self> {
        u32::try_from(word).ok()
    }
    fn to_word(self) -> u64 {
        u64::from(self)
    }
}

impl Word for u16 {
    fn from_word(word: u64) -> Option<Self> {
        u16::try_from(word).ok()
    }
    fn to_word(self) -> u64 {
        u64::from(self)
    }
}

/// An address in the caller's space; not yet known to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserAddress(pub u64);

impl Word for UserAddress {
    fn from_word(word: u64) -> Option<Self> {
        crate::layout::is_user(word).then_some(Self(word))
    }
    fn to_word(self) -> u64 {
        self.0
    }
}

/// An instance named by its number, or "any free one" (all bits one in 32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Whichever is free.
    Any,
    /// This one or an error.
    This(u32),
}

impl Word for Which {
    fn from_word(word: u64) -> Option<Self> {
        match u32::try_from(word).ok()? {
            u32::MAX => Some(Which::Any),
            number => Some(Which::This(number)),
        }
    }
    fn to_word(self) -> u64 {
        match self {
            Which::Any => u64::from(u32::MAX),
            Which::This(number) => u64::from(number),
        }
    }
}
