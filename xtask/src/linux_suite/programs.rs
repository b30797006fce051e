//! The small C programs of `tests/linux/c`: one file, one static program, one case.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::case_file::{Case, Group};
use crate::failure::{Context, Result};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// Name of their group.
pub const GROUP: &str = "c";

/// What compiles them.
const COMPILER: (&str, &str) = ("gcc", "gcc");
/// What they are linked with: a library of this file is enough to know that all are there.
const LIBRARY: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev");

/// Where the compiled ones lie.
pub fn directory() -> PathBuf {
    workspace::output().join("linux-programs")
}

/// A case for each program.
pub fn group() -> Result<Group> {
    let mut group = Group::new(GROUP);
    for source in sources()? {
        let name = name_of(&source);
        let script = format!("$PROGRAMS/{name}\n");
        group.cases.push(Case { name, script, ..Case::default() });
    }
    Ok(group)
}

/// Compiles those whose source is newer than the program.
pub fn compile() -> Result<()> {
    let directory = directory();
    fs::create_dir_all(&directory).context(directory.display())?;
    let common = sources_directory().join("check.h");
    for source in sources()? {
        let program = directory.join(name_of(&source));
        if is_newer(&program, &source) && is_newer(&program, &common) {
            continue;
        }
        packages::require(&[COMPILER])?;
        packages::require_file(LIBRARY)?;
        report::step(&format!("compiling {}", source.display()));
        let options = ["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o"];
        process::run(Command::new("gcc").args(options).arg(&program).arg(&source))?;
    }
    Ok(())
}

fn sources_directory() -> PathBuf {
    workspace::root().join("tests/linux/c")
}

/// The sources in the order of their names.
fn sources() -> Result<Vec<PathBuf>> {
    let directory = sources_directory();
    let mut sources = Vec::new();
    for entry in fs::read_dir(&directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.extension().is_some_and(|suffix| suffix == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

fn name_of(source: &Path) -> String {
    source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether `program` is there and not older than `source`.
fn is_newer(program: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(program).is_some_and(|program| time(source).is_some_and(|source| program >= source))
}
