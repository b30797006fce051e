//! Random programs that mostly pass the verifier, and do everything that programs can do.

use code::builder::{Builder, Label};
use code::instruction::{Condition, Operation, Order, Register, Size};
use code::signature::{STACK, address};

use crate::programs::Random;

const OPERATIONS: [Operation; 15] = [
    Operation::Add,
    Operation::Subtract,
    Operation::Multiply,
    Operation::Divide,
    Operation::DivideSigned,
    Operation::Or,
    Operation::And,
    Operation::ShiftLeft,
    Operation::ShiftRight,
    Operation::ShiftRightSigned,
    Operation::Remainder,
    Operation::RemainderSigned,
    Operation::Xor,
    Operation::Move,
    Operation::Negate,
];
const CONDITIONS: [Condition; 11] = [
    Condition::Equal,
    Condition::NotEqual,
    Condition::Greater,
    Condition::GreaterOrEqual,
    Condition::Less,
    Condition::LessOrEqual,
    Condition::Common,
    Condition::GreaterSigned,
    Condition::GreaterOrEqualSigned,
    Condition::LessSigned,
    Condition::LessOrEqualSigned,
];
const SIZES: [Size; 4] = [Size::B1, Size::B2, Size::B4, Size::B8];
/// The areas of the tests' signature with their lengths: 2 and 3 may be read, 3 and 5 written.
const AREAS: [(usize, u64); 4] = [(2, 64), (3, 100), (5, 8), (STACK, 512)];

/// A program of the tests' general signature, of up to `items` groups of instructions.
pub fn program(random: &mut Random, items: usize) -> Vec<u8> {
    let mut generator = Generator { random, builder: Builder::new(), labels: Vec::new() };
    let items = 1 + generator.random.below(items);
    generator.labels = (0..=items).map(|_| generator.builder.label()).collect();
    generator.begin();
    for item in 0..items {
        let label = generator.labels[item];
        generator.builder.place(label);
        generator.item(item);
    }
    let label = generator.labels[items];
    generator.builder.place(label).exit();
    generator.builder.finish().expect("every label is placed, and near")
}

struct Generator<'r> {
    random: &'r mut Random,
    builder: Builder,
    labels: Vec<Label>,
}

impl Generator<'_> {
    fn register(&mut self) -> Register {
        Register::new(self.random.below(10) as u8).expect("there are eleven")
    }

    fn constant(&mut self) -> i32 {
        self.random.word() as i32
    }

    /// What no caller has written gets its first value.
    fn begin(&mut self) {
        for number in [0, 6, 7, 8, 9] {
            let register = Register::new(number).expect("there are eleven");
            if self.random.chance(50) {
                let from = Register::new(1 + self.random.below(5) as u8).expect("there are eleven");
                self.builder.compute(Operation::Move, register, from);
            } else {
                let word = self.random.word();
                self.builder.set(register, word);
            }
        }
    }

    fn item(&mut self, item: usize) {
        match self.random.below(100) {
            0..40 => self.compute(),
            40..44 => self.swap(),
            44..48 => {
                let (register, word) = (self.register(), self.random.word());
                self.builder.set(register, word);
            }
            48..60 => self.known_access(),
            60..76 => self.computed_access(),
            76..77 => {
                let base = self.register();
                self.access(base, 0);
            }
            77..90 => self.branch(item),
            90..93 => self.leave(item),
            _ => self.call(),
        }
    }

    fn compute(&mut self) {
        let operation = OPERATIONS[self.random.below(OPERATIONS.len())];
        let (destination, source) = (self.register(), self.register());
        let wide = self.random.chance(60);
        if operation == Operation::Move && self.random.chance(50) {
            let moves = [Operation::MoveSigned8, Operation::MoveSigned16, Operation::MoveSigned32];
            let operation = moves[self.random.below(if wide { 3 } else { 2 })];
            if wide {
                self.builder.compute(operation, destination, source);
            } else {
                self.builder.compute_32(operation, destination, source);
            }
            return;
        }
        let constant = self.constant();
        let use_register = self.random.chance(60);
        let builder = &mut self.builder;
        match (operation, wide, use_register) {
            (Operation::Negate, true, _) => builder.negate(destination),
            (Operation::Negate, false, _) => builder.compute_32(operation, destination, 0),
            (_, true, true) => builder.compute(operation, destination, source),
            (_, true, false) => builder.compute(operation, destination, constant),
            (_, false, true) => builder.compute_32(operation, destination, source),
            (_, false, false) => builder.compute_32(operation, destination, constant),
        };
    }

    fn swap(&mut self) {
        let order = [Order::Little, Order::Big, Order::Swap][self.random.below(3)];
        let bits = [16, 32, 64][self.random.below(3)];
        let register = self.register();
        self.builder.swap(order, bits, register);
    }

    /// A load or store through this register.
    fn access(&mut self, base: Register, offset: i16) {
        let size = SIZES[self.random.below(4)];
        let (other, constant) = (self.register(), self.constant());
        match self.random.below(4) {
            0 => self.builder.load(size, other, base, offset),
            1 if size != Size::B8 => self.builder.load_signed(size, other, base, offset),
            2 => self.builder.store(size, base, offset, constant),
            _ => self.builder.store(size, base, offset, other),
        };
    }

    /// At an address that the verifier knows: of the stack, or of an area.
    fn known_access(&mut self) {
        if self.random.chance(50) {
            let offset = -8 - self.random.below(505) as i16;
            return self.access(Register::R10, offset);
        }
        let (area, length) = AREAS[self.random.below(4)];
        let base = self.register();
        self.builder.set(base, address(area));
        let offset = self.random.below(length as usize - 7) as i16;
        self.access(base, offset);
    }

    /// At an address that only the run knows, mostly within an area.
    fn computed_access(&mut self) {
        let (area, length) = AREAS[self.random.below(4)];
        let area = if self.random.chance(4) { self.random.below(9) } else { area };
        let (index, pointer) = (self.register(), self.register());
        if index == pointer {
            return;
        }
        let mask = (length.next_power_of_two() / if self.random.chance(80) { 2 } else { 1 }) - 1;
        self.builder
            .compute(Operation::And, index, mask as i32)
            .set(pointer, address(area))
            .compute(Operation::Add, pointer, index);
        let offset = if self.random.chance(10) { self.random.word() as i16 } else { 0 };
        self.access(pointer, offset);
    }

    /// Where to: mostly onwards.
    fn target(&mut self, item: usize) -> Label {
        let items = self.labels.len() - 1;
        if self.random.chance(70) {
            self.labels[item + 1 + self.random.below(items - item)]
        } else {
            self.labels[self.random.below(item + 1)]
        }
    }

    fn branch(&mut self, item: usize) {
        let target = self.target(item);
        self.branch_to(target);
    }

    fn branch_to(&mut self, target: Label) {
        let condition = CONDITIONS[self.random.below(CONDITIONS.len())];
        let (left, right, constant) = (self.register(), self.register(), self.constant());
        match self.random.below(4) {
            0 => self.builder.branch(condition, left, right, target),
            1 => self.builder.branch_32(condition, left, right, target),
            2 => self.builder.branch(condition, left, constant, target),
            _ => self.builder.branch_32(condition, left, constant, target),
        };
    }

    /// Ends or jumps on one of two ways, so that what follows can be reached.
    fn leave(&mut self, item: usize) {
        let skip = self.builder.label();
        self.branch_to(skip);
        if self.random.chance(30) {
            self.builder.exit();
        } else {
            let target = self.target(item);
            self.builder.jump(target);
        }
        self.builder.place(skip);
    }

    /// Calls, and gives what the call has lost new values.
    fn call(&mut self) {
        let number = 1 + self.random.below(3) as u32;
        self.builder.call(number);
        for lost in 1..6 {
            let register = Register::new(lost).expect("there are eleven");
            let from = [0, 6, 7, 8, 9][self.random.below(5)];
            let from = Register::new(from).expect("there are eleven");
            self.builder.compute(Operation::Move, register, from);
        }
    }
}
