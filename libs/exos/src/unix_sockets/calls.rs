//! The socket calls on local sockets: one function each.

#![allow(non_upper_case_globals)]

use alloc::vec::Vec;
use linux_raw_sys::general::*;
use linux_raw_sys::net as raw;
use unix::path::Canonical;

use super::messages::Received;
use super::{Kind, Peer, UnixSocket, connection, names, options};
use crate::errno::{Answer, Errno};
use crate::fs::description::Description;
use crate::fs::open_file::OpenFile;
use crate::fs::pipe::WRITER;
use crate::fs::region::Region;
use crate::fs::transfer::Memory;
use crate::process::Process;
use crate::user;
use abi::id::EnvId;

/// Bits of a socket's type beside the type.
const TYPE_FLAGS: u32 = O_NONBLOCK | O_CLOEXEC;
/// Types that Linux knows of, whatever the family (`SOCK_MAX`).
const TYPES: u32 = 11;
/// Offset of the name's length in a `msghdr`.
const NAME_LENGTH: u64 = 8;
/// Offset of the control data's length in it.
const CONTROL_LENGTH: u64 = 40;
/// Offset of the flags in it.
const FLAGS: u64 = 48;
/// Bytes of a `cmsghdr`.
const CONTROL_HEAD: u64 = 16;
/// Bytes of a `ucred`.
const CREDENTIALS: u64 = 12;

/// Does the call `number`, if it is one about local sockets.
pub fn call(process: &mut Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [a, b, c, d, ..] = words;
    match number {
        __NR_socket if a as u32 == raw::AF_UNIX => {
            return Some(open(process, b as u32, c as u32));
        }
        __NR_socketpair => return Some(pair(process, [a as u32, b as u32, c as u32], d)),
        __NR_bind | __NR_listen | __NR_accept | __NR_accept4 | __NR_connect | __NR_getsockname
        | __NR_getpeername | __NR_setsockopt | __NR_getsockopt | __NR_shutdown | __NR_sendto
        | __NR_recvfrom | __NR_sendmsg | __NR_recvmsg => {}
        _ => return None,
    }
    let description = process.files.get(a as i32).ok()?;
    let OpenFile::UnixSocket(socket) = &description.file else { return None };
    Some(on_socket(process, (number, words), &description, socket))
}

fn on_socket(
    process: &mut Process,
    (number, words): (u32, [u64; 6]),
    description: &Description,
    socket: &UnixSocket,
) -> Answer {
    let [_, b, c, d, e, f] = words;
    let waits = |flags: u32| !(description.nonblocking() || flags & raw::MSG_DONTWAIT != 0);
    match number {
        __NR_bind => names::bind(process, socket, b, c),
        __NR_listen => socket.listen(process, b as i32).map(|()| 0),
        __NR_accept => accept(process, socket, (b, c), 0, waits(0)),
        __NR_accept4 => accept(process, socket, (b, c), d as u32, waits(0)),
        __NR_connect => connect(process, socket, b, c, waits(0)),
        __NR_getsockname => names::write(b, c, &socket.name()?).map(|()| 0),
        __NR_getpeername => names::write(b, c, &socket.peer_name(process)?).map(|()| 0),
        __NR_setsockopt => options::set(socket, words),
        __NR_getsockopt => options::get(socket, words),
        __NR_shutdown => match b as u32 {
            0 => socket.shutdown(true, false).map(|()| 0),
            1 => socket.shutdown(false, true).map(|()| 0),
            2 => socket.shutdown(true, true).map(|()| 0),
            _ => Err(Errno::EINVAL),
        },
        __NR_sendto => {
            let to = destination(socket, e, f)?;
            let mut memory = Memory::program(b, c)?;
            let flags = d as u32;
            socket.send(process, &mut memory, (to.as_deref(), None), flags, waits(flags))
        }
        __NR_recvfrom => {
            let mut memory = Memory::program(b, c)?;
            let flags = d as u32;
            let received = socket.receive(process, &mut memory, flags, waits(flags))?;
            if e != 0 {
                if received.from.is_empty() {
                    user::write_value(f, &0_u32)?;
                } else {
                    names::write(e, f, &received.from)?;
                }
            }
            Ok(received.told(flags))
        }
        __NR_sendmsg => send_message(process, socket, b, c as u32, waits(c as u32)),
        _ => receive_message(process, socket, b, c as u32, waits(c as u32)),
    }
}

/// Where a message goes; a connection has no use for it but to be refused.
fn destination(socket: &UnixSocket, place: u64, len: u64) -> Result<Option<Vec<u8>>, Errno> {
    match socket.kind {
        _ if place == 0 => Ok(None),
        Kind::Datagrams => names::read_named(place, len).map(Some),
        _ => Ok(Some(Vec::new())),
    }
}

impl Received {
    fn told(&self, flags: u32) -> u64 {
        if flags & raw::MSG_TRUNC != 0 { self.length } else { self.count }
    }
}

impl UnixSocket {
    /// Sends what is in `memory`, to a name if it is a datagram; `sender`: who says so.
    pub fn send(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        (to, sender): (Option<&[u8]>, Option<[u32; 3]>),
        flags: u32,
        waits: bool,
    ) -> Answer {
        if flags & raw::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.kind != Kind::Stream {
            return self.send_message(process, memory, to.unwrap_or(&[]), sender, !waits);
        }
        if to.is_some() {
            let connected = self.link.get().is_some();
            return Err(if connected { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        self.send_bytes(process, memory, flags, !waits)
    }

    /// Receives into `memory`; `flags` are `MSG_…`.
    pub fn receive(
        &self,
        process: &mut Process,
        memory: &mut Memory<'_>,
        flags: u32,
        waits: bool,
    ) -> Result<Received, Errno> {
        if flags & raw::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.kind != Kind::Stream {
            return self.receive_message(process, memory, flags, !waits);
        }
        let count = self.receive_bytes(process, memory, flags, !waits)?;
        if count == 0 {
            return Ok(Received::default());
        }
        let (from, sender) = (self.peer_name(process)?, self.peer_owner.get());
        Ok(Received { count, length: count, from, sender })
    }
}

/// Enters a socket as a descriptor.
fn enter(process: &mut Process, socket: UnixSocket, flags: u32) -> Answer {
    let limit = process.limit(RLIMIT_NOFILE);
    let access = O_RDWR | flags & O_NONBLOCK;
    let file = OpenFile::UnixSocket(socket);
    let description = Description::new(file, Canonical::default(), access, None);
    process.files.enter(description, flags & O_CLOEXEC != 0, 0, limit)
}

fn kind_of(kind: u32, protocol: u32) -> Result<Kind, Errno> {
    if kind & !TYPE_FLAGS >= TYPES {
        return Err(Errno::EINVAL);
    }
    if protocol != 0 && protocol != raw::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let number = kind & !TYPE_FLAGS;
    // What Linux takes for datagrams here, too.
    let number = if number == raw::SOCK_RAW { raw::SOCK_DGRAM } else { number };
    Kind::from_number(number).ok_or(Errno::ESOCKTNOSUPPORT)
}

fn open(process: &mut Process, kind: u32, protocol: u32) -> Answer {
    let socket = UnixSocket::new(kind_of(kind, protocol)?);
    enter(process, socket, kind & TYPE_FLAGS)
}

fn pair(process: &mut Process, [family, kind, protocol]: [u32; 3], into: u64) -> Answer {
    match family {
        raw::AF_UNIX => {}
        raw::AF_INET => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EAFNOSUPPORT),
    }
    let which = kind_of(kind, protocol)?;
    let (one, other) = match which {
        Kind::Datagrams => datagram_pair(process)?,
        _ => {
            let (one, other) = connection::make_pair()?;
            let own = connection::ourselves(process);
            (UnixSocket::linked(which, one, own), UnixSocket::linked(which, other, own))
        }
    };
    let flags = kind & TYPE_FLAGS;
    let first = enter(process, one, flags)?;
    let second = enter(process, other, flags);
    let wrote = second.and_then(|second| {
        user::write_value(into, &[first as u32, second as u32]).map(|()| second)
    });
    if let Err(errno) = wrote {
        process.files.close(first as i32)?;
        if let Ok(second) = second {
            process.files.close(second as i32)?;
        }
        return Err(errno);
    }
    Ok(0)
}

/// Two sockets, each with an inbox that the other one writes to.
fn datagram_pair(process: &Process) -> Result<(UnixSocket, UnixSocket), Errno> {
    let (one, other) = (UnixSocket::new(Kind::Datagrams), UnixSocket::new(Kind::Datagrams));
    let inboxes = (one.make_port()?, other.make_port()?);
    for (socket, peer) in [(&one, inboxes.1), (&other, inboxes.0)] {
        Region { id: peer, role: WRITER }.attach()?;
        socket.set_peer(Some(Peer::Paired(peer)))?;
        socket.peer_owner.set(connection::ourselves(process));
    }
    Ok((one, other))
}

fn accept(
    process: &mut Process,
    socket: &UnixSocket,
    (place, len): (u64, u64),
    flags: u32,
    waits: bool,
) -> Answer {
    if flags & !TYPE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let (end, owner) = socket.accept(process, !waits)?;
    let accepted = UnixSocket::linked(socket.kind, end, owner);
    let written = accepted.peer_name(process).and_then(|peer| names::write(place, len, &peer));
    if let Err(errno) = written {
        accepted.close();
        return Err(errno);
    }
    enter(process, accepted, flags)
}

fn connect(
    process: &mut Process,
    socket: &UnixSocket,
    place: u64,
    len: u64,
    waits: bool,
) -> Answer {
    if !socket.is_connection() && names::is_unspecified(place, len)? {
        return socket.set_peer(None).map(|()| 0);
    }
    let name = names::read_named(place, len)?;
    socket.connect(process, &name, !waits).map(|()| 0)
}

/// What stands in the control data of a message to be sent: who sends it.
fn read_control(process: &Process, at: u64, len: u64) -> Result<Option<[u32; 3]>, Errno> {
    let mut sender = None;
    let mut done = 0;
    while done + CONTROL_HEAD <= len {
        let [size, which]: [u64; 2] = user::read_value(at + done)?;
        if size < CONTROL_HEAD || size > len - done {
            return Err(Errno::EINVAL);
        }
        let (level, kind) = (which as u32, (which >> 32) as u32);
        match (level, kind) {
            (raw::SOL_SOCKET, raw::SCM_CREDENTIALS) => {
                if size != CONTROL_HEAD + CREDENTIALS {
                    return Err(Errno::EINVAL);
                }
                let told: [u32; 3] = user::read_value(at + done + CONTROL_HEAD)?;
                sender = Some(checked_sender(process, told)?);
            }
            (raw::SOL_SOCKET, raw::SCM_RIGHTS) => return Err(Errno::EOPNOTSUPP),
            (raw::SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => {}
        }
        done += size.next_multiple_of(8);
    }
    Ok(sender)
}

/// Who sends is oneself, by any of its ids; the superuser may say that it is another process.
fn checked_sender(process: &Process, told: [u32; 3]) -> Result<[u32; 3], Errno> {
    let [pid, user, group] = told;
    let own = pid == process.id.0;
    let by_itself = own && process.users.contains(&user) && process.groups.contains(&group);
    if !by_itself && process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    let there = own || crate::said::brief(EnvId(pid)).is_some();
    if there { Ok(told) } else { Err(Errno::ESRCH) }
}

fn send_message(
    process: &mut Process,
    socket: &UnixSocket,
    header: u64,
    flags: u32,
    waits: bool,
) -> Answer {
    let [name, name_len, pieces, count, control, control_len]: [u64; 6] = user::read_value(header)?;
    let place = if name_len as u32 == 0 { 0 } else { name };
    let to = destination(socket, place, name_len)?;
    let sender = read_control(process, control, control_len)?;
    let mut memory = Memory::vector(pieces, count)?;
    socket.send(process, &mut memory, (to.as_deref(), sender), flags, waits)
}

fn receive_message(
    process: &mut Process,
    socket: &UnixSocket,
    header: u64,
    flags: u32,
    waits: bool,
) -> Answer {
    let [name, name_len, pieces, count, control, control_len]: [u64; 6] = user::read_value(header)?;
    let mut memory = Memory::vector(pieces, count)?;
    let received = socket.receive(process, &mut memory, flags, waits)?;
    let mut told = flags & raw::MSG_CMSG_CLOEXEC;
    if received.length > received.count {
        told |= raw::MSG_TRUNC;
    }
    if name != 0 {
        let written = match received.from.as_slice() {
            [] => 0,
            from => names::put(name, name_len as u32, from)?,
        };
        user::write_value(header + NAME_LENGTH, &written)?;
    }
    let mut written = 0_u64;
    if socket.tells_sender() {
        let size = CONTROL_HEAD + CREDENTIALS;
        if control_len < size {
            told |= raw::MSG_CTRUNC;
        } else {
            let which = u64::from(raw::SOL_SOCKET) | u64::from(raw::SCM_CREDENTIALS) << 32;
            user::write_value(control, &[size, which])?;
            user::write_value(control + CONTROL_HEAD, &received.sender)?;
            written = size.next_multiple_of(8).min(control_len);
        }
    }
    user::write_value(header + CONTROL_LENGTH, &written)?;
    user::write_value(header + FLAGS, &told)?;
    Ok(received.told(flags))
}
