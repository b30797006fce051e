//! `cargo xtask mutate`: each conformance test seen red once, by a fault planted for it.
//!
//! All faults are in one build, of a copy of the tree (`plant`), but for those whose tests count
//! the kernel's instructions, which are in another one; the kernel's command line chooses one for
//! each boot. The tests run as `cargo xtask test` runs them. A test must be green without a fault,
//! and red with its own.
//!
//! ```text
//!  tests/mutate/*.faults ──► target/mutate/tree ──► target/mutate/…/kernel
//!                                                       │ mutate=ID
//!  cargo xtask test --suite S --only NAME --place P ◄───┘  passed: missed; failed: caught
//! ```

mod faults;
mod plant;

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::build;
use crate::conformance;
use crate::failure::{Context, Failure, Result};
use crate::options::{self, Options};
use crate::packages;
use crate::report;
use crate::tidy::Planted;
use crate::workspace;
use faults::Fault;

/// Says in the environment which fault is chosen: what runs with it is the copy's, built already.
const CHOSEN: &str = "XOK_MUTATE";
/// No fault, but the copy's build.
const NONE: &str = "none";
/// How long a test may take without a fault, boot included: the longest takes a minute of a
/// processor that it has for itself.
const LIMIT: Duration = Duration::from_secs(300);
/// How long with one: so many times what it took without, and this more; at most that limit.
/// A machine that hangs is as red as one that complains, and there is no need to watch it for long.
const PATIENCE: u32 = 4;
const PATIENCE_MORE: Duration = Duration::from_secs(10);
/// The usual machine of each suite.
const PLACES: [(&str, &str); 4] =
    [("guest", "microvm x2"), ("net", "q35 x1"), ("exos", "x1"), ("hostile", "q35 x1")];

/// A fault and a test that must find it.
#[derive(Clone, Copy)]
struct Trial<'a> {
    fault: &'a Fault,
    test: &'a str,
}

impl<'a> Trial<'a> {
    /// The suite of its test; of a package's own test, the package.
    fn suite(&self) -> &'a str {
        self.test.split_once('/').map_or("", |(suite, _)| suite)
    }

    /// Whether its test looks at what was built, not at what runs.
    fn is_static(&self) -> bool {
        self.suite() == "static"
    }

    /// Whether its test is one that cargo runs on the host.
    fn is_packages_own(&self) -> bool {
        let suites = [
            "guest", "net", "exos", "linux", "boot", "static", "machines", "command", "debug",
            "status", "load", "bench", "iso", "servers", "hostile",
        ];
        !suites.contains(&self.suite())
    }

    /// The machine it is tried on.
    fn place(&self) -> &'a str {
        let usual = PLACES.iter().find(|(suite, _)| *suite == self.suite());
        let usual = usual.map_or("", |(_, place)| place);
        if ["guest", "exos"].contains(&self.suite()) && !self.fault.place.is_empty() {
            return &self.fault.place;
        }
        usual
    }
}

/// All faults, with the tests that find them.
pub fn planted() -> Result<Vec<Planted>> {
    let planted = |Fault { id, file, tests, .. }| Planted { id, file, tests };
    Ok(faults::all()?.into_iter().map(planted).collect())
}

/// The fault that everything started by this process shall have.
pub fn chosen() -> Option<String> {
    std::env::var(CHOSEN).ok()
}

/// `cargo xtask mutate [--only PATTERN] [--list]`; answers the exit status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let mut only: Option<String> = None;
    let mut list = false;
    while let Some(word) = options.next() {
        match word.as_str() {
            "--only" => only = Some(options.value("--only")?),
            "--list" => list = true,
            _ => return Err(options::unknown("mutate", &word)),
        }
    }
    let all = faults::all()?;
    let pattern = only.as_deref().unwrap_or("");
    let trials =
        all.iter().flat_map(|fault| fault.tests.iter().map(move |test| Trial { fault, test }));
    let wanted = |trial: &Trial| trial.fault.id.contains(pattern) || trial.test.contains(pattern);
    let chosen: Vec<Trial> = trials.filter(wanted).collect();
    if list {
        for Trial { fault, test } in &chosen {
            println!("{:<32} {test:<42} {}", fault.id, fault.what);
        }
        return Ok(0);
    }
    if chosen.is_empty() {
        let refused = format!("--only {pattern}: neither a fault's name nor a test's holds it");
        return Err(Failure::new(refused).next("cargo xtask mutate --list"));
    }
    prepare(&all, &chosen)?;
    run(&chosen, only.is_none())
}

/// Where a copy and what is built of it lie: that of the faults that stand apart, or that of all
/// others.
fn ground(apart: bool) -> PathBuf {
    workspace::target().join(if apart { "mutate-apart" } else { "mutate" })
}

/// Makes the copies and builds what the chosen faults' tests need of them.
fn prepare(all: &[Fault], chosen: &[Trial]) -> Result<()> {
    packages::require_bare_target()?;
    for apart in [false, true] {
        let is_here = |trial: &&Trial| trial.fault.apart == apart;
        let here: Vec<Trial> = chosen.iter().filter(is_here).copied().collect();
        if !here.is_empty() {
            let count = all.iter().filter(|fault| fault.apart == apart).count();
            report::step(&format!("planting {count} faults"));
            plant::plant(all, apart, &ground(apart).join("tree"))?;
            report::step("building the copy");
            build_copy(apart, &here)?;
        }
    }
    Ok(())
}

/// Builds what these trials need of their copy.
fn build_copy(apart: bool, chosen: &[Trial]) -> Result<()> {
    // Cargo builds what it tests, but that is not to be waited for as a verdict is.
    let own: BTreeSet<&str> =
        chosen.iter().filter(|trial| trial.is_packages_own()).map(Trial::suite).collect();
    for package in own {
        quietly(&mut tests_of(apart, package, &["--no-run"]))?;
    }
    if chosen.iter().all(Trial::is_packages_own) {
        return Ok(());
    }
    let mut cargo = cargo(apart);
    cargo.args(["build", "--quiet", "--release", "--target", packages::BARE_TARGET]);
    for package in workspace::bare_packages()? {
        cargo.args(["--package", &package]);
    }
    quietly(&mut cargo)?;
    if chosen.iter().any(Trial::is_static) {
        report::step("building the copy's xtask");
        quietly(cargo_build_xtask(&mut self::cargo(apart)))?;
    }
    Ok(())
}

fn cargo_build_xtask(cargo: &mut Command) -> &mut Command {
    cargo.args(["build", "--quiet", "--package", "xtask"])
}

/// Cargo in a copy.
fn cargo(apart: bool) -> Command {
    let (mut cargo, ground) = (build::cargo(), ground(apart));
    cargo.current_dir(ground.join("tree")).env("CARGO_TARGET_DIR", ground);
    cargo
}

/// What the compiler says of the planted sources is shown only if it refuses them.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("cargo")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = said.split("\n\n").filter(|part| part.contains("error")).collect();
    Err(Failure::new(format!("the copy with the faults:\n{}", errors.join("\n\n"))))
}

/// What a test came to.
enum Colour {
    Green,
    Red(String),
}

/// Runs each test without a fault, then with each of its own; says the table.
fn run(chosen: &[Trial], is_whole: bool) -> Result<u8> {
    let mut rows = Vec::new();
    let (mut caught, mut missed) = (0, 0);
    let mut green: HashMap<(bool, &str, &str), Duration> = HashMap::new();
    for (number, trial) in chosen.iter().enumerate() {
        let (id, test) = (&trial.fault.id, trial.test);
        report::step(&format!("{} of {}: {id}, {test}", number + 1, chosen.len()));
        let place = (trial.fault.apart, test, trial.place());
        let taken = match green.get(&place) {
            Some(&taken) => taken,
            None => {
                let begun = Instant::now();
                if let Colour::Red(why) = colour(trial, NONE, LIMIT)? {
                    missed += 1;
                    rows.push(row(trial, &format!("MISSED: red without a fault: {why}")));
                    continue;
                }
                begun.elapsed()
            }
        };
        green.insert(place, taken);
        let limit = LIMIT.min(taken * PATIENCE + PATIENCE_MORE);
        let verdict = match colour(trial, id, limit)? {
            Colour::Green => {
                missed += 1;
                "MISSED".to_string()
            }
            Colour::Red(why) => {
                caught += 1;
                format!("caught: {why}")
            }
        };
        report::step(&verdict.chars().take(160).collect::<String>());
        rows.push(row(trial, &verdict));
    }
    println!("{}", rows.join("\n"));
    if is_whole {
        for test in conformance::tests()? {
            if !chosen.iter().any(|trial| trial.test == test) {
                missed += 1;
                println!("{test}: MISSED: no fault is planted for it");
            }
        }
    }
    report::step("ended");
    println!("{caught} caught, {missed} missed");
    Ok(u8::from(missed > 0))
}

fn row(Trial { fault, test }: &Trial, verdict: &str) -> String {
    let verdict: String = verdict.chars().take(120).collect();
    format!("{:<32} {:<76} {test:<40} {verdict}", fault.id, fault.what)
}

/// Runs a trial's test with the fault `id`, until it has said its verdict or the time is up.
fn colour(trial: &Trial, id: &str, limit: Duration) -> Result<Colour> {
    let mut command = command_for(trial, id)?;
    // A group of its own, so that all of it can be ended.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("a test")?;
    let stdout = child.stdout.take();
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).flatten() {
            // Nobody listens any more once the verdict is there.
            let _ = sender.send(line);
        }
    });
    let end = Instant::now() + limit;
    let mut judge = Judge::new(trial.test);
    let colour = loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match judge.line(&line) {
                Some(colour) => break colour,
                None => continue,
            },
            Err(RecvTimeoutError::Disconnected) => break judge.end(),
            Err(RecvTimeoutError::Timeout) => {
                break Colour::Red(format!("no verdict in {} s", limit.as_secs()));
            }
        }
    };
    // It may have ended by itself meanwhile.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    child.wait().context("waiting for a test")?;
    Ok(colour)
}

/// Cargo for the tests of a package, with these words behind: its unit tests, or what it has of
/// tests beside them.
fn tests_of(apart: bool, package: &str, words: &[&str]) -> Command {
    let mut cargo = cargo(apart);
    cargo.args(["test", "--quiet", "--package", package]);
    let beside = workspace::root().join(package).join("tests/suite/main.rs");
    match package {
        // So many orders of threads take too long otherwise.
        "lockfree" => cargo.args(["--release", "--tests"]),
        "xio" => cargo.arg("--tests"),
        "xtask" => cargo.arg("--bins"),
        // It has a program of tests with an allocator of its own.
        "unix" => cargo.args(["--lib", "--test", "no_memory"]),
        _ if beside.is_file() => cargo.args(["--test", "suite"]),
        _ => cargo.arg("--lib"),
    };
    cargo.args(words);
    cargo
}

/// The command that runs a trial's test as ever.
fn command_for(trial: &Trial, id: &str) -> Result<Command> {
    if trial.is_packages_own() {
        let name = trial.test.split_once('/').map_or("", |(_, name)| name);
        let mut cargo = tests_of(trial.fault.apart, trial.suite(), &["--"]);
        cargo.args(["--format", "pretty", "--exact", name]).env(CHOSEN, id);
        return Ok(cargo);
    }
    let ourselves = std::env::current_exe().context("our own program")?;
    let (planted, ground) = (id != NONE, ground(trial.fault.apart));
    let program = if trial.is_static() && planted { ground.join("debug/xtask") } else { ourselves };
    let mut command = Command::new(program);
    command.args(["test", "--suite", trial.suite(), "--only", trial.test]);
    if !trial.place().is_empty() {
        command.args(["--place", trial.place()]);
    }
    // What is looked at without a boot is the shipped build, or the copy.
    if planted || !trial.is_static() {
        command.env("CARGO_TARGET_DIR", ground).env(CHOSEN, id);
    }
    Ok(command)
}

/// Follows the lines of a run until its test has its verdict.
struct Judge<'a> {
    name: &'a str,
    last: String,
}

impl<'a> Judge<'a> {
    fn new(test: &'a str) -> Self {
        let own =
            ["kernel-core/", "code/", "fuzz/", "lockfree/", "unix/", "xok/", "xio/", "xtask/"];
        let name = own.iter().find_map(|package| test.strip_prefix(package)).unwrap_or(test);
        Self { name, last: "nothing was said".into() }
    }

    /// Whether this line has it.
    fn line(&mut self, line: &str) -> Option<Colour> {
        let (shown, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let (shown, _) = shown.split_once(" (").unwrap_or((shown, ""));
        let why = verdict.strip_prefix("FAILED").map(|why| why.trim().to_string());
        if shown != self.name {
            self.last = why.map_or(std::mem::take(&mut self.last), |why| format!("{shown}: {why}"));
            return None;
        }
        Some(why.map_or(Colour::Green, Colour::Red))
    }

    /// Who never got to say it is as red as who complains.
    fn end(self) -> Colour {
        Colour::Red(format!("no verdict; {}", self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn red_is_what_fails_or_never_says() {
        let red = |said: &str| {
            let mut judge = Judge::new("guest/x");
            let colour = said.lines().find_map(|line| judge.line(line));
            match colour.unwrap_or_else(|| judge.end()) {
                Colour::Red(why) => why,
                Colour::Green => "green".into(),
            }
        };
        assert_eq!(red("[1 s] test\ntest guest/x (q35 x1) ... ok 5\n"), "green");
        assert_eq!(red("test guest/x (q35 x1) ... FAILED no\n"), "no");
        let ended = "test guest/all_tests_end (q35 x1) ... FAILED early\n";
        assert_eq!(red(ended), "no verdict; guest/all_tests_end: early");
        assert_eq!(red("test guest/xy ... ok\n"), "no verdict; nothing was said");
    }
}
