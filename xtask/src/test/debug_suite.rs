//! Looking into a running system: what `--strace` writes, and what gdb finds by `--gdb`.

mod gdb;
mod strace;

use std::path::PathBuf;

use crate::failure::{Context, Result};
use crate::tally::{Tally, Test};
use crate::workspace;

const TESTS: [Test; 3] = [
    ("debug/strace_of_ls_is_linuxs", strace::of_ls),
    ("debug/strace_follows_children", strace::of_a_shell),
    ("debug/gdb_stops_by_name_in_one_environment", gdb::session),
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    tally.run(&TESTS);
    Ok(())
}

/// A fresh directory of this run.
fn directory(name: &str) -> Result<PathBuf> {
    let directory = workspace::output().join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context(directory.display())?;
    }
    std::fs::create_dir_all(&directory).context(directory.display())?;
    Ok(directory)
}
