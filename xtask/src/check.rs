//! `cargo xtask check`: everything that must hold before a change is landed, in minutes.

use std::process::Command;

use crate::build;
use crate::failure::{Failure, Result};
use crate::packages;
use crate::process;
use crate::report;
use crate::tidy;
use crate::workspace;

/// A check's name, and what runs it.
type Step = (&'static str, fn() -> Result<()>);

/// Runs all checks, also when one fails: a change gets all its complaints at once.
pub fn command() -> Result<()> {
    packages::require_bare_target()?;
    packages::require(&[packages::CLANG])?;
    let steps: [Step; 5] = [
        ("format", format),
        ("the tree's own rules", tidy),
        ("clippy, for the host", || clippy(true)),
        ("clippy, for the bare machine", || clippy(false)),
        ("host tests", host_tests),
    ];
    let mut failed = Vec::new();
    for (name, step) in steps {
        report::step(name);
        if let Err(failure) = step() {
            eprintln!("{failure}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        report::step("check passed");
        return Ok(());
    }
    Err(Failure::new(format!("check failed: {}", failed.join(", "))))
}

fn format() -> Result<()> {
    let outcome = process::run(build::cargo().args(["fmt", "--all", "--check"]));
    outcome.map_err(|_| Failure::new("the sources are not formatted").next("cargo fmt --all"))
}

fn tidy() -> Result<()> {
    let complaints = tidy::complaints()?;
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("{} complaints\n{}", complaints.len(), complaints.join("\n"))))
}

fn clippy(on_host: bool) -> Result<()> {
    let mut cargo = build::cargo();
    cargo.args(["clippy", "--quiet"]);
    if on_host {
        cargo.args(["--all-targets", "--all-features"]);
        select(&mut cargo, workspace::host_packages()?);
    } else {
        // Release, so that it shares what `cargo xtask build` has made.
        cargo.args(["--release", "--target", packages::BARE_TARGET]);
        select(&mut cargo, workspace::bare_packages()?);
    }
    process::run(cargo.args(["--", "-D", "warnings"]))
}

fn host_tests() -> Result<()> {
    let mut cargo = build::cargo();
    cargo.args(["test", "--quiet"]);
    select(&mut cargo, workspace::tested_packages()?);
    process::run(&mut cargo)
}

fn select(cargo: &mut Command, packages: Vec<String>) {
    for package in packages {
        cargo.args(["--package", &package]);
    }
}
