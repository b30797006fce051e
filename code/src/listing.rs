//! Instructions as people read them, in the notation of LLVM and the Linux kernel.
//!
//! ```
//! use code::listing::Listing;
//!
//! let program = [0xb7, 0, 0, 0, 5, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
//! let text = format!("{}", Listing { program: &program, calls: &[] });
//! assert_eq!(text, "   0: r0 = 5\n   1: exit\n");
//! ```

use core::fmt;

use crate::instruction::{
    self, Condition, Instruction, Operand, Operation, Order, Register, Size, Width,
};
use crate::signature::Call;

/// A program, line by line: each instruction behind its slot. What does not decode is shown as
/// bytes, with the reason.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// The program.
    pub program: &'a [u8],
    /// Names for its calls.
    pub calls: &'a [Call],
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        while at < instruction::slots(self.program) {
            write!(to, "{at:4}: ")?;
            let instruction = match instruction::decode(self.program, at) {
                Ok(instruction) => instruction,
                Err(error) => {
                    let bytes = &self.program[at * instruction::SLOT_BYTES..];
                    let bytes = bytes.first_chunk::<{ instruction::SLOT_BYTES }>();
                    writeln!(to, "{:02x?} ; {error}", bytes.unwrap_or(&[0; 8]))?;
                    at += 1;
                    continue;
                }
            };
            self.line(to, at, &instruction)?;
            at += instruction.slots();
        }
        Ok(())
    }
}

impl Listing<'_> {
    fn line(&self, to: &mut fmt::Formatter, at: usize, shown: &Instruction) -> fmt::Result {
        match *shown {
            Instruction::Call { number } => {
                match self.calls.iter().find(|call| call.number == number) {
                    Some(call) => writeln!(to, "call {}", call.name),
                    None => writeln!(to, "{shown}"),
                }
            }
            Instruction::Jump { .. } | Instruction::Branch { .. } => {
                writeln!(to, "{shown} <{}>", crate::verifier::target_of(shown, at))
            }
            _ => writeln!(to, "{shown}"),
        }
    }
}

/// A register under the name of its width.
struct Named(Width, Register);

impl fmt::Display for Named {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.0 == Width::W64 { 'r' } else { 'w' };
        write!(to, "{letter}{}", self.1.index())
    }
}

struct Shown(Width, Operand);

impl fmt::Display for Shown {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Operand::Register(register) => Named(self.0, register).fmt(to),
            Operand::Immediate(value) => value.fmt(to),
        }
    }
}

struct Place(Size, bool, Register, i16);

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.1 { 's' } else { 'u' };
        let Self(size, _, base, offset) = self;
        let sign = if *offset < 0 { '-' } else { '+' };
        let (bits, base) = (8 * size.bytes(), base.index());
        write!(to, "*({letter}{bits} *)(r{base} {sign} {})", offset.unsigned_abs())
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Compute { width, operation, destination, source } => {
                let (register, source) = (Named(width, destination), Shown(width, source));
                let signed = |bits| Signed(bits, &source);
                match operation {
                    Operation::Negate => write!(to, "{register} = -{register}"),
                    Operation::Move => write!(to, "{register} = {source}"),
                    Operation::MoveSigned8 => write!(to, "{register} = {}", signed(8)),
                    Operation::MoveSigned16 => write!(to, "{register} = {}", signed(16)),
                    Operation::MoveSigned32 => write!(to, "{register} = {}", signed(32)),
                    _ => write!(to, "{register} {} {source}", symbol(operation)),
                }
            }
            Self::Swap { order, bits, destination } => {
                let name = match order {
                    Order::Little => "le",
                    Order::Big => "be",
                    Order::Swap => "bswap",
                };
                let register = Named(Width::W64, destination);
                write!(to, "{register} = {name}{bits} {register}")
            }
            Self::Constant { destination, value } => {
                write!(to, "r{} = {value:#x} ll", destination.index())
            }
            Self::Load { size, signed, destination, base, offset } => {
                let place = Place(size, signed, base, offset);
                write!(to, "r{} = {place}", destination.index())
            }
            Self::Store { size, base, offset, source } => {
                let place = Place(size, false, base, offset);
                write!(to, "{place} = {}", Shown(Width::W64, source))
            }
            Self::Jump { offset } => write!(to, "goto {offset:+}"),
            Self::Branch { width, condition, left, right, offset } => {
                let (left, right) = (Named(width, left), Shown(width, right));
                write!(to, "if {left} {} {right} goto {offset:+}", relation(condition))
            }
            Self::Call { number } => write!(to, "call {number}"),
            Self::Exit => to.write_str("exit"),
        }
    }
}

/// A sign-extending move's source.
struct Signed<'a>(u8, &'a Shown);

impl fmt::Display for Signed<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "(s{}){}", self.0, self.1)
    }
}

fn symbol(operation: Operation) -> &'static str {
    match operation {
        Operation::Add => "+=",
        Operation::Subtract => "-=",
        Operation::Multiply => "*=",
        Operation::Divide => "/=",
        Operation::DivideSigned => "s/=",
        Operation::Or => "|=",
        Operation::And => "&=",
        Operation::ShiftLeft => "<<=",
        Operation::ShiftRight => ">>=",
        Operation::ShiftRightSigned => "s>>=",
        Operation::Remainder => "%=",
        Operation::RemainderSigned => "s%=",
        Operation::Xor => "^=",
        // Shown in forms of their own.
        Operation::Negate
        | Operation::Move
        | Operation::MoveSigned8
        | Operation::MoveSigned16
        | Operation::MoveSigned32 => "=",
    }
}

fn relation(condition: Condition) -> &'static str {
    match condition {
        Condition::Equal => "==",
        Condition::NotEqual => "!=",
        Condition::Greater => ">",
        Condition::GreaterOrEqual => ">=",
        Condition::Less => "<",
        Condition::LessOrEqual => "<=",
        Condition::Common => "&",
        Condition::GreaterSigned => "s>",
        Condition::GreaterOrEqualSigned => "s>=",
        Condition::LessSigned => "s<",
        Condition::LessOrEqualSigned => "s<=",
    }
}
