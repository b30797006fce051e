//! `cargo xtask soak`: random calls, threads and loads for as long as one likes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::build;
use crate::failure::{Context, Failure, Result};
use crate::machine::{Kind, Machine};
use crate::options::{self, Options};
use crate::report;
use crate::run::{self, Job};

/// How long the guest makes random calls in one boot, in seconds.
const GUEST_SECONDS: u64 = 60;
/// How many random programs are run interpreted and compiled.
const CODE_PROGRAMS: u64 = 1_000_000;
/// How long each cell of the web servers' load takes, in seconds.
const LOAD_SECONDS: u64 = 4;
/// What a boot with such calls may take longer than they do.
const GUEST_MARGIN: Duration = Duration::from_secs(120);

/// `cargo xtask soak [--minutes N] [--seed N]`; answers the exit status. Each round takes the seed
/// that follows the one before, so that a failure is repeated by its own.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let mut minutes = 10;
    let mut seed: u64 = 1;
    while let Some(word) = options.next() {
        match word.as_str() {
            "--minutes" => minutes = options.number("--minutes")?,
            "--seed" => seed = options.number("--seed")?,
            _ => return Err(options::unknown("soak", &word)),
        }
    }
    build::build()?;
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut rounds = 0;
    loop {
        report::step(&format!("seed {seed}"));
        let again = format!("cargo xtask soak --minutes 0 --seed {seed}");
        model(seed).map_err(|failure| Failure::new(failure.to_string()).next(&again))?;
        code(seed).map_err(|failure| Failure::new(failure.to_string()).next(&again))?;
        guest(seed).map_err(|failure| Failure::new(failure.to_string()).next(&again))?;
        threads().map_err(|failure| Failure::new(failure.to_string()).next(&again))?;
        load(seed).map_err(|failure| Failure::new(failure.to_string()).next(&again))?;
        rounds += 1;
        seed += 1;
        if Instant::now() >= end {
            println!("{rounds} rounds passed");
            return Ok(0);
        }
    }
}

/// The model test of kernel-core, in release form, with this seed.
fn model(seed: u64) -> Result<()> {
    report::step("model test on the host");
    let mut cargo = build::cargo();
    cargo.args(["test", "--quiet", "--release", "--package", "kernel-core", "model"]);
    cargo.env("XOK_SEED", seed.to_string());
    let output = cargo.stdin(Stdio::null()).output().context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // No test of that name is a failure too: then nothing was tried.
    let ran = text.lines().any(|line| {
        line.starts_with("test result: ok.") && !line.starts_with("test result: ok. 0 passed")
    });
    if output.status.success() && ran {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("model test, seed {seed}:\n{text}{error}")))
}

/// The differential test of downloaded code, with this seed: ten times as many programs as `test`.
fn code(seed: u64) -> Result<()> {
    report::step("downloaded code on the host");
    let mut cargo = build::cargo();
    cargo.args(["test", "--quiet", "--release", "--package", "code", "--test", "suite"]);
    cargo.args(["interpreter_and_compiled_code_agree", "--", "--nocapture"]);
    cargo.env("XOK_SEED", seed.to_string()).env("XOK_PROGRAMS", CODE_PROGRAMS.to_string());
    let output = cargo.stdin(Stdio::null()).output().context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && text.contains("1 passed") {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("downloaded code, seed {seed}:\n{text}{error}")))
}

/// The torture of sixty-four threads, for a minute on two processors: it says what it says here.
fn threads() -> Result<()> {
    report::step("sixty-four threads in the guest");
    let program = crate::linux_suite::program("thread_torture")?;
    let here = Command::new(&program).output().context(program.display())?;
    let ourselves = std::env::current_exe().context("our own program")?;
    let (seconds, limit) = (GUEST_SECONDS.to_string(), GUEST_SECONDS + GUEST_MARGIN.as_secs());
    let there = Command::new(ourselves)
        .args(["run", "--cpus", "2", "--timeout", &limit.to_string(), "--"])
        .args([program.as_os_str(), seconds.as_ref()])
        .stdin(Stdio::null())
        .output()
        .context("our own program")?;
    if here.stdout == there.stdout {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&there.stdout).into_owned();
    Err(Failure::new(format!("{}:\n{text}", program.display())))
}

/// Web servers under load beside programs that compute, a minute or so in all.
fn load(seed: u64) -> Result<()> {
    report::step("web servers under load");
    crate::test::load_for_long(seed as usize, LOAD_SECONDS)
}

/// Random native calls in the guest, two processors, with this seed.
fn guest(seed: u64) -> Result<()> {
    let kind = if seed.is_multiple_of(2) { Kind::Q35 } else { Kind::Microvm };
    report::step(&format!("random calls in the guest, {}", kind.name()));
    let settings = [
        ("init", crate::test::GUEST_TESTS.to_string()),
        ("only", "wild".to_string()),
        ("fuzz-seconds", GUEST_SECONDS.to_string()),
        ("fuzz-seed", seed.to_string()),
    ];
    let job = Job {
        machine: Machine { kind, cpus: 2, ..Machine::default() },
        settings: settings.map(|(key, value)| (key.to_string(), value)).to_vec(),
        limit: Some(Duration::from_secs(GUEST_SECONDS) + GUEST_MARGIN),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    if captured.status == Some(0) {
        return Ok(());
    }
    let status = captured.status;
    let log = captured.log.join("\n");
    Err(Failure::new(format!("guest, seed {seed}: status {status:?}; its log:\n{log}")))
}
