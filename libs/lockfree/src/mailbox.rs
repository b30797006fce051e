//! What a processor is asked to do before others go on, and whether it has.
//!
//! ```text
//!  asked     requests ever made of it, counted by the askers
//!  answered  the value of `asked` that was there before it last did what is asked
//! ```
//! Whoever waits for an answer serves its own mailbox meanwhile, so that nobody waits for ever.

use abi::atomic::{Atomic, Ordering};

/// One processor's.
#[derive(Debug)]
pub struct Mailbox<W> {
    asked: W,
    answered: W,
}

impl<W> Mailbox<W> {
    /// One that nothing was asked of, of words that are 0.
    pub const fn new(asked: W, answered: W) -> Self {
        Self { asked, answered }
    }
}

impl<W: Atomic<Value = u64>> Mailbox<W> {
    /// Asks; the request's number. All that was stored before is seen by who answers it.
    #[inline(always)]
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Has its processor done it, since this was asked?
    #[inline(always)]
    pub fn has_answered(&self, request: u64) -> bool {
        self.answered.load(Ordering::SeqCst) >= request
    }

    /// The processor's own: does it if it was asked.
    #[inline(always)]
    pub fn serve(&self, act: impl FnOnce()) {
        let asked = self.asked.load(Ordering::SeqCst);
        if self.answered.load(Ordering::Relaxed) != asked {
            act();
            self.answered.fetch_max(asked, Ordering::SeqCst);
        }
    }
}
