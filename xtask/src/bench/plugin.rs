//! The counting plugin, compiled when it is needed, and what QEMU is told of it.

use std::path::{Path, PathBuf};

use crate::compile;
use crate::failure::Result;
use crate::machine::Counting;

/// What QEMU's random numbers begin with: any number, but the same each time.
const SEED: u32 = 1;

/// A machine that counts into `output`, and for a profile into a second file.
pub fn counting(output: &Path, profile: Option<&Path>) -> Result<Counting> {
    let mut settings = vec![format!("out={}", output.display())];
    settings.extend(profile.map(|path| format!("profile={}", path.display())));
    Ok(Counting { plugin: Some(path()?), settings, seed: Some(SEED) })
}

/// A machine whose boot is profiled up to a milestone.
pub fn profiling_until(mark: u32, output: &Path, profile: &Path) -> Result<Counting> {
    let mut counting = counting(output, Some(profile))?;
    counting.settings.push(format!("until={mark}"));
    Ok(counting)
}

/// A machine whose counters can be read from `counters` while it runs beside others.
pub fn watching(output: &Path, counters: &Path) -> Result<Counting> {
    let settings =
        vec![format!("out={}", output.display()), format!("counters={}", counters.display())];
    Ok(Counting { plugin: Some(path()?), settings, seed: None })
}

fn path() -> Result<PathBuf> {
    let options = ["-shared", "-fPIC", "-fvisibility=hidden"];
    compile::directory("xtask/src/bench/plugin", "count.so", &options)
}
