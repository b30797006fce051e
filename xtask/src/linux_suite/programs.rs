//! The small programs of `tests/linux`, by language: one file, one static program, one case.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::case_file::{Case, Group};
use crate::failure::{Context, Result};
use crate::packages;
use crate::process;
use crate::report;
use crate::workspace;

/// A language, whose directory is the group's name.
struct Language {
    name: &'static str,
    suffix: &'static str,
    compile: fn(&Path, &Path) -> Result<()>,
    /// What stands before a program's path where it is run.
    before: &'static str,
}

const LANGUAGES: [Language; 5] = [
    Language { name: "c", suffix: "c", compile: compile_c, before: "" },
    Language { name: "musl", suffix: "c", compile: compile_musl, before: "" },
    Language { name: "rust", suffix: "rs", compile: compile_rust, before: "" },
    Language { name: "go", suffix: "go", compile: compile_go, before: "" },
    Language { name: "lua", suffix: "lua", compile: compile_lua, before: "$PROGRAMS/lua " },
];

/// What compiles C.
const COMPILER: (&str, &str) = ("gcc", "gcc");
/// What programs are linked with: a library of this file is enough to know that all are there.
const LIBRARY: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev");
/// What compiles C with another library.
const MUSL: (&str, &str) = ("musl-gcc", "musl-tools");
/// Where Go's own packages install its compiler.
const GO: &str = "/usr/local/go/bin/go";
/// Debian's, if that is not there.
const DEBIAN_GO: (&str, &str) = ("go", "golang-go");
/// Lua as a library, whose header and archive are one package.
const LUA: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/liblua5.4.a", "liblua5.4-dev");
/// The program that runs Lua's scripts: its source among them, and its name among the programs.
const INTERPRETER: (&str, &str) = ("interpreter.c", "lua");

/// Is this the name of one of their groups?
pub fn is_group(name: &str) -> bool {
    LANGUAGES.iter().any(|language| language.name == name)
}

fn go() -> Result<PathBuf> {
    let own = PathBuf::from(GO);
    if own.is_file() {
        return Ok(own);
    }
    packages::require(&[DEBIAN_GO])?;
    Ok(DEBIAN_GO.0.into())
}

/// Where the compiled ones lie.
pub fn directory() -> PathBuf {
    workspace::output().join("linux-programs")
}

/// A group for each language, a case for each program.
pub fn groups() -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for language in &LANGUAGES {
        let mut group = Group::new(language.name);
        for source in sources(language)? {
            let name = name_of(&source);
            // What those of other languages say when they fail names threads and addresses.
            let errors = if language.suffix == "c" { "" } else { " 2>/dev/null" };
            let script = format!("{}$PROGRAMS/{name}{errors}\n", language.before);
            group.cases.push(Case { name, script, ..Case::default() });
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Compiles those whose source is newer than the program.
pub fn compile() -> Result<()> {
    let directory = directory();
    fs::create_dir_all(&directory).context(directory.display())?;
    for language in &LANGUAGES {
        let common = sources_directory(language).join("check.h");
        for source in sources(language)? {
            let program = directory.join(name_of(&source));
            let current = !common.is_file() || is_newer(&program, &common);
            if current && is_newer(&program, &source) {
                continue;
            }
            report::step(&format!("compiling {}", source.display()));
            (language.compile)(&source, &program)?;
        }
    }
    Ok(())
}

fn compile_c(source: &Path, program: &Path) -> Result<()> {
    packages::require(&[COMPILER])?;
    packages::require_file(LIBRARY)?;
    let options = ["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o"];
    process::run(Command::new("gcc").args(options).arg(program).arg(source))
}

fn compile_rust(source: &Path, program: &Path) -> Result<()> {
    packages::require_file(LIBRARY)?;
    let options = ["--edition", "2021", "-O", "-C", "target-feature=+crt-static", "-o"];
    process::run(Command::new("rustc").args(options).arg(program).arg(source))
}

fn compile_musl(source: &Path, program: &Path) -> Result<()> {
    packages::require(&[MUSL])?;
    let options = ["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o"];
    process::run(Command::new(MUSL.0).args(options).arg(program).arg(source))
}

fn compile_go(source: &Path, program: &Path) -> Result<()> {
    let cache = workspace::output().join("go-cache");
    let mut command = Command::new(go()?);
    command.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOCACHE", cache);
    process::run(command.args(["build", "-o"]).arg(program).arg(source))
}

/// A script is its own program; what it needs is the interpreter beside it.
fn compile_lua(source: &Path, program: &Path) -> Result<()> {
    let (own_source, own_name) = INTERPRETER;
    let own_source = source.with_file_name(own_source);
    let interpreter = program.with_file_name(own_name);
    if !is_newer(&interpreter, &own_source) {
        packages::require(&[COMPILER])?;
        packages::require_file(LUA)?;
        let mut gcc = Command::new(COMPILER.0);
        gcc.args(["-static", "-O2", "-I/usr/include/lua5.4", "-o"]).arg(interpreter);
        // Lua can load libraries, which a static program does not: the linker warns of it.
        process::run(gcc.arg(own_source).args(["-llua5.4", "-lm", "-ldl"]))?;
    }
    fs::copy(source, program).map(drop).context(program.display())
}

fn sources_directory(language: &Language) -> PathBuf {
    workspace::root().join("tests/linux").join(language.name)
}

/// The sources in the order of their names.
fn sources(language: &Language) -> Result<Vec<PathBuf>> {
    let directory = sources_directory(language);
    let mut sources = Vec::new();
    for entry in fs::read_dir(&directory).context(directory.display())? {
        let path = entry.context(directory.display())?.path();
        if path.extension().is_some_and(|suffix| suffix == language.suffix) {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

fn name_of(source: &Path) -> String {
    source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether `program` is there and not older than `source`.
fn is_newer(program: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(program).is_some_and(|program| time(source).is_some_and(|source| program >= source))
}
