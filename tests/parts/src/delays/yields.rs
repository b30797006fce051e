//! A client that asks for little and yields, again and again, beside another user's that sleeps.

use super::files::{PLACE, prepare};
use super::{Measured, as_user, now};
use crate::deputies::{ANN, NOBODY, ask_by};
use crate::{expect, forgers, libc};
use std::fs::File;
use std::os::unix::fs::FileExt;
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
    let victim = write_again();
    let alive = libc::is_alive(attacker);
    libc::send(attacker, 9);
    libc::wait(attacker);
    expect(alive, || "the attacker has ended".into())?;
    let (done, least) = (libc::count(done), ANSWERS as u64);
    expect(done > least, || format!("the attacker has {done} answers only"))?;
    victim
}

fn write_again() -> Measured {
    as_user(ANN, || {
        let file = File::create(format!("{PLACE}/ann")).map_err(|why| why.to_string())?;
        let mut worst = (String::new(), 0);
        for at in 0..ANSWERS {
            if at % TOGETHER == 0 {
                std::thread::sleep(PAUSE);
            }
            let begun = now();
            file.write_all_at(b"x", 0).map_err(|why| why.to_string())?;
            let took = now() - begun;
            if took > worst.1 {
                worst = (format!("for answer {at}"), took);
            }
        }
        Ok(vec![worst])
    })
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
