//! What `--only`, `--suite` and `--place` may say: refused before anything is built or booted.
//!
//! No list of all tests exists: those of the host are cargo's, and the guest's programs have their
//! own. But each test's name is made of words that stand in the sources, so a pattern with a word
//! that stands nowhere there is in no test's name.

use std::collections::BTreeSet;
use std::path::Path;

use crate::failure::{Context, Failure, Result};
use crate::iso::emulator::{self, Emulator};
use crate::linux_suite;
use crate::machine::Kind;
use crate::workspace;

/// How many names are shown that are near to the one that was asked for.
const NEAR: usize = 5;
/// Processors of the machines that suites boot.
const CPUS: std::ops::RangeInclusive<u32> = 1..=4;
/// Places that are called by one word.
const PLACES: [&str; 7] = ["x1", "x2", "guarded", "open", "crowded", "full", "counted"];
/// Suites whose tests run on machines that have names; the others run where they run.
const PLACED: [&str; 7] = ["guest", "iso", "net", "status", "load", "exos", "hostile"];
/// Kinds of files with tests in them.
const SOURCES: [&str; 2] = ["rs", "txt"];

/// Refuses a suite that is none of `all`.
pub fn check_suites(chosen: &[String], all: &[&str]) -> Result<()> {
    let unknown = chosen.iter().find(|name| !all.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        let names = all.join(", ");
        Err(Failure::new(format!("--suite {name}: no such suite; there are {names}")))
    })
}

/// Refuses a place that no suite has, and one where all that is chosen are suites without places.
pub fn check_place(place: &str, chosen: &[String]) -> Result<()> {
    let places = places();
    if places.iter().any(|known| known == place) {
        let is_placed = |name: &String| PLACED.contains(&name.as_str());
        if chosen.is_empty() || chosen.iter().any(is_placed) {
            return Ok(());
        }
        let (suites, placed) = (chosen.join(", "), PLACED.join(", "));
        let refused =
            format!("--place {place}: not for suite {suites}, which names no machine; {placed} do");
        return Err(Failure::new(refused));
    }
    let near = match near(place, places.iter().map(String::as_str)) {
        none if none.is_empty() => format!("there are {}", places.join(", ")),
        near => format!("near are {near}"),
    };
    Err(Failure::new(format!("--place {place}: no suite has such a machine; {near}")))
}

/// Refuses a pattern that no test's name holds, as far as the sources tell.
pub fn check_pattern(only: &str, chosen: &[String], suites: &[&str]) -> Result<()> {
    let words = words()?;
    if let Some(piece) = unknown_piece(only, &words) {
        let names = words.iter().map(String::as_str).filter(|word| word.contains(['_', '-']));
        let near = near(piece, names);
        let said = if near.is_empty() { String::new() } else { format!("; near are {near}") };
        return Err(Failure::new(format!("--only {only}: no test's name holds it{said}")));
    }
    // Tests of the host begin with their package's name, and a package may be called as a suite is.
    let suite = only.split_once('/').map(|(suite, _)| suite).filter(|name| suites.contains(name));
    match suite {
        Some(suite)
            if !chosen.is_empty() && !chosen.iter().any(|one| one == suite || one == "host") =>
        {
            let chosen = chosen.join(", ");
            Err(Failure::new(format!("--only {only}: a test of suite {suite}, not of {chosen}")))
        }
        _ => Ok(()),
    }
}

/// May a test whose name begins with `part` and a slash, a suite or a package, hold the pattern?
/// Not if that begins with another one of `all` of these; where it begins within a name, any may.
pub fn may_hold(only: Option<&str>, part: &str, all: &[&str]) -> bool {
    let first = only.and_then(|only| only.split_once('/')).map(|(first, _)| first);
    first.is_none_or(|first| first == part || !all.contains(&first))
}

/// The places of all suites, and some that only look like one.
fn places() -> Vec<String> {
    let kinds = [Kind::Q35, Kind::Microvm];
    let emulators = [Emulator::SeaBios, Emulator::Ovmf, Emulator::Bochs];
    let mut places: Vec<String> = PLACES.map(str::to_string).to_vec();
    places.extend(kinds.iter().map(|kind| kind.name().to_string()));
    for cpus in CPUS {
        places.extend(kinds.iter().map(|kind| format!("{} x{cpus}", kind.name())));
        places.extend(emulators.map(|one| emulator::place(one, cpus)));
    }
    places
}

/// May a word of a name have this letter?
fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// A piece of the pattern that no word holds. Names with numbers are made as the tests run: of
/// those the parts between the numbers are looked for.
fn unknown_piece<'a>(pattern: &'a str, words: &BTreeSet<String>) -> Option<&'a str> {
    // Most pieces are words as they are.
    let stands =
        |piece: &str| words.contains(piece) || words.iter().any(|word| word.contains(piece));
    pattern.split(|letter| !is_letter(letter)).find(|piece| {
        let made = piece.contains(|letter: char| letter.is_ascii_digit());
        let not_a_word = |letter: char| !letter.is_ascii_alphabetic();
        !(stands(piece) || made && piece.split(not_a_word).all(stands))
    })
}

/// All words of the sources, and of the names of the suite `linux`, whose cases hold much else.
fn words() -> Result<BTreeSet<String>> {
    let mut words: BTreeSet<String> = BTreeSet::new();
    for name in linux_suite::names()? {
        words.extend(name.split('/').map(str::to_string));
    }
    collect(workspace::root(), &mut words)?;
    Ok(words)
}

fn collect(directory: &Path, words: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            words.insert(name);
            collect(&path, words)?;
            continue;
        }
        words.insert(name.split('.').next().unwrap_or_default().to_string());
        if path.extension().is_some_and(|kind| SOURCES.iter().any(|source| kind == *source)) {
            let text = std::fs::read(&path).context(path.display())?;
            let text = String::from_utf8_lossy(&text);
            words.extend(text.split(|letter| !is_letter(letter)).map(str::to_string));
        }
    }
    Ok(())
}

/// Those of `names` that are nearest to `asked`, if any is near: those that differ in a third of
/// its letters at most, and those that have half of its words.
fn near<'a>(asked: &str, names: impl Iterator<Item = &'a str>) -> String {
    let parts =
        |name: &str| name.split(['_', '-', ' ']).map(str::to_string).collect::<BTreeSet<_>>();
    let wanted = parts(asked);
    let mut all: Vec<(usize, usize, &str)> = names
        .map(|name| {
            let shared = parts(name).intersection(&wanted).count();
            (wanted.len() - shared, distance(asked, name), name)
        })
        .filter(|(missing, far, _)| 3 * far <= asked.len() || 2 * missing <= wanted.len())
        .collect();
    all.sort_by_key(|&(missing, far, _)| (far + 4 * missing, far));
    let nearest: Vec<&str> = all.into_iter().map(|(_, _, name)| name).take(NEAR).collect();
    nearest.join(", ")
}

/// Letters to insert, remove or replace to make one of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut corner = core::mem::replace(&mut row[0], at + 1);
        for (column, with) in other.bytes().enumerate() {
            let replaced = corner + usize::from(letter != with);
            corner = row[column + 1];
            row[column + 1] = replaced.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(answer: Result<()>) -> String {
        answer.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_no_test_is_called_is_refused_with_what_is_near() {
        // In two pieces, as the word would stand in the sources else.
        let nothing = ["qqx", "zzq"].concat();
        let said = refused(check_pattern(&nothing, &[], &["exos"]));
        assert!(said.contains(&format!("--only {nothing}: no test's name holds it")), "{said}");
        let misspelt = ["exos/hung_up_sessions_hear_no_other", "terminals"].join("_");
        let said = refused(check_pattern(&misspelt, &[], &["exos"]));
        assert!(said.contains("near are hung_up_sessions_hear_no_other_terminal"), "{said}");
        let said = refused(check_pattern("linux/c/waiting", &["exos".into()], &["exos", "linux"]));
        assert!(said.contains("a test of suite linux, not of exos"), "{said}");
        let said = refused(check_place("q35 x9", &[]));
        assert!(said.contains("--place q35 x9: no suite has") && said.contains("q35 x1"), "{said}");
        let chosen = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<_>>();
        assert!(check_place("microvm x2", &[]).is_ok());
        assert!(check_place("bochs x1", &chosen(&["host", "iso"])).is_ok());
        let said = refused(check_place("x1", &chosen(&["host", "linux"])));
        assert!(said.contains("--place x1: not for suite host, linux"), "{said}");
    }

    #[test]
    fn suites_that_hold_no_such_test_are_left_out() {
        let all = ["exos", "linux", "kernel-core"];
        let may = |only: &str| all.map(|part| may_hold(Some(only), part, &all));
        assert_eq!(may("exos/locks"), [true, false, false]);
        assert_eq!(may("kernel-core/tests::x"), [false, false, true]);
        assert_eq!(may("c/users"), [true; 3]);
        assert_eq!(may("locks"), [true; 3]);
        assert!(all.iter().all(|part| may_hold(None, part, &all)));
    }

    #[test]
    fn names_of_tests_are_known() {
        let words = words().unwrap();
        let mut names = crate::conformance::tests().unwrap();
        names.extend(crate::linux_suite::names().unwrap());
        names.extend(["load/baseline_100_kept", "machines/bochs-x2"].map(str::to_string));
        for directory in std::fs::read_dir(workspace::root().join("tests/mutate")).unwrap() {
            let text = std::fs::read_to_string(directory.unwrap().path()).unwrap();
            names.extend(
                text.lines().filter_map(|line| line.strip_prefix("  test ")).map(str::to_string),
            );
        }
        let unknown: Vec<&String> =
            names.iter().filter(|name| unknown_piece(name, &words).is_some()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
