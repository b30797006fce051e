//! Bytes of x86-64 instructions, as the compiler needs them (Intel SDM, volume 2).
//!
//! Every form has one length, whatever its operands are: a REX prefix always, displacements and
//! distances of 32 bits. Beyond the buffer's end bytes are only counted.

use crate::instruction::{Condition, Operation, Size, Width};

/// A register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reg {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rsp = 4,
    Rbp = 5,
    Rsi = 6,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
}

/// The eight operations of one encoding, by their number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Condition codes.
pub mod condition {
    use super::Condition;

    pub const BELOW: u8 = 0x2;
    pub const NOT_BELOW: u8 = 0x3;
    pub const EQUAL: u8 = 0x4;

    /// The code of a condition, behind `cmp`, or `test` for bits in common.
    pub fn of(condition: Condition) -> u8 {
        match condition {
            Condition::Less => BELOW,
            Condition::GreaterOrEqual => NOT_BELOW,
            Condition::Equal => EQUAL,
            Condition::NotEqual | Condition::Common => 0x5,
            Condition::LessOrEqual => 0x6,
            Condition::Greater => 0x7,
            Condition::LessSigned => 0xc,
            Condition::GreaterOrEqualSigned => 0xd,
            Condition::LessOrEqualSigned => 0xe,
            Condition::GreaterSigned => 0xf,
        }
    }

    /// The code that holds when this one does not.
    pub fn opposite(code: u8) -> u8 {
        code ^ 1
    }
}

/// A place in memory: a register, perhaps an index, and a displacement.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    base: Reg,
    index: Option<Reg>,
    displacement: i32,
}

impl Memory {
    pub fn at(base: Reg, displacement: i32) -> Self {
        Self { base, index: None, displacement }
    }

    pub fn indexed(base: Reg, index: Reg, displacement: i32) -> Self {
        Self { base, index: Some(index), displacement }
    }
}

/// A short jump whose distance is not known yet: where it is.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Short(usize);

/// Writes instructions one behind the other.
pub struct Emitter<'c> {
    code: &'c mut [u8],
    at: usize,
    random: u64,
}

impl<'c> Emitter<'c> {
    /// Goes on at `at`; at first `random` is the seed.
    pub fn resume(code: &'c mut [u8], at: usize, random: u64) -> Self {
        Self { code, at, random: random | u64::from(random == 0) }
    }

    /// Stops: where, and with which random number.
    pub fn pause(self) -> (usize, u64) {
        (self.at, self.random)
    }

    /// How many bytes there are.
    pub fn at(&self) -> usize {
        self.at
    }

    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.code.get_mut(self.at) {
            *place = byte;
        }
        self.at += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.byte(byte));
    }

    /// Marsaglia's xorshift: the seed is what is secret, not the sequence.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// REX: the width, and the fourth bits of three registers.
    fn rex(&mut self, width: Width, reg: u8, index: u8, rm: u8) {
        let wide = u8::from(width == Width::W64);
        self.byte(0x40 | wide << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | rm >> 3);
    }

    /// `opcode` with a register and a register.
    fn registers(&mut self, width: Width, opcode: &[u8], reg: u8, rm: Reg) {
        self.rex(width, reg, 0, rm as u8);
        self.bytes(opcode);
        self.byte(0xc0 | (reg & 7) << 3 | rm as u8 & 7);
    }

    /// `opcode` with a register and memory.
    fn memory(&mut self, width: Width, opcode: &[u8], reg: u8, place: Memory) {
        let index = place.index.map_or(4, |index| index as u8);
        let base = place.base as u8;
        self.rex(width, reg, if place.index.is_some() { index } else { 0 }, base);
        self.bytes(opcode);
        // A SIB byte always: with the base alone rsp and r12 would need one, and lengths would
        // differ.
        self.byte(0x80 | (reg & 7) << 3 | 4);
        self.byte((index & 7) << 3 | base & 7);
        self.bytes(&place.displacement.to_le_bytes());
    }

    pub fn alu(&mut self, width: Width, operation: Alu, to: Reg, from: Reg) {
        self.registers(width, &[(operation as u8) << 3 | 1], from as u8, to);
    }

    pub fn alu_immediate(&mut self, operation: Alu, to: Reg, value: i32) {
        self.registers(Width::W64, &[0x81], operation as u8, to);
        self.bytes(&value.to_le_bytes());
    }

    pub fn copy(&mut self, width: Width, to: Reg, from: Reg) {
        self.registers(width, &[0x89], from as u8, to);
    }

    pub fn copy_signed(&mut self, width: Width, size: Size, to: Reg, from: Reg) {
        match size {
            Size::B1 => self.registers(width, &[0x0f, 0xbe], to as u8, from),
            Size::B2 => self.registers(width, &[0x0f, 0xbf], to as u8, from),
            _ => self.registers(width, &[0x63], to as u8, from),
        }
    }

    pub fn copy_unsigned_16(&mut self, to: Reg, from: Reg) {
        self.registers(Width::W32, &[0x0f, 0xb7], to as u8, from);
    }

    pub fn test(&mut self, width: Width, one: Reg, other: Reg) {
        self.registers(width, &[0x85], other as u8, one);
    }

    pub fn negate(&mut self, width: Width, register: Reg) {
        self.registers(width, &[0xf7], 3, register);
    }

    pub fn multiply(&mut self, width: Width, to: Reg, by: Reg) {
        self.registers(width, &[0x0f, 0xaf], to as u8, by);
    }

    /// rdx:rax divided by a register: rax the quotient, rdx the remainder.
    pub fn divide(&mut self, width: Width, signed: bool, by: Reg) {
        self.registers(width, &[0xf7], if signed { 7 } else { 6 }, by);
    }

    /// rdx becomes the sign of rax.
    pub fn sign_to_rdx(&mut self, width: Width) {
        self.rex(width, 0, 0, 0);
        self.byte(0x99);
    }

    pub fn compare_minus_one(&mut self, width: Width, register: Reg) {
        self.registers(width, &[0x83], Alu::Cmp as u8, register);
        self.byte(0xff);
    }

    /// Shifts by cl.
    pub fn shift(&mut self, width: Width, operation: Operation, register: Reg) {
        self.registers(width, &[0xd3], shift_code(operation), register);
    }

    pub fn shift_immediate(&mut self, width: Width, operation: Operation, to: Reg, count: u8) {
        self.registers(width, &[0xc1], shift_code(operation), to);
        self.byte(count);
    }

    pub fn rotate_16_by_8(&mut self, register: Reg) {
        self.byte(0x66);
        self.registers(Width::W32, &[0xc1], 0, register);
        self.byte(8);
    }

    pub fn swap_bytes(&mut self, width: Width, register: Reg) {
        self.rex(width, 0, 0, register as u8);
        self.bytes(&[0x0f, 0xc8 | register as u8 & 7]);
    }

    /// All ones if the last comparison was below, else zero: `sbb register, register`.
    pub fn borrow(&mut self, register: Reg) {
        self.registers(Width::W64, &[0x19], register as u8, register);
    }

    /// `lea`.
    pub fn address(&mut self, to: Reg, base: Reg, displacement: i32) {
        self.memory(Width::W64, &[0x8d], to as u8, Memory::at(base, displacement));
    }

    pub fn load(&mut self, size: Size, signed: bool, to: Reg, place: Memory) {
        let (width, opcode): (_, &[u8]) = match (size, signed) {
            (Size::B1, false) => (Width::W32, &[0x0f, 0xb6]),
            (Size::B2, false) => (Width::W32, &[0x0f, 0xb7]),
            (Size::B4, false) => (Width::W32, &[0x8b]),
            (Size::B1, true) => (Width::W64, &[0x0f, 0xbe]),
            (Size::B2, true) => (Width::W64, &[0x0f, 0xbf]),
            (Size::B4, true) => (Width::W64, &[0x63]),
            (Size::B8, _) => (Width::W64, &[0x8b]),
        };
        self.memory(width, opcode, to as u8, place);
    }

    pub fn store(&mut self, size: Size, place: Memory, from: Reg) {
        match size {
            Size::B1 => self.memory(Width::W32, &[0x88], from as u8, place),
            Size::B2 => {
                self.byte(0x66);
                self.memory(Width::W32, &[0x89], from as u8, place);
            }
            Size::B4 => self.memory(Width::W32, &[0x89], from as u8, place),
            Size::B8 => self.memory(Width::W64, &[0x89], from as u8, place),
        }
    }

    pub fn compare_memory(&mut self, register: Reg, place: Memory) {
        self.memory(Width::W64, &[0x3b], register as u8, place);
    }

    pub fn add_memory(&mut self, register: Reg, place: Memory) {
        self.memory(Width::W64, &[0x03], register as u8, place);
    }

    pub fn subtract_from_memory(&mut self, place: Memory, value: i32) {
        self.memory(Width::W64, &[0x81], Alu::Sub as u8, place);
        self.bytes(&value.to_le_bytes());
    }

    pub fn call_memory(&mut self, place: Memory) {
        self.memory(Width::W32, &[0xff], 2, place);
    }

    /// A value of ours, as it stands.
    pub fn load_32(&mut self, to: Reg, value: u32) {
        self.registers(Width::W32, &[0xc7], 0, to);
        self.bytes(&value.to_le_bytes());
    }

    /// A value of ours, as it stands.
    pub fn load_64(&mut self, to: Reg, value: u64) {
        self.rex(Width::W64, 0, 0, to as u8);
        self.byte(0xb8 | to as u8 & 7);
        self.bytes(&value.to_le_bytes());
    }

    /// A value of the program's, sign-extended to the width, which does not stand in the code.
    pub fn blinded_32(&mut self, to: Reg, value: i32, width: Width) {
        let key = self.next_random() as i32;
        self.load_32(to, (value ^ key) as u32);
        self.registers(Width::W32, &[0x81], Alu::Xor as u8, to);
        self.bytes(&key.to_le_bytes());
        if width == Width::W64 {
            self.copy_signed(Width::W64, Size::B4, to, to);
        }
    }

    /// A value of the program's, which does not stand in the code.
    pub fn blinded_64(&mut self, to: Reg, value: u64, scratch: Reg) {
        let key = self.next_random();
        self.load_64(to, value ^ key);
        self.load_64(scratch, key);
        self.alu(Width::W64, Alu::Xor, to, scratch);
    }

    pub fn push(&mut self, register: Reg) {
        self.rex(Width::W32, 0, 0, register as u8);
        self.byte(0x50 | register as u8 & 7);
    }

    pub fn pop(&mut self, register: Reg) {
        self.rex(Width::W32, 0, 0, register as u8);
        self.byte(0x58 | register as u8 & 7);
    }

    pub fn ret(&mut self) {
        self.byte(0xc3);
    }

    /// Stores rax to rcx words from rdi upwards.
    pub fn fill_words(&mut self) {
        self.bytes(&[0xf3, 0x48, 0xab]);
    }

    pub fn jump(&mut self, target: usize) {
        self.byte(0xe9);
        self.distance(target);
    }

    pub fn branch(&mut self, code: u8, target: usize) {
        self.bytes(&[0x0f, 0x80 | code]);
        self.distance(target);
    }

    fn distance(&mut self, target: usize) {
        let next = self.at as i64 + 4;
        self.bytes(&((target as i64 - next) as i32).to_le_bytes());
    }

    pub fn short_branch(&mut self, code: u8) -> Short {
        self.bytes(&[0x70 | code, 0]);
        Short(self.at)
    }

    pub fn short_jump(&mut self) -> Short {
        self.bytes(&[0xeb, 0]);
        Short(self.at)
    }

    /// A short jump leads here.
    pub fn land(&mut self, jump: Short) {
        let distance = self.at - jump.0;
        if let Some(place) = self.code.get_mut(jump.0 - 1) {
            *place = distance as u8;
        }
    }
}

fn shift_code(operation: Operation) -> u8 {
    match operation {
        Operation::ShiftLeft => 4,
        Operation::ShiftRight => 5,
        _ => 7,
    }
}
