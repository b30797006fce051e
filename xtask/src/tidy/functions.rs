//! How long a function may be: seventy lines, or one flat match.

use super::{Source, code, indent};

/// Most lines of a function, from `fn` to the closing brace.
const LINES_MAX: usize = 70;
/// Most lines around the match of a function that is one flat match.
const AROUND_MATCH_MAX: usize = 20;
/// Most lines of one arm of a flat match.
const ARM_MAX: usize = 12;

/// Complains of functions that are too long.
pub fn check(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let too_long = |begin: usize| {
        let end = end_of_function(&lines, begin)?;
        let length = end - begin + 1;
        if length <= LINES_MAX || is_flat_match(&lines[begin..=end]) {
            return None;
        }
        let name = lines[begin].trim();
        Some(format!("{}:{}: {length} lines in `{name}`", source.path, begin + 1))
    };
    (0..lines.len()).filter(|&line| begins_function(lines[line])).filter_map(too_long).collect()
}

fn begins_function(line: &str) -> bool {
    let code = code(line);
    let mut words = code.split_whitespace();
    let qualifier = |word: &str| {
        word.starts_with("pub")
            || ["const", "unsafe", "async", "extern", "\"\"", "default"].contains(&word)
            || ["crate)", "super)", "self)"].contains(&word)
    };
    words.find(|word| !qualifier(word)) == Some("fn")
}

/// The line of the closing brace, if the function has a body: the sources are formatted, so the
/// brace is as far to the right as the `fn`.
fn end_of_function(lines: &[&str], begin: usize) -> Option<usize> {
    let depth = indent(lines[begin]);
    for (line, text) in lines.iter().enumerate().skip(begin) {
        let code = code(text);
        let code = code.trim_end();
        // A declaration, or a function on one line.
        let signature_ends = indent(text) <= depth && (code.ends_with(';') || code.ends_with('}'));
        if signature_ends && !text.trim_start().starts_with('}') {
            return None;
        }
        if line > begin && text.trim_end() == format!("{:depth$}}}", "") {
            return Some(line);
        }
    }
    None
}

/// Whether nearly all of it is one match, of which no arm is long.
fn is_flat_match(function: &[&str]) -> bool {
    let inner = indent(function[0]) + 4;
    let begins = |line: &&str| indent(line) == inner && code(line).contains("match ");
    let Some(begin) = function.iter().position(begins) else { return false };
    let closes = |line: &&str| indent(line) == inner && line.trim_start().starts_with('}');
    let Some(length) = function[begin..].iter().position(closes) else { return false };
    if function.len() - length > AROUND_MATCH_MAX {
        return false;
    }
    let mut arm = 0;
    for line in &function[begin + 1..begin + length] {
        arm = if indent(line) == inner + 4 && !line.trim_start().starts_with('}') {
            1
        } else {
            arm + 1
        };
        if arm > ARM_MAX {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check(&Source { path: "x.rs".into(), text: text.into() }).len()
    }

    #[test]
    fn seventy_lines_are_enough() {
        let function = |lines: usize| {
            format!(
                "impl X {{\n    pub(crate) const fn f(\n    ) {{\n{}    }}\n}}\n",
                "        a;\n".repeat(lines)
            )
        };
        assert_eq!(complaints(&function(67)), 0);
        assert_eq!(complaints(&function(68)), 1);
        let foreign = function(68).replace("const fn", "unsafe extern \"C\" fn");
        assert_eq!(complaints(&foreign), 1);
    }

    #[test]
    fn declarations_have_no_length() {
        let text = format!("trait T {{\n    fn f();\n    fn g(\n    );\n}}\n{}", "x;\n".repeat(90));
        assert_eq!(complaints(&text), 0);
    }

    #[test]
    fn a_flat_match_may_be_long() {
        let arms = "        X => y,\n".repeat(90);
        assert_eq!(complaints(&format!("fn f() {{\n    match x {{\n{arms}    }}\n}}\n")), 0);
        let deep = format!("        X => {{\n{}        }}\n", "            a;\n".repeat(90));
        assert_eq!(complaints(&format!("fn f() {{\n    match x {{\n{deep}    }}\n}}\n")), 1);
        let before = "    a;\n".repeat(30);
        assert_eq!(
            complaints(&format!("fn f() {{\n{before}    match x {{\n{arms}    }}\n}}\n")),
            1
        );
    }
}
