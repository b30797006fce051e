//! The planted faults as they are written down: `tests/mutate/*.faults`.
//!
//! ```text
//!  any-frame-is-mapped: a frame is mapped for whoever knows its number
//!    test guest/frame_foreign
//!    in   kernel/core/src/update.rs
//!    was  if «!copied && !request.capability.dominates(…)» {
//!    is   false
//! ```
//! `was` occurs once in the file, however its spaces and lines fall; what stands between the marks
//! becomes `is` when the fault is chosen. Further words: `at`, the machine that shows it; `apart`,
//! it stands in a copy without most others; `raw` instead of `is`, for text that chooses by itself:
//! it stands in every boot of the copy, with the fault's number in place of `PLANTED`.

use crate::failure::{Context, Failure, Result};
use crate::workspace;

/// Where the files lie.
pub const DIRECTORY: &str = "tests/mutate";

/// What one fault changes in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The file, from the root.
    pub file: String,
    /// The text around it, with the piece between `«` and `»`.
    pub was: String,
    /// What becomes of the piece.
    pub is: String,
    /// Whether `is` stands there whatever is chosen.
    pub raw: bool,
}

/// A mistake that somebody could make, and the test that finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Its name on the command line.
    pub id: String,
    /// The file that it is written in, from the root.
    pub file: String,
    /// What is wrong then, in a phrase.
    pub what: String,
    /// The tests that must find it, as the results name them.
    pub tests: Vec<String>,
    /// The machine, as the results have it; empty: the suite's usual one.
    pub place: String,
    /// Whether it stands in a copy with the few others that say so: its test counts the kernel's
    /// instructions, and the choices of all faults would be too many.
    pub apart: bool,
    /// What it changes.
    pub edits: Vec<Edit>,
}

/// All faults, file by file; a fault's number is its place here, from 1.
pub fn all() -> Result<Vec<Fault>> {
    let directory = workspace::root().join(DIRECTORY);
    let mut files: Vec<_> = std::fs::read_dir(&directory)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .context(DIRECTORY)?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "faults"));
    files.sort();
    let mut faults: Vec<Fault> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).context(path.display())?;
        let found = parse(&text).map_err(|why| Failure::new(format!("{}: {why}", path.display())));
        let file = path.strip_prefix(workspace::root()).unwrap_or(&path).to_string_lossy();
        for mut fault in found? {
            fault.file = file.to_string();
            if faults.iter().any(|other| other.id == fault.id) {
                return Err(Failure::new(format!("{}: {} twice", path.display(), fault.id)));
            }
            faults.push(fault);
        }
    }
    Ok(faults)
}

fn parse(text: &str) -> std::result::Result<Vec<Fault>, String> {
    let mut faults: Vec<Fault> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with(' ') {
            let (id, what) = line.split_once(": ").ok_or(wrong("not `id: what`"))?;
            let (id, what) = (id.to_string(), what.to_string());
            faults.push(Fault { id, what, ..Fault::default() });
            continue;
        }
        let fault = faults.last_mut().ok_or(wrong("no fault yet"))?;
        let (key, value) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let value = value.trim().to_string();
        match key {
            "test" => fault.tests.push(value),
            "at" => fault.place = value,
            "apart" => fault.apart = true,
            "in" => fault.edits.push(Edit { file: value, ..Edit::default() }),
            "was" | "is" | "raw" => {
                let edit = fault.edits.last_mut().ok_or(wrong("no `in` yet"))?;
                // The same file once more.
                if key == "was" && !edit.was.is_empty() {
                    let file = edit.file.clone();
                    fault.edits.push(Edit { file, was: value, ..Edit::default() });
                } else if key == "was" {
                    edit.was = value;
                } else {
                    edit.is = value;
                    edit.raw = key == "raw";
                }
            }
            _ => return Err(wrong("neither test, at, apart, in, was, is nor raw")),
        }
    }
    match faults.iter().find(|fault| !is_whole(fault)) {
        Some(fault) => Err(format!("{}: lacks a test, a place or its marks", fault.id)),
        None => Ok(faults),
    }
}

fn is_whole(fault: &Fault) -> bool {
    let marked = |edit: &Edit| edit.was.contains('«') && edit.was.contains('»');
    let named = |test: &String| test.contains('/');
    !fault.tests.is_empty()
        && fault.tests.iter().all(named)
        && !fault.edits.is_empty()
        && fault.edits.iter().all(marked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let text = "# head\n\na-b: it is wrong\n  test guest/x\n  at q35 x1\n  apart\n  \
                    in k.rs\n  was f(«1»)\n  is 2\n  was «g»\n  raw h(PLANTED)\n";
        let faults = parse(text).unwrap();
        assert_eq!(faults.len(), 1);
        let fault = &faults[0];
        assert_eq!((fault.id.as_str(), fault.what.as_str()), ("a-b", "it is wrong"));
        assert_eq!((fault.tests[0].as_str(), fault.place.as_str()), ("guest/x", "q35 x1"));
        assert_eq!((fault.edits[0].was.as_str(), fault.edits[0].is.as_str()), ("f(«1»)", "2"));
        assert!(!fault.edits[0].raw && fault.edits[1].raw && fault.edits[1].file == "k.rs");
        assert!(fault.apart);
    }

    #[test]
    fn half_a_fault_is_refused() {
        for text in ["a-b\n", "  test x/y\n", "a: b\n test x/y\n", "a: b\n in f\n was «x»\n is y\n"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
