//! The reference: runs a verified program instruction by instruction, slowly and obviously.
//!
//! Nothing that the verifier proved is used here: every access is looked up and checked. So the
//! bytes of a program that was verified once are enough ([`interpret_bytes`]); of others it would
//! say `Outside` where the verifier would have said why.

use crate::argument::{self, Argument, Mismatch, Outcome};
use crate::arithmetic;
use crate::instruction::{self, Instruction, Operand, Register, Size};
use crate::signature::{PARAMETERS_MAX, STACK, STACK_BYTES, STACK_TOP, Signature, address};
use crate::verifier::{Verified, target_of};

/// How a run ended, and what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its end.
    pub outcome: Outcome,
    /// How many instructions were run.
    pub steps: u64,
    /// What is left of the budget; 0 if it was spent.
    pub budget: u64,
    /// The slot it ended at.
    pub at: usize,
}

/// What a function calls: a number of the signature, and as many arguments as that says.
pub type Callee<'c> = &'c mut dyn FnMut(u32, &[u64]) -> u64;

/// Who looks on: is shown each slot before its instruction is run, and all registers.
pub type Watcher<'c> = &'c mut dyn FnMut(usize, &[u64; Register::COUNT]);

/// Runs a function.
///
/// # Errors
/// An argument does not fit the signature; then nothing was run.
pub fn interpret(
    function: &Verified,
    arguments: &mut [Argument],
    callee: Callee,
) -> Result<Report, Mismatch> {
    interpret_watched(function, arguments, callee, &mut |_, _| {})
}

/// Runs a function, step by step before somebody's eyes.
///
/// # Errors
/// As [`interpret`].
pub fn interpret_watched(
    function: &Verified,
    arguments: &mut [Argument],
    callee: Callee,
    watcher: Watcher,
) -> Result<Report, Mismatch> {
    run(function.program, function.signature, arguments, callee, watcher)
}

/// Runs a program of which whoever kept it knows that it was verified for this signature.
///
/// # Errors
/// As [`interpret`].
pub fn interpret_bytes(
    program: &[u8],
    signature: &Signature,
    arguments: &mut [Argument],
    callee: Callee,
) -> Result<Report, Mismatch> {
    run(program, signature, arguments, callee, &mut |_, _| {})
}

fn run(
    program: &[u8],
    signature: &Signature,
    arguments: &mut [Argument],
    callee: Callee,
    watcher: Watcher,
) -> Result<Report, Mismatch> {
    argument::check(signature, arguments)?;
    let mut registers = [0; Register::COUNT];
    for position in 0..PARAMETERS_MAX.min(arguments.len()) {
        if signature.parameter(position).is_none() {
            continue;
        }
        registers[position + 1] = match arguments[position] {
            Argument::Word(value) => value,
            Argument::Read(_) | Argument::Write(_) => address(position + 1),
        };
    }
    registers[Register::R10.index()] = STACK_TOP;
    let mut run = Run {
        program,
        signature,
        arguments,
        registers,
        stack: [0; STACK_BYTES as usize],
        budget: u64::from(signature.budget),
        steps: 0,
        at: 0,
    };
    let outcome = loop {
        watcher(run.at, &run.registers);
        if let Some(outcome) = run.step(callee) {
            break outcome;
        }
    };
    Ok(Report { outcome, steps: run.steps, budget: run.budget, at: run.at })
}

struct Run<'a, 'm> {
    program: &'a [u8],
    signature: &'a Signature<'a>,
    arguments: &'a mut [Argument<'m>],
    registers: [u64; Register::COUNT],
    stack: [u8; STACK_BYTES as usize],
    budget: u64,
    steps: u64,
    at: usize,
}

impl Run<'_, '_> {
    /// Runs one instruction; answers the end, if it is one.
    fn step(&mut self, callee: Callee) -> Option<Outcome> {
        // A verified program decodes at every slot that it can come to.
        let Ok(instruction) = instruction::decode(self.program, self.at) else {
            return Some(Outcome::Outside);
        };
        self.steps += 1;
        let next = self.at + instruction.slots();
        match instruction {
            Instruction::Compute { width, operation, destination, source } => {
                let (old, source) = (self.register(destination), self.operand(source));
                self.set(destination, arithmetic::compute(width, operation, old, source));
            }
            Instruction::Swap { order, bits, destination } => {
                let old = self.register(destination);
                self.set(destination, arithmetic::swap(order, bits, old));
            }
            Instruction::Constant { destination, value } => self.set(destination, value),
            Instruction::Load { size, signed, destination, base, offset } => {
                let at = self.register(base).wrapping_add(i64::from(offset) as u64);
                let Some(value) = self.load(at, size) else { return Some(Outcome::Outside) };
                self.set(destination, arithmetic::extend(size, signed, value));
            }
            Instruction::Store { size, base, offset, source } => {
                let at = self.register(base).wrapping_add(i64::from(offset) as u64);
                let value = self.operand(source);
                if self.store(at, size, value).is_none() {
                    return Some(Outcome::Outside);
                }
            }
            Instruction::Jump { .. } => return self.jump(target_of(&instruction, self.at)),
            Instruction::Branch { width, condition, left, right, .. } => {
                let (left, right) = (self.register(left), self.operand(right));
                if arithmetic::holds(width, condition, left, right) {
                    return self.jump(target_of(&instruction, self.at));
                }
            }
            Instruction::Call { number } => {
                let Some((_, call)) = self.signature.call(number) else {
                    return Some(Outcome::Outside);
                };
                if !self.pay(call.cost) {
                    return Some(Outcome::Exhausted);
                }
                let arguments = &self.registers[1..=usize::from(call.arguments)];
                self.registers[0] = callee(number, arguments);
            }
            Instruction::Exit => return Some(Outcome::Returned(self.registers[0])),
        }
        self.at = next;
        None
    }

    fn register(&self, register: Register) -> u64 {
        self.registers[register.index()]
    }

    fn set(&mut self, register: Register, value: u64) {
        self.registers[register.index()] = value;
    }

    fn operand(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Register(register) => self.register(register),
            Operand::Immediate(value) => i64::from(value) as u64,
        }
    }

    fn jump(&mut self, target: usize) -> Option<Outcome> {
        if !self.pay(Verified::cost(self.at, target)) {
            return Some(Outcome::Exhausted);
        }
        self.at = target;
        None
    }

    fn pay(&mut self, cost: u32) -> bool {
        match self.budget.checked_sub(u64::from(cost)) {
            Some(left) => self.budget = left,
            None => {
                self.budget = 0;
                return false;
            }
        }
        true
    }

    fn load(&self, at: u64, size: Size) -> Option<u64> {
        let signature = self.signature;
        let (area, offset) = signature.locate(at, size.bytes(), false).ok()?;
        let memory: &[u8] = match area {
            STACK => &self.stack,
            _ => match &self.arguments[area - 1] {
                Argument::Word(_) => return None,
                Argument::Read(memory) => memory,
                Argument::Write(memory) => memory,
            },
        };
        let bytes = memory.get(offset as usize..)?.get(..size.bytes() as usize)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    fn store(&mut self, at: u64, size: Size, value: u64) -> Option<()> {
        let signature = self.signature;
        let (area, offset) = signature.locate(at, size.bytes(), true).ok()?;
        let memory: &mut [u8] = match area {
            STACK => &mut self.stack,
            _ => match &mut self.arguments[area - 1] {
                Argument::Write(memory) => memory,
                _ => return None,
            },
        };
        let bytes = memory.get_mut(offset as usize..)?.get_mut(..size.bytes() as usize)?;
        bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
        Some(())
    }
}
