//! Pipes: a fifo of the kernel's, roles 0 writer and 1 reader (xok97 EX-8).
//!
//! ```text
//!  0 head  8 tail (unix::ring)  16 unused
//! 24 writers  32 readers that ever opened it by name   40 limit, less than the whole ring
//! 4096 data: 65,536 bytes, as a pipe of Linux's holds
//! ```
//! Each piece goes in or out by one step, which wraps around at the ring's end: the kernel lets a
//! writer put in alone, and a reader take out (`abi::region::FIFO`), so that processes of different
//! users share a pipe. End of file and a broken pipe are the published counts of attachments, which
//! the kernel keeps whatever dies.

use abi::id::RegionId;
use abi::layout::PAGE_SIZE;
use abi::limits::{REGION_COPY_BYTES, REGION_FRAMES};
use abi::predicate::Operator;
use abi::region::WordAt;
use alloc::vec::Vec;
use core::cell::Cell;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::ring::{HEAD, PIPE_BUF, Ring, TAIL, writable};

use super::description::Description;
use super::region::{self, Done, Heritage, Missed, Region, Transfer};
use super::transfer::Memory;
use super::whose::Whose;
use crate::process::Process;
use crate::wait::{Interrupts, Wait, direct, look, sleep_until};

/// Role of those who write.
pub const WRITER: u16 = 0;
/// Role of those who read.
pub const READER: u16 = 1;
/// The ring.
pub const RING: Ring = Ring { data: 4096, capacity: (REGION_FRAMES as u64 - 1) * 4096 };
/// Offset of the count of opens by name in a role.
const fn opened(role: u16) -> u64 {
    24 + 8 * role as u64
}
/// Offset of the limit (`F_SETPIPE_SZ`), 0: the whole ring.
pub(super) const LIMIT: u64 = 40;
/// Bytes moved at a time.
const CHUNK: usize = PIPE_BUF as usize;

/// What one look at the ring brought a reader.
enum Took {
    /// So many bytes; was there memory for all that were taken?
    Bytes {
        /// How many.
        put: u64,
        /// Was there?
        all: bool,
    },
    /// None yet: the ring has moved, look again.
    Again,
    /// None: it is empty.
    Nothing,
    /// None: the wait ended as a signal or an event has come.
    Told,
    /// None: it is empty, and there is no memory for what may come.
    NoMemory,
    /// None: what its words say cannot be. For who reads that is the end (xok97 EX-17).
    Nonsense,
}

/// Where a piece lies on its way to memory that is not in one piece: on the heap, and only then.
#[derive(Default)]
struct Piece(Vec<u8>);

impl Piece {
    fn address(&mut self) -> u64 {
        self.0.resize(CHUNK, 0);
        self.0.as_mut_ptr() as u64
    }

    fn bytes(&self, len: u64) -> &[u8] {
        &self.0[..len as usize]
    }
}

/// An end of a pipe, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// The region.
    pub region: RegionId,
    /// Is it the end that reads?
    pub reads: bool,
    /// Is it the end that writes?
    pub writes: bool,
    /// Whose it is.
    pub whose: Cell<Whose>,
}

/// How full a pipe is. The default has room for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Bytes ever written.
    pub head: u64,
    /// Bytes ever read.
    pub(super) tail: u64,
    /// The limit word.
    pub(super) limit: u64,
    /// Bytes that it holds at most.
    pub capacity: u64,
}

impl Level {
    /// A pipe's that nothing is known of yet.
    pub const EMPTY: Self = Self { head: 0, tail: 0, limit: 0, capacity: RING.capacity };

    /// Bytes that may be written.
    #[inline]
    pub fn room(&self) -> u64 {
        self.capacity.saturating_sub(RING.used(self.head, self.tail))
    }
}

/// Makes a pipe of this user and group; the domain is attached to both ends.
pub fn make(ids: [u32; 2]) -> Result<(Pipe, Pipe), Errno> {
    let id = region::make_fifo()?;
    let whose = Whose::of(ids);
    let reader = Pipe::new(id, (true, false), whose);
    let writer = Pipe::new(id, (false, true), whose);
    reader.reader().attach()?;
    writer.writer().attach()?;
    Ok((reader, writer))
}

impl Pipe {
    /// An end of the pipe in this region: does it read, and write?
    pub fn new(region: RegionId, (reads, writes): (bool, bool), whose: Whose) -> Self {
        Self { region, reads, writes, whose: Cell::new(whose) }
    }

    /// Another end of it, attached, which reads and writes as asked. The kernel lets who made the
    /// pipe take any, others an end like one that they have.
    pub fn another(&self, reads: bool, writes: bool) -> Result<Self, Errno> {
        let pipe = Self::new(self.region, (reads, writes), self.whose.get());
        let refused = |_| Errno::EACCES;
        if reads {
            pipe.reader().attach().map_err(refused)?;
        }
        if writes && let Err(errno) = pipe.writer().attach() {
            if reads {
                pipe.reader().detach();
            }
            return Err(refused(errno));
        }
        Ok(pipe)
    }

    /// The region, for what a reader does.
    pub fn reader(&self) -> Region {
        Region { id: self.region, role: READER }
    }

    /// The region, for what a writer does.
    pub fn writer(&self) -> Region {
        Region { id: self.region, role: WRITER }
    }

    /// Opens one end of a named pipe: counts the open and waits until the other end is or has been
    /// opened (fifo(7)); not by the attachments, which may come and go before the waiter looks.
    pub fn meet(&self, process: &mut Process, waits: bool) -> Result<(), Errno> {
        let (own, other) = if self.reads { (READER, WRITER) } else { (WRITER, READER) };
        // Before the own open is counted: whoever waits for that is attached until then.
        let seen = self.count(other)?;
        let met = region::attached(self.region, other) > 0;
        loop {
            let count = self.count(own)?;
            let compare = [WordAt { offset: opened(own), value: count }];
            let write = [WordAt { offset: opened(own), value: count.wrapping_add(1) }];
            if self.own().copy_in(0, &[], &compare, &write)? == Done::Yes {
                break;
            }
        }
        if !waits || met {
            return Ok(());
        }
        let mut wait = Wait::new();
        wait.region(self.region, opened(other), Operator::NotEqual, seen).end_term();
        sleep_until(process, &wait, 0)?;
        Ok(())
    }

    fn count(&self, role: u16) -> Result<u64, Errno> {
        let mut word = [0; 8];
        self.own().copy_out(opened(role), &mut word, &[], &[])?;
        Ok(u64::from_le_bytes(word))
    }

    /// Attaches a domain to the ends that this is.
    pub fn attach(&self, heritage: &mut Heritage) -> Result<(), Errno> {
        if self.reads {
            heritage.add(&self.reader())?;
        }
        if self.writes {
            heritage.add(&self.writer())?;
        }
        Ok(())
    }

    /// Gives the attachments back.
    pub fn detach(&self) {
        if self.reads {
            self.reader().detach();
        }
        if self.writes {
            self.writer().detach();
        }
    }

    fn own(&self) -> Region {
        if self.reads { self.reader() } else { self.writer() }
    }

    /// Head and tail.
    pub fn counters(&self) -> Result<(u64, u64), Errno> {
        self.own().pair()
    }

    /// How full it is.
    pub fn level(&self) -> Result<Level, Errno> {
        let mut words = [[0; 8]; 6];
        self.own().copy_out(0, words.as_flattened_mut(), &[], &[])?;
        let [head, tail, _, _, _, limit] = words.map(u64::from_le_bytes);
        let capacity = match limit {
            0 => RING.capacity,
            // Any end stores it: with less than a page short writes would never have room.
            _ => limit.clamp(PAGE_SIZE, RING.capacity),
        };
        Ok(Level { head, tail, limit, capacity })
    }

    /// The same, for who goes by it: an error if its words say what cannot be.
    fn level_that_can_be(&self) -> Result<Level, Errno> {
        let level = self.level()?;
        if RING.can_be(level.head, level.tail) { Ok(level) } else { Err(Errno::EIO) }
    }

    /// Changes how much it holds (`F_SETPIPE_SZ`): a power of two of pages, at most the ring.
    pub fn set_capacity(&self, asked: u64) -> Result<u64, Errno> {
        let size = asked.max(PAGE_SIZE).checked_next_power_of_two().ok_or(Errno::EINVAL)?;
        if size > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        if size > RING.capacity {
            return Err(Errno::EPERM);
        }
        loop {
            let Level { head, tail, limit, .. } = self.level()?;
            if RING.used(head, tail) > size {
                return Err(Errno::EBUSY);
            }
            let seen = [(HEAD, head), (TAIL, tail), (LIMIT, limit)]
                .map(|(offset, value)| WordAt { offset, value });
            let write = [WordAt { offset: LIMIT, value: size }];
            if self.own().copy_in(0, &[], &seen, &write)? == Done::Yes {
                return Ok(size);
            }
        }
    }

    /// Adds "nobody reads".
    pub fn broken_terms(&self, wait: &mut Wait) {
        let readers = region::attached_address(self.region, READER);
        wait.memory(readers, Operator::Equal, 0).end_term();
    }

    /// Bytes that wait to be read.
    pub fn waiting(&self) -> Result<u64, Errno> {
        let (head, tail) = self.own().pair()?;
        Ok(RING.used(head, tail))
    }

    /// Is there nobody who writes?
    pub fn no_writer(&self) -> bool {
        region::attached(self.region, WRITER) == 0
    }

    /// Is there nobody who reads?
    #[inline(always)]
    pub fn no_reader(&self) -> bool {
        region::attached(self.region, READER) == 0
    }

    /// Reads what there is; waits if there is nothing.
    pub fn read(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Result<u64, Errno> {
        if memory.left() == 0 {
            return Ok(0);
        }
        let mut done = 0;
        let mut memory_is_there = true;
        loop {
            let level = description.level.get();
            let empty = done == 0 && RING.used(level.head, level.tail) == 0;
            let waits = empty && memory_is_there && !description.nonblocking();
            let patience = if waits { direct(process) } else { None };
            // Looked at first: what the last writer wrote before it left must still be seen.
            let ended = patience.is_none() && self.no_writer();
            let took = match self.take(description, memory, patience) {
                // Who has no memory waits all the same: an error is only what comes then.
                Ok(Took::NoMemory) if patience.is_none() => Ok(Took::Nothing),
                other => other,
            };
            match took {
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok(done),
                Ok(Took::Bytes { put, all }) => {
                    done += put;
                    let level = description.level.get();
                    if !all || memory.left() == 0 || RING.used(level.head, level.tail) == 0 {
                        return Ok(done);
                    }
                }
                Ok(Took::Again) => {}
                Ok(Took::Nonsense) => return Ok(done),
                Ok(Took::NoMemory) => memory_is_there = false,
                // Who waited has seen in one step that the ring is empty and nobody writes.
                Ok(Took::Nothing) if done > 0 || ended || patience.is_some() => return Ok(done),
                Ok(Took::Nothing) if description.nonblocking() => return Err(Errno::EAGAIN),
                Ok(Took::Told) => look(process)?,
                Ok(Took::Nothing) => {
                    // The same for every wait, so that it is downloaded once.
                    let mut wait = Wait::new();
                    wait.region_words(self.region, HEAD, Operator::NotEqual, TAIL).end_term();
                    let writers = region::attached_address(self.region, WRITER);
                    wait.memory(writers, Operator::Equal, 0).end_term();
                    sleep_until(process, &wait, 0)?;
                }
            }
        }
    }

    /// Takes by one operation what is asked for, if it is known to be there; else it bets that no
    /// more has come than is known of, or exactly what is asked for if nothing is: then this has
    /// taken it, else the refusal tells where the head is. Who has `patience` waits in that
    /// operation while the ring is empty.
    fn take(
        &self,
        description: &Description,
        memory: &mut Memory<'_>,
        patience: Option<Interrupts>,
    ) -> Result<Took, Errno> {
        let level = description.level.get();
        let known = RING.used(level.head, level.tail);
        let most = if known > 0 { known } else { RING.capacity };
        let left = memory.left();
        let len = most.min(left).min(REGION_COPY_BYTES as u64);
        if let Some((address, there)) = memory.next_piece()
            && there >= len
            && let Some(took) = self.take_to(description, (address, len), left, patience)?
        {
            if let Took::Bytes { put, .. } = took {
                memory.advance(put);
            }
            return Ok(took);
        }
        self.take_by_buffer(description, memory, len, patience)
    }

    /// The same into memory that is not in one piece, or not all there.
    #[inline(never)]
    fn take_by_buffer(
        &self,
        description: &Description,
        memory: &mut Memory<'_>,
        len: u64,
        patience: Option<Interrupts>,
    ) -> Result<Took, Errno> {
        // Bytes that nobody gets must stay.
        let room = memory.room(len.min(CHUNK as u64));
        if room == 0 {
            return if self.waiting()? == 0 { Ok(Took::NoMemory) } else { Err(Errno::EFAULT) };
        }
        let mut buffer = Piece::default();
        let part = (buffer.address(), room);
        match self.take_to(description, part, memory.left(), patience)? {
            Some(Took::Bytes { put, .. }) => {
                let put_there = memory.put(buffer.bytes(put))? as u64;
                Ok(Took::Bytes { put: put_there, all: put_there == put })
            }
            Some(took) => Ok(took),
            None => Err(Errno::EFAULT),
        }
    }

    /// The same into one piece; `None`: that is not all there. `left` bytes are asked for in all.
    #[inline]
    fn take_to(
        &self,
        description: &Description,
        (address, len): (u64, u64),
        left: u64,
        patience: Option<Interrupts>,
    ) -> Result<Option<Took>, Errno> {
        let mut level = description.level.get();
        let tail = level.tail;
        let known = RING.used(level.head, tail);
        // A short read must not leave behind what was written since the last look.
        let head = if known > 0 { level.head } else { tail + len };
        let transfer = Transfer {
            into: false,
            offset: RING.span(tail, len).offset,
            address,
            len,
            moves: WordAt { offset: TAIL, value: tail },
            beside: WordAt { offset: HEAD, value: head },
            beside_counts: known < left,
        };
        let reader = self.reader();
        let tried = match patience {
            Some(ended_by) => reader.transfer_or_wait(&transfer, WRITER, ended_by),
            None => reader.transfer(&transfer),
        };
        match tried {
            Ok(()) => {
                level.head = head;
                level.tail = tail + len;
                description.level.set(level);
                Ok(Some(Took::Bytes { put: len, all: true }))
            }
            Err(Missed::Told) => Ok(Some(Took::Told)),
            Err(Missed::Absent) => Ok(None),
            Err(Missed::Refused(errno)) => Err(errno),
            // The head, or the tail that somebody else moved: then the next look is refused.
            Err(Missed::Found(found))
                if known == 0 && found.wrapping_sub(tail) <= RING.capacity =>
            {
                level.head = found;
                description.level.set(level);
                Ok(Some(if found == tail { Took::Nothing } else { Took::Again }))
            }
            Err(Missed::Found(_)) => {
                let (head, tail) = reader.pair()?;
                if !RING.can_be(head, tail) {
                    return Ok(Some(Took::Nonsense));
                }
                (level.head, level.tail) = (head, tail);
                description.level.set(level);
                let empty = RING.used(level.head, level.tail) == 0;
                Ok(Some(if empty { Took::Nothing } else { Took::Again }))
            }
        }
    }

    /// Adds "there is something to read, or nobody writes".
    pub fn readable_terms(&self, wait: &mut Wait, tail: u64) {
        wait.region(self.region, HEAD, Operator::NotEqual, tail).end_term();
        let writers = region::attached_address(self.region, WRITER);
        wait.memory(writers, Operator::Equal, 0).end_term();
    }

    /// Adds "more was written or read than so much, or the other side has gone" where it had not:
    /// the writers, the readers. That is what the caller has seen: they may go meanwhile.
    pub fn change_terms(&self, wait: &mut Wait, head: u64, tail: u64, were_there: [bool; 2]) {
        let side = |role| region::attached_address(self.region, role);
        if self.reads {
            wait.region(self.region, HEAD, Operator::NotEqual, head).end_term();
            if were_there[0] {
                wait.memory(side(WRITER), Operator::Equal, 0).end_term();
            }
        }
        if self.writes {
            wait.region(self.region, TAIL, Operator::NotEqual, tail).end_term();
            if were_there[1] {
                wait.memory(side(READER), Operator::Equal, 0).end_term();
            }
        }
    }

    /// Adds "there is room for `len` bytes, or it holds more or less than it did, or nobody reads".
    pub fn writable_terms(&self, wait: &mut Wait, level: &Level, len: u64) {
        let enough = (level.head + len.min(PIPE_BUF)).saturating_sub(level.capacity);
        wait.region(self.region, TAIL, Operator::AtLeast, enough).end_term();
        wait.region(self.region, LIMIT, Operator::NotEqual, level.limit).end_term();
        let readers = region::attached_address(self.region, READER);
        wait.memory(readers, Operator::Equal, 0).end_term();
    }

    /// Writes all, waiting for room as often as needed.
    pub fn write(
        &self,
        process: &mut Process,
        description: &Description,
        memory: &mut Memory<'_>,
    ) -> Result<u64, Errno> {
        let total = memory.left();
        let mut done = 0;
        // Was there a look at the ring since something went in, or the wait ended?
        let mut looked = false;
        while done < total {
            if self.no_reader() {
                process.raise(raw::SIGPIPE);
                return if done > 0 { Ok(done) } else { Err(Errno::EPIPE) };
            }
            let mut level = description.level.get();
            // The rest of a long write may go in by pieces, a short one may not.
            let len =
                if total > PIPE_BUF { (total - done).max(PIPE_BUF + 1) } else { total - done };
            if let Some(room) = writable(level.room(), len) {
                match self.put(&level, room.min(total - done), total > PIPE_BUF, memory) {
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => return Ok(done),
                    Ok(0) => level = self.level_that_can_be()?,
                    Ok(put) => {
                        memory.advance(put);
                        level.head += put;
                        done += put;
                    }
                }
                description.level.set(level);
                looked = false;
                continue;
            }
            if !looked {
                description.level.set(self.level_that_can_be()?);
                looked = true;
                continue;
            }
            if description.nonblocking() {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            let mut wait = Wait::new();
            let least = if total > PIPE_BUF { 1 } else { len };
            self.writable_terms(&mut wait, &level, least);
            match sleep_until(process, &wait, 0) {
                Err(_) if done > 0 => return Ok(done),
                other => drop(other?),
            }
            looked = false;
        }
        Ok(done)
    }

    /// Puts the next `want` bytes in, or the first of them if they may go in by `pieces`; how many
    /// went in, 0 if the ring is not as it was at `level`.
    fn put(
        &self,
        level: &Level,
        want: u64,
        pieces: bool,
        memory: &mut Memory<'_>,
    ) -> Result<u64, Errno> {
        let len = want.min(REGION_COPY_BYTES as u64);
        if let Some((address, there)) = memory.next_piece()
            && there >= len
            && let Some(put) = self.put_from(level, (address, len))?
        {
            return Ok(put);
        }
        self.put_by_buffer(level, want, pieces, memory)
    }

    /// The same from one piece; `None`: that is not all there.
    fn put_from(&self, level: &Level, (address, len): (u64, u64)) -> Result<Option<u64>, Errno> {
        let transfer = Transfer {
            into: true,
            offset: RING.span(level.head, len).offset,
            address,
            len,
            moves: WordAt { offset: HEAD, value: level.head },
            beside: WordAt { offset: LIMIT, value: level.limit },
            beside_counts: true,
        };
        match self.writer().transfer(&transfer) {
            Ok(()) => Ok(Some(len)),
            Err(Missed::Refused(errno)) => Err(errno),
            Err(Missed::Absent) => Ok(None),
            Err(Missed::Found(_) | Missed::Told) => Ok(Some(0)),
        }
    }

    /// The same from memory that is not in one piece, or not all there.
    #[inline(never)]
    fn put_by_buffer(
        &self,
        level: &Level,
        want: u64,
        pieces: bool,
        memory: &mut Memory<'_>,
    ) -> Result<u64, Errno> {
        let mut buffer = [0; CHUNK];
        let want = want.min(CHUNK as u64) as usize;
        let count = memory.peek(&mut buffer[..want])?;
        if count < want && !pieces {
            return Err(Errno::EFAULT);
        }
        let put = self.put_from(level, (buffer.as_ptr() as u64, count as u64))?;
        put.ok_or(Errno::EFAULT)
    }
}
