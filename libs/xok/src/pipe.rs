//! A pipe in a page that two programs share; who must wait yields to the other end, by name.
//!
//! The pipe itself, and why no byte is lost or early in it, is `lockfree::pipe`. No call carries
//! data, and none but `Yield` is made (aegis95 S40). The other end is not trusted. If it has died,
//! reading ends, and writing is refused.
//!
//! # Safety
//! The page is reached through atomics alone, and its end of the pipe is whoever made it's promise
//! (see [`Writer::at`]).
#![allow(unsafe_code)]

use crate::call;
use abi::error::Error;
use abi::id::EnvId;
use core::sync::atomic::{AtomicU8, AtomicU64};
use lockfree::pipe::{self, Pipe};

pub use lockfree::pipe::Broken;

/// Bytes that are in the pipe at most.
pub const RING: usize = 2048;

type Page = Pipe<AtomicU64, AtomicU8, RING>;

const _: () = assert!(size_of::<Page>() == 4096);

/// The end that is written to.
#[derive(Debug)]
pub struct Writer {
    end: pipe::Writer<&'static Page>,
    reader: EnvId,
}

/// The end that is read from.
#[derive(Debug)]
pub struct Reader {
    end: pipe::Reader<&'static Page>,
    writer: EnvId,
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
        Writer { end: pipe::Writer::new(unsafe { &*(address as *const Page) }), reader }
    }

    /// Writes all of it.
    #[inline(never)]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.write_inlined(bytes)
    }

    /// The same as part of the caller: the paper's pipe′.
    #[inline(always)]
    pub fn write_inlined(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.end.write(bytes, || yield_to(self.reader))
    }
}

impl Reader {
    /// The reading end of the pipe in the page at `address`, which `writer` has, too.
    ///
    /// # Safety
    /// As for [`Writer::at`].
    pub unsafe fn at(address: u64, writer: EnvId) -> Reader {
        // SAFETY: as there.
        Reader { end: pipe::Reader::new(unsafe { &*(address as *const Page) }), writer }
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
        self.end.read(into, || yield_to(self.writer))
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
