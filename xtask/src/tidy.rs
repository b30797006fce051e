//! The tree's own rules, which neither rustfmt nor clippy knows.
//!
//! Each rule is a function of the sources that answers complaints, so that a test can show it a
//! wrong source; `cargo xtask check` shows them the tree.

use std::path::Path;

use crate::conformance;
use crate::failure::{Context, Result};
use crate::linux_suite;
use crate::mutate;
use crate::test;
use crate::workspace;

mod arrows;
mod citations;
mod files;
mod functions;
mod hops;
mod named;
mod pages;
mod unsafety;

pub use named::Planted;

/// A source file of the tree.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it lies, from the root.
    pub path: String,
    /// What stands in it.
    pub text: String,
}

/// Applies every rule to the tree; answers the complaints, each `path:line: what`.
pub fn complaints() -> Result<Vec<String>> {
    let sources = sources()?;
    let mut complaints = arrows::check(&workspace::packages()?, &workspace::read("Cargo.toml")?);
    complaints.extend(unsafety::check(&sources, &workspace::read(unsafety::LIST)?));
    complaints.extend(hops::check(&workspace::read(hops::DOCUMENT)?, &sources));
    let packages = workspace::packages()?;
    let (suites, cases, faults) = (test::suites(), linux_suite::names()?, mutate::planted()?);
    let tree = named::Tree {
        sources: &sources,
        packages: &packages,
        suites: &suites,
        cases: &cases,
        faults: &faults,
    };
    let mut documents = Vec::new();
    for (path, column) in named::DOCUMENTS {
        documents.push((path, workspace::read(path)?, column));
    }
    complaints.extend(named::check(&documents, &tree));
    complaints.extend(citations::check(&workspace::read(citations::DOCUMENT)?, &texts()?));
    for source in &sources {
        complaints.extend(files::check(source));
        complaints.extend(functions::check(source));
        complaints.extend(pages::check(source));
    }
    Ok(complaints)
}

/// Every Rust source that belongs to a package.
fn sources() -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for package in workspace::packages()? {
        for part in ["src", "tests", "examples", "benches"] {
            let directory = workspace::root().join(&package.directory).join(part);
            collect(&directory, &["rs"], &mut sources)?;
        }
        let script = format!("{}/build.rs", package.directory);
        if let Ok(text) = workspace::read(&script) {
            sources.push(Source { path: script, text });
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources.dedup_by(|one, other| one.path == other.path);
    Ok(sources)
}

/// Everything that may cite a paper: sources, documents, the table of demands.
fn texts() -> Result<Vec<Source>> {
    let path = conformance::TABLE.to_string();
    let mut texts = vec![Source { text: workspace::read(&path)?, path }];
    collect(workspace::root(), &["rs", "md"], &mut texts)?;
    texts.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(texts)
}

/// Collects the files of a directory with one of these extensions, and those below it, but for
/// what was built there and what is hidden.
fn collect(directory: &Path, extensions: &[&str], sources: &mut Vec<Source>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let entry = entry.context(directory.display())?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_of_tree = name != "target" && !name.as_encoded_bytes().starts_with(b".");
        if path.is_dir() {
            if is_of_tree {
                collect(&path, extensions, sources)?;
            }
        } else if extensions.iter().any(|one| path.extension().is_some_and(|is| is == *one)) {
            let text = std::fs::read_to_string(&path).context(path.display())?;
            let path = path.strip_prefix(workspace::root()).unwrap_or(&path);
            sources.push(Source { path: path.to_string_lossy().into_owned(), text });
        }
    }
    Ok(())
}

/// A line without its comment and without the insides of its strings: what the compiler sees of
/// it, near enough to look for words and braces. Literals over several lines are not understood.
fn code(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => break,
            '"' => {
                kept.push('"');
                while let Some(c) = rest.next() {
                    match c {
                        '\\' => drop(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                kept.push('"');
            }
            '\'' => {
                // A character, or a lifetime: only the former has its end within four.
                let ahead: String = rest.clone().take(3).collect();
                if ahead.starts_with('\\') {
                    rest.next();
                    rest.next();
                    rest.by_ref().find(|&c| c == '\'');
                } else if ahead.chars().nth(1) == Some('\'') {
                    rest.next();
                    rest.next();
                }
                kept.push('\'');
            }
            _ => kept.push(c),
        }
    }
    kept
}

/// How far a line is indented.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_left_of_a_line() {
        assert_eq!(code("let a = 1; // unsafe"), "let a = 1; ");
        assert_eq!(code("print(\"unsafe { \\\" // }\"); x"), "print(\"\"); x");
        assert_eq!(code("if c == '\"' { unsafe }"), "if c == ' { unsafe }");
        assert_eq!(code(r"if c == '\'' { y }"), "if c == ' { y }");
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    }
}
