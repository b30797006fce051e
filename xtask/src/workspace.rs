//! What is where: the tree's own places, and which package is built for what.

use std::path::{Path, PathBuf};

use crate::failure::{Context, Failure, Result};

/// A package of the workspace, as its manifest has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Where it lies, from the root.
    pub directory: String,
    /// Its Cargo.toml.
    pub manifest: String,
    /// Whether it is one of the default members: built and tested on the host.
    pub on_host: bool,
    /// Whether it makes a program, not only a library.
    pub is_program: bool,
}

/// All packages, in the order of the workspace's manifest.
pub fn packages() -> Result<Vec<Package>> {
    let manifest = read("Cargo.toml")?;
    let host = list(&manifest, "default-members");
    let package = |directory: String| {
        let manifest = read(&format!("{directory}/Cargo.toml"))?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
        let name = name.ok_or_else(|| Failure::new(format!("{directory}: no package name")))?;
        Ok(Package {
            name: name.trim_matches('"').to_string(),
            on_host: host.contains(&directory),
            is_program: root().join(&directory).join("src/main.rs").is_file(),
            directory,
            manifest,
        })
    };
    list(&manifest, "members").into_iter().map(package).collect()
}

/// Names of the packages that are built and tested on the host.
pub fn host_packages() -> Result<Vec<String>> {
    Ok(names(packages()?, |package| package.on_host))
}

/// Names of the packages whose unit tests run on the host: those, and whatever else has any.
pub fn tested_packages() -> Result<Vec<String>> {
    let tested = |package: &Package| {
        package.on_host || has_tests(&root().join(&package.directory).join("src"))
    };
    Ok(names(packages()?, tested))
}

/// Does a file of the directory, or of one below it, have unit tests?
fn has_tests(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    entries.flatten().map(|entry| entry.path()).any(|path| {
        let text = || std::fs::read_to_string(&path).unwrap_or_default();
        if path.is_dir() { has_tests(&path) } else { text().contains("\n#[cfg(test)]\n") }
    })
}

/// Names of the packages that are built for the bare machine.
pub fn bare_packages() -> Result<Vec<String>> {
    Ok(names(packages()?, |package| !package.on_host))
}

/// Names of our programs for the guest: what lies in the image's /xok.
pub fn native_programs() -> Result<Vec<String>> {
    let native =
        |package: &Package| !package.on_host && package.is_program && package.name != "kernel";
    Ok(names(packages()?, native))
}

fn names(packages: Vec<Package>, wanted: impl Fn(&Package) -> bool) -> Vec<String> {
    packages.into_iter().filter(wanted).map(|package| package.name).collect()
}

/// The strings of the array `key = [...]` in a manifest of ours.
fn list(manifest: &str, key: &str) -> Vec<String> {
    let begins = format!("{key} = [");
    let mut lines = manifest.lines().skip_while(|line| !line.starts_with(&begins));
    let mut text = lines.next().unwrap_or("").trim_start_matches(&begins).to_string();
    while !text.contains(']') {
        match lines.next() {
            Some(line) => text.push_str(line),
            None => break,
        }
    }
    text.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// A file of the tree, as text.
pub fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).context(path)
}

/// The tree's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where what we make ourselves goes: images, logs, results.
pub fn output() -> PathBuf {
    target().join("xok")
}

/// Where what was fetched is kept.
pub fn cache() -> PathBuf {
    root().join(".cache")
}

/// What cargo built for the bare machine.
pub fn bare(name: &str) -> PathBuf {
    target().join(crate::packages::BARE_TARGET).join("release").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_on_one_line_or_several() {
        let manifest = "a = 1\nmembers = [\n    \"x\",\n    \"y/z\",\n]\nother = [\"v\", \"w\"]\n";
        assert_eq!(list(manifest, "members"), ["x", "y/z"]);
        assert_eq!(list(manifest, "other"), ["v", "w"]);
        assert_eq!(list(manifest, "none"), [""; 0]);
    }

    #[test]
    fn every_package_is_for_one_side() {
        assert!(host_packages().unwrap().contains(&"abi".to_string()));
        // Built for the bare machine, with decisions that are tested here.
        assert!(tested_packages().unwrap().contains(&"exos".to_string()));
        assert!(!tested_packages().unwrap().contains(&"kernel".to_string()));
        assert!(bare_packages().unwrap().contains(&"kernel".to_string()));
        assert!(native_programs().unwrap().contains(&"init".to_string()));
        assert!(!native_programs().unwrap().contains(&"kernel".to_string()));
    }
}
