//! `cargo xtask chroot`: does it work for somebody who has nothing but Debian and rustup?
//!
//! A fresh bookworm by debootstrap, with a C linker (which rustc itself needs), root's ~/.cargo and
//! ~/.rustup bound in, and a clone of the tree as it is committed. There `cargo xtask run` must
//! reach a shell that answers, and `cargo xtask test` must pass.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::failure::{Context, Failure, Result};
use crate::options::{self, Options};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// What the new Debian has beyond its base: what rustc needs to link, and how to fetch packages.
const INCLUDE: &str = "--include=ca-certificates,gcc,libc6-dev";
/// What the guest's shell is told: standard input is a pipe, so that it shows no prompt.
const QUESTION: &[u8] = b"echo reached $((6 * 7))\npoweroff\n";
/// What it says to that.
const ANSWER: &str = "reached 42";
/// How long the first run may take: it builds everything and fetches QEMU.
const ANSWER_LIMIT: Duration = Duration::from_secs(900);

/// How long the machine may take to end after `poweroff`.
const POWEROFF_LIMIT: Duration = Duration::from_secs(30);

/// `cargo xtask chroot [--keep] [--only-run]`
pub fn command(words: Vec<String>) -> Result<()> {
    let mut options = Options::new(words);
    let (mut keep, mut only_run) = (false, false);
    while let Some(word) = options.next() {
        match word.as_str() {
            "--keep" => keep = true,
            "--only-run" => only_run = true,
            _ => return Err(options::unknown("chroot", &word)),
        }
    }
    if !process::is_root() {
        let cause = "debootstrap and chroot need root";
        return Err(Failure::new(cause).next("sudo --preserve-env=HOME,PATH cargo xtask chroot"));
    }
    packages::require(&[packages::DEBOOTSTRAP])?;
    let mut chroot = Chroot::make(keep)?;
    chroot.bind()?;
    report::step("in the new Debian: cargo xtask run");
    expect_shell(chroot.cargo_xtask("run"))?;
    if !only_run {
        report::step("in the new Debian: cargo xtask test");
        let status = chroot.cargo_xtask("test").status().context("chroot")?;
        if !status.success() {
            return Err(Failure::new(format!("cargo xtask test in the new Debian: {status}")));
        }
    }
    report::step("the new Debian is content");
    Ok(())
}

/// A Debian tree with what is mounted in it; unmounted and removed at the end.
struct Chroot {
    root: PathBuf,
    mounts: Vec<PathBuf>,
    keep: bool,
}

impl Chroot {
    fn make(keep: bool) -> Result<Self> {
        let root = PathBuf::from(format!("/var/tmp/xok-chroot-{}", std::process::id()));
        std::fs::create_dir_all(&root).context(root.display())?;
        let chroot = Self { root, mounts: Vec::new(), keep };
        report::step(&format!("debootstrap into {}", chroot.root.display()));
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", INCLUDE, "bookworm"]).arg(&chroot.root);
        process::output(&mut debootstrap)?;
        report::step("cloning the tree");
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--no-hardlinks"]).arg(workspace::root());
        process::run(git.arg(chroot.root.join("root/xok")))?;
        // The network's own files: which names resolve, and whom to trust, is the host's business.
        for file in ["etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"] {
            let from = Path::new("/").join(file);
            if from.is_file() {
                let to = chroot.root.join(file);
                std::fs::copy(&from, &to).context(to.display())?;
            }
        }
        Ok(chroot)
    }

    fn bind(&mut self) -> Result<()> {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
        for name in [".cargo", ".rustup"] {
            self.mount(&["--bind"], &home.join(name), &format!("root/{name}"))?;
        }
        self.mount(&["-t", "proc"], Path::new("proc"), "proc")?;
        self.mount(&["-t", "sysfs"], Path::new("sysfs"), "sys")?;
        self.mount(&["--rbind"], Path::new("/dev"), "dev")
    }

    fn mount(&mut self, how: &[&str], what: &Path, to: &str) -> Result<()> {
        let to = self.root.join(to);
        std::fs::create_dir_all(&to).context(to.display())?;
        process::run(Command::new("mount").args(how).arg(what).arg(&to))?;
        // What is unmounted below it must stay mounted where it came from.
        process::run(Command::new("mount").arg("--make-rslave").arg(&to))?;
        self.mounts.push(to);
        Ok(())
    }

    /// Cargo's xtask inside, with an environment of its own.
    fn cargo_xtask(&self, command: &str) -> Command {
        let mut chroot = Command::new("chroot");
        chroot.arg(&self.root).args(["/usr/bin/env", "-i", "HOME=/root", "LANG=C.UTF-8"]);
        chroot.arg("PATH=/root/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        chroot.args(["sh", "-c", &format!("cd /root/xok && exec cargo xtask {command}")]);
        chroot
    }
}

/// Boots to the shell by `command`, and has it answer and end.
pub fn expect_shell(mut command: Command) -> Result<()> {
    // A group of its own, so that all of it can be ended.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("cargo xtask run")?;
    let seen = watch_for(child.stdout.take(), ANSWER);
    if let Some(mut stdin) = child.stdin.take() {
        // Had it ended already, then the status below says so.
        let _ = stdin.write_all(QUESTION);
    }
    let reached = seen.recv_timeout(ANSWER_LIMIT) == Ok(true);
    let end = Instant::now() + POWEROFF_LIMIT;
    while child.try_wait().context("cargo xtask run")?.is_none() {
        if Instant::now() > end {
            let group = format!("-{}", child.id());
            process::run(Command::new("kill").args(["-KILL", "--", &group]))?;
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = child.wait().context("cargo xtask run")?;
    if reached {
        report::step(&format!("the shell has answered; after poweroff: {status}"));
        return Ok(());
    }
    Err(Failure::new(format!("cargo xtask run: the shell did not answer, {status}")))
}

impl Drop for Chroot {
    fn drop(&mut self) {
        let mut all_unmounted = true;
        for mount in self.mounts.iter().rev() {
            let outcome = process::run(Command::new("umount").args(["--recursive"]).arg(mount));
            all_unmounted &= outcome.is_ok();
        }
        if self.keep || !all_unmounted {
            // Never remove a tree in which something of the host's is still mounted.
            eprintln!("left behind: {}", self.root.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.root) {
            eprintln!("{}: {error}", self.root.display());
        }
    }
}

/// Copies what comes to our stdout, and tells once whether `text` was in it.
fn watch_for(from: Option<impl Read + Send + 'static>, text: &'static str) -> mpsc::Receiver<bool> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let Some(mut from) = from else { return };
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        let mut found = false;
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            // Ours may be closed; the search goes on.
            let _ = std::io::stdout().write_all(&buffer[..length]);
            all.extend_from_slice(&buffer[..length]);
            if !found && all.windows(text.len()).any(|window| window == text.as_bytes()) {
                found = true;
                // The receiver may have given up.
                let _ = sender.send(true);
            }
        }
    });
    receiver
}
