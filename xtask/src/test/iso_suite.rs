//! The ISO: by BIOS and by UEFI to the shell, and some of the native suite on Bochs's processor.
//!
//! All of the native suite runs there in `cargo xtask machines`, or where its place is asked for:
//! `cargo xtask test --suite guest --place 'bochs x2'`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Context, Result};
use crate::iso::emulator::{Emulator, place};
use crate::iso::{self, Directory, native, serial};
use crate::mutate;
use crate::run::{self, Job};
use crate::tally::{Tally, Verdict};

/// How long a boot may take, to the end.
const LIMIT: Duration = Duration::from_secs(240);
/// MiB of memory.
const MEMORY: u32 = 256;
/// Where the shell is booted to, on how many processors.
const SHELLS: [(&str, Emulator, u32); 2] = [
    ("iso/boots_to_the_shell_by_bios", Emulator::SeaBios, 1),
    ("iso/boots_to_the_shell_by_uefi", Emulator::Ovmf, 2),
];
/// A shell with a command that it answers, and its end.
const TALK: [(&str, &str); 2] =
    [("xok:/# ", "echo answer-$((6*7))\n"), ("answer-42", "poweroff\n")];

/// Beginnings that the kernel refuses before it has mapped anything: by which words of the command
/// line, and whether the boot image is damaged.
const ENDS: [(&str, Emulator, &str, bool); 2] = [
    ("iso/a_damaged_image_switches_off_by_bios", Emulator::SeaBios, "", true),
    ("iso/a_wrong_word_switches_off_by_uefi", Emulator::Ovmf, "mitigations=some", false),
];

/// Of the native suite: what depends most on the processor, and takes little time.
const SHORT: [&str; 8] = [
    "exceptions_reach_the_program",
    "exceptions_redirected",
    "frame_revoked_everywhere",
    "vectors_none_or_kept",
    "registers_across_every_call",
    "transfer_by_either_way",
    "gangs_in_step",
    "no_kernel_faults",
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    for (name, emulator, cpus) in SHELLS {
        if tally.wants(name) && tally.wants_place(&place(emulator, cpus)) {
            let verdict =
                to_the_shell(emulator, cpus).unwrap_or_else(|failure| Err(failure.to_string()));
            tally.record(name, &place(emulator, cpus), verdict);
        }
    }
    for (name, emulator, words, damaged) in ENDS {
        if tally.wants(name) && tally.wants_place(&place(emulator, 1)) {
            let verdict = early_end(emulator, words, damaged);
            let verdict = verdict.unwrap_or_else(|failure| Err(failure.to_string()));
            tally.record(name, &place(emulator, 1), verdict);
        }
    }
    let place = place(Emulator::Bochs, 1);
    let wanted: Vec<&str> =
        SHORT.into_iter().filter(|name| tally.wants(&format!("guest/{name}"))).collect();
    // The suite `guest` runs there whatever is asked for.
    if !wanted.is_empty() && tally.wants_place(&place) && !tally.is_asked_for(&place) {
        native::run(tally, 1, &wanted)?;
    }
    Ok(())
}

/// Boots it as it is made for people, with nothing on the command line.
fn to_the_shell(emulator: Emulator, cpus: u32) -> Result<Verdict> {
    let files = Directory::new(&format!("shell-{}", std::process::id()))?;
    let image = run::make_image(&Job::default())?;
    let path = make(&files, &image.path, "")?;
    let (command, line) = emulator.command(&path, cpus, MEMORY, &files.path)?;
    let heard = serial::run(command, line, &TALK, LIMIT, |_| {})?;
    // GRUB ends its last line in its own way.
    let boot_line = heard.text.lines().map(str::trim).find(|line| line.starts_with("xok: "));
    let boot_line = boot_line.unwrap_or("");
    let processors = format!("xok: {cpus} cpu");
    Ok(match heard.status {
        None => Err(format!("no status: {}", heard.text)),
        Some(_) if !heard.is_off => Err("it did not switch itself off".into()),
        Some(0) if !heard.text.contains("\nanswer-42") => Err(format!("no shell: {}", heard.text)),
        Some(0) if !boot_line.starts_with(&processors) || !boot_line.contains("net virtio") => {
            Err(format!("not the machine: {boot_line}"))
        }
        Some(0) => Ok(String::new()),
        Some(status) => Err(format!("status {status}: {}", heard.text)),
    })
}

/// Boots what is refused: the machine says so, with its status, and switches itself off. A reset
/// would begin anew.
fn early_end(emulator: Emulator, words: &str, damaged: bool) -> Result<Verdict> {
    let files = Directory::new(&format!("shell-{}", std::process::id()))?;
    let image = run::make_image(&Job::default())?;
    if damaged {
        let mut bytes = std::fs::read(&image.path).context(image.path.display())?;
        // In the entries, which begin with the archive's second page.
        bytes[image::archive::PAGE_SIZE + 16] ^= 1;
        std::fs::write(&image.path, bytes).context(image.path.display())?;
    }
    let path = make(&files, &image.path, words)?;
    let (mut command, line) = emulator.command(&path, 1, MEMORY, &files.path)?;
    command.args(["-action", "reboot=reset"]);
    let heard = serial::run(command, line, &[], LIMIT, |_| {})?;
    let said = if damaged { "wrong checksum" } else { "auto, off or all" };
    Ok(match heard.status {
        Some(1) if !heard.text.contains(said) => Err(format!("not why: {}", heard.text)),
        Some(1) if heard.is_off => Ok(String::new()),
        Some(1) => Err("it did not switch itself off".into()),
        other => Err(format!("status {other:?}: {}", heard.text)),
    })
}

/// The ISO with this image and these words, and with the fault that was chosen.
fn make(files: &Directory, image: &Path, words: &str) -> Result<PathBuf> {
    let path = files.path.join("xok.iso");
    let fault = mutate::chosen().map_or(String::new(), |fault| format!("mutate={fault}"));
    iso::make(image, &format!("{words} {fault}"), &path)?;
    Ok(path)
}
