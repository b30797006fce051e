//! Plants all faults in a copy of the tree: the sources that are shipped know nothing of them.
//!
//! ```text
//!  f(a, b)   ──►   (if abi::planted::planted(3) { f(a) } else { f(a, b) })
//! ```
//! A copy is kept from run to run, so that only what has changed is built again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::faults::Fault;
use crate::failure::{Context, Failure, Result};
use crate::workspace;

/// What is no part of the tree.
const OUTSIDE: [&str; 3] = ["target", ".git", ".cache"];
/// The module that says which fault is chosen.
const MODULE: &str = include_str!("planted.rs");
/// What hooks the module up: a file, a text in it, what the text becomes.
const HOOKS: [(&str, &str, &str); 5] = [
    ("abi/src/lib.rs", "#![forbid(unsafe_code)]", "extern crate self as abi;\npub mod planted;"),
    // Packages with faults that have no use for the module's otherwise.
    ("libs/unix/Cargo.toml", "[dependencies]", "[dependencies]\nabi.workspace = true"),
    ("code/Cargo.toml", "[dependencies]", "[dependencies]\nabi.workspace = true"),
    (
        "kernel/src/boot/sequence.rs",
        "let command_line = info.command_line();",
        "let command_line = info.command_line(); abi::planted::choose_from(command_line);",
    ),
    (
        "kernel/src/boot/sequence.rs",
        "directory.command_line_len = line.len() as u64;",
        "directory.command_line_len = line.len() as u64; \
         directory.zero[0] = u64::from(abi::planted::chosen());",
    ),
];

/// Files with new contents, by path from the root.
type Changed = BTreeMap<String, String>;

/// Makes the copy at `to`, or brings it up to date: that of the faults that stand apart, or that of
/// all others.
pub fn plant(faults: &[Fault], apart: bool, to: &Path) -> Result<()> {
    let changed = changed(faults, apart)?;
    let mut wanted = Vec::new();
    for path in files(workspace::root())? {
        let bytes = match path.to_str().and_then(|name| changed.get(name)) {
            Some(text) => text.clone().into_bytes(),
            None => std::fs::read(workspace::root().join(&path)).context(path.display())?,
        };
        update(&to.join(&path), &bytes)?;
        wanted.push(path);
    }
    for (name, text) in modules(faults) {
        update(&to.join(&name), text.as_bytes())?;
        wanted.push(name.into());
    }
    for path in files(to)?.into_iter().filter(|path| !wanted.contains(path)) {
        std::fs::remove_file(to.join(&path)).context(path.display())?;
    }
    Ok(())
}

/// The sources that faults and hooks change. That each finds its place is what `check` tests.
pub fn changed(faults: &[Fault], apart: bool) -> Result<Changed> {
    let mut by_file: BTreeMap<&str, Vec<Change>> = BTreeMap::new();
    let mut changed = Changed::new();
    for (number, fault) in (1..).zip(faults).filter(|(_, fault)| fault.apart == apart) {
        for edit in &fault.edits {
            let text = workspace::read(&edit.file)?;
            let place = find(&text, &edit.was).map_err(|why| {
                let cause =
                    format!("planted fault {}: {}: {why}: {}", fault.id, edit.file, edit.was);
                Failure::new(cause).next(super::faults::DIRECTORY)
            })?;
            let change = Change { place, number, is: edit.is.clone(), raw: edit.raw };
            by_file.entry(&edit.file).or_default().push(change);
        }
    }
    for (file, changes) in by_file {
        let text = apply(&workspace::read(file)?, changes, asks(file))
            .map_err(|why| Failure::new(format!("planted faults: {file}: {why}")))?;
        changed.insert(file.to_string(), text);
    }
    for (file, text, becomes) in HOOKS {
        let before = match changed.remove(file) {
            Some(text) => text,
            None => workspace::read(file)?,
        };
        if before.matches(text).count() != 1 {
            return Err(Failure::new(format!("planted faults: {file}: not once: {text}")));
        }
        changed.insert(file.to_string(), before.replacen(text, becomes, 1));
    }
    Ok(changed)
}

/// The function that a choice in this file asks. What the kernel does with interrupts off is
/// bounded in instructions, in the copy as in what is shipped: there each choice costs as little as
/// it can.
fn asks(file: &str) -> &'static str {
    if file.starts_with("kernel/") { "in_kernel" } else { "planted" }
}

/// The files that only the copy has.
fn modules(faults: &[Fault]) -> [(String, String); 2] {
    let names: String = faults.iter().map(|fault| format!("    {:?},\n", fault.id)).collect();
    let names = format!("const NAMES: &[&str] = &[\n    \"none\",\n{names}];\n");
    [
        ("abi/src/planted.rs".into(), MODULE.replace("//!", "//")),
        ("abi/src/planted_names.rs".into(), names),
    ]
}

/// A piece of a file that a fault changes.
#[derive(Clone, Debug)]
struct Change {
    place: Range<usize>,
    number: usize,
    is: String,
    raw: bool,
}

/// The one place that `was` describes: what stands there between the marks.
fn find(text: &str, was: &str) -> std::result::Result<Range<usize>, &'static str> {
    let mut found = Vec::new();
    let first = was.trim_start_matches('«').chars().next().unwrap_or(' ');
    for (start, _) in text.match_indices(first) {
        found.extend(match_at(text, start, was));
    }
    match found.as_slice() {
        [place] => Ok(place.clone()),
        [] => Err("not found"),
        _ => Err("found more than once"),
    }
}

/// Whether `was` begins at `start`; where its piece is. A space stands for any run of white space.
fn match_at(text: &str, start: usize, was: &str) -> Option<Range<usize>> {
    let mut at = start;
    let (mut from, mut to) = (start, start);
    let mut pattern = was.chars().peekable();
    while let Some(wanted) = pattern.next() {
        match wanted {
            '«' => from = at,
            '»' => to = at,
            ' ' => {
                let rest = &text[at..];
                let space = rest.len() - rest.trim_start().len();
                if space == 0 {
                    return None;
                }
                at += space;
                while pattern.next_if(|&next| next == ' ').is_some() {}
                if pattern.peek() == Some(&'«') {
                    from = at;
                }
            }
            _ => {
                if !text[at..].starts_with(wanted) {
                    return None;
                }
                at += wanted.len_utf8();
            }
        }
    }
    Some(from..to)
}

/// The text with all changes, each chosen by the function `asks`; several faults may change the
/// same piece.
fn apply(text: &str, mut changes: Vec<Change>, asks: &str) -> std::result::Result<String, String> {
    changes.sort_by_key(|change| (change.place.start, change.place.end, change.number));
    let mut result = String::new();
    let mut at = 0;
    for group in changes.chunk_by(|one, other| one.place == other.place) {
        let place = group[0].place.clone();
        if place.start < at {
            return Err(format!("two faults overlap at `{}`", &text[place]));
        }
        result.push_str(&text[at..place.start]);
        result.push_str(&choice(&text[place.clone()], group, asks));
        at = place.end;
    }
    result.push_str(&text[at..]);
    Ok(result)
}

/// The piece as it was, unless one of these faults is chosen.
fn choice(piece: &str, group: &[Change], asks: &str) -> String {
    if let [Change { raw: true, is, number, .. }] = group {
        return is.replace("PLANTED", &number.to_string());
    }
    let chosen: String = group
        .iter()
        .map(|Change { number, is, .. }| {
            format!("if ::abi::planted::{asks}({number}) {{ {is} }} else ")
        })
        .collect();
    // A statement stays one; anything else may stand in the middle of an expression.
    if piece.ends_with(';') {
        format!("{chosen}{{ {piece} }}")
    } else {
        format!("({chosen}{{ {piece} }})")
    }
}

/// The tree's files, by path from its root.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let shown = root.join(&directory);
        for entry in std::fs::read_dir(&shown).context(shown.display())? {
            let entry = entry.context(shown.display())?;
            let path = directory.join(entry.file_name());
            let is_outside = OUTSIDE.iter().any(|name| path.as_os_str() == *name);
            let kind = entry.file_type().context(path.display())?;
            if kind.is_dir() && !is_outside {
                directories.push(path);
            } else if kind.is_file() && !is_outside {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Writes a file unless it is so already: what did not change is not built again.
fn update(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).context(directory.display())?;
    }
    std::fs::write(path, bytes).context(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::faults;

    fn change(text: &str, was: &str, number: usize, is: &str) -> Change {
        Change { place: find(text, was).unwrap(), number, is: is.into(), raw: false }
    }

    #[test]
    fn places_are_found_whatever_their_spaces() {
        let text = "a(\n    b,\n) ; c b";
        assert_eq!(&text[find(text, "a( «b»,").unwrap()], "b");
        assert_eq!(&text[find(text, "«c   b»").unwrap()], "c b");
        assert!(find(text, "«b»").is_err() && find(text, "«d»").is_err());
    }

    #[test]
    fn pieces_become_choices() {
        let text = "x = f(1); g();";
        let changes = vec![
            change(text, "f(«1»)", 2, "0"),
            change(text, "«g();»", 3, ""),
            change(text, "f(«1»)", 1, "9"),
        ];
        let planted = "::abi::planted::planted";
        let expected = format!(
            "x = f((if {planted}(1) {{ 9 }} else if {planted}(2) {{ 0 }} else {{ 1 }})); \
             if {planted}(3) {{  }} else {{ g(); }}"
        );
        assert_eq!(apply(text, changes, "planted").unwrap(), expected);
        assert!(asks("kernel/core/src/lib.rs") != asks("code/src/lib.rs"));
        let overlapping = vec![change(text, "«f(1)»", 1, "9"), change(text, "f(«1»)", 2, "0")];
        assert!(apply(text, overlapping, "planted").is_err());
    }

    #[test]
    fn every_conformance_test_has_its_fault() {
        let faults = faults::all().unwrap();
        let has = |test: &String| faults.iter().any(|fault| fault.tests.contains(test));
        let without: Vec<String> =
            crate::conformance::tests().unwrap().into_iter().filter(|test| !has(test)).collect();
        assert!(without.is_empty(), "no fault is planted for {without:?}");
    }

    #[test]
    fn every_planted_fault_finds_its_place() {
        for apart in [false, true] {
            if let Err(failure) = changed(&faults::all().unwrap(), apart) {
                panic!("{failure}");
            }
        }
    }
}
