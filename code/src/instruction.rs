//! The instructions of RFC 9669, decoded with every field checked, and encoded.
//!
//! ```text
//!  byte 0      byte 1            bytes 2-3   bytes 4-7      little-endian
//!  opcode      source:destination  offset     immediate
//!  opcode = class (3 bits) | operation or size and mode (5 bits)
//! ```
//! A 64-bit constant takes two slots; everything else takes one. A field that an instruction does
//! not use must be zero (section 3.2), so that each instruction has one encoding; the exception is
//! the jump, which has a near and a far form. What the base set has beyond that and this machine
//! does not is refused by its name: atomic operations, packet loads, calls of other functions of a
//! program.

use crate::error::{Error, Field, Why};

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8;

/// One of the eleven registers: r0 the result, r1-r5 arguments, r6-r9 kept by calls, r10 the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(u8);

#[allow(missing_docs)]
impl Register {
    pub const R0: Self = Self(0);
    pub const R1: Self = Self(1);
    pub const R2: Self = Self(2);
    pub const R3: Self = Self(3);
    pub const R4: Self = Self(4);
    pub const R5: Self = Self(5);
    pub const R6: Self = Self(6);
    pub const R7: Self = Self(7);
    pub const R8: Self = Self(8);
    pub const R9: Self = Self(9);
    pub const R10: Self = Self(10);
}

impl Register {
    /// How many there are.
    pub const COUNT: usize = 11;

    /// The register of this number, if there is one.
    pub fn new(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Whether an operation works on all 64 bits, or on the low 32 with zeros above the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The low half; the upper half of the result is zero.
    W32,
    /// The whole register.
    W64,
}

/// The second operand of an operation, a branch or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A constant, sign-extended to the width of the operation.
    Immediate(i32),
}

/// What an arithmetic instruction computes (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
    /// Unsigned; by zero it is zero.
    Divide,
    /// Signed; by zero it is zero, and the smallest number by -1 is itself.
    DivideSigned,
    Or,
    And,
    /// By the low 6 bits of the count, 5 in 32 bits; so are the other shifts.
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    /// Of the destination itself.
    Negate,
    /// Unsigned; by zero it is the dividend.
    Remainder,
    /// Signed, with the dividend's sign; by zero it is the dividend, by -1 zero.
    RemainderSigned,
    Xor,
    Move,
    /// Moves the low 8 bits, sign-extended to the width.
    MoveSigned8,
    MoveSigned16,
    /// In 64 bits only.
    MoveSigned32,
}

/// What a byte-swap instruction does to the low bits of a register (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// To little-endian: on this machine only cuts the value to its size.
    Little,
    /// To big-endian: swaps, and cuts.
    Big,
    /// Swaps whatever the machine's order is, and cuts.
    Swap,
}

/// What makes a branch be taken (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Condition {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    /// The two have a bit in common.
    Common,
    GreaterSigned,
    GreaterOrEqualSigned,
    LessSigned,
    LessOrEqualSigned,
}

/// How many bytes a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Size {
    B1,
    B2,
    B4,
    B8,
}

impl Size {
    /// The number.
    pub fn bytes(self) -> u32 {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B8 => 8,
        }
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Instruction {
    /// `destination = destination OPERATION source`.
    Compute { width: Width, operation: Operation, destination: Register, source: Operand },
    /// Swaps or cuts the low `bits` (16, 32, 64) of a register.
    Swap { order: Order, bits: u8, destination: Register },
    /// `destination = value`: the one instruction of two slots.
    Constant { destination: Register, value: u64 },
    /// `destination = *(base + offset)`, extended to 64 bits by its sign or by zeros.
    Load { size: Size, signed: bool, destination: Register, base: Register, offset: i16 },
    /// `*(base + offset) = source`.
    Store { size: Size, base: Register, offset: i16, source: Operand },
    /// Goes on `offset` slots after the next one.
    Jump { offset: i32 },
    /// Does so if the condition holds between `left` and `right`.
    Branch { width: Width, condition: Condition, left: Register, right: Operand, offset: i16 },
    /// Calls what the machine offers by this number: r1-r5 in, r0 out.
    Call { number: u32 },
    /// Ends the function; r0 is its result.
    Exit,
}

const LD: u8 = 0;
const LDX: u8 = 1;
const ST: u8 = 2;
const STX: u8 = 3;
const ALU: u8 = 4;
const JMP: u8 = 5;
const JMP32: u8 = 6;
const ALU64: u8 = 7;

/// The bit of an opcode that says: the second operand is a register.
const REGISTER: u8 = 8;
const CONSTANT: u8 = 0x18;
const MEM: u8 = 0x60;
const MEMSX: u8 = 0x80;
const ATOMIC: u8 = 0xc0;
const NEG: u8 = 0x80;
const MOV: u8 = 0xb0;
const END: u8 = 0xd0;
const JA: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;

/// The operations that have two operands of one width: code, offset, meaning.
const OPERATIONS: [(u8, i16, Operation); 17] = [
    (0x00, 0, Operation::Add),
    (0x10, 0, Operation::Subtract),
    (0x20, 0, Operation::Multiply),
    (0x30, 0, Operation::Divide),
    (0x30, 1, Operation::DivideSigned),
    (0x40, 0, Operation::Or),
    (0x50, 0, Operation::And),
    (0x60, 0, Operation::ShiftLeft),
    (0x70, 0, Operation::ShiftRight),
    (0x90, 0, Operation::Remainder),
    (0x90, 1, Operation::RemainderSigned),
    (0xa0, 0, Operation::Xor),
    (MOV, 0, Operation::Move),
    (MOV, 8, Operation::MoveSigned8),
    (MOV, 16, Operation::MoveSigned16),
    (MOV, 32, Operation::MoveSigned32),
    (0xc0, 0, Operation::ShiftRightSigned),
];

const CONDITIONS: [(u8, Condition); 11] = [
    (0x10, Condition::Equal),
    (0x20, Condition::Greater),
    (0x30, Condition::GreaterOrEqual),
    (0x40, Condition::Common),
    (0x50, Condition::NotEqual),
    (0x60, Condition::GreaterSigned),
    (0x70, Condition::GreaterOrEqualSigned),
    (0xa0, Condition::Less),
    (0xb0, Condition::LessOrEqual),
    (0xc0, Condition::LessSigned),
    (0xd0, Condition::LessOrEqualSigned),
];

/// The fields of one slot, not yet understood.
#[derive(Clone, Copy)]
struct Fields {
    opcode: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
}

impl Fields {
    fn of(slot: &[u8]) -> Self {
        let byte = |at: usize| slot.get(at).copied().unwrap_or(0);
        Self {
            opcode: byte(0),
            destination: byte(1) & 15,
            source: byte(1) >> 4,
            offset: i16::from_le_bytes([byte(2), byte(3)]),
            immediate: i32::from_le_bytes([byte(4), byte(5), byte(6), byte(7)]),
        }
    }

    fn bytes(self) -> [u8; SLOT_BYTES] {
        let offset = self.offset.to_le_bytes();
        let immediate = self.immediate.to_le_bytes();
        let registers = self.destination | self.source << 4;
        let [a, b, c, d] = immediate;
        [self.opcode, registers, offset[0], offset[1], a, b, c, d]
    }
}

/// How many slots the program has; whether a last one is incomplete is the verifier's question.
pub fn slots(program: &[u8]) -> usize {
    program.len() / SLOT_BYTES
}

/// The instruction at slot `at` of a program.
///
/// # Errors
/// Names the slot and the field that has no meaning there.
pub fn decode(program: &[u8], at: usize) -> Result<Instruction, Error> {
    let slot = |at: usize| program.get(at * SLOT_BYTES..(at + 1) * SLOT_BYTES);
    let refuse = |why| Error { at, why };
    let fields = Fields::of(slot(at).ok_or(refuse(Why::Truncated))?);
    if fields.opcode == CONSTANT {
        let second = Fields::of(slot(at + 1).ok_or(refuse(Why::Truncated))?);
        return constant(fields, second).map_err(refuse);
    }
    match fields.opcode & 7 {
        LD => Err(Why::PacketLoad),
        LDX => load(fields),
        ST | STX => store(fields),
        ALU | ALU64 => compute(fields),
        _ => jump(fields),
    }
    .map_err(refuse)
}

fn register(number: u8, field: Field) -> Result<Register, Why> {
    Register::new(number).ok_or(Why::Field(field))
}

fn zero(is_zero: bool, field: Field) -> Result<(), Why> {
    if is_zero { Ok(()) } else { Err(Why::Field(field)) }
}

fn constant(first: Fields, second: Fields) -> Result<Instruction, Why> {
    // Sources 1-6 stand for maps, variables and code of Linux's loader (section 5.4).
    zero(first.source == 0, Field::Source)?;
    zero(first.offset == 0, Field::Offset)?;
    let destination = register(first.destination, Field::Destination)?;
    let rest = (second.opcode, second.destination, second.source, second.offset);
    zero(rest == (0, 0, 0, 0), Field::SecondSlot)?;
    let value = u64::from(second.immediate as u32) << 32 | u64::from(first.immediate as u32);
    Ok(Instruction::Constant { destination, value })
}

fn size(opcode: u8) -> Size {
    match opcode & 0x18 {
        0x00 => Size::B4,
        0x08 => Size::B2,
        0x10 => Size::B1,
        _ => Size::B8,
    }
}

fn load(fields: Fields) -> Result<Instruction, Why> {
    let size = size(fields.opcode);
    let signed = match fields.opcode & 0xe0 {
        MEM => false,
        MEMSX if size != Size::B8 => true,
        _ => return Err(Why::Field(Field::Opcode)),
    };
    zero(fields.immediate == 0, Field::Immediate)?;
    let destination = register(fields.destination, Field::Destination)?;
    let base = register(fields.source, Field::Source)?;
    Ok(Instruction::Load { size, signed, destination, base, offset: fields.offset })
}

fn store(fields: Fields) -> Result<Instruction, Why> {
    let of_register = fields.opcode & 7 == STX;
    match fields.opcode & 0xe0 {
        MEM => {}
        ATOMIC if of_register => return Err(Why::Atomic),
        _ => return Err(Why::Field(Field::Opcode)),
    }
    let base = register(fields.destination, Field::Destination)?;
    let source = operand(fields, of_register)?;
    Ok(Instruction::Store { size: size(fields.opcode), base, offset: fields.offset, source })
}

/// The second operand; the field that it does not need must be zero.
fn operand(fields: Fields, is_register: bool) -> Result<Operand, Why> {
    if is_register {
        zero(fields.immediate == 0, Field::Immediate)?;
        return Ok(Operand::Register(register(fields.source, Field::Source)?));
    }
    zero(fields.source == 0, Field::Source)?;
    Ok(Operand::Immediate(fields.immediate))
}

fn compute(fields: Fields) -> Result<Instruction, Why> {
    let width = if fields.opcode & 7 == ALU64 { Width::W64 } else { Width::W32 };
    let destination = register(fields.destination, Field::Destination)?;
    let is_register = fields.opcode & REGISTER != 0;
    match fields.opcode & 0xf0 {
        NEG => {
            zero(!is_register, Field::Opcode)?;
            zero(fields.source == 0, Field::Source)?;
            zero(fields.offset == 0, Field::Offset)?;
            zero(fields.immediate == 0, Field::Immediate)?;
            let (operation, source) = (Operation::Negate, Operand::Immediate(0));
            return Ok(Instruction::Compute { width, operation, destination, source });
        }
        END => return swap(fields, width, destination),
        _ => {}
    }
    let code = fields.opcode & 0xf0;
    if !OPERATIONS.iter().any(|row| row.0 == code) {
        return Err(Why::Field(Field::Opcode));
    }
    let known = OPERATIONS.iter().find(|row| row.0 == code && row.1 == fields.offset);
    let operation = known.ok_or(Why::Field(Field::Offset))?.2;
    if code == MOV && fields.offset != 0 {
        zero(is_register, Field::Offset)?;
        zero(width == Width::W64 || fields.offset != 32, Field::Offset)?;
    }
    let source = operand(fields, is_register)?;
    Ok(Instruction::Compute { width, operation, destination, source })
}

fn swap(fields: Fields, width: Width, destination: Register) -> Result<Instruction, Why> {
    let order = match (width, fields.opcode & REGISTER != 0) {
        (Width::W32, false) => Order::Little,
        (Width::W32, true) => Order::Big,
        (Width::W64, false) => Order::Swap,
        (Width::W64, true) => return Err(Why::Field(Field::Opcode)),
    };
    zero(fields.source == 0, Field::Source)?;
    zero(fields.offset == 0, Field::Offset)?;
    let bits = match fields.immediate {
        16 => 16,
        32 => 32,
        64 => 64,
        _ => return Err(Why::Field(Field::Immediate)),
    };
    Ok(Instruction::Swap { order, bits, destination })
}

fn jump(fields: Fields) -> Result<Instruction, Why> {
    let width = if fields.opcode & 7 == JMP { Width::W64 } else { Width::W32 };
    let is_register = fields.opcode & REGISTER != 0;
    let code = fields.opcode & 0xf0;
    if let Some((_, condition)) = CONDITIONS.iter().find(|row| row.0 == code) {
        let left = register(fields.destination, Field::Destination)?;
        let right = operand(fields, is_register)?;
        let (condition, offset) = (*condition, fields.offset);
        return Ok(Instruction::Branch { width, condition, left, right, offset });
    }
    zero(!is_register, Field::Opcode)?;
    zero(fields.destination == 0, Field::Destination)?;
    match (code, width) {
        (JA, Width::W64) => {
            zero(fields.source == 0, Field::Source)?;
            zero(fields.immediate == 0, Field::Immediate)?;
            Ok(Instruction::Jump { offset: i32::from(fields.offset) })
        }
        (JA, Width::W32) => {
            zero(fields.source == 0, Field::Source)?;
            zero(fields.offset == 0, Field::Offset)?;
            Ok(Instruction::Jump { offset: fields.immediate })
        }
        (CALL, Width::W64) => {
            zero(fields.offset == 0, Field::Offset)?;
            match fields.source {
                0 => Ok(Instruction::Call { number: fields.immediate as u32 }),
                1 => Err(Why::LocalCall),
                2 => Err(Why::TypedCall),
                _ => Err(Why::Field(Field::Source)),
            }
        }
        (EXIT, Width::W64) => {
            zero(fields.source == 0, Field::Source)?;
            zero(fields.offset == 0, Field::Offset)?;
            zero(fields.immediate == 0, Field::Immediate)?;
            Ok(Instruction::Exit)
        }
        _ => Err(Why::Field(Field::Opcode)),
    }
}

impl Instruction {
    /// How many slots it takes.
    pub fn slots(&self) -> usize {
        if matches!(self, Self::Constant { .. }) { 2 } else { 1 }
    }

    /// Its bytes: one slot, or two.
    ///
    /// What has no encoding (`MoveSigned32` in 32 bits, a sign-extending load of 8 bytes, a swap of
    /// 17 bits) is written as it stands, and refused by [`decode`].
    pub fn encode(&self) -> ([u8; SLOT_BYTES], Option<[u8; SLOT_BYTES]>) {
        let mut fields = Fields { opcode: 0, destination: 0, source: 0, offset: 0, immediate: 0 };
        let mut second = None;
        match *self {
            Self::Compute { width, operation, destination, source } => {
                let row = OPERATIONS.iter().find(|row| row.2 == operation);
                let (code, offset) = row.map_or((NEG, 0), |row| (row.0, row.1));
                fields.opcode = code | if width == Width::W64 { ALU64 } else { ALU };
                fields.destination = destination.0;
                fields.offset = offset;
                fields.set_operand(source);
            }
            Self::Swap { order, bits, destination } => {
                fields.opcode = match order {
                    Order::Little => END | ALU,
                    Order::Big => END | ALU | REGISTER,
                    Order::Swap => END | ALU64,
                };
                fields.destination = destination.0;
                fields.immediate = i32::from(bits);
            }
            Self::Constant { destination, value } => {
                fields.opcode = CONSTANT;
                fields.destination = destination.0;
                fields.immediate = value as i32;
                let upper = Fields {
                    opcode: 0,
                    destination: 0,
                    source: 0,
                    offset: 0,
                    immediate: (value >> 32) as i32,
                };
                second = Some(upper.bytes());
            }
            Self::Load { size, signed, destination, base, offset } => {
                fields.opcode = LDX | if signed { MEMSX } else { MEM } | size_code(size);
                (fields.destination, fields.source) = (destination.0, base.0);
                fields.offset = offset;
            }
            Self::Store { size, base, offset, source } => {
                let class = if matches!(source, Operand::Register(_)) { STX } else { ST };
                fields.set_operand(source);
                fields.opcode = class | MEM | size_code(size);
                fields.destination = base.0;
                fields.offset = offset;
            }
            Self::Jump { offset } => match i16::try_from(offset) {
                Ok(offset) => (fields.opcode, fields.offset) = (JA | JMP, offset),
                Err(_) => (fields.opcode, fields.immediate) = (JA | JMP32, offset),
            },
            Self::Branch { width, condition, left, right, offset } => {
                let row = CONDITIONS.iter().find(|row| row.1 == condition);
                fields.opcode = row.map_or(0, |row| row.0);
                fields.opcode |= if width == Width::W64 { JMP } else { JMP32 };
                fields.destination = left.0;
                fields.offset = offset;
                fields.set_operand(right);
            }
            Self::Call { number } => {
                (fields.opcode, fields.immediate) = (CALL | JMP, number as i32);
            }
            Self::Exit => fields.opcode = EXIT | JMP,
        }
        (fields.bytes(), second)
    }
}

impl Fields {
    fn set_operand(&mut self, operand: Operand) {
        match operand {
            Operand::Register(register) => {
                self.opcode |= REGISTER;
                self.source = register.0;
            }
            Operand::Immediate(value) => self.immediate = value,
        }
    }
}

fn size_code(size: Size) -> u8 {
    match size {
        Size::B4 => 0x00,
        Size::B2 => 0x08,
        Size::B1 => 0x10,
        Size::B8 => 0x18,
    }
}
