//! Writes functions for methods: instructions with labels to jump to.

use abi::method::Binding;
use alloc::vec::Vec;
use code::instruction::{Condition, Instruction, Operand, Operation, Register, Size, Width};

pub const R0: Register = Register::R0;
pub const R1: Register = Register::R1;
pub const R2: Register = Register::R2;
pub const R3: Register = Register::R3;
pub const R4: Register = Register::R4;
pub const R5: Register = Register::R5;
pub const R6: Register = Register::R6;
pub const R7: Register = Register::R7;
pub const R8: Register = Register::R8;

/// A place in the program, by its number.
#[derive(Clone, Copy)]
pub struct Label(usize);

/// A program as it grows.
#[derive(Default)]
pub struct Assembler {
    instructions: Vec<(Instruction, Option<Label>)>,
    /// The instruction that each label is before.
    labels: Vec<usize>,
}

impl Assembler {
    /// A label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = self.instructions.len();
        self
    }

    /// An instruction as it is.
    pub fn raw(&mut self, instruction: Instruction) -> &mut Self {
        self.instructions.push((instruction, None));
        self
    }

    /// `to = to OPERATION with`, 64 bits.
    pub fn compute(&mut self, operation: Operation, to: Register, with: Operand) -> &mut Self {
        let width = Width::W64;
        self.raw(Instruction::Compute { width, operation, destination: to, source: with })
    }

    /// `to = value`.
    pub fn set(&mut self, to: Register, value: i32) -> &mut Self {
        self.compute(Operation::Move, to, Operand::Immediate(value))
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) -> &mut Self {
        self.compute(Operation::Move, to, Operand::Register(from))
    }

    /// `to += value`.
    pub fn add(&mut self, to: Register, value: i32) -> &mut Self {
        self.compute(Operation::Add, to, Operand::Immediate(value))
    }

    /// `to` = the 64-bit word at `base + offset`.
    pub fn load(&mut self, to: Register, base: Register, offset: i16) -> &mut Self {
        let (size, signed) = (Size::B8, false);
        self.raw(Instruction::Load { size, signed, destination: to, base, offset })
    }

    /// The 64-bit word at `base + offset` = `from`.
    pub fn store(&mut self, base: Register, offset: i16, from: Operand) -> &mut Self {
        self.raw(Instruction::Store { size: Size::B8, base, offset, source: from })
    }

    /// Goes to `label`.
    pub fn jump(&mut self, label: Label) -> &mut Self {
        self.instructions.push((Instruction::Jump { offset: 0 }, Some(label)));
        self
    }

    /// Goes to `label` if the condition holds.
    pub fn branch(
        &mut self,
        condition: Condition,
        left: Register,
        right: Operand,
        label: Label,
    ) -> &mut Self {
        let width = Width::W64;
        let branch = Instruction::Branch { width, condition, left, right, offset: 0 };
        self.instructions.push((branch, Some(label)));
        self
    }

    /// Ends the function with r0.
    pub fn exit(&mut self) -> &mut Self {
        self.raw(Instruction::Exit)
    }

    /// The program's bytes.
    pub fn finish(&self) -> Vec<u8> {
        let slot = |number: usize| -> i32 {
            let before = &self.instructions[..number];
            before.iter().map(|(instruction, _)| instruction.slots() as i32).sum()
        };
        let mut bytes = Vec::new();
        for (number, &(instruction, label)) in self.instructions.iter().enumerate() {
            let mut instruction = instruction;
            if let Some(label) = label {
                let distance = slot(self.labels[label.0]) - slot(number) - 1;
                match &mut instruction {
                    Instruction::Jump { offset } => *offset = distance,
                    Instruction::Branch { offset, .. } => *offset = distance as i16,
                    _ => {}
                }
            }
            let (first, second) = instruction.encode();
            bytes.extend(first);
            bytes.extend(second.into_iter().flatten());
        }
        bytes
    }
}

/// A program from a few lines.
pub fn program(write: impl FnOnce(&mut Assembler)) -> Vec<u8> {
    let mut assembler = Assembler::default();
    write(&mut assembler);
    assembler.finish()
}

/// What `MethodBind` reads.
pub fn bound(binding: Binding, program: &[u8]) -> Vec<u8> {
    [&binding.to_bytes()[..], program].concat()
}
