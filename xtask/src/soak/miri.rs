//! The tests of kernel-core under Miri, which a nightly toolchain has.
//!
//! There is no `unsafe` in it: whether references are used as they may be is left out, and its
//! tables are leaked on purpose. As many interpreters as there are processors take a few tests at a
//! time from one list.

use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use crate::failure::{Context, Failure, Result};
use crate::{report, workspace};

/// Tests that it has no time for: long loops and long random runs, which run as machine code.
const TOO_LONG: [&str; 9] = [
    "concurrent_reader",
    "doorbell",
    "filters_agree",
    "heap_gives",
    "makes_all_of_it_young",
    "no_two_places_meet",
    "overlap_is_symmetric",
    "overwritten_while",
    "the_fast_path_ends",
];
/// Tests that one interpreter takes at a time.
const TAKEN: usize = 4;

/// Runs all but those, and says how many passed.
pub fn tests(seed: u64) -> Result<()> {
    let listed = interpret(seed, &["--list"])?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<&str> =
        names.filter(|name| !TOO_LONG.iter().any(|part| name.contains(part))).collect();
    if names.is_empty() {
        return Err(Failure::new(format!("no test is listed:\n{text}")));
    }
    let waiting = Mutex::new(names.chunks(TAKEN));
    let work = || -> Result<usize> {
        let mut passed = 0;
        loop {
            let next = waiting.lock().map_err(|_| Failure::new("a part has failed"))?.next();
            let Some(some) = next else { return Ok(passed) };
            passed += run(seed, some)?;
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    let passed = std::thread::scope(|scope| -> Result<usize> {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut passed = 0;
        for worker in workers {
            passed += worker.join().map_err(|_| Failure::new("a part has failed"))??;
        }
        Ok(passed)
    })?;
    report::step(&format!("{passed} of {} tests passed under Miri", names.len()));
    if passed == names.len() { Ok(()) } else { Err(Failure::new("not all have been run")) }
}

/// Runs these; how many passed, if all did.
fn run(seed: u64, names: &[&str]) -> Result<usize> {
    let mut arguments = vec!["--exact"];
    arguments.extend(names);
    let output = interpret(seed, &arguments)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok"));
    let passed = count.count();
    let ended = text.lines().find(|line| line.starts_with("test result: ok. "));
    match ended {
        Some(line) if output.status.success() && passed == names.len() => {
            let took = line.rsplit("finished in ").next().unwrap_or_default();
            report::step(&format!("{took}: {}", names.join(" ")));
            Ok(passed)
        }
        _ => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(Failure::new(format!("kernel-core under Miri:\n{text}{error}")))
        }
    }
}

fn interpret(seed: u64, arguments: &[&str]) -> Result<Output> {
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo", "miri", "test", "--package", "kernel-core", "--lib"]);
    rustup.arg("--").args(arguments);
    rustup.env("CARGO_TARGET_DIR", workspace::target().join("miri"));
    rustup.env(
        "MIRIFLAGS",
        "-Zmiri-disable-isolation -Zmiri-disable-stacked-borrows -Zmiri-ignore-leaks",
    );
    let output = rustup.env("XOK_SEED", seed.to_string()).stdin(Stdio::null()).output();
    output.context("rustup, for a nightly toolchain with its component miri")
}
