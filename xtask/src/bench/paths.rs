//! The paths gone most often, a null call, a fault, a transfer and a yield, by instruction.
//!
//! What is listed is what the plugin saw run, with the built kernel's own instructions beside. The
//! page is committed; a test measures again, and fails where a path has grown.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use super::profile::OfKernel;
use super::{figures, native};
use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::workspace;

/// Where the listing is.
pub const PAGE: &str = "docs/results/0006-paths.md";
/// Samples of each path: what is counted repeats exactly, the first warms up.
const SAMPLES: u32 = 3;
const TITLE: &str = "# The kernel's shortest paths, instruction by instruction";

/// What stands above the table, in lines as wide as prose is in the documents.
const ABOUT: &str = "\
`cargo xtask bench --paths` writes this page: what the plugin saw run inside of the samples, from
the kernel as it is built. Instructions of the kernel for one way, from the processor's entry to its
return; `bench/no_path_has_grown` measures again and fails where one is longer than here.

| row | kernel, one way | what it is |
|---|---|---|
";
const ABOUT_LISTINGS: &str = "\
Below, for each operation (transfer and yield: there and back): how often an instruction ran, where
it stands in its function, and what it is. Both are in the order of their addresses.
";

/// Counted only: its listing is the other transfer's, but for the load of CR3.
const SAME: &str = "n_pct_same";

/// A row of the bench, how many ways through the kernel one operation goes, and what they are.
type Path = (&'static str, f64, &'static str);

const PATHS: [Path; 5] = [
    ("n_null", 1.0, "a call whose number is refused"),
    ("n_fault", 1.0, "a fault, delivered to the program's handler; the way back needs no kernel"),
    ("n_pct_other", 2.0, "a transfer to another space, and its reply"),
    (SAME, 2.0, "a transfer to an environment of the same space, and its reply"),
    ("n_yield", 2.0, "a yield to an environment of another space, and one back"),
];

/// Instructions of the kernel for one way, by row.
pub type Lengths = BTreeMap<String, f64>;

/// Measures all paths and writes the page.
pub fn write() -> Result<()> {
    packages::require(&[packages::OBJDUMP])?;
    let texts = instructions(&process::output(
        Command::new(packages::OBJDUMP.0)
            .args(["-d", "-w", "-M", "intel", "--no-show-raw-insn", "--prefix-addresses"])
            .arg(workspace::bare("kernel")),
    )?);
    let mut table = String::new();
    let mut listings = String::new();
    for (row, ways, what) in PATHS {
        let measured = native::count(&[row.to_string()], SAMPLES, true)?;
        let Some((_, Ok(samples))) = measured.first() else {
            return Err(Failure::new(format!("{row}: not measured")));
        };
        let length = figures::of(samples).kernel / ways;
        let _ = writeln!(table, "| {row} | {} | {what} |", figures::show(length));
        let operations = (samples.operations * samples.counts.len() as u64) as f64;
        if row == SAME {
            continue;
        }
        let _ = writeln!(listings, "\n## {row}: {what}\n\n```text");
        listing(&mut listings, operations, &texts)?;
        listings += "```\n";
    }
    let page = format!("{TITLE}\n\n{ABOUT}{table}\n{ABOUT_LISTINGS}{listings}");
    std::fs::write(workspace::root().join(PAGE), page).context(PAGE)
}

/// The kernel's instructions in the profile that was written last, by function.
fn listing(out: &mut String, operations: f64, texts: &BTreeMap<u64, String>) -> Result<()> {
    let kernel = OfKernel::read()?;
    let mut function = "";
    for &(address, runs) in &kernel.runs {
        let (name, offset) = kernel.place(address);
        if name != function {
            let _ = writeln!(out, "{name}");
            function = name;
        }
        let text = texts.get(&address).map_or("?", String::as_str);
        let text = leading_somewhere(text, |target| kernel.place(target));
        let runs = figures::show(runs as f64 / operations);
        let _ = writeln!(out, "{runs:>8} {offset:+6x}  {text}");
    }
    Ok(())
}

/// A jump's or a call's text, with the function that it leads into instead of an address.
fn leading_somewhere<'a>(text: &str, place: impl Fn(u64) -> (&'a str, u64)) -> String {
    let target = text.split_once(" <").and_then(|(text, _)| {
        let (operation, digits) = text.split_once(' ')?;
        Some((operation, u64::from_str_radix(digits, 16).ok()?))
    });
    let Some((operation, target)) = target else { return text.into() };
    let (name, offset) = place(target);
    format!("{operation} {name}{offset:+x}")
}

/// Instructions by address, from objdump's `ADDRESS <SYMBOL+OFFSET> TEXT`.
fn instructions(listing: &str) -> BTreeMap<u64, String> {
    let line = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
        // A symbol has no "> " but at its end: names are not demangled.
        let (_, text) = rest.split_once("> ")?;
        let text = text.split("  #").next().unwrap_or(text);
        Some((address, text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    listing.lines().filter_map(line).collect()
}

/// What the page says, for the test.
pub fn written() -> Result<Lengths> {
    let page = std::fs::read_to_string(workspace::root().join(PAGE)).context(PAGE)?;
    let lengths = lengths(&page);
    if lengths.len() == PATHS.len() {
        return Ok(lengths);
    }
    Err(Failure::new(format!("{PAGE} lists {} of {} paths", lengths.len(), PATHS.len())))
}

fn lengths(page: &str) -> Lengths {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let name = cells.next()?;
        let known = PATHS.iter().any(|(row, ..)| *row == name);
        Some((name.to_string(), cells.next()?.parse().ok().filter(|_| known)?))
    };
    page.lines().filter_map(row).collect()
}

/// What they are now.
pub fn measured() -> Result<Lengths> {
    let rows = PATHS.map(|(row, ..)| row.to_string());
    let measured = native::count(&rows, SAMPLES, false)?;
    let length = |(row, ways, _): &Path| match measured.iter().find(|(name, _)| name == row) {
        Some((_, Ok(samples))) => Ok((row.to_string(), figures::of(samples).kernel / ways)),
        Some((_, Err(reason))) => Err(Failure::new(format!("{row}: {reason}"))),
        None => Err(Failure::new(format!("{row}: not measured"))),
    };
    PATHS.iter().map(length).collect()
}

/// The paths that have grown, each as it was and is. What is written has been rounded.
pub fn grown(written: &Lengths, measured: &Lengths) -> Vec<String> {
    let longer = |(row, now): (&String, &f64)| {
        let before = written.get(row)?;
        (*now > before * 1.001 + 0.05).then(|| format!("{row} {before} -> {}", figures::show(*now)))
    };
    measured.iter().filter_map(longer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_read_back_and_growth_is_named() {
        let page = "| row | kernel, one way |\n|---|---|---|\n| n_null | 120 | a call |\n\
                    | n_fault | 57.0 | a fault |\n| n_other | 3 | not a path |\n";
        let written = lengths(page);
        assert_eq!(written.len(), 2);
        let now = |null: f64, fault: f64| {
            Lengths::from([("n_null".to_string(), null), ("n_fault".to_string(), fault)])
        };
        assert!(grown(&written, &now(120.0, 56.0)).is_empty());
        assert!(grown(&written, &now(120.1, 57.0)).is_empty(), "rounded");
        assert_eq!(grown(&written, &now(121.0, 58.0)), ["n_fault 57 -> 58.0", "n_null 120 -> 121"]);
    }

    #[test]
    fn jumps_say_where_they_lead() {
        let place = |address| ("entry_leave", address - 0x100);
        assert_eq!(leading_somewhere("jne 104 <_ZN1+0x4>", place), "jne entry_leave+4");
        assert_eq!(leading_somewhere("mov rax,0x104", place), "mov rax,0x104");
    }

    #[test]
    fn instructions_are_read_from_the_disassembler() {
        let text = "ffffffff80200000 <entry_start> mov    QWORD PTR [rip+0x1ff9],rsp  # 0 <x>\n\
                    ffffffff80200007 <_ZN6kernel3run+0x7> ret\n\nDisassembly of section .text:\n";
        let found = instructions(text);
        assert_eq!(found[&0xffff_ffff_8020_0000], "mov QWORD PTR [rip+0x1ff9],rsp");
        assert_eq!(found[&0xffff_ffff_8020_0007], "ret");
        assert_eq!(found.len(), 2);
    }
}
