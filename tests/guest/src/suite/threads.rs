//! Threads that a program schedules itself.

use super::roles;
use super::roles::threads::{CONTENT, PLAYS, READ, SPINS, VALUE, WAITS};
use super::sched::until;
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground};
use alloc::format;
use alloc::string::String;
use xok::call::{self, OWN};
use xok::published;

/// What each of the others gets done, at least, while one waits in a fault: spinners, players, who
/// have one turn in a round of the spinners' slices.
const TURNS: [u64; 3] = [1_000, 1_000, 10];

/// aegis95 S29, the line on siblings: a thread that waits in a fault stops no other thread
/// of its environment; who computes takes turns; registers are each thread's own.
pub fn siblings_of_a_fault(ground: &Ground) -> Result<String, Failure> {
    let program = assistant::spawn(ground.image, roles::THREADS, [0; 6], &[])?;
    assistant::start(program)?;
    let word = |at: usize| published::application_word(program.env.index(), 8 * at).unwrap_or(0);
    let others = || [word(SPINS[0]), word(SPINS[1]), word(PLAYS)];
    let waited = until(|| word(WAITS) == 1, "the reader's fault").and_then(|()| {
        let before = others();
        let far = || (0..3).all(|at| others()[at] >= before[at] + TURNS[at]);
        until(far, "its siblings").map_err(|why| format!("{why}: {before:?}, {:?}", others()))
    });
    let (during, early) = (others(), word(READ));
    if waited.is_err() {
        let _ = call::env_destroy(OWN, program.env, 0);
    }
    // It comes now, if it still lives.
    let _ = call::post(OWN, program.env, 1);
    let read = || word(READ) != 0 || !published::env_lives(program.env);
    let came = until(read, "the page").map(|()| word(READ));
    let left = assistant::wait(program.env)?;
    waited?;
    expect!(early == 0, "the page was read as {early:#x} before it came");
    expect!(came? == u64::from(VALUE), "it was read as {:#x}", word(READ));
    expect!(left == CONTENT, "the program left {left:#x}");
    Ok(format!("(turns meanwhile: {during:?})"))
}
