//! A terminal of one user's beside those of another one's, at which ^C is typed without end.

use super::{Measured, as_user, now, shown};
use crate::deputies::terminals::Terminal;
use crate::deputies::{ANN, NOBODY};
use crate::{expect, libc};
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::process_page::{MAGIC, ProcessPage};

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
/// Environments that say that they are in a foreground: nearly as many as a user may have.
const CROWD: usize = 8000;
/// While a process lives that is made beside them.
const BETWEEN_FORKS: Duration = Duration::from_millis(1);

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn ignore(_: i32) {}

/// Leads a session with a terminal of its own, where SIGINT is counted.
fn own_terminal() -> Option<Terminal> {
    if !libc::lead_session() {
        return None;
    }
    libc::handle(2, count);
    // Its master is closed before what was measured is told.
    libc::handle(1, ignore);
    Terminal::open(true)
}

/// Types ^C at an own terminal again and again, and says how often it was told.
pub(super) fn type_on(told: &AtomicU64) -> Option<i32> {
    type_on_beside(told, || {})
}

/// The same when this has been done, with the terminal.
fn type_on_beside(told: &AtomicU64, act: impl FnOnce()) -> Option<i32> {
    let own = own_terminal()?;
    act();
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

/// Environments that never run, and say that they are in this process's foreground; how many.
fn crowd(door: door::Door) -> usize {
    let page = libc::shared(1);
    let words = libc::words(page, 512);
    words[0].store(MAGIC, Ordering::SeqCst);
    let settings = offset_of!(ProcessPage, terminal_settings);
    let said = [
        offset_of!(ProcessPage, terminal),
        settings,
        settings + 4,
        offset_of!(ProcessPage, session),
        offset_of!(ProcessPage, group),
    ];
    for offset in said {
        let half = u64::from(libc::own_page_word(offset).load(Ordering::SeqCst));
        words[offset / 8].fetch_or(half << (8 * (offset % 8)), Ordering::SeqCst);
    }
    std::iter::from_fn(|| shown::one(door, page)).take(CROWD).count()
}

/// Makes processes again and again, one of which is always there.
fn fork_on() -> i32 {
    let pause = || -> i32 {
        loop {
            std::thread::park();
        }
    };
    loop {
        let child = libc::spawn(pause);
        std::thread::sleep(BETWEEN_FORKS);
        libc::send(child, 9);
        libc::wait(child);
    }
}

/// The same beside one terminal, in whose foreground thousands say that they are, and a process
/// that makes others.
pub fn beside_crowd(door: door::Door) -> Measured {
    let told = libc::words(libc::shared(1), 2);
    let types = || {
        if !libc::become_user(NOBODY) {
            return 1;
        }
        // The terminal's session is the typing process's, and so is the crowd's.
        let act = || {
            let made = crowd(door);
            told[1].store(made as u64, Ordering::SeqCst);
            libc::spawn(fork_on);
        };
        type_on_beside(&told[0], act).unwrap_or(1)
    };
    let pid = libc::spawn(types);
    while told[0].load(Ordering::SeqCst) < 2 && libc::is_alive(pid) {
        std::thread::sleep(PAUSE);
    }
    let before = told[0].load(Ordering::SeqCst);
    let victim = type_now_and_then();
    let after = told[0].load(Ordering::SeqCst);
    libc::send(pid, 9);
    libc::wait(pid);
    let made = told[1].load(Ordering::SeqCst);
    expect(made > 4000, || format!("there were {made} environments"))?;
    expect(after > before, || format!("who types was told {before}, then {after}"))?;
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
