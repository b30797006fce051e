//! Static Linux programs in the guest that know what is below and in ExOS.
//!
//! One looks at the kernel below it (`tests/exos`), one puts functions of its own in the place of
//! ExOS's (`tests/parts`).

use std::path::PathBuf;
use std::process::Command;

use crate::build;
use crate::failure::{Context, Result};
use crate::process;
use crate::tally::Tally;
use crate::workspace;

/// The first, as the boot image has it.
const WITNESS: &str = "/xok/exos-tests";
/// The package of the second, which is built for Linux.
const PARTS: &str = "parts-tests";
/// How long it may take, boot included.
const LIMIT_SECONDS: &str = "240";

/// Runs both on one and on two processors and counts the lines they print.
pub fn run(tally: &mut Tally) -> Result<()> {
    let parts = parts()?;
    let pattern = tally.only().map(str::to_string);
    let mut words = vec![parts.as_str()];
    words.extend(pattern.iter().flat_map(|pattern| ["only", pattern.as_str()]));
    let programs: [(_, _, &[&str]); 2] =
        [("exos tests: ", "all_tests_end", &[WITNESS]), ("parts tests: ", "parts_end", &words)];
    for cpus in ["1", "2"] {
        let place = format!("x{cpus}");
        if !tally.wants_place(&place) {
            continue;
        }
        for (last, end, words) in programs {
            let text = output(words, cpus)?;
            record(tally, &text, &place);
            let ended = text.lines().last().is_some_and(|line| line.starts_with(last));
            let outcome = if ended { Ok(String::new()) } else { Err(text) };
            let name = format!("exos/{end}");
            if tally.wants(&name) || outcome.is_err() {
                tally.record(&name, &place, outcome);
            }
        }
    }
    Ok(())
}

/// Builds the second program; where it lies.
pub fn parts() -> Result<String> {
    let mut cargo = build::cargo();
    cargo.args(["rustc", "--quiet", "--release", "--package", PARTS, "--bin", PARTS]);
    process::run(cargo.args(["--", "-C", "target-feature=+crt-static"]))?;
    let path: PathBuf = workspace::target().join("release").join(PARTS);
    Ok(path.to_string_lossy().into_owned())
}

/// What a program prints.
fn output(words: &[&str], cpus: &str) -> Result<String> {
    let ourselves = std::env::current_exe().context("our own program")?;
    let output = Command::new(ourselves)
        .args(["run", "--timeout", LIMIT_SECONDS, "--cpus", cpus, "--"])
        .args(words)
        .stdin(std::process::Stdio::null())
        .output()
        .context("our own program")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Counts the lines `test NAME ... ok`.
fn record(tally: &mut Tally, text: &str, place: &str) {
    for line in text.lines() {
        let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
        else {
            continue;
        };
        let outcome = match verdict.strip_prefix("ok") {
            Some(remark) => Ok(remark.trim().to_string()),
            None => Err(verdict.to_string()),
        };
        if tally.wants(name) {
            tally.record(name, place, outcome);
        }
    }
}
