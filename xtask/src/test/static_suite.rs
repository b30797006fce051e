//! What can be seen without running anything: the table of calls, and what was built.

use std::path::Path;
use std::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::packages;
use crate::process;
use crate::tally::{Tally, Test, Verdict};
use crate::workspace;

const TESTS: [Test; 9] = [
    ("static/calls_fit_in_64_rows", calls_fit),
    ("static/no_call_is_unix", no_call_is_unix),
    ("static/calls_that_name_no_capability_act_on_the_caller", calls_without_capability),
    ("static/kernel_has_no_protocol_or_unix_object", kernel_symbols),
    ("static/env_lookup_is_an_index", env_lookup),
    ("static/no_condition_names_a_stack_model", conditions),
    ("static/nothing_bare_uses_vector_registers", no_vector_registers),
    ("static/ways_out_have_verw_beside_them", ways_out),
    ("static/no_fault_is_planted", no_fault_is_planted),
];

/// What UNIX or a protocol would put into a kernel, as words of names.
const FOREIGN_WORDS: [&str; 20] = [
    "fork", "exec", "pipe", "socket", "signal", "file", "open", "inode", "process", "pid", "tcp",
    "udp", "ip", "arp", "icmp", "http", "dns", "vfs", "errno", "smoltcp",
];
/// Those of them that no symbol may have; the others are words that code has for its own reasons.
const SYMBOL_WORDS: [&str; 12] = [
    "fork", "pipe", "socket", "inode", "tcp", "udp", "arp", "icmp", "http", "vfs", "errno",
    "smoltcp",
];
/// Calls that act on nobody but their caller, or that the design lets anyone make: yield, sleep,
/// transfer, what gives up or reads something of one's own, the question whom a domain acts for.
const OWN_CALLS: [&str; 22] = [
    "Yield",
    "Sleep",
    "TransferSync",
    "TransferAsync",
    "EnvForget",
    "EnvEntrust",
    "CapabilityDrop",
    "DomainHolds",
    "CapabilityEnter",
    "RegionDetach",
    "RegionOperate",
    "RegionAwait",
    "RegionStep",
    "RegionStepOrWait",
    "MethodCall",
    "PredicateSet",
    "TimerSet",
    "RingAlloc",
    "RingModify",
    "RingFree",
    "FilterDrop",
    "Entropy",
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    tally.run(&TESTS);
    Ok(())
}

fn calls_fit() -> Result<Verdict> {
    let rows = abi::call::TABLE.len();
    Ok(if (1..=64).contains(&rows) {
        Ok(format!("({rows} rows)"))
    } else {
        Err(format!("{rows} rows"))
    })
}

fn no_call_is_unix() -> Result<Verdict> {
    let names = abi::call::TABLE.iter().map(|entry| entry.name.to_string());
    Ok(refuse_words(names, &FOREIGN_WORDS))
}

fn calls_without_capability() -> Result<Verdict> {
    let unguarded = abi::call::TABLE.iter().filter(|entry| !entry.capability);
    let others: Vec<&str> =
        unguarded.map(|entry| entry.name).filter(|name| !OWN_CALLS.contains(name)).collect();
    Ok(if others.is_empty() { Ok(String::new()) } else { Err(others.join(" ")) })
}

fn kernel_symbols() -> Result<Verdict> {
    packages::require(&[packages::NM])?;
    let kernel = workspace::bare("kernel");
    let list = process::output(Command::new(packages::NM.0).arg("--demangle").arg(&kernel))?;
    let names: Vec<String> = list.lines().map(str::to_string).collect();
    // Without symbols nothing would be found, and nothing shown.
    if names.len() < 100 {
        return Err(Failure::new(format!("{}: has no symbols to look at", kernel.display())));
    }
    Ok(refuse_words(names.into_iter(), &SYMBOL_WORDS))
}

/// The function of the kernel that every call with an environment's id goes through; the lookup is
/// compiled into it.
const LOOKUP: &str = "kernel_core::env::controlled";

/// From id to environment by shifts and adds: no search, no hash, no division.
fn env_lookup() -> Result<Verdict> {
    packages::require(&[packages::OBJDUMP])?;
    let mut objdump = Command::new(packages::OBJDUMP.0);
    objdump.args(["--demangle", "--no-show-raw-insn"]);
    objdump.arg(format!("--disassemble={LOOKUP}")).arg(workspace::bare("kernel"));
    let text = process::output(&mut objdump)?;
    Ok(judge_lookup(&text))
}

fn judge_lookup(disassembly: &str) -> Verdict {
    let code: Vec<(u64, &str)> = disassembly.lines().filter_map(instruction).collect();
    if code.len() < 10 {
        return Err(format!("{LOOKUP}: not found"));
    }
    if let Some((address, text)) = code.iter().find(|(_, text)| text.contains("div")) {
        return Err(format!("{address:x}: {text}"));
    }
    if has_loop(&code) {
        return Err("it has a loop".into());
    }
    let shifts = code.iter().filter(|(_, text)| text.starts_with("shl")).count();
    if shifts == 0 { Err("no shift".into()) } else { Ok(format!("({} instructions)", code.len())) }
}

/// Whether execution can come to an instruction twice: instructions that lead nowhere any more are
/// taken away until none is left, or only those that lead to each other.
fn has_loop(code: &[(u64, &str)]) -> bool {
    let place = |address: u64| code.iter().position(|(at, _)| *at == address);
    let follows = |at: usize| -> Vec<usize> {
        let mut words = code[at].1.split_whitespace();
        let name = words.next().unwrap_or("");
        let target = words.next().filter(|_| name.starts_with('j')).and_then(hexadecimal);
        let falls_through = !["jmp", "ret", "ud2"].contains(&name) && at + 1 < code.len();
        target.and_then(place).into_iter().chain(falls_through.then_some(at + 1)).collect()
    };
    let mut left: Vec<usize> = (0..code.len()).collect();
    loop {
        let before = left.len();
        let leads_on = |at: &usize| follows(*at).iter().any(|next| left.contains(next));
        left = left.iter().copied().filter(leads_on).collect();
        if left.is_empty() || left.len() == before {
            return !left.is_empty();
        }
    }
}

/// Takes a line of a disassembly apart: the address, the instruction.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (address, text) = line.split_once(":\t")?;
    Some((hexadecimal(address.trim())?, text.trim()))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Each way out to a program has its last instructions once more beside it, behind `verw`.
fn ways_out() -> Result<Verdict> {
    packages::require(&[packages::OBJDUMP])?;
    let mut objdump = Command::new(packages::OBJDUMP.0);
    objdump.args(["-d", "-M", "intel", "--no-show-raw-insn", "--section=.entry"]);
    let text = process::output(objdump.arg(workspace::bare("kernel")))?;
    Ok(judge_ways_out(&text))
}

fn judge_ways_out(disassembly: &str) -> Verdict {
    let names = disassembly.lines().filter_map(instruction).map(|(_, text)| text);
    let names: Vec<&str> = names.filter_map(|text| text.split_whitespace().next()).collect();
    let is_out = |name: &str| name.starts_with("sysret") || name.starts_with("iret");
    // What stands beside comes behind everything else.
    let beside = names.iter().position(|&name| name == "verw").unwrap_or(names.len());
    let (ways, copies) = names.split_at(beside);
    // One goes back to the kernel itself.
    let ways = ways.iter().filter(|name| is_out(name)).count();
    let cleared = copies.windows(3).filter(|three| three[0] == "verw" && is_out(three[2])).count();
    let all = copies.iter().filter(|name| is_out(name)).count();
    if ways == cleared + 1 && all == cleared && ways > 1 {
        Ok(format!("({cleared} ways out)"))
    } else {
        Err(format!("{ways} ways out, one of them to the kernel, and {cleared} with verw beside"))
    }
}

/// Where the kernel's sources lie; all that depends on a model of stacks is what it does always.
const KERNEL_SOURCES: [&str; 2] = ["kernel/src", "kernel/core/src"];
/// The words of what its sources are compiled under: as tests or with the tests' machine, by their
/// model for fewer steps when it is slow, and by both in Miri.
const CONDITIONS: [&str; 11] = [
    "miri",
    "cfg",
    "cfg_attr",
    "any",
    "all",
    "not",
    "test",
    "feature",
    "fake",
    "no_std",
    "debug_assertions",
];

/// l4stack 24: no line of the kernel's is compiled for one model of stacks and not for another.
fn conditions() -> Result<Verdict> {
    let (mut found, mut looked) = (Vec::new(), 0);
    for directory in KERNEL_SOURCES {
        let mut waiting = vec![workspace::root().join(directory)];
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).context(path.display())?;
                waiting.extend(entries.flatten().map(|entry| entry.path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).context(path.display())?;
                found.extend(strange_conditions(&text));
                looked += 1;
            }
        }
    }
    Ok(match found.is_empty() {
        true if looked > 50 => Ok(format!("({looked} files)")),
        true => Err(format!("only {looked} files were found")),
        false => Err(found.join("; ")),
    })
}

/// Lines with a condition that asks for anything but [`CONDITIONS`].
fn strange_conditions(text: &str) -> Vec<String> {
    let condition = |line: &str| {
        let forms = ["#[cfg(", "#![cfg(", "cfg!(", "cfg_attr("];
        let at = forms.iter().find_map(|form| line.find(form))?;
        let end = line[at..].find([']', '{', ';']).map_or(line.len(), |end| at + end);
        Some(line[at..end].to_string())
    };
    let is_strange = |line: &&str| {
        let Some(asked) = condition(line) else { return false };
        let mut words = asked.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| !word.is_empty() && !CONDITIONS.contains(&word))
    };
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.filter(is_strange).map(|line| line.trim().to_string()).collect()
}

fn no_vector_registers() -> Result<Verdict> {
    packages::require(&[packages::OBJDUMP])?;
    let mut programs = workspace::native_programs()?;
    programs.push("kernel".into());
    // It fills them itself, by hand, to see that they survive.
    programs.retain(|program| program != "guest-tests");
    for program in programs {
        let path = workspace::bare(&program);
        if let Some(line) = vector_instruction(&path)? {
            return Ok(Err(format!("{program}: {line}")));
        }
    }
    Ok(Ok(String::new()))
}

/// The first instruction that names a vector register.
fn vector_instruction(path: &Path) -> Result<Option<String>> {
    let arguments = ["--disassemble", "--no-show-raw-insn"];
    let text = process::output(Command::new(packages::OBJDUMP.0).args(arguments).arg(path))?;
    let names_vector =
        |line: &&str| ["%xmm", "%ymm", "%zmm"].iter().any(|part| line.contains(part));
    Ok(text.lines().find(names_vector).map(|line| line.trim().to_string()))
}

fn refuse_words(names: impl Iterator<Item = String>, refused: &[&str]) -> Verdict {
    let has_refused = |name: &String| words(name).iter().any(|w| refused.contains(&w.as_str()));
    let found: Vec<String> = names.filter(has_refused).collect();
    if found.is_empty() { Ok(String::new()) } else { Err(found.join("; ")) }
}

/// The words of a name in any style: `TcpState`, `tcp_state` and `tcp::State` are all `tcp state`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if !c.is_ascii_alphabetic() || c.is_ascii_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphabetic()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What symbols hold in the copy with the planted faults, mangled, and nowhere else.
const PLANTED: &[u8] = b"3abi7planted";

fn no_fault_is_planted() -> Result<Verdict> {
    let mut programs = workspace::native_programs()?;
    programs.push("kernel".into());
    let mut bytes = 0;
    for name in &programs {
        let path = workspace::bare(name);
        let file = std::fs::read(&path).context(path.display())?;
        if file.windows(PLANTED.len()).any(|window| window == PLANTED) {
            return Ok(Err(format!("{name} has planted faults")));
        }
        bytes += file.len();
    }
    Ok(Ok(format!("({} programs, {bytes} bytes)", programs.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(words("TcpState"), ["tcp", "state"]);
        assert_eq!(words("kernel::tcp_state<u8>"), ["kernel", "tcp", "state", "u"]);
    }

    #[test]
    fn a_search_is_found_in_the_code() {
        let line = |n: u64, text: &str| format!("ffffffff8022{n:04x}:\t{text}\n");
        let straight: String = (0..12).map(|n| line(n, "shl    $0x7,%rdx")).collect();
        let end = line(14, "ret");
        assert!(judge_lookup(&(straight.clone() + &end)).is_ok());
        let looping = line(12, "jne    ffffffff80220003 <f+0x3>");
        assert!(judge_lookup(&(straight.clone() + &looping + &end)).is_err());
        assert!(judge_lookup(&(straight + &line(12, "div    %rcx") + &end)).is_err());
        assert!(judge_lookup("").is_err());
    }

    #[test]
    fn ways_out_without_verw_are_found() {
        let code = |names: &[&str]| -> String {
            let line = |(at, name): (usize, &&str)| format!("{at:x}:\t{name} x\n");
            names.iter().enumerate().map(line).collect()
        };
        let beside = ["verw", "mov", "sysretq", "verw", "add", "iretq"];
        let good = [&["mov", "sysretq", "add", "iretq", "iretq"][..], &beside].concat();
        assert!(judge_ways_out(&code(&good)).is_ok());
        let one_more = [&["iretq"][..], &good].concat();
        assert!(judge_ways_out(&code(&one_more)).is_err());
        let without = [&good[..], &["mov", "mov", "iretq"]].concat();
        assert!(judge_ways_out(&code(&without)).is_err());
        assert!(judge_ways_out(&code(&["nop"])).is_err());
    }

    #[test]
    fn strange_conditions_are_found() {
        let usual = "#[cfg(test)]\n#[cfg(any(test, feature = \"fake\"))]\n// #[cfg(stacks)]\n";
        assert_eq!(strange_conditions(usual), Vec::<String>::new());
        let strange = "    #[cfg(feature = \"many-stacks\")]\nif cfg!(single_stack) {}";
        assert_eq!(strange_conditions(strange).len(), 2);
    }

    #[test]
    fn foreign_words_are_found() {
        let names = ["EnvAlloc".to_string(), "PipeOpen".to_string()];
        assert_eq!(refuse_words(names.into_iter(), &FOREIGN_WORDS), Err("PipeOpen".into()));
        // "shipped" holds "ip", but not as a word.
        assert!(refuse_words(["Shipped".to_string()].into_iter(), &FOREIGN_WORDS).is_ok());
    }
}
