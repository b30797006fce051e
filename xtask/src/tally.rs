//! What the tests of a run came to: counted, shown as they end, and kept for docs/conformance.md.

use std::fmt::Write;
use std::path::PathBuf;

use crate::failure::{Context, Failure, Result};
use crate::report;
use crate::workspace;

/// One test's outcome in one circumstance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The test's name, such as `image/archive::tests::lists_directories`.
    pub name: String,
    /// Where it ran, if it runs in several places: `q35 x2`.
    pub place: String,
    /// Whether it passed.
    pub passed: bool,
}

/// What a test came to: a remark, which may be empty, or the reason of its failure.
pub type Verdict = std::result::Result<String, String>;

/// A test's name, and what runs it.
pub type Test = (&'static str, fn() -> Result<Verdict>);

/// The outcomes so far.
#[derive(Debug, Default)]
pub struct Tally {
    outcomes: Vec<Outcome>,
    ignored: usize,
    only: Option<String>,
    place: Option<String>,
    is_whole: bool,
}

impl Tally {
    /// Nothing yet. With `only`, tests whose name does not hold it are not wanted; with `place`, no
    /// other place is; `all_suites` says whether every suite is going to run.
    pub fn new(only: Option<String>, place: Option<String>, all_suites: bool) -> Self {
        let is_whole = only.is_none() && place.is_none() && all_suites;
        Self { only, place, is_whole, ..Self::default() }
    }

    /// What a test's name must hold to be run.
    pub fn only(&self) -> Option<&str> {
        self.only.as_deref()
    }

    /// Whether a test of this name is to be run.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }

    /// Whether tests are to be run in this place.
    pub fn wants_place(&self, place: &str) -> bool {
        self.place.as_deref().is_none_or(|wanted| wanted == place)
    }

    /// Whether this place was asked for by name.
    pub fn is_asked_for(&self, place: &str) -> bool {
        self.place.as_deref() == Some(place)
    }

    /// The place that was asked for, if nothing ran there: a name that no suite has.
    pub fn missed_place(&self) -> Option<&str> {
        let place = self.place.as_deref()?;
        let missed = self.outcomes.iter().all(|outcome| outcome.place != place);
        missed.then_some(place)
    }

    /// Complains if tests were asked for by name, and nothing, ignored or not, has such a name.
    pub fn check_pattern(&self, suites: &[String]) -> Result<()> {
        let Some(only) = self.only().filter(|_| self.outcomes.is_empty() && self.ignored == 0)
        else {
            return Ok(());
        };
        let suites = if suites.is_empty() { "all".into() } else { suites.join(", ") };
        Err(Failure::new(format!("--only {only}: no test's name holds it (suites: {suites})")))
    }

    /// Runs those of `tests` that are wanted; what could not run has failed.
    pub fn run(&mut self, tests: &[Test]) {
        for &(name, test) in tests {
            if self.wants(name) {
                let verdict = test().unwrap_or_else(|failure| Err(failure.to_string()));
                self.record(name, "", verdict);
            }
        }
    }

    /// Records a test's verdict.
    pub fn record(&mut self, name: &str, place: &str, verdict: Verdict) {
        let shown = if place.is_empty() { name.to_string() } else { format!("{name} ({place})") };
        match &verdict {
            Ok(remark) if remark.is_empty() => println!("test {shown} ... ok"),
            Ok(remark) => println!("test {shown} ... ok {remark}"),
            Err(reason) => println!("test {shown} ... FAILED {reason}"),
        }
        let (name, place) = (name.to_string(), place.to_string());
        self.outcomes.push(Outcome { name, place, passed: verdict.is_ok() });
    }

    /// Records a test that was not run, which is no success.
    pub fn ignore(&mut self, name: &str, reason: &str) {
        println!("test {name} ... ignored {reason}");
        self.ignored += 1;
    }

    /// How many passed.
    pub fn passed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.passed).count()
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.outcomes.len() - self.passed()
    }

    /// Says the result: failures by name, then the line that ends every run of the tests.
    pub fn conclude(&self) {
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.passed) {
            println!("failed: {} {}", outcome.name, outcome.place);
        }
        if self.ignored > 0 {
            println!("{} ignored", self.ignored);
        }
        report::step("tests ended");
        println!("{} passed, {} failed", self.passed(), self.failed());
    }

    /// Keeps the outcomes in the target directory. Those of a run of some tests join the ones kept
    /// before; a whole run replaces them.
    pub fn keep(&self) -> Result<()> {
        let mut all = if self.is_whole { Vec::new() } else { kept()? };
        let is_new = |kept: &Outcome| {
            self.outcomes.iter().any(|new| new.name == kept.name && new.place == kept.place)
        };
        all.retain(|outcome| !is_new(outcome));
        all.extend(self.outcomes.iter().cloned());
        let mut text = String::new();
        for Outcome { name, place, passed } in &all {
            let verdict = if *passed { "pass" } else { "fail" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}\t{place}\t{verdict}");
        }
        std::fs::create_dir_all(workspace::output()).context(workspace::output().display())?;
        std::fs::write(path(), text).context(path().display())
    }
}

/// The outcomes kept by the runs before; none if there was no run.
pub fn kept() -> Result<Vec<Outcome>> {
    let Ok(text) = std::fs::read_to_string(path()) else { return Ok(Vec::new()) };
    let outcome = |line: &str| {
        let mut parts = line.split('\t');
        let (name, place) = (parts.next()?.to_string(), parts.next()?.to_string());
        Some(Outcome { name, place, passed: parts.next()? == "pass" })
    };
    Ok(text.lines().filter_map(outcome).collect())
}

fn path() -> PathBuf {
    workspace::output().join("results.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_chooses() {
        let mut tally = Tally::new(Some("elf".into()), None, true);
        assert!(tally.wants("image/elf::x") && !tally.wants("image/archive::x"));
        assert!(tally.wants_place("q35 x1"));
        tally.record("a", "", Ok("(3 of 3)".into()));
        tally.record("a", "q35 x2", Err("it did not".into()));
        tally.ignore("b", "no such device");
        assert_eq!((tally.passed(), tally.failed()), (1, 1));
    }

    #[test]
    fn a_name_that_no_test_has_is_an_error() {
        let tally = |only: Option<&str>| Tally::new(only.map(str::to_string), None, true);
        let refused = tally(Some("zzz")).check_pattern(&["linux".into()]).unwrap_err().to_string();
        assert!(refused.contains("zzz") && refused.contains("linux"), "{refused}");
        assert!(tally(None).check_pattern(&[]).is_ok());
        let mut one = tally(Some("a"));
        one.ignore("a", "no such device");
        assert!(one.check_pattern(&[]).is_ok());
        let mut one = tally(Some("a"));
        one.record("a", "", Err("it did not".into()));
        assert!(one.check_pattern(&[]).is_ok());
    }
}
