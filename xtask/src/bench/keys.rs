//! How soon a keystroke is answered while other programs compute: here, and on Linux.
//!
//! `cat` on a raw terminal gives each byte back; beside it run as many endless loops as one likes.
//! What is timed is the way of one byte through the serial line, whoever waits for bytes there, and
//! back, in the guest's instructions, a nanosecond each: when the host has no time for the guest,
//! it stands still. A program that has to wait for its turn behind eight others answers after eight
//! slices, tens of millions of instructions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::initramfs::Initramfs;
use super::linux::{self, Profile};
use super::{counts, ours, plugin, table};
use crate::boot_image::{self, Extra};
use crate::command_line::CommandLine;
use crate::failure::{Context, Failure, Result};
use crate::linux_suite::{Line, More, Session};
use crate::machine::Machine;
use crate::mutate;
use crate::report;
use crate::run::{self, Job};

/// Keystrokes of one measurement.
const KEYS: u32 = 100;
/// Loops beside it.
pub const LOOPS: u32 = 8;
/// The key by which an attack is over.
const LAST: u8 = b'.';
/// What the program says when it listens.
const READY: &[u8] = b"listening\r\n";
/// How long it may take until it does, and to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keystrokes come at no fixed time of a slice: steps of this, so many of them at most.
const STEP: Duration = Duration::from_micros(700);
const STEPS: u32 = 37;

/// What the program does, in a shell.
fn script(loops: u32) -> String {
    format!(
        "stty raw -echo; for n in $(seq {loops}); do while :; do :; done & done; \
         sleep 0.1; printf 'listening\\r\\n'; exec cat"
    )
}

/// The answers' times in our guest, shortest first.
pub fn here(loops: u32) -> Result<Vec<Duration>> {
    let counter = Counter::new()?;
    let image = run::make_image(&Job::default())?;
    let qemu = guest(&counter.machine()?, &image.path, &script(loops))?;
    Ok(measure(&counter, qemu)?.0)
}

/// Our guest, in which a shell reads this from the terminal's line on.
fn guest(machine: &Machine, image: &Path, script: &str) -> Result<Command> {
    let mut line = CommandLine::default();
    machine.describe(&mut line);
    if let Some(fault) = mutate::chosen() {
        line.set("mutate", &fault);
    }
    line.set("run", "/bin/sh").set("stdin", "terminal");
    line.set("arg", "sh").set("arg", "-c").set("arg", script);
    machine.qemu(image, &line)
}

/// What one user's attack does to others.
pub struct Beside {
    /// The answers' times to another user's keystrokes, shortest first.
    pub taken: Vec<Duration>,
    /// How long it takes to end the attack.
    pub ended: Duration,
    /// What the guest says afterwards.
    pub said: String,
}

/// Keystrokes beside an attack, until a full stop is typed: by `script`, which says `ended` when
/// nothing is left of it, and `over` when it has said all.
pub fn beside(memory: &str, extras: Vec<Extra>, script: &str) -> Result<Beside> {
    let counter = Counter::new()?;
    let machine = Machine { memory: memory.into(), ..counter.machine()? };
    let image = run::make_image(&Job { extras, ..Job::default() })?;
    let qemu = guest(&machine, &image.path, script)?;
    let (taken, mut session, at) = measure(&counter, qemu)?;
    let begun = counter.now()?;
    session.send(&[LAST]).context("a terminal")?;
    let at = wait_for(&mut session, at, b"ended\r\n")?;
    let ended = Duration::from_nanos(counter.now()? - begun);
    let end = wait_for(&mut session, at, b"over\r\n")?;
    let said = String::from_utf8_lossy(&session.stream[at..end]).into_owned();
    Ok(Beside { taken, ended, said })
}

/// The same on Linux.
fn on_linux(loops: u32) -> Result<Vec<Duration>> {
    let mut files = Initramfs::default();
    files.file("/bin/busybox", &boot_image::busybox()?)?;
    for applet in ["sh", "stty", "seq", "sleep", "printf", "cat", "mount"] {
        files.link(&format!("/bin/{applet}"), "busybox");
    }
    files.directory("/dev");
    let first = format!(
        "#!/bin/sh\nmount -t devtmpfs devtmpfs /dev\n\
         exec </dev/ttyS0 >/dev/ttyS0 2>&1\n{}\n",
        script(loops)
    );
    files.bytes("/first", first.into_bytes());
    let initial = super::file("initramfs.keys")?;
    files.write(&initial)?;
    let line = linux::command_line(Profile::Tuned, "/first", &[]);
    let counter = Counter::new()?;
    Ok(measure(&counter, counter.machine()?.boot(&linux::kernel()?, &initial, &line)?)?.0)
}

/// The plugin's files, by which the guest's time is read while it runs.
struct Counter {
    head: PathBuf,
    counters: PathBuf,
}

impl Counter {
    fn new() -> Result<Self> {
        let file = |name: &str| -> Result<PathBuf> {
            let path = super::file(name)?;
            // A guest that is still ending goes on counting in the old one.
            let _ = std::fs::remove_file(&path);
            Ok(path)
        };
        Ok(Self { head: file("keys.counts")?, counters: file("keys.counters")? })
    }

    fn machine(&self) -> Result<Machine> {
        Ok(ours::machine(Some(plugin::watching(&self.head, &self.counters)?)))
    }

    /// What the guest has executed.
    fn now(&self) -> Result<u64> {
        let head = std::fs::read_to_string(&self.head).context(self.head.display())?;
        let counters = std::fs::read(&self.counters).context(self.counters.display())?;
        Ok(counts::standing(&head, &counters)?.total())
    }
}

fn words(command: &Command) -> Vec<String> {
    let all = [command.get_program()].into_iter().chain(command.get_args());
    all.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The times, shortest first, and the terminal with how far it has been read.
fn measure(counter: &Counter, mut qemu: Command) -> Result<(Vec<Duration>, Session, usize)> {
    let words = words(qemu.args(["-serial", "mon:stdio"]));
    let shown = words.first().map_or("", String::as_str);
    let mut session = Session::start(&words, Line::Raw, None).context(shown)?;
    let mut at = wait_for(&mut session, 0, READY)?;
    let mut taken = Vec::new();
    for number in 0..KEYS {
        std::thread::sleep(STEP * (number * 17 % STEPS));
        let key = [b'a' + (number % 26) as u8];
        let begun = counter.now()?;
        session.send(&key).context(shown)?;
        at = wait_for(&mut session, at, &key)?;
        taken.push(Duration::from_nanos(counter.now()? - begun));
    }
    taken.sort();
    Ok((taken, session, at))
}

/// Waits until `text` has come behind `from`; where it ends.
fn wait_for(session: &mut Session, from: usize, text: &[u8]) -> Result<usize> {
    loop {
        let came = &session.stream[from..];
        if let Some(at) = came.windows(text.len()).position(|part| part == text) {
            return Ok(from + at + text.len());
        }
        match session.more(PATIENCE).context("a terminal")? {
            More::Bytes => {}
            More::Silence | More::End => {
                let said = String::from_utf8_lossy(&session.stream).into_owned();
                let text = text.escape_ascii();
                return Err(Failure::new(format!("`{text}` never came; what did: {said}")));
            }
        }
    }
}

/// One in so many, counted from the shortest, in hundredths.
pub fn quantile(sorted: &[Duration], hundredths: usize) -> Duration {
    let at = sorted.len() * hundredths / 100;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// `cargo xtask bench --keys`: idle and with loops. One processor: the plugin counts one.
pub fn print() -> Result<()> {
    let mut lines = Vec::new();
    for loops in [0, LOOPS] {
        report::step(&format!("keys: {loops} loops"));
        let mut cells = vec![loops.to_string()];
        for taken in [here(loops)?, on_linux(loops)?] {
            let ms = |at| format!("{:.2}", quantile(&taken, at).as_secs_f64() * 1e3);
            cells.push([ms(50), ms(90), ms(100)].join(" / "));
        }
        lines.push(cells);
    }
    let head = ["loops", "here: median / 90 % / most, guest ms", "Linux"];
    println!("{}", table::markdown(&head, lines));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted() {
        let taken: Vec<_> = (0..10).map(Duration::from_millis).collect();
        let ms = |at| quantile(&taken, at).as_millis();
        assert_eq!((ms(0), ms(50), ms(90), ms(100)), (0, 5, 9, 9));
        assert_eq!(quantile(&[], 50), Duration::ZERO);
    }
}
