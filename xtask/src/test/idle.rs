//! How much of a host's processor a guest takes in which everybody sleeps.
//!
//! ```text
//!  the guest's shell:  echo asleep   sleep 5   echo awake
//!  QEMU's time             ├─────────────────────┤          less than 3 % of the 5 s
//! ```

use std::fs;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::failure::Result;
use crate::machine::{Kind, Machine};
use crate::run::{self, Job};
use crate::tally::Verdict;

/// How long the guest sleeps.
const SLEEP_SECONDS: u64 = 5;
/// The most of one host processor that it may take meanwhile.
const SHARE_MAX: f64 = 0.03;
/// The unit of processor time in `/proc/PID/stat` (`USER_HZ`, proc(5)).
const TICK: f64 = 0.01;
/// How long the boot may take, the sleep included.
const LIMIT: Duration = Duration::from_secs(60);

/// Two processors, a network and a shell that sleeps: QEMU's processor time between its words.
pub fn share() -> Result<Verdict> {
    let script = format!("echo asleep; sleep {SLEEP_SECONDS}; echo awake");
    let job = Job {
        machine: Machine { kind: Kind::Q35, cpus: 2, ..Machine::default() },
        program: Some(("/bin/sh".into(), vec!["sh".into(), "-c".into(), script])),
        limit: Some(LIMIT),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let (sender, moments) = mpsc::channel();
    // Both words come by themselves: a shell writes each line by a call of its own.
    let sink = Box::new(move |_: &[u8]| {
        // Who takes them outlives the machine.
        let _ = sender.send((Instant::now(), machine_seconds()));
    });
    let captured = run::converse(&job, &image.path, None, sink, |_| {})?;
    let moments: Vec<_> = moments.iter().collect();
    let (Some((begin, before)), Some((end, after)), Some(0)) =
        (moments.first(), moments.last(), captured.status)
    else {
        return Ok(Err(format!("{captured:?}")));
    };
    let slept = end.duration_since(*begin).as_secs_f64();
    if slept < SLEEP_SECONDS as f64 * 0.9 {
        return Ok(Err(format!("it slept {slept:.2} s of {SLEEP_SECONDS}")));
    }
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(Err("no machine was found among our children".into()));
    };
    let share = (after - before) / slept;
    let said = format!("({:.1} % of a processor over {slept:.1} s)", 100.0 * share);
    Ok(if share <= SHARE_MAX { Ok(said) } else { Err(said) })
}

/// Processor time of our children that are QEMU, in seconds.
fn machine_seconds() -> Option<f64> {
    let ourselves = std::process::id();
    let mut found = None;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        // Whoever ended meanwhile has no such file any more.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(ticks) = ticks_of_child(&text, ourselves) {
            *found.get_or_insert(0.0) += ticks as f64 * TICK;
        }
    }
    found
}

/// The ticks that the process of this line has run, if it is QEMU and `parent`'s child (proc(5)).
fn ticks_of_child(stat: &str, parent: u32) -> Option<u64> {
    let (front, back) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = back.split_whitespace().collect();
    let [_, its_parent, ..] = fields[..] else { return None };
    if !front.contains("(qemu-system") || its_parent != parent.to_string() {
        return None;
    }
    // Fields 14 and 15, of which the third is the first here.
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_of_ours_counts() {
        let line = "7 (qemu-system-x86) S 4 7 7 0 -1 0 0 0 0 0 120 30 0 0 20 0";
        assert_eq!(ticks_of_child(line, 4), Some(150));
        assert_eq!(ticks_of_child(line, 5), None);
        assert_eq!(ticks_of_child("7 (sh) S 4 7 7 0 -1 0 0 0 0 0 120 30 0 0", 4), None);
        assert_eq!(ticks_of_child("7 (qemu-system", 4), None);
    }
}
