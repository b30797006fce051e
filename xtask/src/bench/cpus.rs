//! The same work on one processor and on two, here and on the tuned Linux: how much more is done.

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

/// One measurement: operations a second, and the share of the time spent in the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    each_second: f64,
    kernel: f64,
}

/// What is done, on so many processors.
type Line = (String, usize, Rate);

/// Boots once a round, and prints the median of each ratio.
pub fn print(rounds: u32) -> Result<()> {
    let image = run::make_image(&Job::default())?;
    let (mut said, mut apart, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        report::step(&format!("two processors, round {}", round + 1));
        said.push(boot(&image.path, 2, "cpus")?);
        apart.push(two_machines(&image.path)?);
        theirs.push(boot_linux()?);
    }
    println!("{}", beside(&said, &apart, &theirs));
    Ok(())
}

/// One worker in each of two emulators at the same time, which share nothing but the host: what
/// both do together, as if it were two processors of one.
fn two_machines(image: &Path) -> Result<Vec<Line>> {
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| boot(image, 1, "cpus-other"));
        let first = boot(image, 1, "cpus-first");
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

fn boot(image: &Path, workers: usize, name: &str) -> Result<Vec<Line>> {
    let settings = [
        ("init", "/xok/native-bench".into()),
        ("cpus", LENGTH_MS.to_string()),
        ("workers", workers.to_string()),
    ];
    let job = Job {
        machine: machine(),
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

fn ones(round: &[Line]) -> impl Iterator<Item = Line> {
    round.iter().filter(|line| line.1 == 1).cloned()
}

fn beside(rounds: &[Vec<Line>], apart: &[Vec<Line>], theirs: &[Vec<Line>]) -> String {
    let works = rounds.iter().flatten().filter(|line| line.1 == 1).map(|line| &line.0);
    let mut names: Vec<&String> = Vec::new();
    works.for_each(|name| names.extend((!names.contains(&name)).then_some(name)));
    let ratio = |pair: &(Rate, Rate)| pair.1.each_second / pair.0.each_second;
    // One worker of the round before it, two of it.
    let together: Vec<Vec<Line>> =
        rounds.iter().zip(apart).map(|(one, two)| ones(one).chain(two.clone()).collect()).collect();
    let row = |name: &&String| {
        let machines = pairs(&together, name);
        let (pairs, theirs) = (pairs(rounds, name), pairs(theirs, name));
        let all = |of: fn(&(Rate, Rate)) -> f64| median(pairs.iter().map(of).collect());
        vec![
            name.to_string(),
            format!("{:.0}", all(|pair| pair.0.each_second)),
            format!("{:.0}", all(|pair| pair.1.each_second)),
            format!("{:.2}", all(ratio)),
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
        "two machines",
        "kernel of one",
        "of two",
        "Linux: one",
        "ratio",
    ];
    let table = table::markdown(&head, names.iter().map(row).collect());
    format!(
        "{table}\nMedians of {} rounds. The control never enters the kernel: its ratio is what \
         this host\ngives a second processor. Two machines: the same in two emulators at the same \
         time,\nwhich share nothing but the host. Kernel: the share of the processors' time with \
         interrupts off,\nmost of it under the lock, by the published classes of stretches.",
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
        let table = beside(&[round], &[apart], &[theirs]);
        for ratio in ["| 1.80 ", "| 1.70 ", "| 1.50 "] {
            assert!(table.contains(ratio), "{table}");
        }
        assert_eq!(parse("cpus fault 1 many"), None);
    }
}
