//! Programs with vector registers and without, which look at what is in them.

use super::ending::{set_vectors, vectors};
use super::{count, mirror};
use crate::faults;
use abi::id::EnvId;
use abi::setup::{EnvSetup, FLAG_BORROW, FLAG_NO_VECTOR, field};
use abi::upcall::Cause;
use xok::call::{self, OWN};
use xok::clock::now_ns;

/// Spins this long to be taken off the processor, nanoseconds.
const LONG: u64 = 12_000_000;
/// In how many rounds it is tried once.
const SELDOM: u64 = 32;

/// Keeps patterns in its vector registers whatever way it leaves the processor, the environment
/// `to` being one to yield to. Ends when they have changed, with how it left.
pub fn keep(to: EnvId, seed: u64) -> u64 {
    for round in 1.. {
        let words = core::array::from_fn(|at| (seed + round) * 0x1_0000_0001 + at as u64);
        set_vectors(&words);
        let way = round % 4;
        match way {
            0 => _ = call::yield_to(to),
            1 => _ = call::yield_to(EnvId::NONE),
            2 => _ = call::sleep(now_ns() + 50_000, 0, 0, 0),
            _ if round % SELDOM == 3 => {
                let end = now_ns() + LONG;
                while now_ns() < end {}
            }
            _ => _ = faults::illegal(),
        }
        if vectors() != words {
            return 1 + way;
        }
        count();
    }
    0
}

fn set(flags: u64) -> bool {
    let setup = EnvSetup { flags, ..EnvSetup::default() };
    call::env_set(OWN, EnvId::NONE, field::FLAGS, &setup).is_ok()
}

/// Has none (it was made so): they are a fault; switched on they are as after reset, and lost when
/// they are switched off. Yields to `to` in between. Ends with the number of what was wrong.
pub fn do_without(to: EnvId) -> u64 {
    for round in 0_u64.. {
        let before = faults::seen().count;
        let at = mirror::touch_vectors();
        let seen = faults::seen();
        if seen.count != before + 1 || seen.cause != Cause::NoDevice as u64 || seen.rip != at {
            return 1;
        }
        if round % 4 == 0 {
            if !set(FLAG_BORROW) {
                return 2;
            }
            if vectors() != [0; 32] {
                return 3;
            }
            set_vectors(&[!round; 32]);
            let _ = call::yield_to(to);
            if vectors() != [!round; 32] {
                return 4;
            }
            if !(set(FLAG_BORROW | FLAG_NO_VECTOR) && set(FLAG_BORROW)) {
                return 5;
            }
            if vectors() != [0; 32] {
                return 6;
            }
            if !set(FLAG_BORROW | FLAG_NO_VECTOR) {
                return 7;
            }
        }
        count();
        let _ = call::yield_to(to);
    }
    0
}
