//! What a call still owes its caller: a value that must be used, once.
//!
//! A processor has one stack, which nobody's call is left on (l4stack 1): who sleeps, is held or
//! waits for a reply is its record, and how its call goes on is said by what its handler ends with.
//! A handler has a [`Continuation`] and must answer with a [`Done`], which nothing else gives: so
//! none can be forgotten, used twice, or made up, on no path (l4stack 7.1).
//!
//! ```text
//!  dispatch::call ─► Continuation ─┬─ answer, refuse   the caller goes on behind its call
//!                                  ├─ again, fault     the call runs again
//!                                  ├─ left             its record says how it goes on
//!                                  ├─ enter            somebody else runs
//!                                  ├─ moved            the caller goes on in another domain
//!                                  └─ restart          the caller is another program
//!                                        └─► Done ─► machine layer
//! ```
//!
//! A handler uses it on every path:
//!
//! ```
//! use kernel_core::dispatch::continuation::{Continuation, Done};
//! fn handler(works: bool, continuation: Continuation) -> Done {
//!     if works { continuation.answer(Ok(0)) } else { continuation.again() }
//! }
//! ```
//!
//! Forgotten on one:
//!
//! ```compile_fail,E0317
//! use kernel_core::dispatch::continuation::{Continuation, Done};
//! fn handler(works: bool, continuation: Continuation) -> Done {
//!     if works { continuation.answer(Ok(0)) }
//! }
//! ```
//!
//! Dropped:
//!
//! ```compile_fail,E0308
//! use kernel_core::dispatch::continuation::{Continuation, Done};
//! fn handler(works: bool, continuation: Continuation) -> Done {
//!     if works { continuation.answer(Ok(0)) } else { drop(continuation) }
//! }
//! ```
//!
//! Used twice:
//!
//! ```compile_fail,E0382
//! use kernel_core::dispatch::continuation::{Continuation, Done};
//! fn handler(works: bool, continuation: Continuation) -> Done {
//!     if works { continuation.answer(Ok(0)); }
//!     continuation.again()
//! }
//! ```
//!
//! Duplicated:
//!
//! ```compile_fail,E0599
//! use kernel_core::dispatch::continuation::{Continuation, Done};
//! fn handler(continuation: Continuation) -> (Done, Done) {
//!     (continuation.clone().again(), continuation.again())
//! }
//! ```
//!
//! Made up, as its outcome:
//!
//! ```compile_fail,E0423
//! use kernel_core::dispatch::{Outcome, continuation::Done};
//! fn handler() -> Done {
//!     Done(Outcome::Again)
//! }
//! ```
//!
//! ```compile_fail,E0423
//! use kernel_core::dispatch::continuation::{Continuation, Done};
//! fn handler() -> Done {
//!     Continuation(()).again()
//! }
//! ```

use super::Outcome;
use crate::answer::{Answer, Refusal};
use crate::index::EnvIndex;
use crate::machine::UserFault;
use crate::state::State;
use abi::published::EnvState;

/// A call that has not ended. It has no size: at run time there is nothing of it.
#[must_use]
#[derive(Debug)]
pub struct Continuation(());

/// The end of a call's handling.
#[must_use]
#[derive(Debug)]
pub struct Done(Outcome);

impl Done {
    /// What the machine layer has to do.
    #[inline(always)]
    pub(super) fn outcome(self) -> Outcome {
        self.0
    }
}

impl Continuation {
    /// That of a call that has just been decoded: made there alone.
    #[inline(always)]
    pub(super) fn begin() -> Self {
        Self(())
    }

    /// The caller goes on behind its call, with this.
    #[inline(always)]
    pub fn answer(self, answer: Answer) -> Done {
        match answer {
            Ok(value) => Done(Outcome::Answer(0, value)),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// The same, of a call that is refused.
    #[inline(always)]
    pub fn refuse(self, refusal: impl Into<Refusal>) -> Done {
        let Refusal { error, value } = refusal.into();
        Done(Outcome::Answer(error as u64, value))
    }

    /// The call runs again, its registers advanced.
    #[inline(always)]
    pub fn again(self) -> Done {
        Done(Outcome::Again)
    }

    /// The call runs again after a fault of the caller's.
    #[inline(always)]
    pub fn fault(self, fault: UserFault) -> Done {
        Done(Outcome::Fault(fault))
    }

    /// The record of the caller, at `index`, says how it goes on, if it does.
    #[inline(always)]
    pub fn left(self, state: &State, index: EnvIndex) -> Done {
        debug_assert!(state.envs.slots[index].state != EnvState::Running, "it has not left");
        Done(Outcome::Left)
    }

    /// Answered, or left.
    #[inline(always)]
    pub fn answer_or_left(self, ended: Option<Answer>, state: &State, index: EnvIndex) -> Done {
        match ended {
            Some(answer) => self.answer(answer),
            None => self.left(state, index),
        }
    }

    /// The environment at `callee` runs, instead of the caller, whose record says how it goes on.
    #[inline(always)]
    pub fn enter(self, callee: EnvIndex) -> Done {
        Done(Outcome::Enter(callee))
    }

    /// The caller goes on in another domain, where its context says.
    #[inline(always)]
    pub fn moved(self) -> Done {
        Done(Outcome::Moved)
    }

    /// The caller goes on as another program.
    #[inline(always)]
    pub fn restart(self) -> Done {
        Done(Outcome::Restart)
    }
}
