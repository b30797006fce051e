//! Which `syscall` instructions of a program can become jumps, and the bytes that make them so.
//!
//! Pure: file and addresses in, patches out. Decision 3 says why jumps, and why in these two forms:
//! no address that was an instruction stops being one, and nothing is written to the stack.
//!
//! ```text
//!  form 1                               stub, 32 bytes, one for each site
//!    at        mov eax, 39  ► jmp stub    slot + 16 - n   the displaced instruction, n bytes
//!    syscall   syscall        (stays)     slot + 16       lea rcx, [behind the syscall]
//!    behind    …                          slot + 23       jmp gs:[entry]
//!                                         slot + 31       n, never executed
//!  form 2
//!    syscall   syscall      ► jmp padding
//!    padding   nop or int3  ► jmp slot + 16     (n = 0)
//! ```
//! Neighbours: `object` finds functions, `sites` decodes them, `stub` writes and reads the bytes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod object;
mod pclntab;
mod sites;
mod stub;
mod symbols;
mod unwind;

pub use object::{Function, Object};
pub use sites::{Form, Found, Site, sites};
pub use stub::{Patch, STUB_BYTES, aimed_at, original};

/// Bytes of a page: what is rewritten at a time.
pub const PAGE_SIZE: u64 = 4096;
/// Bytes of a `syscall` instruction.
pub const SYSCALL_BYTES: u64 = 2;

#[cfg(test)]
mod tests;
