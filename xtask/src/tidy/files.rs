//! What a source file looks like: its tagline, its width, its length, its left-overs.

use super::{Source, code};

/// Most characters of a line.
const WIDTH_MAX: usize = 100;
/// Most lines of a file.
const LINES_MAX: usize = 600;
/// Most characters of a tagline: it is one line, and says one thing.
const TAGLINE_MAX: usize = 100;

/// Complains of a file without a tagline, too long, too wide, or with left-overs in it.
pub fn check(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |line: usize, what: &str| {
        complaints.push(format!("{}:{line}: {what}", source.path));
    };

    let first = source.text.lines().next().unwrap_or("");
    let tagline = first.strip_prefix("//! ").unwrap_or("");
    if tagline.is_empty() || first.chars().count() > TAGLINE_MAX || !ends_a_sentence(tagline) {
        complain(1, "the first line must be `//! One sentence.`");
    }
    let length = source.text.lines().count();
    if length > LINES_MAX {
        complain(length, &format!("{length} lines; {LINES_MAX} at most"));
    }
    for (number, line) in source.text.lines().enumerate() {
        if line.chars().count() > WIDTH_MAX {
            complain(number + 1, &format!("wider than {WIDTH_MAX} characters"));
        }
        if code(line).contains("dbg!(") {
            complain(number + 1, "a dbg! was left over");
        }
        if ["FIXME", "XXX"].iter().any(|word| is_remark(line, word)) {
            complain(number + 1, "a left-over remark; what is not true yet is docs/caveats.md's");
        }
    }
    complaints
}

fn ends_a_sentence(tagline: &str) -> bool {
    tagline.ends_with(['.', '?', '!'])
}

/// Whether a comment of the line begins with `word`.
fn is_remark(line: &str, word: &str) -> bool {
    line.split_once("//")
        .is_some_and(|(_, comment)| comment.trim_start_matches(['/', '!', ' ']).starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check(&Source { path: "x.rs".into(), text: text.into() }).len()
    }

    #[test]
    fn a_file_has_a_tagline() {
        assert_eq!(complaints("//! What it is.\n\nfn f() {}\n"), 0);
        assert_eq!(complaints("//! (to be written)\n"), 1);
        assert_eq!(complaints("fn f() {}\n"), 1);
        assert_eq!(complaints(""), 1);
    }

    #[test]
    fn a_file_is_neither_wide_nor_long() {
        assert_eq!(complaints(&format!("//! X.\n// {}\n", "ä".repeat(97))), 0);
        assert_eq!(complaints(&format!("//! X.\n// {}\n", "x".repeat(98))), 1);
        assert_eq!(complaints(&format!("//! X.\n{}", "\n".repeat(599))), 0);
        assert_eq!(complaints(&format!("//! X.\n{}", "\n".repeat(600))), 1);
    }

    #[test]
    fn nothing_is_left_over() {
        assert_eq!(complaints(&["//! X.\n    db", "g!(x);\n"].concat()), 1);
        assert_eq!(complaints(&["//! X.\n/", "/ FIX", "ME later\n"].concat()), 1);
        assert_eq!(complaints("//! X.\nlet text = \"dbg!(\";\n"), 0);
    }
}
