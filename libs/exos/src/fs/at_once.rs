//! The shortest way of reading and writing: a pipe, one step along its ring, nothing else.
//!
//! Whoever has nothing to wait for, to signal or to find out is answered here. `None` says that
//! nothing has happened; the general way (`table`) then does all of it.

use abi::limits::REGION_COPY_BYTES;
use abi::region::WordAt;
use linux_raw_sys::general::{__NR_read, __NR_write};
use unix::ring::{HEAD, TAIL};
use xok::upcall::Slot;

use super::description::Description;
use super::open_file::OpenFile;
use super::pipe::{LIMIT, Level, Pipe, RING, WRITER};
use super::region::Transfer;
use crate::process::Process;
use crate::user;
use crate::wait::direct;

/// Is it a call that may be done here?
#[inline(always)]
pub fn is_for(slot: &Slot) -> bool {
    const { assert!(__NR_read == 0 && __NR_write == 1) }
    slot.rax <= u64::from(__NR_write)
}

/// `read` and `write` of a pipe, for calls that [`is_for`] takes.
#[inline(always)]
pub fn read_or_write(process: &Process, slot: &Slot) -> Option<u64> {
    let (memory, fd) = ((slot.rsi, slot.rdx), slot.rdi as i32);
    if process.files.watches {
        return None;
    }
    let description = process.files.seen(fd)?;
    let OpenFile::Pipe(pipe) = &description.file else { return None };
    if memory.1 == 0 || !user::in_program(memory.0, memory.1) {
        return None;
    }
    if slot.rax == u64::from(__NR_read) {
        description.readable().then(|| pipe.read_at_once(process, description, memory))?
    } else {
        description.writable().then(|| pipe.write_at_once(description, memory))?
    }
}

impl Pipe {
    /// Writes by one step, if all fits in as far as is known, in one piece, and somebody reads;
    /// `None`: find out more ([`Pipe::write`]).
    #[inline(always)]
    fn write_at_once(&self, description: &Description, (address, len): (u64, u64)) -> Option<u64> {
        let level = description.level.get();
        let span = RING.span(level.head, len);
        if level.room() < len || span.len < len || self.no_reader() {
            return None;
        }
        let transfer = Transfer {
            into: true,
            offset: span.offset,
            address,
            len,
            moves: WordAt { offset: HEAD, value: level.head },
            beside: WordAt { offset: LIMIT, value: level.limit },
            beside_counts: true,
        };
        self.writer().transfer(&transfer).ok()?;
        description.level.set(Level { head: level.head + len, ..level });
        Some(len)
    }

    /// Reads by one step what is known to be there; if nothing is, bets on the length, and waits
    /// in that step while there is nothing. `None`: find out more ([`Pipe::read`]).
    #[inline(always)]
    fn read_at_once(
        &self,
        process: &Process,
        description: &Description,
        (address, left): (u64, u64),
    ) -> Option<u64> {
        let level = description.level.get();
        let known = RING.used(level.head, level.tail);
        let len = if known > 0 { left.min(known) } else { left };
        let span = RING.span(level.tail, len);
        if span.len < len || len > REGION_COPY_BYTES as u64 {
            return None;
        }
        let head = if known > 0 { level.head } else { level.tail + len };
        let transfer = Transfer {
            into: false,
            offset: span.offset,
            address,
            len,
            moves: WordAt { offset: TAIL, value: level.tail },
            beside: WordAt { offset: HEAD, value: head },
            beside_counts: known < left,
        };
        let reader = self.reader();
        if known > 0 {
            reader.transfer(&transfer).ok()?;
        } else {
            let ended_by = direct(process).filter(|_| !description.nonblocking())?;
            reader.transfer_or_wait(&transfer, WRITER, ended_by).ok()?;
        }
        description.level.set(Level { head, tail: level.tail + len, ..level });
        Some(len)
    }
}
