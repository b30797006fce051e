//! One input: refused by the verifier, or run three times with one result.

use code::argument::{Argument, Outcome};
use code::instruction::Register;
use code::interpreter::interpret_watched;
use code::verifier::{Access, Point, VISITS_MAX, Value, Verified, verify};

use crate::executable::{Executable, World};
use crate::input::{Input, SLOTS_MAX};
use crate::oracle::{End, Oracle};
use crate::programs::Random;

/// Bytes around each area that nobody may change.
const MARGIN: usize = 16;
/// The areas that parameters are, with their bytes.
const AREAS: [(usize, usize); 3] = [(2, 64), (3, 100), (5, 8)];

/// The memory of one run: three areas, each amid bytes that stay.
#[derive(Clone, PartialEq, Eq)]
struct Memory {
    read: [u8; 64 + 2 * MARGIN],
    write: [u8; 100 + 2 * MARGIN],
    word: [u8; 8 + 2 * MARGIN],
}

impl Memory {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed | 1);
        let mut memory = Self {
            read: [0; 64 + 2 * MARGIN],
            write: [0; 100 + 2 * MARGIN],
            word: [0; 8 + 2 * MARGIN],
        };
        for bytes in [&mut memory.read[..], &mut memory.write, &mut memory.word] {
            for piece in bytes.chunks_mut(8) {
                piece.copy_from_slice(&random.next().to_le_bytes()[..piece.len()]);
            }
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

    /// What is in the area of this number, and what is around it.
    fn area(&mut self, number: usize) -> &mut [u8] {
        match number {
            2 => &mut self.read,
            3 => &mut self.write,
            _ => &mut self.word,
        }
    }
}

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The verifier refused it.
    Refused,
    /// All three said this.
    Ran(Outcome),
}

/// Whatever an input is run on.
pub struct Subject {
    points: Vec<Point>,
    executable: Executable,
    oracle: Oracle,
}

impl Subject {
    pub fn new() -> Self {
        Self {
            points: vec![Point::default(); SLOTS_MAX],
            executable: Executable::new(SLOTS_MAX),
            oracle: Oracle::new(),
        }
    }

    /// Tries one input.
    ///
    /// # Panics
    /// If anything that must hold of it does not: `differ` says what.
    pub fn run(&mut self, input: &Input) -> Verdict {
        let signature = input.signature();
        let Ok(mut function) = verify(&input.program, &signature, &mut self.points) else {
            return Verdict::Refused;
        };
        assert!(function.visits() <= VISITS_MAX * function.slots(), "{}", function.visits());
        let before = Memory::new(input.seed);

        let (mut interpreted, mut world) = (before.clone(), World::default());
        let report = interpret_watched(
            &function,
            &mut interpreted.arguments(input.words),
            &mut |number, arguments| world.call(number, arguments),
            &mut |at, registers| check_what_is_known(&function, at, registers),
        )
        .expect("arguments fit");
        assert!(report.steps <= function.steps_max(), "{} steps", report.steps);
        if report.outcome == Outcome::Outside {
            let access = function.access(report.at);
            assert_eq!(access, Some(Access::Masked), "proved, and outside: slot {}", report.at);
        }
        let ours = End { outcome: report.outcome, budget: report.budget, world };

        let (mut compiled, mut world) = (before.clone(), World::default());
        self.executable.load(&mut function, input.seed);
        let (outcome, budget) =
            self.executable.run(&signature, &mut compiled.arguments(input.words), &mut world);
        assert_eq!(End { outcome, budget, world }, ours, "compiled and interpreted");

        let mut foreign = before.clone();
        let theirs = self.ask(input, &mut foreign);
        assert_eq!(theirs, ours, "rbpf and interpreted");
        for (number, _) in AREAS {
            let ours = interpreted.area(number);
            assert_eq!(compiled.area(number), ours, "area {number}, compiled and interpreted");
            assert_eq!(foreign.area(number), ours, "area {number}, rbpf and interpreted");
        }
        Verdict::Ran(ours.outcome)
    }

    /// What rbpf says.
    fn ask(&mut self, input: &Input, memory: &mut Memory) -> End {
        for (number, bytes) in AREAS {
            let from = &memory.area(number)[MARGIN..MARGIN + bytes];
            self.oracle.memory(number, bytes).copy_from_slice(from);
        }
        let end = self.oracle.run(&input.program, &input.signature(), input.words);
        for (number, bytes) in AREAS {
            let into = &mut memory.area(number)[MARGIN..MARGIN + bytes];
            into.copy_from_slice(self.oracle.memory(number, bytes));
        }
        end
    }
}

/// What the verifier says of registers before a slot is so whenever a run comes there.
fn check_what_is_known(function: &Verified, at: usize, registers: &[u64; Register::COUNT]) {
    for (number, &held) in registers.iter().enumerate() {
        let register = Register::new(number as u8).expect("there are eleven");
        if let Value::Known(value) = function.value(at, register) {
            assert_eq!(held, value, "r{number} before slot {at}");
        }
    }
}
