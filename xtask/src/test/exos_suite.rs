//! Static Linux programs in the guest that know what is below and in ExOS.
//!
//! One looks at the kernel below it (`tests/exos`), one puts functions of its own in the place of
//! ExOS's (`tests/parts`).

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::build;
use crate::failure::{Context, Result};
use crate::process;
use crate::tally::{Tally, Verdict};
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
            let output = output(words, cpus)?;
            let text = String::from_utf8_lossy(&output.stdout);
            record(tally, &text, &place);
            let outcome = ending(&text, &String::from_utf8_lossy(&output.stderr), last);
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

/// Has a program come to its last line? Else what it has printed, behind what was told last of its
/// machine: a machine that was not built or did not boot has printed nothing.
fn ending(text: &str, errors: &str, last: &str) -> Verdict {
    if text.lines().last().is_some_and(|line| line.starts_with(last)) {
        return Ok(String::new());
    }
    let told = |line: &&str| !line.trim().is_empty();
    Err(format!("{}; {text}", errors.lines().rfind(told).unwrap_or("no error was told")))
}

/// What a program prints, and what is told of its machine.
fn output(words: &[&str], cpus: &str) -> Result<Output> {
    let ourselves = std::env::current_exe().context("our own program")?;
    Command::new(ourselves)
        .args(["run", "--timeout", LIMIT_SECONDS, "--cpus", cpus, "--"])
        .args(words)
        .stdin(std::process::Stdio::null())
        .output()
        .context("our own program")
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

#[cfg(test)]
mod tests {
    use super::ending;

    #[test]
    fn a_machine_that_does_not_boot_says_why() {
        let printed = "test exos/one ... ok\nexos tests: 1 passed\n";
        assert_eq!(ending(printed, "", "exos tests: "), Ok(String::new()));
        let errors = "building\nerror: no such package\n\n";
        assert_eq!(ending("", errors, "exos tests: "), Err("error: no such package; ".into()));
        let cut = ending("test exos/one ... ok\n", "", "exos tests: ");
        assert_eq!(cut, Err("no error was told; test exos/one ... ok\n".into()));
    }
}
