//! What each operation computes: the meaning of RFC 9669, section 4, as plain functions.
//!
//! The interpreter runs by them, the verifier folds known values by them, and the compiled code is
//! compared with them.

use crate::instruction::{Condition, Operation, Order, Size, Width};

/// The result of `destination OPERATION source`.
pub fn compute(width: Width, operation: Operation, destination: u64, source: u64) -> u64 {
    match width {
        Width::W64 => compute_64(operation, destination, source),
        Width::W32 => u64::from(compute_32(operation, destination as u32, source as u32)),
    }
}

fn compute_64(operation: Operation, a: u64, b: u64) -> u64 {
    match operation {
        Operation::Add => a.wrapping_add(b),
        Operation::Subtract => a.wrapping_sub(b),
        Operation::Multiply => a.wrapping_mul(b),
        Operation::Divide => a.checked_div(b).unwrap_or(0),
        Operation::DivideSigned if b == 0 => 0,
        Operation::DivideSigned => (a as i64).wrapping_div(b as i64) as u64,
        Operation::Or => a | b,
        Operation::And => a & b,
        Operation::ShiftLeft => a << (b & 63),
        Operation::ShiftRight => a >> (b & 63),
        Operation::ShiftRightSigned => ((a as i64) >> (b & 63)) as u64,
        Operation::Negate => a.wrapping_neg(),
        Operation::Remainder => a.checked_rem(b).unwrap_or(a),
        Operation::RemainderSigned if b == 0 => a,
        Operation::RemainderSigned => (a as i64).wrapping_rem(b as i64) as u64,
        Operation::Xor => a ^ b,
        Operation::Move => b,
        Operation::MoveSigned8 => b as i8 as u64,
        Operation::MoveSigned16 => b as i16 as u64,
        Operation::MoveSigned32 => b as i32 as u64,
    }
}

fn compute_32(operation: Operation, a: u32, b: u32) -> u32 {
    match operation {
        Operation::Add => a.wrapping_add(b),
        Operation::Subtract => a.wrapping_sub(b),
        Operation::Multiply => a.wrapping_mul(b),
        Operation::Divide => a.checked_div(b).unwrap_or(0),
        Operation::DivideSigned if b == 0 => 0,
        Operation::DivideSigned => (a as i32).wrapping_div(b as i32) as u32,
        Operation::Or => a | b,
        Operation::And => a & b,
        Operation::ShiftLeft => a << (b & 31),
        Operation::ShiftRight => a >> (b & 31),
        Operation::ShiftRightSigned => ((a as i32) >> (b & 31)) as u32,
        Operation::Negate => a.wrapping_neg(),
        Operation::Remainder => a.checked_rem(b).unwrap_or(a),
        Operation::RemainderSigned if b == 0 => a,
        Operation::RemainderSigned => (a as i32).wrapping_rem(b as i32) as u32,
        Operation::Xor => a ^ b,
        Operation::Move | Operation::MoveSigned32 => b,
        Operation::MoveSigned8 => b as i8 as u32,
        Operation::MoveSigned16 => b as i16 as u32,
    }
}

/// The low `bits` of a value in the order asked for, zeros above. A machine whose own order is
/// little-endian is taken for granted, as the compiler does.
pub fn swap(order: Order, bits: u8, value: u64) -> u64 {
    let swapped = order != Order::Little;
    match bits {
        16 => u64::from(if swapped { (value as u16).swap_bytes() } else { value as u16 }),
        32 => u64::from(if swapped { (value as u32).swap_bytes() } else { value as u32 }),
        _ => {
            if swapped {
                value.swap_bytes()
            } else {
                value
            }
        }
    }
}

/// Whether a branch is taken.
pub fn holds(width: Width, condition: Condition, left: u64, right: u64) -> bool {
    let (a, b) = match width {
        Width::W64 => (left, right),
        Width::W32 => (u64::from(left as u32), u64::from(right as u32)),
    };
    let (signed_a, signed_b) = match width {
        Width::W64 => (a as i64, b as i64),
        Width::W32 => (i64::from(a as i32), i64::from(b as i32)),
    };
    match condition {
        Condition::Equal => a == b,
        Condition::NotEqual => a != b,
        Condition::Greater => a > b,
        Condition::GreaterOrEqual => a >= b,
        Condition::Less => a < b,
        Condition::LessOrEqual => a <= b,
        Condition::Common => a & b != 0,
        Condition::GreaterSigned => signed_a > signed_b,
        Condition::GreaterOrEqualSigned => signed_a >= signed_b,
        Condition::LessSigned => signed_a < signed_b,
        Condition::LessOrEqualSigned => signed_a <= signed_b,
    }
}

/// What a load answers for these bytes of memory, of which it needs `size`.
pub fn extend(size: Size, signed: bool, value: u64) -> u64 {
    match (size, signed) {
        (Size::B1, false) => u64::from(value as u8),
        (Size::B2, false) => u64::from(value as u16),
        (Size::B4, false) => u64::from(value as u32),
        (Size::B1, true) => value as i8 as u64,
        (Size::B2, true) => value as i16 as u64,
        (Size::B4, true) => value as i32 as u64,
        (Size::B8, _) => value,
    }
}
