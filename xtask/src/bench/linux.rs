//! The benchmark program as the first process of Debian's cloud kernel, tuned or as it comes.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::collect::{self, Measured, Said};
use super::initramfs::Initramfs;
use super::program::Repetition;
use super::{counts, ours, plugin, program, raw};
use crate::failure::{Context, Failure, Result};
use crate::machine::Counting;
use crate::packages;
use crate::process;
use crate::report;

/// The package that depends on the newest kernel.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// How long one boot may take.
const LIMIT: Duration = Duration::from_secs(600);

/// How Linux is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As fast as it gets without another kernel: what we compare with.
    Tuned,
    /// As Debian ships it.
    Stock,
}

impl Profile {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tuned => "tuned",
            Self::Stock => "stock",
        }
    }

    /// The kernel's command line.
    pub fn settings(self) -> &'static str {
        match self {
            // Against attacks on the processor, against use of freed memory, against programs.
            Self::Tuned => {
                "console=ttyS0 quiet panic=-1 mitigations=off randomize_kstack_offset=off \
                 init_on_alloc=0 init_on_free=0 hardened_usercopy=off page_poison=0 \
                 lsm= apparmor=0 selinux=0 audit=0"
            }
            Self::Stock => "console=ttyS0 quiet panic=-1",
        }
    }
}

/// The kernel's release, such as `6.1.0-56-cloud-amd64`.
pub fn release() -> Result<String> {
    let package = packages::debian_dependency(PACKAGE, "linux-image-")?;
    Ok(package.trim_start_matches("linux-image-").to_string())
}

/// The kernel.
pub fn kernel() -> Result<PathBuf> {
    let release = release()?;
    packages::debian_file(&format!("linux-image-{release}"), &format!("boot/vmlinuz-{release}"))
}

/// The command line on which `program` is the first process, with these arguments.
pub fn command_line(profile: Profile, program: &str, arguments: &[String]) -> String {
    format!("{} rdinit={program} -- {}", profile.settings(), arguments.join(" "))
}

/// Counts the instructions of these rows.
pub fn count(profile: Profile, rows: &[String], samples: u32) -> Result<Vec<Measured>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let recorded = super::file(&format!("{}.counts", profile.name()))?;
    let counting = plugin::counting(&recorded, None)?;
    measure(profile, rows, Repetition { samples, scale: 1 }, Some(counting), || {
        let text = std::fs::read_to_string(&recorded).context(recorded.display())?;
        Ok(Some(counts::parse(&text)?))
    })
}

/// Takes the time of these rows.
pub fn time(profile: Profile, rows: &[String], repetition: Repetition) -> Result<Vec<Measured>> {
    measure(profile, rows, repetition, None, || Ok(None))
}

fn measure(
    profile: Profile,
    rows: &[String],
    repetition: Repetition,
    counting: Option<Counting>,
    recording: impl Fn() -> Result<Option<counts::Recording>>,
) -> Result<Vec<Measured>> {
    let kernel = kernel()?;
    let machine = ours::machine(counting);
    let mut files = Initramfs::default();
    files.file(program::GUEST_PATH, &program::path()?)?;
    files.file(program::GUEST_END, &program::end()?)?;
    let initial = super::file("initramfs")?;
    files.write(&initial)?;
    collect::rows(rows, |rows| {
        report::step(&format!("Linux, {}: {}", profile.name(), rows.join(" ")));
        let line = command_line(profile, program::GUEST_PATH, &repetition.arguments(rows));
        let console = run(machine.boot(&kernel, &initial, &line)?)?;
        raw::keep(profile.name(), &console)?;
        Ok(Said { console, recording: recording()? })
    })
}

/// Runs the guest until it ends itself; what it wrote to its serial line.
pub fn run(mut qemu: Command) -> Result<String> {
    let shown = process::show(&qemu);
    qemu.args(["-serial", "stdio"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = qemu.spawn().context(&shown)?;
    let mut output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.as_mut().map(|output| output.read_to_end(&mut bytes));
        read.transpose().map(|_| bytes)
    });
    let begun = Instant::now();
    while child.try_wait().context(&shown)?.is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().context(&shown)?;
            child.wait().context(&shown)?;
            return Err(Failure::new("Linux was still running after ten minutes"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let bytes = reader.join().map_err(|_| Failure::new("the reader of Linux's output panicked"))?;
    Ok(String::from_utf8_lossy(&bytes.context(&shown)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gets_its_arguments_and_the_kernel_its_own() {
        let words = ["--samples".to_string(), "7".to_string()];
        let line = command_line(Profile::Stock, "/bench", &words);
        assert_eq!(line, "console=ttyS0 quiet panic=-1 rdinit=/bench -- --samples 7");
        assert!(command_line(Profile::Tuned, "/x", &[]).contains("mitigations=off"));
    }
}
