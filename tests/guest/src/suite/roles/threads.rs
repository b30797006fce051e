//! A program of several threads, one of which waits in a fault until somebody else says so.
//!
//! ```text
//!  main ── spawns, joins ──┬─ reader    loads from a page that comes later
//!                          ├─ spinners  two, never let go, keep patterns in vector registers
//!                          └─ players   two, wake each other in turn
//! ```

use super::ending::{set_vectors, vectors};
use super::mirror::set_word;
use crate::faults;
use abi::layout::PAGE_SIZE;
use abi::memory::NO_EXECUTE;
use abi::upcall::Cause;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use xok::memory::{Space, allocate_filled};
use xok::threads::{self, Fate, Fault, Program, ThreadId, Threads};

/// Its report when all was as it should be.
pub const CONTENT: u64 = 0x600d;
/// The page that is missing.
const MISSING: u64 = 0x0000_7200_0000_0000;
/// What it will hold.
pub const VALUE: u8 = 0xfe;

/// Words of the application page: the reader waits; turns of spinners and players; what was read.
pub const WAITS: usize = 0;
/// See [`WAITS`].
pub const SPINS: [usize; 2] = [1, 2];
/// See [`WAITS`].
pub const PLAYS: usize = 3;
/// See [`WAITS`].
pub const READ: usize = 4;

static ENOUGH: AtomicBool = AtomicBool::new(false);
/// Threads whose registers changed under them.
static SPOILT: AtomicU64 = AtomicU64::new(0);
static PLAYERS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

struct Late {
    reader: Option<ThreadId>,
}

impl Program for Late {
    fn fault(&mut self, _: &mut Threads, fault: &Fault) -> Fate {
        if fault.cause != Cause::PageFault as u64 || fault.address != MISSING {
            return Fate::End;
        }
        self.reader = Some(fault.thread);
        set_word(WAITS, 1);
        Fate::Wait
    }

    fn event(&mut self, threads: &mut Threads, posted: u64, _: u64) {
        if posted == 0 {
            return;
        }
        let page = [VALUE; PAGE_SIZE as usize];
        if allocate_filled(&mut Space::own(), MISSING, &page, NO_EXECUTE).is_ok()
            && let Some(reader) = self.reader.take()
        {
            threads.wake(reader);
        }
    }
}

extern "C" fn read(_: u64) {
    set_word(READ, faults::load(MISSING).map_or(0, u64::from));
}

extern "C" fn spin(which: u64) {
    let words = core::array::from_fn(|at| (which + 1) * 0x1_0000_0001 + at as u64);
    set_vectors(&words);
    for turn in 1.. {
        if vectors() != words {
            SPOILT.fetch_add(1, Relaxed);
        }
        if ENOUGH.load(Relaxed) || SPOILT.load(Relaxed) != 0 {
            return;
        }
        set_word(SPINS[which as usize & 1], turn);
    }
}

extern "C" fn play(which: u64) {
    let mut turns = 0;
    let partner = || ThreadId(PLAYERS[(1 - which as usize) & 1].load(Relaxed));
    while !ENOUGH.load(Relaxed) {
        turns += 1;
        if which == 0 {
            set_word(PLAYS, turns);
        }
        threads::wake(partner());
        threads::park();
    }
    threads::wake(partner());
}

/// Runs them all; how it ended.
pub fn run() -> u64 {
    threads::begin(Late { reader: None });
    let reader = threads::spawn(read, 0);
    let spinners = [0, 1].map(|which| threads::spawn(spin, which));
    let players = [0, 1].map(|which| threads::spawn(play, which));
    for (place, player) in PLAYERS.iter().zip(players) {
        place.store(player.0, Relaxed);
    }
    threads::join(reader);
    ENOUGH.store(true, Relaxed);
    spinners.into_iter().chain(players).for_each(threads::join);
    if SPOILT.load(Relaxed) == 0 { CONTENT } else { 1 }
}
