//! Looking into a running system: what `--strace` writes, and what gdb finds by `--gdb`.

mod gdb;
mod strace;

use std::path::PathBuf;

use crate::failure::Result;
use crate::tally::{Tally, Verdict};
use crate::workspace;

/// A test's name, and what runs it.
type Test = (&'static str, fn() -> Result<Verdict>);

const TESTS: [Test; 3] = [
    ("debug/strace_of_ls_is_linuxs", strace::of_ls),
    ("debug/strace_follows_children", strace::of_a_shell),
    ("debug/gdb_stops_by_name_in_one_environment", gdb::session),
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    for (name, test) in TESTS {
        if tally.wants(name) {
            let outcome = test().unwrap_or_else(|failure| Err(failure.to_string()));
            tally.record(name, "", outcome);
        }
    }
    Ok(())
}

/// A fresh directory of this run.
fn directory(name: &str) -> Result<PathBuf> {
    use crate::failure::Context;
    let directory = workspace::output().join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context(directory.display())?;
    }
    std::fs::create_dir_all(&directory).context(directory.display())?;
    Ok(directory)
}
