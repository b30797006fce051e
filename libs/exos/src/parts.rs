//! Parts of ExOS that the program has put its own functions in the place of (decision 0029).
//!
//! ```text
//!  Linux call ──► descriptor of the program's  ─┐
//!                 sched_yield                   ├─► `Function` ──► a frame on the program's stack
//!  page fault ──► range of the program's       ─┘
//! ```
//! A function runs as the program does: nothing is masked, no lock is held, it may make Linux
//! calls, block, be interrupted by a signal. A Linux call that comes to one ends with
//! `errno::CALLED`, and the way out enters it; what it answers, the call answers.

use crate::door as stubs;
use crate::errno::{Answer, CALLED, Errno};
use crate::fs::description::Description;
use crate::fs::open_file::OpenFile;
use crate::fs::poll::{IN_LIKE, OUT_LIKE};
use crate::fs::transfer::Memory;
use crate::process::Process;
use crate::signal::deliver;
use crate::thread;
use crate::user;
use crate::wait::Wait;
use abi::layout::PAGE_SIZE;
use abi::predicate::Operator;
use alloc::vec::Vec;
use core::ops::Range;
use door::{FAULT_RANGES, Methods, number};
use linux_raw_sys::general as raw;
use unix::path::Canonical;
use xok::upcall::Slot;

/// Bytes of a `syscall` instruction.
const SYSCALL_BYTES: u64 = 2;

/// A function of the program's, and what it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub address: u64,
    /// rdi, rsi, rdx.
    pub words: [u64; 3],
}

/// Who handles page faults in some pages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Faults {
    pages: Range<u64>,
    function: u64,
    data: u64,
}

/// What a process does by functions of its own.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    faults: Vec<Faults>,
    yields: Option<Function>,
}

impl Parts {
    /// Who handles a fault at `address`, if it is not ExOS.
    fn handler(&self, address: u64, error: u64) -> Option<Function> {
        let handler = self.faults.iter().find(|one| one.pages.contains(&address))?;
        Some(Function { address: handler.function, words: [handler.data, address, error] })
    }

    /// Does a function of the program's give the processor away?
    pub fn gives_way(&self) -> bool {
        self.yields.is_some()
    }

    fn set_faults(&mut self, pages: Range<u64>, function: u64, data: u64) -> Result<(), Errno> {
        let overlaps = |one: &Faults| one.pages.start < pages.end && pages.start < one.pages.end;
        if function == 0 {
            let at = self.faults.iter().position(|one| one.pages.start == pages.start);
            self.faults.remove(at.ok_or(Errno::ENOENT)?);
        } else if pages.is_empty() {
            return Err(Errno::EINVAL);
        } else if self.faults.iter().any(overlaps) {
            return Err(Errno::EEXIST);
        } else if self.faults.len() >= FAULT_RANGES {
            return Err(Errno::ENOSPC);
        } else {
            self.faults.push(Faults { pages, function, data });
        }
        Ok(())
    }
}

/// ExOS's own calls (`door::number`), if it is one.
#[cold]
pub fn call(process: &mut Process, number: u64, words: [u64; 6]) -> Option<Answer> {
    let [first, second, third, fourth, ..] = words;
    Some(match number {
        number::FILE => open(process, first, second, third as u32),
        number::FAULTS => {
            let end = first.checked_add(second).filter(|_| user::in_program(first, second));
            match end {
                _ if (first | second) % PAGE_SIZE != 0 => Err(Errno::EINVAL),
                Some(end) => process.parts.set_faults(first..end, third, fourth).map(|()| 0),
                None => Err(Errno::EINVAL),
            }
        }
        number::YIELD => {
            let function = Function { address: first, words: [second, 0, 0] };
            process.parts.yields = (first != 0).then_some(function);
            Ok(0)
        }
        _ => return None,
    })
}

/// A descriptor with methods of the program's.
fn open(process: &mut Process, methods: u64, data: u64, flags: u32) -> Answer {
    if flags & !(raw::O_ACCMODE | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let [read, write, close, ready] = user::read_value(methods)?;
    let file = OwnFile { methods: Methods { read, write, close, ready }, data };
    let description = Description::new(OpenFile::Own(file), Canonical::default(), flags, None);
    let limit = process.limit(raw::RLIMIT_NOFILE);
    process.files.enter(description, true, 0, limit)
}

/// A descriptor that the program's functions read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFile {
    methods: Methods,
    data: u64,
}

impl OwnFile {
    /// read(2)
    pub fn read(&self, memory: &mut Memory<'_>) -> Answer {
        self.transfer(self.methods.read, memory)
    }

    /// write(2)
    pub fn write(&self, memory: &mut Memory<'_>) -> Answer {
        self.transfer(self.methods.write, memory)
    }

    fn transfer(&self, address: u64, memory: &mut Memory<'_>) -> Answer {
        // What ExOS moves by itself, sendfile(2) say, is no business of the program's functions.
        let piece = memory.piece().ok_or(Errno::EINVAL)?;
        call_function(Function { address, words: [self.data, piece.0, piece.1] })
    }

    /// What close(2) of the last descriptor answers.
    pub fn close(&self) -> Answer {
        let address = self.methods.close;
        if address == 0 {
            Ok(0)
        } else {
            call_function(Function { address, words: [self.data, 0, 0] })
        }
    }

    /// Which of the events asked for hold; if none, `wait` gets what to wait for.
    pub fn ready(&self, asked: u16, wait: &mut Wait) -> Result<u16, Errno> {
        if self.methods.ready == 0 {
            return Ok((IN_LIKE | OUT_LIKE) & asked);
        }
        let word: u64 = user::read_value(self.methods.ready)?;
        let found = word as u16 & asked;
        if found == 0 {
            wait.memory(self.methods.ready, Operator::NotEqual, word).end_term();
        }
        Ok(found)
    }
}

/// `sched_yield()`
pub fn give_way(process: &mut Process) -> Answer {
    match process.parts.yields {
        Some(function) => call_function(function),
        None => {
            // Nobody else to yield to is no error.
            let _ = xok::call::yield_to(abi::id::EnvId::NONE);
            Ok(0)
        }
    }
}

/// Has the way out of the call enter `function`.
fn call_function(function: Function) -> Answer {
    if function.address == 0 {
        return Err(Errno::EINVAL);
    }
    thread::own().called = Some(function);
    Err(CALLED)
}

/// The way out of a call that a function of the program's answers.
pub fn enter_called(slot: &mut Slot) {
    let function = thread::own().called.take().unwrap_or_default();
    if deliver::enter_function(slot, &function, stubs::answered()).is_err() {
        slot.rax = Errno::EFAULT.to_register();
    }
}

/// A page fault of the program's in a range that it handles itself: has its function run, and then
/// the instruction again. False if it is ExOS's.
pub fn handle_fault(process: &Process, slot: &mut Slot, address: u64) -> bool {
    let Some(function) = process.parts.handler(address, slot.error) else { return false };
    // Without a stack for the frame it is a fault like any other.
    deliver::enter_function(slot, &function, stubs::done()).is_ok()
}

/// Notes a fault in such a range that ends a copy of ours: the call is to be made again.
pub fn note_missed(address: u64, error: u64) {
    thread::own().missed = thread::process().parts.handler(address, error);
}

/// The way out of a call that has answered EFAULT: if it was for want of such a page, has the
/// function run and the call made again. False if the address was just bad.
pub fn handle_missed(slot: &mut Slot, number: u64) -> bool {
    let Some(function) = thread::own().missed.take() else { return false };
    let before = *slot;
    slot.rip = slot.rip.wrapping_sub(SYSCALL_BYTES);
    slot.rax = number;
    let entered = deliver::enter_function(slot, &function, stubs::done()).is_ok();
    if !entered {
        *slot = before;
    }
    entered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_faults_do_not_overlap() {
        let mut parts = Parts::default();
        assert_eq!(parts.set_faults(0x1000..0x3000, 7, 8), Ok(()));
        assert_eq!(parts.set_faults(0x2000..0x4000, 7, 8), Err(Errno::EEXIST));
        assert_eq!(parts.set_faults(0x5000..0x5000, 7, 8), Err(Errno::EINVAL));
        assert_eq!(parts.handler(0x2fff, 2).map(|found| found.words), Some([8, 0x2fff, 2]));
        assert_eq!(parts.handler(0x3000, 2), None);
        assert_eq!(parts.set_faults(0x2000..0x2000, 0, 0), Err(Errno::ENOENT));
        assert_eq!(parts.set_faults(0x1000..0x1000, 0, 0), Ok(()));
        assert_eq!(parts.handler(0x2fff, 2), None);
        for at in 0..FAULT_RANGES as u64 {
            assert_eq!(parts.set_faults(at * 0x1000..(at + 1) * 0x1000, 1, 0), Ok(()));
        }
        assert_eq!(parts.set_faults(0x10_0000..0x10_1000, 1, 0), Err(Errno::ENOSPC));
    }
}
