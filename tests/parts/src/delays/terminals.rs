//! A terminal of one user's beside those of another one's, at which ^C is typed without end.

use super::{Measured, as_user, now};
use crate::deputies::terminals::Terminal;
use crate::deputies::{ANN, NOBODY};
use crate::{expect, libc};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Terminals of the user that types ^C: as many as one may have.
const TERMINALS: usize = 32;
/// What the other user types.
const KEYSTROKES: usize = 20;
/// Between two of them: no multiple of a tick.
const PAUSE: Duration = Duration::from_millis(23);
/// Within which all that typed have been told so.
const PATIENCE: Duration = Duration::from_secs(20);
/// What is typed for SIGINT.
const INTERRUPT: u8 = 3;

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::SeqCst);
}

/// Leads a session with a terminal of its own, where SIGINT is counted.
fn own_terminal() -> Option<Terminal> {
    if !libc::lead_session() {
        return None;
    }
    libc::handle(2, count);
    Terminal::open(true)
}

/// Types ^C at an own terminal again and again, and says how often it was told.
pub(super) fn type_on(told: &AtomicU64) -> Option<i32> {
    let own = own_terminal()?;
    told.store(1, Ordering::SeqCst);
    libc::set_waits(own.master.as_raw_fd(), false);
    let mut shown = [0; 4096];
    loop {
        libc::write(own.master.as_raw_fd(), &[INTERRUPT; 4096]);
        while libc::read(own.master.as_raw_fd(), &mut shown) > 0 {}
        told.store(1 + SEEN.load(Ordering::SeqCst), Ordering::SeqCst);
        std::thread::yield_now();
    }
}

/// A keystroke's echo, and ^C from the keystroke to the signal, beside such terminals.
pub fn beside(_: door::Door) -> Measured {
    let told = libc::words(libc::shared(1), TERMINALS);
    let mut pids = Vec::new();
    for told in told {
        let pid = libc::spawn(|| match libc::become_user(NOBODY) {
            true => type_on(told).unwrap_or(1),
            false => 1,
        });
        while told.load(Ordering::SeqCst) == 0 && libc::is_alive(pid) {
            std::thread::yield_now();
        }
        pids.push(pid);
    }
    let before: Vec<u64> = told.iter().map(|told| told.load(Ordering::SeqCst)).collect();
    let victim = type_now_and_then();
    // Each of them is told of what was typed there, and again.
    let again = |(told, &before): (&AtomicU64, &u64)| told.load(Ordering::SeqCst) > before + 1;
    let begun = Instant::now();
    while !told.iter().zip(&before).all(again) && begun.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
    let all = told.iter().zip(&before).all(again);
    for pid in pids {
        libc::send(pid, 9);
        libc::wait(pid);
    }
    expect(all, || format!("they were told {told:?}"))?;
    victim
}

fn type_now_and_then() -> Measured {
    as_user(ANN, || {
        let mut own = own_terminal().ok_or("no terminal")?;
        let mut all = Vec::new();
        for at in 0..KEYSTROKES {
            std::thread::sleep(PAUSE);
            let begun = now();
            let typed = own.master.write_all(b"a");
            typed.and_then(|()| own.master.read_exact(&mut [0])).map_err(super::failed)?;
            all.push((format!("for keystroke {at}"), now() - begun));
            let (begun, seen) = (now(), SEEN.load(Ordering::SeqCst));
            own.master.write_all(&[INTERRUPT]).map_err(super::failed)?;
            while SEEN.load(Ordering::SeqCst) == seen {
                std::thread::yield_now();
            }
            all.push((format!("for signal {at}"), now() - begun));
            // The echo, `^C`.
            own.master.read_exact(&mut [0; 2]).map_err(super::failed)?;
        }
        Ok(all)
    })
}
