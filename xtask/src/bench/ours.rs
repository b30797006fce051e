//! The benchmark program in our own guest.

use std::path::PathBuf;
use std::time::Duration;

use super::collect::{self, Measured, Said};
use super::program::Repetition;
use super::{counts, plugin, program, raw};
use crate::boot_image::Extra;
use crate::failure::{Context, Result};
use crate::machine::{Counting, Machine};
use crate::report;
use crate::run::{self, Job};

/// Memory of both systems' guests: the largest process, and Linux's own needs.
pub const MEMORY: &str = "512M";

/// How long one boot may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Where the profile is written.
pub fn profile_path() -> Result<PathBuf> {
    super::file("profile.txt")
}

/// Counts the instructions of these rows.
pub fn count(rows: &[String], samples: u32, profile: bool) -> Result<Vec<Measured>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let recorded = super::file("ours.counts")?;
    let profile = profile.then(profile_path).transpose()?;
    let counting = plugin::counting(&recorded, profile.as_deref())?;
    measure(rows, Repetition { samples, scale: 1 }, Some(counting), || {
        let text = std::fs::read_to_string(&recorded).context(recorded.display())?;
        Ok(Some(counts::parse(&text)?))
    })
}

/// Takes the time of these rows.
pub fn time(rows: &[String], repetition: Repetition) -> Result<Vec<Measured>> {
    measure(rows, repetition, None, || Ok(None))
}

fn measure(
    rows: &[String],
    repetition: Repetition,
    counting: Option<Counting>,
    recording: impl Fn() -> Result<Option<counts::Recording>>,
) -> Result<Vec<Measured>> {
    let mut job = Job {
        machine: machine(counting),
        extras: vec![
            Extra { host: program::path()?, guest: program::GUEST_PATH.into() },
            Extra { host: program::end()?, guest: program::GUEST_END.into() },
        ],
        limit: Some(LIMIT),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    collect::rows(rows, |rows| {
        report::step(&format!("here: {}", rows.join(" ")));
        let mut arguments = vec![program::GUEST_PATH.to_string()];
        arguments.extend(repetition.arguments(rows));
        job.program = Some((program::GUEST_PATH.into(), arguments));
        let captured = run::capture(&job, &image.path, None, |_| ())?;
        let console = String::from_utf8_lossy(&captured.output).into_owned();
        raw::keep("ours", &console)?;
        Ok(Said { console, recording: recording()? })
    })
}

/// The machine that both systems are measured on.
pub fn machine(counting: Option<Counting>) -> Machine {
    Machine {
        memory: MEMORY.into(),
        accelerator: Some(crate::accelerator::Accelerator::Tcg),
        counting,
        ..Machine::default()
    }
}
