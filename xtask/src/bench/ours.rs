//! The benchmark program in our own guest.

use std::path::PathBuf;
use std::time::Duration;

use super::collect::{self, Measured, Said};
use super::{counts, plugin, program};
use crate::boot_image::Extra;
use crate::failure::{Context, Result};
use crate::machine::Machine;
use crate::report;
use crate::run::{self, Job};
use crate::workspace;

/// Memory of both systems' guests: the largest process, and Linux's own needs.
pub const MEMORY: &str = "512M";

/// How long one boot may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Where the profile is written.
pub fn profile_path() -> PathBuf {
    workspace::output().join("bench/profile.txt")
}

/// Counts the instructions of these rows.
pub fn count(rows: &[String], samples: u32, profile: bool) -> Result<Vec<Measured>> {
    let program = program::path()?;
    let recorded = workspace::output().join("bench/ours.counts");
    let profile = profile.then(profile_path);
    let mut job = Job {
        machine: Machine {
            memory: MEMORY.into(),
            counting: Some(plugin::counting(&recorded, profile.as_deref())?),
            ..Machine::default()
        },
        extras: vec![Extra { host: program, guest: program::GUEST_PATH.into() }],
        limit: Some(LIMIT),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    collect::rows(rows, |rows| {
        report::step(&format!("counting here: {}", rows.join(" ")));
        let mut arguments = vec![program::GUEST_PATH.into(), "--samples".into()];
        arguments.push(samples.to_string());
        arguments.extend_from_slice(rows);
        job.program = Some((program::GUEST_PATH.into(), arguments));
        let captured = run::capture(&job, &image.path, None, |_| ())?;
        let recording = std::fs::read_to_string(&recorded).context(recorded.display())?;
        Ok(Said {
            console: String::from_utf8_lossy(&captured.output).into_owned(),
            recording: Some(counts::parse(&recording)?),
        })
    })
}
