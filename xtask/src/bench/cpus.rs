//! The same work on one processor and on two, here and on the tuned Linux: how much more is done.
//!
//! ```text
//!  a round   two processors ── the same, in an emulator that waits awake for its own locks
//!            ── two machines ── Linux's two processors
//! ```
//! A boot on two processors in which the host had too little for the second is done again: its
//! control, which shares nothing, tells.

use std::path::Path;
use std::time::Duration;

use super::initramfs::Initramfs;
use super::linux::{self, Profile};
use super::{program, raw, table};
use crate::accelerator::Accelerator;
use crate::failure::{Failure, Result};
use crate::machine::{Kind, Machine};
use crate::report;
use crate::run::{self, Job};

/// Milliseconds of each measurement.
const LENGTH_MS: u64 = 1000;
/// How long all of them may take.
const LIMIT: Duration = Duration::from_secs(180);

/// What the control's ratio must be at least: below, the host does something else meanwhile.
const QUIET: f64 = 1.8;
/// How often one boot is done again for that.
const TRIALS: u32 = 6;
/// The work that shares nothing.
const CONTROL: &str = "control";

/// One measurement: operations a second, and the share of the time spent in the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    each_second: f64,
    kernel: f64,
}

/// What is done, on so many processors.
type Line = (String, usize, Rate);

/// All rounds of one arrangement.
type Rounds = Vec<Vec<Line>>;

/// What was measured, round by round.
struct Measured {
    /// Two processors.
    said: Rounds,
    /// The same, with an emulator that waits awake.
    awake: Rounds,
    /// Two machines.
    apart: Rounds,
    /// Linux's two processors.
    theirs: Rounds,
    /// Boots that were done again.
    again: u32,
    /// The least ratio of a control that was kept.
    least: f64,
}

/// Measures so many rounds, and prints the median of each ratio.
pub fn print(rounds: u32) -> Result<()> {
    let image = run::make_image(&Job::default())?;
    let library = program::awake()?;
    let awake = || Machine { library: Some(library.clone()), ..machine() };
    let mut all = Measured::new();
    for round in 0..rounds {
        report::step(&format!("two processors, round {}", round + 1));
        let said = all.quiet(|| boot(&image.path, 2, "cpus", machine()))?;
        all.said.push(said);
        let said = all.quiet(|| boot(&image.path, 2, "cpus-awake", awake()))?;
        all.awake.push(said);
        all.apart.push(two_machines(&image.path)?);
        let theirs = all.quiet(boot_linux)?;
        all.theirs.push(theirs);
    }
    println!("{}", beside(&all));
    Ok(())
}

impl Measured {
    fn new() -> Self {
        let [said, awake, apart, theirs] = [const { Vec::new() }; 4];
        Self { said, awake, apart, theirs, again: 0, least: f64::INFINITY }
    }

    /// What a boot says in which the host had two processors for it; of so many, the best.
    fn quiet(&mut self, boot: impl Fn() -> Result<Vec<Line>>) -> Result<Vec<Line>> {
        let mut best: Option<(f64, Vec<Line>)> = None;
        for trial in 0..TRIALS {
            let lines = boot()?;
            let [control] = &pairs(std::slice::from_ref(&lines), CONTROL)[..] else {
                return Err(Failure::new("a boot on two processors without its control"));
            };
            let control = ratio(control);
            if best.as_ref().is_none_or(|(most, _)| control > *most) {
                best = Some((control, lines));
            }
            if control >= QUIET {
                break;
            }
            self.again += u32::from(trial + 1 < TRIALS);
        }
        let (control, lines) = best.ok_or_else(|| Failure::new("nothing was booted"))?;
        self.least = self.least.min(control);
        Ok(lines)
    }
}

/// One worker in each of two emulators at the same time, which share nothing but the host: what
/// both do together, as if it were two processors of one.
fn two_machines(image: &Path) -> Result<Vec<Line>> {
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| boot(image, 1, "cpus-other", machine()));
        let first = boot(image, 1, "cpus-first", machine());
        first.and_then(|first| match other.join() {
            Ok(other) => Ok((first, other?)),
            Err(_) => Err(Failure::new("the second machine's thread has ended")),
        })
    });
    let (first, other) = both?;
    let sum = |(one, two): (&Line, &Line)| {
        let each_second = one.2.each_second + two.2.each_second;
        (one.0.clone(), 2, Rate { each_second, kernel: 0.0 })
    };
    Ok(first.iter().zip(&other).map(sum).collect())
}

fn machine() -> Machine {
    let accelerator = Some(Accelerator::Tcg);
    Machine { kind: Kind::Q35, cpus: 2, accelerator, ..Machine::default() }
}

/// The tuned Linux: a signal for a fault, a page mapped, touched and given back for an allocation,
/// a byte through two pipes for a transfer.
fn boot_linux() -> Result<Vec<Line>> {
    const PATH: &str = "/bench-cpus";
    let mut files = Initramfs::default();
    files.file(PATH, &program::cpus()?)?;
    let initial = super::file("initramfs-cpus")?;
    files.write(&initial)?;
    let line = linux::command_line(Profile::Tuned, PATH, &[LENGTH_MS.to_string()]);
    let console = linux::run(machine().boot(&linux::kernel()?, &initial, &line)?)?;
    raw::keep("cpus-linux", &console)?;
    let lines: Vec<Line> = console.lines().filter_map(parse).collect();
    if lines.is_empty() || console.contains("fatal ") {
        return Err(Failure::new(format!("Linux on two processors said:\n{console}")));
    }
    Ok(lines)
}

fn boot(image: &Path, workers: usize, name: &str, machine: Machine) -> Result<Vec<Line>> {
    let settings = [
        ("init", "/xok/native-bench".into()),
        ("cpus", LENGTH_MS.to_string()),
        ("workers", workers.to_string()),
    ];
    let job = Job {
        machine,
        settings: settings.map(|(key, value): (&str, String)| (key.to_string(), value)).to_vec(),
        limit: Some(LIMIT),
        ..Job::default()
    };
    let captured = run::capture(&job, image, None, |_| {})?;
    let text = captured.log.join("\n");
    raw::keep(name, &text)?;
    let lines: Vec<Line> = captured.log.iter().filter_map(|line| parse(line)).collect();
    let whole = captured.status == Some(0) && !lines.is_empty() && !text.contains("fatal ");
    if whole {
        Ok(lines)
    } else {
        Err(Failure::new(format!("status {:?}; its log:\n{text}", captured.status)))
    }
}

/// `cpus WORK PROCESSORS OPERATIONS NANOSECONDS KERNEL`
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_once("cpus ")?.1.split_whitespace();
    let work = words.next()?.to_string();
    let processors: usize = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<f64>().ok();
    let (operations, ns, kernel) = (number()?, number()?, number()?);
    let kernel = kernel / ns / processors as f64;
    Some((work, processors, Rate { each_second: operations * 1e9 / ns, kernel }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The rates of one and of two processors in each round that has both.
fn pairs(rounds: &[Vec<Line>], name: &str) -> Vec<(Rate, Rate)> {
    let find = |round: &Vec<Line>, processors| {
        let of = |line: &&Line| line.0 == name && line.1 == processors;
        round.iter().find(of).map(|line| line.2)
    };
    rounds.iter().filter_map(|round| Some((find(round, 1)?, find(round, 2)?))).collect()
}

/// How much more two do.
fn ratio(pair: &(Rate, Rate)) -> f64 {
    pair.1.each_second / pair.0.each_second
}

fn ones(round: &[Line]) -> impl Iterator<Item = Line> {
    round.iter().filter(|line| line.1 == 1).cloned()
}

fn beside(all: &Measured) -> String {
    let Measured { said: rounds, awake, apart, theirs, again, least } = all;
    let works = rounds.iter().flatten().filter(|line| line.1 == 1).map(|line| &line.0);
    let mut names: Vec<&String> = Vec::new();
    works.for_each(|name| names.extend((!names.contains(&name)).then_some(name)));
    // One worker of the round before it, two of it.
    let together: Vec<Vec<Line>> =
        rounds.iter().zip(apart).map(|(one, two)| ones(one).chain(two.clone()).collect()).collect();
    let row = |name: &&String| {
        let (machines, awake) = (pairs(&together, name), pairs(awake, name));
        let (pairs, theirs) = (pairs(rounds, name), pairs(theirs, name));
        let all = |of: fn(&(Rate, Rate)) -> f64| median(pairs.iter().map(of).collect());
        vec![
            name.to_string(),
            format!("{:.0}", all(|pair| pair.0.each_second)),
            format!("{:.0}", all(|pair| pair.1.each_second)),
            format!("{:.2}", all(ratio)),
            format!("{:.2}", median(awake.iter().map(ratio).collect())),
            format!("{:.2}", median(machines.iter().map(ratio).collect())),
            format!("{:.0} %", 100.0 * all(|pair| pair.0.kernel)),
            format!("{:.0} %", 100.0 * all(|pair| pair.1.kernel)),
            format!("{:.0}", median(theirs.iter().map(|pair| pair.0.each_second).collect())),
            format!("{:.2}", median(theirs.iter().map(ratio).collect())),
        ]
    };
    let head = [
        "work",
        "one: a second",
        "two: a second",
        "ratio",
        "awake",
        "two machines",
        "kernel of one",
        "of two",
        "Linux: one",
        "ratio",
    ];
    let table = table::markdown(&head, names.iter().map(row).collect());
    format!(
        "{table}\nMedians of {} rounds. The control never enters the kernel: its ratio is what \
         this host\ngives a second processor. {again} boots were done again for less than \
         {QUIET}; the least that was\nkept: {least:.2}. Awake: in an emulator that does not sleep \
         for its own locks, one of which all\nprocessors take at each exception. Two machines: \
         the same in two emulators at the same time,\nwhich share nothing but the host. Kernel: \
         the share of the processors' time with interrupts off,\nmost of it under the lock, by \
         the published classes of stretches.",
        rounds.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processors_stand_beside_one() {
        let lines = ["x cpus fault 1 1000 1000000000 500000000", "cpus fault 2 1800 1000000000 0"];
        let round: Vec<Line> = lines.iter().filter_map(|line| parse(line)).collect();
        assert_eq!(round[0].2, Rate { each_second: 1000.0, kernel: 0.5 });
        let theirs = ["cpus fault 1 100 1000000000 0", "cpus fault 2 150 1000000000 0"];
        let theirs: Vec<Line> = theirs.iter().filter_map(|line| parse(line)).collect();
        let apart: Vec<Line> = parse("cpus fault 2 1700 1000000000 0").into_iter().collect();
        let awake = ["cpus fault 1 1000 1000000000 0", "cpus fault 2 1900 1000000000 0"];
        let awake: Vec<Line> = awake.iter().filter_map(|line| parse(line)).collect();
        let (said, awake, apart, theirs) = (vec![round], vec![awake], vec![apart], vec![theirs]);
        let table = beside(&Measured { said, awake, apart, theirs, again: 7, least: 1.83 });
        for part in ["| 1.80 ", "| 1.90 ", "| 1.70 ", "| 1.50 ", " 7 boots", "kept: 1.83"] {
            assert!(table.contains(part), "{table}");
        }
        assert_eq!(parse("cpus fault 1 many"), None);
    }

    #[test]
    fn a_boot_without_a_second_processor_is_done_again() {
        let lines = |second: u64| -> Vec<Line> {
            let lines =
                ["cpus control 1 1000 1000 0".into(), format!("cpus control 2 {second} 1000 0")];
            lines.iter().filter_map(|line| parse(line)).collect()
        };
        let (mut all, boots) = (Measured::new(), std::cell::Cell::new(0));
        let kept = all.quiet(|| {
            boots.set(boots.get() + 1);
            Ok(lines(if boots.get() < 3 { 1700 } else { 1900 }))
        });
        assert_eq!((kept.ok(), all.again, boots.get()), (Some(lines(1900)), 2, 3));
        boots.set(0);
        let kept = all.quiet(|| {
            boots.set(boots.get() + 1);
            Ok(lines([1100, 1700, 1200, 1000, 1000, 1000][boots.get() - 1]))
        });
        assert_eq!((kept.ok(), all.again, all.least), (Some(lines(1700)), 7, 1.7));
        assert!(all.quiet(|| Ok(Vec::new())).is_err());
    }
}
