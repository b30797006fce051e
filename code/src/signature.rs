//! What a function is given: its arguments, the memory it may touch, whom it may call, how long.
//!
//! The signature is the kernel's (or whoever runs the function), never the function's. Memory comes
//! in *areas*, each at an address that says which argument it is, so that addresses are ordinary
//! numbers, equal in every run and telling nothing about the machine:
//!
//! ```text
//!  0                  2^32             2·2^32           …   6·2^32           7·2^32
//!  ├ nothing, never ──┼ parameter 1 ───┼ parameter 2 ───┼ … ┼ the stack: 512 ┼ nothing
//! ```

use crate::error::{Limit, Why};
use crate::extent;

/// Most parameters: r1-r5.
pub const PARAMETERS_MAX: usize = 5;
/// Most calls that a signature offers.
pub const CALLS_MAX: usize = 64;
/// The least that an area may have: what one access touches. A masked access goes to an area's
/// first bytes, which must be the area's own.
pub const AREA_BYTES_MIN: u32 = 8;
/// The most that an area may have.
pub const AREA_BYTES_MAX: u32 = 1 << 24;
/// Bytes of the stack (RFC 9669 leaves the size to the platform; this is Linux's).
pub const STACK_BYTES: u32 = 512;
/// The largest budget, in slots run by way of jumps back, and the largest cost of a call.
pub const BUDGET_MAX: u32 = 1 << 20;
/// The number of the stack's area.
pub const STACK: usize = 6;
/// How many numbers of areas there are; 0 and 7 are nobody's.
pub const AREAS: usize = 8;
/// What r10 holds: the stack's end.
pub const STACK_TOP: u64 = address(STACK) + STACK_BYTES as u64;

/// The address of an area: the one of the first parameter is 1.
pub const fn address(area: usize) -> u64 {
    (area as u64) << 32
}

/// What may be done with an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Loads only.
    Read,
    /// Loads and stores.
    Write,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Word,
    /// The address of so many bytes.
    Area {
        /// How many, between [`AREA_BYTES_MIN`] and [`AREA_BYTES_MAX`].
        bytes: u32,
        /// What may be done with them.
        rights: Rights,
    },
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Number or memory.
    pub kind: Kind,
    /// Whether the result may depend on it. One that is no input does not exist for a function that
    /// must be deterministic: the time of day, a page that others write.
    pub input: bool,
}

/// A number that is an input.
pub const WORD: Parameter = Parameter { kind: Kind::Word, input: true };

impl Parameter {
    /// Memory that is an input.
    pub const fn area(bytes: u32, rights: Rights) -> Self {
        Self { kind: Kind::Area { bytes, rights }, input: true }
    }

    /// The same parameter as what it is not to depend on.
    pub const fn outside(self) -> Self {
        Self { input: false, ..self }
    }
}

/// What a function may call by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number.
    pub number: u32,
    /// Its name in a listing.
    pub name: &'static str,
    /// How many arguments it takes, from r1 on.
    pub arguments: u8,
    /// Whether its answer depends on nothing but its arguments, what the function called before,
    /// and the inputs.
    pub deterministic: bool,
    /// What it takes from the budget each time.
    pub cost: u32,
}

/// Which rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// All that the signature offers.
    General,
    /// The result depends on the inputs alone: calls must be deterministic, and parameters that are
    /// no inputs are not there. (What is left of the machine is determined anyhow: registers must
    /// be written before they are read, the stack begins as zeros, addresses are constants.)
    Deterministic,
}

/// What a function is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature<'a> {
    /// Its parameters, in r1-r5.
    pub parameters: &'a [Parameter],
    /// What it may call.
    pub calls: &'a [Call],
    /// What jumps back and calls may cost, all in all: see [`crate::verifier`].
    pub budget: u32,
    /// Which rules hold.
    pub dialect: Dialect,
}

impl Signature<'_> {
    /// Checks it against the limits of this module.
    ///
    /// # Errors
    /// Names the limit.
    pub fn check(&self) -> Result<(), Why> {
        let is_area = |parameter: &Parameter| match parameter.kind {
            Kind::Word => true,
            Kind::Area { bytes, .. } => (AREA_BYTES_MIN..=AREA_BYTES_MAX).contains(&bytes),
        };
        let arguments = |call: &Call| usize::from(call.arguments) <= PARAMETERS_MAX;
        let limits = [
            (self.parameters.len() <= PARAMETERS_MAX, Limit::Parameters),
            (self.parameters.iter().all(is_area), Limit::AreaBytes),
            (self.calls.len() <= CALLS_MAX, Limit::Calls),
            (self.calls.iter().all(arguments), Limit::CallArguments),
            (self.calls.iter().all(|call| call.cost <= BUDGET_MAX), Limit::Budget),
            (self.budget <= BUDGET_MAX, Limit::Budget),
        ];
        match limits.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, limit)) => Err(Why::Signature(*limit)),
        }
    }

    /// The parameter of this position, from 0, unless it is kept from a deterministic function.
    pub fn parameter(&self, position: usize) -> Option<&Parameter> {
        let given = |parameter: &&Parameter| parameter.input || self.dialect == Dialect::General;
        self.parameters.get(position).filter(given)
    }

    /// How long an area is and what may be done with it, if the function has it.
    pub fn area(&self, number: usize) -> Option<(u32, Rights)> {
        if number == STACK {
            return Some((STACK_BYTES, Rights::Write));
        }
        match self.parameter(number.checked_sub(1)?)?.kind {
            Kind::Word => None,
            Kind::Area { bytes, rights } => Some((bytes, rights)),
        }
    }

    /// The call of this number, and its place in the list.
    pub fn call(&self, number: u32) -> Option<(usize, &Call)> {
        self.calls.iter().enumerate().find(|(_, call)| call.number == number)
    }

    /// Where `bytes` bytes at an address lie: the area's number, and the offset in it.
    ///
    /// # Errors
    /// They are in no area, or only partly; or they may not be written.
    pub fn locate(&self, at: u64, bytes: u32, write: bool) -> Result<(usize, u32), Why> {
        let (number, offset) = extent::split(at);
        let (length, rights) = self.area(number as usize).ok_or(Why::Outside(at))?;
        if !extent::within(offset, bytes, length) {
            return Err(Why::Outside(at));
        }
        if write && rights == Rights::Read {
            return Err(Why::ReadOnly(at));
        }
        Ok((number as usize, offset))
    }
}
