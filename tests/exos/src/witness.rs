//! A program that says what the published pages hold, and starts another one to be seen there.
//!
//! ```text
//!  it reads   it does, and says
//!  spawn      starts a child that touches 16 MiB: `spawned PID NANOSECONDS PAGES`
//!  kill       kills it and waits for it: `killed NANOSECONDS`
//!  figures    `figures ENVIRONMENTS FREE-FRAMES DOMAINS-MADE`
//! ```

use crate::linux;
use crate::suite::calls_of;
use abi::published::{EnvRecord, Table};
use core::fmt::Write;
use xok::{clock, published};

/// Pages that the child touches.
const PAGES: u64 = 4096;
/// SIGKILL
const KILL: u64 = 9;

/// Standard output, a line at a time: what is said comes out in one write.
struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

fn say(text: core::fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 128], len: 0 };
    if writeln!(line, "{text}").is_ok() {
        linux::write(1, &line.bytes[..line.len]);
    }
}

/// Serves standard input until it ends.
pub fn run() -> ! {
    let mut child = 0;
    let mut word = [0; 16];
    let mut len = 0;
    say(format_args!("ready {}", linux::pid()));
    loop {
        let mut byte = [0];
        if linux::read(0, &mut byte) != 1 {
            linux::exit(0);
        }
        if byte[0] != b'\n' {
            len = (len + 1).min(word.len());
            word[len - 1] = byte[0];
            continue;
        }
        match &word[..core::mem::take(&mut len)] {
            b"spawn" => child = spawn(),
            b"kill" => {
                linux::kill(child, KILL);
                linux::wait(child);
                say(format_args!("killed {}", clock::now_ns()));
            }
            b"figures" => figures(),
            _ => linux::exit(1),
        }
    }
}

fn spawn() -> i64 {
    let child = linux::fork();
    if child == 0 {
        let Some(at) = linux::memory(PAGES) else { linux::exit(1) };
        for page in 0..PAGES {
            linux::store(at + page * 4096, 1);
        }
        say(format_args!("spawned {} {} {PAGES}", linux::pid(), clock::now_ns()));
        loop {
            linux::pause();
        }
    }
    child
}

fn figures() {
    let count = published::table(Table::Envs).count as usize;
    let envs = (0..count)
        .filter_map(|index| published::record::<EnvRecord>(Table::Envs, index))
        .filter(|record| record.id != 0)
        .count();
    let free = published::directory().frames_free;
    say(format_args!("figures {envs} {free} {}", calls_of(abi::call::number::DomainAlloc)));
}
