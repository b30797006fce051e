//! A scripted gdb: stops in the kernel and in one environment by name, reads variables, goes.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::tally::Verdict;
use crate::workspace;

/// What is linked with the program.
const LIBRARY: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev");
/// Seconds that the machine runs at most; gdb ends with it.
const LIMIT_SECONDS: &str = "120";
/// A function of the kernel's that each of its calls enters.
const KERNEL_FUNCTION: &str = "kernel::run::leave";
/// The program once more, under a name that the image does not have.
const COPY: &str = "/tmp/copy";
/// What the program ends with: gdb has let it go on.
const STATUS: i32 = 42;

/// The whole session.
pub fn session() -> Result<Verdict> {
    packages::require(&[packages::GDB, ("gcc", "gcc")])?;
    packages::require_file(LIBRARY)?;
    let subject = compile()?;
    let ourselves = std::env::current_exe().context("our own program")?;
    let mut command = Command::new(ourselves);
    let name = subject.display();
    let script = format!("{name}; cp {name} {COPY} && exec {COPY}");
    command.args(["run", "--timeout", LIMIT_SECONDS, "--cpus", "2", "--gdb", "--file"]);
    command.arg(&subject).args(["--", "busybox", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut machine = command.spawn().context("our own program")?;
    let said = machine.stderr.take().ok_or_else(|| Failure::new("no standard error"))?;
    let mut said = BufReader::new(said);
    let outcome = script_named_in(&mut said).and_then(|script| {
        server_listens(&script)?;
        run_gdb(&script, &subject)
    });
    if outcome.is_err() {
        // It is gone already, or goes now.
        let _ = machine.kill();
    }
    // What else it says must not fill the pipe.
    let _ = said.read_to_end(&mut Vec::new());
    let status = machine.wait().context("our own program")?;
    let output = outcome?;
    Ok(judge(&output).and_then(|remark| match status.code() {
        Some(STATUS) => Ok(remark),
        other => Err(format!("the program ended with {other:?}, not {STATUS}: {output}")),
    }))
}

fn compile() -> Result<PathBuf> {
    let program = super::directory("gdb-subject")?.join("subject");
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O0", "-static", "-o"]).arg(&program);
    process::output(gcc.arg(workspace::root().join("tests/gdb/subject.c")))?;
    Ok(program)
}

/// The script that the command says gdb is to be given.
fn script_named_in(said: &mut impl BufRead) -> Result<PathBuf> {
    let mut line = String::new();
    while said.read_line(&mut line).context("our own program")? > 0 {
        if let Some((_, script)) = line.split_once("gdb -x ") {
            return Ok(PathBuf::from(script.trim()));
        }
        line.clear();
    }
    Err(Failure::new("no command line for gdb was said"))
}

/// gdb may be started as soon as it is said how: its script names a socket that is there.
fn server_listens(script: &Path) -> Result<()> {
    let text = std::fs::read_to_string(script).context(script.display())?;
    let socket = text.lines().find_map(|line| line.strip_prefix("target remote "));
    match socket {
        Some(socket) if Path::new(socket).exists() => Ok(()),
        other => Err(Failure::new(format!("gdb was asked for without a server: {other:?}"))),
    }
}

fn run_gdb(script: &Path, subject: &Path) -> Result<String> {
    let until = format!("xok-until {}", subject.display());
    let unknown = format!("xok-until {COPY}");
    let copy = format!("{unknown} {}", subject.display());
    let kernel = format!("break {KERNEL_FUNCTION}");
    let orders = [
        kernel.as_str(),
        "continue",
        "backtrace 1",
        "delete",
        &until,
        "xok-break $env no_such_function",
        "xok-break 4095 answer",
        "xok-break $env answer",
        "continue",
        "print question",
        "print counter",
        "xok-envs",
        "delete",
        &unknown,
        &copy,
        "info symbol $pc",
        "detach",
    ];
    let mut gdb = Command::new(packages::GDB.0);
    gdb.args(["-batch", "-nx", "-x"]).arg(script);
    for order in orders {
        gdb.args(["-ex", order]);
    }
    let output = gdb.stdin(Stdio::null()).output().context("gdb")?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// What must have been said.
fn judge(output: &str) -> Verdict {
    let expected = [
        &format!("Breakpoint 1, {KERNEL_FUNCTION}"),
        "/tmp/copy: which file of the host is it? xok-until /tmp/copy FILE",
        "symbols of ",
        "_start in section .text",
        "no function no_such_function in ",
        "no environment 4095",
        "answer (question=21)",
        // Of the child, which called the same function before, nothing is seen.
        "$1 = 21",
        "$2 = 7",
        "running",
    ];
    match expected.iter().find(|text| !output.contains(**text)) {
        Some(missing) => Err(format!("gdb has not said `{missing}`: {output}")),
        None if output.contains("question=1000") => Err(format!("stopped elsewhere: {output}")),
        None => Ok(String::new()),
    }
}
