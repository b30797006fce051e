//! A running guest: its console, its standard error, its log, and how it ended.
//!
//! ```text
//! COM1       console        our stdin and stdout, or pipes that are copied
//! port 0xea  standard error a socket, to the caller
//! port 0xe9  kernel's log   a socket: each line to the caller, all of it to a file
//! port 0xf4  the end        QEMU ends; the status stands in the log
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::failure::{Context, Failure, Result};
use crate::machine::{ERROR_PORT, LOG_PORT};
use crate::process;

/// The log's last line begins so; a number follows.
const END_MARK: &str = "xok: end status ";
/// How many of the log's last lines a failure shows.
const LOG_TAIL: usize = 12;
/// What stands before [`END_OF_INPUT`], and before itself to be itself: ASCII's data link escape.
const ESCAPE: u8 = 0x10;
/// Behind [`ESCAPE`]: the standard input has ended. ASCII's end of transmission.
const END_OF_INPUT: u8 = 0x04;

/// Gets a line of the log, without its end.
pub type LineSink = Box<dyn FnMut(&str) + Send>;
/// Gets bytes as they come.
pub type ByteSink = Box<dyn FnMut(&[u8]) + Send>;

/// What the console, COM1, is connected to.
pub enum Console {
    /// Our terminal, with QEMU's monitor behind ctrl-A.
    Terminal,
    /// A program's standard input (nothing, if it has none) and output.
    Program(Option<Box<dyn Read + Send>>, ByteSink),
}

/// Where everything that the guest says goes.
pub struct Connections {
    /// COM1.
    pub console: Console,
    /// The program's standard error.
    pub error: ByteSink,
    /// The kernel's log, by line.
    pub log: LineSink,
    /// The file that keeps the log.
    pub log_file: PathBuf,
    /// How long the guest may run.
    pub limit: Option<Duration>,
}

/// How a guest ended.
#[derive(Debug)]
pub enum End {
    /// The kernel's log says with which status.
    Status(u8),
    /// QEMU ended by itself without one: from its monitor, for example.
    Quit,
    /// It ran longer than it might.
    TimedOut,
}

/// Runs QEMU until it ends. A guest that ends without a status although nobody asked it to is a
/// failure that shows the end of the log.
pub fn run(mut qemu: Command, connections: Connections) -> Result<End> {
    let Connections { console, error, log, log_file, limit } = connections;
    let sockets = Sockets::new()?;
    // Input begins with the log: what comes before the kernel has set the line up may be lost.
    let (begun, begin) = mpsc::channel();
    let mut log = log;
    let log: LineSink = Box::new(move |line| {
        // The receiver goes after the first one.
        let _ = begun.send(());
        log(line);
    });
    let log_thread = sockets.serve("log", move |stream| read_log(stream, log, &log_file))?;
    let error_thread = sockets.serve("error", move |stream| copy_bytes(stream, error))?;
    attach(&mut qemu, &sockets, LOG_PORT, "log");
    attach(&mut qemu, &sockets, ERROR_PORT, "error");

    let interactive = matches!(console, Console::Terminal);
    let (mut child, output_thread) = start(qemu, console, begin)?;
    let (status, timed_out) = wait(&mut child, limit)?;
    // Had QEMU died before it connected, then the threads would wait for ever.
    sockets.release();
    let log = join(log_thread)??;
    join(error_thread)??;
    if let Some(thread) = output_thread {
        join(thread)??;
    }

    if let Some(status) = log.status {
        return Ok(End::Status(status));
    }
    if timed_out {
        return Ok(End::TimedOut);
    }
    if interactive && status.success() {
        return Ok(End::Quit);
    }
    if log.tail.is_empty() {
        // A port that is taken, a file that is none: QEMU has said so itself.
        return Err(Failure::new(format!("QEMU did not start the guest ({status}): see above"))
            .next("another port, such as -p 8081:80, if QEMU says that one could not be set up"));
    }
    let said = log.tail.join("\n");
    Err(Failure::new(format!("the guest ended without a status ({status}); its log ends:\n{said}")))
}

/// Starts QEMU with COM1 connected.
fn start(
    mut qemu: Command,
    console: Console,
    begin: mpsc::Receiver<()>,
) -> Result<(Child, Option<JoinHandle<Result<()>>>)> {
    let shown = process::show(&qemu);
    let cannot = || format!("{shown}: could not start");
    match console {
        Console::Terminal => {
            qemu.args(["-serial", "mon:stdio"]);
            Ok((qemu.spawn().context(cannot())?, None))
        }
        Console::Program(input, sink) => {
            qemu.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
            let mut child =
                qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context(cannot())?;
            if let (Some(input), Some(pipe)) = (input, child.stdin.take()) {
                // Nobody waits for this thread: it may sit in a read of our own input.
                std::thread::spawn(move || begin.recv().map(|()| send_input(input, pipe)));
            }
            let stdout = child.stdout.take();
            let copy = move || stdout.map_or(Ok(()), |stdout| copy_bytes(stdout, sink));
            Ok((child, Some(std::thread::spawn(copy))))
        }
    }
}

fn wait(child: &mut Child, limit: Option<Duration>) -> Result<(ExitStatus, bool)> {
    let begin = Instant::now();
    let mut timed_out = false;
    loop {
        if let Some(status) = child.try_wait().context("waiting for QEMU")? {
            return Ok((status, timed_out));
        }
        if limit.is_some_and(|limit| begin.elapsed() > limit) && !timed_out {
            timed_out = true;
            child.kill().context("ending QEMU")?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Copies standard input, escaped so that its end can be told.
fn send_input(mut input: impl Read, mut pipe: impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let length = input.read(&mut buffer)?;
        if length == 0 {
            pipe.write_all(&[ESCAPE, END_OF_INPUT])?;
            pipe.flush()?;
            // The pipe stays open: QEMU keeps the console.
            std::mem::forget(pipe);
            return Ok(());
        }
        pipe.write_all(&escape(&buffer[..length]))?;
        pipe.flush()?;
    }
}

fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if byte == ESCAPE {
            escaped.push(ESCAPE);
        }
        escaped.push(byte);
    }
    escaped
}

fn copy_bytes(mut from: impl Read, mut sink: ByteSink) -> Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => sink(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error).context("reading from the guest"),
        }
    }
}

/// What is left of the log when the guest has ended.
struct Log {
    status: Option<u8>,
    tail: Vec<String>,
}

fn read_log(stream: UnixStream, mut sink: LineSink, path: &Path) -> Result<Log> {
    let mut file = File::create(path).context(path.display())?;
    let mut log = Log { status: None, tail: Vec::new() };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(reader.read_until(b'\n', &mut line), Ok(length) if length > 0) {
            return Ok(log);
        }
        file.write_all(&line).context(path.display())?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if let Some(status) = text.strip_prefix(END_MARK) {
            log.status = status.trim().parse().ok();
        }
        if log.tail.len() == LOG_TAIL {
            log.tail.remove(0);
        }
        log.tail.push(text.to_string());
        sink(text);
    }
}

/// Adds a debugcon port that is connected to one of our sockets.
fn attach(qemu: &mut Command, sockets: &Sockets, port: u16, name: &str) {
    let path = sockets.path(name);
    qemu.args(["-chardev", &format!("socket,id={name},path={}", path.display())]);
    // Reading the port answers its own number, by which the kernel knows that it is there.
    let device = format!("isa-debugcon,iobase={port:#x},readback={port:#x},chardev={name}");
    qemu.args(["-device", &device]);
}

/// Sockets in a directory of their own, which goes when this does.
struct Sockets {
    directory: PathBuf,
}

impl Sockets {
    fn new() -> Result<Self> {
        // Not in the target directory: a socket's path has 107 bytes at most (unix(7)).
        let mut number = 0;
        loop {
            let name = format!("xok-{}-{number}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            match std::fs::create_dir(&directory) {
                Ok(()) => return Ok(Self { directory }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error).context(directory.display()),
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Listens, and hands the first connection to `work` on a thread of its own.
    fn serve<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(UnixStream) -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let path = self.path(name);
        let listener = UnixListener::bind(&path).context(path.display())?;
        Ok(std::thread::spawn(move || {
            let (stream, _) = listener.accept().context(path.display())?;
            work(stream)
        }))
    }

    /// Connects once to each socket on which nobody else has.
    fn release(&self) {
        for name in ["log", "error"] {
            drop(UnixStream::connect(self.path(name)));
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // What is left in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn join<T>(thread: JoinHandle<T>) -> Result<T> {
    thread.join().map_err(|_| Failure::new("a thread that reads from the guest panicked"))
}

/// A sink that collects, and what it has collected once it is gone.
pub fn collector() -> (ByteSink, mpsc::Receiver<Vec<u8>>) {
    let (sender, receiver) = mpsc::channel();
    // The receiver outlives the guest, or nobody wants the rest.
    (Box::new(move |bytes| drop(sender.send(bytes.to_vec()))), receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_escaped_and_ended() {
        assert_eq!(escape(b"a\x10\x04b"), b"a\x10\x10\x04b");
        let mut sent = Vec::new();
        send_input(&b"x\x10"[..], &mut sent).unwrap();
        assert_eq!(sent, b"x\x10\x10\x10\x04");
    }

    #[test]
    fn the_log_is_kept_and_its_status_found() {
        let directory = std::env::temp_dir().join(format!("xok-log-{}", std::process::id()));
        let (ours, mut guests) = UnixStream::pair().unwrap();
        guests.write_all(b"boot\nxok: end status 130\n").unwrap();
        drop(guests);
        let (sender, lines) = mpsc::channel();
        let sink: LineSink = Box::new(move |line| sender.send(line.to_string()).unwrap());
        let log = read_log(ours, sink, &directory).unwrap();
        assert_eq!(log.status, Some(130));
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["boot", "xok: end status 130"]);
        assert_eq!(std::fs::read(&directory).unwrap(), b"boot\nxok: end status 130\n");
        std::fs::remove_file(&directory).unwrap();
    }
}
