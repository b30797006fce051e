//! Which domains attach to a region by a capability: each that has one, or the first alone.

use abi::error::Error;
use abi::region::ONE_GUEST;

/// Which domains besides its maker's attach to a region by a capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Guests {
    /// Each that has one.
    #[default]
    Any,
    /// One, which has not come yet (`ONE_GUEST`).
    One,
    /// None any more.
    Full,
}

impl Guests {
    /// What `RegionAlloc` asks for.
    pub fn of(asked: u64) -> Self {
        if asked & ONE_GUEST == 0 { Self::Any } else { Self::One }
    }

    /// May one more come?
    pub fn check(self) -> Result<(), Error> {
        if self == Self::Full { Err(Error::Taken) } else { Ok(()) }
    }

    /// One has come.
    pub fn came(&mut self) {
        if *self == Self::One {
            *self = Self::Full;
        }
    }
}
