//! `cargo xtask soak`: random calls, threads and loads for as long as one likes.
//!
//! ```text
//!  part     what a round of it is                          sized by
//!  model    the model test of kernel-core, on the host     --steps
//!  noninterference
//!           an attacker's calls beside a victim, there     --steps
//!  code     downloaded code, interpreted and compiled      --programs
//!  fuzz     the same and rbpf, inputs chosen by coverage   --inputs
//!  words    calls with any words, in the core on the host  --calls
//!  calls    one boot of random native calls, two cpus      --seconds
//!  threads  the torture of sixty-four threads              --seconds
//!  hostile  attackers beside victims, 1, 2 or 4 cpus       --seconds
//!  set-id   hostile callers of a set-id program            --callers
//!  load     web servers beside programs that compute
//!  miri     the tests of kernel-core, interpreted; only if it is named
//! ```

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::build;
use crate::failure::{Context, Failure, Result};
use crate::machine::{Kind, Machine};
use crate::options::{self, Options};
use crate::process;
use crate::report;
use crate::run::{self, Job};
use crate::workspace;

mod miri;

/// How long each cell of the web servers' load takes, in seconds.
const LOAD_SECONDS: u64 = 4;
/// What a boot with random calls or threads may take longer than they do.
const GUEST_MARGIN: Duration = Duration::from_secs(120);

/// What a round consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Model,
    Noninterference,
    Code,
    Fuzz,
    Words,
    Calls,
    Threads,
    Hostile,
    SetId,
    Load,
    Miri,
}

impl Part {
    /// All that need nothing but what builds the system.
    const USUAL: [Self; 10] = [
        Self::Model,
        Self::Noninterference,
        Self::Code,
        Self::Fuzz,
        Self::Words,
        Self::Calls,
        Self::Threads,
        Self::Hostile,
        Self::SetId,
        Self::Load,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Noninterference => "noninterference",
            Self::Code => "code",
            Self::Fuzz => "fuzz",
            Self::Words => "words",
            Self::Calls => "calls",
            Self::Threads => "threads",
            Self::Hostile => "hostile",
            Self::SetId => "set-id",
            Self::Load => "load",
            Self::Miri => "miri",
        }
    }

    /// Does it boot the system?
    fn boots(self) -> bool {
        matches!(self, Self::Calls | Self::Threads | Self::Hostile | Self::SetId | Self::Load)
    }

    fn of_name(name: &str) -> Result<Self> {
        let all = Self::USUAL.into_iter().chain([Self::Miri]);
        let found = all.clone().find(|part| part.name() == name);
        found.ok_or_else(|| {
            let names = all.map(Self::name).collect::<Vec<_>>().join(", ");
            Failure::new(format!("--part {name}: no such part; there are {names}"))
        })
    }
}

/// How much each part does in a round.
#[derive(Debug)]
struct Sizes {
    /// Steps of the model; calls of the attacker's.
    steps: u64,
    /// Random programs that are run interpreted and compiled: in a round ten times as many as
    /// `test` runs.
    programs: u64,
    /// Inputs for the verifier, and for all that run what it accepts.
    inputs: u64,
    /// Calls with any words.
    calls: u64,
    /// Hostile callers of a set-id program.
    callers: u64,
    /// How long the guest makes random calls, or threads work, in one boot.
    seconds: u64,
}

/// `cargo xtask soak`; answers the exit status. The first seed is drawn unless one is said; each
/// round takes the seed that follows the one before, so that a failure is repeated by its own.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let mut minutes = 10;
    let mut seed = fresh_seed();
    let mut parts = Vec::new();
    let mut sizes = Sizes {
        steps: 1_000_000,
        programs: 1_000_000,
        inputs: 10_000_000,
        calls: 10_000_000,
        callers: 10_000,
        seconds: 60,
    };
    while let Some(word) = options.next() {
        match word.as_str() {
            "--minutes" => minutes = options.number("--minutes")?,
            "--seed" => seed = options.number("--seed")?,
            "--part" => parts.push(Part::of_name(&options.value("--part")?)?),
            "--steps" => sizes.steps = options.number("--steps")?,
            "--programs" => sizes.programs = options.number("--programs")?,
            "--inputs" => sizes.inputs = options.number("--inputs")?,
            "--calls" => sizes.calls = options.number("--calls")?,
            "--callers" => sizes.callers = options.number("--callers")?,
            "--seconds" => {
                sizes.seconds = options.number_in("--seconds", crate::hostile::SECONDS)?
            }
            _ => return Err(options::unknown("soak", &word)),
        }
    }
    if parts.is_empty() {
        parts = Part::USUAL.to_vec();
    }
    if parts.iter().any(|part| part.boots()) {
        build::build()?;
    }
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut rounds = 0;
    loop {
        report::step(&format!("seed {seed}"));
        for part in &parts {
            part.run(seed, &sizes).map_err(|failure| {
                let Sizes { steps, programs, inputs, calls, callers, seconds } = sizes;
                Failure::new(failure.to_string()).next(format!(
                    "cargo xtask soak --minutes 0 --part {} --seed {seed} --steps {steps} \
                     --programs {programs} --inputs {inputs} --calls {calls} \
                     --callers {callers} --seconds {seconds}",
                    part.name()
                ))
            })?;
        }
        rounds += 1;
        seed += 1;
        if Instant::now() >= end {
            println!("{rounds} rounds passed");
            return Ok(0);
        }
    }
}

/// One that nobody has had.
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_micros() as u64 & 0xffff_ffff)
}

impl Part {
    /// One round of it.
    fn run(self, seed: u64, sizes: &Sizes) -> Result<()> {
        report::step(self.name());
        match self {
            Self::Model => {
                let size = ("XOK_STEPS", sizes.steps);
                host("kernel-core", &["random_calls_keep_every_invariant"], seed, size)
            }
            Self::Noninterference => {
                let size = ("XOK_STEPS", sizes.steps);
                for test in ["what_an_attacker_does", "what_a_victim_has"] {
                    host("kernel-core", &[test], seed, size)?;
                }
                Ok(())
            }
            Self::Code => {
                let test = ["--test", "suite", "interpreter_and_compiled_code_agree"];
                host("code", &test, seed, ("XOK_PROGRAMS", sizes.programs))
            }
            Self::Fuzz => fuzz(seed, sizes.inputs),
            Self::Words => {
                let size = ("XOK_CALLS", sizes.calls);
                host("kernel-core", &["calls_with_any_words_keep_every_invariant"], seed, size)
            }
            Self::Calls => calls(seed, sizes.seconds),
            Self::Threads => threads(sizes.seconds),
            Self::Hostile => hostile(seed, sizes.seconds),
            Self::SetId => set_id(seed, sizes.callers),
            Self::Load => crate::test::load_for_long(seed as usize, LOAD_SECONDS),
            Self::Miri => miri::tests(seed),
        }
    }
}

/// A test on the host in release form, with this seed and size.
fn host(package: &str, test: &[&str], seed: u64, size: (&str, u64)) -> Result<()> {
    let mut cargo = build::cargo();
    cargo.args(["test", "--quiet", "--release", "--package", package]).args(test);
    cargo.args(["--", "--nocapture"]);
    cargo.env("XOK_SEED", seed.to_string()).env(size.0, size.1.to_string());
    let output = cargo.stdin(Stdio::null()).output().context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // No test of that name is a failure too: then nothing was tried.
    if output.status.success() && text.contains("test result: ok. 1 passed") {
        report::step(&format!("{}={}, seed {seed}: passed", size.0, size.1));
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{package}, seed {seed}:\n{text}{error}")))
}

/// What makes each branch count itself in a byte (tests/fuzz/src/coverage.rs).
const COUNTERS: &str = "-C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=3 \
                        -C llvm-args=-sanitizer-coverage-inline-8bit-counters";

/// Inputs for downloaded code that coverage chooses: built with counters, in a place of its own.
fn fuzz(seed: u64, inputs: u64) -> Result<()> {
    let mut cargo = build::cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "fuzz"]);
    cargo.env("RUSTFLAGS", COUNTERS).env("CARGO_TARGET_DIR", workspace::target().join("fuzz"));
    cargo.env("XOK_SEED", seed.to_string()).env("XOK_INPUTS", inputs.to_string());
    process::run(cargo.stdin(Stdio::null()))
}

/// The torture of sixty-four threads, on two processors: it says what it says here.
fn threads(seconds: u64) -> Result<()> {
    let program = crate::linux_suite::program("thread_torture")?;
    let here = Command::new(&program).output().context(program.display())?;
    let ourselves = std::env::current_exe().context("our own program")?;
    let limit = seconds + GUEST_MARGIN.as_secs();
    let there = Command::new(ourselves)
        .args(["run", "--cpus", "2", "--timeout", &limit.to_string(), "--"])
        .arg(&program)
        .arg(seconds.to_string())
        .stdin(Stdio::null())
        .output()
        .context("our own program")?;
    if here.stdout == there.stdout {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&there.stdout).into_owned();
    Err(Failure::new(format!("{}:\n{text}", program.display())))
}

/// Attackers beside victims: the seed says on how many processors.
fn hostile(seed: u64, seconds: u64) -> Result<()> {
    let cpus = [1, 2, 4][seed as usize % 3];
    let said = crate::hostile::attack(seed, seconds, cpus)?;
    report::step(&said);
    Ok(())
}

/// Hostile callers of a set-id program, two processors: how many there were, and how they ended.
fn set_id(seed: u64, callers: u64) -> Result<()> {
    let program = crate::test::parts()?;
    let ourselves = std::env::current_exe().context("our own program")?;
    let limit = GUEST_MARGIN.as_secs() + callers / 4;
    let output = Command::new(ourselves)
        .args(["run", "--cpus", "2", "--timeout", &limit.to_string(), "--", &program, "set-id"])
        .args([callers.to_string(), seed.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("our own program")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.lines().find(|line| line.starts_with("set-id: ok")) {
        Some(line) => {
            report::step(line);
            Ok(())
        }
        None => Err(Failure::new(format!("hostile callers, seed {seed}:\n{text}"))),
    }
}

/// Random native calls in the guest, two processors, with this seed.
fn calls(seed: u64, seconds: u64) -> Result<()> {
    let kind = if seed.is_multiple_of(2) { Kind::Q35 } else { Kind::Microvm };
    let settings = [
        ("init", crate::test::GUEST_TESTS.to_string()),
        ("only", "wild".to_string()),
        ("fuzz-seconds", seconds.to_string()),
        ("fuzz-seed", seed.to_string()),
    ];
    let job = Job {
        machine: Machine { kind, cpus: 2, ..Machine::default() },
        settings: settings.map(|(key, value)| (key.to_string(), value)).to_vec(),
        limit: Some(Duration::from_secs(seconds) + GUEST_MARGIN),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    if captured.status == Some(0) {
        for line in captured.log.iter().filter(|line| line.contains("test ")) {
            report::step(line);
        }
        return Ok(());
    }
    let status = captured.status;
    let log = captured.log.join("\n");
    Err(Failure::new(format!("guest, seed {seed}: status {status:?}; its log:\n{log}")))
}
