//! A notification board in a page: who waits for thousands of conditions, and who notifies.
//!
//! The board itself, and why nothing is lost on it, is `lockfree::board`. A wake-up is a bit posted
//! to the waiter. Neither side trusts the other: a notifier that stores nonsense makes conditions
//! seem true, and the waiter looks whether they are.
//!
//! # Safety
//! The page is atomics alone, mapped as long as it is used: that is whoever made it's promise.
#![allow(unsafe_code)]

use crate::call;
use crate::upcall;
use abi::error::Error;
use abi::id::EnvId;
use lockfree::board::Page;

/// How many conditions a page has.
pub const CONDITIONS: usize = Page::CONDITIONS;

/// Who waits.
#[derive(Debug)]
pub struct Waiter {
    board: &'static Page,
    bits: u64,
}

/// Who notifies.
#[derive(Debug)]
pub struct Notifier {
    board: &'static Page,
    waiter: EnvId,
    capability: u8,
    bits: u64,
}

impl Waiter {
    /// The waiter at the board at `address`, woken by these posted bits.
    ///
    /// # Safety
    /// A page is mapped there, writable, as long as this program runs; it was all zeros when the
    /// board began.
    pub unsafe fn at(address: u64, bits: u64) -> Self {
        // SAFETY: the caller's promise; any bytes are a board.
        Self { board: unsafe { &*(address as *const Page) }, bits }
    }

    /// Tells `each` of the conditions that hold, each once, in order; waits for a first one until
    /// `deadline` (nanoseconds since boot; 0: for ever). Was there one?
    ///
    /// The program's mask must be set, or a post interrupts it instead of being waited for.
    #[inline]
    pub fn wait(&self, deadline: u64, mut each: impl FnMut(usize)) -> bool {
        loop {
            let mut some = false;
            self.board.take(|condition| {
                some = true;
                each(condition);
            });
            if some {
                return true;
            }
            if self.board.fall_asleep() {
                let why = call::sleep(deadline, self.bits, 0, 0);
                self.board.wake();
                upcall::take_pending_of(self.bits);
                if why.is_err() {
                    // What came at the last moment is for the next time.
                    return false;
                }
            }
        }
    }
}

impl Notifier {
    /// A notifier at the board at `address`, whose waiter is woken by these bits, with a capability
    /// that gives CONTROL over it.
    ///
    /// # Safety
    /// As for [`Waiter::at`].
    pub unsafe fn at(address: u64, waiter: EnvId, capability: u8, bits: u64) -> Self {
        // SAFETY: as there.
        Self { board: unsafe { &*(address as *const Page) }, waiter, capability, bits }
    }

    /// The condition holds. The error is the post's: the waiter has died, or is not ours to wake.
    #[inline]
    pub fn notify(&self, condition: usize) -> Result<(), Error> {
        if self.board.set(condition) {
            call::post(self.capability, self.waiter, self.bits).map_err(|(why, _)| why)?;
        }
        Ok(())
    }
}
