//! Why a program is refused: the slot, and what is wrong there.

use core::fmt;

/// A program is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The slot of the instruction, from 0.
    pub at: usize,
    /// What is wrong with it.
    pub why: Why,
}

/// A field of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Field {
    Opcode,
    Destination,
    Source,
    Offset,
    Immediate,
    /// The other half of a 64-bit constant: all zero but its immediate.
    SecondSlot,
}

/// What is wrong with an instruction, or with the program as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The field's value has no meaning in this instruction.
    Field(Field),
    /// The program ends within the instruction, or is no whole number of slots.
    Truncated,
    /// An atomic operation: nothing here is shared while a function runs.
    Atomic,
    /// `BPF_ABS` and `BPF_IND`: loads of the packet by a hidden pointer.
    PacketLoad,
    /// A call of another function of the same program: inline it.
    LocalCall,
    /// A call by the number of a type (BTF).
    TypedCall,
    /// No instruction at all.
    Empty,
    /// More slots than [`crate::verifier::SLOTS_MAX`], or than the work space has.
    TooLong,
    /// A jump to before the first or behind the last slot.
    JumpOutside,
    /// A jump into the second half of a 64-bit constant.
    JumpIntoConstant,
    /// The function's last instruction does not end it.
    FallsOff,
    /// No path leads here.
    Unreachable,
    /// A register is read that some path to here has not written.
    Unwritten(u8),
    /// r10 is written.
    WritesStackPointer,
    /// A known address that is in no area the function has, or reaches over the area's end.
    Outside(u64),
    /// A store to a known address in an area that may only be read.
    ReadOnly(u64),
    /// A call of a number that the signature does not offer.
    UnknownCall(u32),
    /// A call whose answer depends on more than the inputs, in a function that must be
    /// deterministic.
    NotDeterministic(u32),
    /// The signature itself: too many parameters, an area too short or long, too large a budget.
    Signature(Limit),
}

/// Which limit of [`crate::signature`] a signature breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Limit {
    Parameters,
    AreaBytes,
    Calls,
    CallArguments,
    Budget,
}

impl Why {
    /// Its number, for whoever has only a number to answer with: never 0, and never another one's.
    pub const fn number(self) -> u8 {
        match self {
            Why::Field(_) => 1,
            Why::Truncated => 2,
            Why::Atomic => 3,
            Why::PacketLoad => 4,
            Why::LocalCall => 5,
            Why::TypedCall => 6,
            Why::Empty => 7,
            Why::TooLong => 8,
            Why::JumpOutside => 9,
            Why::JumpIntoConstant => 10,
            Why::FallsOff => 11,
            Why::Unreachable => 12,
            Why::Unwritten(_) => 13,
            Why::WritesStackPointer => 14,
            Why::Outside(_) => 15,
            Why::ReadOnly(_) => 16,
            Why::UnknownCall(_) => 17,
            Why::NotDeterministic(_) => 18,
            Why::Signature(_) => 19,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "instruction {}: ", self.at)?;
        match self.why {
            Why::Field(field) => write!(to, "{field:?}: no such value here"),
            Why::Unwritten(register) => write!(to, "r{register} is read before it is written"),
            Why::Outside(address) => write!(to, "{address:#x} is in no area of the function's"),
            Why::ReadOnly(address) => write!(to, "{address:#x} may only be read"),
            Why::UnknownCall(number) => write!(to, "call {number} is not offered"),
            Why::NotDeterministic(number) => write!(to, "call {number} is not deterministic"),
            Why::Signature(limit) => write!(to, "the signature's limit: {limit:?}"),
            Why::Truncated => to.write_str("the program ends within it"),
            Why::Atomic => to.write_str("atomic operations are not offered"),
            Why::PacketLoad => to.write_str("packet loads are not offered"),
            Why::LocalCall => to.write_str("calls within the program are not offered"),
            Why::TypedCall => to.write_str("calls by type are not offered"),
            Why::Empty => to.write_str("there is none"),
            Why::TooLong => to.write_str("the program has too many"),
            Why::JumpOutside => to.write_str("jumps out of the function"),
            Why::JumpIntoConstant => to.write_str("jumps into the middle of a constant"),
            Why::FallsOff => to.write_str("the function goes on behind its end"),
            Why::Unreachable => to.write_str("no path leads here"),
            Why::WritesStackPointer => to.write_str("r10 is read-only"),
        }
    }
}

impl core::error::Error for Error {}
