//! What is tried: a program, for which signature, and what it is given.

use std::fmt;

use code::listing::Listing;
use code::signature::{Dialect, Parameter, Signature};

use crate::generate;
use crate::programs::{CALLS, GENERAL, PARAMETERS, Random};

/// Bytes of a slot.
pub const SLOT: usize = 8;
/// Most slots of a program that is tried.
pub const SLOTS_MAX: usize = 96;
/// Groups of instructions in a generated program, at most.
const ITEMS: usize = 16;

/// Word 4 and the memory of parameter 3 are no inputs.
const SOME_OUTSIDE: [Parameter; 5] =
    [PARAMETERS[0], PARAMETERS[1], PARAMETERS[2].outside(), PARAMETERS[3].outside(), PARAMETERS[4]];

/// One input.
#[derive(Clone)]
pub struct Input {
    pub program: Vec<u8>,
    /// Which of the signatures.
    pub signature: u8,
    pub budget: u16,
    /// The parameters that are numbers.
    pub words: [u64; 2],
    /// What the memory holds, and what the compiler blinds constants by.
    pub seed: u64,
}

impl Input {
    /// Of the generator that the package's own tests have.
    pub fn generated(random: &mut Random) -> Self {
        let items = 1 + random.below(ITEMS);
        let mut program = generate::program(random, items);
        while program.len() > SLOTS_MAX * SLOT {
            program = generate::program(random, items / 2 + 1);
        }
        let signature = if random.chance(60) { 0 } else { 1 + random.below(2) as u8 };
        let most = if random.chance(3) { 2000 } else { 60 };
        let budget = random.below(most) as u16;
        let words = [random.word(), random.word()];
        Self { program, signature, budget, words, seed: random.next() }
    }

    /// The signature that it is for.
    pub fn signature(&self) -> Signature<'static> {
        let (parameters, dialect): (&'static [Parameter], _) = match self.signature {
            0 => (&PARAMETERS, Dialect::General),
            1 => (&PARAMETERS, Dialect::Deterministic),
            _ => (&SOME_OUTSIDE, Dialect::Deterministic),
        };
        Signature { parameters, dialect, budget: self.budget.into(), ..GENERAL }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, signature, budget, words, seed } = self;
        writeln!(to, "signature {signature}, budget {budget}, words {words:x?}, seed {seed:#x}")?;
        writeln!(to, "program {program:02x?}")?;
        write!(to, "{}", Listing { program, calls: &CALLS })
    }
}
