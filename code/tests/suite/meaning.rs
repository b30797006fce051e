//! What each instruction does, in figures worked out from RFC 9669, for all who run it.

use code::argument::Outcome;
use code::builder::Builder;
use code::instruction::{Condition, Instruction, Operand, Operation, Order, Register, Size, Width};

use crate::programs::{assemble, run_on_words};

const R0: Register = Register::R0;
const R1: Register = Register::R1;
const R2: Register = Register::R2;

const MIN: u64 = 1 << 63;
const MINUS: u64 = u64::MAX;
const MIN_32: u64 = 1 << 31;
const MINUS_32: u64 = 0xffff_ffff;
/// Has bits everywhere, a sign in each half.
const BITS: u64 = 0x89ab_cdef_f012_3456;

/// 64 bits: operation, destination, source, result.
const WIDE: &[(Operation, u64, u64, u64)] = &[
    (Operation::Add, 5, 7, 12),
    (Operation::Add, MINUS, 1, 0),
    (Operation::Add, BITS, BITS, 0x1357_9bdf_e024_68ac),
    (Operation::Subtract, 5, 7, 0xffff_ffff_ffff_fffe),
    (Operation::Subtract, MIN, 1, 0x7fff_ffff_ffff_ffff),
    (Operation::Multiply, 6, 7, 42),
    (Operation::Multiply, 1 << 40, 1 << 30, 0),
    (Operation::Multiply, MINUS, 3, 0xffff_ffff_ffff_fffd),
    (Operation::Divide, 43, 6, 7),
    (Operation::Divide, 43, 0, 0),
    (Operation::Divide, MINUS, 2, 0x7fff_ffff_ffff_ffff),
    (Operation::Divide, 1, MINUS, 0),
    (Operation::DivideSigned, 43, 6, 7),
    (Operation::DivideSigned, 0_u64.wrapping_sub(43), 6, 0_u64.wrapping_sub(7)),
    (Operation::DivideSigned, 43, MINUS, 0_u64.wrapping_sub(43)),
    (Operation::DivideSigned, MIN, MINUS, MIN),
    (Operation::DivideSigned, MIN, 0, 0),
    (Operation::Or, 0xf0, 0x0f, 0xff),
    (Operation::Or, BITS, MIN, BITS),
    (Operation::And, 0xff, 0x3c, 0x3c),
    (Operation::And, BITS, 0xffff_ffff_0000_0000, 0x89ab_cdef_0000_0000),
    (Operation::ShiftLeft, 1, 63, MIN),
    (Operation::ShiftLeft, 1, 64, 1),
    (Operation::ShiftLeft, BITS, 36, 0x0123_4560_0000_0000),
    (Operation::ShiftRight, MIN, 63, 1),
    (Operation::ShiftRight, BITS, 68, 0x089a_bcde_ff01_2345),
    (Operation::ShiftRightSigned, MIN, 63, MINUS),
    (Operation::ShiftRightSigned, BITS, 4, 0xf89a_bcde_ff01_2345),
    (Operation::ShiftRightSigned, 0x40, 0x43, 8),
    (Operation::Negate, 1, 0, MINUS),
    (Operation::Negate, MIN, 0, MIN),
    (Operation::Remainder, 43, 6, 1),
    (Operation::Remainder, BITS, 0, BITS),
    (Operation::Remainder, MINUS, 10, 5),
    (Operation::RemainderSigned, 0_u64.wrapping_sub(43), 6, MINUS),
    (Operation::RemainderSigned, 43, 0_u64.wrapping_sub(6), 1),
    (Operation::RemainderSigned, MIN, MINUS, 0),
    (Operation::RemainderSigned, BITS, 0, BITS),
    (Operation::Xor, 0xff, 0x0f, 0xf0),
    (Operation::Xor, BITS, BITS, 0),
    (Operation::Move, 1, BITS, BITS),
    (Operation::MoveSigned8, 1, 0x80, 0xffff_ffff_ffff_ff80),
    (Operation::MoveSigned8, 1, 0x17f, 0x7f),
    (Operation::MoveSigned16, 1, 0x8000, 0xffff_ffff_ffff_8000),
    (Operation::MoveSigned16, 1, BITS, 0x3456),
    (Operation::MoveSigned32, 1, BITS, 0xffff_ffff_f012_3456),
    (Operation::MoveSigned32, 1, 0x1_7fff_ffff, 0x7fff_ffff),
];

/// 32 bits: the upper halves are passed over, and zero in the result.
const NARROW: &[(Operation, u64, u64, u64)] = &[
    (Operation::Add, MINUS_32, 1, 0),
    (Operation::Add, BITS, BITS, 0xe024_68ac),
    (Operation::Subtract, 0, 1, MINUS_32),
    (Operation::Multiply, 1 << 20, 1 << 13, 0),
    (Operation::Multiply, BITS, 3, 0xd036_9d02),
    (Operation::Divide, BITS, 16, 0x0f01_2345),
    (Operation::Divide, BITS, 1 << 32, 0),
    (Operation::DivideSigned, MIN_32, MINUS_32, MIN_32),
    (Operation::DivideSigned, 0xffff_fff9, 2, 0xffff_fffd),
    (Operation::DivideSigned, BITS, 0, 0),
    (Operation::Or, BITS, 1, 0xf012_3457),
    (Operation::And, BITS, MINUS, 0xf012_3456),
    (Operation::ShiftLeft, BITS, 33, 0xe024_68ac),
    (Operation::ShiftRight, BITS, 32, 0xf012_3456),
    (Operation::ShiftRight, BITS, 4, 0x0f01_2345),
    (Operation::ShiftRightSigned, BITS, 4, 0xff01_2345),
    (Operation::ShiftRightSigned, BITS, 36, 0xff01_2345),
    (Operation::Negate, BITS, 0, 0x0fed_cbaa),
    (Operation::Negate, MIN_32, 0, MIN_32),
    (Operation::Remainder, BITS, 0x100, 0x56),
    (Operation::Remainder, BITS, 0, 0xf012_3456),
    (Operation::Remainder, BITS, 1 << 32, 0xf012_3456),
    (Operation::RemainderSigned, MIN_32, MINUS_32, 0),
    (Operation::RemainderSigned, 0xffff_fff9, 2, MINUS_32),
    (Operation::RemainderSigned, BITS, 0, 0xf012_3456),
    (Operation::Xor, BITS, MINUS, 0x0fed_cba9),
    (Operation::Move, 1, BITS, 0xf012_3456),
    (Operation::MoveSigned8, 1, 0x80, 0xffff_ff80),
    (Operation::MoveSigned16, 1, 0x8000, 0xffff_8000),
];

/// Order, bits, value, result.
const SWAPS: &[(Order, u8, u64, u64)] = &[
    (Order::Little, 16, BITS, 0x3456),
    (Order::Little, 32, BITS, 0xf012_3456),
    (Order::Little, 64, BITS, BITS),
    (Order::Big, 16, BITS, 0x5634),
    (Order::Big, 32, BITS, 0x5634_12f0),
    (Order::Big, 64, BITS, 0x5634_12f0_efcd_ab89),
    (Order::Swap, 16, BITS, 0x5634),
    (Order::Swap, 32, BITS, 0x5634_12f0),
    (Order::Swap, 64, BITS, 0x5634_12f0_efcd_ab89),
];

/// Condition, left, right, whether it holds in 64 bits, whether in 32.
const BRANCHES: &[(Condition, u64, u64, bool, bool)] = &[
    (Condition::Equal, 5, 5, true, true),
    (Condition::Equal, 1 << 32, 0, false, true),
    (Condition::NotEqual, 1 << 32, 0, true, false),
    (Condition::NotEqual, 5, 5, false, false),
    (Condition::Greater, MINUS, 1, true, true),
    (Condition::Greater, 1 << 32, 1, true, false),
    (Condition::Greater, 5, 5, false, false),
    (Condition::GreaterOrEqual, 5, 5, true, true),
    (Condition::GreaterOrEqual, 4, MINUS, false, false),
    (Condition::Less, 1, MINUS, true, true),
    (Condition::Less, 1, 1 << 32, true, false),
    (Condition::LessOrEqual, 5, 5, true, true),
    (Condition::LessOrEqual, MIN, 5, false, true),
    (Condition::Common, 6, 3, true, true),
    (Condition::Common, 4, 3, false, false),
    (Condition::Common, BITS, MIN, true, false),
    (Condition::GreaterSigned, 1, MINUS, true, true),
    (Condition::GreaterSigned, MIN, 1, false, false),
    (Condition::GreaterSigned, MIN_32, 1, true, false),
    (Condition::GreaterOrEqualSigned, MINUS, MINUS, true, true),
    (Condition::GreaterOrEqualSigned, MINUS, 0, false, false),
    (Condition::LessSigned, MINUS, 0, true, true),
    (Condition::LessSigned, MIN_32, 0, false, true),
    (Condition::LessOrEqualSigned, MIN, MIN, true, true),
    (Condition::LessOrEqualSigned, 1, MINUS, false, false),
];

/// The instruction on its own: `r0 = r1`, then it with r2, or with a constant if that is the same.
fn computed(width: Width, operation: Operation, a: u64, source: Operand, b: u64) -> Outcome {
    let first = Instruction::Compute {
        width: Width::W64,
        operation: Operation::Move,
        destination: R0,
        source: R1.into(),
    };
    let then = Instruction::Compute { width, operation, destination: R0, source };
    run_on_words(&assemble(&[first, then, Instruction::Exit]), &[a, b])
}

fn check(width: Width, rows: &[(Operation, u64, u64, u64)]) {
    for &(operation, a, b, result) in rows {
        let what = format!("{width:?} {operation:?} {a:#x} {b:#x}");
        let expected = Outcome::Returned(result);
        let negates = operation == Operation::Negate;
        if !negates {
            assert_eq!(computed(width, operation, a, R2.into(), b), expected, "{what}");
        }
        let constant = match width {
            Width::W64 => i32::try_from(b as i64).ok(),
            Width::W32 => Some(b as i32),
        };
        let moves = [Operation::MoveSigned8, Operation::MoveSigned16, Operation::MoveSigned32];
        if let Some(constant) = constant.filter(|_| !moves.contains(&operation)) {
            assert_eq!(computed(width, operation, a, constant.into(), b), expected, "{what}");
        }
    }
}

#[test]
fn arithmetic_in_64_bits() {
    check(Width::W64, WIDE);
}

#[test]
fn arithmetic_in_32_bits() {
    check(Width::W32, NARROW);
}

#[test]
fn byte_orders() {
    for &(order, bits, value, result) in SWAPS {
        let mut builder = Builder::new();
        builder.compute(Operation::Move, R0, R1).swap(order, bits, R0).exit();
        let program = builder.finish().expect("no labels");
        let outcome = run_on_words(&program, &[value]);
        assert_eq!(outcome, Outcome::Returned(result), "{order:?} {bits}");
    }
}

#[test]
fn branches() {
    for &(condition, left, right, wide, narrow) in BRANCHES {
        for (width, holds) in [(Width::W64, wide), (Width::W32, narrow)] {
            let fits = i32::try_from(right as i64).ok().map(Operand::from);
            for right_side in [Some(R2.into()), fits].into_iter().flatten() {
                let mut builder = Builder::new();
                let taken = builder.label();
                builder.set(R0, 1);
                match width {
                    Width::W64 => builder.branch(condition, R1, right_side, taken),
                    Width::W32 => builder.branch_32(condition, R1, right_side, taken),
                };
                builder.set(R0, 0).place(taken).exit();
                let program = builder.finish().expect("it is placed");
                let outcome = run_on_words(&program, &[left, right]);
                let what = format!("{width:?} {condition:?} {left:#x} {right:#x}");
                assert_eq!(outcome, Outcome::Returned(u64::from(holds)), "{what}");
            }
        }
    }
}

#[test]
fn loads_and_stores() {
    // Stored size, loaded size, signed, result: little-endian, in a word of the stack that was
    // BITS.
    let cases = [
        (Size::B8, Size::B8, false, BITS),
        (Size::B8, Size::B4, false, 0xf012_3456),
        (Size::B8, Size::B4, true, 0xffff_ffff_f012_3456),
        (Size::B8, Size::B2, true, 0x3456),
        (Size::B8, Size::B1, false, 0x56),
        (Size::B4, Size::B8, false, 0x0000_0000_f012_3456),
        (Size::B2, Size::B8, false, 0x3456),
        (Size::B1, Size::B8, false, 0x56),
    ];
    for (stored, loaded, signed, result) in cases {
        let mut builder = Builder::new();
        builder.store(stored, Register::R10, -8, R1);
        if signed {
            builder.load_signed(loaded, R0, Register::R10, -8);
        } else {
            builder.load(loaded, R0, Register::R10, -8);
        }
        let program = builder.exit().finish().expect("no labels");
        let outcome = run_on_words(&program, &[BITS]);
        assert_eq!(outcome, Outcome::Returned(result), "{stored:?} {loaded:?} {signed}");
    }
    let mut builder = Builder::new();
    builder.store(Size::B8, Register::R10, -8, -2).load_signed(Size::B1, R0, Register::R10, -8);
    let program = builder.exit().finish().expect("no labels");
    assert_eq!(run_on_words(&program, &[]), Outcome::Returned(MINUS - 1));
}

#[test]
fn constants_and_jumps() {
    let mut builder = Builder::new();
    let (over, end) = (builder.label(), builder.label());
    builder.set(R0, BITS).branch(Condition::Equal, R1, 7, over).jump(end);
    builder.place(over).set(R0, MINUS).place(end).exit();
    let program = builder.finish().expect("both are placed");
    assert_eq!(run_on_words(&program, &[7]), Outcome::Returned(MINUS));
    assert_eq!(run_on_words(&program, &[8]), Outcome::Returned(BITS));
    // The far form of a jump.
    let far = [0x06, 0, 0, 0, 1, 0, 0, 0, 0xb7, 0, 0, 0, 1, 0, 0, 0];
    let start = [0xb7, 0, 0, 0, 9, 0, 0, 0, 0x15, 1, 1, 0, 0, 0, 0, 0];
    let program = [&start[..], &far, &[0x95, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(run_on_words(&program, &[5]), Outcome::Returned(9));
    assert_eq!(run_on_words(&program, &[0]), Outcome::Returned(1));
}

#[test]
fn calls_get_their_arguments_and_keep_r6_to_r9() {
    let mut builder = Builder::new();
    for kept in 6..10 {
        let kept = Register::new(kept).expect("there are eleven");
        builder.set(kept, kept.index() as u64);
    }
    builder.call(3).compute(Operation::Move, Register::R1, R0);
    for kept in 6..10 {
        let kept = Register::new(kept).expect("there are eleven");
        builder.compute(Operation::Multiply, R1, 10).compute(Operation::Add, R1, kept);
    }
    builder.compute(Operation::Move, R2, R0).call(1);
    let program = builder.exit().finish().expect("no labels");
    // Interpreter and compiled code are compared there; the answer depends on every argument.
    let one = run_on_words(&program, &[1, 2, 3, 4, 5]);
    assert!(matches!(one, Outcome::Returned(_)));
    for position in 0..5 {
        let mut words = [1, 2, 3, 4, 5];
        words[position] = 9;
        assert_ne!(run_on_words(&program, &words), one, "argument {position}");
    }
}
