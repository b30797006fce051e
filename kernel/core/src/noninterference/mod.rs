//! Noninterference: what an account does neither reaches another one nor is seen by it.
//!
//! ```text
//!  XOK_SEED=7 XOK_STEPS=1000000 cargo test --release -p kernel-core noninterference -- --nocapture
//! ```
//! Two accounts within their limits share no right ([`ground`]). The victim follows a script made
//! from a seed ([`script`], [`victim`]); the attacker makes random calls of every row, with what is
//! published for arguments ([`attacker`], [`arguments`]).
//!
//! - *Integrity*: the script has the same answers, memory and room beside the attacker as alone.
//!   Ids are compared by the step that made them, frames by the page that first shows them;
//!   positions, random numbers and times are not compared; what would block is asked for again.
//! - *Secrecy*: of two runs that differ in the victim's data alone, the attacker sees the same to
//!   the bit ([`view`]): answers, registers, memory, all that is published, and in which turn.
//!
//! The seed is drawn anew each time and printed; `XOK_SEED` repeats a run.

mod arguments;
mod attacker;
mod fields;
mod ground;
mod integrity;
mod pieces;
mod script;
mod secrecy;
mod victim;
mod view;

use crate::model::{number, seed};

/// Calls of the attacker's in one world: then another one begins.
const CALLS: u64 = 4_000;

/// One in so many worlds has pages that a large one can stand for.
const LARGE: u64 = 5;

/// Numbers from a seed (splitmix64, Steele and others 2014).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A word whose bits all depend on all bits of another one.
fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// How many calls the attacker makes in all.
fn calls() -> u64 {
    let usual = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 200,
        (false, true) => 30_000,
        (false, false) => 100_000,
    };
    number("XOK_STEPS", usual)
}

/// Prints the line that reproduces a failure.
struct Reproduce {
    seed: u64,
    calls: u64,
    test: &'static str,
}

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, calls, test } = self;
            eprintln!(
                "reproduce: XOK_SEED={seed} XOK_STEPS={calls} cargo test -p kernel-core {test}"
            );
        }
    }
}
