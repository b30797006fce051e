//! A Linux program that puts functions of its own in the place of ExOS's, by linking `door`.
//!
//! The rest of it knows nothing of that: Rust's standard library, and glibc's. What these do with
//! the program's descriptors, pages and turns is what the tests look at. On Linux, where there is
//! no door, it says so.
//!
//! By the same door it makes kernel calls of its own, as another user: what such a program gets of
//! others, and how long it delays them, is what most of its tests look at (docs/threat-model.md).
#![deny(unsafe_code)]

mod accounts;
mod attacker;
mod calls;
mod delays;
mod deputies;
mod faults;
mod files;
mod foreign;
mod forgers;
mod futex;
mod hostile;
mod internet;
mod kin;
mod libc;
mod limits;
mod nobody;
mod peers;
mod random;
mod set_id;
mod systems;
mod turns;
mod two_users;

use std::process::ExitCode;

/// What a test saw, or what is wrong.
type Seen = Result<String, String>;
/// A test's name and what runs it.
type Test = (&'static str, fn(door::Door) -> Seen);

/// The word before a part of names.
const PATTERN: &str = "only";

const TESTS: [Test; 19] = [
    ("own_read_method", files::own_read_method),
    ("own_methods_write_wait_and_close", files::own_methods_write_wait_and_close),
    ("own_methods_are_interrupted", files::own_methods_are_interrupted),
    ("own_fault_handler", faults::own_fault_handler),
    ("own_yield", turns::own_yield),
    ("own_kernel_calls", calls::own_kernel_calls),
    ("own_kernel_calls_are_checked", calls::own_kernel_calls_are_checked),
    ("library_systems_side_by_side", systems::library_systems_side_by_side),
    ("peers_that_store_nonsense", peers::peers_that_store_nonsense),
    ("peers_do_not_say_who_they_are", forgers::peers_do_not_say_who_they_are),
    ("locks_are_their_descriptions", forgers::locks_are_their_descriptions),
    ("locks_outlive_no_holders_region", forgers::locks_outlive_no_holders_region),
    ("nobody_reaches_anything", nobody::nobody_reaches_anything),
    ("hostile_callers_of_a_set_id_program", set_id::hostile_callers),
    ("users_pay_for_themselves", accounts::users_pay_for_themselves),
    ("a_user_at_its_limits", accounts::a_user_at_its_limits),
    ("forks_without_regions", accounts::forks_without_regions),
    ("memory_on_its_way_back_is_waited_for", accounts::memory_on_its_way_back_is_waited_for),
    ("root_ends_who_takes_no_signals", nobody::root_ends_who_takes_no_signals),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.first().is_some_and(|name| name == set_id::NAME) {
        return ExitCode::from(set_id::job());
    }
    if words.first().is_some_and(|name| name == nobody::NAME) {
        return ExitCode::from(nobody::teams());
    }
    if let Some(status) = deputies::terminals::forged::role(&words) {
        return ExitCode::from(status);
    }
    if let Some(status) = deputies::heirs::role(door::Door::find(), &words) {
        return ExitCode::from(status);
    }
    if let Some(status) = deputies::guesses::role(door::Door::find(), &words) {
        return ExitCode::from(status);
    }
    if let Some(status) = deputies::stepped::role(&words) {
        return ExitCode::from(status);
    }
    if let Some(status) = deputies::seals::role(door::Door::find(), &words) {
        return ExitCode::from(status);
    }
    let Some(door) = door::Door::find() else {
        println!("parts tests: no door here");
        return ExitCode::FAILURE;
    };
    let arguments = words.get(1..).unwrap_or(&[]);
    if arguments.first().is_some_and(|word| word == "hostile") {
        return ExitCode::from(u8::from(!hostile::command(door, &arguments[1..])));
    }
    if arguments.first().is_some_and(|word| word == "accounts-kept") {
        let seen = accounts::kept();
        println!("{seen:?}");
        return ExitCode::from(u8::from(seen.is_err()));
    }
    if let [word, part] = arguments
        && word == "delays"
    {
        return delays::command(door, part);
    }
    if let [word, callers, seed] = arguments
        && word == "set-id"
    {
        return soak(door, callers, seed);
    }
    let (mut passed, mut failed) = (0, 0);
    let tests = match asked(arguments) {
        Ok(tests) => tests,
        Err(unknown) => {
            println!("parts tests: no test {unknown}");
            return ExitCode::FAILURE;
        }
    };
    for (name, test) in tests {
        match test(door) {
            Ok(remark) => {
                passed += 1;
                println!("test exos/{name} ... ok {remark}");
            }
            Err(what) => {
                failed += 1;
                println!("test exos/{name} ... FAILED {what}");
            }
        }
    }
    println!("parts tests: {passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// The tests of these names; after [`PATTERN`] those whose name, as the results have it, holds a
/// pattern; without words, all. `Err`: there is no such test.
fn asked(words: &[String]) -> Result<Vec<Test>, &str> {
    let mut all: Vec<Test> = TESTS.to_vec();
    all.extend(deputies::TESTS.concat());
    if let [word, pattern] = words
        && word == PATTERN
    {
        all.retain(|(name, _)| format!("exos/{name}").contains(pattern));
        return Ok(all);
    }
    if let Some(unknown) = words.iter().find(|asked| all.iter().all(|(name, _)| name != asked)) {
        return Err(unknown);
    }
    all.retain(|(name, _)| words.is_empty() || words.iter().any(|asked| asked == name));
    Ok(all)
}

/// So many hostile callers from a seed, for `cargo xtask soak`.
fn soak(door: door::Door, callers: &str, seed: &str) -> ExitCode {
    let (Ok(callers), Ok(seed)) = (callers.parse(), seed.parse()) else {
        return ExitCode::FAILURE;
    };
    match set_id::many(door, callers, seed) {
        Ok(remark) => println!("set-id: ok {remark}"),
        Err(what) => {
            println!("set-id: FAILED {what}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// `Err(what)` unless it holds.
fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
