//! The tests that documents name exist.

use std::collections::HashSet;

use super::Source;
use crate::workspace::Package;

/// The documents, each with the column of its tables that names tests, counted from the end if it
/// is negative.
pub const DOCUMENTS: [(&str, isize); 2] = [("docs/bugs.md", -1), ("docs/threat-model.md", 1)];

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
}

/// Complains of each name of a test, a word in backquotes with `/` or `::`, that nothing has; and
/// of a document that names none, in which nothing was checked.
pub fn check(path: &str, text: &str, column: isize, tree: &Tree) -> Vec<String> {
    let words: HashSet<&str> = tree.sources.iter().flat_map(|source| words(&source.text)).collect();
    let mut complaints = Vec::new();
    let mut named = 0;
    for (number, line) in text.lines().enumerate() {
        let cell = cell(line, column).unwrap_or("");
        for name in cell.split('`').skip(1).step_by(2).filter_map(name) {
            named += 1;
            if !exists(name, tree, &words) {
                complaints.push(format!("{path}:{}: there is no test {name}", number + 1));
            }
        }
    }
    if named == 0 {
        complaints.push(format!("{path}:1: names no tests"));
    }
    complaints
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

fn exists(name: &str, tree: &Tree, words: &HashSet<&str>) -> bool {
    if name.starts_with("linux/") {
        let in_group =
            |case: &str| case.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        return tree.cases.iter().any(|case| case == name || in_group(case));
    }
    let Some((first, rest)) = name.split_once('/') else { return defined(name, "", tree) };
    if tree.suites.contains(&first) {
        return rest == "*" || words.contains(rest);
    }
    let package = tree.packages.iter().find(|package| package.name == first);
    package.is_some_and(|package| defined(rest, &format!("{}/", package.directory), tree))
}

/// Whether a source below `directory` has this function, or is or has this module.
fn defined(path: &str, directory: &str, tree: &Tree) -> bool {
    let (modules, last) = path.rsplit_once("::").unwrap_or(("", path));
    tree.sources.iter().filter(|source| source.path.starts_with(directory)).any(|source| {
        let own = source.path.trim_end_matches(".rs");
        let is_in = |module: &str| {
            let has = |word: &str| source.text.contains(&format!("mod {module}{word}"));
            own.split('/').any(|part| part == module) || has(" {") || has(";")
        };
        let has_it = source.text.contains(&format!("fn {last}(")) || is_in(last);
        has_it && modules.split("::").filter(|module| !module.is_empty()).all(is_in)
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_that_are_gone_are_told() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("kernel/core/src/region.rs", "mod tests {\n fn a_hole() {}\n}"),
            source("libs/x/src/hole.rs", "fn other() {}"),
            source("tests/guest/src/suite.rs", "test!(frame_foreign)"),
        ];
        let package = Package {
            name: "kernel-core".into(),
            directory: "kernel/core".into(),
            manifest: String::new(),
            on_host: true,
            is_program: false,
        };
        let (packages, cases) = ([package], ["linux/c/users".to_string()]);
        let suites = ["guest", "machines"];
        let tree = Tree { sources: &sources, packages: &packages, suites: &suites, cases: &cases };
        let check = |cell: &str| check("d", &format!("| what | {cell} | x |"), 1, &tree).len();
        let right = [
            "`kernel-core/region::tests::a_hole`, `…tests::a_hole`",
            "`tests::a_hole` and \"a word\" of `it`",
            "`kernel-core/region::tests`",
            "`guest/frame_foreign`, `linux/c/users`, `linux/c`, `machines/*`",
        ];
        right.iter().for_each(|cell| assert_eq!(check(cell), 0, "{cell}"));
        let wrong = [
            "`kernel-core/region::tests::other`",
            "`other::a_hole`",
            "`hole::a_hole`",
            "`guest/frame_foreig`",
            "`linux/c/user`",
            "`nowhere/a_hole`",
            "no name at all",
        ];
        wrong.iter().for_each(|cell| assert_eq!(check(cell), 1, "{cell}"));
    }
}
