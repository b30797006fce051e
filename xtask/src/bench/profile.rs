//! Where our instructions go: the plugin's count of each instruction, by function and by line.
//!
//! Native programs all lie at the same addresses; the instructions' bytes tell whose one is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile64, ElfSegment64};
use object::{Endianness, Object, ObjectSegment};

use super::collect::Measured;
use super::{figures, ours, program};
use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::workspace;

/// Names functions and lines.
const ADDR2LINE: (&str, &str) = ("addr2line", "binutils");
/// Most lines of each list.
const SHOWN: usize = 40;
/// Addresses that one addr2line is asked for.
const CHUNK: usize = 2000;

/// The kernel's copies of its entry code, one for each processor (`kernel/src/cpu.rs`), and which
/// symbol they are copies of.
const ENTRY_COPIES: u64 = 0xffff_ffff_c000_0000;
const ENTRY_AREA: u64 = 256 * 1024;
const ENTRY_SYMBOL: &str = "entry_start";

/// An instruction, and how often it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Executed {
    address: u64,
    runs: u64,
    bytes: Vec<u8>,
}

/// A program whose symbols are known.
struct Binary {
    name: String,
    path: PathBuf,
    /// What is mapped: first address, bytes of the file.
    segments: Vec<(u64, Vec<u8>)>,
    /// Begin and name, in the order of the addresses.
    symbols: Vec<(u64, String)>,
}

/// Prints the profile of the one row that was measured.
pub fn print(measured: &[Measured]) -> Result<()> {
    let Some((name, Ok(samples))) = measured.first() else {
        return Err(Failure::new("nothing was measured, so there is no profile"));
    };
    let operations = (samples.operations * samples.counts.len() as u64) as f64;
    print_file(&format!("{name}, per operation"), operations)
}

/// Prints what the plugin has written, divided by the operations that it is of.
pub fn print_file(what: &str, operations: f64) -> Result<()> {
    let path = ours::profile_path()?;
    let executed = parse(&std::fs::read_to_string(&path).context(path.display())?)?;
    let binaries = binaries()?;
    let mut functions = BTreeMap::new();
    let mut calls = BTreeMap::new();
    let mut lines = BTreeMap::new();
    let mut wanted: Vec<Vec<(u64, u64)>> = vec![Vec::new(); binaries.len()];
    for executed in &executed {
        match find(&binaries, executed) {
            Some((at, address)) => {
                let binary = &binaries[at];
                let (begin, name) = symbol(&binary.symbols, address);
                let function = format!("{:8} {name}", binary.name);
                if begin == address {
                    *calls.entry(function.clone()).or_insert(0) += executed.runs;
                }
                *functions.entry(function).or_insert(0) += executed.runs;
                wanted[at].push((address, executed.runs));
            }
            None => {
                let page = format!("{:8} {:#x} and on", "?", executed.address & !0xfff);
                *functions.entry(page).or_insert(0) += executed.runs;
            }
        }
    }
    for (binary, wanted) in binaries.iter().zip(&wanted) {
        add_lines(binary, wanted, &mut lines)?;
    }
    show(&format!("{what}: instructions, by function"), &functions, operations);
    show(&format!("{what}: calls, by function"), &calls, operations);
    show(&format!("{what}: instructions, by line of source"), &lines, operations);
    Ok(())
}

/// The kernel's part of the profile, by address, and its symbols.
pub struct OfKernel {
    /// Address in the image and runs.
    pub runs: Vec<(u64, u64)>,
    symbols: Vec<(u64, String)>,
}

impl OfKernel {
    /// What the plugin has written.
    pub fn read() -> Result<Self> {
        let path = ours::profile_path()?;
        let executed = parse(&std::fs::read_to_string(&path).context(path.display())?)?;
        packages::require(&[packages::NM])?;
        let kernel = [read("kernel", &workspace::bare("kernel"))?];
        let runs = executed.iter().filter_map(|one| Some((find(&kernel, one)?.1, one.runs)));
        // Copies of the entry code are one.
        let mut sums = BTreeMap::new();
        runs.for_each(|(address, runs)| *sums.entry(address).or_insert(0) += runs);
        let [kernel] = kernel;
        Ok(Self { runs: sums.into_iter().collect(), symbols: kernel.symbols })
    }

    /// The function that an address lies in, and how far behind its beginning.
    pub fn place(&self, address: u64) -> (&str, u64) {
        let (begin, name) = symbol(&self.symbols, address);
        (name, address.saturating_sub(begin))
    }
}

fn show(title: &str, runs: &BTreeMap<String, u64>, operations: f64) {
    let mut sorted: Vec<_> = runs.iter().collect();
    sorted.sort_by_key(|(_, runs)| std::cmp::Reverse(**runs));
    println!("\n{title}");
    for (name, runs) in sorted.iter().take(SHOWN) {
        println!("{:>10}  {name}", figures::show(**runs as f64 / operations));
    }
    let rest: u64 = sorted.iter().skip(SHOWN).map(|(_, runs)| **runs).sum();
    if rest > 0 {
        println!(
            "{:>10}  {} others",
            figures::show(rest as f64 / operations),
            sorted.len() - SHOWN
        );
    }
}

/// `ADDRESS RUNS BYTES`, the first and the last in hexadecimal.
fn parse(text: &str) -> Result<Vec<Executed>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let runs = words.next()?.parse().ok()?;
        let digits = words.next()?.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        Some(Executed { address, runs, bytes: digits.map(byte).collect::<Option<_>>()? })
    };
    let wrong = || Failure::new("the plugin's profile is malformed");
    text.lines().map(|text| line(text).ok_or_else(wrong)).collect()
}

/// Which binary an instruction is of, and its address there.
fn find(binaries: &[Binary], executed: &Executed) -> Option<(usize, u64)> {
    let holds = |binary: &Binary, address: u64| {
        binary.segments.iter().any(|(begin, bytes)| {
            let offset =
                address.checked_sub(*begin).and_then(|offset| usize::try_from(offset).ok());
            offset
                .and_then(|offset| bytes.get(offset..))
                .is_some_and(|rest| rest.starts_with(&executed.bytes))
        })
    };
    let direct = binaries.iter().position(|binary| holds(binary, executed.address));
    if let Some(at) = direct {
        return Some((at, executed.address));
    }
    let copied = executed.address.checked_sub(ENTRY_COPIES)? % ENTRY_AREA % 0x1000;
    let in_kernel = |binary: &Binary| {
        let entry = binary.symbols.iter().find(|(_, name)| name == ENTRY_SYMBOL)?.0;
        holds(binary, entry + copied).then_some(entry + copied)
    };
    binaries.iter().enumerate().find_map(|(at, binary)| Some((at, in_kernel(binary)?)))
}

/// The symbol that begins at or before the address, and where.
fn symbol(symbols: &[(u64, String)], address: u64) -> (u64, &str) {
    let behind = symbols.partition_point(|(begin, _)| *begin <= address);
    behind.checked_sub(1).map_or((0, "?"), |at| (symbols[at].0, symbols[at].1.as_str()))
}

/// Everything that may run: the kernel, ExOS, native programs, the benchmark program.
fn binaries() -> Result<Vec<Binary>> {
    packages::require(&[packages::NM, ADDR2LINE])?;
    let mut binaries =
        vec![read("kernel", &workspace::bare("kernel"))?, read("bench", &program::path()?)?];
    for name in workspace::native_programs()? {
        binaries.push(read(&name, &workspace::bare(&name))?);
    }
    Ok(binaries)
}

fn read(name: &str, path: &Path) -> Result<Binary> {
    let file = std::fs::read(path).context(path.display())?;
    let wrong = |error: object::Error| Failure::new(format!("{}: {error}", path.display()));
    let elf = ElfFile64::<Endianness>::parse(&*file).map_err(wrong)?;
    let segment = |segment: ElfSegment64<'_, '_>| Ok((segment.address(), segment.data()?.to_vec()));
    let segments = elf.segments().map(segment).collect::<object::Result<_>>().map_err(wrong)?;
    let list = process::output(Command::new("nm").args(["-C", "-n", "--defined-only"]).arg(path))?;
    Ok(Binary { name: name.into(), path: path.into(), segments, symbols: symbols(&list) })
}

/// `ADDRESS KIND NAME`; of several at one address the first.
fn symbols(list: &str) -> Vec<(u64, String)> {
    let line = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let (kind, name) = rest.split_once(' ')?;
        let text = matches!(kind, "t" | "T" | "w" | "W" | "i");
        Some((u64::from_str_radix(address, 16).ok().filter(|_| text)?, name.to_string()))
    };
    let mut symbols: Vec<_> = list.lines().filter_map(line).collect();
    symbols.dedup_by_key(|(address, _)| *address);
    symbols
}

/// Adds the runs of each address to its line.
fn add_lines(
    binary: &Binary,
    wanted: &[(u64, u64)],
    lines: &mut BTreeMap<String, u64>,
) -> Result<()> {
    for chunk in wanted.chunks(CHUNK) {
        let mut command = Command::new(ADDR2LINE.0);
        command.arg("-a").arg("-i").arg("-e").arg(&binary.path);
        command.args(chunk.iter().map(|(address, _)| format!("{address:#x}")));
        let answer = process::output(&mut command)?;
        let root = format!("{}/", workspace::root().display());
        for (place, (_, runs)) in places(&answer, &root).zip(chunk) {
            *lines.entry(format!("{:8} {place}", binary.name)).or_insert(0) += runs;
        }
    }
    Ok(())
}

/// For each address its line; of what was inlined, the innermost line that is the tree's own.
/// addr2line writes an address, then a line for each frame.
fn places<'a>(answer: &'a str, root: &'a str) -> impl Iterator<Item = &'a str> {
    answer.split("0x").skip(1).map(move |entry| {
        let frames =
            || entry.lines().skip(1).map(|frame| frame.split(" (").next().unwrap_or(frame));
        let own = frames().find_map(|frame| frame.strip_prefix(root));
        own.or_else(|| frames().next()).unwrap_or("?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(name: &str, address: u64, bytes: &[u8], symbols: &[(u64, &str)]) -> Binary {
        Binary {
            name: name.into(),
            path: PathBuf::new(),
            segments: vec![(address, bytes.to_vec())],
            symbols: symbols.iter().map(|(at, name)| (*at, name.to_string())).collect(),
        }
    }

    #[test]
    fn the_profile_is_read() {
        let executed = parse("400000 12 0f05\n").unwrap();
        assert_eq!(executed, [Executed { address: 0x40_0000, runs: 12, bytes: vec![0x0f, 5] }]);
        assert!(parse("400000 12\n").is_err() && parse("400000 12 zz\n").is_err());
        assert!(parse("x 12 00\n").is_err());
    }

    #[test]
    fn bytes_tell_programs_at_one_address_apart() {
        let binaries = [
            binary("one", 0x1000, &[1, 2, 3], &[]),
            binary("two", 0x1000, &[1, 9, 3], &[]),
            binary(
                "kernel",
                0xffff_ffff_8020_0000,
                &[7, 8],
                &[(0xffff_ffff_8020_0000, ENTRY_SYMBOL)],
            ),
        ];
        let at = |address: u64, bytes: &[u8]| {
            find(&binaries, &Executed { address, runs: 1, bytes: bytes.to_vec() })
        };
        assert_eq!(at(0x1001, &[2]), Some((0, 0x1001)));
        assert_eq!(at(0x1001, &[9, 3]), Some((1, 0x1001)));
        assert_eq!(at(0x1001, &[5]), None);
        assert_eq!(at(ENTRY_COPIES + ENTRY_AREA + 1, &[8]), Some((2, 0xffff_ffff_8020_0001)));
    }

    #[test]
    fn inlined_lines_of_foreign_code_are_their_callers() {
        let answer = "0x10\n/std/ptr.rs:5\n/tree/a.rs:7 (discriminator 2)\n/tree/b.rs:9\n\
                      0x11\nc.c:?\n";
        assert_eq!(places(answer, "/tree/").collect::<Vec<_>>(), ["a.rs:7", "c.c:?"]);
    }

    #[test]
    fn symbols_hold_until_the_next() {
        let symbols = symbols("0010 T a\n0010 T alias\n0020 d data\n0030 t b::c<d e>\n");
        assert_eq!(symbols.len(), 2);
        assert_eq!((symbol(&symbols, 0x10).1, symbol(&symbols, 0x2f)), ("a", (0x10, "a")));
        assert_eq!((symbol(&symbols, 0x31).1, symbol(&symbols, 0xf).1), ("b::c<d e>", "?"));
    }
}
