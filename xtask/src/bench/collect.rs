//! Runs rows in a guest until each has its samples, or the reason why it has none.
//!
//! A guest reports twice: the program on its console, the plugin in its file.

use super::console::{self, Timed};
use super::counts::{Counts, Recording};
use crate::failure::{Failure, Result};

/// A row's samples, the one that warms up left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Operations of each.
    pub operations: u64,
    /// What the plugin counted; nothing if there was none.
    pub counts: Vec<Counts>,
    /// Ticks of the time-stamp counter.
    pub ticks: Vec<u64>,
}

/// A row's name, and its samples or why there are none.
pub type Measured = (String, std::result::Result<Samples, String>);

/// What one boot said.
pub struct Said {
    /// The benchmark program's output.
    pub console: String,
    /// What the plugin wrote, if one counted.
    pub recording: Option<Recording>,
}

/// Measures `rows`; `boot` runs those it is given. A row that ends the guest gets that as its
/// reason, and the rows behind it another boot.
pub fn rows(
    rows: &[String],
    mut boot: impl FnMut(&[String]) -> Result<Said>,
) -> Result<Vec<Measured>> {
    let mut measured: Vec<Measured> = Vec::new();
    while measured.len() < rows.len() {
        let said = boot(&rows[measured.len()..])?;
        let more = join(said)?;
        if more.is_empty() {
            return Err(Failure::new("the benchmark program measured nothing"));
        }
        measured.extend(more);
    }
    Ok(measured)
}

fn join(said: Said) -> Result<Vec<Measured>> {
    let mut counted = said.recording.map(|recording| recording.samples);
    let mut measured = Vec::new();
    for (name, outcome) in console::parse(&said.console) {
        let outcome = match outcome {
            Ok(timed) => Ok(samples(&name, timed, &mut counted)?),
            Err(reason) => Err(reason),
        };
        measured.push((name, outcome));
    }
    Ok(measured)
}

/// The plugin's samples come in the order of the program's: both went through the same markers.
fn samples(
    name: &str,
    timed: Timed,
    counted: &mut Option<std::collections::VecDeque<Counts>>,
) -> Result<Samples> {
    let Timed { operations, ticks } = timed;
    let counts = match counted {
        Some(counted) if counted.len() < ticks.len() => {
            return Err(Failure::new(format!("{name}: fewer samples counted than timed")));
        }
        Some(counted) => counted.drain(..ticks.len()).skip(1).collect(),
        None => Vec::new(),
    };
    Ok(Samples { operations, counts, ticks: ticks[1..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn recording(programs: &[u64]) -> Option<Recording> {
        let count = |&program: &u64| Counts { program, ..Counts::default() };
        let samples: VecDeque<_> = programs.iter().map(count).collect();
        Some(Recording { samples, milestones: Vec::new() })
    }

    #[test]
    fn the_samples_of_both_reports_are_put_together() {
        let console =
            "start a\nrow a operations 1 ticks 9 2 3\nstart b\nrow b operations 1 ticks 9 4\n";
        let said = Said { console: console.into(), recording: recording(&[8, 1, 2, 8, 3]) };
        let measured = join(said).unwrap();
        let programs = |at: usize| {
            let samples = measured[at].1.as_ref().unwrap();
            samples.counts.iter().map(|counts| counts.program).collect::<Vec<_>>()
        };
        assert_eq!((programs(0), programs(1)), (vec![1, 2], vec![3]));
        assert_eq!(measured[0].1.as_ref().unwrap().ticks, [2, 3]);
    }

    #[test]
    fn missing_samples_are_noticed() {
        let console = "start a\nrow a operations 1 ticks 9 2 3\n".to_string();
        assert!(join(Said { console, recording: recording(&[8, 1]) }).is_err());
    }

    #[test]
    fn the_rows_behind_a_death_are_run_again() {
        let names: Vec<String> = ["a", "b", "c"].iter().map(|name| name.to_string()).collect();
        let mut boots = Vec::new();
        let measured = rows(&names, |rows| {
            boots.push(rows.to_vec());
            let console = match rows[0].as_str() {
                "a" => "start a\nrow a operations 1 ticks 1 1\nstart b\n",
                _ => "start c\ndash c no\n",
            };
            Ok(Said { console: console.into(), recording: None })
        });
        assert_eq!(measured.unwrap().len(), 3);
        assert_eq!(boots, [names.clone(), names[2..].to_vec()]);
    }

    #[test]
    fn a_guest_that_says_nothing_is_a_failure() {
        let said = |_: &[String]| Ok(Said { console: String::new(), recording: None });
        assert!(rows(&["a".to_string()], said).is_err());
    }
}
