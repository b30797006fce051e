//! The tests that run in the guest, on each kind of machine and each number of processors.

use std::path::Path;
use std::time::Duration;

use crate::failure::Result;
use crate::iso::emulator::{self, Emulator};
use crate::iso::native;
use crate::machine::{Counting, Kind, Machine};
use crate::report;
use crate::run::{self, Captured, Job};
use crate::tally::{self, Tally};

/// The program that runs them, as the machine's first.
pub const PROGRAM: &str = "/xok/guest-tests";
/// How long one boot with all tests may take, in seconds, beside the random calls.
const LIMIT_SECONDS: u32 = 300;
/// The test that the program says all that it has to say.
const THE_END: &str = "guest/all_tests_end";
/// How many lines of the log are shown of a boot that ended early.
const LOG_TAIL: usize = 20;

/// The machines: both kinds, and one to four processors; for how many seconds each makes random
/// calls.
const MACHINES: [(Kind, u32, u32); 4] =
    [(Kind::Q35, 1, 5), (Kind::Microvm, 2, 60), (Kind::Q35, 4, 5), (Kind::Microvm, 3, 5)];

/// Machines on which processors that run ahead are kept from it: one where all is done that can be,
/// and one that stays open, whose model says so; only the tests of that are run there.
const GUARDED_PLACE: &str = "guarded";
const OPEN_PLACE: &str = "open";
pub(crate) const OPEN_MODEL: &str = "Skylake-Server";
const OPEN: &str = "guest/users_are_taken_or_not";

/// The machine with room for more than ten thousand environments, and its test.
const CROWDED_PLACE: &str = "crowded";
const CROWDED_MEMORY: &str = "3G";
const CROWD: &str = "guest/crowd_costs_its_slots";

/// The machine with as many environments as there can be, where time is instructions, and its test.
const FULL_PLACE: &str = "full";
const FULL_MEMORY: &str = "4G";
const FULL: &str = "guest/stretch_by_call";

/// Boots each machine once, with all tests that are wanted, and one on which time is instructions,
/// with the tests that count them.
pub fn run(tally: &mut Tally) -> Result<()> {
    let image = run::make_image(&Job::default())?;
    for (kind, cpus, fuzz_seconds) in MACHINES {
        let place = format!("{} x{cpus}", kind.name());
        if !tally.wants_place(&place) {
            continue;
        }
        report::step(&format!("guest: {place}"));
        let machine = Machine { kind, cpus, ..Machine::default() };
        let settings = [("fuzz-seconds", fuzz_seconds.to_string())];
        boot(tally, &image.path, machine, fuzz_seconds, &settings, &place)?;
    }
    if tally.wants_place(CROWDED_PLACE) && tally.wants(CROWD) {
        report::step("guest: crowded");
        let machine = Machine { memory: CROWDED_MEMORY.into(), ..Machine::default() };
        boot(tally, &image.path, machine, 0, &[("crowded", "1".into())], CROWDED_PLACE)?;
    }
    for cpus in native::CPUS {
        // Not with the others: some of it is in the suite `iso`, all in `cargo xtask machines`.
        if tally.is_asked_for(&emulator::place(Emulator::Bochs, cpus)) {
            let only = tally.only().map(str::to_string);
            return native::run(tally, cpus, only.as_deref().as_slice());
        }
    }
    guarded(tally, &image.path)?;
    if tally.wants_place(FULL_PLACE) && tally.wants(FULL) {
        report::step("guest: full");
        let counting = Some(Counting { plugin: None, settings: Vec::new(), seed: Some(1) });
        let machine = Machine { memory: FULL_MEMORY.into(), counting, ..Machine::default() };
        boot(tally, &image.path, machine, 0, &[("full", "1".into())], FULL_PLACE)?;
    }
    report::step("guest: counted");
    let counting = Some(Counting { plugin: None, settings: Vec::new(), seed: Some(1) });
    let machine = Machine { counting, ..Machine::default() };
    boot(
        tally,
        &image.path,
        machine,
        0,
        &[("counted", "1".into()), ("fuzz-seconds", "1".into())],
        "counted",
    )
}

/// `mitigations=all`: every way out and every switch goes beside the usual one.
fn guarded(tally: &mut Tally, image: &Path) -> Result<()> {
    let all = ("mitigations", "all".to_string());
    if tally.wants_place(GUARDED_PLACE) {
        report::step("guest: guarded");
        let machine = Machine { kind: Kind::Microvm, cpus: 2, ..Machine::default() };
        let settings = [all.clone(), ("fuzz-seconds", "5".into())];
        boot(tally, image, machine, 5, &settings, GUARDED_PLACE)?;
    }
    if tally.wants_place(OPEN_PLACE) && tally.wants(OPEN) {
        report::step("guest: open");
        let machine = Machine { cpu: Some(OPEN_MODEL.into()), ..Machine::default() };
        let settings = [all, ("model", "open".into()), ("only", OPEN[6..].to_string())];
        boot(tally, image, machine, 0, &settings, OPEN_PLACE)?;
    }
    Ok(())
}

fn boot(
    tally: &mut Tally,
    image: &Path,
    machine: Machine,
    fuzz_seconds: u32,
    words: &[(&str, String)],
    place: &str,
) -> Result<()> {
    let mut settings = vec![("init".to_string(), PROGRAM.to_string())];
    settings.extend(words.iter().map(|(key, value)| (key.to_string(), value.clone())));
    if let Some(only) = tally.only() {
        let only = only.strip_prefix("guest/").unwrap_or(only);
        settings.push(("only".to_string(), only.to_string()));
    }
    let limit = Duration::from_secs((LIMIT_SECONDS + fuzz_seconds).into());
    let job = Job { machine, settings, limit: Some(limit), ..Job::default() };
    let captured = match run::capture(&job, image, None, |_| {}) {
        Ok(captured) => captured,
        Err(failure) => {
            tally.record("guest/boot", place, Err(failure.to_string()));
            return Ok(());
        }
    };
    judge(tally, &captured, place, |_, word| word.to_string());
    Ok(())
}

/// Records what the guest says of each test, and that it agrees with itself; `reason` says why a
/// test was left out, from its name and the guest's word for it.
pub fn judge(
    tally: &mut Tally,
    captured: &Captured,
    place: &str,
    reason: impl Fn(&str, &str) -> String,
) {
    let mut passed = 0;
    let mut failed = 0;
    for (name, verdict) in captured.log.iter().filter_map(|line| parse(line)) {
        match verdict {
            Verdict::Passed(remark) => {
                passed += 1;
                tally.record(name, place, Ok(remark.to_string()));
            }
            Verdict::Failed(reason) => {
                failed += 1;
                tally.record(name, place, Err(reason.to_string()));
            }
            Verdict::Ignored(word) => {
                tally.ignore(&format!("{name} ({place})"), &reason(name, word));
            }
        }
    }
    // The guest's own count must agree: else lines were lost, or it ended in the middle.
    let verdict = check_end(captured, passed, failed);
    if verdict.is_err() {
        let from = captured.log.len().saturating_sub(LOG_TAIL);
        eprintln!("{}", captured.log[from..].join("\n"));
        eprintln!("{}", String::from_utf8_lossy(&captured.output));
        eprintln!("{}", String::from_utf8_lossy(&captured.error));
    }
    // When none was wanted, then that it ended well is no success of anything.
    let is_asked_for = tally.only().is_none_or(|only| only == THE_END);
    if is_asked_for || passed + failed > 0 || verdict.is_err() {
        tally.record(THE_END, place, verdict);
    }
}

fn check_end(captured: &Captured, passed: usize, failed: usize) -> tally::Verdict {
    let expected = format!("guest tests: {passed} passed, {failed} failed");
    let counted = captured.log.iter().find(|line| line.starts_with("guest tests: "));
    match (counted, captured.status) {
        (_, None) => Err("it did not end in time, and was ended".into()),
        (None, Some(status)) => Err(format!("the guest ended in the middle, status {status}")),
        (Some(line), _) if *line != expected => {
            Err(format!("the guest says `{line}`, its lines say `{expected}`"))
        }
        (Some(_), Some(status)) if (status == 0) != (failed == 0) => {
            Err(format!("{failed} failed, but the exit status is {status}"))
        }
        _ => Ok(format!("({passed} passed, {failed} failed)")),
    }
}

#[derive(Debug, PartialEq)]
enum Verdict<'a> {
    Passed(&'a str),
    Failed(&'a str),
    Ignored(&'a str),
}

/// Reads `test NAME ... ok [remark] | FAILED reason | ignored reason`.
fn parse(line: &str) -> Option<(&str, Verdict<'_>)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (word, text) = verdict.split_once(' ').unwrap_or((verdict, ""));
    let verdict = match word {
        "ok" => Verdict::Passed(text),
        "FAILED" => Verdict::Failed(text),
        "ignored" => Verdict::Ignored(text),
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
        assert_eq!(parse("test guest/a ... ok "), Some(("guest/a", Verdict::Passed(""))));
        assert_eq!(parse("test a ... ok (3 of 3)"), Some(("a", Verdict::Passed("(3 of 3)"))));
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
