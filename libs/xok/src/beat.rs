//! A server's heartbeat: a count in its application page, which whoever keeps the server watches.
//!
//! The server adds one with each turn of its loop. Who watches posts [`ASKED`], which ends its
//! sleep: so an idle server is not woken more often than it is asked, and one that is asked and
//! does not beat, though it has had the processor, hangs.
//!
//! `provoke-server=NAME:MISTAKE:MILLISECONDS` on the command line has that server make a mistake
//! when it has run for so long, in each of its lives, as the kernel's `provoke=` does: for tests of
//! what becomes of it.
//!
//! # Safety
//! The application page of a native program is mapped writable for it alone, where `start` has it.
//! A fault that is asked for ends the program, in this file.
#![allow(unsafe_code)]

use crate::start::APPLICATION_PAGE;
use crate::{call, clock, published};
use abi::id::EnvId;
use abi::published::COMMAND_LINE;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Where in the page the count is: its last word.
pub const BEAT: usize = 4096 - 8;
/// The bit that is posted to ask for a beat.
pub const ASKED: u64 = 1 << 63;

/// Has this program begun to be a server? Libraries run in others as well, in whose pages there is
/// no count and to whom the bit means something else.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// The bit that a server sleeps for, to be asked for a beat; 0 in other programs.
pub fn asked_bit() -> u64 {
    if BEGUN.load(Ordering::Relaxed) { ASKED } else { 0 }
}

/// Says that the loop goes on, if this is a server.
pub fn beat() {
    if !BEGUN.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: a word of the own page (head of the file), which this program alone writes.
    let word = unsafe { AtomicU64::from_ptr((APPLICATION_PAGE + BEAT as u64) as *mut u64) };
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    if MISTAKE_NS.load(Ordering::Relaxed) != 0 {
        go_wrong();
    }
}

/// When a mistake is to be made, nanoseconds since boot; 0: none.
static MISTAKE_NS: AtomicU64 = AtomicU64::new(0);
/// Which one.
static MISTAKE: AtomicU8 = AtomicU8::new(0);

/// The mistakes, by number: they end, panic, fault, run for ever, sleep for ever. The last two are
/// no mistakes: behind a beat the program is kept from running for [`PAUSES_NS`]; there is no
/// memory for [`STARVES_NS`].
const MISTAKES: [&str; 7] = ["end", "panic", "fault", "spin", "sleep", "pause", "starve"];
/// How long a server is kept from running: it is asked for a beat meanwhile, and may be late.
const PAUSES_NS: u64 = 1_700_000_000;
/// How long a server gets no memory that is to do without.
const STARVES_NS: u64 = 4_000_000_000;

/// The mistake that the command line asks of the server `name`, and after how many milliseconds.
fn asked(name: &str, line: &[u8]) -> Option<(usize, u64)> {
    let line = core::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let mut asked = words.find_map(|word| word.strip_prefix("provoke-server="))?.split(':');
    let (server, mistake, after) = (asked.next()?, asked.next()?, asked.next()?);
    let mistake = MISTAKES.iter().position(|known| *known == mistake)?;
    (server == name).then_some((mistake, after.parse().ok()?))
}

/// The server `name` begins: it will make the mistake that the command line asks of it.
pub fn begin(name: &str) {
    BEGUN.store(true, Ordering::Relaxed);
    let mut buffer = [0; COMMAND_LINE];
    if let Some((mistake, after)) = asked(name, published::command_line(&mut buffer)) {
        MISTAKE.store(mistake as u8, Ordering::Relaxed);
        MISTAKE_NS.store(clock::now_ns() + after * 1_000_000, Ordering::Relaxed);
    }
}

#[cold]
fn go_wrong() {
    if clock::now_ns() < MISTAKE_NS.load(Ordering::Relaxed) {
        return;
    }
    match MISTAKE.load(Ordering::Relaxed) {
        0 => call::exit(7 << 8),
        1 => panic!("asked for"),
        // SAFETY: it does not come back (head of the file).
        2 => unsafe { asm!("ud2", options(noreturn)) },
        3 => loop {
            core::hint::spin_loop();
        },
        4 => loop {
            let _ = call::sleep(0, 0, 0, 0);
        },
        5 => {
            MISTAKE_NS.store(0, Ordering::Relaxed);
            let _ = call::sleep(clock::now_ns() + PAUSES_NS, 0, 0, 0);
        }
        _ => {
            let over = clock::now_ns() >= MISTAKE_NS.load(Ordering::Relaxed) + STARVES_NS;
            crate::heap::starve(!over);
            if over {
                // That was the last time.
                MISTAKE_NS.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// The count of an environment's.
pub fn of(env: EnvId) -> u64 {
    published::application_word(env.index(), BEAT).unwrap_or(0)
}
