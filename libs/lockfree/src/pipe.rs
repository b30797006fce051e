//! A pipe in memory that two share: bytes go one way, and each position has one who stores it.
//!
//! ```text
//!  byte 0     bytes written since the beginning, stored by the writer alone, after the bytes
//!  byte 64    bytes read, stored by the reader alone, after it has them
//!  byte 2048  the ring: nothing is ordered by its bytes, the positions do that
//! ```
//! The other end is not trusted: each keeps its own position to itself, and a position of the
//! other's that cannot be is an error. Who must wait says so to `wait`, which lets the other end
//! go on and answers whether it is still there.

use abi::atomic::{Atomic, Ordering};

/// Why a pipe can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The reader has died.
    NoReader,
    /// What the other end says of its position cannot be.
    Garbage,
}

/// The memory of a pipe that holds `RING` bytes, a power of two.
#[derive(Debug)]
#[repr(C)]
pub struct Pipe<W, B, const RING: usize> {
    written: W,
    apart: [u64; 7],
    read: W,
    further: [u64; 247],
    ring: [B; RING],
}

/// The end that is written to.
#[derive(Debug)]
pub struct Writer<P> {
    pipe: P,
    written: u64,
}

/// The end that is read from.
#[derive(Debug)]
pub struct Reader<P> {
    pipe: P,
    read: u64,
}

impl<W: Atomic<Value = u64>, B: Atomic<Value = u8>, const RING: usize> Pipe<W, B, RING> {
    /// An empty one, of words and bytes that are 0.
    pub fn new(mut word: impl FnMut() -> W, mut byte: impl FnMut() -> B) -> Self {
        Self {
            written: word(),
            apart: [0; 7],
            read: word(),
            further: [0; 247],
            ring: core::array::from_fn(|_| byte()),
        }
    }
}

impl<P, W: Atomic<Value = u64>, B: Atomic<Value = u8>, const RING: usize> Writer<P>
where
    P: core::ops::Deref<Target = Pipe<W, B, RING>>,
{
    /// The writing end of a pipe that nothing has been written to.
    pub fn new(pipe: P) -> Self {
        Self { pipe, written: 0 }
    }

    /// Writes all of it.
    #[inline(always)]
    pub fn write(&mut self, bytes: &[u8], mut wait: impl FnMut() -> bool) -> Result<(), Broken> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = self.pipe.read.load(Ordering::Acquire);
            let filled = self.written.wrapping_sub(read);
            if filled > RING as u64 {
                return Err(Broken::Garbage);
            }
            let room = (RING - filled as usize).min(rest.len());
            if room == 0 {
                if !wait() {
                    return Err(Broken::NoReader);
                }
                continue;
            }
            for (at, byte) in (self.written as usize..).zip(&rest[..room]) {
                self.pipe.ring[at % RING].store(*byte, Ordering::Relaxed);
            }
            self.written = self.written.wrapping_add(room as u64);
            self.pipe.written.store(self.written, Ordering::Release);
            rest = &rest[room..];
        }
        Ok(())
    }
}

impl<P, W: Atomic<Value = u64>, B: Atomic<Value = u8>, const RING: usize> Reader<P>
where
    P: core::ops::Deref<Target = Pipe<W, B, RING>>,
{
    /// The reading end of a pipe that nothing has been read from.
    pub fn new(pipe: P) -> Self {
        Self { pipe, read: 0 }
    }

    /// Reads what there is, at most as much as fits, and waits for a first byte; 0: the writer has
    /// died, and there is no more.
    #[inline(always)]
    pub fn read(
        &mut self,
        into: &mut [u8],
        mut wait: impl FnMut() -> bool,
    ) -> Result<usize, Broken> {
        let mut alive = true;
        loop {
            let filled = self.pipe.written.load(Ordering::Acquire).wrapping_sub(self.read);
            if filled > RING as u64 {
                return Err(Broken::Garbage);
            }
            let count = into.len().min(filled as usize);
            if count == 0 && !into.is_empty() && alive {
                // What it wrote last is there to be read after its death.
                alive = wait();
                continue;
            }
            for (at, byte) in (self.read as usize..).zip(&mut into[..count]) {
                *byte = self.pipe.ring[at % RING].load(Ordering::Relaxed);
            }
            self.read = self.read.wrapping_add(count as u64);
            self.pipe.read.store(self.read, Ordering::Release);
            return Ok(count);
        }
    }
}
