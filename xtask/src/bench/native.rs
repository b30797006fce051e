//! Rows of the kernel's own mechanisms, which only a native program can use.

use std::time::Duration;

use super::collect::{self, Measured, Said};
use super::figures::{Figures, show};
use super::program::Row;
use super::table::{self, Column};
use super::{counts, ours, plugin, raw};
use crate::failure::{Context, Failure, Result};
use crate::machine::Counting;
use crate::report;
use crate::run::{self, Job};

/// The program, in the image.
const PROGRAM: &str = "/xok/native-bench";
/// How long one boot may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Boots of which the one with the fastest loads counts.
const ROOT_LOAD_BOOTS: u32 = 3;

/// Name, way, what one operation is, and the row of Linux's that does the same for a program.
type Native = (&'static str, &'static str, &'static str, &'static str);

const ROUND: &str = "round trip";
const ROWS: [Native; 24] = [
    ("n_null", ROUND, "native: a call whose number is refused", "getppid"),
    ("n_method", ROUND, "native: a method of eight instructions, bound to a region", "seccomp"),
    ("n_timer", ROUND, "native: the cheapest call that changes something, TimerSet", "getppid"),
    ("n_fault", ROUND, "native: ud2, upcall, handler, return", "sig_ill"),
    ("n_trap", ROUND, "native: load of an unmapped page, upcall, handler, return", "sig_segv"),
    ("n_prot1", ROUND, "native: read-protect one page", "prot1"),
    ("n_prot100", ROUND, "native: read-protect 100 pages in one call", "prot100"),
    ("n_unprot100", ROUND, "native: unprotect 100 pages in one call", "unprot100"),
    ("n_appel2", ROUND, "native: protect 100 pages, store to each, handler unprotects", "appel2"),
    (
        "n_pager",
        ROUND,
        "native: store to a missing page, handler enters and fills it",
        "userfaultfd",
    ),
    ("n_dirty", ROUND, "native: ask whether a page is dirty", "dirty"),
    ("n_pct_same", ROUND, "native: transfer to another environment of one's space, reply", "futex"),
    ("n_pct_other", ROUND, "native: transfer to another space, reply", "pipe1"),
    ("n_tlrpc", ROUND, "native: the same, a server trusted to keep registers", "pipe1"),
    ("n_yield", ROUND, "native: yield to another space, which yields back", "shm_yield"),
    ("n_pipe", ROUND, "native: a word through pipes in shared pages", "pipe1"),
    ("n_pipe_inlined", ROUND, "native: the same as part of the program", "pipe1"),
    ("n_shm", ROUND, "native: a counter in a shared page, yield to the partner", "shm_yield"),
    ("n_visit", ROUND, "native: into a compartment of the program, and home", "pipe1"),
    ("n_board10", ROUND, "native: one of ten conditions notified of, both ways", "eventfd"),
    ("n_board10k", ROUND, "native: one of ten thousand conditions, both ways", "eventfd"),
    ("n_board_1k_asleep", ROUND, "native: n_board10 beside 1,000 false predicates", "eventfd"),
    ("n_turns_1k_asleep", ROUND, "native: yield to who is next, 1,000 false predicates", "yield"),
    ("n_thread", ROUND, "native: a thread of one's own lets another run, which does so", "futex"),
];

/// All of them.
pub fn rows() -> Vec<Row> {
    let row = |(name, way, what, _): &Native| {
        let [name, way, what] = [name, way, what].map(|text| text.to_string());
        Row { name, way, what }
    };
    ROWS.iter().map(row).collect()
}

/// Counts the instructions of these.
pub fn count(rows: &[String], samples: u32, profile: bool) -> Result<Vec<Measured>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let recorded = super::file("native.counts")?;
    let profile = profile.then(ours::profile_path).transpose()?;
    let counting = plugin::counting(&recorded, profile.as_deref())?;
    measure(rows, samples, Some(counting), || {
        let text = std::fs::read_to_string(&recorded).context(recorded.display())?;
        Ok(Some(counts::parse(&text)?))
    })
}

/// The row of Linux's that does the same for a program.
pub fn beside_row(name: &str) -> &'static str {
    ROWS.iter().find(|row| row.0 == name).map_or("", |row| row.3)
}

/// Takes the time of these, in ticks of the time-stamp counter.
pub fn time(rows: &[String], samples: u32) -> Result<Vec<Measured>> {
    measure(rows, samples, None, || Ok(None))
}

/// Nanoseconds of a load of CR3 with nothing around it, the least of some boots' averages: what
/// each switch between spaces takes at the least, whatever a kernel does.
pub fn root_load() -> Result<f64> {
    let settings = [("init", PROGRAM), ("rows", "n_null"), ("provoke", "root-loads")];
    let job = Job {
        machine: ours::machine(None),
        settings: settings.map(|(key, value)| (key.to_string(), value.to_string())).to_vec(),
        limit: Some(LIMIT),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let mut least = f64::INFINITY;
    for _ in 0..ROOT_LOAD_BOOTS {
        let said = run::capture(&job, &image.path, None, |_| ())?.log;
        let each = said.iter().find_map(|line| {
            let (_, loads) = line.split_once("loads of CR3 in ")?;
            loads.rsplit_once(", ")?.1.strip_suffix(" each")?.parse().ok()
        });
        let Some(each) = each else {
            return Err(Failure::new(format!("no loads in the log:\n{}", said.join("\n"))));
        };
        least = least.min(each);
    }
    Ok(least)
}

fn measure(
    rows: &[String],
    samples: u32,
    counting: Option<Counting>,
    recording: impl Fn() -> Result<Option<counts::Recording>>,
) -> Result<Vec<Measured>> {
    let mut job = Job { machine: ours::machine(counting), limit: Some(LIMIT), ..Job::default() };
    let image = run::make_image(&job)?;
    collect::rows(rows, |rows| {
        report::step(&format!("here, native: {}", rows.join(" ")));
        job.settings =
            [("init", PROGRAM), ("rows", &rows.join(",")), ("samples", &samples.to_string())]
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .to_vec();
        let captured = run::capture(&job, &image.path, None, |_| ())?;
        let console = captured.log.join("\n");
        raw::keep("native", &console)?;
        Ok(Said { console, recording: recording()? })
    })
}

/// Ours beside the rows of Linux's that do the same for a program.
pub fn beside(ours: &Column, linux: &Column) -> String {
    let line = |(name, outcome): &(String, std::result::Result<Figures, String>)| {
        let (_, way, what, other) = ROWS.iter().find(|row| row.0 == name)?;
        let theirs = linux.iter().find(|(name, _)| name == other);
        let theirs = theirs.and_then(|(_, outcome)| outcome.as_ref().ok());
        let mut cells = vec![name.clone(), way.to_string()];
        match outcome {
            Ok(own) => cells.extend([own.user, own.kernel, own.total].map(show)),
            Err(_) => cells.extend(["-"; 3].map(String::from)),
        }
        cells.push(other.to_string());
        cells.push(theirs.map_or("-".into(), |theirs| show(theirs.total)));
        cells.push(match (outcome, theirs) {
            (Ok(own), Some(theirs)) => format!("{:.3}", own.total / theirs.total),
            _ => "-".into(),
        });
        cells.push(outcome.as_ref().map_or_else(Clone::clone, table::events));
        cells.push(what.to_string());
        Some(cells)
    };
    let head =
        ["row", "way", "user", "kernel", "sum", "beside", "Linux", "ratio", "events", "what it is"];
    table::markdown(&head, ours.iter().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_rows_stand_beside_linux_rows() {
        let column = |name: &str, total: f64| {
            vec![(name.to_string(), Ok(Figures { total, ..Figures::default() }))]
        };
        let table = beside(&column("n_null", 100.0), &column("getppid", 400.0));
        assert!(table.lines().last().unwrap().contains("| 0.250 |"), "{table}");
        let alone = beside(&column("n_null", 100.0), &Vec::new());
        assert!(alone.lines().last().unwrap().contains("| -     | -"), "{alone}");
    }
}
