//! The native suite (`tests/guest`) from the ISO, on Bochs: a second processor model.

use std::time::Duration;

use super::Directory;
use super::emulator::{Emulator, place};
use super::serial;
use crate::failure::Result;
use crate::mutate;
use crate::report;
use crate::run::{self, Captured, Job};
use crate::tally::Tally;
use crate::test::{GUEST_TESTS, judge};

/// How long it may take: three times what it does on an idle host, and as much for a busy one.
const LIMIT: Duration = Duration::from_secs(580);
/// On how many processors.
pub const CPUS: [u32; 2] = [1, 2];
/// MiB of memory.
const MEMORY: u32 = 256;
/// For how many seconds of the machine's time random calls are made.
const FUZZ_SECONDS: u32 = 5;

/// Tests that cannot run there, and why. They count as ignored.
const LEFT_OUT: [(&str, &str); 1] =
    [("last_filter_reference", "filters are a network card's, and Bochs has none of virtio's")];

/// Runs the tests whose name holds one of `only`, or all, and records each for its place.
pub fn run(tally: &mut Tally, cpus: u32, only: &[&str]) -> Result<()> {
    let place = place(Emulator::Bochs, cpus);
    report::step(&format!("guest: {place}"));
    let files = Directory::new(&format!("bochs-{}", std::process::id()))?;
    let image = run::make_image(&Job::default())?;
    let iso = files.path.join("xok.iso");
    super::make(&image.path, &line(only), &iso)?;
    let (bochs, serial) = Emulator::Bochs.command(&iso, cpus, MEMORY, &files.path)?;
    let heard = serial::run(bochs, serial, &[], LIMIT, |_| {})?;
    let log = heard.text.lines().map(|text| text.trim().to_string()).collect();
    let captured = Captured { status: heard.status, output: Vec::new(), error: Vec::new(), log };
    judge(tally, &captured, &place, |name, word| reason(name).unwrap_or(word).to_string());
    Ok(())
}

/// The kernel's command line. Bochs shows a processor that does not say what it is free of
/// (IA32_ARCH_CAPABILITIES), which would have one user; as an emulator it guesses nothing.
fn line(only: &[&str]) -> String {
    let mut line = format!("init={GUEST_TESTS} fuzz-seconds={FUZZ_SECONDS} mitigations=off");
    let left_out = LEFT_OUT.iter().map(|(name, _)| ("skip", *name));
    for (key, name) in left_out.chain(only.iter().map(|name| ("only", *name))) {
        line += &format!(" {key}={}", name.strip_prefix("guest/").unwrap_or(name));
    }
    if let Some(fault) = mutate::chosen() {
        line += &format!(" mutate={fault}");
    }
    line
}

fn reason(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("guest/")?;
    LEFT_OUT.iter().find(|(left_out, _)| *left_out == name).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    /// A test that has another name by now would be left out no more, and nobody would notice the
    /// list.
    #[test]
    fn what_is_left_out_exists() {
        let table = workspace::read("tests/guest/src/suite/mod.rs").unwrap();
        for (name, _) in LEFT_OUT {
            assert!(table.contains(&format!("(\"{name}\", ")), "{name}");
        }
    }
}
