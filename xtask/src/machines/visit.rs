//! One cell: the machine booted, and what a program finds on it compared with what was ordered.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::{Cell, Files, PROGRAM};
use crate::failure::{Context, Result};
use crate::machine::{Machine, Network};
use crate::run::{self, Captured, Job};
use crate::tally::Verdict;

/// How long a boot may take, with all that the program does.
const LIMIT: Duration = Duration::from_secs(180);
/// What the host says to whoever connects.
const WORD: &str = "word-of-the-host";
/// Of each so many MiB one may be the kernel's.
const KERNEL_SHARE: u64 = 32;
/// MiB that the kernel and the boot image may take whatever the memory.
const KERNEL_LEAST: u64 = 13;

/// Boots the cell; the remark is the memory that programs may have.
pub fn visit(cell: &Cell, files: &Files) -> Result<Verdict> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port of the host")?;
    let port = listener.local_addr().context("a port of the host")?.port();
    let job = job(cell, files, port);
    let captured = std::thread::scope(|scope| {
        scope.spawn(|| tell_word(&listener));
        let captured = run::capture(&job, &files.image.path, None, |_| {});
        // Frees the thread if the guest never came.
        drop(TcpStream::connect(("127.0.0.1", port)));
        captured
    })?;
    Ok(judge(cell, &captured))
}

fn job(cell: &Cell, files: &Files, port: u16) -> Job {
    let machine = Machine {
        kind: cell.machine.kind,
        firmware: cell.machine.firmware,
        cpus: cell.cpus,
        memory: format!("{}M", cell.memory),
        cpu: Some(cell.model.words.into()),
        network: if cell.network { Network::User(Vec::new()) } else { Network::None },
        rng: cell.rng,
        disk: cell.disk.then(|| files.disk.clone()),
        ..Machine::default()
    };
    let port = if cell.network { port } else { 0 };
    let program = Some((PROGRAM.into(), vec!["machine".into(), port.to_string()]));
    Job { machine, program, limit: Some(LIMIT), ..Job::default() }
}

fn tell_word(listener: &TcpListener) {
    if let Ok((mut stream, _)) = listener.accept() {
        // What does not arrive is missed in the guest's output.
        let _ = stream.write_all(WORD.as_bytes());
    }
}

/// Compares what the kernel and the program found with the cell.
fn judge(cell: &Cell, captured: &Captured) -> Verdict {
    let output = String::from_utf8_lossy(&captured.output);
    let fact = |name: &str| {
        output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or("")
    };
    let error = String::from_utf8_lossy(&captured.error);
    let said = || format!("{output}{error}{}", captured.log.join("\n"));
    if captured.status != Some(0) || !output.ends_with("end\n") {
        return Err(format!("ended with {:?}: {}", captured.status, said()));
    }

    let network = if cell.network { WORD } else { "" };
    let expected = [
        ("processors", cell.cpus.to_string()),
        ("ran-on", cell.cpus.to_string()),
        ("pages", "kept".into()),
        ("vectors", "kept".into()),
        ("random", "differs".into()),
        ("network", network.into()),
    ];
    for (name, value) in expected {
        if fact(name) != value {
            return Err(format!("{name}: {}, not {value}", fact(name)));
        }
    }
    let memory: u64 = fact("memory").parse().unwrap_or(0);
    let least = cell.memory - (cell.memory / KERNEL_SHARE + KERNEL_LEAST).min(cell.memory);
    if memory < least || memory > cell.memory {
        return Err(format!("memory: {memory}, not {least} to {} MiB", cell.memory));
    }

    let boot_line = captured.log.first().map_or("", String::as_str);
    let has = |part: &str| boot_line.split(", ").any(|found| found.starts_with(part));
    let seen = [
        (format!("{} MiB", cell.memory), true),
        ("xsave".into(), cell.model.has_xsave),
        ("fxsave".into(), !cell.model.has_xsave),
        ("net virtio".into(), cell.network),
    ];
    for (part, present) in seen {
        if has(&part) != present {
            return Err(format!("the kernel's `{part}`: not as ordered: {boot_line}"));
        }
    }
    Ok(memory.to_string())
}
