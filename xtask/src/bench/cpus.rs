//! The same work on one processor and on two: how much more is done, and how much of it is kernel.

use std::time::Duration;

use super::{raw, table};
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
    let mut said = Vec::new();
    for round in 0..rounds {
        report::step(&format!("two processors, round {}", round + 1));
        said.push(boot()?);
    }
    println!("{}", beside(&said));
    Ok(())
}

fn boot() -> Result<Vec<Line>> {
    let settings = [("init", "/xok/native-bench".into()), ("cpus", LENGTH_MS.to_string())];
    let job = Job {
        machine: Machine { kind: Kind::Q35, cpus: 2, ..Machine::default() },
        settings: settings.map(|(key, value): (&str, String)| (key.to_string(), value)).to_vec(),
        limit: Some(LIMIT),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let text = captured.log.join("\n");
    raw::keep("cpus", &text)?;
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

fn beside(rounds: &[Vec<Line>]) -> String {
    let works = rounds.iter().flatten().filter(|line| line.1 == 1).map(|line| &line.0);
    let mut names: Vec<&String> = Vec::new();
    works.for_each(|name| names.extend((!names.contains(&name)).then_some(name)));
    let row = |name: &&String| {
        let of = |line: &&Line, processors| line.0 == **name && line.1 == processors;
        let find = |round: &Vec<Line>, processors| {
            round.iter().find(|line| of(line, processors)).map(|line| line.2)
        };
        let pairs: Vec<(Rate, Rate)> =
            rounds.iter().filter_map(|round| Some((find(round, 1)?, find(round, 2)?))).collect();
        let all = |of: fn(&(Rate, Rate)) -> f64| median(pairs.iter().map(of).collect());
        vec![
            name.to_string(),
            format!("{:.0}", all(|pair| pair.0.each_second)),
            format!("{:.0}", all(|pair| pair.1.each_second)),
            format!("{:.2}", all(|pair| pair.1.each_second / pair.0.each_second)),
            format!("{:.0} %", 100.0 * all(|pair| pair.0.kernel)),
            format!("{:.0} %", 100.0 * all(|pair| pair.1.kernel)),
        ]
    };
    let head = ["work", "one: a second", "two: a second", "ratio", "kernel of one", "of two"];
    let table = table::markdown(&head, names.iter().map(row).collect());
    format!(
        "{table}\nMedians of {} rounds. The control never enters the kernel: its ratio is what \
         this host\ngives a second processor. Kernel: the share of the processors' time with \
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
        let table = beside(&[round]);
        assert!(table.contains("| 1.80 "), "{table}");
        assert_eq!(parse("cpus fault 1 many"), None);
    }
}
