//! `cargo xtask bench`: the same program here and on Linux, in guest instructions.

mod boot;
mod collect;
mod console;
mod counts;
mod cpus;
mod figures;
mod http;
mod initramfs;
pub mod keys;
mod linux;
mod native;
mod ours;
pub mod paths;
mod plot;
mod plugin;
mod profile;
mod program;
pub mod raw;
mod stride;
mod table;
mod timing;

use std::path::PathBuf;
use std::process::Command;

use crate::build;
use crate::failure::{Context, Failure, Result};
use crate::options::{self, Options};
use crate::packages;
use crate::process;
use crate::workspace;
pub use boot::instructions as boot_here;
pub use figures::Figures;
pub use http::client::Load;
pub use http::inside as http_inside;
use linux::Profile;

/// How many samples a row takes unless told otherwise; the first one is not used.
const SAMPLES: u32 = 7;

/// How many rounds boots and web servers take unless told otherwise.
const ROUNDS: u32 = 5;
/// How many rounds time takes: trials, of which the least is told (thesis98 Z-69).
pub const TRIALS: u32 = 10;

/// What the picture says of itself.
const PLOT_TITLE: &str = "Guest instructions of an operation: ours / tuned Linux (left: fewer)";

/// What is to be measured.
struct Request {
    /// Rows by name; all if there are none.
    rows: Vec<String>,
    samples: u32,
    /// Without Linux.
    alone: bool,
    profile: bool,
    /// Rounds of time instead of counts.
    rounds: Option<u32>,
    /// Boots instead of rows.
    boot: bool,
    /// Web servers instead of rows.
    http: bool,
    /// One processor beside two instead of rows.
    cpus: bool,
    /// Keystrokes instead of rows.
    keys: bool,
    /// Shares of a scheduler's clients instead of rows.
    stride: bool,
    /// The listing of the kernel's shortest paths instead of rows.
    paths: bool,
    /// Where a picture of the counts goes.
    plot: Option<PathBuf>,
}

/// A file of the bench's, whose directory is there.
fn file(name: &str) -> Result<PathBuf> {
    let directory = workspace::output().join("bench");
    std::fs::create_dir_all(&directory).context(directory.display())?;
    Ok(directory.join(name))
}

/// `cargo xtask bench [--only ROW[,ROW]...] [--ours] [--profile ROW] [--samples N] [--list]`
pub fn command(words: Vec<String>) -> Result<()> {
    let mut options = Options::new(words);
    let mut request = Request {
        rows: Vec::new(),
        samples: SAMPLES,
        alone: false,
        profile: false,
        rounds: None,
        boot: false,
        http: false,
        cpus: false,
        keys: false,
        stride: false,
        paths: false,
        plot: None,
    };
    let mut lists = false;
    while let Some(word) = options.next() {
        match word.as_str() {
            "--only" => request.add_rows(&options.value("--only")?),
            "--profile" => {
                request.add_rows(&options.value("--profile")?);
                request.profile = true;
            }
            "--samples" => request.samples = options.number("--samples")?,
            "--time" => request.rounds = Some(request.rounds.unwrap_or(TRIALS)),
            "--rounds" => request.rounds = Some(options.number("--rounds")?),
            "--boot" => request.boot = true,
            "--http" => request.http = true,
            "--cpus" => request.cpus = true,
            "--keys" => request.keys = true,
            "--stride" => request.stride = true,
            "--paths" => request.paths = true,
            "--plot" => request.plot = Some(options.value("--plot")?.into()),
            "--ours" => request.alone = true,
            "--list" => lists = true,
            _ => return Err(options::unknown("bench", &word)),
        }
    }
    if lists {
        return list();
    }
    request.check()?;
    build::build()?;
    request.run()
}

/// Figures of these rows in our guest, for tests; a row without any is a failure.
pub fn figures_here(rows: &[String]) -> Result<Vec<Figures>> {
    figures_of(rows, ours::count(rows, 3, false)?)
}

fn figures_of(rows: &[String], measured: Vec<collect::Measured>) -> Result<Vec<Figures>> {
    // The program measures in its own order.
    let row = |name: &String| match measured.iter().find(|(measured, _)| measured == name) {
        Some((_, Ok(samples))) => Ok(figures::of(samples)),
        Some((_, Err(reason))) => Err(Failure::new(format!("{name}: {reason}"))),
        None => Err(Failure::new(format!("{name}: not measured"))),
    };
    rows.iter().map(row).collect()
}

/// A row's name, and its operations in all with the least, median and most ticks of one, or why it
/// has none.
pub type Ticks = (String, std::result::Result<(u64, [u64; 3]), String>);

/// What one operation of these native rows takes by the time-stamp counter, for tests.
pub fn native_times(rows: &[String], samples: u32) -> Result<Vec<Ticks>> {
    let times = |(name, outcome): collect::Measured| {
        let times = outcome.map(|samples| {
            let mut ticks = samples.ticks;
            ticks.sort_unstable();
            let place = |at: usize| ticks.get(at).copied().unwrap_or(0) / samples.operations.max(1);
            let (middle, last) = (ticks.len() / 2, ticks.len().saturating_sub(1));
            (samples.operations * ticks.len() as u64, [place(0), place(middle), place(last)])
        });
        (name, times)
    };
    Ok(native::time(rows, samples)?.into_iter().map(times).collect())
}

/// Time of these rows here, in [`TRIALS`] trials: the table, and the nanoseconds of a tick.
pub fn trials_here(rows: &[String]) -> Result<(String, f64)> {
    timing::measure(&known()?, rows, TRIALS, true)
}

/// Figures of these rows of the program that runs on both, on the tuned Linux.
pub fn figures_on_linux(rows: &[String]) -> Result<Vec<Figures>> {
    figures_of(rows, linux::count(linux::Profile::Tuned, rows, 3)?)
}

/// Figures of these native rows.
pub fn native_figures(rows: &[String]) -> Result<Vec<Figures>> {
    figures_of(rows, native::count(rows, 3, false)?)
}

/// Ticks of the fastest operation of these rows, here and on the tuned Linux.
pub fn least_ticks(rows: &[String]) -> Result<[Vec<f64>; 2]> {
    let repetition = program::Repetition { samples: 7, scale: 4 };
    let least = |measured: Vec<collect::Measured>| -> Vec<f64> {
        let each = |(_, outcome): collect::Measured| {
            let samples = outcome.ok()?;
            Some(*samples.ticks.iter().min()? as f64 / samples.operations as f64)
        };
        measured.into_iter().filter_map(each).collect()
    };
    let ours = least(ours::time(rows, repetition)?);
    Ok([ours, least(linux::time(linux::Profile::Tuned, rows, repetition)?)])
}

impl Request {
    fn run(&self) -> Result<()> {
        if self.paths {
            return paths::write();
        }
        if !self.alone && !self.profile {
            println!("{}", self.about()?);
        }
        if self.boot && self.alone {
            return boot::profile();
        }
        if self.boot {
            return boot::print(self.rounds.unwrap_or(ROUNDS));
        }
        if self.http {
            return http::print(if self.alone { 0 } else { self.rounds.unwrap_or(ROUNDS) });
        }
        if self.cpus {
            return cpus::print(self.rounds.unwrap_or(ROUNDS));
        }
        if self.keys {
            return keys::print();
        }
        if self.stride {
            let picture = stride::print()?;
            return match &self.plot {
                Some(path) => std::fs::write(path, picture).context(path.display()),
                None => Ok(()),
            };
        }
        let (programs, natives) = self.parts()?;
        let known = known()?;
        if let Some(rounds) = self.rounds {
            if !programs.is_empty() {
                println!("{}", timing::measure(&known, &programs, rounds, self.alone)?.0);
            }
            if !natives.is_empty() {
                println!("{}", timing::measure_natives(&natives, rounds, self.alone)?);
            }
            println!("What each boot said: {}", raw::directory()?.display());
            return Ok(());
        }
        let mut ours = ours::count(&programs, self.samples, self.profile)?;
        let native = native::count(&natives, self.samples, self.profile)?;
        if self.alone || self.profile {
            ours.extend(native);
            print!("{}", table::alone(&known, &table::column(&ours)));
            return if self.profile { profile::print(&ours) } else { Ok(()) };
        }
        let linux = |profile| linux::count(profile, &programs, self.samples);
        let measured = [ours, linux(Profile::Tuned)?, linux(Profile::Stock)?, native];
        let [ours, tuned, stock, native] = measured.map(|measured| table::column(&measured));
        println!("{}", table::beside(&known, &ours, &tuned, &stock));
        println!("{}", native::beside(&native, &tuned));
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::render(&ours, &tuned, PLOT_TITLE))
                .context(path.display())?;
        }
        Ok(())
    }

    /// What was measured, and on what.
    fn about(&self) -> Result<String> {
        let first = |mut command: Command| {
            process::output(&mut command).map(|text| text.lines().next().unwrap_or("").to_string())
        };
        let mut qemu = Command::new(packages::QEMU.0);
        qemu.arg("--version");
        let mut commit = Command::new("git");
        commit.args(["log", "-1", "--format=%h \"%s\""]).current_dir(workspace::root());
        let mut compiler = Command::new("rustc");
        compiler.arg("--version");
        let (qemu, commit, compiler) = (first(qemu)?, first(commit)?, first(compiler)?);
        let release = linux::release()?;
        let processor = std::fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
        let model = processor.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.unwrap_or("").trim_start_matches([' ', '\t', ':']);
        let processors = processor.lines().filter(|line| line.starts_with("processor")).count();
        Ok(format!(
            "Tree {commit}; Linux {release}; {qemu}; {compiler}; host: {processors} x {model}.\n"
        ))
    }

    /// The rows of the program that runs on both, and the native ones.
    fn parts(&self) -> Result<(Vec<String>, Vec<String>)> {
        let both = program::rows()?;
        let is_both = |name: &&String| both.iter().any(|row| row.name == **name);
        Ok(self.rows.iter().cloned().partition(|name| is_both(&name)))
    }

    fn add_rows(&mut self, names: &str) {
        self.rows.extend(names.split(',').map(str::to_string));
    }

    /// Without names, all rows.
    fn check(&mut self) -> Result<()> {
        let known = known()?;
        if self.rows.is_empty() {
            self.rows = known.iter().map(|row| row.name.clone()).collect();
        }
        let unknown = |name: &&String| !known.iter().any(|row| row.name == **name);
        if let Some(name) = self.rows.iter().find(unknown) {
            return Err(Failure::new(format!("{name}: no such row")).next(LIST));
        }
        if self.samples < 2 {
            return Err(Failure::new("--samples: 2 at least, as the first one only warms up"));
        }
        if self.profile && self.rows.len() != 1 {
            return Err(Failure::new("--profile: one row, as a profile is one row's").next(LIST));
        }
        Ok(())
    }
}

const LIST: &str = "cargo xtask bench --list";

/// Every row there is.
fn known() -> Result<Vec<program::Row>> {
    let mut rows = program::rows()?;
    rows.extend(native::rows());
    Ok(rows)
}

fn list() -> Result<()> {
    for row in known()? {
        println!("{:12} {:10} {}", row.name, row.way, row.what);
    }
    Ok(())
}
