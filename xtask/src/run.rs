//! `cargo xtask run`: the shell on the terminal, or one program with its output and exit status.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use image::elf::{ElfError, Plan};

use crate::accelerator::Accelerator;
use crate::boot_image::{self, Extra};
use crate::build;
use crate::command_line::CommandLine;
use crate::failure::{Context, Failure, Result};
use crate::gdb;
use crate::guest::{self, Connections, Console, End, LineSink};
use crate::leftovers;
use crate::machine::{Machine, Network};
use crate::mutate;
use crate::options::{self, Options};
use crate::process;
use crate::report;
use crate::strace::Trace;
use crate::workspace;

/// The variable by which a program is traced, with all that it starts (`libs/exos/src/trace.rs`).
const STRACE: &str = "XOK_STRACE=1";
/// What the command ends with if the program could not be run, as a shell has it.
const NOT_EXECUTABLE: u8 = 126;
/// What the command ends with if there is no such program, as a shell has it.
const NOT_FOUND: u8 = 127;
/// What the command ends with if the time was up, as timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// What is to be run, and on what.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The virtual machine.
    pub machine: Machine,
    /// Files of the host to be in the image.
    pub extras: Vec<Extra>,
    /// Native programs that the image is made without: tests take room on a small machine.
    pub leaves_out: &'static [&'static str],
    /// Variables for the program, `NAME=VALUE`, beside those that init sets.
    pub environment: Vec<String>,
    /// The program, a path in the guest, and its arguments from the zeroth on.
    pub program: Option<(String, Vec<String>)>,
    /// Further words of the kernel's command line.
    pub settings: Vec<(String, String)>,
    /// Does the machine wait, stopped, for gdb?
    pub waits_for_gdb: bool,
    /// How long the guest may run.
    pub limit: Option<Duration>,
}

/// `cargo xtask run [OPTIONS] [--] [PROGRAM ARGS...]`; answers the exit status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let (mut job, program) = parse(words)?;
    build::build()?;
    if let Some(words) = program {
        job.choose_program(words)?;
        return run_program(&job);
    }
    if !std::io::stdin().is_terminal() && !is_null_input() {
        // Commands in a pipe or a file: a serial line has no end of them, and drops what comes
        // faster than a shell reads. The shell is a program then, which ends with its input.
        job.choose_program(vec!["sh".into()])?;
        return run_program(&job);
    }
    if job.machine.network == Network::User(Vec::new()) {
        job.machine.network = Network::User(vec![(8080, 80)]);
    }
    run_on_terminal(&job)
}

/// Runs a program as [`command`] does, but always with raw streams, and with further words of the
/// kernel's command line; answers its exit status and the kernel's log.
pub fn program_logged(words: Vec<String>, settings: &[(&str, &str)]) -> Result<(u8, Vec<String>)> {
    let (mut job, program) = parse(words)?;
    let program = program.ok_or_else(|| Failure::new("no program").next(options::HELP))?;
    build::build()?;
    job.choose_program(program)?;
    job.settings.extend(settings.iter().map(|(key, value)| (key.to_string(), value.to_string())));
    let (sender, log) = std::sync::mpsc::channel();
    let mut shown = log_sink();
    let sink = Box::new(move |line: &str| {
        shown(line);
        drop(sender.send(line.to_string()));
    });
    let status = run_streams(&job, sink)?;
    Ok((status, log.iter().collect()))
}

fn parse(words: Vec<String>) -> Result<(Job, Option<Vec<String>>)> {
    let mut options = Options::new(words);
    let mut job = Job::default();
    while let Some(word) = options.next() {
        match word.as_str() {
            "--file" => job.extras.push(Extra::parse(&options.value("--file")?)?),
            "--gdb" => job.waits_for_gdb = true,
            "--strace" => job.environment.push(STRACE.into()),
            "--env" => job.environment.push(variable(options.value("--env")?)?),
            "--timeout" => {
                let seconds = options.number_in("--timeout", 1..=u64::from(u32::MAX))?;
                job.limit = Some(Duration::from_secs(seconds));
            }
            "--" => {
                let program = options.rest();
                return Ok((job, (!program.is_empty()).then_some(program)));
            }
            flag if flag.starts_with('-') => {
                if !job.machine.option(flag, &mut options)? {
                    return Err(options::unknown("run", flag));
                }
            }
            program => {
                let mut words = vec![program.to_string()];
                words.extend(options.rest());
                return Ok((job, Some(words)));
            }
        }
    }
    Ok((job, None))
}

/// A variable for the program, which has a name.
fn variable(text: String) -> Result<String> {
    match text.find('=') {
        None | Some(0) => {
            Err(Failure::new(format!("--env {text}: not NAME=VALUE")).next(options::HELP))
        }
        Some(_) => Ok(text),
    }
}

impl Job {
    /// Decides which file the program's name means, and adds it to the image.
    fn choose_program(&mut self, words: Vec<String>) -> Result<()> {
        let Some(name) = words.first().cloned() else { return Ok(()) };
        let on_host = if name.contains('/') {
            std::path::absolute(&name).ok().filter(|path| path.is_file())
        } else {
            process::find(&name)
        };
        let in_image = image_path(&name)?;
        let refusal = match on_host {
            Some(host) => match check_static(&host)? {
                None => {
                    let guest = boot_image::without_links(guest_path(&host)?);
                    let host = host.canonicalize().context(host.display())?;
                    self.extras.insert(0, Extra { host, guest: guest.clone() });
                    self.program = Some((guest, words));
                    return Ok(());
                }
                Some(refusal) => refusal,
            },
            None if !name.contains('/') && Path::new(&name).is_file() => {
                Failure::new(format!("{name}: no such program in the image"))
                    .next(format!("a file of the host's is ./{name}"))
                    .status(NOT_FOUND)
            }
            None if name.contains('/') && Path::new(&name).is_dir() => {
                Failure::new(format!("{name}: a directory")).status(NOT_EXECUTABLE)
            }
            None => Failure::new(format!("{name}: no such program")).status(NOT_FOUND),
        };
        // A name that the image has too, such as `sh`, means the image's.
        let path = in_image.ok_or(refusal)?;
        self.program = Some((path, words));
        Ok(())
    }

    /// QEMU with the whole machine; it has a server for gdb as long as that is kept.
    fn qemu(&self, image: &Path, line: &CommandLine) -> Result<(Command, Option<gdb::Server>)> {
        let mut machine = self.machine.clone();
        let server = if self.waits_for_gdb {
            // A breakpoint of the translator's changes no memory: programs share theirs.
            machine.accelerator = Some(Accelerator::Tcg);
            Some(gdb::Server::prepare(self)?)
        } else {
            None
        };
        let mut qemu = machine.qemu(image, line)?;
        if let Some(server) = &server {
            server.add_to(&mut qemu);
        }
        Ok((qemu, server))
    }

    /// Not where a plugin counts instructions: the figures are the shipped kernel's.
    fn is_poisoned(&self) -> bool {
        let counts = self.machine.counting.as_ref().is_some_and(|count| count.plugin.is_some());
        !counts && std::env::var_os(POISON).is_some()
    }

    fn command_line(&self) -> CommandLine {
        let mut line = CommandLine::default();
        line.set("log", "debugcon");
        self.machine.describe(&mut line);
        for variable in &self.environment {
            line.set("env", variable);
        }
        for (key, value) in &self.settings {
            line.set(key, value);
        }
        if self.is_poisoned() {
            line.set("poison", "1");
        }
        if let Some(fault) = mutate::chosen() {
            line.set("mutate", &fault);
        }
        if let Some((path, arguments)) = &self.program {
            line.set("run", path);
            for argument in arguments {
                line.set("arg", argument);
            }
        }
        line
    }
}

/// With this variable set the kernel of every machine fills its stacks with poison whenever it is
/// left: no test may notice.
const POISON: &str = "XOK_POISON";

/// The image's own program of this name: what it holds even when nothing is added.
fn image_path(name: &str) -> Result<Option<String>> {
    let base = name.strip_prefix("/bin/").unwrap_or(name);
    if base == "busybox" || boot_image::applets()?.iter().any(|applet| applet == base) {
        return Ok(Some(format!("/bin/{base}")));
    }
    let native = name.strip_prefix("/xok/");
    let programs = workspace::native_programs()?;
    let known = native.is_some_and(|native| programs.iter().any(|program| program == native));
    Ok(known.then(|| name.to_string()))
}

fn guest_path(host: &Path) -> Result<&str> {
    host.to_str().ok_or_else(|| Failure::new(format!("{}: not UTF-8", host.display())))
}

/// Why this file of the host cannot run in the guest, if so. Files that are no ELF files are the
/// guest's to judge: they may be scripts.
fn check_static(host: &Path) -> Result<Option<Failure>> {
    let file = std::fs::read(host).context(host.display())?;
    let cause = match Plan::parse(&file) {
        Ok(_) | Err(ElfError::NotElf) => return Ok(None),
        Err(ElfError::NeedsInterpreter { offset, size }) => {
            let name = file.get(offset as usize..(offset + size) as usize).unwrap_or(&[]);
            let name = String::from_utf8_lossy(name);
            format!("dynamic, it needs {name}, and only static programs run here so far")
        }
        Err(error) => error.to_string(),
    };
    Ok(Some(Failure::new(format!("{}: {cause}", host.display())).status(NOT_EXECUTABLE)))
}

/// Boots to the shell, or to a program, on our terminal.
fn run_on_terminal(job: &Job) -> Result<u8> {
    let mut job = job.clone();
    if let Ok(terminal) = std::env::var("TERM") {
        job.environment.push(format!("TERM={terminal}"));
    }
    let image = make_image(&job)?;
    let mut line = job.command_line();
    if job.program.is_some() {
        line.set("stdin", "terminal");
    }
    let (qemu, _gdb) = job.qemu(&image.path, &line)?;
    if let Network::User(forwards) = &job.machine.network {
        for (host, guest) in forwards {
            report::step(&format!("http://localhost:{host} is the guest's port {guest}"));
        }
    }
    report::step("booting; ctrl-A x ends it");
    let connections = Connections {
        console: Console::Terminal,
        error: Box::new(show_error),
        log: log_sink(),
        log_file: workspace::output().join("kernel.log"),
        limit: job.limit,
    };
    finish(guest::run(qemu, connections)?, &job)
}

/// Runs one program with our standard streams.
fn run_program(job: &Job) -> Result<u8> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return run_on_terminal(job);
    }
    run_streams(job, log_sink())
}

/// Runs one program with our standard streams raw; `log` gets the kernel's log.
fn run_streams(job: &Job, log: LineSink) -> Result<u8> {
    let image = make_image(job)?;
    let has_input = !is_null_input();
    let mut line = job.command_line();
    line.set("stdin", if has_input { "framed" } else { "none" });
    let (qemu, _gdb) = job.qemu(&image.path, &line)?;
    report::step("booting");
    let input: Option<Box<dyn Read + Send>> =
        if has_input { Some(Box::new(std::io::stdin())) } else { None };
    let connections = Connections {
        console: Console::Program(input, Box::new(show_output)),
        error: Box::new(show_error),
        log,
        log_file: workspace::output().join("kernel.log"),
        limit: job.limit,
    };
    finish(guest::run(qemu, connections)?, job)
}

/// What a program did that was run by [`capture`].
#[derive(Debug)]
pub struct Captured {
    /// Its exit status; 128 + n for signal n. Nothing if the time was up.
    pub status: Option<u8>,
    /// What it wrote to its standard output.
    pub output: Vec<u8>,
    /// What it wrote to its standard error.
    pub error: Vec<u8>,
    /// The kernel's log, line by line.
    pub log: Vec<String>,
}

/// Runs the job's program without our standard streams, for tests: `input` is its standard input,
/// `log_line` sees each line of the log as it comes. The image must have been made.
pub fn capture(
    job: &Job,
    image: &Path,
    input: Option<Vec<u8>>,
    log_line: impl FnMut(&str) + Send + 'static,
) -> Result<Captured> {
    let (output_sink, output) = guest::collector();
    let input = input.map(|bytes| Box::new(std::io::Cursor::new(bytes)) as Box<dyn Read + Send>);
    let captured = converse(job, image, input, output_sink, log_line)?;
    Ok(Captured { output: output.iter().flatten().collect(), ..captured })
}

/// As [`capture`], with a standard input that may answer what the program says: its output goes to
/// `output_sink` as it comes, and is not in what is answered.
pub fn converse(
    job: &Job,
    image: &Path,
    input: Option<Box<dyn Read + Send>>,
    output_sink: guest::ByteSink,
    mut log_line: impl FnMut(&str) + Send + 'static,
) -> Result<Captured> {
    let mut line = job.command_line();
    if job.program.is_some() {
        line.set("stdin", if input.is_some() { "framed" } else { "none" });
    }
    let qemu = job.machine.qemu(image, &line)?;
    let (error_sink, error) = guest::collector();
    let (log_sender, log) = std::sync::mpsc::channel();
    let connections = Connections {
        console: Console::Program(input, output_sink),
        error: error_sink,
        log: Box::new(move |text| {
            log_line(text);
            drop(log_sender.send(text.to_string()));
        }),
        log_file: workspace::output().join("test-kernel.log"),
        limit: job.limit,
    };
    let status = match guest::run(qemu, connections)? {
        End::Status(status) => Some(status),
        End::Quit | End::TimedOut => None,
    };
    Ok(Captured {
        status,
        output: Vec::new(),
        error: error.iter().flatten().collect(),
        log: log.iter().collect(),
    })
}

/// An image of its own for this process, which goes when this does.
pub struct TemporaryImage {
    /// Where it lies.
    pub path: PathBuf,
}

impl Drop for TemporaryImage {
    fn drop(&mut self) {
        // A file too many in the target directory harms nobody.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the image that a job needs.
pub fn make_image(job: &Job) -> Result<TemporaryImage> {
    leftovers::remove(&workspace::output());
    let name = format!("boot-{}.img", std::process::id());
    let image = TemporaryImage { path: workspace::output().join(name) };
    boot_image::make(&job.extras, job.leaves_out, &image.path)?;
    Ok(image)
}

fn finish(end: End, job: &Job) -> Result<u8> {
    match end {
        End::Status(status) => Ok(status),
        End::Quit => Ok(0),
        End::TimedOut => {
            let seconds = job.limit.unwrap_or_default().as_secs();
            let cause = format!("the guest was ended after {seconds} seconds");
            Err(Failure::new(cause).next("cat target/xok/kernel.log").status(TIMED_OUT))
        }
    }
}

/// Whether our standard input is certain to give nothing.
fn is_null_input() -> bool {
    !std::io::stdin().is_terminal()
        && std::fs::read_link("/proc/self/fd/0").is_ok_and(|path| path == Path::new("/dev/null"))
}

fn show_output(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    // Whoever reads us may have gone; the guest goes on, as a program would that ignores SIGPIPE.
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

fn show_error(bytes: &[u8]) {
    // Standard error is where the failure would be reported.
    let _ = std::io::stderr().lock().write_all(bytes);
}

/// What becomes of the log's lines, beside standing in its file.
fn log_sink() -> LineSink {
    let mut trace = Trace::new(&workspace::output().join("strace.txt"));
    Box::new(move |line| {
        if !trace.line(line) {
            show_boot_line(line);
        }
    })
}

/// Shows what the kernel says of itself at boot; the rest stays in the log's file.
fn show_boot_line(line: &str) {
    if line.starts_with("xok: ") && !line.starts_with("xok: end ") {
        // The terminal may be raw already, so that a line needs its carriage return.
        eprint!("{line}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> (Job, Option<Vec<String>>) {
        parse(words.iter().map(|word| word.to_string()).collect()).unwrap()
    }

    #[test]
    fn the_program_keeps_its_own_flags() {
        let (job, program) = parsed(&["--cpus", "2", "--", "ls", "--cpus", "-l"]);
        assert_eq!(job.machine.cpus, 2);
        assert_eq!(program.unwrap(), ["ls", "--cpus", "-l"]);
        let (_, program) = parsed(&["ls", "--", "-l"]);
        assert_eq!(program.unwrap(), ["ls", "--", "-l"]);
        assert_eq!(parsed(&["-p", "8081:80", "--"]).1, None);
    }

    #[test]
    fn dynamic_programs_are_refused_with_their_interpreter() {
        let host = std::env::current_exe().unwrap();
        let refusal = check_static(&host).unwrap().unwrap();
        assert_eq!(refusal.exit_status(), NOT_EXECUTABLE);
        assert!(refusal.to_string().contains("it needs /"), "{refusal}");
        assert!(check_static(Path::new("/etc/passwd")).unwrap().is_none());
    }

    #[test]
    fn the_command_line_carries_the_program() {
        let mut job = Job { environment: vec!["A=b c".into()], ..Job::default() };
        job.program = Some(("/bin/sh".into(), vec!["sh".into(), "-c".into(), "exit 3".into()]));
        let poison = if job.is_poisoned() { " poison=1" } else { "" };
        let expected = format!(
            "log=debugcon ip=10.0.2.15/24,10.0.2.2 env=A=b%20c{poison} run=/bin/sh arg=sh arg=-c \
             arg=exit%203"
        );
        assert_eq!(job.command_line().text(), expected);
    }
}
