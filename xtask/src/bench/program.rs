//! The benchmark program, `tests/bench`: built, and asked what it measures.

use std::path::PathBuf;
use std::process::Command;

use crate::compile;
use crate::failure::{Failure, Result};
use crate::packages;
use crate::process;

/// Where it lies in each guest: it executes itself by this name.
pub const GUEST_PATH: &str = "/bench";

/// Where the program lies that `fork_exec` executes.
pub const GUEST_END: &str = "/bench-end";

/// What it is linked with: a library of this file is enough to know that all are there.
const LIBRARY: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev");

/// A row as the program describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// `one way` or `round trip`.
    pub way: String,
    /// What one operation is.
    pub what: String,
}

/// Compiles it; answers where it lies.
pub fn path() -> Result<PathBuf> {
    packages::require_file(LIBRARY)?;
    // Away from where native programs lie, so that an address tells whose it is.
    compile::directory("tests/bench", "bench", &["-static", "-Wl,-Ttext-segment=0x10000000"])
}

/// Compiles the program that ends at once; answers where it lies.
pub fn end() -> Result<PathBuf> {
    let options = ["-static", "-nostdlib", "-Wl,-Ttext-segment=0x20000000"];
    compile::directory("tests/bench-end", "bench-end", &options)
}

/// Compiles the program that has Linux do the same work on one processor and on two.
pub fn cpus() -> Result<PathBuf> {
    packages::require_file(LIBRARY)?;
    compile::directory("tests/bench-cpus", "bench-cpus", &["-static"])
}

/// Compiles what keeps the emulator awake while it waits for a lock.
pub fn awake() -> Result<PathBuf> {
    compile::directory("tests/bench-awake", "awake.so", &["-shared", "-fPIC"])
}

/// All rows, in the program's order.
pub fn rows() -> Result<Vec<Row>> {
    Ok(parse(&process::output(Command::new(path()?).arg("--list"))?))
}

/// How often and how long each row is measured.
#[derive(Clone, Copy, Debug)]
pub struct Repetition {
    /// Samples, the first of which warms up.
    pub samples: u32,
    /// How many times the operations of a counted sample.
    pub scale: u32,
}

impl Repetition {
    /// The program's arguments.
    pub fn arguments(self, rows: &[String]) -> Vec<String> {
        let (samples, scale) = (self.samples.to_string(), self.scale.to_string());
        // One word for all rows: Linux gives its first process at most 32.
        let words = ["--samples", &samples, "--scale", &scale, &rows.join(",")];
        words.map(str::to_string).to_vec()
    }
}

/// Ticks of the time-stamp counter in a second: the guests' is the host's.
pub fn ticks_per_second() -> Result<f64> {
    let said = process::output(Command::new(path()?).arg("--ticks"))?;
    said.trim().parse().map_err(|_| Failure::new(format!("bench --ticks said {said:?}")))
}

fn parse(list: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut parts = line.split('\t').map(str::to_string);
        Some(Row { name: parts.next()?, way: parts.next()?, what: parts.next()? })
    };
    list.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_three_columns() {
        let rows = parse("a\tone way\tdoing b\nnonsense\n");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].way, "one way");
    }
}
