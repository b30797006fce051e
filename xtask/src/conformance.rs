//! `cargo xtask conformance`: which demand is held by which test, and whether it passed.

use std::fmt::Write;

use crate::failure::{Context, Failure, Result};
use crate::tally::{self, Outcome};
use crate::workspace;

/// The table: an ID and the tests that hold it on each line.
pub const TABLE: &str = "tests/conformance.txt";
/// What is written.
const DOCUMENT: &str = "docs/conformance.md";

/// Writes the document from the table and the last results.
pub fn command() -> Result<()> {
    let table = parse(&workspace::read(TABLE)?)?;
    let results = tally::kept()?;
    if results.is_empty() {
        return Err(Failure::new("no test has run yet").next("cargo xtask test"));
    }
    let path = workspace::root().join(DOCUMENT);
    let text = document(&table, &results);
    std::fs::write(&path, &text).context(DOCUMENT)?;
    // A run of some tests leaves the others' demands without a result.
    let missing = text.lines().filter(|line| line.ends_with("| missing |")).count();
    println!("{DOCUMENT}: {} demands, {missing} of them missing in the last run", table.len());
    Ok(())
}

/// Every test that holds a demand, once.
pub fn tests() -> Result<Vec<String>> {
    let table = parse(&workspace::read(TABLE)?)?;
    let mut tests: Vec<String> = table.into_iter().flat_map(|row| row.tests).collect();
    tests.sort();
    tests.dedup();
    Ok(tests)
}

struct Row {
    id: String,
    tests: Vec<String>,
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace().map(str::to_string);
        let id = words.next().unwrap_or_default();
        if !id.contains(':') || rows.iter().any(|row| row.id == id) {
            return Err(Failure::new(format!("{TABLE}: {id}: not an ID, or twice")));
        }
        rows.push(Row { id, tests: words.collect() });
    }
    Ok(rows)
}

fn document(table: &[Row], results: &[Outcome]) -> String {
    let verdicts: Vec<&str> = table.iter().map(|row| verdict(row, results)).collect();
    let passed = verdicts.iter().filter(|verdict| **verdict == "pass").count();
    let mut text = format!(
        "# Conformance\n\n\
         Made by `cargo xtask conformance` from tests/conformance.txt and the last run of\n\
         `cargo xtask test`: {passed} of {} demands are held. A demand without a test, or whose\n\
         test did not run, is `missing`.\n\n\
         | ID | test | result |\n|---|---|---|\n",
        table.len()
    );
    for (row, verdict) in table.iter().zip(verdicts) {
        let tests = if row.tests.is_empty() { "-".to_string() } else { row.tests.join(", ") };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {tests} | {verdict} |", row.id);
    }
    text
}

/// `pass` only if each of its tests ran, and passed everywhere.
fn verdict(row: &Row, results: &[Outcome]) -> &'static str {
    let ran = |test: &String| results.iter().any(|result| result.name == *test);
    let failed = |test: &String| results.iter().any(|one| one.name == *test && !one.passed);
    if row.tests.iter().any(failed) {
        "fail"
    } else if row.tests.is_empty() || !row.tests.iter().all(ran) {
        "missing"
    } else {
        "pass"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, place: &str, passed: bool) -> Outcome {
        Outcome { name: name.into(), place: place.into(), passed }
    }

    #[test]
    fn a_row_passes_only_if_all_its_tests_did() {
        let table = parse("# head\n\nx:1 a b\nx:2 c\nx:3\nx:4 a\n").unwrap();
        let results =
            [outcome("a", "", true), outcome("b", "one", true), outcome("b", "two", false)];
        let text = document(&table, &results);
        assert!(text.contains("| x:1 | a, b | fail |\n"), "{text}");
        assert!(text.contains("| x:2 | c | missing |\n| x:3 | - | missing |\n"));
        assert!(text.contains("| x:4 | a | pass |\n") && text.contains("1 of 4 demands"));
    }

    #[test]
    fn ids_are_unique() {
        assert!(parse("x:1 a\nx:1 b\n").is_err());
        assert!(parse("x1 a\n").is_err());
    }

    #[test]
    fn the_committed_table_is_well_formed() {
        assert!(!parse(&workspace::read(TABLE).unwrap()).unwrap().is_empty());
    }
}
