//! Return addresses from the stack, for last words.
//!
//! The kernel keeps no frame pointers, so every word of the stack counts that lies behind a `call`
//! in the kernel's code. All functions that have not returned are among them, innermost first; one
//! that has returned may be, too, if nothing has been stored in its place since.
//!
//! # Safety
//! Reads a processor's own stack, up to its end, or the boot stack, up to the end of the page; no
//! other address, as what has gone wrong may be the stack pointer. And reads the kernel's code.
#![allow(unsafe_code)]

use crate::cpu::Cpu;
use abi::layout::PAGE_SIZE;

/// Addresses printed at most.
const LINES: usize = 16;
/// Bytes of the longest `call` that is looked for.
const LONGEST: usize = 6;

/// Prints what lies on the stack from this address on.
pub fn print(stack: u64) {
    let end = match Cpu::stack_end(stack) {
        Some(end) => end,
        None if Cpu::has_area() => return,
        None => (stack | (PAGE_SIZE - 1)) + 1,
    };
    let words = (stack.next_multiple_of(8)..end).step_by(8);
    // SAFETY: see the file's head.
    let words = words.map(|at| unsafe { (at as *const u64).read_volatile() });
    for address in words.filter(|&word| is_behind_a_call(word)).take(LINES) {
        crate::log::unlocked_line(format_args!("  called from {address:#x}"));
    }
}

/// Is this the address of an instruction of the kernel's behind a `call`?
fn is_behind_a_call(address: u64) -> bool {
    let (first, end) = crate::paging::text();
    if !(first + LONGEST as u64..end).contains(&address) {
        return false;
    }
    // SAFETY: see the file's head.
    let code = unsafe { ((address - LONGEST as u64) as *const [u8; LONGEST]).read_unaligned() };
    // `call rel32` is e8 and four bytes; `call r/m64` is ff /2 with none, one, two or four behind.
    let [a, b, c, d, e, f] = code;
    let indirect = |opcode: u8, operand: u8| opcode == 0xff && operand & 0x38 == 0x10;
    b == 0xe8 || indirect(a, b) || indirect(d, e) || indirect(e, f) || indirect(c, d)
}
