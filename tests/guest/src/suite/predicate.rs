//! Wakeup predicates: evaluated for the sleeper, refused when they look where they may not.

use super::roles;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::error::Error;
use abi::id::EnvId;
use abi::limits::PREDICATE_ATOMS;
use abi::predicate::{Atom, Operator, Source};
use abi::upcall::woken;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::memory::{DATA, Space};
use xok::published;
use xok::start::APPLICATION_PAGE;

/// `word at address == value`.
pub fn word_is(address: u64, value: u64, last: bool) -> Atom {
    Atom {
        operator: Operator::Equal as u8,
        left: Source::Memory as u8,
        right: Source::Constant as u8,
        last: u8::from(last),
        left_value: address,
        right_value: value,
        ..Atom::default()
    }
}

fn put(address: u64, value: u64) {
    for (at, byte) in value.to_le_bytes().iter().enumerate() {
        faults::store(address + at as u64, *byte);
    }
}

/// thesis98 Z-66: a sleeper uses no processor time and wakes at its condition; over two words and
/// the clock, by `or` and `and`.
pub fn wakes(ground: &Ground) -> Result<String, Failure> {
    let word = published::application_page(1).ok_or("no page")? + 0x800;
    put(APPLICATION_PAGE + 0x800, 0);
    let sleeper =
        assistant::spawn(ground.image, roles::SLEEP_UNTIL_WORD, [word, 7, 0, 0, 0, 0], &[])?;
    assistant::start(sleeper)?;
    until(|| counter(sleeper.env) == 1, "the sleeper to fall asleep")?;
    let _ = call::sleep(now_ns() + 20_000_000, 0, 0, 0);
    let before = published::env(sleeper.env).ok_or("gone")?;
    let _ = call::sleep(now_ns() + 100_000_000, 0, 0, 0);
    let after = published::env(sleeper.env).ok_or("gone")?;
    expect!(
        after.switches == before.switches,
        "entered {} times",
        after.switches - before.switches
    );
    expect!(after.run_ns == before.run_ns, "used {} ns", after.run_ns - before.run_ns);
    put(APPLICATION_PAGE + 0x800, 7);
    let left = assistant::wait(sleeper.env)?;
    expect!(left == woken::PREDICATE, "woken by {left}");
    // (own == 1 and clock late) or (own == 2): the second term, then the first.
    let mut late = word_is(APPLICATION_PAGE + 0x808, 1, false);
    let mut clock = word_is(0, now_ns() + 30_000_000, true);
    clock.operator = Operator::AtLeast as u8;
    clock.left = Source::Clock as u8;
    late.last = 0;
    let either = [late, clock, word_is(APPLICATION_PAGE + 0x808, 2, true)];
    put(APPLICATION_PAGE + 0x808, 1);
    call::predicate_set(&either).map_err(|why| format!("{why:?}"))?;
    let began = now_ns();
    let why = call::sleep(now_ns() + 5_000_000_000, 0, 0, 0);
    expect!(why == Ok(woken::PREDICATE), "the clock's term: {why:?}");
    expect!(now_ns() - began < 2_000_000_000, "woken {} ns late", now_ns() - began);
    put(APPLICATION_PAGE + 0x808, 2);
    let why = call::sleep(now_ns() + 5_000_000_000, 0, 0, 0);
    expect!(why == Ok(woken::PREDICATE), "the second term: {why:?}");
    call::predicate_set(&[]).map_err(|why| format!("{why:?}"))?;
    let why = call::sleep(now_ns() + 1_000_000, 0, 0, 0);
    expect!(matches!(why, Err((Error::TimedOut, _))), "without a predicate: {why:?}");
    Ok(String::new())
}

/// xok97 T17, thesis98 Z-80, appnet 18: loops cannot be said, foreign and missing memory is
/// refused, and a page that is unmapped later stays readable for the predicate.
pub fn refused(_: &Ground) -> Result<String, Failure> {
    let atom = word_is(APPLICATION_PAGE, 0, true);
    for (what, address) in [
        ("nothing", SCRATCH),
        ("the kernel", abi::layout::KERNEL + 0x20_0000),
        ("the direct map", abi::layout::DIRECT_MAP + 0x1000),
        ("not canonical", 0x8000_0000_0000_0000),
    ] {
        let answer = call::predicate_set(&[word_is(address, 0, true)]);
        expect!(answer.is_err(), "{what}: {answer:?}");
    }
    for operator in [0, 5, 200] {
        let answer = call::predicate_set(&[Atom { operator, ..atom }]);
        expect!(matches!(answer, Err((Error::BadArgument, _))), "operator {operator}: {answer:?}");
    }
    let crooked = call::predicate_set(&[word_is(APPLICATION_PAGE + 3, 0, true)]);
    expect!(crooked.is_err(), "a crooked address: {crooked:?}");
    let many: Vec<Atom> = (0..PREDICATE_ATOMS + 1).map(|_| atom).collect();
    let long = call::predicate_set(&many);
    expect!(matches!(long, Err((Error::TooLarge, _))), "too long: {long:?}");
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(|why| format!("{why:?}"))?;
    let frame = xok::own::frame(SCRATCH).ok_or("no frame")?;
    put(SCRATCH, 5);
    call::predicate_set(&[word_is(SCRATCH, 5, true)]).map_err(|why| format!("{why:?}"))?;
    own.unmap(SCRATCH, 1).map_err(|why| format!("{why:?}"))?;
    let pinned = published::frame(frame).ok_or("no record")?;
    expect!(pinned.references > 0, "the predicate's frame is free: {pinned:?}");
    let why = call::sleep(now_ns() + 1_000_000_000, 0, 0, 0);
    expect!(why == Ok(woken::PREDICATE), "after the unmap: {why:?}");
    call::predicate_set(&[]).map_err(|why| format!("{why:?}"))?;
    let free = published::frame(frame).ok_or("no record")?;
    expect!(free.references == 0, "still referred to: {free:?}");
    Ok(String::new())
}

/// appnet 17: two hundred sleepers with false predicates are not entered; only the right one wakes.
pub fn false_sleepers(ground: &Ground) -> Result<String, Failure> {
    const SLEEPERS: u64 = 60;
    let word = published::application_page(1).ok_or("no page")? + 0x810;
    put(APPLICATION_PAGE + 0x810, 0);
    let mut sleepers = Vec::new();
    for number in 0..SLEEPERS {
        let words = [word, number + 1, 0, 0, 0, 0];
        let sleeper = assistant::spawn(ground.image, roles::SLEEP_UNTIL_WORD, words, &[])?;
        assistant::start(sleeper)?;
        sleepers.push(sleeper);
    }
    until(|| sleepers.iter().all(|sleeper| counter(sleeper.env) == 1), "all to fall asleep")?;
    let _ = call::sleep(now_ns() + 20_000_000, 0, 0, 0);
    let switches = |env| published::env(env).map_or(0, |record| record.switches);
    let before: Vec<u64> = sleepers.iter().map(|sleeper| switches(sleeper.env)).collect();
    let _ = call::sleep(now_ns() + 100_000_000, 0, 0, 0);
    put(APPLICATION_PAGE + 0x810, 31);
    let left = assistant::wait(sleepers[30].env)?;
    expect!(left == woken::PREDICATE, "the right one was woken by {left}");
    let mut entered = 0;
    for (sleeper, before) in sleepers.iter().zip(before) {
        entered += switches(sleeper.env).saturating_sub(before);
    }
    for (number, sleeper) in sleepers.iter().enumerate() {
        if number != 30 {
            call::env_destroy(OWN, sleeper.env, 0).map_err(|why| format!("{why:?}"))?;
            assistant::wait(sleeper.env)?;
        }
    }
    expect!(entered == 0, "{entered} entries into sleepers whose predicate is false");
    Ok(format!("({SLEEPERS} sleepers)"))
}

/// A number from the kernel's command line.
pub fn setting(key: &str, default: u64) -> u64 {
    let mut buffer = [0; abi::published::COMMAND_LINE];
    let line = core::str::from_utf8(published::command_line(&mut buffer)).unwrap_or("");
    line.split(' ').find_map(|word| word.strip_prefix(key)?.parse().ok()).unwrap_or(default)
}

/// appnet 20: a post that races a sleep is never lost.
pub fn no_lost_wakeup(ground: &Ground) -> Result<String, Failure> {
    let rounds = setting("rounds=", 3_000);
    let echo = assistant::spawn(
        ground.image,
        roles::ECHO_POSTS,
        [1, rounds, 0, 0, 0, 0],
        &[xok::spawn::Gift { from: OWN, slot: 1, extend: &[], rights: abi::capability::CONTROL }],
    )?;
    if published::directory().cpus > 1 {
        call::slice_alloc(OWN, 1, abi::word::Which::Any, echo.env)
            .map_err(|why| format!("{why:?}"))?;
    }
    let was = xok::upcall::set_mask(true);
    xok::upcall::take_pending();
    // What is there before is sure; what comes while one falls asleep is a matter of chance.
    let posted = call::post(OWN, EnvId(1), 4);
    let seen = call::sleep(now_ns() + 2_000_000_000, 4, 0, 0);
    let bits = xok::upcall::take_pending();
    if posted.is_err() || seen.is_err() || bits != 4 {
        xok::upcall::set_mask(was);
        call::env_destroy(OWN, echo.env, 0).map_err(|why| format!("{why:?}"))?;
        let _ = assistant::wait(echo.env)?;
        return Err(format!("posted {posted:?} before the sleep: {seen:?}, bits {bits:#x}"));
    }
    assistant::start(echo)?;
    until(|| counter(echo.env) == 1, "the other to listen")?;
    let mut lost = 0;
    for _ in 0..rounds {
        call::post(OWN, echo.env, 2).map_err(|why| format!("{why:?}"))?;
        while xok::upcall::take_pending() & 4 == 0 {
            let why = call::sleep(now_ns() + 2_000_000_000, 4, 0, 0);
            if why.is_err() {
                lost += 1;
                break;
            }
        }
        if lost > 0 {
            break;
        }
    }
    xok::upcall::set_mask(was);
    if lost > 0 {
        let _ = call::env_destroy(OWN, echo.env, 0);
    }
    let left = assistant::wait(echo.env)?;
    expect!(lost == 0 && left == rounds, "lost a wake-up; the other did {left} rounds");
    Ok(format!("({rounds} rounds)"))
}

/// appnet 20, xok97 XK-6: a write to a region that races a wait for it is never lost. Two count in
/// turn, each waiting in its own operation for the other.
pub fn region_no_lost_wakeup(ground: &Ground) -> Result<String, Failure> {
    let rounds = setting("rounds=", 3_000);
    let region = call::region_alloc(OWN, &[]).map_err(|why| format!("{why:?}"))?;
    let echo = assistant::spawn(
        ground.image,
        roles::COUNT_IN_REGION,
        [region.0, rounds, 0, 0, 0, 0],
        &[],
    )?;
    call::region_attach(OWN, region, 0, abi::id::DomainId::NONE)
        .and_then(|_| call::region_attach(OWN, region, 0, echo.domain))
        .map_err(|why| format!("{why:?}"))?;
    if published::directory().cpus > 1 {
        call::slice_alloc(OWN, 1, abi::word::Which::Any, echo.env)
            .map_err(|why| format!("{why:?}"))?;
    }
    assistant::start(echo)?;
    let counted = roles::count_in_turn(region, 0, rounds);
    let left = assistant::wait(echo.env)?;
    call::region_detach(region, 0).map_err(|why| format!("{why:?}"))?;
    expect!(counted == rounds && left == rounds, "{counted} rounds, the other {left}");
    Ok(format!("({rounds} rounds)"))
}
