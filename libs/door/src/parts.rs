//! Putting the program's own functions in the place of ExOS's.
//!
//! # Safety
//! Holds the `syscall` instruction, for calls that Linux has not: ExOS notes their words, no more.
#![allow(unsafe_code)]

use crate::{Methods, number};
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

/// Reads or writes for a descriptor: the data word, the bytes.
pub type Transfer = extern "C" fn(u64, *mut u8, usize) -> i64;
/// Closes a descriptor: the data word.
pub type Close = extern "C" fn(u64) -> i64;
/// Handles a fault: the data word, the address, the processor's error code (bit 0: the page was
/// there, 1: a store, 4: an instruction). The instruction runs again when it returns.
pub type Handler = extern "C" fn(u64, u64, u64);
/// Gives the processor away: the data word. What `sched_yield` answers.
pub type Yield = extern "C" fn(u64) -> i64;

/// What a descriptor does; see [`Methods`].
#[derive(Clone, Copy, Debug, Default)]
pub struct File<'a> {
    /// read(2)
    pub read: Option<Transfer>,
    /// write(2)
    pub write: Option<Transfer>,
    /// close(2) of the last descriptor
    pub close: Option<Close>,
    /// The `POLL…` bits that hold now.
    pub ready: Option<&'a AtomicU64>,
}

impl File<'static> {
    /// A descriptor that does this, with `O_…` flags; `data` is what its functions are told.
    pub fn open(&self, data: u64, flags: u32) -> Result<i32, i32> {
        let methods = Methods {
            read: self.read.map_or(0, |function| function as usize as u64),
            write: self.write.map_or(0, |function| function as usize as u64),
            close: self.close.map_or(0, |function| function as usize as u64),
            ready: self.ready.map_or(0, |word| word.as_ptr() as u64),
        };
        let words = [&raw const methods as u64, data, flags.into(), 0];
        exos(number::FILE, words).map(|fd| fd as i32)
    }
}

/// From now on `handler` handles page faults in these pages, also those of system calls. Pages that
/// are there make no fault: reserve the range (mmap(2), `PROT_NONE`).
pub fn handle_faults(pages: Range<u64>, handler: Handler, data: u64) -> Result<(), i32> {
    let bytes = pages.end.saturating_sub(pages.start);
    exos(number::FAULTS, [pages.start, bytes, handler as usize as u64, data]).map(drop)
}

/// ExOS handles faults from `start` on again.
pub fn leave_faults(start: u64) -> Result<(), i32> {
    exos(number::FAULTS, [start, 0, 0, 0]).map(drop)
}

/// From now on `sched_yield` does what `function` does; `None`: what it always did.
pub fn yield_by(function: Option<Yield>, data: u64) -> Result<(), i32> {
    let function = function.map_or(0, |function| function as usize as u64);
    exos(number::YIELD, [function, data, 0, 0]).map(drop)
}

/// A call of ExOS's own; an error is its number.
fn exos(number: u64, words: [u64; 4]) -> Result<u64, i32> {
    let answer: i64;
    // SAFETY: see the file's head; as Linux's calls it changes rax, rcx and r11 alone.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as i64 => answer,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2], in("r10") words[3],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    u64::try_from(answer).map_err(|_| -answer as i32)
}
