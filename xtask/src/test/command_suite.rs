//! What `cargo xtask run -- PROGRAM` promises: streams, statuses, and clear refusals.

mod sockets;
mod traces;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::chroot;
use crate::compile;
use crate::failure::{Context, Result};
use crate::linux_suite;
use crate::tally::{Tally, Test, Verdict};
use crate::workspace;

/// How long one program may take, boot included.
const LIMIT: Duration = Duration::from_secs(180);

const TESTS: [Test; 23] = [
    ("command/exit_status_is_the_programs", exit_status),
    ("command/signal_n_is_status_128_plus_n", signal_status),
    ("command/output_is_the_programs_alone", streams),
    ("command/input_passes_every_byte_and_ends", input),
    ("command/commands_in_a_pipe_reach_the_shell", commands),
    ("command/a_fresh_debians_shell_answers", fresh_shell),
    ("command/wrong_arguments_are_refused", wrong_arguments),
    ("command/arguments_pass_unchanged", arguments),
    ("command/extra_files_are_in_the_image", extra_files),
    ("command/dynamic_program_is_refused_by_name", dynamic_program),
    ("command/missing_program_is_status_127", missing_program),
    ("command/what_cannot_be_executed_is_said", not_executable),
    ("command/call_sites_are_rewritten_unless_forbidden", call_sites),
    ("command/trace_shows_a_programs_calls_in_order", traces::in_order),
    ("command/trace_tells_what_it_lost", traces::loss),
    ("command/call_sites_of_glibc_musl_and_go_are_rewritten", call_site_shares),
    ("command/xokstat_reads_without_calls", xokstat),
    ("command/wrong_words_in_the_guest_are_refused", wrong_words_in_the_guest),
    ("command/wget_fetches_from_the_host", sockets::client),
    ("command/nc_serves_a_forwarded_port", sockets::server),
    ("command/httpd_forks_for_each_connection", sockets::forking_server),
    ("command/the_guest_talks_to_itself", sockets::itself),
    ("command/a_shell_and_its_children_share_a_connection", sockets::shell),
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    tally.run(&TESTS);
    Ok(())
}

fn exit_status() -> Result<Verdict> {
    let output = xtask(&["run", "--", "busybox", "sh", "-c", "exit 7"], b"")?;
    Ok(expect("status", output.status.code(), Some(7)))
}

/// `ps`, `top`, `free` and a map, each as text from the published pages alone.
fn xokstat() -> Result<Verdict> {
    let expected =
        [("ps", "xokstat"), ("top", "idle: cpu0"), ("free", "for programs"), ("map", "K")];
    for (view, shown) in expected {
        let output = xtask(&["run", "--", "/xok/xokstat", view], b"")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !text.contains(shown) || !text.ends_with("(0 kernel calls while reading)\n") {
            return Ok(Err(format!("{view}: {text}")));
        }
    }
    Ok(Ok(String::new()))
}

/// `/xok/xokstat` and `/xok/enduser` refuse words that they would not use, and say so where errors
/// are read.
fn wrong_words_in_the_guest() -> Result<Verdict> {
    let cases: [(&[&str], i32, &str); 6] = [
        (&["/xok/xokstat"], 2, "usage: xokstat ps|top|free|map\n"),
        (&["/xok/xokstat", "nothing"], 2, "usage: xokstat ps|top|free|map\n"),
        (&["/xok/xokstat", "ps", "free"], 2, "usage: xokstat ps|top|free|map\n"),
        (&["/xok/enduser"], 2, "usage: enduser USER\n"),
        (&["/xok/enduser", "1001", "1002"], 2, "usage: enduser USER\n"),
        (&["/xok/enduser", "nosuch"], 1, "enduser: nosuch: no such user\n"),
    ];
    for (words, status, said) in cases {
        let output = xtask(&[&["run", "--"], words].concat(), b"")?;
        let error = String::from_utf8_lossy(&output.stderr);
        let right = output.status.code() == Some(status) && error.ends_with(said);
        if !right || !output.stdout.is_empty() {
            return Ok(Err(format!("{words:?}: {output:?}")));
        }
    }
    Ok(Ok(String::new()))
}

fn signal_status() -> Result<Verdict> {
    let output = xtask(&["run", "--", "busybox", "sh", "-c", "kill -TERM $$"], b"")?;
    Ok(expect("status", output.status.code(), Some(143)))
}

fn streams() -> Result<Verdict> {
    let script = "echo out; echo err >&2; printf 'a\\nb\\r\\n\\tc'";
    let output = xtask(&["run", "--", "busybox", "sh", "-c", script], b"")?;
    let error = String::from_utf8_lossy(&output.stderr);
    Ok(expect("output", output.stdout.as_slice(), b"out\na\nb\r\n\tc".as_slice()).and(expect(
        "standard error holds `err`",
        error.lines().any(|line| line == "err"),
        true,
    )))
}

fn input() -> Result<Verdict> {
    // Every byte, the escape and the terminal's own characters among them, past one buffer.
    let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let output = xtask(&["run", "--", "busybox", "cat"], &bytes)?;
    Ok(expect("status", output.status.code(), Some(0)).and(expect(
        "all bytes came back",
        output.stdout == bytes,
        true,
    )))
}

/// More of them than a serial line keeps.
fn commands() -> Result<Verdict> {
    let lines = 0..500;
    let input: String = lines.clone().map(|number| format!("echo line {number}\n")).collect();
    let output = xtask(&["run"], input.as_bytes())?;
    let expected: String = lines.map(|number| format!("line {number}\n")).collect();
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(expect("status", output.status.code(), Some(0)).and(expect(
        "output",
        text.as_ref(),
        expected.as_str(),
    )))
}

/// What `cargo xtask chroot` asks of a fresh Debian, asked of this one.
fn fresh_shell() -> Result<Verdict> {
    let mut command = Command::new(std::env::current_exe().context("our own program")?);
    command.args(["run", "--timeout", &LIMIT.as_secs().to_string()]);
    chroot::expect_shell(command)?;
    Ok(Ok(String::new()))
}

/// Before anything is built or booted, and with what is wrong about them.
fn wrong_arguments() -> Result<Verdict> {
    let cases: [(&[&str], &str); 20] = [
        (&["run", "--env", "NAME", "sh"], "--env NAME: not NAME=VALUE"),
        (&["run", "--env", "=x", "sh"], "--env =x: not NAME=VALUE"),
        (&["run", "--timeout", "0", "sh"], "--timeout 0: 1 to"),
        (&["run", "--cpus", "5", "sh"], "--cpus 5"),
        (&["run", "-p", "0:80", "sh"], "-p 0:80: not HOST:GUEST, two port numbers from 1 to"),
        (&["run", "--disk", "no-disk", "sh"], "--disk no-disk: no such file"),
        (&["run", "./apps"], "./apps: a directory"),
        (&["run", "--file", "Cargo.toml:etc", "sh"], "GUEST that begins with /, such as /etc"),
        (&["trace", "--records", "x", "--", "sh"], "--records x: not a number from 1"),
        (&["trace", "--records", "0", "--", "sh"], "--records 0: not a number from 1"),
        (&["mutate", "--only", "no-fault"], "--only no-fault: neither a fault's name nor a test's"),
        (&["soak", "--part", "all"], "--part all: no such part; there are model, noninterference"),
        (&["bench", "--list", "--all"], "bench: unknown argument --all"),
        (&["test", "--suite", "linux", "--place", "x1"], "--place x1: not for suite linux"),
        (&["listing", "Cargo.toml", "f"], "Cargo.toml: neither a C file (.c) nor clang's object"),
        (&["image", "--iso", "--line", "ip=10.0.2.15"], "ip=10.0.2.15: not ADDRESS/PREFIX"),
        (&["no-command"], "no-command: no such command"),
        (&["help", "no-command"], "no-command: no such command"),
        (&["help", "run", "x"], "help: unknown argument x"),
        (&["conformance", "x"], "conformance: unknown argument x"),
    ];
    let ourselves = std::env::current_exe().context("our own program")?;
    for (words, said) in cases {
        // What is refused boots nothing; the limit is for what is not.
        let limit = LIMIT.as_secs().to_string();
        let mut command = Command::new("timeout");
        command.arg(limit).arg(&ourselves).args(words).current_dir(workspace::root());
        let output = command.stdin(Stdio::null()).output().context("timeout")?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !text.contains(said) {
            return Ok(Err(format!("{words:?}: {:?}, {text}", output.status)));
        }
    }
    Ok(Ok(String::new()))
}

fn arguments() -> Result<Verdict> {
    let words = ["", "a b", "100%", "\"q\"", "ü\n", "k=v", "*"];
    let mut all = vec!["run", "--", "busybox", "printf", "<%s>"];
    all.extend(words);
    let output = xtask(&all, b"")?;
    let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    Ok(expect("output", String::from_utf8_lossy(&output.stdout).as_ref(), expected.as_str()))
}

fn extra_files() -> Result<Verdict> {
    let path = workspace::output().join("extra-file");
    std::fs::write(&path, "found\n").context(path.display())?;
    let file = format!("{}:/data/deep/file", path.display());
    let output = xtask(&["run", "--file", &file, "--", "busybox", "cat", "/data/deep/file"], b"")?;
    Ok(expect("output", output.stdout.as_slice(), b"found\n".as_slice()))
}

fn dynamic_program() -> Result<Verdict> {
    let ourselves = std::env::current_exe().context("our own program")?;
    let output = xtask(&["run", "--", &ourselves.to_string_lossy()], b"")?;
    let error = String::from_utf8_lossy(&output.stderr);
    Ok(expect("status", output.status.code(), Some(126)).and(expect(
        "the interpreter's name is said",
        error.contains("it needs /lib"),
        true,
    )))
}

fn missing_program() -> Result<Verdict> {
    let output = xtask(&["run", "--", "./no-such-program"], b"")?;
    Ok(expect("status", output.status.code(), Some(127)))
}

/// A file of the host's that is no program is the guest's to refuse, which says so.
fn not_executable() -> Result<Verdict> {
    let path = workspace::output().join("not-executable");
    std::fs::write(&path, "found\n").context(path.display())?;
    let output = xtask(&["run", "--", &path.to_string_lossy()], b"")?;
    let error = String::from_utf8_lossy(&output.stderr);
    Ok(expect("status", output.status.code(), Some(126)).and(expect(
        "why it cannot be run is said",
        error.contains("not-executable: cannot be run (EACCES)"),
        true,
    )))
}

/// A shell that makes thousands of calls, and then reads what became of its own call sites.
fn call_sites() -> Result<Verdict> {
    let script = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); : </dev/null; done
        while read l; do echo $l; done </proc/self/callsites";
    let rewritten = |switch: &str| -> Result<Option<u32>> {
        let words = ["run", "--env", switch, "--", "busybox", "sh", "-c", script];
        let output = String::from_utf8_lossy(&xtask(&words, b"")?.stdout).into_owned();
        let mut counts = output.lines().filter_map(|line| line.strip_prefix("rewritten "));
        Ok(counts.next().and_then(|count| count.parse().ok()))
    };
    let (allowed, forbidden) = (rewritten("XOK_REWRITE=1")?, rewritten("XOK_REWRITE=0")?);
    Ok(expect("sites rewritten when forbidden", forbidden, Some(0)).and(expect(
        "some are when allowed",
        allowed.is_some_and(|count| count > 0),
        true,
    )))
}

/// The same programs with two C libraries, and one of Go's: their calls answer rightly, and most
/// sites on the pages that are called from often become jumps. The remark is each one's share.
fn call_site_shares() -> Result<Verdict> {
    let glibc = ["-static", "-pthread"];
    let programs = [
        ("glibc", compile::directory("tests/linux/musl", "life-glibc", &glibc)?),
        ("musl", linux_suite::program("life")?),
        ("Go", linux_suite::program("servers")?),
    ];
    let mut shares = Vec::new();
    for (language, program) in programs {
        let output = xtask(&["run", "--", &program.to_string_lossy(), "sites"], b"")?;
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = |name: &str| -> Option<u32> {
            output.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let (Some(0), Some(rewritten), Some(kept)) =
            (count("wrong answers"), count("rewritten"), count("kept"))
        else {
            return Ok(Err(format!("{language}: {output}")));
        };
        if rewritten <= kept {
            return Ok(Err(format!("{language}: {rewritten} rewritten, {kept} kept")));
        }
        shares.push(format!("{language} {rewritten} of {}", rewritten + kept));
    }
    Ok(Ok(format!("({})", shares.join(", "))))
}

/// Runs ourselves with these words and this standard input, as somebody who types would.
pub fn xtask(words: &[&str], input: &[u8]) -> Result<Output> {
    let ourselves = std::env::current_exe().context("our own program")?;
    let mut command = Command::new(ourselves);
    command.arg(words[0]).args(["--timeout", &LIMIT.as_secs().to_string()]).args(&words[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("our own program")?;
    let mut pipe = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(pipe) = &mut pipe {
                // It may have ended before it read everything, or anything.
                let _ = pipe.write_all(input);
            }
        });
        child.wait_with_output().context("our own program")
    })
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Verdict {
    if found == expected {
        Ok(String::new())
    } else {
        Err(format!("{what}: {found:?}, not {expected:?}"))
    }
}
