//! No client of a server delays another one: how long each answer takes, counted in instructions.
//!
//! It runs on a machine of one processor on which a nanosecond is one instruction, as for the
//! guest's tests of stretches (`guest/stretch_by_call`): so 10 ms are 10,000,000 instructions, of
//! all that run meanwhile, the kernel included. `files_elsewhere` has two processors, and counts
//! requests.
//!
//! ```text
//!   files         the dearest requests to the file server: how long it is busy with one
//!   files_beside  a client beside others of another user, which ask for much again and again
//!   files_programs  one beside programs that fill files and remove them
//!   files_ends    one beside programs that end with many files open
//!   files_elsewhere  one beside others that call again at once, on two processors
//!   groups        one that asks for a group beside thousands that say that they are in it
//!   holders       a client beside thousands of environments that say that they have files open
//!   sleepers      one that wakes threads beside thousands that say that they sleep for the word
//!   terminals     a terminal beside others of another user, at which ^C is typed again and again
//!   terminals_crowd  one beside thousands that say that they are in another one's foreground
//!   users         one that asks for a user's processes beside thousands that say they are its
//!   web           a client of the web server's beside connections that ask for dear pages in a row
//!   turns         what a program that computes lacks, as servers work for another user meanwhile
//!   turns_requests  the same beside requests that the other user makes without end
//! ```

mod crowd;
mod elsewhere;
mod entries;
mod files;
mod groups;
mod holders;
mod shown;
mod sleepers;
mod terminals;
mod turns;
mod web;

use crate::libc;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Instructions for which a client may delay another one.
const BOUND: u64 = 10_000_000;

/// What was measured: what it was, and the instructions that it took at most.
type Measured = Result<Vec<(String, u64)>, String>;

/// A part's name, what measures it, what its bound is.
type Part = (&'static str, fn(door::Door) -> Measured, u64);

const PARTS: [Part; 16] = [
    ("files", files::alone, BOUND),
    ("files_beside", files::beside, BOUND),
    ("files_programs", files::beside_programs, BOUND),
    ("files_ends", files::beside_ends, files::ENDS_BOUND),
    ("files_crowd", crowd::all, BOUND),
    ("files_elsewhere", elsewhere::all, elsewhere::BOUND),
    ("files_entries", entries::all, BOUND),
    ("groups", groups::beside, groups::BOUND),
    ("users", groups::beside_all, groups::ALL_BOUND),
    ("holders", holders::beside, holders::BOUND),
    ("sleepers", sleepers::beside, sleepers::BOUND),
    ("terminals", terminals::beside, BOUND),
    ("terminals_crowd", terminals::beside_crowd, BOUND),
    ("turns", turns::all, turns::BOUND),
    ("turns_requests", turns::requests, turns::REQUESTS_BOUND),
    ("web", web::beside, BOUND),
];

/// Nanoseconds since boot.
fn now() -> u64 {
    xok::clock::now_ns()
}

/// How long one waits for a child, in milliseconds of the guest's time.
const PATIENCE: i32 = 30_000;

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// Does it as another user, in a child, which tells what it has measured.
fn as_user(user: u32, act: impl FnOnce() -> Measured) -> Measured {
    let (mut told, mut tells) = UnixStream::pair().map_err(failed)?;
    let child = libc::spawn(|| {
        if !libc::become_user(user) {
            return 100;
        }
        let text = match act() {
            Ok(all) => all.into_iter().map(|(what, took)| format!("{took} {what}\n")).collect(),
            Err(why) => format!("failed {why}\n"),
        };
        i32::from(tells.write_all(text.as_bytes()).is_err())
    });
    drop(tells);
    if libc::wait_for(std::os::fd::AsRawFd::as_raw_fd(&told), libc::POLLIN, PATIENCE) == 0 {
        libc::send(child, 9);
    }
    let mut text = String::new();
    told.read_to_string(&mut text).map_err(failed)?;
    let status = libc::wait(child);
    let parse = |line: &str| {
        let (took, what) = line.split_once(' ')?;
        Some((what.to_string(), took.parse().ok()?))
    };
    let all: Option<Vec<(String, u64)>> = text.lines().map(parse).collect();
    let all = all.filter(|all| status == 0 && !all.is_empty());
    all.ok_or_else(|| format!("user {user} ended with {status:#x}: {text}"))
}

/// Children that have said a word, and end when they are told to.
struct Children {
    pids: Vec<i32>,
    said: Vec<u16>,
}

impl Children {
    /// So many that have done this.
    fn of(count: usize, act: impl Fn() -> Option<u16>) -> Result<Self, String> {
        let (mut told, tells) = UnixStream::pair().map_err(failed)?;
        let child = || {
            let Some(said) = act() else { return 1 };
            if (&tells).write_all(&said.to_le_bytes()).is_err() {
                return 2;
            }
            loop {
                std::thread::park();
            }
        };
        let pids: Vec<i32> = (0..count).map(|_| libc::spawn(child)).collect();
        drop(tells);
        let mut said = Vec::new();
        let mut word = [0; 2];
        let comes = |end: &UnixStream| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(end);
            libc::wait_for(fd, libc::POLLIN, PATIENCE) != 0
        };
        while said.len() < count && comes(&told) && told.read_exact(&mut word).is_ok() {
            said.push(u16::from_le_bytes(word));
        }
        let ready = said.len();
        let children = Self { pids, said };
        if ready < count {
            let statuses = children.end();
            return Err(format!("{ready} of {count} children are ready: {statuses:x?}"));
        }
        Ok(children)
    }

    /// What they have ended with.
    fn end(self) -> Vec<i32> {
        let end = |pid| {
            libc::send(pid, 9);
            libc::wait(pid)
        };
        self.pids.into_iter().map(end).collect()
    }
}

/// `delays PART`: prints what takes longest, and whether all is in bounds.
pub fn command(door: door::Door, part: &str) -> ExitCode {
    let Some(&(_, measure, bound)) = PARTS.iter().find(|(name, ..)| *name == part) else {
        return ExitCode::FAILURE;
    };
    match measure(door) {
        Ok(mut all) => {
            all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
            for (what, took) in &all {
                println!("{took:>12} {what}");
            }
            let worst = all.first().map_or(u64::MAX, |(_, took)| *took);
            println!("delays: at most {worst} of {bound}");
            ExitCode::from(u8::from(worst > bound))
        }
        Err(why) => {
            println!("delays: {why}");
            ExitCode::FAILURE
        }
    }
}
