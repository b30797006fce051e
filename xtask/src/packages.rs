//! What the host must have: Debian's packages and the Rust target, installed when they are missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::report;
use crate::workspace;

/// The target of everything that runs on the bare machine.
pub const BARE_TARGET: &str = "x86_64-unknown-none";

/// Programs that we call, with the Debian packages that have them.
pub const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");
/// Makes a Debian tree.
pub const DEBOOTSTRAP: (&str, &str) = ("debootstrap", "debootstrap");
/// Traces calls on Linux.
pub const STRACE: (&str, &str) = ("strace", "strace");
/// Looks into running programs.
pub const GDB: (&str, &str) = ("gdb", "gdb");
/// Lists symbols.
pub const NM: (&str, &str) = ("nm", "binutils");
/// Compiles C for the bytecode of downloaded functions, in a test.
pub const CLANG: (&str, &str) = ("clang", "clang");
/// Disassembles.
pub const OBJDUMP: (&str, &str) = ("objdump", "binutils");

/// Makes sure that these programs are there, installing what isn't.
pub fn require(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|(program, _)| process::find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Makes sure that a file is there which a package has, installing it if it isn't.
pub fn require_file((file, package): (&str, &str)) -> Result<()> {
    if Path::new(file).exists() { Ok(()) } else { install(&[package]) }
}

fn install(missing: &[&str]) -> Result<()> {
    report::step(&format!("installing {}", missing.join(" ")));
    let by_hand = format!("sudo apt-get install --no-install-recommends {}", missing.join(" "));
    let install = || {
        let mut arguments = vec!["install", "-y", "--no-install-recommends"];
        arguments.extend(missing);
        apt_get(&arguments)
    };
    // Old lists name versions that are gone; fresh ones are worth a second try.
    install()
        .or_else(|_| apt_get(&["update"]).and_then(|()| install()))
        .map_err(|error| Failure::new(strip(&error)).next(by_hand))
}

/// Makes sure that the compiler has the bare-metal target.
pub fn require_bare_target() -> Result<()> {
    let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib").join(BARE_TARGET).join("lib");
    if libraries.is_dir() {
        return Ok(());
    }
    report::step(&format!("adding the Rust target {BARE_TARGET}"));
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", BARE_TARGET]).current_dir(workspace::root());
    let by_hand = process::show(&rustup);
    process::run(&mut rustup).map_err(|error| Failure::new(strip(&error)).next(by_hand))
}

/// What one of Debian's packages depends on whose name begins with `prefix`: for packages that only
/// name the newest of several.
pub fn debian_dependency(package: &str, prefix: &str) -> Result<String> {
    let list = process::output(Command::new("apt-cache").args(["depends", package]))?;
    dependency(&list, prefix).ok_or_else(|| {
        Failure::new(format!("{package}: depends on no {prefix}...")).next("sudo apt-get update")
    })
}

fn dependency(list: &str, prefix: &str) -> Option<String> {
    let name = |line: &str| line.trim().strip_prefix("Depends: ").map(str::to_string);
    list.lines().filter_map(name).find(|name| name.starts_with(prefix))
}

/// A file of one of Debian's packages, fetched into the cache without installing anything.
pub fn debian_file(package: &str, path: &str) -> Result<PathBuf> {
    let tree = workspace::cache().join("debian").join(package);
    let file = tree.join(path);
    if file.is_file() {
        return Ok(file);
    }
    report::step(&format!("fetching Debian's {package}"));
    let downloads = workspace::cache().join("debian/downloads");
    std::fs::create_dir_all(&downloads).context(downloads.display())?;
    let download = || {
        process::output(Command::new("apt-get").args(["download", package]).current_dir(&downloads))
    };
    let fetched =
        download().map(drop).or_else(|_| apt_get(&["update"]).and_then(|()| download().map(drop)));
    if let Err(error) = fetched {
        let by_hand = format!("sudo apt-get update && apt-get download {package}");
        return Err(Failure::new(strip(&error)).next(by_hand));
    }
    let archive = newest(&downloads, package)?;
    process::run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&tree))?;
    if file.is_file() {
        return Ok(file);
    }
    Err(Failure::new(format!("{package}: has no file {path}")))
}

fn newest(downloads: &Path, package: &str) -> Result<PathBuf> {
    let prefix = format!("{package}_");
    let entries = std::fs::read_dir(downloads).context(downloads.display())?;
    entries
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok())
        .map(|entry| entry.path())
        .ok_or_else(|| Failure::new(format!("{package}: apt-get download left no file")))
}

/// Runs apt-get as root or through sudo.
fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = if process::is_root() {
        Command::new("apt-get")
    } else if process::find("sudo").is_some() {
        let mut sudo = Command::new("sudo");
        // Without a terminal to ask on, sudo must fail instead of waiting.
        sudo.args(["-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    } else {
        return Err(Failure::new("neither root nor sudo to install packages with"));
    };
    process::run(command.arg("-q").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// The cause alone, to become part of another failure.
fn strip(failure: &Failure) -> String {
    failure.to_string().trim_start_matches("error: ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_by_their_beginning() {
        let list = "linux-image\n  Depends: kmod\n |Depends: linux-a\n  Depends: linux-image-6\n";
        assert_eq!(dependency(list, "linux-image-"), Some("linux-image-6".into()));
        assert_eq!(dependency(list, "nginx"), None);
    }
}
