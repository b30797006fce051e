//! Running other programs: what they are called in messages, and how they end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Result};

/// Runs a program whose output is part of our progress: it all goes to stderr.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let error = std::io::stderr();
    command.stdin(Stdio::null()).stdout(error);
    let status = command.status().context(format!("{shown}: could not start"))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{shown}: {status}"))) }
}

/// Runs a program and answers its standard output; its standard error is shown if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output =
        command.stdin(Stdio::null()).output().context(format!("{shown}: could not start"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{shown}: {}\n{}", output.status, said.trim_end())))
}

/// A command as one would type it.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).map(|word| quote(&word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Where a program lies, searched as a shell would, and in root's directories.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"])
        .filter(|directory| !directory.is_empty())
        .map(|directory| Path::new(directory).join(program))
        .find(|candidate| candidate.is_file())
}

/// Whether this process is root.
pub fn is_root() -> bool {
    // The owner of our own directory in /proc is the effective user.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_commands_as_typed() {
        let mut command = Command::new("qemu");
        command.args(["-append", "log=debugcon run=/a b", "", "it's"]);
        assert_eq!(show(&command), r"qemu -append 'log=debugcon run=/a b' '' 'it'\''s'");
    }

    #[test]
    fn finds_programs() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-at-all").is_none());
    }
}
