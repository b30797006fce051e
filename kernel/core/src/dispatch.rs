//! From a decoded call to its outcome.

use crate::machine::{Machine, UserFault};
use crate::state::State;
use abi::call::Call;
use abi::error::Error;

/// What the machine layer does after a call.
///
/// In every case it then asks [`crate::sched::pick`] who runs, while it still holds the lock. An
/// environment that is switched away from has its FS and GS base and its vector registers saved
/// (unless [`crate::env::vector`] answers `None`: it is dead) before the lock is released: from
/// then on another processor may run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `rax` and `rdx` of the caller (`Context::answer`).
    Answer(u64, u64),
    /// The argument registers are advanced: the caller executes its `syscall` again (the context's
    /// rip is not moved past it; `rax` is untouched).
    Again,
    /// A page fault of the caller's; the call runs again afterwards.
    Fault(UserFault),
    /// The caller's context is complete; it may no longer run. Ask `pick`.
    Left,
    /// Control was transferred: this environment is current, its context is complete, and the vector
    /// registers on the processor are now its own. Nothing is saved or loaded but FS and GS base.
    Enter(usize),
    /// The caller goes on with its context as it stands, in the domain it has now, its vector
    /// registers loaded anew from its frame.
    Restart,
}

/// The answer "done" with a value, or an error with its operand.
pub type Answer = Result<u64, (Error, u64)>;

/// Program memory that a call reads: address and bytes, at most `limits::COPY_BYTES`. The machine
/// layer copies it in before it takes the lock; a fault there is the caller's and nothing has happened.
pub fn buffer(call: &Call) -> Option<(u64, usize)> {
    let _ = call;
    None
}

/// Does a call for the environment at index `caller`, which runs on `cpu`; `capability` is the index that
/// `rax` names, `word` the whole of `rax`, `bytes` what [`buffer`] asked for.
pub fn call<M: Machine>(
    state: &mut State,
    machine: &mut M,
    cpu: usize,
    caller: usize,
    call: Call,
    word: u64,
    bytes: &[u8],
) -> Outcome {
    let _ = (state, machine, cpu, caller, call, word, bytes);
    Outcome::Answer(Error::NotPresent as u64, 0)
}
