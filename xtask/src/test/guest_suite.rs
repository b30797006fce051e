//! The tests that run in the guest, on each kind of machine and each number of processors.

use std::path::Path;
use std::time::Duration;

use crate::failure::Result;
use crate::machine::{Kind, Machine};
use crate::report;
use crate::run::{self, Captured, Job};
use crate::tally::Tally;

/// The program in the image that runs them.
const PROGRAM: &str = "/xok/guest-tests";
/// How long one boot with all tests may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How many lines of the log are shown of a boot that ended early.
const LOG_TAIL: usize = 20;

/// The machines: both kinds, and one to four processors.
const MACHINES: [(Kind, u32); 4] =
    [(Kind::Q35, 1), (Kind::Microvm, 2), (Kind::Q35, 4), (Kind::Microvm, 3)];

/// Boots each machine once, with all tests that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    let image = run::make_image(&Job::default())?;
    for (kind, cpus) in MACHINES {
        let place = format!("{} x{cpus}", kind.name());
        report::step(&format!("guest: {place}"));
        boot(tally, &image.path, Machine { kind, cpus, ..Machine::default() }, &place)?;
    }
    Ok(())
}

fn boot(tally: &mut Tally, image: &Path, machine: Machine, place: &str) -> Result<()> {
    let mut arguments = vec![PROGRAM.to_string()];
    arguments.extend(tally.only().map(str::to_string));
    let program = Some((PROGRAM.to_string(), arguments));
    let job = Job { machine, program, limit: Some(LIMIT), ..Job::default() };
    let captured = match run::capture(&job, image, None, |_| {}) {
        Ok(captured) => captured,
        Err(failure) => {
            tally.record("guest::boot", place, Err(failure.to_string()));
            return Ok(());
        }
    };
    let mut passed = 0;
    let mut failed = 0;
    for (name, verdict) in captured.log.iter().filter_map(|line| parse(line)) {
        let name = format!("guest::{name}");
        match verdict {
            Verdict::Passed => {
                passed += 1;
                tally.record(&name, place, Ok(()));
            }
            Verdict::Failed(reason) => {
                failed += 1;
                tally.record(&name, place, Err(reason.to_string()));
            }
            Verdict::Ignored(reason) => tally.ignore(&format!("{name} ({place})"), reason),
        }
    }
    // The guest's own count must agree: else lines were lost, or it ended in the middle.
    let outcome = check_end(&captured, passed, failed);
    if outcome.is_err() {
        let from = captured.log.len().saturating_sub(LOG_TAIL);
        eprintln!("{}", captured.log[from..].join("\n"));
        eprintln!("{}", String::from_utf8_lossy(&captured.output));
        eprintln!("{}", String::from_utf8_lossy(&captured.error));
    }
    tally.record("guest::all_tests_end", place, outcome);
    Ok(())
}

fn check_end(captured: &Captured, passed: usize, failed: usize) -> std::result::Result<(), String> {
    let expected = format!("guest tests: {passed} passed, {failed} failed");
    let counted = captured.log.iter().find(|line| line.starts_with("guest tests: "));
    match (counted, captured.status) {
        (_, None) => Err(format!("the guest was ended after {} seconds", LIMIT.as_secs())),
        (None, Some(status)) => Err(format!("the guest ended in the middle, status {status}")),
        (Some(line), _) if *line != expected => {
            Err(format!("the guest says `{line}`, its lines say `{expected}`"))
        }
        (Some(_), Some(status)) if (status == 0) != (failed == 0) => {
            Err(format!("{failed} failed, but the exit status is {status}"))
        }
        _ => Ok(()),
    }
}

#[derive(Debug, PartialEq)]
enum Verdict<'a> {
    Passed,
    Failed(&'a str),
    Ignored(&'a str),
}

/// Reads `test NAME ... ok | FAILED reason | ignored reason`.
fn parse(line: &str) -> Option<(&str, Verdict<'_>)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (word, reason) = verdict.split_once(' ').unwrap_or((verdict, ""));
    let verdict = match word {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed(reason),
        "ignored" => Verdict::Ignored(reason),
        _ => return None,
    };
    Some((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(log: &[&str], status: Option<u8>) -> Captured {
        let log = log.iter().map(|line| line.to_string()).collect();
        Captured { status, output: Vec::new(), error: Vec::new(), log }
    }

    #[test]
    fn reads_the_guests_lines() {
        assert_eq!(parse("test a_b ... ok"), Some(("a_b", Verdict::Passed)));
        let failed = parse("test a ... FAILED 3 frames were lost");
        assert_eq!(failed, Some(("a", Verdict::Failed("3 frames were lost"))));
        assert_eq!(parse("test a ... ignored one cpu"), Some(("a", Verdict::Ignored("one cpu"))));
        assert_eq!(parse("xok: testing"), None);
    }

    #[test]
    fn an_early_end_is_a_failure() {
        let whole = ["guest tests: 2 passed, 1 failed"];
        assert!(check_end(&ended(&whole, Some(1)), 2, 1).is_ok());
        assert!(check_end(&ended(&whole, Some(0)), 2, 1).is_err());
        assert!(check_end(&ended(&whole, Some(1)), 1, 1).is_err());
        assert!(check_end(&ended(&[], Some(0)), 0, 0).is_err());
        assert!(check_end(&ended(&whole, None), 2, 1).is_err());
    }
}
