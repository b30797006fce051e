//! C sources to what QEMU or a guest loads, if they have changed since.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context, Result};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// What compiles them.
const COMPILER: (&str, &str) = ("gcc", "gcc");

/// Compiles all `.c` files of a directory of the tree into the file `name`; answers where it lies.
pub fn directory(sources: &str, name: &str, options: &[&str]) -> Result<PathBuf> {
    let output = workspace::output().join("compiled");
    fs::create_dir_all(&output).context(output.display())?;
    let made = output.join(name);
    let sources = files(&workspace::root().join(sources))?;
    if sources.iter().all(|source| is_newer(&made, source)) {
        return Ok(made);
    }
    packages::require(&[COMPILER])?;
    report::step(&format!("compiling {name}"));
    let partial = made.with_extension(format!("{}.partial", std::process::id()));
    let mut gcc = Command::new(COMPILER.0);
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(&partial);
    let suffix = |path: &&PathBuf| path.extension().is_some_and(|suffix| suffix == "c");
    process::run(gcc.args(sources.iter().filter(suffix)))?;
    fs::rename(&partial, &made).context(made.display())?;
    Ok(made)
}

/// The sources and headers, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).context(directory.display())? {
        files.push(entry.context(directory.display())?.path());
    }
    files.sort();
    Ok(files)
}

/// Whether `made` is there and not older than `source`.
fn is_newer(made: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(made).is_some_and(|made| time(source).is_some_and(|source| made >= source))
}
