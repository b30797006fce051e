//! From power-on to a user instruction, to a shell's command, to its prompt; the smallest memory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::counts::{self, Counts};
use super::figures::{median, show, spread};
use super::initramfs::Initramfs;
use super::linux::{self, Profile};
use super::{ours, plugin, profile, program, table};
use crate::boot_image::{self, Extra};
use crate::command_line::CommandLine;
use crate::failure::{Context, Failure, Result};
use crate::machine::{Kind, LOG_PORT, Machine};
use crate::process;
use crate::report;
use crate::run::{self, Job};

/// Milestones of the plugin: the first user instruction, and the benchmark program's main.
const FIRST_USER: u32 = 0;
const PROGRAM: u32 = 2;
/// How long a boot may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is tried.
const ATTEMPTS: u32 = 3;
/// How long a boot may take in little memory: one that is too little hangs or restarts.
const MEMORY_PATIENCE: Duration = Duration::from_secs(20);
/// Between these, in MiB, the smallest memory is looked for.
const MEMORY: (u32, u32) = (4, 128);
/// What a shell says when it waits for a command.
const PROMPT: &[u8] = b"# ";

/// A system that can be booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Ours,
    Linux,
}

/// What the first program shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A shell on the terminal.
    Shell,
    /// A shell that executes the benchmark program as its only command.
    Command,
}

/// Files that both need.
struct Files {
    image: run::TemporaryImage,
    kernel: PathBuf,
    initial: PathBuf,
}

/// Measures and prints it all, times in so many rounds.
pub fn print(rounds: u32) -> Result<()> {
    let files = files()?;
    let systems = [System::Ours, System::Linux];
    let mut lines = Vec::new();
    let [own, theirs] = systems.map(|system| milestones(system, &files));
    let (own, theirs) = (own?, theirs?);
    for (what, number) in
        [("first user instruction", FIRST_USER), ("a shell's first command", PROGRAM)]
    {
        let (own, theirs) = (total(&own, number), total(&theirs, number));
        lines.push(line(&format!("boot to {what}, instructions"), own, theirs, ""));
    }
    for kind in [Kind::Q35, Kind::Microvm] {
        let mut times: [Vec<f64>; 2] = Default::default();
        for round in 1..=rounds {
            report::step(&format!("boot to the prompt, {}, round {round}", kind.name()));
            for (times, system) in times.iter_mut().zip(systems) {
                times.push(prompt(system, kind, &files)?.as_secs_f64() * 1000.0);
            }
        }
        let spreads = times.each_ref().map(|times| format!("{:.0}%", spread(times) * 100.0));
        let [own, theirs] = times.map(median);
        let what = format!("boot to the prompt on {}, ms", kind.name());
        lines.push(line(&what, Some(own), Some(theirs), &spreads.join(" ")));
    }
    let [own, theirs] = systems.map(|system| smallest(system, &files));
    lines.push(line("smallest memory on q35, MiB", Some(own?), Some(theirs?), ""));
    print!("{}", table::markdown(&["figure", "ours", "Linux", "ratio", "spreads"], lines));
    Ok(())
}

/// Instructions of a boot of ours up to a shell's first command, for tests.
pub fn instructions() -> Result<f64> {
    let recorded = super::file("boot-Ours.counts")?;
    let machine = ours::machine(Some(plugin::counting(&recorded, None)?));
    let reached = record(own_qemu(&machine, First::Command, &image()?)?, &recorded)?;
    total(&reached, PROGRAM).ok_or_else(|| Failure::new("the boot never came to its program"))
}

/// All instructions up to a milestone; each step of a repeated string instruction is one.
fn total(reached: &[(u32, Counts)], milestone: u32) -> Option<f64> {
    let found = reached.iter().find(|(number, _)| *number == milestone);
    found.map(|(_, counts)| (counts.total() + counts.repeated) as f64)
}

/// Prints where the instructions of a boot of ours go, up to a shell's first command.
pub fn profile() -> Result<()> {
    let recorded = super::file("boot-profile.counts")?;
    let counting = plugin::profiling_until(PROGRAM, &recorded, &ours::profile_path()?)?;
    let machine = ours::machine(Some(counting));
    record(own_qemu(&machine, First::Command, &image()?)?, &recorded)?;
    profile::print_file("boot to a shell's first command", 1.0)
}

fn line(what: &str, own: Option<f64>, theirs: Option<f64>, spreads: &str) -> Vec<String> {
    let cell = |value: Option<f64>| value.map_or("-".into(), show);
    let ratio = own.zip(theirs).map(|(own, theirs)| format!("{:.4}", own / theirs));
    let ratio = ratio.unwrap_or_else(|| "-".into());
    vec![what.into(), cell(own), cell(theirs), ratio, spreads.into()]
}

/// Our boot image, with the benchmark program.
fn image() -> Result<run::TemporaryImage> {
    let extras = vec![Extra { host: program::path()?, guest: program::GUEST_PATH.into() }];
    run::make_image(&Job { extras, ..Job::default() })
}

fn files() -> Result<Files> {
    let image = image()?;
    let mut files = Initramfs::default();
    files.file(program::GUEST_PATH, &program::path()?)?;
    files.file("/bin/busybox", &boot_image::busybox()?)?;
    files.link("/bin/sh", "busybox");
    files.directory("/proc");
    let initial = super::file("initramfs.boot")?;
    files.write(&initial)?;
    Ok(Files { image, kernel: linux::kernel()?, initial })
}

/// QEMU with ours on it.
fn own_qemu(machine: &Machine, first: First, image: &run::TemporaryImage) -> Result<Command> {
    let mut line = CommandLine::default();
    line.set("log", "debugcon");
    machine.describe(&mut line);
    if first == First::Command {
        line.set("run", "/bin/sh").set("arg", "sh").set("arg", "-c");
        line.set("arg", "/bench --exit").set("stdin", "none");
    }
    let mut qemu = machine.qemu(&image.path, &line)?;
    let device = format!("isa-debugcon,iobase={LOG_PORT:#x},readback={LOG_PORT:#x}");
    qemu.args(["-chardev", "null,id=log", "-device", &format!("{device},chardev=log")]);
    Ok(qemu)
}

/// QEMU with the system on it.
fn qemu(system: System, machine: &Machine, first: First, files: &Files) -> Result<Command> {
    match (system, first) {
        (System::Ours, _) => own_qemu(machine, first, &files.image),
        (System::Linux, First::Shell) => {
            let mut line = format!("{} rdinit=/bin/sh", Profile::Tuned.settings());
            if machine.kind == Kind::Microvm {
                // Its only reference is a timer chip that an emulator on a busy host does not keep
                // in step: left to itself, one boot in ten hangs there, and more beside other load.
                line += &format!(" tsc_early_khz={:.0}", program::ticks_per_second()? / 1000.0);
            }
            machine.boot(&files.kernel, &files.initial, &line)
        }
        (System::Linux, First::Command) => {
            // The kernel takes no spaces inside of a word unless it is quoted.
            let line = linux::command_line(
                Profile::Tuned,
                "/bin/sh",
                &["-c".into(), "\"/bench --exit\"".into()],
            );
            machine.boot(&files.kernel, &files.initial, &line)
        }
    }
}

/// Counters at each milestone of a boot.
fn milestones(system: System, files: &Files) -> Result<Vec<(u32, Counts)>> {
    report::step(&format!("counting a boot of {system:?}"));
    let recorded = super::file(&format!("boot-{system:?}.counts"))?;
    let machine = ours::machine(Some(plugin::counting(&recorded, None)?));
    record(qemu(system, &machine, First::Command, files)?, &recorded)
}

/// Runs a machine until it ends; answers the milestones that its plugin has written down.
fn record(qemu: Command, recorded: &Path) -> Result<Vec<(u32, Counts)>> {
    // Linux's first process ends by that, the kernel panics, and the machine does not restart.
    linux::run(qemu)?;
    let text = std::fs::read_to_string(recorded).context(recorded.display())?;
    Ok(counts::parse(&text)?.milestones)
}

/// From QEMU's start to the prompt.
fn prompt(system: System, kind: Kind, files: &Files) -> Result<Duration> {
    let machine = Machine { kind, ..ours::machine(None) };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let qemu = qemu(system, &machine, First::Shell, files)?;
        let (seen, said) = wait_for(qemu, PROMPT, PATIENCE)?;
        if let Some(taken) = seen {
            return Ok(taken);
        }
        report::step(&format!("{system:?} on {}: no prompt, once more", kind.name()));
        last = said;
    }
    Err(Failure::new(format!("{system:?} on {}: no prompt; it said {last:?}", kind.name())))
}

/// The smallest memory, in MiB, with which a shell comes up.
fn smallest(system: System, files: &Files) -> Result<f64> {
    let (mut too_little, mut enough) = MEMORY;
    while enough - too_little > 1 {
        let middle = (too_little + enough) / 2;
        report::step(&format!("{system:?} in {middle} MiB"));
        let machine = Machine { memory: format!("{middle}M"), ..ours::machine(None) };
        let qemu = qemu(system, &machine, First::Shell, files)?;
        if wait_for(qemu, PROMPT, MEMORY_PATIENCE)?.0.is_some() {
            enough = middle
        } else {
            too_little = middle
        }
    }
    Ok(f64::from(enough))
}

/// Runs QEMU until its serial line has said `what`, it has ended, or the time is up; answers
/// after which time it had, and what was said.
fn wait_for(
    mut qemu: Command,
    what: &[u8],
    patience: Duration,
) -> Result<(Option<Duration>, String)> {
    let shown = process::show(&qemu);
    qemu.args(["-serial", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut child = qemu.stderr(Stdio::null()).spawn().context(&shown)?;
    let Some(mut output) = child.stdout.take() else {
        return Err(Failure::new("QEMU has no standard output"));
    };
    let (sender, bytes) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut said = Vec::new();
    let mut seen = None;
    while seen.is_none() {
        let left = patience.saturating_sub(begun.elapsed());
        let Ok(more) = bytes.recv_timeout(left) else { break };
        said.extend(more);
        let is_there = said.windows(what.len()).any(|window| window == what);
        seen = is_there.then(|| begun.elapsed());
    }
    // It may have ended by itself.
    let _ = child.kill();
    child.wait().context(&shown)?;
    drop(bytes);
    reader.join().map_err(|_| Failure::new("the reader of the serial line panicked"))?;
    Ok((seen, String::from_utf8_lossy(&said).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        // The words that follow are the script's own arguments.
        command.args(["-c", script, "sh"]);
        command
    }

    #[test]
    fn waiting_ends_with_the_word_the_end_or_the_time() {
        let wait = |script: &str, patience| {
            let patience = Duration::from_millis(patience);
            let (seen, said) = wait_for(shell(script), b"# ", patience).unwrap();
            (seen.is_some(), said)
        };
        assert_eq!(wait("printf 'hello\n# '; exec sleep 60", 60_000), (true, "hello\n# ".into()));
        assert_eq!(wait("echo hello", 60_000), (false, "hello\n".into()));
        assert_eq!(wait("exec sleep 60", 50), (false, String::new()));
    }

    #[test]
    fn a_figure_that_is_missing_is_a_dash() {
        assert_eq!(line("x", None, Some(2.0), ""), ["x", "-", "2.00", "-", ""]);
        assert_eq!(line("x", Some(1.0), Some(2.0), "1%"), ["x", "1.00", "2.00", "0.5000", "1%"]);
    }
}
