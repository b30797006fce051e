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
    // One that fails does not keep the others from being run.
    let work = || -> Result<(usize, Vec<String>)> {
        let (mut passed, mut failures) = (0, Vec::new());
        loop {
            let next = waiting.lock().map_err(|_| Failure::new("a part has failed"))?.next();
            let Some(some) = next else { return Ok((passed, failures)) };
            match run(seed, some) {
                Ok(count) => passed += count,
                Err(failure) => failures.push(failure.to_string()),
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    let (passed, failures) = std::thread::scope(|scope| -> Result<(usize, Vec<String>)> {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut all = (0, Vec::new());
        for worker in workers {
            let one = worker.join().map_err(|_| Failure::new("a part has failed"))??;
            all.0 += one.0;
            all.1.extend(one.1);
        }
        Ok(all)
    })?;
    report::step(&format!("{passed} of {} tests passed under Miri", names.len()));
    if failures.is_empty() && passed == names.len() {
        Ok(())
    } else {
        Err(Failure::new(failures.join("\n")))
    }
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
