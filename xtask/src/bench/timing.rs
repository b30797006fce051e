//! Time, in rounds that alternate the guests: what instructions cost in QEMU's translator.

use super::collect::Measured;
use super::figures::show;
use super::linux::{self, Profile};
use super::program::{Repetition, Row};
use super::{native, ours, program, table};
use crate::failure::Result;
use crate::report;

/// Samples of one boot, and how many times longer than counted ones.
const REPETITION: Repetition = Repetition { samples: 7, scale: 4 };

/// Nanoseconds of an operation, the fastest sample of each round, which is one trial; or why there
/// are none. What else runs on the host makes samples longer, never shorter.
type Times = std::result::Result<Vec<f64>, String>;
/// One system's, by row.
type Column = Vec<(String, Times)>;

/// Measures these rows in so many rounds, here or, unless `alone`, also on Linux; the table, and
/// the nanoseconds of a tick.
pub fn measure(known: &[Row], rows: &[String], rounds: u32, alone: bool) -> Result<(String, f64)> {
    let nanoseconds = 1e9 / program::ticks_per_second()?;
    let mut columns = vec![Column::new(); if alone { 1 } else { 3 }];
    for round in 1..=rounds {
        report::step(&format!("round {round} of {rounds}"));
        let mut measured = vec![ours::time(rows, REPETITION)?];
        if !alone {
            measured.push(linux::time(Profile::Tuned, rows, REPETITION)?);
            measured.push(linux::time(Profile::Stock, rows, REPETITION)?);
        }
        for (column, measured) in columns.iter_mut().zip(measured) {
            add_round(column, &measured, nanoseconds);
        }
    }
    Ok((render(known, &columns), nanoseconds))
}

/// Measures these native rows in so many rounds, unless `alone` beside the rows of the tuned Linux
/// that do the same for a program; the table.
pub fn measure_natives(rows: &[String], rounds: u32, alone: bool) -> Result<String> {
    let nanoseconds = 1e9 / program::ticks_per_second()?;
    let mut others: Vec<String> = rows.iter().map(|row| native::beside_row(row).into()).collect();
    others.sort_unstable();
    others.dedup();
    let mut columns = [Column::new(), Column::new()];
    for round in 1..=rounds {
        report::step(&format!("native, round {round} of {rounds}"));
        add_round(&mut columns[0], &native::time(rows, REPETITION.samples)?, nanoseconds);
        if !alone {
            let theirs = linux::time(Profile::Tuned, &others, REPETITION)?;
            add_round(&mut columns[1], &theirs, nanoseconds);
        }
    }
    let mut text = render_natives(&columns);
    if rows.iter().any(|row| row == "n_pct_other") {
        let each = native::root_load()?;
        text += &format!(
            "\nA load of CR3 with nothing around it takes {each:.0} ns here; to another space and \
             back there are two.\n"
        );
    }
    Ok(text)
}

/// The same of a native row and the one that stands beside it.
fn render_natives([ours, linux]: &[Column; 2]) -> String {
    let line = |(name, own): &(String, Times)| {
        let beside = native::beside_row(name);
        let theirs = linux.iter().find(|(name, _)| name == beside);
        let theirs = theirs.and_then(|(_, times)| times.as_ref().ok());
        let own = own.as_ref();
        let cells = |times: Option<&Vec<f64>>| match times {
            Some(times) => [least(times), deviation(times)].map(show),
            None => ["-", "-"].map(String::from),
        };
        let mut line = vec![name.clone(), own.map_or(0, Vec::len).to_string()];
        line.extend(cells(own.ok()));
        line.push(beside.into());
        line.extend(cells(theirs));
        line.extend(match (own, theirs) {
            (Ok(own), Some(theirs)) => {
                let ratio = least(own) / least(theirs);
                [format!("{ratio:.3}"), format!("1/{:.1}", 1.0 / ratio)]
            }
            _ => ["-", "-"].map(String::from),
        });
        line.push(own.err().cloned().unwrap_or_default());
        line
    };
    let head =
        ["row", "trials", "ours ns", "deviation", "beside", "Linux ns", "deviation", "ratio", "as"];
    let head: Vec<&str> = head.into_iter().chain(["why not"]).collect();
    table::markdown(&head, ours.iter().map(line).collect())
}

/// The standard deviation of a sample of trials; of one nothing is known.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt()
}

/// The least of them.
fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
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

/// Of each system the least trial and the standard deviation; the ratio is of the least ones.
fn render(known: &[Row], columns: &[Column]) -> String {
    let systems = ["ours", "Linux", "stock"];
    let mut head = vec!["row".to_string(), "way".to_string(), "trials".to_string()];
    for system in &systems[..columns.len()] {
        head.extend([format!("{system} ns"), "deviation".to_string()]);
    }
    head.extend(["ratio", "why not"].map(String::from));
    let line = |(at, (name, own)): (usize, &(String, Times))| {
        let way = known.iter().find(|row| row.name == *name).map_or("", |row| row.way.as_str());
        let trials = own.as_ref().map_or(0, Vec::len);
        let mut cells = vec![name.clone(), way.to_string(), trials.to_string()];
        for column in columns {
            match &column[at].1 {
                Ok(times) => cells.extend([least(times), deviation(times)].map(show)),
                Err(_) => cells.extend(["-", "-"].map(String::from)),
            }
        }
        let tuned = columns.get(1).and_then(|column| column[at].1.as_ref().ok());
        cells.push(match (own, tuned) {
            (Ok(own), Some(tuned)) => format!("{:.2}", least(own) / least(tuned)),
            _ => "-".into(),
        });
        cells.push(own.as_ref().map_or_else(Clone::clone, |_| String::new()));
        cells
    };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table::markdown(&head, columns[0].iter().enumerate().map(line).collect())
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
    fn a_native_row_stands_beside_what_does_the_same() {
        let of = |name: &str, ns| (name.to_string(), Ok(vec![ns, 2.0 * ns]));
        let linux = vec![of("futex", 7.0), of("pipe1", 5000.0)];
        let text = render_natives(&[vec![of("n_pct_other", 200.0)], linux]);
        let last = text.lines().last().unwrap();
        assert!(last.contains("| pipe1  | 5000") && last.contains("| 0.040 | 1/25.0 |"), "{text}");
        let text = render_natives(&[vec![("n_null".into(), Err("broke".into()))], Column::new()]);
        assert!(text.lines().last().unwrap().contains("broke"), "{text}");
    }

    #[test]
    fn rounds_are_put_together() {
        let mut column = Column::new();
        for ticks in [100, 300, 200] {
            add_round(&mut column, &round(Some(ticks)), 0.5);
        }
        assert_eq!(column, [("x".to_string(), Ok(vec![5.0, 15.0, 10.0]))]);
        let text = render(&[], &[column.clone(), column.clone(), column]);
        let last = text.lines().last().unwrap();
        assert!(last.contains("| 3      | 5.00    | 5.00      |"), "{text}");
        assert!(last.contains("| 1.00  |"), "{text}");
    }

    /// thesis98 Z-69: of all trials the least, and how far they are apart.
    #[test]
    fn trials_give_their_least_and_their_deviation() {
        let trials = [7.0, 2.0, 4.0, 4.0, 5.0, 5.0, 4.0, 9.0, 6.0, 4.0];
        assert_eq!(least(&trials), 2.0);
        // Mean 5, squares 34, of nine degrees of freedom.
        assert!((deviation(&trials) - (34.0_f64 / 9.0).sqrt()).abs() < 1e-12);
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
