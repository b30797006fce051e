//! `cargo xtask test`: every test there is, and `N passed, N failed` as the last line.

use crate::build;
use crate::failure::Result;
use crate::linux_suite;
use crate::machines;
use crate::options::{self, Options};
use crate::report;
use crate::tally::Tally;
use crate::workspace;

mod bench_suite;
mod boot_suite;
mod command_suite;
mod debug_suite;
mod exos_suite;
mod guest_suite;
mod host_suite;
mod hostile_suite;
mod idle;
mod iso_suite;
mod known;
mod load_suite;
mod net_suite;
mod servers_suite;
mod static_suite;
mod status_suite;
mod wire_suite;
mod wrong_suite;

pub use exos_suite::parts;
pub use guest_suite::{PROGRAM as GUEST_TESTS, judge};
pub use load_suite::{command as load_inside, long as load_for_long};
pub use net_suite::inside_command as net_inside;
pub use status_suite::command as status_inside;

/// A suite's name, what it is, and what runs it.
type Suite = (&'static str, &'static str, fn(&mut Tally) -> Result<()>);

/// The suite whose tests cargo builds and runs.
const HOST: &str = "host";
/// The suites, cheapest first.
const SUITES: &[Suite] = &[
    (HOST, "unit and model tests, on the host", host_suite::run),
    ("static", "what can be seen without running anything", static_suite::run),
    ("boot", "how the kernel begins, or says that it cannot", boot_suite::run),
    ("guest", "tests in the guest, on several machines", guest_suite::run),
    ("iso", "the ISO by BIOS, by UEFI, and on Bochs's processor", iso_suite::run),
    ("net", "the network, over a tap device in a namespace", net_suite::run),
    ("status", "the status page in a browser", status_suite::run),
    ("load", "a terminal and web servers beside busy programs", load_suite::run),
    ("linux", "the same command lines on Linux and in the guest", linux_suite::run),
    ("machines", "machines of every kind, size and model", machines::test),
    ("wire", "the network over a wire that loses, repeats, forges", wire_suite::run),
    ("command", "what `cargo xtask run` promises", command_suite::run),
    ("servers", "servers that end, hang, or have no memory", servers_suite::run),
    ("debug", "strace beside Linux's, and gdb", debug_suite::run),
    ("exos", "what ExOS does with the kernel below it", exos_suite::run),
    ("bench", "what the bench counts, and that it counts the same twice", bench_suite::run),
    (
        "hostile",
        "programs that make any call, beside others that notice nothing",
        hostile_suite::run,
    ),
    ("wrong", "programs that do wrong, and what others notice of it", wrong_suite::run),
];

/// The suites' names, which those of their tests begin with.
pub fn suites() -> Vec<&'static str> {
    SUITES.iter().map(|suite| suite.0).collect()
}

/// The suites that are chosen and may hold a test that is wanted.
fn wanted(tally: &Tally, chosen: &[String]) -> Result<Vec<Suite>> {
    let packages = workspace::tested_packages()?;
    let all: Vec<&str> = suites().into_iter().chain(packages.iter().map(String::as_str)).collect();
    let may_hold = |part: &str| known::may_hold(tally.only(), part, &all);
    let is_wanted = |name: &str| {
        let is_chosen = chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
        // Names of the host's tests begin with their packages'.
        let packages_hold = name == HOST && packages.iter().any(|package| may_hold(package));
        is_chosen && (may_hold(name) || packages_hold)
    };
    Ok(SUITES.iter().copied().filter(|suite| is_wanted(suite.0)).collect())
}

/// `cargo xtask test [--only PATTERN] [--suite NAME]... [--place MACHINE]`; answers the status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let mut only = None;
    let mut place = None;
    let mut chosen = Vec::new();
    while let Some(word) = options.next() {
        match word.as_str() {
            "--only" => only = Some(options.value("--only")?),
            "--place" => place = Some(options.value("--place")?),
            "--suite" => chosen.push(options.value("--suite")?),
            _ => return Err(options::unknown("test", &word)),
        }
    }
    known::check_suites(&chosen, &suites())?;
    place.as_deref().map_or(Ok(()), |place| known::check_place(place, &chosen))?;
    only.as_deref().map_or(Ok(()), |only| known::check_pattern(only, &chosen, &suites()))?;

    let mut tally = Tally::new(only, place, chosen.is_empty());
    let wanted = wanted(&tally, &chosen)?;
    // Tests of the host are cargo's to build.
    if wanted.iter().any(|suite| suite.0 != HOST) {
        build::build()?;
    }
    for (name, what, run) in wanted {
        report::step(&format!("{name}: {what}"));
        // A suite that cannot run is a failure of its own; the others still do.
        if let Err(failure) = run(&mut tally) {
            eprintln!("{failure}");
            tally.record(name, "", Err("the suite could not run".into()));
        }
    }
    tally.keep()?;
    // Said, but not kept: it is the question that was wrong.
    if let Some(place) = tally.missed_place().map(str::to_string) {
        tally.record("place", &place, Err("nothing ran there: no suite has such a machine".into()));
    }
    tally.conclude();
    tally.check_pattern(&chosen)?;
    Ok(u8::from(tally.failed() > 0))
}
