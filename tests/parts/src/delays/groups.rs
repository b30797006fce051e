//! Thousands that say that they are in a group, or a user's, beside calls that ask for those.

use super::{Measured, as_user, now, shown};
use crate::deputies::{ANN, NOBODY};
use crate::{expect, kin, libc, limits};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unix::process_page::{MAGIC, ProcessPage};

/// Instructions that a call may take: 8,600,000 it does, and 10,100,000 with the branches for all
/// planted faults in it. It takes 101,000,000 if each stranger is asked about.
pub const BOUND: u64 = 12_000_000;
/// The same of a call that asks for a user's processes: 1,600,000 it does, and 8,800,000 if each
/// stranger is asked about.
pub const ALL_BOUND: u64 = 4_000_000;
/// Measures calls of such a user beside what these words say: what they were, and how long.
type Calls = fn(&str, &[AtomicU64]) -> Vec<(String, u64)>;

/// Calls of each kind, and what is between two of them.
const CALLS: usize = 10;
const BETWEEN: Duration = Duration::from_micros(3300);

/// SIGWINCH
const IGNORED: i32 = 28;
/// A group that there is not.
const NO_GROUP: i32 = 1 << 29;

/// A process that is there until it is ended.
fn sleeper() -> i32 {
    loop {
        std::thread::park();
    }
}

/// What the crowd says from now on.
fn claim(words: &[AtomicU64], [group, session, user]: [u32; 3]) {
    for (offset, value) in [
        (offset_of!(ProcessPage, group), group),
        (offset_of!(ProcessPage, session), session),
        (offset_of!(ProcessPage, user), user),
    ] {
        let shift = 8 * (offset % 8);
        let word = &words[offset / 8];
        let others = word.load(Ordering::SeqCst) & !(0xffff_ffff << shift);
        word.store(others | u64::from(value) << shift, Ordering::SeqCst);
    }
}

/// How long such calls of this process take; `words` are the crowd's.
fn calls_of(whose: &str, words: &[AtomicU64]) -> Vec<(String, u64)> {
    libc::lead_session();
    let own = std::process::id();
    let [leader, member] = [0; 2].map(|_| libc::spawn(sleeper));
    libc::set_group(leader, leader);
    let joins = || _ = libc::set_group(member, leader);
    let asks = || libc::send(-leader, 0);
    let sends = || libc::send(-leader, IGNORED);
    // Of one that strangers alone say that they are in.
    let asks_none = || libc::send(-NO_GROUP, 0);
    let nice = || _ = kin::nice_of_group(leader);
    let calls: [(&str, &dyn Fn(), i32); 5] = [
        ("setpgid", &joins, leader),
        ("kill", &asks, leader),
        ("kill by a signal", &sends, leader),
        ("kill of nobody", &asks_none, NO_GROUP),
        ("getpriority", &nice, leader),
    ];
    let mut all = Vec::new();
    for at in 0..CALLS {
        for (what, call, group) in calls {
            claim(words, [group as u32, own, NOBODY]);
            std::thread::sleep(BETWEEN);
            let begun = now();
            call();
            all.push((format!("for {whose} {what} {at}"), now() - begun));
        }
    }
    for pid in [leader, member] {
        libc::send(pid, 9);
        libc::wait(pid);
    }
    all
}

/// How long a call takes that asks for all processes of this one's user; `words` are the crowd's.
fn calls_for_all(whose: &str, words: &[AtomicU64]) -> Vec<(String, u64)> {
    let (own, user) = (std::process::id(), libc::users()[0]);
    let mut all = Vec::new();
    for at in 0..CALLS {
        claim(words, [own, own, user]);
        std::thread::sleep(BETWEEN);
        let begun = now();
        limits::set_nice_of_user(0);
        all.push((format!("for {whose} setpriority {at}"), now() - begun));
    }
    all
}

/// How long calls take that ask for a group of the caller's, of which the crowd says that it is in
/// it.
pub fn beside(door: door::Door) -> Measured {
    beside_calls(door, calls_of)
}

/// The same of calls that ask for a user's processes.
pub fn beside_all(door: door::Door) -> Measured {
    beside_calls(door, calls_for_all)
}

/// How long calls of another user's process take, and of user 0's.
fn beside_calls(door: door::Door, calls: Calls) -> Measured {
    let page = libc::shared(1);
    let (words, told) = (libc::words(page, 512), libc::words(libc::shared(1), 1));
    words[0].store(MAGIC, Ordering::SeqCst);
    let crowd = libc::spawn(|| {
        let made = libc::become_user(NOBODY).then(|| shown::all(door, page));
        told[0].store(made.unwrap_or(1), Ordering::SeqCst);
        sleeper()
    });
    while told[0].load(Ordering::SeqCst) == 0 && libc::is_alive(crowd) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let anns = as_user(ANN, || Ok(calls("ann's", words)));
    let roots = as_user(0, || Ok(calls("user 0's", words)));
    libc::send(crowd, 9);
    libc::wait(crowd);
    let made = told[0].load(Ordering::SeqCst);
    expect(made > 4000, || format!("there were {made} environments"))?;
    Ok([anns?, roots?].concat())
}
