//! The door of ExOS: a Linux program under it makes kernel calls, and replaces parts of ExOS.
//!
//! Why it is as it is: decision 0029.
//! ```text
//!  program ── Door::make ──► ExOS's text: syscall ──► kernel          `call`
//!     │
//!     └── syscall, a number that Linux has not ──► ExOS: "from now on ask me"     `parts`
//!            its functions ◄── on its stack, like a signal handler ──┘
//! ```
//! What both sides agree on stands here. A program links the crate; nothing else is needed,
//! neither privilege nor another ExOS. On Linux the door is not there: [`Door::find`] says so, and
//! the calls answer ENOSYS.
#![no_std]
#![deny(unsafe_code)]

pub mod call;
pub mod parts;

pub use call::Door;

/// Type of the entry of the auxiliary vector (getauxval(3)) whose value is the address of ExOS's
/// stub for kernel calls: `call` it with the registers of the call. `XOK` and a number; Linux's own
/// are below 100.
pub const AUXILIARY: u64 = 0x584f_4b01;

/// Numbers of ExOS's own calls, made like Linux's. They lie where Linux will have none.
pub mod number {
    /// (address of [`Methods`](super::Methods), data word, `O_…` flags): a descriptor.
    pub const FILE: u64 = 0x584f_4b01;
    /// (start, bytes, function, data word): who handles page faults in these pages; function 0:
    /// ExOS again.
    pub const FAULTS: u64 = 0x584f_4b02;
    /// (function, data word): what `sched_yield` does; 0: what it always did.
    pub const YIELD: u64 = 0x584f_4b03;
}

/// What a descriptor of the program's own does. Functions are called as in C (System V), on the
/// stack of the thread that made the call, with the data word first, and answer as system calls
/// do: a count, or a negative error. 0 instead of an address: EINVAL for `read` and `write`,
/// nothing for `close`, always ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Methods {
    /// `fn(data, address, bytes)`: read(2), and readv(2) of the first piece.
    pub read: u64,
    /// `fn(data, address, bytes)`: write(2), and writev(2) of the first piece.
    pub write: u64,
    /// `fn(data)`: what close(2) of the last descriptor answers.
    pub close: u64,
    /// Address of a 64-bit word, the `POLL…` bits that hold now: no function, as it is the kernel
    /// that looks at it for who sleeps in poll(2).
    pub ready: u64,
}

/// Ranges of faults that a process may have.
pub const FAULT_RANGES: usize = 16;
