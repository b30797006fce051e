//! What a call answers when it refuses: the error and its operand.

use abi::error::Error;

/// An error with the value that `rdx` carries (the level, the resource, the limit; else 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For `rax`.
    pub error: Error,
    /// For `rdx`.
    pub value: u64,
}

impl Refusal {
    /// A refusal with its operand.
    pub const fn new(error: Error, value: u64) -> Self {
        Self { error, value }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, value: 0 }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

impl From<Refusal> for (Error, u64) {
    fn from(refusal: Refusal) -> Self {
        (refusal.error, refusal.value)
    }
}

/// What `rdx` answers, or why not.
pub type Answer = Result<u64, Refusal>;
