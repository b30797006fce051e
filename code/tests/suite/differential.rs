//! Interpreter and compiled code do the same, bit for bit, whatever the program is.
//!
//! ```sh
//! XOK_SEED=7 XOK_PROGRAMS=10000000 cargo test --release -p code agree -- --nocapture
//! ```

use code::argument::{Argument, Outcome};
use code::instruction::Register;
use code::interpreter::interpret_watched;
use code::listing::Listing;
use code::signature::Signature;
use code::verifier::{Point, VISITS_MAX, Value, Verified, verify};

use crate::executable::{Executable, World};
use crate::generate;
use crate::programs::{CALLS, GENERAL, Random, number};

/// Groups of instructions in a program, at most.
const ITEMS: usize = 40;
/// Bytes around each area that nobody may change.
const MARGIN: usize = 16;

/// The memory of one run: three areas, each amid bytes that stay.
#[derive(Clone, PartialEq, Eq)]
struct Memory {
    read: [u8; 64 + 2 * MARGIN],
    write: [u8; 100 + 2 * MARGIN],
    word: [u8; 8 + 2 * MARGIN],
}

impl Memory {
    fn new(random: &mut Random) -> Self {
        let mut memory =
            Self { read: [0; 96], write: [0; 100 + 2 * MARGIN], word: [0; 8 + 2 * MARGIN] };
        for bytes in [&mut memory.read[..], &mut memory.write, &mut memory.word] {
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        memory
    }

    fn arguments(&mut self, words: [u64; 2]) -> [Argument<'_>; 5] {
        [
            Argument::Word(words[0]),
            Argument::Read(&self.read[MARGIN..MARGIN + 64]),
            Argument::Write(&mut self.write[MARGIN..MARGIN + 100]),
            Argument::Word(words[1]),
            Argument::Write(&mut self.word[MARGIN..MARGIN + 8]),
        ]
    }

    /// The bytes that no function may change.
    fn margins(&self) -> Vec<u8> {
        let slices = [&self.write[..], &self.word]
            .map(|bytes| [&bytes[..MARGIN], &bytes[bytes.len() - MARGIN..]].concat());
        [&self.read[..], &slices.concat()].concat()
    }
}

#[derive(Debug, Default)]
struct Counts {
    refused: u64,
    returned: u64,
    exhausted: u64,
    outside: u64,
    masked: u64,
    steps: u64,
    /// Values of registers that the verifier knew and the run had.
    known: u64,
}

/// What the verifier says of registers before a slot is so whenever a run comes there; how much it
/// was.
fn check_what_is_known(function: &Verified, at: usize, registers: &[u64; Register::COUNT]) -> u64 {
    let mut known = 0;
    for (number, &held) in registers.iter().enumerate() {
        let register = Register::new(number as u8).expect("there are eleven");
        if let Value::Known(value) = function.value(at, register) {
            assert_eq!(held, value, "r{number} before slot {at}");
            known += 1;
        }
    }
    // r10 is always known.
    known - 1
}

/// One program; answers nothing if the verifier refused it.
fn one(
    random: &mut Random,
    points: &mut [Point],
    executable: &mut Executable,
    counts: &mut Counts,
) {
    let program = generate::program(random, ITEMS);
    let budget = random.below(3000) as u32;
    let signature = Signature { budget, ..GENERAL };
    let Ok(mut function) = verify(&program, &signature, points) else {
        counts.refused += 1;
        return;
    };
    assert!(function.visits() <= VISITS_MAX * function.slots(), "{} visits", function.visits());
    let words = [random.word(), random.word()];
    let before = Memory::new(random);

    let (mut interpreted, mut world) = (before.clone(), World::default());
    let report = interpret_watched(
        &function,
        &mut interpreted.arguments(words),
        &mut |number, arguments| world.call(number, arguments),
        &mut |at, registers| counts.known += check_what_is_known(&function, at, registers),
    )
    .expect("arguments fit");
    assert!(report.steps <= function.steps_max(), "{} steps", report.steps);

    let (mut compiled, mut other_world) = (before.clone(), World::default());
    counts.masked += function.masked() as u64;
    executable.load(&mut function, random.next());
    let (outcome, left) =
        executable.run(&signature, &mut compiled.arguments(words), &mut other_world);

    let same = outcome == report.outcome
        && left == report.budget
        && interpreted == compiled
        && world == other_world
        && compiled.margins() == before.margins();
    if !same {
        let listing = Listing { program: &program, calls: &CALLS };
        let outcomes = format!("{report:?}\n{outcome:?} {left}");
        panic!("they differ, words {words:x?}, budget {budget}:\n{outcomes}\n{listing}");
    }
    counts.steps += report.steps;
    match outcome {
        Outcome::Returned(_) => counts.returned += 1,
        Outcome::Exhausted => counts.exhausted += 1,
        Outcome::Outside => counts.outside += 1,
    }
}

#[test]
fn interpreter_and_compiled_code_agree() {
    let seed = number("XOK_SEED", 1);
    let programs = number("XOK_PROGRAMS", if cfg!(debug_assertions) { 5_000 } else { 100_000 });
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut points = vec![Point::default(); 1024];
    let mut executable = Executable::new(1024);
    let mut counts = Counts::default();
    let mut run = 0;
    while run < programs {
        let state = random.0;
        let before = counts.refused;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            one(&mut random, &mut points, &mut executable, &mut counts);
        }));
        if let Err(panic) = result {
            eprintln!("reproduce: XOK_SEED={seed} XOK_PROGRAMS={} (state {state:#x})", run + 1);
            std::panic::resume_unwind(panic);
        }
        run += u64::from(counts.refused == before);
    }
    println!("{programs} programs, seed {seed}: {counts:?}");
    // A generator that makes nothing but trifles would prove nothing.
    assert!(counts.refused < programs, "{counts:?}");
    assert!(counts.returned > programs / 4, "{counts:?}");
    assert!(counts.exhausted > programs / 50, "{counts:?}");
    assert!(counts.outside > programs / 50, "{counts:?}");
    assert!(counts.masked > programs, "{counts:?}");
    assert!(counts.steps > 20 * programs, "{counts:?}");
    assert!(counts.known > 20 * programs, "{counts:?}");
}
