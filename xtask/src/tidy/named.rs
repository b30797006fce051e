//! The tests and the planted faults that documents name exist, and belong together.
//!
//! A package's tests are found in its sources: functions under `#[test]`, by their modules. Those
//! of a suite are strings in the sources of tests and of xtask: the whole name, or the name within
//! the suite with a comma behind it, as tables and calls have it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, code, indent};
use crate::workspace::Package;

/// The documents, each with the column of its tables that names tests, counted from the end if it
/// is negative.
pub const DOCUMENTS: [(&str, isize); 2] = [("docs/bugs.md", -1), (PROMISES, 1)];
/// The one whose next column names the faults planted for those tests.
pub const PROMISES: &str = "docs/threat-model.md";
/// Files with faults, as documents name them.
const FAULTS: &str = ".faults";
/// Promises that are compared with the document itself: a change of it turns their tests red.
const OF_THE_DOCUMENT: [&str; 1] =
    ["kernel-core/noninterference::fields::each_published_field_has_its_reason"];

/// A planted fault: its name, the file that it is written in, the tests that find it.
pub struct Planted {
    /// Its name.
    pub id: String,
    /// Where it is written, from the root.
    pub file: String,
    /// The tests.
    pub tests: Vec<String>,
}

/// What there is.
pub struct Tree<'a> {
    /// All sources.
    pub sources: &'a [Source],
    /// All packages, whose own tests are named `package/module::name`.
    pub packages: &'a [Package],
    /// Suites, whose tests are named `suite/name`.
    pub suites: &'a [&'a str],
    /// Full names of the cases of tests/linux.
    pub cases: &'a [String],
    /// All planted faults.
    pub faults: &'a [Planted],
}

/// The names of all tests.
struct Names<'a> {
    tree: &'a Tree<'a>,
    /// Of each package, those of its own: modules and name.
    own: BTreeMap<&'a str, BTreeSet<String>>,
    /// Strings in the sources of tests and of xtask that may be names of the suites' tests.
    strings: BTreeSet<&'a str>,
}

/// Complains of each name of a test that nothing has, in the documents and in the faults; of each
/// promise whose tests and faults do not belong together; and of a document that names no test.
pub fn check(documents: &[(&str, String, isize)], tree: &Tree) -> Vec<String> {
    let names = Names::of(tree);
    let mut complaints = Vec::new();
    for Planted { id, file, tests } in tree.faults {
        let missing = tests.iter().filter(|test| !names.has(test));
        complaints.extend(missing.map(|test| format!("{file}: {id}: there is no test {test}")));
    }
    for (path, text, column) in documents {
        let mut named = 0;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", number + 1);
            let tests: Vec<&str> =
                quoted(cell(line, *column).unwrap_or("")).filter_map(name).collect();
            named += tests.len();
            let missing = tests.iter().filter(|test| !names.has(test));
            complaints.extend(missing.map(|test| format!("{place}: there is no test {test}")));
            if *path == PROMISES && !tests.is_empty() {
                let faults = cell(line, column + 1).unwrap_or("");
                complaints
                    .extend(promise(&tests, faults, tree).map(|why| format!("{place}: {why}")));
            }
        }
        if named == 0 {
            complaints.push(format!("{path}:1: names no tests"));
        }
    }
    complaints
}

/// What is wrong with a promise that names these tests and, in a cell, these faults.
fn promise<'a>(
    tests: &'a [&str],
    cell: &'a str,
    tree: &'a Tree,
) -> impl Iterator<Item = String> + 'a {
    let finds = |fault: &Planted, test: &str| fault.tests.iter().any(|one| is_named(one, test));
    let faults = quoted(cell).filter_map(move |word| {
        let of_file = |one: &&Planted| word.ends_with(FAULTS) && one.file == word;
        let named: Vec<&Planted> =
            tree.faults.iter().filter(|one| one.id == word || of_file(one)).collect();
        if named.is_empty() {
            return Some(format!("there is no planted fault {word}"));
        }
        let found = named.iter().any(|fault| tests.iter().any(|test| finds(fault, test)));
        (!found).then(|| format!("{word} is found by none of this promise's tests"))
    });
    let without = tests.iter().filter(move |test| {
        !OF_THE_DOCUMENT.contains(test) && !tree.faults.iter().any(|fault| finds(fault, test))
    });
    faults.chain(without.map(|test| format!("no fault is planted for {test}")))
}

/// Whether a document means the test `full` when it says `name`: the test itself, what `…` stands
/// for left out, or the module or group of cases that the test is in.
fn is_named(full: &str, name: &str) -> bool {
    let inside = |rest: &str| rest.is_empty() || rest.starts_with("::") || rest.starts_with('/');
    full.strip_prefix(name).is_some_and(inside)
        || full.split_once('/').is_some_and(|(_, path)| {
            let begins = path.match_indices(name).map(|(at, _)| at);
            let mut begins = begins.filter(|&at| at == 0 || path[..at].ends_with("::"));
            begins.any(|at| inside(&path[at + name.len()..]))
        })
}

/// The words in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// A cell of a table's row.
fn cell(line: &str, column: isize) -> Option<&str> {
    let cells: Vec<&str> =
        line.strip_prefix("| ")?.trim_end_matches([' ', '|']).split(" | ").collect();
    let at = if column < 0 { cells.len().checked_add_signed(column)? } else { column as usize };
    cells.get(at).copied()
}

/// A name of a test, without the dots that stand for what the one before it begins with.
fn name(word: &str) -> Option<&str> {
    let name = word.strip_prefix('…').unwrap_or(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-/:*".contains(c);
    (name.chars().all(plain) && (name.contains('/') || name.contains("::"))).then_some(name)
}

impl<'a> Names<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut own: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut strings = BTreeSet::new();
        for source in tree.sources {
            for package in tree.packages {
                let below = source.path.strip_prefix(&package.directory);
                if let Some(path) = below.and_then(|path| path.strip_prefix('/')) {
                    let tests = tests(&modules(path), &source.text);
                    own.entry(&package.name).or_default().extend(tests);
                }
            }
            if source.path.starts_with("tests/") || source.path.starts_with("xtask/") {
                strings.extend(self::strings(&source.text));
            }
        }
        Self { tree, own, strings }
    }

    fn has(&self, name: &str) -> bool {
        let is = |test: &String| is_named(test, name);
        let Some((first, rest)) = name.split_once('/') else {
            // By modules alone: a test of any package.
            return self.own.values().flatten().any(|test| is_named(&format!("/{test}"), name));
        };
        if first == "linux" {
            return self.tree.cases.iter().any(is);
        }
        let is_own = |tests: &BTreeSet<String>| {
            tests.iter().any(|test| is_named(&format!("{first}/{test}"), name))
        };
        // Machines' names are made of their parts, and a machine without a test is refused by name.
        let of_suite = rest == "*" || self.strings.contains(name) || self.strings.contains(rest);
        let is_suite = self.tree.suites.contains(&first);
        is_suite && (of_suite || first == "machines") || self.own.get(first).is_some_and(is_own)
    }
}

/// The modules that a file of a package is, from the package's directory.
fn modules(path: &str) -> Vec<&str> {
    let path = path.trim_end_matches(".rs");
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    if !path.starts_with("src/") && !parts.is_empty() {
        // A program of tests of its own: its name is none of its tests'.
        parts.remove(0);
    }
    parts.retain(|part| !["lib", "main", "mod"].contains(part));
    parts
}

/// The tests of a file, with their modules.
fn tests(modules: &[&str], text: &str) -> Vec<String> {
    let mut inside: Vec<(usize, String)> = Vec::new();
    let mut tests = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let (depth, line) = (indent(line), code(line));
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["}"] if inside.last().is_some_and(|(at, _)| *at == depth) => drop(inside.pop()),
            ["mod", name, "{"] | [_, "mod", name, "{"] => inside.push((depth, name.to_string())),
            [one] if *one == "#[test]" => is_test = true,
            [.., "fn", name] | ["fn", name, ..] | [_, "fn", name, ..] if is_test => {
                let name = name.split(['(', '<']).next().unwrap_or_default();
                let path = modules.iter().copied().chain(inside.iter().map(|(_, name)| &name[..]));
                tests.push(path.chain([name]).collect::<Vec<_>>().join("::"));
                is_test = false;
            }
            _ => {}
        }
    }
    tests
}

/// The strings that are a path of two parts or have a comma behind them.
fn strings(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('"').filter_map(|(at, _)| {
        let (string, rest) = text[at + 1..].split_once('"')?;
        (string.contains('/') || rest.starts_with(',')).then_some(string)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(row: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let region = "mod tests {\n    #[test]\n    fn a_hole() {\n    }\n    fn help() {}\n}\n\
                      mod more {\n    #[test]\n    fn others() {}\n}\n";
        let sources = [
            source("kernel/core/src/region.rs", region),
            source("libs/x/src/hole.rs", "fn a_hole() {}"),
            source("tests/guest/src/suite.rs", "[(\"frame_foreign\", 1), (\n\"frame_own\", 2)]"),
            source("xtask/src/test.rs", "A: &str = \"guest/all\"; say(\"frame_said\");"),
        ];
        let package = Package {
            name: "kernel-core".into(),
            directory: "kernel/core".into(),
            manifest: String::new(),
            on_host: true,
            is_program: false,
        };
        let fault = |id: &str, tests: &[&str]| Planted {
            id: id.into(),
            file: "tests/mutate/f.faults".into(),
            tests: tests.iter().map(|test| test.to_string()).collect(),
        };
        let faults = [
            fault("a-fault", &["kernel-core/region::tests::a_hole", "linux/c/users"]),
            fault("another", &["guest/frame_foreign", "guest/all"]),
        ];
        let (packages, cases) = ([package], ["linux/c/users".to_string()]);
        let suites = ["guest", "machines"];
        let tree = Tree {
            sources: &sources,
            packages: &packages,
            suites: &suites,
            cases: &cases,
            faults: &faults,
        };
        check(&[(PROMISES, row.to_string(), 1)], &tree)
    }

    #[test]
    fn names_of_tests_that_are_gone_are_told() {
        let check = |cell: &str| complaints(&format!("| what | {cell} | x |")).len();
        let right = [
            "`kernel-core/region::tests::a_hole`, `…tests::a_hole`",
            "`tests::a_hole` and \"a word\" of `it`",
            "`kernel-core/region::tests`",
            "`guest/frame_foreign`, `guest/all`, `linux/c/users`, `linux/c`",
        ];
        right.iter().for_each(|cell| assert_eq!(check(cell), 0, "{cell}"));
        // Of each it is said that there is none, and that no fault is planted for it.
        let wrong = [
            "`kernel-core/region::tests::other`",
            "`kernel-core/region::tests::help`",
            "`kernel-core/region::a_hole`",
            "`kernel-core/region::tests::others`",
            "`kernel-core/region::tests::a_hol`",
            "`other::a_hole`",
            "`hole::a_hole`",
            "`guest/frame_foreig`",
            "`guest/frame_said`",
            "`linux/c/user`",
            "`nowhere/a_hole`",
        ];
        wrong.iter().for_each(|cell| assert_eq!(check(cell), 2, "{cell}"));
        assert_eq!(check("no name at all"), 1);
    }

    #[test]
    fn promises_without_their_faults_are_told() {
        let said = |cells: &str| complaints(&format!("| what | {cells} |")).join("; ");
        assert_eq!(said("`linux/c/users` | `a-fault`"), "");
        assert_eq!(said("`linux/c/users` | `tests/mutate/f.faults`"), "");
        let none = said("`linux/c/users` | `a-faul`");
        assert!(none.ends_with(":1: there is no planted fault a-faul"), "{none}");
        let none = said("`linux/c/users` | `tests/mutate/g.faults`");
        assert!(none.ends_with("no planted fault tests/mutate/g.faults"), "{none}");
        let other = said("`linux/c/users` | `another`");
        assert!(other.ends_with("another is found by none of this promise's tests"), "{other}");
        let bare = said("`guest/frame_own`, `linux/c/users` | `a-fault`");
        assert!(bare.ends_with("no fault is planted for guest/frame_own"), "{bare}");
    }
}
