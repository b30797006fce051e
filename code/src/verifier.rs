//! Whether a program may run at all: control flow, registers, memory, time, determinism.
//!
//! One pass looks at the form: each slot decodes, each jump leads to an instruction. A second one
//! follows every path with what is known of each register: not written, written, or this very
//! value. Addresses are ordinary numbers ([`crate::signature`]), so that what a register points to
//! is just a known value, and arithmetic on it is arithmetic. Where paths meet only what all agree
//! on stays; a register can lose its value and then its being written, so each slot is looked at
//! [`VISITS_MAX`] times at most.
//!
//! **Memory.** A load or store whose address is known is proved here, or refused. Every other one
//! is masked where it happens ([`crate::compiler`]) and ends the function if it is outside.
//!
//! **Time.** A jump back from slot `p` to `t <= p` takes `p - t + 1` from the budget, a call what
//! the signature says; who can't pay ends. Between two jumps back slots only go up, so what runs
//! between arriving at `t'` and jumping back at `p` is at most `p - t' + 1` slots. The sum
//! telescopes: no run has more steps than `slots + budget`. A function without jumps back and
//! costly calls pays nothing.

use crate::arithmetic;
use crate::error::{Error, Why};
use crate::instruction::{self, Instruction, Operand, Operation, Register, SLOT_BYTES};
use crate::signature::{
    Dialect, Kind, PARAMETERS_MAX, STACK, STACK_BYTES, STACK_TOP, Signature, address,
};

/// Most slots of a program.
pub const SLOTS_MAX: usize = 4096;
/// How often a slot is looked at, at most: once, and again when a register has lost something.
pub const VISITS_MAX: usize = 1 + 2 * Register::COUNT;

/// What is known of a register. (Of this form, so that zeroed memory is points that know nothing.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Value {
    /// Nothing: a path to here has not written it.
    #[default]
    Unwritten,
    /// It is written.
    Any,
    /// It is written, and holds this.
    Known(u64),
}

type Values = [Value; Register::COUNT];

/// What verifier and compiler keep of one slot. Whoever verifies gives one for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    /// What is known before the instruction.
    values: Values,
    /// Some path leads here.
    reached: bool,
    /// It waits to be looked at; so does `next`.
    queued: bool,
    next: u16,
    /// It is the second half of a constant.
    is_second: bool,
    /// Where its compiled form begins.
    pub(crate) native: u32,
}

const _: () = assert!(size_of::<Point>() == 192);

/// A program that may run, for this signature.
#[derive(Debug)]
pub struct Verified<'a> {
    pub(crate) program: &'a [u8],
    pub(crate) signature: &'a Signature<'a>,
    pub(crate) points: &'a mut [Point],
    stack_bytes: u32,
    masked: usize,
    visits: usize,
}

/// How a load or store finds its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// At this offset of this area, as was proved.
    Proved {
        /// The area's number.
        area: usize,
        /// The offset in it.
        offset: u32,
    },
    /// At an address that only the run knows.
    Masked,
}

/// Verifies a program; `points` has at least as many as the program has slots.
///
/// # Errors
/// The first thing that is wrong, in the order of the rules above.
pub fn verify<'a>(
    program: &'a [u8],
    signature: &'a Signature<'a>,
    points: &'a mut [Point],
) -> Result<Verified<'a>, Error> {
    let mut verification = Verification::begin(program, signature, points)?;
    while !verification.advance(usize::MAX)? {}
    Ok(verification.verified())
}

/// How far a verification has come; all else that it knows is in the points.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    stage: Stage,
    /// The next slot of a stage that goes from slot to slot.
    at: usize,
    /// The first slot that waits to be looked at.
    head: Option<u16>,
    visits: usize,
    stack_bytes: u32,
    masked: usize,
}

/// What is done one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Each slot decodes.
    #[default]
    Form,
    /// Each jump leads to an instruction of the program.
    Targets,
    /// What is known where, along every path.
    Flow,
    /// Every slot was reached; what of the stack is used.
    Sum,
    Done,
}

/// A verification in pieces, for those who may not work for long at a time.
#[derive(Debug)]
pub struct Verification<'a> {
    program: &'a [u8],
    signature: &'a Signature<'a>,
    points: &'a mut [Point],
    progress: Progress,
}

impl<'a> Verification<'a> {
    /// Begins; nothing has been looked at but the lengths and the signature.
    ///
    /// # Errors
    /// What is wrong with these.
    pub fn begin(
        program: &'a [u8],
        signature: &'a Signature<'a>,
        points: &'a mut [Point],
    ) -> Result<Self, Error> {
        let whole = |why| Error { at: 0, why };
        signature.check().map_err(whole)?;
        let slots = instruction::slots(program);
        if slots * SLOT_BYTES != program.len() {
            return Err(Error { at: slots, why: Why::Truncated });
        }
        if slots == 0 {
            return Err(whole(Why::Empty));
        }
        if slots > SLOTS_MAX || slots > points.len() {
            return Err(Error { at: points.len().min(SLOTS_MAX), why: Why::TooLong });
        }
        let points = &mut points[..slots];
        points.fill(Point::default());
        Ok(Self { program, signature, points, progress: Progress::default() })
    }

    /// Goes on where another stopped: program, signature and points must be those, and unchanged.
    pub fn resume(
        program: &'a [u8],
        signature: &'a Signature<'a>,
        points: &'a mut [Point],
        progress: Progress,
    ) -> Self {
        let slots = instruction::slots(program).min(points.len());
        Self { program, signature, points: &mut points[..slots], progress }
    }

    /// Stops; what was found stays in the points.
    pub fn pause(self) -> Progress {
        self.progress
    }

    /// Looks at `looks` slots at most; answers whether that was all.
    ///
    /// # Errors
    /// What is wrong with the program.
    pub fn advance(&mut self, looks: usize) -> Result<bool, Error> {
        for _ in 0..looks {
            match self.progress.stage {
                Stage::Form => self.check_form()?,
                Stage::Targets => self.check_target()?,
                Stage::Flow => self.follow()?,
                Stage::Sum => self.sum_up()?,
                Stage::Done => return Ok(true),
            }
        }
        Ok(self.progress.stage == Stage::Done)
    }

    /// The verified program; only [`Verification::advance`] knows when there is one.
    fn verified(self) -> Verified<'a> {
        let Self { program, signature, points, progress } = self;
        let Progress { visits, stack_bytes, masked, .. } = progress;
        Verified { program, signature, points, stack_bytes, masked, visits }
    }

    /// The verified program, if all has been looked at.
    pub fn finish(self) -> Option<Verified<'a>> {
        (self.progress.stage == Stage::Done).then(|| self.verified())
    }

    /// The next slot of this stage; at the end the next stage begins at slot 0.
    fn go_to(&mut self, next: usize, then: Stage) {
        self.progress.at = next;
        if next >= self.points.len() {
            self.progress.at = 0;
            self.progress.stage = then;
        }
    }

    fn check_form(&mut self) -> Result<(), Error> {
        let at = self.progress.at;
        let slots = instruction::decode(self.program, at)?.slots();
        if slots == 2 {
            self.points[at + 1].is_second = true;
        }
        self.go_to(at + slots, Stage::Targets);
        Ok(())
    }

    fn check_target(&mut self) -> Result<(), Error> {
        let at = self.progress.at;
        let instruction = instruction::decode(self.program, at)?;
        if let Some(target) = target(&instruction, at) {
            let target = usize::try_from(target).ok().filter(|&target| target < self.points.len());
            let target = target.ok_or(Error { at, why: Why::JumpOutside })?;
            if self.points[target].is_second {
                return Err(Error { at, why: Why::JumpIntoConstant });
            }
        }
        self.go_to(at + instruction.slots(), Stage::Flow);
        if self.progress.stage == Stage::Flow {
            self.arrive(0, entry_values(self.signature));
        }
        Ok(())
    }

    /// Looks at the first slot that waits. Each visit of a slot but its first follows a register's
    /// loss: [`VISITS_MAX`] is the most.
    fn follow(&mut self) -> Result<(), Error> {
        let Some(at) = self.progress.head.map(usize::from) else {
            self.progress.stage = Stage::Sum;
            return Ok(());
        };
        let point = &mut self.points[at];
        self.progress.head = (point.next != 0).then(|| point.next - 1);
        point.queued = false;
        let values = point.values;
        self.progress.visits += 1;
        self.step(at, values)
    }

    /// Passes on what is known behind the instruction to whatever may run next.
    fn step(&mut self, at: usize, before: Values) -> Result<(), Error> {
        let refuse = |why| Error { at, why };
        let instruction = instruction::decode(self.program, at)?;
        let after = transfer(self.signature, &instruction, before).map_err(refuse)?;
        if let Some(target) = target(&instruction, at) {
            self.arrive(target as usize, after);
        }
        if matches!(instruction, Instruction::Exit | Instruction::Jump { .. }) {
            return Ok(());
        }
        let next = at + instruction.slots();
        if next >= self.points.len() {
            return Err(refuse(Why::FallsOff));
        }
        self.arrive(next, after);
        Ok(())
    }

    /// A path arrives: keeps what it and those before it agree on, and queues the slot if that is
    /// less.
    fn arrive(&mut self, at: usize, values: Values) {
        let point = &mut self.points[at];
        let mut joined = values;
        if point.reached {
            for (known, before) in joined.iter_mut().zip(point.values) {
                *known = join(*known, before);
            }
            if joined == point.values {
                return;
            }
        }
        point.reached = true;
        point.values = joined;
        if !point.queued {
            point.queued = true;
            point.next = self.progress.head.map_or(0, |head| head + 1);
            self.progress.head = Some(at as u16);
        }
    }

    fn sum_up(&mut self) -> Result<(), Error> {
        let at = self.progress.at;
        if !self.points[at].reached {
            return Err(Error { at, why: Why::Unreachable });
        }
        match access(self.program, self.signature, self.points, at) {
            Some(Access::Proved { area: STACK, offset }) => {
                // From the word that the access begins in.
                let used = STACK_BYTES - (offset & !7);
                self.progress.stack_bytes = self.progress.stack_bytes.max(used);
            }
            Some(Access::Masked) => {
                self.progress.stack_bytes = STACK_BYTES;
                self.progress.masked += 1;
            }
            _ => {}
        }
        let slots = instruction::decode(self.program, at)?.slots();
        self.go_to(at + slots, Stage::Done);
        Ok(())
    }
}

/// Where an instruction at `at` may jump.
fn target(instruction: &Instruction, at: usize) -> Option<i64> {
    match *instruction {
        Instruction::Jump { offset } => Some(at as i64 + 1 + i64::from(offset)),
        Instruction::Branch { offset, .. } => Some(at as i64 + 1 + i64::from(offset)),
        _ => None,
    }
}

/// How the load or store at a slot finds its memory.
fn access(program: &[u8], signature: &Signature, points: &[Point], at: usize) -> Option<Access> {
    let (base, offset, size, write) = match instruction::decode(program, at).ok()? {
        Instruction::Load { base, offset, size, .. } => (base, offset, size, false),
        Instruction::Store { base, offset, size, .. } => (base, offset, size, true),
        _ => return None,
    };
    let base = points.get(at)?.values[base.index()];
    locate(signature, base, offset, size.bytes(), write).ok()
}

fn join(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Unwritten, _) | (_, Value::Unwritten) => Value::Unwritten,
        _ if one == other => one,
        _ => Value::Any,
    }
}

fn entry_values(signature: &Signature) -> Values {
    let mut values = Values::default();
    for position in 0..PARAMETERS_MAX {
        values[position + 1] = match signature.parameter(position).map(|given| given.kind) {
            None => Value::Unwritten,
            Some(Kind::Word) => Value::Any,
            Some(Kind::Area { .. }) => Value::Known(address(position + 1)),
        };
    }
    values[Register::R10.index()] = Value::Known(STACK_TOP);
    values
}

/// What is known behind an instruction; refuses what it may not do.
fn transfer(
    signature: &Signature,
    instruction: &Instruction,
    mut values: Values,
) -> Result<Values, Why> {
    match *instruction {
        Instruction::Compute { width, operation, destination, source } => {
            let source = read_operand(&values, source)?;
            let old = match operation {
                _ if is_move(operation) => Value::Any,
                _ => read(&values, destination)?,
            };
            let result = |a, b| arithmetic::compute(width, operation, a, b);
            let value = match (old, source) {
                (Value::Known(old), Value::Known(source)) => Value::Known(result(old, source)),
                (_, Value::Known(source)) if is_move(operation) => Value::Known(result(0, source)),
                _ => Value::Any,
            };
            write(&mut values, destination, value)?;
        }
        Instruction::Swap { order, bits, destination } => {
            let value = match read(&values, destination)? {
                Value::Known(value) => Value::Known(arithmetic::swap(order, bits, value)),
                other => other,
            };
            write(&mut values, destination, value)?;
        }
        Instruction::Constant { destination, value } => {
            write(&mut values, destination, Value::Known(value))?;
        }
        Instruction::Load { size, destination, base, offset, .. } => {
            locate(signature, read(&values, base)?, offset, size.bytes(), false)?;
            write(&mut values, destination, Value::Any)?;
        }
        Instruction::Store { size, base, offset, source } => {
            read_operand(&values, source)?;
            locate(signature, read(&values, base)?, offset, size.bytes(), true)?;
        }
        Instruction::Branch { left, right, .. } => {
            read(&values, left)?;
            read_operand(&values, right)?;
        }
        Instruction::Call { number } => call(signature, number, &mut values)?,
        Instruction::Jump { .. } => {}
        Instruction::Exit => drop(read(&values, Register::R0)?),
    }
    Ok(values)
}

fn is_move(operation: Operation) -> bool {
    use Operation::{Move, MoveSigned8, MoveSigned16, MoveSigned32};
    matches!(operation, Move | MoveSigned8 | MoveSigned16 | MoveSigned32)
}

fn read(values: &Values, register: Register) -> Result<Value, Why> {
    match values[register.index()] {
        Value::Unwritten => Err(Why::Unwritten(register.index() as u8)),
        value => Ok(value),
    }
}

fn read_operand(values: &Values, operand: Operand) -> Result<Value, Why> {
    match operand {
        Operand::Register(register) => read(values, register),
        Operand::Immediate(value) => Ok(Value::Known(i64::from(value) as u64)),
    }
}

fn write(values: &mut Values, register: Register, value: Value) -> Result<(), Why> {
    if register == Register::R10 {
        return Err(Why::WritesStackPointer);
    }
    values[register.index()] = value;
    Ok(())
}

/// Proves an access whose address is known, or leaves it to the mask.
fn locate(
    signature: &Signature,
    base: Value,
    offset: i16,
    bytes: u32,
    write: bool,
) -> Result<Access, Why> {
    let Value::Known(base) = base else { return Ok(Access::Masked) };
    let at = base.wrapping_add(i64::from(offset) as u64);
    let (area, offset) = signature.locate(at, bytes, write)?;
    Ok(Access::Proved { area, offset })
}

fn call(signature: &Signature, number: u32, values: &mut Values) -> Result<(), Why> {
    let (_, call) = signature.call(number).ok_or(Why::UnknownCall(number))?;
    if signature.dialect == Dialect::Deterministic && !call.deterministic {
        return Err(Why::NotDeterministic(number));
    }
    let arguments = 1..=usize::from(call.arguments);
    for register in arguments.filter_map(|number| Register::new(number as u8)) {
        read(values, register)?;
    }
    values[0] = Value::Any;
    values[1..=PARAMETERS_MAX].fill(Value::Unwritten);
    Ok(())
}

impl Verified<'_> {
    /// How the load or store at this slot finds its memory; `None` if there is none.
    pub fn access(&self, at: usize) -> Option<Access> {
        access(self.program, self.signature, self.points, at)
    }

    /// What is known of a register before the instruction at this slot, on whatever path.
    pub fn value(&self, at: usize, register: Register) -> Value {
        self.points.get(at).map_or(Value::Unwritten, |point| point.values[register.index()])
    }

    /// How many slots it has.
    pub fn slots(&self) -> usize {
        self.points.len()
    }

    /// How many bytes of the stack, from its end down, it may touch: these begin as zeros.
    pub fn stack_bytes(&self) -> u32 {
        self.stack_bytes
    }

    /// How often a slot was looked at, all in all.
    pub fn visits(&self) -> usize {
        self.visits
    }

    /// How many loads and stores are masked.
    pub fn masked(&self) -> usize {
        self.masked
    }

    /// The most steps that a run can have.
    pub fn steps_max(&self) -> u64 {
        self.slots() as u64 + u64::from(self.signature.budget)
    }

    /// What the jump from one slot to the other costs: nothing if it goes on, else its length.
    pub fn cost(from: usize, to: usize) -> u32 {
        if to > from { 0 } else { (from - to + 1) as u32 }
    }
}

/// The slot that an instruction at `at` of a verified program may jump to.
pub(crate) fn target_of(instruction: &Instruction, at: usize) -> usize {
    target(instruction, at).map_or(at + 1, |target| target as usize)
}
