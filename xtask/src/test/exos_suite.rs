//! A static Linux program in the guest that looks at the kernel below ExOS (`tests/exos`).

use std::process::Command;

use crate::failure::{Context, Result};
use crate::tally::Tally;

/// The program, as the boot image has it.
const PROGRAM: &str = "/xok/exos-tests";
/// How long it may take, boot included.
const LIMIT_SECONDS: &str = "120";

/// Runs it on one and on two processors and counts the lines it prints.
pub fn run(tally: &mut Tally) -> Result<()> {
    for cpus in ["1", "2"] {
        let place = format!("x{cpus}");
        if !tally.wants_place(&place) {
            continue;
        }
        let ourselves = std::env::current_exe().context("our own program")?;
        let output = Command::new(ourselves)
            .args(["run", "--timeout", LIMIT_SECONDS, "--cpus", cpus, "--", PROGRAM])
            .stdin(std::process::Stdio::null())
            .output()
            .context("our own program")?;
        let text = String::from_utf8_lossy(&output.stdout);
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
                tally.record(name, &place, outcome);
            }
        }
        let ended = text.lines().last().is_some_and(|line| line.starts_with("exos tests: "));
        let outcome = if ended { Ok(String::new()) } else { Err(format!("{:?}", output.status)) };
        if tally.wants("exos/all_tests_end") || outcome.is_err() {
            tally.record("exos/all_tests_end", &place, outcome);
        }
    }
    Ok(())
}
