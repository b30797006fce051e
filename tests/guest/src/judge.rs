//! Runs the suite, prints a line a test, ends the machine with the verdict.

use crate::suite;
use abi::published::*;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN};
use xok::memory::{DATA, Space, WINDOW};
use xok::published;

/// Why a test failed.
pub type Failure = String;

/// A test: `Ok` with a remark (may be empty), or what was seen instead of what was expected.
pub type Test = fn(&Ground) -> Result<String, Failure>;

/// What every test stands on.
pub struct Ground {
    /// The boot image.
    pub image: &'static [u8],
}

/// 2 MiB of addresses for tests to map what they like; empty between tests.
pub const SCRATCH: u64 = 0x0000_2000_0000_0000;
/// What the tests' own allocations may take.
const HEAP_BYTES: usize = 2 << 20;

/// Fails the test with what was expected and seen unless the condition holds.
#[macro_export]
macro_rules! expect {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err(alloc::format!($($why)*));
        }
    };
}

/// Objects in use: what must be the same before and after a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    frames_free: u64,
    envs: usize,
    domains: usize,
    regions: usize,
    filters: usize,
    rings: usize,
    used: [u32; abi::limits::RESOURCES],
}

fn used<T: Copy>(table: Table, is_used: fn(&T) -> bool) -> usize {
    let count = published::table(table).count as usize;
    (0..count)
        .filter(|&index| {
            published::record::<T>(table, index).is_some_and(|record| is_used(&record))
        })
        .count()
}

fn counts() -> Counts {
    Counts {
        frames_free: published::directory().frames_free,
        envs: used::<EnvRecord>(Table::Envs, |record| record.id != 0),
        domains: used::<DomainRecord>(Table::Domains, |record| record.id != 0),
        regions: used::<RegionRecord>(Table::Regions, |record| record.id != 0),
        filters: used::<FilterRecord>(Table::Filters, |record| record.id != 0),
        rings: used::<RingRecord>(Table::Rings, |record| record.id != 0),
        used: published::record::<AccountRecord>(Table::Accounts, 1).unwrap_or_default().used,
    }
}

/// Destruction is worked off in pieces: gives the kernel time until `before` is reached again.
fn settled(before: Counts) -> Counts {
    let deadline = xok::clock::now_ns() + 2_000_000_000;
    loop {
        let now = counts();
        if now == before || xok::clock::now_ns() > deadline {
            return now;
        }
        let _ = call::sleep(xok::clock::now_ns() + 1_000_000, 0, 0, 0);
    }
}

/// The counts once nothing is being destroyed any more.
fn quiet() -> Counts {
    let deadline = xok::clock::now_ns() + 2_000_000_000;
    let mut last = counts();
    loop {
        let _ = call::sleep(xok::clock::now_ns() + 2_000_000, 0, 0, 0);
        let now = counts();
        if now == last || xok::clock::now_ns() > deadline {
            return now;
        }
        last = now;
    }
}

fn wanted(command_line: &str, name: &str) -> bool {
    let mut only = command_line.split(' ').filter_map(|word| word.strip_prefix("only=")).peekable();
    only.peek().is_none() || only.any(|pattern| name.contains(pattern))
}

/// Runs everything and ends the machine.
pub fn run() {
    let mut buffer = [0; COMMAND_LINE];
    let command_line =
        String::from(core::str::from_utf8(published::command_line(&mut buffer)).unwrap_or(""));
    let image = match xok::boot_image::map(OWN) {
        Ok(image) => image,
        Err(refused) => {
            xok::log!(OWN, "guest tests: the boot image cannot be mapped: {refused:?}");
            let _ = call::machine_end(OWN, 0, 1);
            return;
        }
    };
    if let Err(refused) = warm_up() {
        xok::log!(OWN, "guest tests: cannot set up: {refused:?}");
        let _ = call::machine_end(OWN, 0, 1);
        return;
    }
    crate::faults::install();
    let ground = Ground { image };
    let mut failed = Vec::new();
    let mut passed = 0;
    let is = |setting| command_line.split(' ').any(|word| word == setting);
    let tests = match (is("counted=1"), is("crowded=1")) {
        _ if is("full=1") => suite::FULL,
        (true, _) => suite::COUNTED,
        (_, true) => suite::CROWDED,
        _ => suite::TESTS,
    };
    for (name, test) in tests {
        if !wanted(&command_line, name) {
            continue;
        }
        let left_out = |word: &str| word.strip_prefix("skip=") == Some(*name);
        if command_line.split(' ').any(left_out) {
            xok::log!(OWN, "test guest/{name} ... ignored by the command line");
            continue;
        }
        match one(&ground, *test) {
            Ok(remark) => {
                passed += 1;
                xok::log!(OWN, "test guest/{name} ... ok {remark}");
            }
            Err(why) => {
                xok::log!(OWN, "test guest/{name} ... FAILED {why}");
                failed.push(*name);
            }
        }
    }
    xok::log!(OWN, "guest tests: {passed} passed, {} failed", failed.len());
    let _ = call::machine_end(OWN, 0, u16::from(!failed.is_empty()));
}

/// One test, with the counts before and after.
fn one(ground: &Ground, test: Test) -> Result<String, Failure> {
    let before = quiet();
    let remark = test(ground);
    if remark.is_err() {
        // What a failed test leaves mapped would fail those behind it.
        let _ = Space::own().unmap(SCRATCH, 512);
    }
    let remark = remark?;
    let after = settled(before);
    if after != before {
        return Err(format!("left behind: before {before:?} after {after:?}"));
    }
    Ok(remark)
}

/// Makes what tests use lazily, so that no count changes on their account: heap, tables of the
/// scratch area and of the window.
fn warm_up() -> Result<(), call::Refused> {
    // What the heap holds is counted with the tests' frames: it is to be the same always.
    xok::heap::keep(HEAP_BYTES / 4096);
    drop(Vec::<u8>::with_capacity(HEAP_BYTES));
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA)?;
    own.unmap(SCRATCH, 1)?;
    own.allocate(WINDOW, 1, DATA)?;
    own.unmap(WINDOW, 1)?;
    // Devices, and what a call queued, settle before the first count.
    xok::upcall::take_events();
    Ok(())
}
