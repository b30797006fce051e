//! Random functions as methods: the kernel verifies, compiles and runs them as is written down.

use super::{attach, bind, body, reader, said};
use crate::assembler::program;
use crate::expect;
use crate::judge::{Failure, Ground};
use crate::random::Random;
use abi::error::Error;
use abi::id::{DomainId, RegionId};
use abi::method::{Binding, Part, refused};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use code::argument::{Argument, Outcome};
use code::instruction::{Condition, Instruction, Operand, Operation, Register, Size, Width};
use code::interpreter::interpret;
use code::signature::{Dialect, Parameter, Rights, Signature, WORD};
use code::verifier::{Point, Verified, verify};
use xok::call::{self, OWN};

const BYTES: usize = 64;
/// What of them is the method's.
const PART: core::ops::Range<usize> = 8..48;
const BUDGET: u32 = 200;
const OPERATIONS: [Operation; 15] = [
    Operation::Add,
    Operation::Subtract,
    Operation::Multiply,
    Operation::Divide,
    Operation::DivideSigned,
    Operation::Or,
    Operation::And,
    Operation::ShiftLeft,
    Operation::ShiftRight,
    Operation::ShiftRightSigned,
    Operation::Remainder,
    Operation::RemainderSigned,
    Operation::Xor,
    Operation::Move,
    Operation::Negate,
];
const CONDITIONS: [Condition; 6] = [
    Condition::Equal,
    Condition::NotEqual,
    Condition::Less,
    Condition::GreaterSigned,
    Condition::Common,
    Condition::GreaterOrEqual,
];
const SIZES: [Size; 4] = [Size::B1, Size::B2, Size::B4, Size::B8];

impl Random {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn register(&mut self) -> Register {
        Register::new(self.below(10) as u8).unwrap_or(Register::R0)
    }

    fn operand(&mut self) -> Operand {
        if self.below(2) == 0 {
            Operand::Register(self.register())
        } else {
            Operand::Immediate((self.next() >> 32) as i32 >> self.below(32))
        }
    }

    /// An instruction of one slot, `at` slots from the beginning and `left` before the end.
    fn instruction(&mut self, at: usize, left: usize) -> Instruction {
        let width = self.pick(&[Width::W64, Width::W32]);
        let size = self.pick(&SIZES);
        // Mostly what is an address and its area's, sometimes any number.
        let areas = [Register::R2, Register::R10, Register::R2];
        let base = if self.below(12) == 0 { self.register() } else { self.pick(&areas) };
        let offset = match self.below(90) {
            0 => self.below(99) as i16 - 50,
            n if base == Register::R10 => -8 - n as i16,
            n => n as i16 % 33,
        };
        match self.below(12) {
            0..=4 => {
                let operation = self.pick(&OPERATIONS);
                let source = match operation {
                    Operation::Negate => Operand::Immediate(0),
                    _ => self.operand(),
                };
                // The areas' addresses stay, mostly.
                let destination = match self.register() {
                    r if (r == Register::R1 || r == Register::R2) && self.below(9) > 0 => {
                        Register::R0
                    }
                    r => r,
                };
                Instruction::Compute { width, operation, destination, source }
            }
            5..=6 => Instruction::Load {
                size,
                signed: self.below(2) == 0 && size != Size::B8,
                destination: Register::R0,
                base,
                offset,
            },
            7..=9 => Instruction::Store { size, base, offset, source: self.operand() },
            _ => {
                let condition = self.pick(&CONDITIONS);
                let (left_hand, right) = (self.register(), self.operand());
                let offset = match self.below(4) {
                    0 => -(1 + self.below(at.min(8)) as i16),
                    _ => self.below(left.min(6)) as i16,
                };
                Instruction::Branch { width, condition, left: left_hand, right, offset }
            }
        }
    }

    fn program(&mut self) -> Vec<u8> {
        let length = 4 + self.below(40);
        program(|a| {
            for number in [0, 6, 7, 8, 9] {
                let to = Register::new(number).unwrap_or(Register::R0);
                a.set(to, self.next() as i32);
            }
            for at in 0..length {
                let instruction = self.instruction(5 + at, length - at);
                a.raw(instruction);
            }
            a.exit();
        })
    }
}

/// thesis98 ALG-24: what the interpreter, here, says of random functions is what the kernel does
/// with their compiled form: accepted or refused and why, how a run ends, what it changes.
pub fn as_interpreted(_: &Ground) -> Result<String, Failure> {
    let programs = super::super::predicate::setting("programs=", 300);
    let mut random = Random(super::super::predicate::setting("seed=", 0x1234_5678_9abc_def1) | 1);
    let parameters = [
        Parameter::area(BYTES as u32, Rights::Read),
        Parameter::area(PART.len() as u32, Rights::Write),
        WORD,
        WORD,
        WORD,
    ];
    let dialect = Dialect::Deterministic;
    let signature = Signature { parameters: &parameters, calls: &[], budget: BUDGET, dialect };
    let mut points = alloc::vec![Point::default(); 64];
    let (mut accepted, mut ends) = (0, [0; 3]);
    for round in 0..programs {
        let program = random.program();
        let verified = verify(&program, &signature, &mut points);
        let region = call::region_alloc(OWN, &[]).map_err(said)?;
        let own = Binding { offset: PART.start as u32, ..body(PART.len() as u32, BUDGET) };
        let answer = bind(region, own, &program);
        bind(region, Binding { method: 1, ..body(8, 0) }, &reader()).map_err(said)?;
        attach(region, DomainId::NONE)?;
        match verified {
            Err(error) => {
                let number = u64::from(error.why.number()) << 32 | error.at as u64;
                let same = answer == Err((Error::NotVerified, number));
                expect!(same, "program {round}: {error}, and the kernel says {answer:?}");
            }
            Ok(verified) => {
                expect!(answer == Ok(0), "program {round} is good, the kernel says {answer:?}");
                accepted += 1;
                runs(region, &verified, &mut random, &mut ends)
                    .map_err(|why| format!("program {round}: {why}"))?;
            }
        }
        call::region_detach(region, 0).map_err(said)?;
    }
    expect!(accepted * 4 > programs, "only {accepted} of {programs} programs were good");
    let [returned, exhausted, outside] = ends;
    Ok(format!("({accepted} of {programs}: {returned} returned, {exhausted} spent, {outside} out)"))
}

/// Three runs in the kernel and here, on the same bytes; counts how they ended.
fn runs(
    region: RegionId,
    verified: &Verified,
    random: &mut Random,
    ends: &mut [u32; 3],
) -> Result<(), Failure> {
    let mut model = [0u8; BYTES];
    for _ in 0..3 {
        let words = [random.next(), random.next() % 64, random.next() % 3];
        let all = model;
        let mut part = [0; PART.end - PART.start];
        part.copy_from_slice(&model[PART]);
        let [a, b, c] = words.map(Argument::Word);
        let arguments = &mut [Argument::Read(&all), Argument::Write(&mut part), a, b, c];
        let report = interpret(verified, arguments, &mut |_, _| 0);
        let no = |why: u64| Err((Error::Refused, Part::Body as u64 | why << 8));
        let (end, expected) = match report.map_err(|why| format!("{why:?}"))?.outcome {
            Outcome::Returned(value) => (0, Ok(value)),
            Outcome::Exhausted => (1, no(refused::BUDGET)),
            Outcome::Outside => (2, no(refused::OUTSIDE)),
        };
        ends[end] += 1;
        if expected.is_ok() {
            model[PART].copy_from_slice(&part);
        }
        let answer = call::method_call(region, 0, 0, words);
        expect!(answer == expected, "{answer:?}, not {expected:?}");
        for (at, word) in model.as_chunks::<8>().0.iter().enumerate() {
            let found = call::method_call(region, 1, 0, [8 * at as u64, 0, 0]);
            let expected = Ok(u64::from_le_bytes(*word));
            expect!(found == expected, "word {at} is {found:?}");
        }
    }
    Ok(())
}
