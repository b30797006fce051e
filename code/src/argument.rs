//! What one run of a function is given, checked against its signature.

use crate::signature::{Kind, Parameter, Rights, Signature};

/// One argument.
#[derive(Debug)]
pub enum Argument<'m> {
    /// A number.
    Word(u64),
    /// Memory that is not changed.
    Read(&'m [u8]),
    /// Memory that may be changed.
    Write(&'m mut [u8]),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this result.
    Returned(u64),
    /// The budget was spent; what was stored before that stays stored.
    Exhausted,
    /// A load or store went outside of every area, or a store to one that may only be read.
    Outside,
}

/// The argument of this position, from 0, does not fit the signature: too many or few, another
/// kind, or memory shorter than the signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch(pub usize);

/// Checks arguments against the parameters. Memory may be longer: the function sees what is
/// declared.
///
/// # Errors
/// Names the first that does not fit.
pub fn check(signature: &Signature, arguments: &[Argument]) -> Result<(), Mismatch> {
    if arguments.len() != signature.parameters.len() {
        return Err(Mismatch(arguments.len().min(signature.parameters.len())));
    }
    let pairs = signature.parameters.iter().zip(arguments);
    match pairs.enumerate().find(|(_, (parameter, argument))| !fits(parameter, argument)) {
        None => Ok(()),
        Some((position, _)) => Err(Mismatch(position)),
    }
}

fn fits(parameter: &Parameter, argument: &Argument) -> bool {
    match (parameter.kind, argument) {
        (Kind::Word, Argument::Word(_)) => true,
        (Kind::Area { bytes, rights: Rights::Read }, Argument::Read(memory)) => {
            memory.len() >= bytes as usize
        }
        (Kind::Area { bytes, .. }, Argument::Write(memory)) => memory.len() >= bytes as usize,
        _ => false,
    }
}
