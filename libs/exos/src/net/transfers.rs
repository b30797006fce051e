//! Sending and receiving.

use alloc::vec;
use core::net::SocketAddrV4;
use linux_raw_sys::general::SIGPIPE;
use linux_raw_sys::net as raw;
use unix::Errno;
use xio::stack::{Error, TcpId, TcpState};

use super::kept::Kind;
use super::socket::{Socket, State};
use super::{errno, tend};
use crate::fs::transfer::Memory;
use crate::process::Process;

/// Bytes moved at a time.
const CHUNK: usize = 4096;
/// Room for any datagram.
pub const DATAGRAM: usize = 2048;

/// What one receive was.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes put into memory.
    pub count: u64,
    /// Bytes there were: more, if a datagram did not fit.
    pub length: u64,
    /// Who sent a datagram.
    pub from: Option<SocketAddrV4>,
}

fn stream_of(state: &State) -> Result<TcpId, Errno> {
    match *state {
        State::Stream(_, id, _) => Ok(id),
        _ => Err(Errno::ENOTCONN),
    }
}

impl Socket {
    /// Receives into `memory`; `flags` are `MSG_…`.
    pub fn receive(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        let nonblocking = nonblocking || flags & raw::MSG_DONTWAIT != 0;
        if !self.stream {
            return self.receive_datagram(process, memory, flags, nonblocking);
        }
        let count = self.receive_stream(process, memory, flags, nonblocking)?;
        Ok(Received { count, length: count, from: None })
    }

    fn receive_stream(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        let peeks = flags & raw::MSG_PEEK != 0;
        let all = flags & raw::MSG_WAITALL != 0 && !peeks;
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        loop {
            tend(process);
            while memory.left() > 0 {
                let want = memory.left().min(CHUNK as u64) as usize;
                let count = match self.take(&mut buffer[..want], peeks) {
                    Ok(Some(count)) => count,
                    Ok(None) => break,
                    Err(_) if done > 0 => return Ok(done),
                    Err(errno) => return Err(errno),
                };
                if count == 0 {
                    self.flush();
                    return Ok(done);
                }
                done += memory.put(&buffer[..count])? as u64;
                if peeks {
                    return Ok(done);
                }
            }
            // The window has opened: the peer is told.
            self.flush();
            if memory.left() == 0 || done > 0 && (!all || nonblocking) {
                return Ok(done);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            match self.sleep(process, false) {
                Err(_) if done > 0 => return Ok(done),
                other => other?,
            }
        }
    }

    /// Takes bytes of a stream; 0: its end; `None`: nothing yet.
    fn take(&self, into: &mut [u8], peeks: bool) -> Result<Option<usize>, Errno> {
        if self.shut.get().0 {
            return Ok(Some(0));
        }
        let told = self.told.get();
        if let Some(kept) = self.kept() {
            if kept.kind != Kind::Stream {
                return Err(Errno::ENOTCONN);
            }
            return match kept.take(into, peeks) {
                Err(_) if self.told.replace(true) => Ok(Some(0)),
                other => other,
            };
        }
        let result = self.operate(|inner, state| {
            let id = stream_of(state)?;
            let stack = &mut inner.network.stack;
            if peeks && let Ok(count @ 1..) = stack.tcp_peek(id, into) {
                return Ok(Some(count));
            }
            let result = if peeks {
                // Nothing can be taken: why?
                stack.tcp_receive(id, &mut [])
            } else {
                stack.tcp_receive(id, into)
            };
            match result {
                Ok(count) => Ok(Some(count)),
                Err(Error::WouldBlock) => Ok(None),
                Err(_) if told => Ok(Some(0)),
                Err(error) => Err(errno(error)),
            }
        });
        if result.is_err() {
            self.told.set(true);
        }
        result
    }

    fn receive_datagram(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        let peeks = flags & raw::MSG_PEEK != 0;
        let mut buffer = vec![0; DATAGRAM];
        loop {
            tend(process);
            let result = match self.kept() {
                Some(kept) => kept.take_datagram(&mut buffer, peeks)?,
                None => self.take_datagram(&mut buffer, peeks)?,
            };
            if let Some((length, from)) = result {
                let fits = length.min(buffer.len());
                let count = memory.put(&buffer[..fits])? as u64;
                return Ok(Received { count, length: length as u64, from: Some(from) });
            }
            if self.shut.get().0 {
                return Ok(Received { count: 0, length: 0, from: None });
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.sleep(process, false)?;
        }
    }

    /// Takes a datagram, or looks at it: its length, and who sent it.
    fn take_datagram(
        &self,
        buffer: &mut [u8],
        peeks: bool,
    ) -> Result<Option<(usize, SocketAddrV4)>, Errno> {
        self.operate(|inner, state| {
            if let State::New(port) = *state {
                *state = self.claim(inner, port)?;
            }
            let State::Datagrams(_, id, peer) = *state else { return Err(Errno::ENOTCONN) };
            let stack = &mut inner.network.stack;
            loop {
                let seen = stack.udp_peek(id, buffer);
                // A connected socket hears its peer alone.
                let others = seen.is_ok_and(|(_, from)| peer.is_some_and(|peer| peer != from));
                if !peeks || others {
                    // It is the one that was seen, if there was one.
                    let _ = stack.udp_receive(id, &mut []);
                }
                match seen {
                    Ok(_) if others => {}
                    Ok(seen) => return Ok(Some(seen)),
                    Err(Error::WouldBlock) => return Ok(None),
                    Err(error) => return Err(errno(error)),
                }
            }
        })
    }

    /// Sends what is in `memory`, to `to` if it is a datagram.
    pub fn send(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        to: Option<SocketAddrV4>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        let nonblocking = nonblocking || flags & raw::MSG_DONTWAIT != 0;
        let result = if self.stream {
            self.send_stream(process, memory, nonblocking)
        } else {
            self.send_datagram(process, memory, to, nonblocking)
        };
        if result == Err(Errno::EPIPE) && flags & raw::MSG_NOSIGNAL == 0 {
            process.raise(SIGPIPE);
        }
        result
    }

    fn send_stream(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        loop {
            tend(process);
            while memory.left() > 0 {
                let count = match memory.peek(&mut buffer) {
                    Ok(count) => count,
                    Err(_) if done > 0 => break,
                    Err(errno) => return Err(errno),
                };
                match self.queue(&buffer[..count]) {
                    Ok(0) => break,
                    Ok(taken) => {
                        memory.advance(taken as u64);
                        done += taken as u64;
                    }
                    Err(_) if done > 0 => {
                        self.flush();
                        return Ok(done);
                    }
                    Err(errno) => return Err(errno),
                }
            }
            self.flush();
            if memory.left() == 0 || done > 0 && nonblocking {
                return Ok(done);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            match self.sleep(process, true) {
                Err(_) if done > 0 => return Ok(done),
                other => other?,
            }
        }
    }

    /// Queues bytes of a stream; 0: there is no room now.
    fn queue(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.shut.get().1 {
            return Err(Errno::EPIPE);
        }
        let told = self.told.get();
        if let Some(kept) = self.kept() {
            return match kept.queue(bytes) {
                _ if kept.kind != Kind::Stream => Err(Errno::EPIPE),
                Err(Errno::EPIPE) => Err(Errno::EPIPE),
                Err(_) if self.told.replace(true) => Err(Errno::EPIPE),
                other => other,
            };
        }
        let result = self.operate(|inner, state| {
            let State::Stream(_, id, _) = *state else { return Err(Errno::EPIPE) };
            match inner.network.stack.tcp_send(id, bytes) {
                Ok(taken) => Ok(taken),
                Err(Error::WouldBlock) => Ok(0),
                Err(Error::NotConnected | Error::NoSuchSocket) => Err(Errno::EPIPE),
                Err(_) if told => Err(Errno::EPIPE),
                Err(error) => Err(errno(error)),
            }
        });
        if result.is_err() {
            self.told.set(true);
        }
        result
    }

    fn send_datagram(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        to: Option<SocketAddrV4>,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        if self.shut.get().1 {
            return Err(Errno::EPIPE);
        }
        let mut buffer = vec![0; DATAGRAM];
        let count = memory.peek(&mut buffer)?;
        if memory.left() > count as u64 {
            return Err(Errno::EMSGSIZE);
        }
        loop {
            tend(process);
            let result = match self.kept() {
                Some(kept) => kept.queue_datagram(&buffer[..count], to),
                None => self.queue_datagram(&buffer[..count], to),
            };
            self.flush();
            match result {
                Err(Errno::EAGAIN) if !nonblocking => self.sleep(process, true)?,
                Err(errno) => return Err(errno),
                Ok(()) => {
                    memory.advance(count as u64);
                    return Ok(count as u64);
                }
            }
        }
    }

    /// Queues a datagram; `EAGAIN`: there is no room.
    fn queue_datagram(&self, bytes: &[u8], to: Option<SocketAddrV4>) -> Result<(), Errno> {
        self.operate(|inner, state| {
            if let State::New(port) = *state {
                *state = self.claim(inner, port)?;
            }
            let State::Datagrams(_, id, peer) = *state else { return Err(Errno::ENOTCONN) };
            let to = to.or(peer).ok_or(Errno::EDESTADDRREQ)?;
            inner.network.stack.udp_send(id, bytes, to).map_err(errno)
        })
    }

    /// Bytes that `read` would give at once (`FIONREAD`).
    pub fn waiting(&self) -> Result<u32, Errno> {
        if let Some(kept) = self.kept() {
            return kept.waiting().map(|count| count as u32);
        }
        let mut buffer = vec![0; super::BUFFER_BYTES];
        self.operate(|inner, state| match *state {
            State::Stream(_, id, _) => {
                let count = inner.network.stack.tcp_peek(id, &mut buffer).unwrap_or(0);
                Ok(count as u32)
            }
            State::Datagrams(_, id, _) => {
                let next = inner.network.stack.udp_peek(id, &mut []);
                Ok(next.map_or(0, |(length, _)| length as u32))
            }
            State::Listening(..) => Err(Errno::EINVAL),
            _ => Ok(0),
        })
    }

    /// Has the connection ended on both sides?
    pub(super) fn is_over(state: Option<TcpState>) -> bool {
        matches!(state, Some(TcpState::Closed | TcpState::TimeWait) | None)
    }
}
