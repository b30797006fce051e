//! Which files may hold `unsafe`: those that a list names, each with its reason.

use super::{Source, code};

/// The list: a path and a reason on each line.
pub const LIST: &str = "xtask/unsafe-files.txt";

/// How far above an unsafe block its reason may begin, in lines.
const REASON_REACH: usize = 12;

/// Complains of `unsafe` outside of the list, of blocks without a reason, and of a list that is
/// not the truth any more.
pub fn check(sources: &[Source], list: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let listed = entries(list, &mut complaints);
    for source in sources {
        let is_listed = listed.contains(&source.path.as_str());
        let lines: Vec<&str> = source.text.lines().collect();
        let found: Vec<usize> = (0..lines.len()).filter(|&at| is_unsafe(lines[at])).collect();
        match (found.first(), is_listed) {
            (Some(at), false) => complaints.push(format!(
                "{}:{}: unsafe, and {LIST} does not name the file",
                source.path,
                at + 1
            )),
            (None, true) => {
                complaints.push(format!("{LIST}: {} has no unsafe code any more", source.path));
            }
            _ => {}
        }
        if is_listed && !source.text.contains("//! # Safety") {
            complaints.push(format!("{}:1: no `//! # Safety` in the file's head", source.path));
        }
        for at in found.into_iter().filter(|&at| opens_block(lines[at]) && !has_reason(&lines, at))
        {
            complaints.push(format!("{}:{}: no `// SAFETY:` above", source.path, at + 1));
        }
    }
    let exists = |path: &&str| sources.iter().any(|source| source.path == **path);
    complaints.extend(
        listed.iter().filter(|path| !exists(path)).map(|path| format!("{LIST}: {path} is gone")),
    );
    complaints
}

fn entries<'a>(list: &'a str, complaints: &mut Vec<String>) -> Vec<&'a str> {
    let mut paths = Vec::new();
    for (number, line) in list.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(": ") {
            Some((path, reason)) if !reason.trim().is_empty() => paths.push(path),
            _ => complaints.push(format!("{LIST}:{}: not `path: reason`", number + 1)),
        }
    }
    paths
}

/// Whether the word itself stands in the line's code, or the permission to use it.
fn is_unsafe(line: &str) -> bool {
    let code = code(line);
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words = words.filter(|word| !word.is_empty());
    words.any(|word| word == "unsafe") || code.contains("allow(unsafe_code)")
}

fn opens_block(line: &str) -> bool {
    let code = code(line);
    code.contains("unsafe {") || code.contains("unsafe impl")
}

fn has_reason(lines: &[&str], at: usize) -> bool {
    let from = at.saturating_sub(REASON_REACH);
    lines[from..=at].iter().any(|line| line.contains("// SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str, list: &str) -> Vec<String> {
        check(&[Source { path: "k/x.rs".into(), text: text.into() }], list)
    }

    const GOOD: &str = "//! X.\n//! # Safety\n// SAFETY: known.\nunsafe { f() }\n";

    #[test]
    fn only_listed_files_are_unsafe() {
        assert!(complaints(GOOD, "# head\n\nk/x.rs: it must\n").is_empty());
        assert_eq!(complaints(GOOD, "").len(), 1);
        assert_eq!(complaints("fn f() {}\n", "").len(), 0);
        assert_eq!(complaints("//! # Safety\nfn f() {}\n", "k/x.rs: it must\n").len(), 1);
        assert_eq!(complaints("", "k/y.rs: it must\n").len(), 1);
        assert_eq!(complaints(GOOD, "k/x.rs\n").len(), 2);
        assert_eq!(complaints("#![allow(unsafe_code)]\n", "").len(), 1);
        assert!(complaints("#![deny(unsafe_code)]\n// unsafe\n", "").is_empty());
    }

    #[test]
    fn blocks_have_reasons() {
        let list = "k/x.rs: it must\n";
        assert_eq!(complaints(&GOOD.replace("SAFETY", "Safe"), list).len(), 1);
        assert_eq!(complaints(&GOOD.replace("# Safety", ""), list).len(), 1);
    }
}
