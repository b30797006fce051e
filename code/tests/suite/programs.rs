//! What several tests share: a signature, a source of chance, programs verified and run.

use code::argument::{Argument, Outcome};
use code::error::{Error, Why};
use code::instruction::Instruction;
use code::interpreter::interpret;
use code::signature::{Call, Dialect, Parameter, Rights, Signature, WORD};
use code::verifier::{Point, verify};

use crate::executable::{Executable, World};

/// What functions of the tests may call.
pub const CALLS: [Call; 3] = [
    Call { number: 1, name: "mix", arguments: 2, deterministic: true, cost: 0 },
    Call { number: 2, name: "clock", arguments: 0, deterministic: false, cost: 3 },
    Call { number: 3, name: "five", arguments: 5, deterministic: true, cost: 40 },
];

/// What they are given: a number, memory to read, memory to write, a number, a word to write.
pub const PARAMETERS: [Parameter; 5] = [
    WORD,
    Parameter::area(64, Rights::Read),
    Parameter::area(100, Rights::Write),
    WORD,
    Parameter::area(8, Rights::Write),
];

/// All of that, in the general dialect.
pub const GENERAL: Signature<'static> =
    Signature { parameters: &PARAMETERS, calls: &CALLS, budget: 1000, dialect: Dialect::General };

/// Marsaglia's xorshift.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Whether something happens that does so `percent` times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A word that operations may find hard.
    pub fn word(&mut self) -> u64 {
        let shift = self.below(64);
        match self.below(6) {
            0 => [0, 1, 2, u64::MAX, 1 << 63, i64::MAX as u64][self.below(6)],
            1 => [1 << 31, 0xffff_ffff, 0x7fff_ffff, 0xffff_ffff_8000_0000][self.below(4)],
            2 => self.next() >> shift,
            3 => (self.next() as i64 >> shift) as u64,
            _ => self.next(),
        }
    }
}

/// The bytes of a program.
pub fn assemble(instructions: &[Instruction]) -> Vec<u8> {
    let slots = instructions.iter().map(Instruction::encode);
    slots
        .flat_map(|(first, second)| first.into_iter().chain(second.into_iter().flatten()))
        .collect()
}

/// What the verifier says against a program.
pub fn refusal(program: &[u8], signature: &Signature) -> Option<Error> {
    let mut points = vec![Point::default(); 5000];
    verify(program, signature, &mut points).err()
}

/// The reason alone.
pub fn why(program: &[u8], signature: &Signature) -> Option<Why> {
    refusal(program, signature).map(|error| error.why)
}

/// Runs a program both ways on words alone, and answers what both say.
pub fn run_on_words(program: &[u8], words: &[u64]) -> Outcome {
    let parameters = [WORD; 5];
    let signature = Signature { parameters: &parameters[..words.len()], ..GENERAL };
    let mut points = vec![Point::default(); program.len() / 8];
    let mut function = verify(program, &signature, &mut points).expect("a good program");
    let arguments = || words.iter().map(|&word| Argument::Word(word)).collect::<Vec<_>>();
    let mut world = World::default();
    let callee = &mut |number, arguments: &[u64]| world.call(number, arguments);
    let report = interpret(&function, &mut arguments(), callee).expect("words fit");
    let mut executable = Executable::new(function.slots());
    executable.load(&mut function, 0x1234_5678_9abc_def1);
    let compiled = executable.run(&signature, &mut arguments(), &mut World::default()).0;
    assert_eq!(report.outcome, compiled, "interpreted and compiled");
    compiled
}

/// A number from the environment.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect(name))
}
