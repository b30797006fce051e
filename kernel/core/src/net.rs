//! Filters, rings and transmissions: who gets and who may send a packet.

use crate::answer::Answer;
use crate::machine::Machine;
use crate::state::State;
use abi::call::Call;
use abi::error::Error;

/// The private half of the table.
#[derive(Default)]
pub struct Network {}

/// A domain ends: its filters and rings go.
pub fn end_domain(_state: &mut State, _domain: usize) {}

/// The calls on rings, filters and packets, for the environment at index `caller`.
pub fn call<M: Machine>(
    _state: &mut State,
    _machine: &mut M,
    _caller: usize,
    _capability: u8,
    _call: Call,
    _bytes: &[u8],
) -> Answer {
    Err(Error::NotPresent.into())
}
