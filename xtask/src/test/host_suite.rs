//! The tests of each package that runs on the host, by cargo.

use std::process::Stdio;

use super::known;
use crate::build;
use crate::failure::{Context, Result};
use crate::packages;
use crate::report;
use crate::tally::Tally;
use crate::workspace;

/// Characters of a failed test's reason that stand in its line.
const LONGEST_REASON: usize = 600;

/// Runs them package by package, so that names can begin with their package's. A package without
/// tests of the name that is asked for is not built.
pub fn run(tally: &mut Tally) -> Result<()> {
    packages::require(&[packages::CLANG])?;
    let all = workspace::tested_packages()?;
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let only = tally.only().map(str::to_string);
    for package in all.iter().filter(|name| known::may_hold(only.as_deref(), name, &names)) {
        report::step(&format!("host: {package}"));
        let mut cargo = build::cargo();
        cargo.args(["test", "--quiet", "--no-fail-fast", "--package", package]);
        // In release form the model test makes a million calls, the differential test of downloaded
        // code a hundred thousand programs, and all ids and more orders of threads are tried.
        if ["kernel-core", "code", "fuzz", "abi", "lockfree"].contains(&package.as_str()) {
            cargo.arg("--release");
        }
        cargo.args(["--", "--format", "pretty"]);
        if let Some(only) = &only {
            // libtest sees names without their package's.
            cargo.arg(only.strip_prefix(&format!("{package}/")).unwrap_or(only));
        }
        let output = cargo.stdin(Stdio::null()).output().context("cargo test")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed_before = tally.failed();
        for (test, outcome) in text.lines().filter_map(parse) {
            let name = format!("{package}/{test}");
            match outcome {
                Verdict::Passed => tally.record(&name, "", Ok(String::new())),
                Verdict::Failed => tally.record(&name, "", Err(reason(&text, test))),
                Verdict::Ignored => tally.ignore(&name, "by its own attribute"),
            }
        }
        if !output.status.success() {
            eprintln!("{text}{}", String::from_utf8_lossy(&output.stderr));
            if tally.failed() == failed_before {
                tally.record(package, "", Err(format!("cargo test: {}", output.status)));
            }
        }
    }
    Ok(())
}

enum Verdict {
    Passed,
    Failed,
    Ignored,
}

/// Reads a line of libtest: `test NAME ... ok`.
fn parse(line: &str) -> Option<(&str, Verdict)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let verdict = match verdict.split([' ', ',']).next()? {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        "ignored" => Verdict::Ignored,
        _ => return None,
    };
    Some((name, verdict))
}

/// What a failed test said before libtest's hint about backtraces, in one line, and the command
/// that repeats it if it gave one.
fn reason(text: &str, test: &str) -> String {
    let begins = format!("---- {test} stdout ----");
    let said = text.lines().skip_while(|line| *line != begins).skip(1);
    let said = said.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
    let panic = said.iter().skip_while(|line| !line.contains("panicked at"));
    let panic = panic.take_while(|line| !line.starts_with("note: "));
    let again = said.iter().filter(|line| line.starts_with("reproduce: "));
    let line = panic.chain(again).copied().collect::<Vec<_>>().join("; ");
    if line.is_empty() { "see below".into() } else { line.chars().take(LONGEST_REASON).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_a_test_failed() {
        let text = "---- a::b stdout ----\nseed 7\n\nthread 'a::b' (1) panicked at x.rs:1:2:\n\
                    left: 1\nnote: run with more\nreproduce: XOK_SEED=7\n\n---- c stdout ----\n\
                    other\n\nfailures:\n    a::b\n    c\n";
        let expected = "thread 'a::b' (1) panicked at x.rs:1:2:; left: 1; reproduce: XOK_SEED=7";
        assert_eq!(reason(text, "a::b"), expected);
        assert_eq!(reason(text, "c"), "see below");
        assert_eq!(reason(text, "d"), "see below");
    }

    #[test]
    fn reads_libtest() {
        let passed = parse("test elf::tests::x ... ok");
        assert!(matches!(passed, Some(("elf::tests::x", Verdict::Passed))));
        assert!(matches!(parse("test y ... FAILED"), Some(("y", Verdict::Failed))));
        assert!(matches!(parse("test z ... ignored, slow"), Some(("z", Verdict::Ignored))));
        assert!(parse("test result: ok. 12 passed; 0 failed").is_none());
        assert!(parse("running 3 tests").is_none());
    }
}
