//! From verified programs to x86-64: base instructions only, into a buffer that the caller gives.
//!
//! The compiled function is `extern "sysv64" fn(*mut Context) -> u64` and answers an [`Ending`].
//! It touches the [`Context`], the areas named there, and the callee's six saved registers.
//!
//! ```text
//!  r0 r1  r2  r3 r4  r5  r6  r7  r8  r9  r10      Context   scratch
//!  r8 rdi rsi r9 r10 r11 rbx r12 r13 r14 r15      rbp       rax rcx rdx
//! ```
//! **Masks.** An access that is not proved goes by its address's area number, which is cut to 0-7
//! without a branch, and by its offset, which is compared with the area's length and then *masked
//! by the comparison's own carry*: a processor that guesses the branch wrong reads the area's first
//! bytes, nothing else (docs/decisions/0022-one-bytecode.md has the proof).
//!
//! **Constants** are blinded: none of the program's stands in the code as it is, so that nobody
//! chooses what the code says when it is entered in the middle. What stays are offsets, of 24 bits
//! at most, and the distances of jumps. **Time**: jumps back and calls take their cost from the
//! context's budget.
//!
//! Two passes: the first only measures, so that the second knows where each jump leads. No length
//! depends on a distance or on the seed. Both can be done in pieces ([`Compilation`]).

use crate::context::{
    AREA_ENTRY, ARGUMENTS, BASE, BUDGET, CALLS, Ending, READABLE, RESULT, STACK_AT,
};
use crate::context::{AREAS_AT, WRITABLE};
use crate::emit::{Alu, Emitter, Memory, Reg, condition};
use crate::instruction::Order;
use crate::instruction::{self, Condition, Instruction, Operand, Operation, Register, Size, Width};
use crate::signature::{AREAS, Kind, PARAMETERS_MAX, STACK, STACK_BYTES, STACK_TOP, address};
use crate::verifier::{Access, Verified, target_of};

/// Where each register of the program lives.
const HOME: [Reg; Register::COUNT] = [
    Reg::R8,
    Reg::Rdi,
    Reg::Rsi,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::Rbx,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];
/// What the function gives back to its caller as it was.
const SAVED: [Reg; 6] = [Reg::Rbx, Reg::Rbp, Reg::R12, Reg::R13, Reg::R14, Reg::R15];
/// Pushed with them, so that calls find the stack aligned to 16.
const PADDING: i32 = 8;

/// The most bytes that one slot becomes, beside [`FRAME_BYTES_MAX`] for the function.
pub const SLOT_BYTES_MAX: usize = 96;
/// The most bytes of what comes before the first instruction and behind the last.
pub const FRAME_BYTES_MAX: usize = 192;

/// The buffer is too small; so many bytes are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall(pub usize);

/// Compiles a function into `code`; answers how many bytes it took. `seed` is what the constants
/// are blinded by: random, and told to nobody.
///
/// # Errors
/// Says how large the buffer must be. `SLOT_BYTES_MAX * slots + FRAME_BYTES_MAX` is always enough.
pub fn compile(function: &mut Verified, code: &mut [u8], seed: u64) -> Result<usize, TooSmall> {
    let mut compilation = Compilation::begin(seed);
    loop {
        if let Some(length) = compilation.advance(function, code, usize::MAX)? {
            return Ok(length);
        }
    }
}

/// A compilation in pieces, for those who may not work for long at a time. Function and buffer
/// must be the same each time, and unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Compilation {
    seed: u64,
    /// The first pass, which measures, is over.
    measured: bool,
    /// The next slot of this pass.
    slot: usize,
    /// How many bytes this pass has come to, and its random number.
    at: usize,
    random: u64,
    ends: Ends,
}

impl Compilation {
    /// Begins; nothing has been done.
    pub fn begin(seed: u64) -> Self {
        Self { seed, measured: false, slot: 0, at: 0, random: seed, ends: Ends::default() }
    }

    /// Compiles `slots` slots at most; answers how many bytes it took in all, if that was the last.
    ///
    /// # Errors
    /// As [`compile`].
    pub fn advance(
        &mut self,
        function: &mut Verified,
        code: &mut [u8],
        slots: usize,
    ) -> Result<Option<usize>, TooSmall> {
        let room = code.len();
        let code = if self.measured { code } else { &mut code[..0] };
        let emit = Emitter::resume(code, self.at, self.random);
        let mut compiler = Compiler { function, emit, ends: self.ends };
        if self.slot == 0 {
            compiler.prologue();
        }
        for _ in 0..slots {
            if self.slot >= compiler.function.slots() {
                break;
            }
            self.slot += compiler.slot(self.slot);
        }
        let over = self.slot >= compiler.function.slots();
        if over {
            self.ends = compiler.epilogue();
        }
        (self.at, self.random) = compiler.emit.pause();
        if !over {
            return Ok(None);
        }
        if self.measured {
            return Ok(Some(self.at));
        }
        let needed = core::mem::take(&mut self.at);
        (self.measured, self.slot, self.random) = (true, 0, self.seed);
        if needed <= room { Ok(None) } else { Err(TooSmall(needed)) }
    }
}

/// Where the function's ends are.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    returned: usize,
    exhausted: usize,
    outside: usize,
}

struct Compiler<'f, 'a, 'c> {
    function: &'f mut Verified<'a>,
    emit: Emitter<'c>,
    ends: Ends,
}

impl Compiler<'_, '_, '_> {
    /// Compiles the instruction at a slot; how many slots it has.
    fn slot(&mut self, at: usize) -> usize {
        self.function.points[at].native = self.emit.at() as u32;
        // A verified program decodes.
        let Ok(instruction) = instruction::decode(self.function.program, at) else { return 1 };
        self.instruction(at, &instruction);
        instruction.slots()
    }

    fn prologue(&mut self) {
        let emit = &mut self.emit;
        for register in SAVED {
            emit.push(register);
        }
        emit.alu_immediate(Alu::Sub, Reg::Rsp, PADDING);
        emit.copy(Width::W64, Reg::Rbp, Reg::Rdi);
        let zeroed = self.function.stack_bytes();
        if zeroed > 0 {
            emit.address(Reg::Rdi, Reg::Rbp, STACK_AT + (STACK_BYTES - zeroed) as i32);
            emit.load_32(Reg::Rcx, zeroed / 8);
            emit.alu(Width::W32, Alu::Xor, Reg::Rax, Reg::Rax);
            emit.fill_words();
        }
        emit.alu(Width::W32, Alu::Xor, Reg::Rax, Reg::Rax);
        emit.store(Size::B8, Memory::at(Reg::Rbp, RESULT), Reg::Rax);
        for position in 0..PARAMETERS_MAX {
            let home = HOME[position + 1];
            match self.function.signature.parameter(position).map(|given| given.kind) {
                None => {}
                Some(Kind::Word) => {
                    let place = Memory::at(Reg::Rbp, ARGUMENTS + 8 * position as i32);
                    emit.load(Size::B8, false, home, place);
                }
                Some(Kind::Area { .. }) => emit.load_64(home, address(position + 1)),
            }
        }
        emit.load_64(HOME[Register::R10.index()], STACK_TOP);
    }

    fn epilogue(&mut self) -> Ends {
        let emit = &mut self.emit;
        let returned = emit.at();
        emit.store(Size::B8, Memory::at(Reg::Rbp, RESULT), HOME[0]);
        emit.load_32(Reg::Rax, Ending::Returned as u32);
        let leave = emit.at();
        emit.alu_immediate(Alu::Add, Reg::Rsp, PADDING);
        for register in SAVED.into_iter().rev() {
            emit.pop(register);
        }
        emit.ret();
        let exhausted = emit.at();
        // Not what is left of the subtraction: the context may be run again.
        emit.alu(Width::W32, Alu::Xor, Reg::Rax, Reg::Rax);
        emit.store(Size::B8, Memory::at(Reg::Rbp, BUDGET), Reg::Rax);
        emit.load_32(Reg::Rax, Ending::Exhausted as u32);
        emit.jump(leave);
        let outside = emit.at();
        emit.load_32(Reg::Rax, Ending::Outside as u32);
        emit.jump(leave);
        Ends { returned, exhausted, outside }
    }

    fn instruction(&mut self, at: usize, instruction: &Instruction) {
        match *instruction {
            Instruction::Compute { width, operation, destination, source } => {
                self.compute(width, operation, HOME[destination.index()], source);
            }
            Instruction::Swap { order, bits, destination } => {
                self.swap(order, bits, HOME[destination.index()]);
            }
            Instruction::Constant { destination, value } => {
                self.emit.blinded_64(HOME[destination.index()], value, Reg::Rax);
            }
            Instruction::Load { size, signed, destination, base, offset } => {
                let place = self.memory(at, base, offset, size, READABLE);
                self.emit.load(size, signed, HOME[destination.index()], place);
            }
            Instruction::Store { size, base, offset, source } => {
                let place = self.memory(at, base, offset, size, WRITABLE);
                let source = self.operand(Width::W64, source);
                self.emit.store(size, place, source);
            }
            Instruction::Jump { .. } => self.jump(at, target_of(instruction, at)),
            Instruction::Branch { width, condition, left, right, .. } => {
                let target = target_of(instruction, at);
                self.branch(width, condition, HOME[left.index()], right, (at, target));
            }
            Instruction::Call { number } => self.call(number),
            Instruction::Exit => self.emit.jump(self.ends.returned),
        }
    }

    /// The register that holds an operand: its home, or rcx for a constant.
    fn operand(&mut self, width: Width, operand: Operand) -> Reg {
        match operand {
            Operand::Register(register) => HOME[register.index()],
            Operand::Immediate(value) => {
                self.emit.blinded_32(Reg::Rcx, value, width);
                Reg::Rcx
            }
        }
    }

    fn compute(&mut self, width: Width, operation: Operation, home: Reg, source: Operand) {
        if operation == Operation::Negate {
            return self.emit.negate(width, home);
        }
        let source = self.operand(width, source);
        let emit = &mut self.emit;
        match operation {
            Operation::Add => emit.alu(width, Alu::Add, home, source),
            Operation::Subtract => emit.alu(width, Alu::Sub, home, source),
            Operation::Or => emit.alu(width, Alu::Or, home, source),
            Operation::And => emit.alu(width, Alu::And, home, source),
            Operation::Xor => emit.alu(width, Alu::Xor, home, source),
            Operation::Multiply => emit.multiply(width, home, source),
            Operation::Move => emit.copy(width, home, source),
            Operation::MoveSigned8 => emit.copy_signed(width, Size::B1, home, source),
            Operation::MoveSigned16 => emit.copy_signed(width, Size::B2, home, source),
            Operation::MoveSigned32 => emit.copy_signed(width, Size::B4, home, source),
            Operation::ShiftLeft | Operation::ShiftRight | Operation::ShiftRightSigned => {
                // The count is taken from cl, and cut as the RFC cuts it.
                emit.copy(Width::W32, Reg::Rcx, source);
                emit.shift(width, operation, home);
            }
            _ => self.divide(width, operation, home, source),
        }
    }

    /// The four divisions: what the processor would fault on has its own results.
    fn divide(&mut self, width: Width, operation: Operation, home: Reg, source: Reg) {
        let signed = matches!(operation, Operation::DivideSigned | Operation::RemainderSigned);
        let quotient = matches!(operation, Operation::Divide | Operation::DivideSigned);
        let emit = &mut self.emit;
        emit.copy(width, Reg::Rcx, source);
        emit.copy(width, Reg::Rax, home);
        emit.test(width, Reg::Rcx, Reg::Rcx);
        let by_zero = emit.short_branch(condition::EQUAL);
        let mut by_minus_one = None;
        if signed {
            emit.compare_minus_one(width, Reg::Rcx);
            by_minus_one = Some(emit.short_branch(condition::EQUAL));
            emit.sign_to_rdx(width);
        } else {
            emit.alu(Width::W32, Alu::Xor, Reg::Rdx, Reg::Rdx);
        }
        emit.divide(width, signed, Reg::Rcx);
        if !quotient {
            emit.copy(width, Reg::Rax, Reg::Rdx);
        }
        let mut done = [Some(emit.short_jump()), None];
        if let Some(by_minus_one) = by_minus_one {
            emit.land(by_minus_one);
            if quotient {
                emit.negate(width, Reg::Rax);
            } else {
                emit.alu(Width::W32, Alu::Xor, Reg::Rax, Reg::Rax);
            }
            done[1] = Some(emit.short_jump());
        }
        emit.land(by_zero);
        if quotient {
            emit.alu(Width::W32, Alu::Xor, Reg::Rax, Reg::Rax);
        }
        for jump in done.into_iter().flatten() {
            emit.land(jump);
        }
        emit.copy(width, home, Reg::Rax);
    }

    fn swap(&mut self, order: Order, bits: u8, home: Reg) {
        let swapped = order != Order::Little;
        match (bits, swapped) {
            (16, _) => {
                if swapped {
                    self.emit.rotate_16_by_8(home);
                }
                self.emit.copy_unsigned_16(home, home);
            }
            (32, false) => self.emit.copy(Width::W32, home, home),
            (32, true) => self.emit.swap_bytes(Width::W32, home),
            (_, true) => self.emit.swap_bytes(Width::W64, home),
            (_, false) => {}
        }
    }

    /// Where the load or store at slot `at` finds its memory. Takes all three scratch registers;
    /// only rax is part of the answer.
    fn memory(&mut self, at: usize, base: Register, offset: i16, size: Size, right: i32) -> Memory {
        match self.function.access(at) {
            Some(Access::Proved { area: STACK, offset }) => {
                Memory::at(Reg::Rbp, STACK_AT + offset as i32)
            }
            Some(Access::Proved { area, offset }) => {
                let entry = AREAS_AT + AREA_ENTRY * area as i32;
                let emit = &mut self.emit;
                emit.load(Size::B8, false, Reg::Rax, Memory::at(Reg::Rbp, entry + BASE));
                Memory::at(Reg::Rax, offset as i32)
            }
            _ => self.masked(HOME[base.index()], i32::from(offset), size, right),
        }
    }

    fn masked(&mut self, base: Reg, offset: i32, size: Size, right: i32) -> Memory {
        let column = |column: i32| Memory::indexed(Reg::Rbp, Reg::Rcx, AREAS_AT + column);
        let emit = &mut self.emit;
        emit.address(Reg::Rax, base, offset);
        // rcx: where the area's entry is; a number beyond the last becomes 0, which is nobody's.
        emit.copy(Width::W64, Reg::Rcx, Reg::Rax);
        emit.shift_immediate(Width::W64, Operation::ShiftRight, Reg::Rcx, 32);
        emit.alu_immediate(Alu::Cmp, Reg::Rcx, AREAS as i32);
        emit.borrow(Reg::Rdx);
        emit.alu(Width::W64, Alu::And, Reg::Rcx, Reg::Rdx);
        emit.shift_immediate(Width::W64, Operation::ShiftLeft, Reg::Rcx, 5);
        // rax: the offset in it; rdx: that of the last byte.
        emit.copy(Width::W32, Reg::Rax, Reg::Rax);
        emit.address(Reg::Rdx, Reg::Rax, size.bytes() as i32 - 1);
        emit.compare_memory(Reg::Rdx, column(right));
        emit.branch(condition::NOT_BELOW, self.ends.outside);
        // All ones if the comparison said inside; zero if we are here because a guess was wrong.
        emit.borrow(Reg::Rdx);
        emit.alu(Width::W64, Alu::And, Reg::Rax, Reg::Rdx);
        emit.add_memory(Reg::Rax, column(BASE));
        Memory::at(Reg::Rax, 0)
    }

    fn jump(&mut self, at: usize, target: usize) {
        self.pay(Verified::cost(at, target));
        self.emit.jump(self.function.points[target].native as usize);
    }

    fn branch(
        &mut self,
        width: Width,
        when: Condition,
        left: Reg,
        right: Operand,
        (at, target): (usize, usize),
    ) {
        let right = self.operand(width, right);
        if when == Condition::Common {
            self.emit.test(width, left, right);
        } else {
            self.emit.alu(width, Alu::Cmp, left, right);
        }
        let when = condition::of(when);
        if target > at {
            return self.emit.branch(when, self.function.points[target].native as usize);
        }
        let skip = self.emit.short_branch(condition::opposite(when));
        self.jump(at, target);
        self.emit.land(skip);
    }

    fn pay(&mut self, cost: u32) {
        if cost > 0 {
            self.emit.subtract_from_memory(Memory::at(Reg::Rbp, BUDGET), cost as i32);
            self.emit.branch(condition::BELOW, self.ends.exhausted);
        }
    }

    fn call(&mut self, number: u32) {
        let Some((index, call)) = self.function.signature.call(number) else { return };
        self.pay(call.cost);
        let emit = &mut self.emit;
        // In this order no register is overwritten before it has been read.
        let moves = [
            (Reg::Rdx, HOME[2]),
            (Reg::Rsi, HOME[1]),
            (Reg::Rcx, HOME[3]),
            (Reg::R8, HOME[4]),
            (Reg::R9, HOME[5]),
            (Reg::Rdi, Reg::Rbp),
        ];
        for (to, from) in moves {
            emit.copy(Width::W64, to, from);
        }
        emit.load(Size::B8, false, Reg::Rax, Memory::at(Reg::Rbp, CALLS));
        emit.call_memory(Memory::at(Reg::Rax, 8 * index as i32));
        emit.copy(Width::W64, HOME[0], Reg::Rax);
    }
}
