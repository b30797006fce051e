//! The network, over a tap device in a network namespace of its own.
//!
//! The namespace is made by `unshare` around a second run of this very program (`net-inside`),
//! which makes the tap device, boots the guest on it and is its peer. When that run ends, however
//! it ends, namespace and device are gone; nothing of the host's network is touched.

mod fetch;
pub mod inside;
mod peer;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::boot_image::Extra;
use crate::failure::{Context, Failure, Result};
use crate::machine::Kind;
use crate::packages;
use crate::process;
use crate::report;
use crate::run::{self, Job};
use crate::tally::Tally;
use crate::workspace;

pub use inside::command as inside_command;

/// The machines: both kinds, one and two processors.
const MACHINES: [(Kind, u32); 2] = [(Kind::Q35, 1), (Kind::Microvm, 2)];
/// The sizes that are fetched, with their names.
const SIZES: [(&str, usize); 4] =
    [("100", 100), ("10k", 10 << 10), ("100k", 100 << 10), ("10m", 10 << 20)];

/// Runs the guest's judge and its peer on each machine.
pub fn run(tally: &mut Tally) -> Result<()> {
    packages::require(&[("unshare", "util-linux"), ("ip", "iproute2"), ("curl", "curl")])?;
    let files = make_files()?;
    let job = Job { extras: vec![files], ..Job::default() };
    let image = run::make_image(&job)?;
    for (kind, cpus) in MACHINES {
        let place = format!("{} x{cpus}", kind.name());
        if !tally.wants_place(&place) {
            continue;
        }
        report::step(&format!("net: {place}"));
        let words = ["net-inside", kind.name(), &cpus.to_string()];
        in_namespace(tally, &words, &image.path, &place)?;
    }
    Ok(())
}

/// Runs ourselves in a namespace, with these words and the image behind them, and records what that
/// run says.
pub fn in_namespace(tally: &mut Tally, words: &[&str], image: &Path, place: &str) -> Result<()> {
    let mut command = Command::new("unshare");
    // Whoever isn't root is it in a namespace of users of its own.
    command.args(if process::is_root() { &["--net"][..] } else { &["--net", "--map-root-user"] });
    command.arg("--").arg(std::env::current_exe().context("this program")?);
    command.args(words).arg(image);
    let shown = process::show(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().context(&shown)?;
    let mut ended = false;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.context(&shown)?;
        match parse(&line) {
            Some((name, verdict)) if tally.wants(name) => tally.record(name, place, verdict),
            Some(_) => {}
            None => ended |= line == inside::END,
        }
    }
    let status = child.wait().context(&shown)?;
    if !ended {
        return Err(Failure::new(format!("{shown}: ended in the middle ({status})")));
    }
    Ok(())
}

/// Reads `test NAME ... ok [remark] | FAILED reason`.
fn parse(line: &str) -> Option<(&str, crate::tally::Verdict)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (word, text) = verdict.split_once(' ').unwrap_or((verdict, ""));
    match word {
        "ok" => Some((name, Ok(text.to_string()))),
        "FAILED" => Some((name, Err(text.to_string()))),
        _ => None,
    }
}

/// Where the files that are fetched lie on the host.
pub fn files() -> std::path::PathBuf {
    workspace::output().join("net")
}

/// Makes the files, in a directory that becomes one of Cheetah's.
pub fn make_files() -> Result<Extra> {
    let directory = files();
    let names = SIZES.map(|(name, _)| format!("{name}.bin"));
    let sizes = SIZES.map(|(_, size)| size);
    let documents: Vec<_> = names.iter().map(String::as_str).zip(sizes).collect();
    make_documents(&directory, &documents)?;
    Ok(Extra { host: directory, guest: "/www/net".into() })
}

/// Makes files of these names and sizes.
pub fn make_documents(directory: &Path, documents: &[(&str, usize)]) -> Result<()> {
    std::fs::create_dir_all(directory).context(directory.display())?;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for &(name, size) in documents {
        let bytes: Vec<u8> = (0..size)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        let path = directory.join(name);
        std::fs::write(&path, bytes).context(path.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        assert_eq!(parse("test net/x ... ok (5)"), Some(("net/x", Ok("(5)".into()))));
        assert_eq!(parse("test net/x ... FAILED no"), Some(("net/x", Err("no".into()))));
        assert_eq!(parse("net: ready"), None);
    }
}
