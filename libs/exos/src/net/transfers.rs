//! Sending and receiving.

use alloc::vec;
use core::net::SocketAddrV4;
use linux_raw_sys::general::SIGPIPE;
use linux_raw_sys::net as raw;
use unix::Errno;
use xio::stack::{Error, Stack, TcpId, TcpState, UdpId};

use super::kept::{Kept, Kind};
use super::socket::{Socket, State};
use super::{errno, tend};
use crate::fs::transfer::Memory;
use crate::process::Process;

/// Bytes moved at a time.
const CHUNK: usize = 4096;
/// Room for any datagram.
pub const DATAGRAM: usize = 2048;

/// Takes away what others than its peer have sent to a connected socket: that hears its peer alone,
/// and a datagram of another address cannot be read.
pub fn drop_strangers(stack: &mut Stack, id: UdpId, peer: Option<SocketAddrV4>) {
    let Some(peer) = peer else { return };
    while stack.udp_peek(id, &mut []).is_ok_and(|(_, from)| from != peer) {
        let _ = stack.udp_receive(id, &mut []);
    }
}

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

/// What one look at a stream gave.
#[derive(Clone, Copy)]
struct Taken {
    count: u64,
    /// Shall the peer be told of the room that this has made?
    opens_window: bool,
}

impl Taken {
    const END: Self = Self { count: 0, opens_window: false };
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
        let (mut done, mut tended) = (0, false);
        loop {
            let mut tells = false;
            while memory.left() > 0 {
                let taken = match self.take(memory, peeks) {
                    Ok(Some(taken)) => taken,
                    Ok(None) => break,
                    Err(_) if done > 0 => break,
                    Err(errno) => return Err(errno),
                };
                if taken.count == 0 {
                    self.flush();
                    return Ok(done);
                }
                done += taken.count;
                tells |= taken.opens_window;
                if peeks {
                    return Ok(done);
                }
            }
            if tells {
                self.flush();
            }
            if memory.left() == 0 || done > 0 && (!all || nonblocking) {
                return Ok(done);
            }
            // There may be more by now.
            if !core::mem::replace(&mut tended, true) {
                tend(process);
                continue;
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            match self.sleep(process, false) {
                Err(_) if done > 0 => return Ok(done),
                other => other?,
            }
            tended = false;
        }
    }

    /// Takes bytes of a stream, 0 at its end; `None`: nothing yet.
    fn take(&self, into: &mut Memory<'_>, peeks: bool) -> Result<Option<Taken>, Errno> {
        if self.shut.get().0 {
            return Ok(Some(Taken::END));
        }
        let told = self.told.get();
        let result = match self.kept() {
            Some(kept) if kept.kind != Kind::Stream => return Err(Errno::ENOTCONN),
            None if !peeks => self.take_in_place(into),
            kept => self.take_by_buffer(kept, into, peeks),
        };
        match result {
            // Told once, a failure is the end; that the memory is not there is none.
            Err(errno) if errno != Errno::EFAULT => {
                self.told.set(true);
                if told { Ok(Some(Taken::END)) } else { Err(errno) }
            }
            other => other,
        }
    }

    /// From the stack's own memory to the program's.
    fn take_in_place(&self, into: &mut Memory<'_>) -> Result<Option<Taken>, Errno> {
        self.operate(|inner, state| {
            let id = stream_of(state)?;
            let stack = &mut inner.network.stack;
            // The peer is told at once of a window that was half closed; else by what is sent next.
            let opens_window = stack.tcp_arrived(id) >= super::BUFFER_BYTES / 2;
            let moved = stack.tcp_receive_with(id, |arrived| {
                let most = into.left().min(arrived.len() as u64) as usize;
                let put = into.put(&arrived[..most]);
                (put.unwrap_or(0), put)
            });
            match moved {
                Ok(put) => Ok(Some(Taken { count: put? as u64, opens_window })),
                Err(Error::NotConnected) => Ok(Some(Taken::END)),
                Err(Error::WouldBlock) => Ok(None),
                Err(error) => Err(errno(error)),
            }
        })
    }

    /// By way of a buffer: what is shared, or only looked at.
    fn take_by_buffer(
        &self,
        kept: Option<Kept>,
        into: &mut Memory<'_>,
        peeks: bool,
    ) -> Result<Option<Taken>, Errno> {
        let mut buffer = [0; CHUNK];
        let want = into.left().min(CHUNK as u64) as usize;
        let buffer = &mut buffer[..want];
        let count = match kept {
            Some(kept) => kept.take(buffer, peeks)?,
            None => self.operate(|inner, state| {
                let id = stream_of(state)?;
                let stack = &mut inner.network.stack;
                if let Ok(count @ 1..) = stack.tcp_peek(id, buffer) {
                    return Ok(Some(count));
                }
                // Nothing can be taken: why?
                match stack.tcp_receive(id, &mut []) {
                    Ok(count) => Ok(Some(count)),
                    Err(Error::WouldBlock) => Ok(None),
                    Err(error) => Err(errno(error)),
                }
            })?,
        };
        let Some(count) = count else { return Ok(None) };
        let count = if count > 0 { into.put(&buffer[..count])? as u64 } else { 0 };
        Ok(Some(Taken { count, opens_window: true }))
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
            drop_strangers(stack, id, peer);
            let seen =
                if peeks { stack.udp_peek(id, buffer) } else { stack.udp_receive(id, buffer) };
            match seen {
                Ok(seen) => Ok(Some(seen)),
                Err(Error::WouldBlock) => Ok(None),
                Err(error) => Err(errno(error)),
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
        let (mut done, mut tended) = (0, false);
        // The peer may have ended the connection.
        self.take_news();
        loop {
            while memory.left() > 0 {
                match self.queue(memory) {
                    Ok(0) => break,
                    Ok(taken) => done += taken,
                    Err(_) if done > 0 => {
                        self.flush();
                        return Ok(done);
                    }
                    Err(errno) => {
                        self.flush();
                        return Err(errno);
                    }
                }
            }
            self.flush();
            if memory.left() == 0 {
                return Ok(done);
            }
            // There may be room by now.
            if !core::mem::replace(&mut tended, true) {
                tend(process);
                continue;
            }
            if nonblocking {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            match self.sleep(process, true) {
                Err(_) if done > 0 => return Ok(done),
                other => other?,
            }
            tended = false;
        }
    }

    /// Queues bytes of a stream; 0: there is no room now.
    fn queue(&self, from: &mut Memory<'_>) -> Result<u64, Errno> {
        if self.shut.get().1 {
            return Err(Errno::EPIPE);
        }
        let told = self.told.get();
        if let Some(kept) = self.kept() {
            let mut buffer = [0; CHUNK];
            let count = from.peek(&mut buffer)?;
            let taken = match kept.queue(&buffer[..count]) {
                _ if kept.kind != Kind::Stream => Err(Errno::EPIPE),
                Err(Errno::EPIPE) => Err(Errno::EPIPE),
                Err(_) if self.told.replace(true) => Err(Errno::EPIPE),
                other => other,
            }?;
            from.advance(taken as u64);
            return Ok(taken as u64);
        }
        // From the program's memory to the stack's own.
        let result = self.operate(|inner, state| {
            let State::Stream(_, id, _) = *state else { return Err(Errno::EPIPE) };
            let moved = inner.network.stack.tcp_send_with(id, |room| {
                let got = from.peek(room);
                (got.unwrap_or(0), got)
            });
            match moved {
                Ok(got) => got,
                Err(Error::WouldBlock) => Ok(0),
                Err(Error::NotConnected | Error::NoSuchSocket) => Err(Errno::EPIPE),
                Err(_) if told => Err(Errno::EPIPE),
                Err(error) => Err(errno(error)),
            }
        });
        match result {
            Ok(taken) => {
                from.advance(taken as u64);
                Ok(taken as u64)
            }
            Err(errno) => {
                self.told.set(self.told.get() || errno != Errno::EFAULT);
                Err(errno)
            }
        }
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
            State::Datagrams(_, id, peer) => {
                drop_strangers(&mut inner.network.stack, id, peer);
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
