//! Case files: what one group of command lines is made of.
//!
//! A `.cases` file opens with comment lines (`#`) and directives (`%`), then holds cases:
//!
//! ```text
//! === name                 a case; its lines up to the next mark are the script, verbatim
//! --- stdin                its standard input (without it: empty)
//! --- keys                 run on the terminal, with these keystrokes (see `keys`)
//! --- after                for a case with keys: a script whose output is compared too
//! --- excluded REASON      not run; named in the report with the reason
//! ```
//!
//! A line `%shell PROGRAM ARGS` before the first case names what runs the scripts; `sh` without it.
//! A script finds in its environment: `PATH`, which reaches busybox's applets and `bash-static`
//! alone, `BUSYBOX`, the program's path, and `PROGRAMS`, the directory of the compiled ones.

use std::fmt;

/// What runs the scripts when a group names nothing else.
pub const DEFAULT_SHELL: &str = "sh";

/// One group: the cases that share a guest boot.
#[derive(Debug, Default, PartialEq)]
pub struct Group {
    /// Name of the file without its suffix.
    pub name: String,
    /// Command that runs each script.
    pub shell: String,
    /// The cases in file order.
    pub cases: Vec<Case>,
}

/// One case: a script and what it is given.
#[derive(Debug, Default, PartialEq, Clone)]
pub struct Case {
    /// Unique in its group.
    pub name: String,
    /// The script, ending in a newline.
    pub script: String,
    /// Standard input.
    pub stdin: String,
    /// Keystrokes, one command a line; `Some` makes the case interactive.
    pub keys: Option<String>,
    /// Script run after an interactive one; its output is compared.
    pub after: Option<String>,
    /// Why the case isn't run.
    pub excluded: Option<String>,
}

impl Group {
    /// A group without cases.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), shell: DEFAULT_SHELL.into(), cases: Vec::new() }
    }
}

/// A mistake in a case file.
#[derive(Debug, PartialEq)]
pub struct Mistake {
    line: usize,
    what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.what)
    }
}

/// Which part of a case the next lines belong to.
#[derive(Clone, Copy)]
enum Part {
    Script,
    Stdin,
    Keys,
    After,
    Nothing,
}

/// Reads a group from the text of its file.
pub fn parse(name: &str, text: &str) -> Result<Group, Mistake> {
    let mut group = Group::new(name);
    let mut part = Part::Nothing;
    for (index, line) in text.lines().enumerate() {
        let mistake = |what: &str| Mistake { line: index + 1, what: what.into() };
        if let Some(case_name) = line.strip_prefix("=== ") {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if case_name.is_empty() || !case_name.chars().all(plain) {
                return Err(mistake("a case's name is letters, digits and hyphens"));
            }
            if group.cases.iter().any(|case| case.name == case_name) {
                return Err(mistake("two cases of this name"));
            }
            group.cases.push(Case { name: case_name.into(), ..Case::default() });
            part = Part::Script;
            continue;
        }
        let Some(case) = group.cases.last_mut() else {
            directive(&mut group, line).map_err(|what| mistake(&what))?;
            continue;
        };
        if let Some(mark) = line.strip_prefix("--- ") {
            part = begin_part(case, mark).ok_or_else(|| mistake("unknown part"))?;
            continue;
        }
        let text = match part {
            Part::Script => &mut case.script,
            Part::Stdin => &mut case.stdin,
            Part::Keys => case.keys.get_or_insert_default(),
            Part::After => case.after.get_or_insert_default(),
            Part::Nothing => continue,
        };
        text.push_str(line);
        text.push('\n');
    }
    for case in &mut group.cases {
        trim_end(&mut case.script);
    }
    Ok(group)
}

/// Takes a line that stands before the first case.
fn directive(group: &mut Group, line: &str) -> Result<(), String> {
    if let Some(shell) = line.strip_prefix("%shell ") {
        group.shell = shell.into();
    } else if !line.is_empty() && !line.starts_with('#') {
        return Err("neither a comment, a directive nor a case".into());
    }
    Ok(())
}

/// Opens the part that `mark` names.
fn begin_part(case: &mut Case, mark: &str) -> Option<Part> {
    match mark {
        "stdin" => Some(Part::Stdin),
        "keys" => {
            case.keys = Some(String::new());
            Some(Part::Keys)
        }
        "after" => {
            case.after = Some(String::new());
            Some(Part::After)
        }
        _ => {
            case.excluded = Some(mark.strip_prefix("excluded ")?.into());
            Some(Part::Nothing)
        }
    }
}

/// Removes the blank lines that separate a script from the next case.
fn trim_end(script: &mut String) {
    while script.ends_with("\n\n") {
        script.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_scripts_parts_and_directives() {
        let text =
            "# c\n%shell /bin/x\n=== a\necho\n\n--- stdin\nin\n\n=== b\nx\n--- keys\nsend q\n";
        let group = parse("g", text).unwrap();
        assert_eq!(group.shell, "/bin/x");
        assert_eq!(group.cases[0].script, "echo\n");
        assert_eq!(group.cases[0].stdin, "in\n\n");
        assert_eq!(group.cases[1].keys.as_deref(), Some("send q\n"));
    }

    #[test]
    fn refuses_a_repeated_name_and_names_the_line() {
        let mistake = parse("g", "=== a\nx\n=== a\n").unwrap_err();
        assert_eq!(mistake.line, 3);
    }
}
