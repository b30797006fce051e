//! Time, in rounds that alternate the guests: what instructions cost in QEMU's translator.

use super::collect::Measured;
use super::figures::{median, show, spread};
use super::linux::{self, Profile};
use super::program::{Repetition, Row};
use super::{ours, program, table};
use crate::failure::Result;
use crate::report;

/// Samples of one boot, and how many times longer than counted ones.
const REPETITION: Repetition = Repetition { samples: 7, scale: 4 };

/// Nanoseconds of an operation, the fastest sample of each round; or why there are none. What else
/// runs on the host makes samples longer, never shorter.
type Times = std::result::Result<Vec<f64>, String>;
/// One system's, by row.
type Column = Vec<(String, Times)>;

/// Measures and prints these rows, in so many rounds.
pub fn print(known: &[Row], rows: &[String], rounds: u32) -> Result<()> {
    let nanoseconds = 1e9 / program::ticks_per_second()?;
    let mut columns: [Column; 3] = Default::default();
    for round in 1..=rounds {
        report::step(&format!("round {round} of {rounds}"));
        let measured = [
            ours::time(rows, REPETITION)?,
            linux::time(Profile::Tuned, rows, REPETITION)?,
            linux::time(Profile::Stock, rows, REPETITION)?,
        ];
        for (column, measured) in columns.iter_mut().zip(measured) {
            add_round(column, &measured, nanoseconds);
        }
    }
    print!("{}", render(known, &columns));
    Ok(())
}

/// Adds a round. A row that failed once has no figure: half a median would say too much.
fn add_round(column: &mut Column, measured: &[Measured], nanoseconds: f64) {
    if column.is_empty() {
        column.extend(measured.iter().map(|(name, _)| (name.clone(), Ok(Vec::new()))));
    }
    for ((_, times), (_, outcome)) in column.iter_mut().zip(measured) {
        match (times.as_mut(), outcome) {
            (Ok(times), Ok(samples)) => {
                let fastest = samples.ticks.iter().min().copied().unwrap_or(0) as f64;
                times.push(fastest / samples.operations as f64 * nanoseconds);
            }
            (Ok(_), Err(reason)) => *times = Err(reason.clone()),
            (Err(_), _) => {}
        }
    }
}

fn render(known: &[Row], [ours, tuned, stock]: &[Column; 3]) -> String {
    let head = ["row", "way", "ours ns", "Linux ns", "stock ns", "ratio", "spreads"];
    let line = |(at, (name, own)): (usize, &(String, Times))| {
        let (tuned, stock) = (&tuned[at].1, &stock[at].1);
        let way = known.iter().find(|row| row.name == *name).map_or("", |row| row.way.as_str());
        let mut cells = vec![name.clone(), way.to_string()];
        for side in [own, tuned, stock] {
            cells.push(side.as_ref().map_or("-".into(), |times| show(median(times.clone()))));
        }
        cells.push(match (own, tuned) {
            (Ok(own), Ok(tuned)) => {
                format!("{:.2}", median(own.clone()) / median(tuned.clone()))
            }
            _ => "-".into(),
        });
        let spread = |side: &Times| match side {
            Ok(times) => format!("{:.0}%", spread(times) * 100.0),
            Err(_) => "-".into(),
        };
        cells.push(match own {
            Ok(_) => format!("{} {}", spread(own), spread(tuned)),
            Err(reason) => reason.clone(),
        });
        cells
    };
    table::markdown(&head, ours.iter().enumerate().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::super::collect::Samples;
    use super::*;

    fn round(ticks: Option<u64>) -> Vec<Measured> {
        let samples = |ticks| Samples { operations: 10, counts: Vec::new(), ticks: vec![ticks] };
        vec![("x".to_string(), ticks.map(samples).ok_or_else(|| "broke".to_string()))]
    }

    #[test]
    fn rounds_are_put_together() {
        let mut column = Column::new();
        for ticks in [100, 300, 200] {
            add_round(&mut column, &round(Some(ticks)), 0.5);
        }
        assert_eq!(column, [("x".to_string(), Ok(vec![5.0, 15.0, 10.0]))]);
        let text = render(&[], &[column.clone(), column.clone(), column]);
        assert!(text.lines().last().unwrap().contains("| 1.00  | 100% 100% |"), "{text}");
    }

    #[test]
    fn a_row_that_failed_once_has_no_figure() {
        let mut column = Column::new();
        for ticks in [Some(100), None, Some(200)] {
            add_round(&mut column, &round(ticks), 1.0);
        }
        assert_eq!(column, [("x".to_string(), Err("broke".to_string()))]);
    }
}
