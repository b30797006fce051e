//! What the plugin wrote: counters of each sample and milestone, by name.

use std::collections::VecDeque;

use crate::failure::{Failure, Result};

/// Counters of one sample, or since power-on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counts {
    /// Instructions of the program, of the library operating system and of the kernel, without
    /// steps of repeated string instructions.
    pub program: u64,
    pub library: u64,
    pub kernel: u64,
    /// Steps of repeated string instructions, wherever.
    pub repeated: u64,
    /// From a program or library into the kernel.
    pub entries: u64,
    pub cr3: u64,
    pub invlpg: u64,
    /// Locked operations.
    pub locked: u64,
    /// Port accesses.
    pub port: u64,
    /// wrmsr.
    pub msr: u64,
    /// xsave, xrstor and their kin.
    pub vector: u64,
}

impl Counts {
    /// All that runs outside of the kernel.
    pub fn user(&self) -> u64 {
        self.program + self.library
    }

    /// All instructions but the repeated ones.
    pub fn total(&self) -> u64 {
        self.user() + self.kernel
    }
}

/// Everything that the plugin wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// In the order of their ends.
    pub samples: VecDeque<Counts>,
    /// A number, and the counters since power-on.
    pub milestones: Vec<(u32, Counts)>,
}

/// Reads it.
pub fn parse(text: &str) -> Result<Recording> {
    let mut columns = Vec::new();
    let mut recording = Recording::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("columns") => columns = words.collect(),
            Some("sample") => recording.samples.push_back(counts(&columns, words, line)?),
            Some("milestone") => {
                let number = words.next().and_then(|word| word.parse().ok());
                let number = number.ok_or_else(|| malformed(line))?;
                recording.milestones.push((number, counts(&columns, words, line)?));
            }
            _ => return Err(malformed(line)),
        }
    }
    Ok(recording)
}

/// Reads the counters as they stand in the plugin's file, whose order `head`, what the plugin wrote
/// at its start, tells.
pub fn standing(head: &str, counters: &[u8]) -> Result<Counts> {
    let line = head.lines().next().unwrap_or("");
    let columns = line.strip_prefix("columns ").ok_or_else(|| malformed(line))?;
    let words = counters.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes).to_string()
    });
    let numbers = words.collect::<Vec<_>>().join(" ");
    let columns: Vec<&str> = columns.split_whitespace().collect();
    counts(&columns, numbers.split_whitespace(), &numbers)
}

fn counts<'a>(
    columns: &[&str],
    words: impl Iterator<Item = &'a str>,
    line: &str,
) -> Result<Counts> {
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() == columns.len());
    let numbers = numbers.ok_or_else(|| malformed(line))?;
    let column = |name: &str| {
        let at = columns.iter().position(|column| *column == name);
        at.map(|at| numbers[at]).ok_or_else(|| Failure::new(format!("plugin: no column {name}")))
    };
    Ok(Counts {
        program: column("program")?,
        library: column("library")?,
        kernel: column("kernel")?,
        repeated: column("program_rep")? + column("library_rep")? + column("kernel_rep")?,
        entries: column("entries")?,
        cr3: column("cr3")?,
        invlpg: column("invlpg")?,
        locked: column("locked")?,
        port: column("port")?,
        msr: column("msr")?,
        vector: column("vector")?,
    })
}

fn malformed(line: &str) -> Failure {
    Failure::new(format!("the counting plugin wrote {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = "columns program library kernel program_rep library_rep kernel_rep \
                           locked entries syscall return cr3 invlpg port msr vector\n";

    #[test]
    fn samples_and_milestones_are_read_by_column() {
        let text = format!(
            "{COLUMNS}milestone 0 1 0 9 0 0 0 0 0 0 1 1 0 0 0 0\n\
             sample 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n"
        );
        let recording = parse(&text).unwrap();
        assert_eq!(recording.milestones.len(), 1);
        assert_eq!((recording.milestones[0].0, recording.milestones[0].1.kernel), (0, 9));
        let sample = &recording.samples[0];
        assert_eq!((sample.user(), sample.total(), sample.repeated), (3, 6, 15));
        assert_eq!((sample.locked, sample.entries, sample.cr3), (7, 8, 11));
        assert_eq!((sample.invlpg, sample.port, sample.msr, sample.vector), (12, 13, 14, 15));
    }

    #[test]
    fn standing_counters_are_read_by_column() {
        let counters: Vec<u8> = (1..=15_u64).flat_map(u64::to_le_bytes).collect();
        let counts = standing(COLUMNS, &counters).unwrap();
        assert_eq!((counts.total(), counts.locked, counts.vector), (6, 7, 15));
        assert!(standing(COLUMNS, &counters[8..]).is_err());
        assert!(standing("", &counters).is_err());
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_refused() {
        assert!(parse(&format!("{COLUMNS}sample 1 2 3\n")).is_err());
        assert!(parse("sample 1\n").is_err());
        assert!(parse("columns program\nsample 1\n").is_err());
        assert!(parse("hello\n").is_err());
    }
}
