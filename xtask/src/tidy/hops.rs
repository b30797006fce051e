//! The hop lists of ARCHITECTURE.md name files and functions that exist.

use super::Source;

/// The document.
pub const DOCUMENT: &str = "ARCHITECTURE.md";

/// Complains of each hop, a line "1. `path` `name`: what it does", whose file does not define the
/// name; and of a document without hops, in which nothing was checked.
pub fn check(document: &str, sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut hops = 0;
    for (number, line) in document.lines().enumerate() {
        let Some((path, name)) = hop(line) else { continue };
        hops += 1;
        let source = sources.iter().find(|source| source.path == path);
        let defined = source.is_some_and(|source| defines(&source.text, name));
        if !defined {
            complaints.push(format!("{DOCUMENT}:{}: {path} has no {name}", number + 1));
        }
    }
    if hops == 0 {
        complaints.push(format!("{DOCUMENT}:1: no hop lists"));
    }
    complaints
}

fn hop(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.split_once(". `")?;
    let (path, rest) = rest.split_once("` `")?;
    let (name, _) = rest.split_once('`')?;
    number.parse::<u32>().ok().map(|_| (path, name))
}

/// Whether a function, a macro or a label of assembly has this name.
fn defines(text: &str, name: &str) -> bool {
    let begins = |line: &str, before: &str| {
        line.split_once(before).is_some_and(|(_, rest)| {
            rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<', ' ']))
        })
    };
    text.lines().any(|line| {
        begins(line, "fn ") || begins(line, "macro_rules! ") || line.trim() == format!("{name}:")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_exist() {
        let text = "pub fn make<T>() {}\nasm!(\"\nentry:\n\")".to_string();
        let sources = [Source { path: "a/b.rs".into(), text }];
        let check = |document: &str| check(document, &sources).len();
        assert_eq!(check("# X\n1. `a/b.rs` `make`: x\n2. `a/b.rs` `entry`: x\n"), 0);
        assert_eq!(check("1. `a/b.rs` `mak`: x\n"), 1);
        assert_eq!(check("1. `a/c.rs` `make`: x\n"), 1);
        assert_eq!(check("nothing\n"), 1);
    }
}
