//! The same `ls -l` of the same files, traced by Debian's strace and by ours.
//!
//! The same calls in the same order, with the same arguments and results, but for the exceptions in
//! `tests/strace`.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::boot_image;
use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::tally::Verdict;
use crate::test::command_suite::xtask;
use crate::workspace;

/// Where the exceptions stand.
const EXCEPTIONS: &str = "tests/strace/ls.exceptions";
/// What is traced, from argv[0] on. Directories have one entry each: the order of several is the
/// file system's business.
const COMMAND: [&str; 8] = [
    "busybox",
    "ls",
    "-l",
    "/shown/directory",
    "/shown/links",
    "/shown/text",
    "/missing",
    "/shown/run",
];
/// The variables that the first program has in the guest, so that the host's has as many.
const VARIABLES: [&str; 7] = [
    "PATH=/bin:/sbin:/usr/bin:/usr/sbin",
    "HOME=/root",
    "USER=root",
    "LOGNAME=root",
    "SHELL=/bin/sh",
    "TERM=linux",
    "XOK_STRACE=1",
];
/// Both are shown where they differ: so many lines before.
const BEFORE: usize = 3;

/// Compares the traces.
pub fn of_ls() -> Result<Verdict> {
    packages::require(&[packages::STRACE])?;
    let root = super::directory("strace-root")?;
    prepare(&root)?;
    let linux = on_linux(&root)?;
    let ours = in_the_guest(&root)?;
    let path = workspace::root().join(EXCEPTIONS);
    let text = std::fs::read_to_string(&path).context(path.display())?;
    let exceptions = exceptions(&text)?;
    Ok(compare(&linux, &ours, &exceptions))
}

/// A trace of a shell, asked for by a program in the guest: children, signals, ends.
pub fn of_a_shell() -> Result<Verdict> {
    // The second one is waited for before it ends.
    let script = "cat /etc/hosts | wc -l; (sleep 0.2; exit 3); kill -TERM $$";
    let outer = format!("strace sh -c '{script}'; echo $?");
    let output = xtask(&["run", "--", "busybox", "sh", "-c", &outer], b"")?;
    let path = workspace::output().join("strace.txt");
    let trace = std::fs::read_to_string(&path).context(path.display())?;
    let expected = [
        "execve(\"/proc/self/exe\", [\"sh\", \"-c\", ",
        "<... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 3}]",
        "] +++ exited with 0 +++",
        "] +++ exited with 3 +++",
        "SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=",
        "si_status=3, ",
        ", SIGTERM) ",
        "--- SIGTERM {si_signo=SIGTERM, si_code=SI_USER, si_pid=",
    ];
    let missing = expected.iter().find(|text| !trace.contains(**text));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(match missing {
        Some(missing) => Err(format!("no `{missing}` in {trace}")),
        None if !trace.ends_with("+++ killed by SIGTERM +++\n") => Err(format!("ends: {trace}")),
        // The program's output is its own.
        None if said.lines().last() != Some("143") => Err(format!("its output: {said}")),
        None => Ok(format!("{} lines", trace.lines().count())),
    })
}

/// A root directory with busybox and what it reads, and some files to be listed.
fn prepare(root: &Path) -> Result<()> {
    let make = |path: &str| std::fs::create_dir_all(root.join(path)).context(path);
    for path in ["bin", "etc", "proc/self", "shown/directory", "shown/links"] {
        make(path)?;
    }
    let copy = |from: &Path, to: &str| std::fs::copy(from, root.join(to)).context(to).map(drop);
    copy(&boot_image::busybox()?, "bin/busybox")?;
    for name in ["passwd", "group"] {
        let from = workspace::root().join("xtask/root/etc").join(name);
        copy(&from, &format!("etc/{name}"))?;
    }
    // There is no /proc below this root; the one name that is read of it is.
    symlink("/bin/busybox", root.join("proc/self/exe")).context("proc/self/exe")?;
    symlink("../text", root.join("shown/links/link")).context("link")?;
    for (path, mode) in
        [("shown/text", 0o644), ("shown/directory/file", 0o600), ("shown/run", 0o755)]
    {
        let file = root.join(path);
        std::fs::write(&file, path).context(path)?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).context(path)?;
    }
    // Times are to be the same on both sides, and far enough back that the year is shown.
    let shown = root.join("shown");
    let mut touch = Command::new("find");
    touch.arg(&shown).args(["-exec", "touch", "-h", "-d", "2020-02-02 UTC", "{}", "+"]);
    process::output(&mut touch).map(drop)
}

/// Debian's strace of the command below the root.
fn on_linux(root: &Path) -> Result<Vec<String>> {
    let out = workspace::output().join("strace-linux.txt");
    let mut strace = Command::new(packages::STRACE.0);
    strace.env_clear().envs(VARIABLES.iter().filter_map(|variable| variable.split_once('=')));
    strace.arg("-o").arg(&out);
    if process::is_root() {
        strace.arg("/usr/sbin/chroot");
    } else {
        strace.args(["/usr/bin/unshare", "--map-root-user", "--root"]);
    }
    strace.arg(root).args(COMMAND).stdin(Stdio::null());
    // Its status is that of `ls`, which misses a file.
    let output = strace.output().context("strace")?;
    let text = std::fs::read_to_string(&out).context(out.display())?;
    // What changed the root comes first.
    let begins = |line: &&str| line.starts_with("execve(\"/bin/busybox\"");
    let start = text.lines().position(|line| begins(&line)).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        Failure::new(format!("strace: no busybox in its trace: {}", said.trim_end()))
    })?;
    Ok(text.lines().skip(start).map(normal).collect())
}

/// Our trace of the same.
fn in_the_guest(root: &Path) -> Result<Vec<String>> {
    let shown = format!("{}:/shown", root.join("shown").display());
    let mut words = vec!["run", "--strace", "--file", &shown, "--"];
    words.extend(COMMAND);
    let output = xtask(&words, b"")?;
    let path = workspace::output().join("strace.txt");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        Failure::new(format!("{}: {error}; {}", path.display(), said.trim_end()))
    })?;
    Ok(text.lines().map(normal).collect())
}

/// A line without what differs from run to run: addresses, identifiers, random bytes; and without
/// what is the file system's alone: the sizes of directories, the blocks of files.
fn normal(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("0x") {
        let (before, number) = rest.split_at(at);
        let digits = number[2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        text.push_str(before);
        text.push_str(if digits >= 4 { "ADDRESS" } else { &number[..2 + digits] });
        rest = &number[2 + digits..];
    }
    text.push_str(rest);
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = replaced(&text, "set_tid_address(ADDRESS) = ", "", "PID");
    let text = replaced(&text, "getrandom(\"", "\"", "RANDOM");
    let text = replaced(&text, "\"total ", "\\n", "N");
    replaced(&text, "{st_mode=S_IFDIR|0755, st_size=", ",", "N")
}

/// What stands between `before` and the next `behind` (the end, if empty) replaced by `by`.
fn replaced(text: &str, before: &str, behind: &str, by: &str) -> String {
    let Some(at) = text.find(before) else { return text.to_string() };
    let (head, tail) = text.split_at(at + before.len());
    let end = if behind.is_empty() { tail.len() } else { tail.find(behind).unwrap_or(0) };
    format!("{head}{by}{}", &tail[end..])
}

/// A call whose result may differ, and why.
struct Exception {
    call: String,
}

/// Reads `CALL: reason` lines.
fn exceptions(text: &str) -> Result<Vec<Exception>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| match line.split_once(": ") {
        Some((call, reason)) if !reason.trim().is_empty() => Ok(Exception { call: call.into() }),
        _ => Err(Failure::new(format!("{EXCEPTIONS}: not `CALL: reason`: {line}"))),
    };
    lines.map(parse).collect()
}

/// The name of a line's call.
fn call_of(line: &str) -> &str {
    line.split('(').next().unwrap_or(line)
}

/// A line without its result, if that may differ.
fn compared<'a>(line: &'a str, exceptions: &[Exception], used: &mut BTreeSet<String>) -> &'a str {
    let excepted = exceptions.iter().find(|exception| exception.call == call_of(line));
    match (excepted, line.rsplit_once(" = ")) {
        (Some(exception), Some((call, _))) => {
            used.insert(exception.call.clone());
            call
        }
        _ => line,
    }
}

/// The first line that differs, or how many were compared.
fn compare(linux: &[String], ours: &[String], exceptions: &[Exception]) -> Verdict {
    let mut used = BTreeSet::new();
    for at in 0..linux.len().max(ours.len()) {
        let missing = String::from("(nothing)");
        let theirs = linux.get(at).unwrap_or(&missing);
        let own = ours.get(at).unwrap_or(&missing);
        if compared(theirs, exceptions, &mut used) != compared(own, exceptions, &mut used) {
            let context =
                linux[at.saturating_sub(BEFORE).min(linux.len())..at.min(linux.len())].join("; ");
            return Err(format!("after {context}: Linux has {theirs}; here it is {own}"));
        }
    }
    match exceptions.iter().find(|exception| !used.contains(&exception.call)) {
        Some(exception) => Err(format!("no {} is traced: its exception must go", exception.call)),
        None => Ok(format!("{} calls", linux.len() - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_passed_over() {
        assert_eq!(normal("brk(NULL)      = 0x5ec000"), "brk(NULL) = ADDRESS");
        assert_eq!(normal("set_tid_address(0x5ec690)  = 17"), "set_tid_address(ADDRESS) = PID");
        let random = normal(r#"getrandom("\x1f\x18", 8, GRND_NONBLOCK) = 8"#);
        assert_eq!(random, r#"getrandom("RANDOM", 8, GRND_NONBLOCK) = 8"#);
        assert_eq!(normal("ioctl(0, 0x1) = 0"), "ioctl(0, 0x1) = 0");
    }

    #[test]
    fn differences_and_stale_exceptions_are_told() {
        let lines = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<Vec<_>>();
        let linux = lines(&["rseq(1) = 0", "getuid() = 0", "+++ exited with 0 +++"]);
        let ours = lines(&["rseq(1) = -1 ENOSYS", "getuid() = 0", "+++ exited with 0 +++"]);
        let excepted = exceptions("# note\nrseq: there are none\n").unwrap();
        assert_eq!(compare(&linux, &ours, &excepted), Ok("2 calls".into()));
        assert!(compare(&linux, &ours, &[]).is_err());
        assert!(compare(&linux, &ours[..2], &excepted).is_err());
        let stale = exceptions("rseq: there are none\nbrk: why not\n").unwrap();
        assert!(compare(&linux, &ours, &stale).is_err());
        assert!(exceptions("rseq\n").is_err());
    }
}
