//! Pages of other processes are read in one place, which gives what stands there as their word.

use super::{Source, code};

/// The library whose processes have pages.
const LIBRARY: &str = "libs/exos/src/";
/// Where it reads them: those of all processes, and that of the file server, which init names.
const READERS: [&str; 2] = ["libs/exos/src/said.rs", "libs/exos/src/fs/lookups.rs"];
/// Words that read them.
const READS: [&str; 2] = ["published::application", "Table::ApplicationPages"];

/// Complains of each line elsewhere that reads one.
pub fn check(source: &Source) -> Vec<String> {
    let path = &source.path;
    if !path.starts_with(LIBRARY) || READERS.contains(&path.as_str()) {
        return Vec::new();
    }
    let reads = |line: &str| READS.iter().any(|word| code(line).contains(word));
    let lines = source.text.lines().enumerate().filter(|(_, line)| reads(line));
    let what = "others' pages are read by `crate::said` alone";
    lines.map(|(at, _)| format!("{path}:{}: {what}", at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_in_one_place() {
        let text = "// published::application\nlet word = published::application_word(1, 0);\n";
        let source = |path: &str| Source { path: path.into(), text: text.into() };
        let said = check(&source("libs/exos/src/groups.rs"));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("libs/exos/src/groups.rs:2: "), "{said:?}");
        for path in [READERS[0], "apps/ttyd/src/foreground.rs"] {
            assert_eq!(check(&source(path)), Vec::<String>::new());
        }
    }
}
