//! `cargo xtask build`: the kernel and everything else that runs on the bare machine.

use std::process::Command;

use crate::failure::{Context, Result};
use crate::mutate;
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// Builds all of it, in release form: the only form that runs. There is a directory then for what
/// is made of it.
pub fn build() -> Result<()> {
    let output = workspace::output();
    std::fs::create_dir_all(&output).context(output.display())?;
    // The copy with the planted faults has been built, and is not built from here.
    if mutate::chosen().is_some() {
        return Ok(());
    }
    packages::require_bare_target()?;
    report::step("building the kernel and the programs");
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--release", "--target", packages::BARE_TARGET]);
    for package in workspace::bare_packages()? {
        cargo.args(["--package", &package]);
    }
    process::run(&mut cargo)
}

/// Cargo, in the tree's root.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace::root());
    cargo
}
