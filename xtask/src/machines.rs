//! `cargo xtask machines`: the table of machines, each cell booted and looked at from inside.

use std::fmt::Write;
use std::path::PathBuf;

use crate::boot_image::Extra;
use crate::build;
use crate::compile;
use crate::failure::{Context, Result};
use crate::iso::native;
use crate::options::{self, Options};
use crate::report;
use crate::run::{self, TemporaryImage};
use crate::tally::{Tally, Verdict};
use crate::workspace;

mod cell;
mod cover;
mod visit;

pub use cell::Cell;

/// Where the program that looks lies in the guest.
const PROGRAM: &str = "/bin/machine";
/// Programs that only tests run: on 16 MiB there is no room for them.
const TESTS: [&str; 4] = ["exos-tests", "guest-tests", "native-bench", "net-tests"];
/// Bytes of the disk that some have.
const DISK_BYTES: u64 = 64 << 20;

/// What all cells need.
pub struct Files {
    image: TemporaryImage,
    disk: PathBuf,
}

impl Files {
    /// The program compiled, the image made, an empty disk.
    pub fn make() -> Result<Self> {
        let program = compile::directory("tests/machine", "machine", &["-static", "-pthread"])?;
        let mut job = run::Job { leaves_out: &TESTS, ..run::Job::default() };
        job.extras.push(Extra { host: program, guest: PROGRAM.into() });
        let disk = workspace::output().join(format!("disk-{}.img", std::process::id()));
        let file = std::fs::File::create(&disk).context(disk.display())?;
        file.set_len(DISK_BYTES).context(disk.display())?;
        Ok(Self { image: run::make_image(&job)?, disk })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A file too many in the target directory harms nobody.
        let _ = std::fs::remove_file(&self.disk);
    }
}

/// The suite: boots the cells of the covering table that are wanted.
pub fn test(tally: &mut Tally) -> Result<()> {
    visit_all(&cover::pairs(), tally)?;
    Ok(())
}

/// `cargo xtask machines [--only PATTERN] [--all] [--list] [--output FILE]`; answers the status.
pub fn command(words: Vec<String>) -> Result<u8> {
    let mut options = Options::new(words);
    let mut only = None;
    let mut list = false;
    let mut cells = cover::pairs();
    let mut output = None;
    while let Some(word) = options.next() {
        match word.as_str() {
            "--only" => only = Some(options.value("--only")?),
            "--all" => cells = cover::everything(),
            "--list" => list = true,
            "--output" => output = Some(options.value("--output")?),
            _ => return Err(options::unknown("machines", &word)),
        }
    }
    if list {
        let names = cells.iter().map(Cell::name).chain(native::CPUS.map(bochs));
        names.for_each(|name| println!("{name}"));
        return Ok(0);
    }
    build::build()?;
    let mut tally = Tally::new(only.clone(), None, false);
    let visited = visit_all(&cells, &mut tally)?;
    for cpus in native::CPUS {
        if only.as_ref().is_none_or(|only| format!("machines/{}", bochs(cpus)).contains(only)) {
            native::run(&mut tally, cpus, &[])?;
        }
    }
    if let Some(output) = output {
        std::fs::write(&output, document(&visited)).context(output)?;
    }
    tally.conclude();
    tally.check_pattern(&["machines".into()])?;
    Ok(u8::from(tally.failed() > 0))
}

/// The cells that were booted, each with its verdict.
fn visit_all(cells: &[Cell], tally: &mut Tally) -> Result<Vec<(Cell, Verdict)>> {
    let wanted = |cell: &&Cell| tally.wants(&test_name(cell));
    let wanted: Vec<Cell> = cells.iter().filter(wanted).copied().collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let files = Files::make()?;
    let mut visited = Vec::new();
    for cell in wanted {
        let verdict =
            visit::visit(&cell, &files).unwrap_or_else(|failure| Err(failure.to_string()));
        tally.record(&test_name(&cell), "", verdict.clone());
        visited.push((cell, verdict));
    }
    report::step(&format!("{} machines booted", visited.len()));
    Ok(visited)
}

/// What Bochs is called beside the cells, of which it is none: the native suite runs there.
fn bochs(cpus: u32) -> String {
    format!("bochs-x{cpus}")
}

fn test_name(cell: &Cell) -> String {
    format!("machines/{}", cell.name())
}

/// The table as a page.
fn document(visited: &[(Cell, Verdict)]) -> String {
    let mut text = String::from(
        "# The table of machines\n\n\
         Made by `cargo xtask machines --output FILE`; one cell is booted by\n\
         `cargo xtask machines --only CELL`. Every two properties meet in some cell. In each, a\n\
         Linux program runs a thread on every processor, keeps values in vector registers across\n\
         switches, fills memory and finds it as it was, asks twice for randomness, and reads a\n\
         word from the host where there is a network (tests/machine). *free* is what programs\n\
         may have, in MiB.\n\n\
         | cell | type | MiB | processors | model | disk | network | rng | free | result |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let has = |device: bool| if device { "yes" } else { "-" };
    for (cell, verdict) in visited {
        let (free, result) = match verdict {
            Ok(free) => (free.as_str(), "pass"),
            Err(reason) => ("-", reason.as_str()),
        };
        let (machine, memory, cpus, model) =
            (cell.machine.name, cell.memory, cell.cpus, cell.model);
        let devices = [cell.disk, cell.network, cell.rng].map(has).join(" | ");
        let name = cell.name();
        let words = model.words;
        // A String takes everything.
        let _ = writeln!(
            text,
            "| {name} | {machine} | {memory} | {cpus} | `{words}` | {devices} | {free} | {result} |"
        );
    }
    text
}
