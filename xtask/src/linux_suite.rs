//! The same command lines on the host's Linux and in the guest, compared.
//!
//! A group (`tests/linux/*.cases`, and the programs of `tests/linux/c`) becomes one shell script
//! that both sides run unchanged, on a terminal: the host in one session, the guest in one boot
//! through `cargo xtask run`, as a person would start it. Of each case the exit status, standard
//! output and standard error must be equal; of an interactive one also the screen.

mod case_file;
mod driver;
mod keys;
mod outcome;
mod play;
mod programs;
mod screen;
mod session;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::boot_image;
use crate::build;
use crate::failure::{Context, Failure, Result};
use crate::options::{self, Options};
use crate::packages;
use crate::report;
use crate::tally::Tally;
use crate::workspace;
use case_file::{Case, Group};
use driver::Places;
use outcome::Outcome;
pub use session::{Line, More, Session};

/// How long a step on the host may take before it counts as hung.
const HOST_LIMIT: Duration = Duration::from_secs(10);
/// The same in the guest, where an emulated processor runs ten times slower.
const GUEST_LIMIT: Duration = Duration::from_secs(60);

/// What the scripts find in the guest, beside busybox.
const GUEST_PLACES: Places =
    Places { root: driver::GUEST_ROOT, busybox: "/bin/busybox", bash: BASH, programs: PROGRAMS };
const BASH: &str = "/suite/bash-static";
const PROGRAMS: &str = "/suite/programs";

/// Which two runs are compared.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Host against guest.
    Compare,
    /// Host against host: finds cases that are not the same each time.
    SelfCheck,
    /// Host only, everything printed: for writing cases.
    Show,
}

/// `cargo xtask linux [--self-check | --show] [GROUP[/NAME]]...`; answers the exit status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let mut mode = Mode::Compare;
    let mut prefixes = Vec::new();
    while let Some(word) = options.next() {
        match word.as_str() {
            "--self-check" => mode = Mode::SelfCheck,
            "--show" => mode = Mode::Show,
            flag if flag.starts_with('-') => return Err(options::unknown("linux", flag)),
            _ => prefixes.push(format!("linux/{word}")),
        }
    }
    let names = names()?;
    let is_there = |prefix: &String| names.iter().any(|name| name.starts_with(prefix.as_str()));
    if let Some(missing) = prefixes.iter().find(|prefix| !is_there(prefix)) {
        return Err(Failure::new(format!("{missing}: no case's name begins so")));
    }
    if mode == Mode::Compare {
        build::build()?;
    }
    let mut tally = Tally::new(None, None, false);
    let wants = |name: &str| {
        prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    };
    run_groups(&mut tally, mode, wants)?;
    tally.conclude();
    Ok(u8::from(tally.failed() > 0))
}

/// Runs those that are wanted, host against guest; those known to fail are named and left out.
pub fn run(tally: &mut Tally) -> Result<()> {
    let only = tally.only().map(str::to_string);
    let wants = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    let known = known_failing()?;
    for (name, reason) in known.iter().filter(|(name, _)| wants(name)) {
        tally.ignore(name, reason);
    }
    run_groups(tally, Mode::Compare, |name| {
        wants(name) && !known.iter().any(|(known, _)| known == name)
    })
}

/// What `tests/linux/known-failing.txt` names, each with its reason.
fn known_failing() -> Result<Vec<(String, String)>> {
    let text = workspace::read("tests/linux/known-failing.txt")?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let entry = |line: &str| {
        let (name, reason) = line.split_once(": ")?;
        Some((format!("linux/{name}"), reason.to_string()))
    };
    lines
        .map(|line| {
            entry(line)
                .ok_or_else(|| Failure::new(format!("known-failing.txt: `{line}`: no reason")))
        })
        .collect()
}

/// One of the small programs, compiled.
pub fn program(name: &str) -> Result<PathBuf> {
    programs::compile()?;
    Ok(programs::directory().join(name))
}

/// Runs the cases whose full name `wants` accepts.
fn run_groups(tally: &mut Tally, mode: Mode, wants: impl Fn(&str) -> bool) -> Result<()> {
    let mut groups = groups()?;
    groups.retain(|group| group.cases.iter().any(|case| wants(&full_name(group, case))));
    if groups.is_empty() {
        return Ok(());
    }
    let tools = Tools::new(groups.iter().any(|group| programs::is_group(&group.name)))?;
    let mut guest_runs = true;
    for group in &groups {
        let wanted = group.cases.iter().filter(|case| wants(&full_name(group, case)));
        let (excluded, cases): (Vec<&Case>, Vec<&Case>) =
            wanted.partition(|case| case.excluded.is_some());
        for case in excluded {
            tally.ignore(&full_name(group, case), case.excluded.as_deref().unwrap_or_default());
        }
        let first = tools.run_on_host(group, &cases)?;
        let second = match mode {
            Mode::Compare if guest_runs => tools.run_in_guest(group, &cases)?,
            Mode::Compare => vec![Outcome::never_ran(); cases.len()],
            Mode::SelfCheck => tools.run_on_host(group, &cases)?,
            Mode::Show => first.clone(),
        };
        // A guest in which not one script starts won't start the next group's either.
        guest_runs &= cases.is_empty() || !second.iter().all(|outcome| outcome.status.is_none());
        for ((case, first), second) in cases.iter().zip(&first).zip(&second) {
            let verdict = match first.difference(second) {
                Some(difference) => Err(format!("\n{}", difference.trim_end())),
                None if mode == Mode::Show => Ok(format!("\n{}", first.describe().trim_end())),
                None => Ok(String::new()),
            };
            tally.record(&full_name(group, case), "", verdict);
        }
    }
    Ok(())
}

fn full_name(group: &Group, case: &Case) -> String {
    format!("linux/{}/{}", group.name, case.name)
}

/// The full names of all cases.
pub fn names() -> Result<Vec<String>> {
    let of_group = |group: &Group| -> Vec<String> {
        group.cases.iter().map(|case| full_name(group, case)).collect()
    };
    Ok(groups()?.iter().flat_map(of_group).collect())
}

/// Reads all groups in the order of their names, then those of programs.
fn groups() -> Result<Vec<Group>> {
    let directory = workspace::root().join("tests/linux");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.extension().is_some_and(|suffix| suffix == "cases") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut groups: Vec<Group> =
        paths.iter().map(|path| read_group(path)).collect::<Result<_>>()?;
    groups.extend(programs::groups()?);
    Ok(groups)
}

/// Reads one group.
fn read_group(path: &Path) -> Result<Group> {
    let text = fs::read_to_string(path).context(path.display())?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    case_file::parse(&name, &text)
        .map_err(|mistake| Failure::new(format!("{}: {mistake}", path.display())))
}

/// The programs that both sides run: the same files.
struct Tools {
    busybox: String,
    bash: String,
    programs: String,
}

impl Tools {
    /// Fetches and, if they are wanted, compiles them.
    fn new(with_programs: bool) -> Result<Self> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        if with_programs {
            programs::compile()?;
        }
        Ok(Self {
            busybox: text(boot_image::busybox()?),
            bash: text(packages::debian_file("bash-static", "bin/bash-static")?),
            programs: text(programs::directory()),
        })
    }

    /// What the scripts find on this machine.
    fn host_places<'a>(&'a self, root: &'a str) -> Places<'a> {
        Places { root, busybox: &self.busybox, bash: &self.bash, programs: &self.programs }
    }

    /// Runs cases on this machine.
    fn run_on_host(&self, group: &Group, cases: &[&Case]) -> Result<Vec<Outcome>> {
        report::step(&format!("linux/{} on the host", group.name));
        let work = WorkDirectory::new()?;
        let mut sessions = 0;
        let root = |session: usize| format!("{}/{session}", work.0.display());
        let outcomes = play::run_cases(cases, HOST_LIMIT, |cases| {
            // A directory each: what a session that hung left behind must not meet the next one.
            sessions += 1;
            let root = root(sessions);
            fs::create_dir(&root)?;
            let script = format!("{root}/driver");
            fs::write(&script, driver::script(group, cases, &self.host_places(&root)))?;
            Session::start(&[self.busybox.clone(), "sh".into(), script], Line::Cooked, None)
        });
        let mut outcomes = outcomes.context("the host's session")?;
        for outcome in &mut outcomes {
            for root in (1..=sessions).map(root) {
                let places = self.host_places(&root);
                for (ours, guests) in places.names().into_iter().zip(GUEST_PLACES.names()) {
                    outcome.rename(ours, guests);
                }
            }
        }
        Ok(outcomes)
    }

    /// Runs cases in the guest: one boot, through the same command that people type.
    fn run_in_guest(&self, group: &Group, cases: &[&Case]) -> Result<Vec<Outcome>> {
        report::step(&format!("linux/{} in the guest", group.name));
        let work = WorkDirectory::new()?;
        let host_script = work.0.join("driver").to_string_lossy().into_owned();
        let script = format!("/suite/{}.sh", group.name);
        let ourselves = std::env::current_exe().context("our own program")?;
        let mut words = vec![ourselves.to_string_lossy().into_owned(), "run".into()];
        let files = [(&host_script, script.as_str()), (&self.bash, BASH)];
        for (host, guest) in files {
            words.extend(["--file".into(), format!("{host}:{guest}")]);
        }
        if programs::is_group(&group.name) {
            words.extend(["--file".into(), format!("{}:{PROGRAMS}", self.programs)]);
        }
        words.extend(["--", "busybox", "sh", &script].map(String::from));
        let log = workspace::output().join(format!("linux-{}.log", group.name));
        let outcomes = play::run_cases(cases, GUEST_LIMIT, |cases| {
            fs::write(&host_script, driver::script(group, cases, &GUEST_PLACES))?;
            Session::start(&words, Line::Raw, Some(fs::File::create(&log)?))
        });
        outcomes.context("the guest's session")
    }
}

/// A fresh directory that is removed with its content.
struct WorkDirectory(PathBuf);

impl WorkDirectory {
    fn new() -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("xok-linux-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).context(path.display())?;
        Ok(Self(path))
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // Left behind at worst: it is a temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of at least ten command lines each.
    const GROUPS: [&str; 13] = [
        "arithmetic",
        "awk",
        "bash",
        "files",
        "jobs",
        "pipes",
        "proc",
        "redirections",
        "sed",
        "signals",
        "subshells",
        "tar",
        "vi",
    ];

    #[test]
    fn every_group_has_ten_cases() {
        let groups = groups().unwrap();
        for name in GROUPS {
            let group = groups.iter().find(|group| group.name == name);
            let count = group.map_or(0, |group| group.cases.len());
            assert!(count >= 10, "{name} has {count} cases");
        }
    }

    #[test]
    fn at_most_five_cases_are_excluded() {
        let groups = groups().unwrap();
        let cases = groups.iter().flat_map(|group| &group.cases);
        assert!(cases.filter(|case| case.excluded.is_some()).count() <= 5);
    }

    #[test]
    fn what_is_known_to_fail_exists() {
        let groups = groups().unwrap();
        for (name, _) in known_failing().unwrap() {
            let exists = groups.iter().any(|group| {
                group.cases.iter().any(|case| name == format!("linux/{}/{}", group.name, case.name))
            });
            assert!(exists, "{name}");
        }
    }

    #[test]
    fn every_keystroke_script_is_well_formed() {
        for group in groups().unwrap() {
            for keys in group.cases.iter().filter_map(|case| case.keys.as_deref()) {
                keys::parse(keys).unwrap();
            }
        }
    }
}
