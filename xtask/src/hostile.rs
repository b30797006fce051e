//! `cargo xtask hostile`: programs without rights that make any call, beside victims.
//!
//! ```text
//! cargo xtask hostile                          # half a minute on 2 processors, a seed of its own
//! cargo xtask hostile --seconds 60 --seed 7 --cpus 4
//! cargo xtask soak --minutes 60 --part hostile --seed 7
//! ```
//! What it does in the guest: `tests/parts/src/hostile.rs`, `attacker.rs`. Its verdict comes by the
//! kernel's log.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::boot_image::Extra;
use crate::build;
use crate::failure::{Failure, Result};
use crate::machine::{CPUS, Machine};
use crate::options::{self, Options};
use crate::report;
use crate::run::{self, Job};
use crate::test;

/// Where the program is in the guest.
const PROGRAM: &str = "/suite/parts-tests";
/// How long an attack may take: victims are judged by what they did meanwhile.
pub const SECONDS: RangeInclusive<u64> = 1..=86_400;
/// What a boot may take longer than the attack.
const MARGIN: Duration = Duration::from_secs(240);
/// How the line of the log begins that has the verdict, and how it goes on if all was well.
const VERDICT: &str = "hostile: ";
/// See [`VERDICT`].
const WELL: &str = "ok ";

/// `cargo xtask hostile`; answers the exit status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let (mut seconds, mut seed, mut cpus) = (30, crate::soak::fresh_seed(), 2);
    while let Some(word) = options.next() {
        match word.as_str() {
            "--seconds" => seconds = options.number_in("--seconds", SECONDS)?,
            "--seed" => seed = options.number("--seed")?,
            "--cpus" => cpus = options.number_in("--cpus", CPUS)?,
            _ => return Err(options::unknown("hostile", &word)),
        }
    }
    build::build()?;
    let said = attack(seed, seconds, cpus).map_err(|failure| {
        Failure::new(failure.to_string())
            .next(format!("cargo xtask hostile --seconds {seconds} --seed {seed} --cpus {cpus}"))
    })?;
    println!("seed {seed}, {cpus} processors: {said}");
    Ok(0)
}

/// One boot with attackers for so many seconds; what it says of itself.
pub fn attack(seed: u64, seconds: u64, cpus: u32) -> Result<String> {
    report::step(&format!("hostile: seed {seed}, {cpus} processors, {seconds} s"));
    let words = [PROGRAM.to_string(), "hostile".into(), seed.to_string(), seconds.to_string()];
    let job = Job {
        machine: Machine { cpus, ..Machine::default() },
        extras: vec![Extra { host: PathBuf::from(test::parts()?), guest: PROGRAM.into() }],
        program: Some((PROGRAM.into(), words.to_vec())),
        limit: Some(Duration::from_secs(seconds) + MARGIN),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let verdict = captured.log.iter().find_map(|line| Some(line.split_once(VERDICT)?.1));
    match verdict.and_then(|verdict| verdict.strip_prefix(WELL)) {
        Some(said) if captured.status == Some(0) => Ok(said.to_string()),
        _ => {
            let (status, log) = (captured.status, captured.log.join("\n"));
            let output = String::from_utf8_lossy(&captured.output).into_owned();
            Err(Failure::new(format!(
                "status {status:?}, output {output:?}, errors {}, its log:\n{log}",
                String::from_utf8_lossy(&captured.error)
            )))
        }
    }
}
