//! Each cited ID of a paper has an entry in docs/papers.md, and each entry is cited.

use std::collections::BTreeSet;

use super::Source;

/// The entries: a section for each paper, in its table a row for each ID.
pub const DOCUMENT: &str = "docs/papers.md";
/// The papers' names.
const PAPERS: [&str; 5] = ["aegis95", "xok97", "thesis98", "appnet", "l4stack"];
/// What stands before a paper's name in a word.
const OPENING: [char; 5] = ['(', '[', '"', '`', '*'];
/// What a line of a comment begins with.
const COMMENT: [&str; 3] = ["//", "///", "//!"];
/// What stands between the first and the last ID of a range.
const TO: [&str; 3] = ["..", "–", "-"];

/// A paper's ID, and the line that it stands in.
struct Id<'a> {
    paper: &'a str,
    name: String,
    line: usize,
}

/// Complains of each citation without an entry, of each entry that nothing cites, and of entries
/// that are there twice.
pub fn check(document: &str, texts: &[Source]) -> Vec<String> {
    let entries = entries(document);
    let mut complaints = Vec::new();
    let mut known = BTreeSet::new();
    for Id { paper, name, line } in &entries {
        if !known.insert((*paper, name.as_str())) {
            complaints.push(format!("{DOCUMENT}:{line}: {paper} {name} has an entry already"));
        }
    }
    let mut cited = BTreeSet::new();
    for text in texts.iter().filter(|text| text.path != DOCUMENT) {
        for Id { paper, name, line } in citations(&text.text) {
            if !known.contains(&(paper, name.as_str())) {
                let place = format!("{}:{line}", text.path);
                complaints.push(format!("{place}: {paper} {name} has no entry in {DOCUMENT}"));
            }
            cited.insert((paper.to_string(), name));
        }
    }
    for Id { paper, name, line } in entries {
        if !cited.contains(&(paper.to_string(), name.clone())) {
            complaints.push(format!("{DOCUMENT}:{line}: nothing cites {paper} {name}"));
        }
    }
    complaints
}

/// The document's entries: `| ID | a sentence |`, below `## paper`.
fn entries(document: &str) -> Vec<Id<'_>> {
    let mut entries = Vec::new();
    let mut paper = "";
    for (number, line) in document.lines().enumerate() {
        if let Some(name) = line.strip_prefix("## ") {
            paper = name;
        }
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        if let Some(name) = cell.filter(|cell| parts(cell).is_some()) {
            entries.push(Id { paper, name: name.to_string(), line: number + 1 });
        }
    }
    entries
}

/// What a text cites: a paper's name and a list of IDs, which may go on in the next line of a
/// comment; or `paper:ID`.
fn citations(text: &str) -> Vec<Id<'_>> {
    let numbered = text.lines().enumerate();
    let words = numbered.flat_map(|(at, line)| line.split_whitespace().map(move |w| (at + 1, w)));
    let words: Vec<(usize, &str)> = words.filter(|(_, word)| !COMMENT.contains(word)).collect();
    let mut cited = Vec::new();
    for (at, &(line, word)) in words.iter().enumerate() {
        let word = word.trim_start_matches(OPENING);
        let mut add = |paper, names: Vec<String>, line| {
            cited.extend(names.into_iter().map(|name| Id { paper, name, line }));
        };
        match word.split_once(':') {
            Some((paper, id)) if PAPERS.contains(&paper) => add(paper, names(id).0, line),
            None if PAPERS.contains(&word) => {
                let mut rest = words[at + 1..].iter().peekable();
                while let Some(&&(line, item)) = rest.peek() {
                    let (names, behind) = names(item);
                    if names.is_empty() {
                        break;
                    }
                    add(word, names, line);
                    rest.next();
                    let and = rest.next_if(|(_, next)| *next == "and");
                    if and.is_none() && !behind.starts_with(',') {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    cited
}

/// The ID that a word begins with, or all those of a range; and what stands behind.
fn names(word: &str) -> (Vec<String>, &str) {
    let part = |c: char| c.is_ascii_alphanumeric() || ".-–".contains(c);
    let (name, behind) = word.split_at(word.find(|c| !part(c)).unwrap_or(word.len()));
    let name = name.trim_end_matches(['.', '-', '–']);
    if parts(name).is_some() {
        return (vec![name.to_string()], behind);
    }
    let ends = TO.iter().find_map(|to| {
        let (first, last) = name.split_once(to)?;
        Some((parts(first)?, parts(last)?))
    });
    let Some(((letters, first), (others, last))) = ends else { return (Vec::new(), behind) };
    let names = match (first.parse::<u32>(), last.parse::<u32>()) {
        (Ok(first), Ok(last)) if letters == others && first < last => {
            (first..=last).map(|number| format!("{letters}{number}")).collect()
        }
        // No range: it is told, as no entry is called so.
        _ => vec![name.to_string()],
    };
    (names, behind)
}

/// An ID's letters, with their hyphen, and its number: `S`, `25c`; `Z-`, `5`; nothing, `7.1`.
fn parts(word: &str) -> Option<(&str, &str)> {
    let (letters, number) = word.split_at(word.find(|c: char| c.is_ascii_digit())?);
    let is_upper = |text: &str| text.chars().all(|c| c.is_ascii_uppercase());
    let is_letters = is_upper(letters)
        || letters.strip_suffix('-').is_some_and(|text| !text.is_empty() && is_upper(text));
    let digits = number.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(number);
    let is_digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    (is_letters && digits.split('.').all(is_digits)).then_some((letters, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In these texts and documents `@` is a paper, as nothing here may look like a citation.
    fn complaints(document: &str, text: &str) -> String {
        let paper = PAPERS[0];
        let text = text.replace('@', paper);
        let texts = [
            Source { path: "x.rs".into(), text },
            Source { path: DOCUMENT.into(), text: format!("{paper} S99") },
        ];
        check(&document.replace('@', paper), &texts).join("; ").replace(paper, "@")
    }

    #[test]
    fn citations_have_an_entry() {
        let document = "## @\n\n| ID | what |\n|---|---|\n| S1 | a |\n| S2 | b |\n| Z-3 | c |\n";
        let all = "//! A thing (@ S1, S2;\n//! @ Z-3).\n";
        assert_eq!(complaints(document, all), "");
        let right = [
            "/// @ S1..S2, and Z-3: it.",
            "(@\n    // S1–S2,\n    // Z-3)",
            "`@ S2 and S1`, @ Z-3's first half, @ Table 10",
            "@:S1 x\n@:S2 y/z\n| @:Z-3 | x |",
            "| @ S1-S2 | @ Z-3. @'s own, an @: 16-bit, @ 16-bit.",
        ];
        right.iter().for_each(|text| assert_eq!(complaints(document, text), "", "{text}"));
        let wrong = [
            ("@ S3.", "S3"),
            ("@ S1, S22", "S22"),
            ("@ S1 and 7.1", "7.1"),
            ("@ S1..S3", "S3"),
            ("@ S25c: a call", "S25c"),
            ("@:S11 x", "S11"),
            ("@ S2..S1", "S2..S1"),
            ("@ S1..Z-3", "S1..Z-3"),
        ];
        for (text, name) in wrong {
            let said = format!("x.rs:4: @ {name} has no entry in {DOCUMENT}");
            assert_eq!(complaints(document, &format!("{all}\n{text}")), said, "{text}");
        }
        let others = document.replace('@', PAPERS[1]);
        assert!(complaints(&others, all).starts_with("x.rs:1: @ S1 has no entry"));
    }

    #[test]
    fn entries_are_cited_and_there_once() {
        let document = "## @\n| S1 | a |\n| S2 | b |\n";
        assert_eq!(complaints(document, "@ S1, S2"), "");
        assert_eq!(complaints(document, "@ S1; S2"), format!("{DOCUMENT}:3: nothing cites @ S2"));
        let twice = document.replace("S2", "S1");
        let said = format!("{DOCUMENT}:3: @ S1 has an entry already");
        assert_eq!(complaints(&twice, "@ S1"), said);
    }
}
