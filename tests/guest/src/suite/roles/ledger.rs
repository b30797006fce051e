//! A service by typed calls: it keeps a sum for each caller.

use super::mirror::set_application_word;
use abi::id::EnvId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use xok::call::Message;
use xok::server::Serve;

/// Serves the ledger.
pub const LEDGER: u64 = 45;

xok::rpc! {
    /// A sum for each caller.
    pub trait Ledger, client LedgerClient {
        /// Adds to the caller's sum: what it is now.
        1 fn add(amount: u32) -> u64;
        /// The caller's sum.
        2 fn sum() -> u64;
        /// Moves from the caller's sum to another's: what is left.
        3 fn give(to: u32, amount: u32) -> u64;
    }
}

#[derive(Default)]
struct Book(Vec<(EnvId, u64)>);

impl Book {
    fn of(&mut self, whose: EnvId) -> &mut u64 {
        let at = self.0.iter().position(|(env, _)| *env == whose).unwrap_or_else(|| {
            self.0.push((whose, 0));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl Ledger for Book {
    fn add(&mut self, caller: EnvId, amount: u32) -> u64 {
        let sum = self.of(caller);
        *sum += u64::from(amount);
        *sum
    }

    fn sum(&mut self, caller: EnvId) -> u64 {
        *self.of(caller)
    }

    fn give(&mut self, caller: EnvId, to: u32, amount: u32) -> u64 {
        let sum = self.of(caller);
        let given = u64::from(amount).min(*sum);
        *sum -= given;
        let left = *sum;
        *self.of(EnvId(to)) += given;
        left
    }
}

impl Serve for Book {
    fn request(&mut self, caller: EnvId, message: &mut Message) {
        self.serve(caller, message);
    }

    fn events(&mut self) -> u64 {
        xok::upcall::take_events();
        xok::upcall::take_pending();
        set_application_word(1);
        0
    }
}

/// Serves for ever.
pub fn run() -> u64 {
    xok::server::run(Box::leak(Box::<Book>::default()))
}
