//! Bytes of a connection: written and read in pieces, copied once each way.

use abi::limits::REGION_COPY_BYTES;
use abi::region::{COPY_IN, COPY_OUT};
use linux_raw_sys::general::SIGPIPE;
use linux_raw_sys::net as raw;
use unix::Errno;
use unix::local::ENDED;
use unix::ring::{HEAD, TAIL};

use super::UnixSocket;
use super::connection::End;
use crate::fs::open_file::CHUNK;
use crate::fs::transfer::Memory;
use crate::process::Process;
use crate::wait::{Wait, sleep_until};

impl UnixSocket {
    /// Sends all of `memory`, as far as there is room if it must not wait.
    pub(super) fn send_bytes(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        let end = self.end(Errno::ENOTCONN)?;
        let mut done = 0;
        loop {
            match put_piece(&end, memory, false) {
                Ok(Some(0)) if memory.left() == 0 => return Ok(done),
                Ok(Some(0)) => {}
                Ok(put) => {
                    done += put.unwrap_or(0);
                    continue;
                }
                Err(_) if done > 0 => return Ok(done),
                Err(Errno::EPIPE) => {
                    if flags & raw::MSG_NOSIGNAL == 0 {
                        process.raise(SIGPIPE);
                    }
                    return Err(Errno::EPIPE);
                }
                Err(errno) => return Err(errno),
            }
            if nonblocking {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            let channel = end.written();
            let half = channel.half()?;
            if half.ended || channel.ring.free(half.head, half.tail) > 0 {
                continue;
            }
            let mut wait = Wait::new();
            channel.read_terms(&half, &mut wait);
            channel.ended_terms(&mut wait);
            end.alone_terms(&mut wait);
            match sleep_until(process, &wait, 0) {
                Err(_) if done > 0 => return Ok(done),
                other => drop(other?),
            }
        }
    }

    /// Receives what there is.
    pub(super) fn receive_bytes(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        let end = self.end(Errno::EINVAL)?;
        let peeks = flags & raw::MSG_PEEK != 0;
        let all = flags & raw::MSG_WAITALL != 0 && !peeks;
        let mut done = 0;
        loop {
            // Looked at first: what the other end wrote before it left must still be seen.
            let alone = end.is_alone();
            match take_piece(&end, memory, if peeks { Some(done) } else { None }) {
                Ok(Some(0)) => {}
                Ok(Some(taken)) => {
                    done += taken;
                    if memory.left() > 0 {
                        continue;
                    }
                    return Ok(done);
                }
                Ok(None) => continue,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
            if done > 0 && (!all || nonblocking) || memory.left() == 0 {
                return Ok(done);
            }
            if alone && done == 0 && self.is_reset()? {
                self.told.set(true);
                return Err(Errno::ECONNRESET);
            }
            let channel = end.read();
            let half = channel.half()?;
            if half.head != half.tail && !peeks {
                continue;
            }
            if alone || half.ended {
                return Ok(done);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            let mut wait = Wait::new();
            channel.filled_terms(&mut wait);
            channel.ended_terms(&mut wait);
            end.alone_terms(&mut wait);
            match sleep_until(process, &wait, 0) {
                Err(_) if done > 0 => return Ok(done),
                other => drop(other?),
            }
        }
    }
}

/// Puts in what fits in one piece; 0: nothing does. `None`: another process wrote meanwhile. The
/// other end has to be there, unless it is one that `comes` later.
pub fn put_piece(end: &End, memory: &mut Memory<'_>, comes: bool) -> Result<Option<u64>, Errno> {
    let channel = end.written();
    let half = channel.half()?;
    if half.ended || !comes && end.is_alone() {
        return Err(Errno::EPIPE);
    }
    let room = channel.ring.free(half.head, half.tail);
    let span = channel.ring.span(half.head, room.min(memory.left()).min(REGION_COPY_BYTES as u64));
    if span.len == 0 {
        return Ok(Some(0));
    }
    let compare = [channel.word(HEAD, half.head), channel.word(ENDED, 0)];
    let mut buffer = [0; CHUNK];
    let (address, len) = match memory.in_one_piece(span.len, false) {
        Some(address) => (address, span.len),
        None => {
            let want = span.len.min(CHUNK as u64) as usize;
            let count = memory.peek(&mut buffer[..want])?;
            (buffer.as_ptr() as u64, count as u64)
        }
    };
    let write = [channel.word(HEAD, half.head + len)];
    let part = (address, len);
    let done = channel.region.copy_memory_if(COPY_IN, span.offset, part, &compare, &write)?;
    if done.is_err() {
        return Ok(None);
    }
    memory.advance(len);
    Ok(Some(len))
}

/// Takes what lies in one piece, or only looks `peeked` bytes behind the first. 0: nothing is
/// there; `None`: somebody else took it.
pub fn take_piece(
    end: &End,
    memory: &mut Memory<'_>,
    peeked: Option<u64>,
) -> Result<Option<u64>, Errno> {
    let channel = end.read();
    let half = channel.half()?;
    let used = channel.used(&half).saturating_sub(peeked.unwrap_or(0));
    let position = half.tail + peeked.unwrap_or(0);
    let span = channel.ring.span(position, used.min(memory.left()).min(REGION_COPY_BYTES as u64));
    if span.len == 0 {
        return Ok(Some(0));
    }
    let mut buffer = [0; CHUNK];
    let direct = memory.in_one_piece(span.len, true);
    let (address, len) = match direct {
        Some(address) => (address, span.len),
        None => (buffer.as_mut_ptr() as u64, span.len.min(CHUNK as u64)),
    };
    let compare = [channel.word(TAIL, half.tail)];
    let write = [channel.word(TAIL, half.tail + len)];
    let write = if peeked.is_some() { &[][..] } else { &write[..] };
    let part = (address, len);
    let done = channel.region.copy_memory_if(COPY_OUT, span.offset, part, &compare, write)?;
    if done.is_err() {
        return Ok(None);
    }
    match direct {
        Some(_) => memory.advance(len),
        None => drop(memory.put(&buffer[..len as usize])?),
    }
    Ok(Some(len))
}
