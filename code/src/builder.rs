//! Programs by method and label, so that nobody writes bytecode by hand.
//!
//! ```
//! use code::builder::Builder;
//! use code::instruction::{Condition, Operation, Register, Size};
//!
//! // The sum of r2 bytes from r1 on.
//! let mut builder = Builder::new();
//! let (again, done) = (builder.label(), builder.label());
//! builder
//!     .set(Register::R0, 0)
//!     .place(again)
//!     .branch(Condition::Equal, Register::R2, 0, done)
//!     .load(Size::B1, Register::R3, Register::R1, 0)
//!     .compute(Operation::Add, Register::R0, Register::R3)
//!     .compute(Operation::Add, Register::R1, 1)
//!     .compute(Operation::Subtract, Register::R2, 1)
//!     .jump(again)
//!     .place(done)
//!     .exit();
//! let program = builder.finish().expect("both labels are placed, and near");
//! assert_eq!(program.len(), 8 * 8);
//! ```

use alloc::vec::Vec;

use crate::instruction::{
    Condition, Instruction, Operand, Operation, Order, Register, SLOT_BYTES, Size, Width,
};

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Self::Immediate(value)
    }
}

/// A place in the program that jumps can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Why a program cannot be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A jump leads to a label that was never placed.
    NotPlaced(Label),
    /// A label was placed twice.
    PlacedTwice(Label),
    /// A branch leads further than 32,767 slots.
    TooFar(Label),
}

/// Makes a program instruction by instruction.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// The instructions, with the label that they jump to.
    items: Vec<(Instruction, Option<Label>)>,
    /// Where each label is placed: before the item of this number.
    places: Vec<Option<usize>>,
    twice: Option<Label>,
}

impl Builder {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new label, not placed yet.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label stands for the next instruction.
    pub fn place(&mut self, label: Label) -> &mut Self {
        let here = self.items.len();
        match self.places.get_mut(label.0) {
            Some(place) if place.is_none() => *place = Some(here),
            _ => self.twice = Some(label),
        }
        self
    }

    /// Any instruction; its jumps are relative, as they are encoded.
    pub fn raw(&mut self, instruction: Instruction) -> &mut Self {
        self.items.push((instruction, None));
        self
    }

    /// `destination = value`, in as few slots as it takes.
    pub fn set(&mut self, destination: Register, value: u64) -> &mut Self {
        match i32::try_from(value as i64) {
            Ok(value) => self.compute(Operation::Move, destination, value),
            Err(_) => self.raw(Instruction::Constant { destination, value }),
        }
    }

    /// `destination = destination OPERATION source`, in 64 bits.
    pub fn compute(
        &mut self,
        operation: Operation,
        destination: Register,
        source: impl Into<Operand>,
    ) -> &mut Self {
        let (width, source) = (Width::W64, source.into());
        self.raw(Instruction::Compute { width, operation, destination, source })
    }

    /// The same in 32 bits; the upper half of the result is zero.
    pub fn compute_32(
        &mut self,
        operation: Operation,
        destination: Register,
        source: impl Into<Operand>,
    ) -> &mut Self {
        let (width, source) = (Width::W32, source.into());
        self.raw(Instruction::Compute { width, operation, destination, source })
    }

    /// `destination = -destination`.
    pub fn negate(&mut self, destination: Register) -> &mut Self {
        self.compute(Operation::Negate, destination, 0)
    }

    /// Brings the low `bits` (16, 32 or 64) of a register into an order.
    pub fn swap(&mut self, order: Order, bits: u8, destination: Register) -> &mut Self {
        self.raw(Instruction::Swap { order, bits, destination })
    }

    /// `destination = *(base + offset)`, zeros above.
    pub fn load(
        &mut self,
        size: Size,
        destination: Register,
        base: Register,
        offset: i16,
    ) -> &mut Self {
        self.raw(Instruction::Load { size, signed: false, destination, base, offset })
    }

    /// The same, extended by its sign.
    pub fn load_signed(
        &mut self,
        size: Size,
        destination: Register,
        base: Register,
        offset: i16,
    ) -> &mut Self {
        self.raw(Instruction::Load { size, signed: true, destination, base, offset })
    }

    /// `*(base + offset) = source`.
    pub fn store(
        &mut self,
        size: Size,
        base: Register,
        offset: i16,
        source: impl Into<Operand>,
    ) -> &mut Self {
        self.raw(Instruction::Store { size, base, offset, source: source.into() })
    }

    /// Goes on at the label.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.items.push((Instruction::Jump { offset: 0 }, Some(to)));
        self
    }

    /// Goes on at the label if the condition holds, in 64 bits.
    pub fn branch(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        to: Label,
    ) -> &mut Self {
        self.branch_of(Width::W64, condition, left, right.into(), to)
    }

    /// The same, comparing the low 32 bits.
    pub fn branch_32(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        to: Label,
    ) -> &mut Self {
        self.branch_of(Width::W32, condition, left, right.into(), to)
    }

    fn branch_of(
        &mut self,
        width: Width,
        condition: Condition,
        left: Register,
        right: Operand,
        to: Label,
    ) -> &mut Self {
        let branch = Instruction::Branch { width, condition, left, right, offset: 0 };
        self.items.push((branch, Some(to)));
        self
    }

    /// Calls what the signature offers by this number: r1-r5 in, r0 out, r1-r5 lost.
    pub fn call(&mut self, number: u32) -> &mut Self {
        self.raw(Instruction::Call { number })
    }

    /// Ends the function with r0.
    pub fn exit(&mut self) -> &mut Self {
        self.raw(Instruction::Exit)
    }

    /// The program's bytes.
    ///
    /// # Errors
    /// A label is not placed, placed twice, or too far away.
    pub fn finish(&self) -> Result<Vec<u8>, BuildError> {
        if let Some(label) = self.twice {
            return Err(BuildError::PlacedTwice(label));
        }
        let mut slots: Vec<usize> = Vec::new();
        let mut slot = 0;
        for (instruction, _) in &self.items {
            slots.push(slot);
            slot += instruction.slots();
        }
        slots.push(slot);
        let mut program = Vec::with_capacity(slot * SLOT_BYTES);
        for (item, &(instruction, label)) in self.items.iter().enumerate() {
            let mut instruction = instruction;
            if let Some(label) = label {
                let place = self.places.get(label.0).copied().flatten();
                let target = slots[place.ok_or(BuildError::NotPlaced(label))?];
                let distance = target as i64 - slots[item] as i64 - 1;
                let too_far = BuildError::TooFar(label);
                match &mut instruction {
                    Instruction::Jump { offset } => {
                        *offset = i32::try_from(distance).map_err(|_| too_far)?;
                    }
                    Instruction::Branch { offset, .. } => {
                        *offset = i16::try_from(distance).map_err(|_| too_far)?;
                    }
                    _ => {}
                }
            }
            let (first, second) = instruction.encode();
            program.extend(first);
            program.extend(second.into_iter().flatten());
        }
        Ok(program)
    }
}
