//! `cargo xtask bench`: the same program here and on Linux, in guest instructions.

mod boot;
mod collect;
mod compile;
mod console;
mod counts;
mod figures;
mod initramfs;
mod linux;
mod native;
mod ours;
mod plugin;
mod profile;
mod program;
mod table;
mod timing;

use crate::build;
use crate::failure::{Failure, Result};
use crate::options::{self, Options};
pub use figures::Figures;
use linux::Profile;

/// How many samples a row takes unless told otherwise; the first one is not used.
const SAMPLES: u32 = 7;

/// How many rounds time takes unless told otherwise.
const ROUNDS: u32 = 5;

/// What is to be measured.
struct Request {
    /// Rows by name; all if there are none.
    rows: Vec<String>,
    samples: u32,
    /// Without Linux.
    alone: bool,
    profile: bool,
    /// Rounds of time, behind the counts.
    rounds: Option<u32>,
    /// Boots instead of rows.
    boot: bool,
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
    };
    while let Some(word) = options.next() {
        match word.as_str() {
            "--only" => request.add_rows(&options.value("--only")?),
            "--profile" => {
                request.add_rows(&options.value("--profile")?);
                request.profile = true;
            }
            "--samples" => request.samples = options.number("--samples")?,
            "--time" => request.rounds = Some(ROUNDS),
            "--rounds" => request.rounds = Some(options.number("--rounds")?),
            "--boot" => request.boot = true,
            "--ours" => request.alone = true,
            "--list" => return list(),
            _ => return Err(options::unknown("bench", &word)),
        }
    }
    request.check()?;
    build::build()?;
    request.run()
}

/// Figures of these rows in our guest, for tests; a row without any is a failure.
pub fn figures_here(rows: &[String]) -> Result<Vec<Figures>> {
    let measured = ours::count(rows, 3, false)?;
    let row = |(name, outcome): collect::Measured| match outcome {
        Ok(samples) => Ok(figures::of(&samples)),
        Err(reason) => Err(Failure::new(format!("{name}: {reason}"))),
    };
    measured.into_iter().map(row).collect()
}

impl Request {
    fn run(&self) -> Result<()> {
        if self.boot {
            return boot::print(self.rounds.unwrap_or(ROUNDS));
        }
        let (programs, natives) = self.parts()?;
        let known = known()?;
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
        match self.rounds {
            Some(rounds) => timing::print(&known, &programs, rounds),
            None => Ok(()),
        }
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
