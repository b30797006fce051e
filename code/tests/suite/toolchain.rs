//! A worked example: C, by clang's bpf target, out of its object file, verified and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use code::argument::{Argument, Outcome};
use code::error::Why;
use code::interpreter::interpret;
use code::listing::Listing;
use code::object::{ObjectError, function};
use code::signature::{Call, Dialect, Parameter, Rights, Signature, WORD};
use code::verifier::{Access, Point, verify};

use crate::executable::{Executable, World};
use crate::programs::{Random, why};

/// What the C says of its inode.
const DIRECT: usize = 12;
const INODE: u32 = 8 + 4 * DIRECT as u32 + 20;
const CALLS: [Call; 1] =
    [Call { number: 7, name: "emit", arguments: 2, deterministic: true, cost: 4 }];
const PARAMETERS: [Parameter; 2] = [Parameter::area(INODE, Rights::Read), WORD];
const OWNS: Signature<'static> = Signature {
    parameters: &PARAMETERS,
    calls: &CALLS,
    budget: 2000,
    dialect: Dialect::Deterministic,
};

/// Compiles a source by clang; answers the object file. `cargo xtask check` and `test` see to it
/// that clang is there.
fn compile(name: &str, source: &Path) -> Vec<u8> {
    let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let clang = Command::new("clang")
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-Wall", "-Werror", "-c", "-o"])
        .args([&object, source])
        .status()
        .expect("clang is missing: `cargo xtask check` installs Debian's");
    assert!(clang.success(), "clang {}", source.display());
    std::fs::read(&object).expect("what clang wrote")
}

fn owns() -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/toolchain/owns.c");
    compile("owns.o", &source)
}

/// The same in Rust: the number of blocks, and what is emitted.
fn expected(inode: &[u8], partition: u64) -> (u64, Vec<[u64; 2]>) {
    let word = |at: usize| u32::from_le_bytes(inode[at..at + 4].try_into().expect("four"));
    let mut set: Vec<[u64; 2]> = Vec::new();
    match partition {
        0 => {
            let used = (word(0) as usize).div_ceil(4096).min(DIRECT);
            for block in (0..used).map(|at| word(8 + 4 * at)) {
                match set.last_mut() {
                    Some([first, count]) if *count > 0 && u64::from(block) == *first + *count => {
                        *count += 1;
                    }
                    _ => set.push([u64::from(block), u64::from(block != 0)]),
                }
            }
            set.retain(|run| run[1] > 0);
        }
        1 => {
            for extent in inode[8 + 4 * DIRECT..].chunks(5) {
                let first = extent.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
                if first > 0 {
                    set.push([16 * first, 16]);
                }
            }
        }
        _ => return (u64::MAX, set),
    }
    (set.iter().map(|run| run[1]).sum(), set)
}

/// An inode with runs, holes and extents in it.
fn inode(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; INODE as usize];
    let blocks = random.below(DIRECT + 3) as u32;
    bytes[..4].copy_from_slice(&(blocks * 4096).saturating_sub(7).to_le_bytes());
    let mut block = 100;
    for at in 0..DIRECT {
        block = [block + 1, block + 1, random.next() as u32 >> 8, 0][random.below(4)];
        bytes[8 + 4 * at..][..4].copy_from_slice(&block.to_le_bytes());
    }
    for extent in bytes[8 + 4 * DIRECT..].chunks_mut(5) {
        let word = if random.chance(60) { random.next() } else { 0 };
        extent.copy_from_slice(&word.to_le_bytes()[..5]);
    }
    bytes
}

#[test]
fn a_function_of_clang_is_verified_and_run() {
    let file = owns();
    let program = function(&file, "owns").expect("it stands alone");
    let mut points = [Point::default(); 256];
    let mut function = verify(program, &OWNS, &mut points).unwrap_or_else(|error| {
        panic!("{error}\n{}", Listing { program, calls: &CALLS });
    });
    let accesses = (0..function.slots()).filter_map(|at| function.access(at));
    assert!(accesses.clone().any(|access| matches!(access, Access::Proved { .. })));
    assert!(accesses.clone().any(|access| access == Access::Masked));
    let mut executable = Executable::new(function.slots());
    executable.load(&mut function, 0xfeed);
    let mut random = Random(11);
    let mut owned = 0;
    for round in 0..2000 {
        let (inode, partition) = (inode(&mut random), round % 3);
        let (total, set) = expected(&inode, partition);
        let mut emitted = Vec::new();
        let mut world = World::default();
        let report = interpret(
            &function,
            &mut [Argument::Read(&inode), Argument::Word(partition)],
            &mut |_, arguments| {
                emitted.push([arguments[0], arguments[1]]);
                // As compiled code calls it: by its place in the signature, the first.
                world.call(1, arguments)
            },
        );
        let outcome = report.expect("arguments fit").outcome;
        assert_eq!(outcome, Outcome::Returned(total), "{inode:02x?}");
        assert_eq!(emitted, set, "{inode:02x?}");
        let mut other = World::default();
        let arguments = &mut [Argument::Read(&inode), Argument::Word(partition)];
        let (outcome, _) = executable.run(&OWNS, arguments, &mut other);
        assert_eq!(outcome, Outcome::Returned(total));
        assert_eq!(other, world);
        owned += set.len();
    }
    assert!(owned > 2000, "{owned}");
}

/// The same function where `emit` is not deterministic, or the inode too short for what it reads.
#[test]
fn a_function_of_clang_is_refused_what_it_is_not_given() {
    let file = owns();
    let program = function(&file, "owns").expect("it stands alone");
    let calls = [Call { deterministic: false, ..CALLS[0] }];
    let refused = why(program, &Signature { calls: &calls, ..OWNS });
    assert_eq!(refused, Some(Why::NotDeterministic(7)));
    let parameters = [Parameter::area(9, Rights::Read), WORD];
    let refused = why(program, &Signature { parameters: &parameters, ..OWNS });
    assert!(matches!(refused, Some(Why::Outside(_))), "{refused:?}");
}

#[test]
fn objects_that_are_none() {
    let file = owns();
    assert_eq!(function(&file, "own"), Err(ObjectError::NotFound));
    assert_eq!(function(&[], "owns"), Err(ObjectError::NotAnObject));
    let mut other = file.clone();
    other[18] = 62;
    assert_eq!(function(&other, "owns"), Err(ObjectError::NotAnObject));
    for length in 0..file.len() {
        // What is behind the last thing that is needed may be missing.
        let cut = function(&file[..length], "owns");
        assert!(cut.is_err() || cut == function(&file, "owns"), "{length}");
    }
    let mut random = Random(3);
    for _ in 0..20_000 {
        let mut damaged = file.clone();
        let at = random.below(damaged.len());
        damaged[at] = random.next() as u8;
        // Found, or refused; a panic would end the test.
        let _ = function(&damaged, "owns");
    }
}

#[test]
fn functions_that_need_linking() {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("table.c");
    let text = "extern int table[4]; int look(unsigned long at) { return table[at & 3]; }\n";
    std::fs::write(&source, text).expect("a file of ours");
    let file = compile("table.o", &source);
    assert_eq!(function(&file, "look"), Err(ObjectError::NeedsLinking));
}
