//! How often a program has all processors forget their translations.

use crate::expect;
use crate::judge::{Failure, Ground};
use abi::id::{AccountId, DomainId};
use abi::limits::{FORGET_NS, FORGETS_AT_ONCE};
use abi::setup::{EnvSetup, field};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::published;
use xok::start::APPLICATION_PAGE;

/// How long it is tried, in nanoseconds.
const LENGTH_NS: u64 = 50_000_000;

/// A page that a program shows again and again is shown no more often than its account may
/// interrupt other processors for; on one processor, as often as it likes.
pub fn at_a_pace(_: &Ground) -> Result<String, Failure> {
    let setup = EnvSetup { application_page: APPLICATION_PAGE, ..EnvSetup::default() };
    let said = |why: Refused| format!("{why:?}");
    let env = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE).map_err(said)?;
    let (begin, mut shown) = (now_ns(), 0);
    while now_ns() < begin + LENGTH_NS {
        call::env_set(OWN, env, field::APPLICATION_PAGE, &setup).map_err(said)?;
        shown += 1;
    }
    let length = now_ns() - begin;
    call::env_destroy(OWN, env, 0).map_err(said)?;
    call::env_forget(env).map_err(said)?;
    let most = length / FORGET_NS + FORGETS_AT_ONCE + 1;
    if published::directory().cpus > 1 {
        expect!(shown <= most, "{shown} times in {length} ns, {most} at most");
        expect!(shown >= 2 * FORGETS_AT_ONCE, "{shown} times in {length} ns: it stands still");
    }
    Ok(format!("({shown} times in {length} ns)"))
}
