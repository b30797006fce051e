//! A pipe in a page that two programs share; who must wait yields to the other end, by name.
//!
//! ```text
//!  byte 0     bytes written since the beginning, stored by the writer alone
//!  byte 64    bytes read, stored by the reader alone
//!  byte 2048  the ring
//! ```
//! No call carries data, and none but `Yield` is made (aegis95 S40). The other end is not trusted:
//! each keeps its own position to itself, and a word that cannot be so is an error. If the other
//! end has died, reading ends, and writing is refused.
//!
//! # Safety
//! The page is reached through atomics alone, and its end of the pipe is whoever made it's promise
//! (see [`Writer::at`]).
#![allow(unsafe_code)]

use crate::call;
use abi::error::Error;
use abi::id::EnvId;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes that are in the pipe at most.
pub const RING: usize = 2048;

/// Why a pipe can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The reader has died.
    NoReader,
    /// What the other end says of its position cannot be.
    Garbage,
}

/// The page.
#[repr(C, align(4096))]
struct Page {
    written: AtomicU64,
    apart: [u64; 7],
    read: AtomicU64,
    further: [u64; 247],
    ring: [AtomicU8; RING],
}

const _: () = assert!(size_of::<Page>() == 4096);

/// The end that is written to.
#[derive(Debug)]
pub struct Writer {
    page: &'static Page,
    reader: EnvId,
    written: u64,
}

/// The end that is read from.
#[derive(Debug)]
pub struct Reader {
    page: &'static Page,
    writer: EnvId,
    read: u64,
}

impl core::fmt::Debug for Page {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let place = |word: &AtomicU64| word.load(Ordering::Relaxed);
        write!(f, "written {}, read {}", place(&self.written), place(&self.read))
    }
}

/// Gives the processor to the other end; is it still there?
#[inline(always)]
fn yield_to(partner: EnvId) -> bool {
    match call::yield_to(partner) {
        Ok(_) => true,
        // It sleeps, or is held: then whoever is next.
        Err((Error::WrongState, _)) => call::yield_to(EnvId::NONE).is_ok(),
        Err(_) => false,
    }
}

impl Writer {
    /// The writing end of the pipe in the page at `address`, which `reader` has, too.
    ///
    /// # Safety
    /// The page is mapped there, writable, as long as this program runs; it was all zeros when the
    /// pipe began, and this program uses it as this end alone.
    pub unsafe fn at(address: u64, reader: EnvId) -> Writer {
        // SAFETY: the caller's promise; a Page is atomics and bytes that nobody touches.
        Writer { page: unsafe { &*(address as *const Page) }, reader, written: 0 }
    }

    /// Writes all of it.
    #[inline(never)]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.write_inlined(bytes)
    }

    /// The same as part of the caller: the paper's pipe′.
    #[inline(always)]
    pub fn write_inlined(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = self.page.read.load(Ordering::Acquire);
            let filled = self.written.wrapping_sub(read);
            if filled > RING as u64 {
                return Err(Broken::Garbage);
            }
            let room = (RING - filled as usize).min(rest.len());
            if room == 0 {
                if !yield_to(self.reader) {
                    return Err(Broken::NoReader);
                }
                continue;
            }
            for (at, byte) in (self.written as usize..).zip(&rest[..room]) {
                self.page.ring[at % RING].store(*byte, Ordering::Relaxed);
            }
            self.written = self.written.wrapping_add(room as u64);
            self.page.written.store(self.written, Ordering::Release);
            rest = &rest[room..];
        }
        Ok(())
    }
}

impl Reader {
    /// The reading end of the pipe in the page at `address`, which `writer` has, too.
    ///
    /// # Safety
    /// As for [`Writer::at`].
    pub unsafe fn at(address: u64, writer: EnvId) -> Reader {
        // SAFETY: as there.
        Reader { page: unsafe { &*(address as *const Page) }, writer, read: 0 }
    }

    /// Reads what there is, at most as much as fits, and waits for a first byte; 0: the writer has
    /// died, and there is no more.
    #[inline(never)]
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        self.read_inlined(into)
    }

    /// The same as part of the caller: the paper's pipe′.
    #[inline(always)]
    pub fn read_inlined(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        let mut alive = true;
        loop {
            let filled = self.page.written.load(Ordering::Acquire).wrapping_sub(self.read);
            if filled > RING as u64 {
                return Err(Broken::Garbage);
            }
            let count = into.len().min(filled as usize);
            if count == 0 && !into.is_empty() && alive {
                // What it wrote last is there to be read after its death.
                alive = yield_to(self.writer);
                continue;
            }
            for (at, byte) in (self.read as usize..).zip(&mut into[..count]) {
                *byte = self.page.ring[at % RING].load(Ordering::Relaxed);
            }
            self.read = self.read.wrapping_add(count as u64);
            self.page.read.store(self.read, Ordering::Release);
            return Ok(count);
        }
    }

    /// Reads until `into` is full; `false`: the writer has died before.
    #[inline(always)]
    pub fn read_all_inlined(&mut self, into: &mut [u8]) -> Result<bool, Broken> {
        let mut done = 0;
        while done < into.len() {
            match self.read_inlined(&mut into[done..])? {
                0 => return Ok(false),
                count => done += count,
            }
        }
        Ok(true)
    }
}
