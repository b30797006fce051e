//! Keeping one's slice while several are told of something: none starts before all have been told.
//!
//! An environment that lends its slice (`FLAG_BORROW`) goes on when the one that it has woken
//! sleeps or has ended. Of a pipeline to which a signal is sent, process by process, the writer
//! would end before the reader is told: the reader would find the end of the pipe, and exit as if
//! nothing had been sent.

use crate::call::{self, OWN};
use abi::id::EnvId;
use abi::setup::{EnvSetup, FLAG_BORROW, field};

/// Until this is dropped, the environments that this one wakes wait for the processor.
#[derive(Debug)]
pub struct Keeping(());

impl Keeping {
    /// Begins it, for an environment that has `FLAG_BORROW` and no other flag. It does not nest.
    #[must_use]
    pub fn begin() -> Self {
        set_flags(0);
        Self(())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        set_flags(FLAG_BORROW);
    }
}

fn set_flags(flags: u64) {
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    // Refused where a program has given its rights up: then it lends, as before.
    let _ = call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup);
}
