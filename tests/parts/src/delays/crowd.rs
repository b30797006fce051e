//! Many threads of one user's that ask the file server again at once where it is busy, or yield.

use super::Measured;
use super::files::{PAUSE, PLACE, prepare, write_again};
use crate::deputies::{NOBODY, node_of};
use crate::{expect, forgers, libc};
use abi::id::EnvId;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use unix::attributes::Credentials;
use unix::protocol::{Operation, Request, TRANSFER_BYTES};
use xok::services::{self, Service};

/// How many threads there are: a few, and more than answers that a server might keep.
const CROWDS: [usize; 3] = [3, 20, 200];
/// Answers that another user gets beside each.
const ANSWERS: usize = 12;

/// Another user's write of one byte beside each crowd.
pub fn all(door: door::Door) -> Measured {
    let mut measured = Vec::new();
    for threads in CROWDS {
        for yields in [false, true] {
            let one = beside(door, threads, yields)?;
            let what = if yields { "that yield" } else { "that ask again" };
            let worst = one.into_iter().map(|(_, took)| took).max().unwrap_or(0);
            measured.push((format!("beside {threads} threads {what}"), worst));
        }
    }
    Ok(measured)
}

fn beside(door: door::Door, threads: usize, yields: bool) -> Measured {
    prepare()?;
    let done = &libc::words(libc::shared(1), 1)[0];
    let crowd = libc::spawn(|| ask_again(door, threads, yields, done).unwrap_or(1));
    while libc::is_alive(crowd) && done.load(Ordering::SeqCst) < 2 * threads as u64 {
        std::thread::sleep(PAUSE);
    }
    let victim = write_again(ANSWERS);
    let alive = libc::is_alive(crowd);
    libc::send(crowd, 9);
    libc::wait(crowd);
    expect(alive, || format!("the crowd of {threads} has ended"))?;
    victim
}

/// Writes as much as one request may, in each of so many threads, without end.
fn ask_again(
    door: door::Door,
    threads: usize,
    yields: bool,
    done: &'static AtomicU64,
) -> Option<i32> {
    const STACK: usize = 16 << 10;
    if !libc::become_user(NOBODY) {
        return None;
    }
    let place = format!("{PLACE}/wide");
    fs::write(&place, vec![1; TRANSFER_BYTES as usize]).ok()?;
    let region = forgers::transport()?;
    let node = node_of(door, NOBODY, &place)?;
    let ask = move || {
        let arguments = [node, 0, TRANSFER_BYTES, 0];
        let who = Credentials::of(NOBODY, NOBODY);
        let words = Request { operation: Operation::Write, region, arguments, who }.to_words();
        let server = EnvId(services::get(Service::Files) as u32);
        loop {
            match libc::transfer(door, server, words) {
                Ok(_) => {
                    done.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) if yields => std::thread::yield_now(),
                Err(_) => std::hint::spin_loop(),
            }
        }
    };
    for _ in 1..threads {
        std::thread::Builder::new().stack_size(STACK).spawn(ask).ok()?;
    }
    ask()
}
