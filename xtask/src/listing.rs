//! `cargo xtask listing`: a downloaded function as text, and what the verifier says of it.
//!
//! ```sh
//! cargo xtask listing code/tests/toolchain/owns.c owns --given read:76,word --call 7:2
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use code::listing::Listing;
use code::object::{self, ObjectError};
use code::signature::{Call, Dialect, Kind, Parameter, Rights, Signature, WORD};
use code::verifier::{Access, Point, SLOTS_MAX, verify};

use crate::failure::{Context, Failure, Result};
use crate::options::{self, Options};
use crate::packages;
use crate::process;
use crate::workspace;

/// What the command line says of a function.
#[derive(Debug, Default)]
struct Wanted {
    file: PathBuf,
    name: String,
    given: Vec<Parameter>,
    calls: Vec<Call>,
    is_verified: bool,
}

/// `cargo xtask listing FILE FUNCTION [--given LIST] [--call NUMBER:ARGUMENTS]...`; answers the
/// exit status: 1 if the function is refused.
pub fn command(words: Vec<String>) -> Result<u8> {
    let wanted = read(words)?;
    let path = object_file(&wanted.file)?;
    let file = std::fs::read(&path).context(path.display())?;
    let program = object::function(&file, &wanted.name)
        .map_err(|error| refusal(error, &wanted.name))
        .map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))?;
    let (text, is_refused) = show(program, &wanted);
    print!("{text}");
    Ok(u8::from(is_refused))
}

/// Why the file has no such function to show, for people.
fn refusal(error: ObjectError, name: &str) -> String {
    match error {
        ObjectError::NotAnObject => "neither a C file (.c) nor clang's object file for BPF".into(),
        ObjectError::Malformed => {
            "damaged: a part lies outside of the file, or it has too many sections".into()
        }
        ObjectError::NotFound => format!("no function in it is called {name}"),
        ObjectError::NeedsLinking => {
            format!("{name} calls or names something outside of itself, which nothing links here")
        }
    }
}

fn read(words: Vec<String>) -> Result<Wanted> {
    let mut options = Options::new(words);
    let mut wanted = Wanted::default();
    let mut plain = Vec::new();
    while let Some(word) = options.next() {
        match word.as_str() {
            "--given" => {
                let list = options.value("--given")?;
                wanted.given = list.split(',').map(parameter).collect::<Result<_>>()?;
                wanted.is_verified = true;
            }
            "--call" => {
                wanted.calls.push(call(&options.value("--call")?)?);
                wanted.is_verified = true;
            }
            _ if word.starts_with('-') => return Err(options::unknown("listing", &word)),
            _ => plain.push(word),
        }
    }
    let [file, name] = <[String; 2]>::try_from(plain)
        .map_err(|_| Failure::new("a file and a function's name, please").next(options::HELP))?;
    (wanted.file, wanted.name) = (file.into(), name);
    Ok(wanted)
}

/// `word`, `read:BYTES` or `write:BYTES`.
fn parameter(text: &str) -> Result<Parameter> {
    let wrong = || Failure::new(format!("{text}: neither word nor read:BYTES nor write:BYTES"));
    if text == "word" {
        return Ok(WORD);
    }
    let (rights, bytes) = text.split_once(':').ok_or_else(wrong)?;
    let rights = match rights {
        "read" => Rights::Read,
        "write" => Rights::Write,
        _ => return Err(wrong()),
    };
    let bytes = bytes.parse().map_err(|_| wrong())?;
    Ok(Parameter { kind: Kind::Area { bytes, rights }, input: true })
}

/// `NUMBER:ARGUMENTS`.
fn call(text: &str) -> Result<Call> {
    let numbers = text.split_once(':').map(|(number, count)| (number.parse(), count.parse()));
    let Some((Ok(number), Ok(arguments))) = numbers else {
        return Err(Failure::new(format!("{text}: not NUMBER:ARGUMENTS")));
    };
    Ok(Call { number, name: "", arguments, deterministic: true, cost: 0 })
}

/// The object file itself, or what clang makes of a source in C.
fn object_file(file: &Path) -> Result<PathBuf> {
    if file.extension().is_none_or(|extension| extension != "c") {
        return Ok(file.to_path_buf());
    }
    packages::require(&[packages::CLANG])?;
    std::fs::create_dir_all(workspace::output()).context("the target directory")?;
    let object = workspace::output().join("listing.o");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-c", "-o"]).arg(&object).arg(file);
    process::run(&mut clang)?;
    Ok(object)
}

/// The listing, with how each access is held inside if it is known what is given; whether it is
/// refused.
fn show(program: &[u8], wanted: &Wanted) -> (String, bool) {
    let text = Listing { program, calls: &[] }.to_string();
    if !wanted.is_verified {
        return (text, false);
    }
    let signature = Signature {
        parameters: &wanted.given,
        calls: &wanted.calls,
        budget: 0,
        dialect: Dialect::Deterministic,
    };
    let mut points = vec![Point::default(); SLOTS_MAX];
    let function = match verify(program, &signature, &mut points) {
        Ok(function) => function,
        Err(error) => return (format!("{text}refused: {error}\n"), true),
    };
    let mut shown = String::new();
    for line in text.lines() {
        let slot = line.split(':').next().and_then(|slot| slot.trim().parse().ok());
        let remark = match slot.and_then(|slot: usize| function.access(slot)) {
            Some(Access::Proved { .. }) => " ; proved",
            Some(Access::Masked) => " ; masked",
            None => "",
        };
        shown += &format!("{line}{remark}\n");
    }
    let (slots, masked) = (function.slots(), function.masked());
    shown += &format!("verified: {slots} slots, {masked} masked accesses\n");
    (shown, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use code::builder::Builder;
    use code::instruction::{Operation, Register, Size};

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn a_listing_says_how_accesses_are_held() {
        let wanted = read(words("x.o f --given read:8,word --call 7:2")).expect("it is right");
        assert_eq!((wanted.name.as_str(), wanted.given.len()), ("f", 2));
        assert_eq!((wanted.calls[0].number, wanted.calls[0].arguments), (7, 2));
        let mut builder = Builder::new();
        builder.load(Size::B8, Register::R0, Register::R1, 0);
        builder.compute(Operation::Add, Register::R1, Register::R2);
        builder.load(Size::B1, Register::R0, Register::R1, 0).exit();
        let program = builder.finish().expect("no labels");
        let (text, is_refused) = show(&program, &wanted);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("; proved") && lines[2].ends_with("; masked"), "{text}");
        assert_eq!(lines[4], "verified: 4 slots, 1 masked accesses");
        assert!(!is_refused);
        let wanted = read(words("x.o f --given word,word")).expect("it is right");
        assert!(!show(&program, &wanted).1);
        let wanted = read(words("x.o f --given word")).expect("it is right");
        let (text, is_refused) = show(&program, &wanted);
        assert!(text.ends_with("refused: instruction 1: r2 is read before it is written\n"));
        assert!(is_refused);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for wrong in ["x.o", "x.o f g", "x.o f --given page", "x.o f --given read:many"] {
            assert!(read(words(wrong)).is_err(), "{wrong}");
        }
        assert!(read(words("x.o f --call 7")).is_err());
    }
}
