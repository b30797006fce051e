//! Packets and datagrams: each is sent and received whole.

use alloc::vec;
use alloc::vec::Vec;
use linux_raw_sys::net as raw;
use unix::Errno;
use unix::local::{INBOX, RECORD, Record};

use super::connection::{End, Half};
use super::records::Channel;
use super::{Kind, Peer, UnixSocket};
use crate::fs::memory_sockets::Inbox;
use crate::fs::pipe::READER;
use crate::fs::region;
use crate::fs::region::Done;
use crate::fs::transfer::Memory;
use crate::process::Process;
use crate::wait::{Wait, sleep_until};
use abi::id::RegionId;
use abi::predicate::Operator;

/// What one receive was.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes put into memory.
    pub count: u64,
    /// Bytes there were: more, if a message did not fit.
    pub length: u64,
    /// The sender's name; empty: it has none.
    pub from: Vec<u8>,
    /// Who sent it: pid, user, group.
    pub sender: [u32; 3],
}

/// Where a message goes.
enum Way {
    /// Through a connection.
    Along(End),
    /// Into the inbox of the other socket of a pair.
    To(RegionId),
    /// Into that of a name, by way of the file server.
    Named(Inbox),
}

impl Way {
    /// The ring it is written to; or the inbox, which the file server writes to.
    fn channel(&self) -> Result<Channel, &Inbox> {
        match self {
            Way::Along(end) => Ok(end.written()),
            Way::To(id) => Ok(UnixSocket::outbox(*id)),
            Way::Named(inbox) => Err(inbox),
        }
    }

    /// Will it never be read, and what is that to the sender? The file server looks itself.
    fn check(&self, half: &Half) -> Result<(), Errno> {
        match self {
            Way::Along(end) if end.is_alone() || half.ended => Err(Errno::EPIPE),
            Way::To(id) if region::attached(*id, READER) == 0 => Err(Errno::ECONNREFUSED),
            Way::To(_) if half.ended => Err(Errno::EPIPE),
            _ => Ok(()),
        }
    }

    /// Adds "there is room, or no process reads".
    fn terms(&self, channel: &Channel, half: &Half, wait: &mut Wait) {
        channel.read_terms(half, wait);
        channel.ended_terms(wait);
        match self {
            Way::Along(end) => end.alone_terms(wait),
            Way::To(id) => {
                let owners = region::attached_address(*id, READER);
                wait.memory(owners, Operator::Equal, 0).end_term();
            }
            Way::Named(_) => {}
        }
    }
}

impl UnixSocket {
    /// Sends one message, to `to` if that is not empty; `sender`: who says so.
    pub(super) fn send_message(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        to: &[u8],
        sender: Option<[u32; 3]>,
        nonblocking: bool,
    ) -> Result<u64, Errno> {
        let way = self.way(process, to)?;
        if self.ended.get() {
            return Err(Errno::EPIPE);
        }
        let name = self.name()?;
        let total = memory.left();
        let most = way.channel().map_or(INBOX.capacity, |channel| channel.ring.capacity);
        if total > most - (RECORD + name.len()) as u64 {
            return Err(Errno::EMSGSIZE);
        }
        // A sender that does not say is told by the real ids (unix(7)).
        let sender = sender.unwrap_or([process.id.0, process.users[0], process.groups[0]]);
        let record = Record { len: total as u32, name: name.len() as u32, sender };
        let mut bytes = record.to_bytes().to_vec();
        bytes.extend(&name);
        let begin = bytes.len();
        bytes.resize(begin + total as usize, 0);
        if (memory.peek(&mut bytes[begin..])? as u64) < total {
            return Err(Errno::EFAULT);
        }
        let channel = match way.channel() {
            Ok(channel) => channel,
            Err(inbox) => {
                self.send_named(process, inbox, (&bytes[begin..], sender), nonblocking)?;
                memory.advance(total);
                return Ok(total);
            }
        };
        loop {
            way.check(&channel.half()?)?;
            let Some(half) = channel.put(&record, &bytes)? else {
                memory.advance(total);
                return Ok(total);
            };
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            let mut wait = Wait::new();
            way.terms(&channel, &half, &mut wait);
            sleep_until(process, &wait, 0)?;
        }
    }

    fn way(&self, process: &mut Process, to: &[u8]) -> Result<Way, Errno> {
        if self.kind == Kind::Packets {
            return self.end(Errno::ENOTCONN).map(Way::Along);
        }
        if !to.is_empty() {
            return self.find_inbox(process, to).map(Way::Named);
        }
        Ok(match self.peer.get().ok_or(Errno::ENOTCONN)? {
            Peer::Paired(id) => Way::To(id),
            Peer::Named(inbox) => Way::Named(self.connected(inbox)),
        })
    }

    /// Where its messages come from.
    fn incoming(&self) -> Result<Option<Channel>, Errno> {
        match self.kind {
            Kind::Datagrams => Ok(self.inbox()),
            _ => self.end(Errno::ENOTCONN).map(|end| Some(end.read())),
        }
    }

    /// Receives one message.
    pub(super) fn receive_message(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        let peeks = flags & raw::MSG_PEEK != 0;
        loop {
            let link = self.link.get();
            // Looked at first: what the other end wrote before it left must still be seen.
            let alone = link.is_some_and(|end| end.is_alone());
            let channel = self.incoming()?;
            if let Some(channel) = &channel
                && let Some(found) = channel.look()?
            {
                let length = u64::from(found.record.len);
                let mut buffer = vec![0; length.min(memory.left()) as usize];
                if channel.take(&found, &mut buffer, peeks)? == Done::Changed {
                    continue;
                }
                let count = memory.put(&buffer)? as u64;
                let sender = found.record.sender;
                return Ok(Received { count, length, from: found.name, sender });
            }
            if alone && self.is_reset()? {
                self.told.set(true);
                return Err(Errno::ECONNRESET);
            }
            let ended = match &channel {
                Some(channel) => channel.half()?.ended,
                None => false,
            };
            if alone || ended {
                return Ok(Received::default());
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            let mut wait = Wait::new();
            if let Some(channel) = &channel {
                channel.filled_terms(&mut wait);
                channel.ended_terms(&mut wait);
            }
            if let Some(end) = link {
                end.alone_terms(&mut wait);
            }
            sleep_until(process, &wait, 0)?;
        }
    }

    /// Bytes that `read` would give at once (`FIONREAD`).
    pub fn waiting(&self) -> Result<u32, Errno> {
        if self.listens.get() {
            return Err(Errno::EINVAL);
        }
        let channel = match self.link.get() {
            Some(end) => Some(end.read()),
            None => self.inbox(),
        };
        let Some(channel) = channel else {
            return if self.is_connection() { Err(Errno::EINVAL) } else { Ok(0) };
        };
        if self.kind == Kind::Stream {
            return Ok(channel.used(&channel.half()?) as u32);
        }
        Ok(channel.look()?.map_or(0, |found| found.record.len))
    }
}
