//! From the bytes of a program to bytes that mean the same to rbpf.
//!
//! rbpf knows the instructions of 2020: no signed division, no signed loads and moves, no swap
//! whatever the order, no far jump; it compares with constants that are not sign-extended, keeps
//! the upper half at a remainder by zero, asks where an access begins, not where it ends, and never
//! stops a loop. All that is written out here, by the raw fields: nothing is decoded by `code`.
//!
//! r10 always has the same value, so that it is free for a moment: it is put back behind each use.
//!
//! ```text
//!  load   r10 = base + offset + size - 1; touch [r10]; r10 = top of the stack; the load itself
//!  store  the same, and before it: in the area that may only be read? then the end
//!  a jump back, a call: r0, r1 aside; pay(cost); is it spent? then the end; r0, r1 back
//! ```

use crate::input::SLOT;
use crate::oracle::{DIVIDE, PAY};

/// The stack's end.
const TOP: u64 = (6 << 32) + 512;
/// The area that may only be read.
const READ_ONLY: i32 = 2;

/// Offsets in the hidden memory: r0 to r3, two operands, a result.
const OPERANDS: i16 = 32;
const RESULT: i16 = 48;
/// Bytes of it.
pub const HIDDEN_BYTES: usize = 64;

const MOVE: u8 = 0xbf;
const ADD_CONSTANT: u8 = 0x07;
const STORE: u8 = 0x7b;
const LOAD: u8 = 0x79;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// A kind of division, as [`DIVIDE`] takes it.
pub const REMAINDER: i32 = 1;
pub const NARROW: i32 = 2;

/// The fields of a slot.
#[derive(Clone, Copy)]
struct Fields {
    opcode: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
}

fn fields(slot: &[u8]) -> Fields {
    let [opcode, registers, c, d, e, f, g, h] = *slot else { panic!("a slot has eight bytes") };
    Fields {
        opcode,
        destination: registers & 15,
        source: registers >> 4,
        offset: i16::from_le_bytes([c, d]),
        immediate: i32::from_le_bytes([e, f, g, h]),
    }
}

/// Where a jump leads: to a slot of the program, or to one of the two ends.
#[derive(Clone, Copy)]
enum Target {
    Slot(usize),
    /// The budget is spent.
    Spent,
    /// An access that may not be.
    Fault,
}

/// The bytes under way.
struct Translation {
    out: Vec<u8>,
    /// The address of the hidden memory.
    hidden: u64,
    /// Jumps whose offsets are still to be written, by slot.
    jumps: Vec<(usize, Target)>,
}

/// The program for rbpf: `registers` are what it begins with, `hidden` is where it may put things
/// aside, `costs` what calls cost.
pub fn translate(
    program: &[u8],
    registers: &[(u8, u64)],
    hidden: u64,
    costs: impl Fn(u32) -> u32,
) -> Vec<u8> {
    let mut translation = Translation { out: Vec::new(), hidden, jumps: Vec::new() };
    for &(register, value) in registers {
        translation.constant(register, value);
    }
    translation.constant(10, TOP);
    let slots = program.len() / SLOT;
    let mut begins = vec![0; slots];
    let mut at = 0;
    while at < slots {
        begins[at] = translation.here();
        let slot = fields(&program[at * SLOT..][..SLOT]);
        match slot.opcode & 7 {
            0 => {
                let upper = fields(&program[(at + 1) * SLOT..][..SLOT]).immediate;
                let value = u64::from(upper as u32) << 32 | u64::from(slot.immediate as u32);
                translation.constant(slot.destination, value);
                at += 1;
            }
            1 => translation.load(slot),
            2 | 3 => translation.store(slot),
            4 | 7 => translation.compute(slot),
            _ => translation.jump(at, slot, &costs),
        }
        at += 1;
    }
    translation.finish(&begins)
}

impl Translation {
    fn here(&self) -> usize {
        self.out.len() / SLOT
    }

    fn emit(&mut self, opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) {
        let [c, d] = offset.to_le_bytes();
        let [e, f, g, h] = immediate.to_le_bytes();
        self.out.extend([opcode, destination | source << 4, c, d, e, f, g, h]);
    }

    fn constant(&mut self, register: u8, value: u64) {
        self.emit(0x18, register, 0, 0, value as i32);
        self.emit(0, 0, 0, 0, (value >> 32) as i32);
    }

    /// r10 is what it should be.
    fn restore(&mut self) {
        self.constant(10, TOP);
    }

    /// A jump by this opcode, whose offset is known later.
    fn jump_to(&mut self, opcode: u8, fields: (u8, u8, i32), target: Target) {
        self.jumps.push((self.here(), target));
        let (destination, source, immediate) = fields;
        self.emit(opcode, destination, source, 0, immediate);
    }

    /// Touches the last byte of an access; a store must not be to the area for reading.
    fn probe(&mut self, base: u8, slot: Fields, is_store: bool) {
        let size = [4, 2, 1, 8][usize::from(slot.opcode >> 3 & 3)];
        if is_store {
            self.emit(MOVE, 10, base, 0, 0);
            self.emit(ADD_CONSTANT, 10, 0, 0, slot.offset.into());
            self.emit(0x77, 10, 0, 0, 32);
            self.jump_to(0x15, (10, 0, READ_ONLY), Target::Fault);
            self.restore();
        }
        self.emit(MOVE, 10, base, 0, 0);
        self.emit(ADD_CONSTANT, 10, 0, 0, i32::from(slot.offset) + size - 1);
        self.emit(0x71, 10, 10, 0, 0);
        self.restore();
    }

    fn load(&mut self, slot: Fields) {
        let Fields { opcode, destination, source, offset, .. } = slot;
        self.probe(source, slot, false);
        self.emit(opcode & 0x1f | 0x60, destination, source, offset, 0);
        if opcode & 0xe0 == 0x80 {
            let unused = 64 - 8 * [4, 2, 1, 8][usize::from(opcode >> 3 & 3)];
            self.emit(0x67, destination, 0, 0, unused);
            self.emit(0xc7, destination, 0, 0, unused);
        }
    }

    fn store(&mut self, slot: Fields) {
        let Fields { opcode, destination, source, offset, immediate } = slot;
        self.probe(destination, slot, true);
        self.emit(opcode, destination, source, offset, immediate);
    }

    fn compute(&mut self, slot: Fields) {
        let Fields { opcode, destination, source, offset, immediate } = slot;
        let wide = opcode & 7 == 7;
        match (opcode & 0xf0, offset) {
            (0x30 | 0x90, 1) => self.divide_signed(slot),
            (0xb0, 8 | 16 | 32) => {
                self.emit(opcode, destination, source, 0, 0);
                let unused = if wide { 64 } else { 32 } - i32::from(offset);
                self.emit(0x60 | opcode & 7, destination, 0, 0, unused);
                self.emit(0xc0 | opcode & 7, destination, 0, 0, unused);
            }
            // A swap whatever the order is one to big-endian here.
            (0xd0, _) if wide => self.emit(0xdc, destination, 0, 0, immediate),
            _ => self.emit(opcode, destination, source, offset, immediate),
        }
        if opcode & 0xf7 == 0x94 {
            // The remainder by zero, too, has no upper half.
            self.emit(0xbc, destination, destination, 0, 0);
        }
    }

    /// Puts the first `count` registers aside, or takes them back.
    fn spill(&mut self, count: u8) {
        for register in 0..count {
            self.emit(STORE, 10, register, 8 * i16::from(register), 0);
        }
    }

    fn unspill(&mut self, count: u8) {
        for register in 0..count {
            self.emit(LOAD, register, 10, 8 * i16::from(register), 0);
        }
    }

    fn divide_signed(&mut self, slot: Fields) {
        let Fields { opcode, destination, source, immediate, .. } = slot;
        // The stack's end is no address of the hidden memory: as an operand it goes by a register.
        let by_top = opcode & 8 != 0 && source == 10;
        let mut kind = if opcode & 0xf0 == 0x90 { REMAINDER } else { 0 };
        kind |= if opcode & 7 == 4 { NARROW } else { 0 };
        self.constant(10, self.hidden);
        self.emit(STORE, 10, destination, OPERANDS, 0);
        if opcode & 8 == 0 {
            self.emit(0x7a, 10, 0, OPERANDS + 8, immediate);
        } else if !by_top {
            self.emit(STORE, 10, source, OPERANDS + 8, 0);
        }
        self.spill(4);
        self.emit(LOAD, 1, 10, OPERANDS, 0);
        if by_top {
            self.constant(2, TOP);
        } else {
            self.emit(LOAD, 2, 10, OPERANDS + 8, 0);
        }
        self.emit(0xb7, 3, 0, 0, kind);
        self.emit(CALL, 0, 0, 0, DIVIDE as i32);
        self.emit(STORE, 10, 0, RESULT, 0);
        self.unspill(4);
        self.emit(LOAD, destination, 10, RESULT, 0);
        self.restore();
    }

    /// Pays, or ends.
    fn pay(&mut self, cost: u32) {
        if cost == 0 {
            return;
        }
        self.constant(10, self.hidden);
        self.spill(2);
        self.emit(0xb7, 1, 0, 0, cost as i32);
        self.emit(CALL, 0, 0, 0, PAY as i32);
        self.emit(LOAD, 1, 10, 8, 0);
        self.jump_to(0x55, (0, 0, 0), Target::Spent);
        self.emit(LOAD, 0, 10, 0, 0);
        self.restore();
    }

    fn jump(&mut self, at: usize, slot: Fields, costs: &impl Fn(u32) -> u32) {
        let Fields { opcode, offset, immediate, .. } = slot;
        let target = |distance: i64| (at as i64 + 1 + distance) as usize;
        match opcode {
            EXIT => self.emit(EXIT, 0, 0, 0, 0),
            CALL => {
                self.pay(costs(immediate as u32));
                self.emit(CALL, 0, 0, 0, immediate);
            }
            JUMP => self.go(at, target(offset.into())),
            // The far form.
            0x06 => self.go(at, target(immediate.into())),
            _ => self.branch(at, slot, target(offset.into())),
        }
    }

    /// Goes to a slot, and pays if that is back.
    fn go(&mut self, at: usize, target: usize) {
        if target <= at {
            self.pay((at - target + 1) as u32);
        }
        self.jump_to(JUMP, (0, 0, 0), Target::Slot(target));
    }

    fn branch(&mut self, at: usize, slot: Fields, target: usize) {
        let Fields { opcode, destination, source, immediate, .. } = slot;
        // Unsigned 64-bit comparisons with what rbpf would not sign-extend.
        let unsigned = matches!(opcode & 0xf0, 0x10 | 0x20 | 0x30 | 0x50 | 0xa0 | 0xb0);
        let by_register = opcode & 15 == 5 && unsigned && immediate < 0;
        if by_register && destination == 10 {
            // The stack's end is a small number beside such a constant.
            if matches!(opcode & 0xf0, 0x50 | 0xa0 | 0xb0) {
                self.go(at, target);
            }
            return;
        }
        let (opcode, source, immediate) = if by_register {
            self.emit(0xb7, 10, 0, 0, immediate);
            (opcode | 8, 10, 0)
        } else {
            (opcode, source, immediate)
        };
        self.emit(opcode, destination, source, 1, immediate);
        let over = self.here();
        self.emit(JUMP, 0, 0, 0, 0);
        if by_register {
            self.restore();
        }
        self.go(at, target);
        // Not taken.
        let distance = (self.here() - over - 1) as i16;
        self.out[over * SLOT + 2..][..2].copy_from_slice(&distance.to_le_bytes());
        if by_register {
            self.restore();
        }
    }

    /// Lays down both ends, and writes the offsets.
    fn finish(mut self, begins: &[usize]) -> Vec<u8> {
        let fault = self.here();
        self.emit(0xb7, 10, 0, 0, 0);
        self.emit(0x71, 10, 10, 0, 0);
        let spent = self.here();
        self.emit(EXIT, 0, 0, 0, 0);
        for (slot, target) in std::mem::take(&mut self.jumps) {
            let target = match target {
                Target::Slot(at) => begins[at],
                Target::Spent => spent,
                Target::Fault => fault,
            };
            let distance = (target as i64 - slot as i64 - 1) as i16;
            self.out[slot * SLOT + 2..][..2].copy_from_slice(&distance.to_le_bytes());
        }
        self.out
    }
}
