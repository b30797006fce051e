//! `cargo xtask bench`: the same program here and on Linux, in guest instructions.

mod collect;
mod compile;
mod console;
mod counts;
mod figures;
mod ours;
mod plugin;
mod profile;
mod program;
mod table;

use crate::build;
use crate::failure::{Failure, Result};
use crate::options::{self, Options};
pub use figures::Figures;

/// How many samples a row takes unless told otherwise; the first one is not used.
const SAMPLES: u32 = 7;

/// What is to be measured.
struct Request {
    /// Rows by name; all if there are none.
    rows: Vec<String>,
    samples: u32,
    profile: bool,
}

/// `cargo xtask bench [--only ROW[,ROW]...] [--ours] [--profile ROW] [--samples N] [--list]`
pub fn command(words: Vec<String>) -> Result<()> {
    let mut options = Options::new(words);
    let mut request = Request { rows: Vec::new(), samples: SAMPLES, profile: false };
    while let Some(word) = options.next() {
        match word.as_str() {
            "--only" => request.add_rows(&options.value("--only")?),
            "--profile" => {
                request.add_rows(&options.value("--profile")?);
                request.profile = true;
            }
            "--samples" => request.samples = options.number("--samples")?,
            "--ours" => {}
            "--list" => return list(),
            _ => return Err(options::unknown("bench", &word)),
        }
    }
    request.check()?;
    build::build()?;
    let measured = ours::count(&request.rows, request.samples, request.profile)?;
    table::print(&program::rows()?, &measured);
    match request.profile {
        true => profile::print(&measured),
        false => Ok(()),
    }
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
    fn add_rows(&mut self, names: &str) {
        self.rows.extend(names.split(',').map(str::to_string));
    }

    /// Without names, all rows.
    fn check(&mut self) -> Result<()> {
        let known = program::rows()?;
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

fn list() -> Result<()> {
    for row in program::rows()? {
        println!("{:12} {:10} {}", row.name, row.way, row.what);
    }
    Ok(())
}
