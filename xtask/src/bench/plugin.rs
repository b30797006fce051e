//! The counting plugin, compiled when it is needed, and what QEMU is told of it.

use std::path::Path;

use super::compile;
use crate::failure::Result;
use crate::machine::Counting;

/// What QEMU's random numbers begin with: any number, but the same each time.
const SEED: u32 = 1;

/// A machine that counts into `output`, and for a profile into a second file.
pub fn counting(output: &Path, profile: Option<&Path>) -> Result<Counting> {
    let options = ["-shared", "-fPIC", "-fvisibility=hidden"];
    let plugin = compile::directory("xtask/src/bench/plugin", "count.so", &options)?;
    let mut settings = vec![format!("out={}", output.display())];
    settings.extend(profile.map(|path| format!("profile={}", path.display())));
    Ok(Counting { plugin: Some(plugin), settings, seed: SEED })
}
