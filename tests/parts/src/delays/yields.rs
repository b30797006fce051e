//! A client that asks for little and yields, again and again, beside another user's that sleeps.

use super::Measured;
use super::files::{PLACE, prepare, write_in_rows};
use crate::deputies::{NOBODY, ask_by};
use crate::{expect, forgers, libc};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unix::protocol::Operation;

/// Answers of the other user's: some of their requests are those after which the server lets others
/// in, so that the answers wait.
const ANSWERS: usize = 4000;
/// How many come one after the other.
const TOGETHER: usize = 8;
/// What it sleeps before those.
const PAUSE: Duration = Duration::from_micros(211);

/// Another user's writes of one byte.
pub fn all(door: door::Door) -> Measured {
    prepare()?;
    let done = &libc::words(libc::shared(1), 1)[0];
    let attacker = libc::spawn(|| ask_and_yield(door, done).unwrap_or(1));
    let victim = write_in_rows(ANSWERS, TOGETHER, PAUSE);
    let alive = libc::is_alive(attacker);
    libc::send(attacker, 9);
    libc::wait(attacker);
    expect(alive, || "the attacker has ended".into())?;
    let (done, least) = (libc::count(done), ANSWERS as u64);
    expect(done > least, || format!("the attacker has {done} answers only"))?;
    victim
}

fn ask_and_yield(door: door::Door, done: &AtomicU64) -> Option<i32> {
    if !libc::become_user(NOBODY) {
        return None;
    }
    // So that there is a region to ask by.
    File::create(format!("{PLACE}/other")).ok()?;
    let region = forgers::transport()?;
    loop {
        ask_by(door, region, NOBODY, Operation::Space, [0; 4]).ok()?;
        done.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
    }
}
