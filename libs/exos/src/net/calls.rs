//! The socket calls: one function each.

#![allow(non_upper_case_globals)]

use alloc::rc::Rc;
use linux_raw_sys::general::*;
use linux_raw_sys::net as raw;
use unix::path::Canonical;

use super::socket::Socket;
use super::{address, options};
use crate::errno::{Answer, Errno};
use crate::fs::description::Description;
use crate::fs::open_file::OpenFile;
use crate::fs::transfer::Memory;
use crate::process::Process;
use crate::user;

/// Bits of a socket's type beside the type.
const TYPE_FLAGS: u32 = O_NONBLOCK | O_CLOEXEC;
/// Offset of the name's length in a `msghdr`.
const NAME_LENGTH: u64 = 8;
/// Offset of the control data's length in it.
const CONTROL_LENGTH: u64 = 40;
/// Offset of the flags in it.
const FLAGS: u64 = 48;

/// Does the call `number`, if it is one about sockets.
pub fn call(process: &mut Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [a, b, c, d, e, f] = words;
    let fd = a as i32;
    Some(match number {
        __NR_socket => open(process, a as u32, b as u32, c as u32),
        __NR_bind => bind(process, fd, b, c),
        __NR_listen => listen(process, fd, b as i32),
        __NR_accept => accept(process, fd, b, c, 0),
        __NR_accept4 => accept(process, fd, b, c, d as u32),
        __NR_connect => connect(process, fd, b, c),
        __NR_getsockname => name(process, fd, b, c),
        __NR_getpeername => peer(process, fd, b, c),
        __NR_setsockopt => options::set(process, words),
        __NR_getsockopt => options::get(process, words),
        __NR_shutdown => shutdown(process, fd, b),
        __NR_sendto => send(process, fd, (b, c), d as u32, (e, f)),
        __NR_recvfrom => receive(process, fd, (b, c), d as u32, (e, f)),
        __NR_sendmsg => send_message(process, fd, b, c as u32),
        __NR_recvmsg => receive_message(process, fd, b, c as u32),
        _ => return None,
    })
}

/// The socket behind a description.
pub fn socket(description: &Description) -> Result<&Socket, Errno> {
    match &description.file {
        OpenFile::Socket(socket) => Ok(socket),
        _ => Err(Errno::ENOTSOCK),
    }
}

/// Enters a socket as a descriptor.
fn enter(process: &mut Process, socket: Socket, flags: u32) -> Answer {
    let limit = process.limit(RLIMIT_NOFILE);
    let path = Canonical::from_canonical(b"/");
    let access = O_RDWR | flags & O_NONBLOCK;
    let description = Description::new(OpenFile::Socket(socket), path, access, None);
    process.files.enter(description, flags & O_CLOEXEC != 0, 0, limit)
}

fn open(process: &mut Process, family: u32, kind: u32, protocol: u32) -> Answer {
    if family == raw::AF_PACKET && process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    if family != raw::AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    let any = raw::IPPROTO_IP as u32;
    let stream = match kind & !TYPE_FLAGS {
        raw::SOCK_STREAM if [any, raw::IPPROTO_TCP as u32].contains(&protocol) => true,
        raw::SOCK_DGRAM if [any, raw::IPPROTO_UDP as u32].contains(&protocol) => false,
        raw::SOCK_STREAM | raw::SOCK_DGRAM => return Err(Errno::EPROTONOSUPPORT),
        raw::SOCK_RAW => return Err(Errno::EPERM),
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let socket = Socket::new(process, stream)?;
    enter(process, socket, kind & TYPE_FLAGS)
}

/// Ports below are the superuser's (ip(7)).
const FREE_PORTS: u16 = 1024;

fn bind(process: &mut Process, fd: i32, place: u64, len: u64) -> Answer {
    let description = process.files.get(fd)?;
    let socket = socket(&description)?;
    let at = address::read(place, len)?;
    if (1..FREE_PORTS).contains(&at.port()) && process.users[1] != 0 {
        return Err(Errno::EACCES);
    }
    socket.bind(at).map(|()| 0)
}

fn listen(process: &mut Process, fd: i32, backlog: i32) -> Answer {
    let description = process.files.get(fd)?;
    socket(&description)?.listen(backlog).map(|()| 0)
}

fn accept(process: &mut Process, fd: i32, place: u64, len: u64, flags: u32) -> Answer {
    if flags & !TYPE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let description = process.files.get(fd)?;
    let listener = socket(&description)?;
    let (accepted, peer) = listener.accept(process, description.nonblocking())?;
    address::write(place, len, peer)?;
    enter(process, accepted, flags)
}

fn connect(process: &mut Process, fd: i32, place: u64, len: u64) -> Answer {
    let description = process.files.get(fd)?;
    let socket = socket(&description)?;
    if address::is_unspecified(place, len)? {
        return socket.disconnect().map(|()| 0);
    }
    let peer = address::read(place, len)?;
    socket.connect(process, peer, description.nonblocking()).map(|()| 0)
}

fn name(process: &mut Process, fd: i32, place: u64, len: u64) -> Answer {
    let description = process.files.get(fd)?;
    address::write(place, len, socket(&description)?.name()?)?;
    Ok(0)
}

fn peer(process: &mut Process, fd: i32, place: u64, len: u64) -> Answer {
    let description = process.files.get(fd)?;
    address::write(place, len, socket(&description)?.peer()?)?;
    Ok(0)
}

fn shutdown(process: &mut Process, fd: i32, how: u64) -> Answer {
    let description = process.files.get(fd)?;
    let socket = socket(&description)?;
    match how as u32 {
        0 => socket.shutdown(true, false)?,
        1 => socket.shutdown(false, true)?,
        2 => socket.shutdown(true, true)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn send(
    process: &mut Process,
    fd: i32,
    (bytes, count): (u64, u64),
    flags: u32,
    (place, len): (u64, u64),
) -> Answer {
    let description = process.files.get(fd)?;
    let socket = socket(&description)?;
    let to = if place == 0 { None } else { Some(address::read(place, len)?) };
    let mut memory = Memory::program(bytes, count)?;
    socket.send(process, &mut memory, to, flags, description.nonblocking())
}

fn receive(
    process: &mut Process,
    fd: i32,
    (bytes, count): (u64, u64),
    flags: u32,
    (place, len): (u64, u64),
) -> Answer {
    let description: Rc<Description> = process.files.get(fd)?;
    let socket = socket(&description)?;
    let mut memory = Memory::program(bytes, count)?;
    let received = socket.receive(process, &mut memory, flags, description.nonblocking())?;
    if place != 0 && len != 0 {
        match received.from {
            Some(from) => address::write(place, len, from)?,
            // A stream's sender is known.
            None => user::write_value(len, &0_u32)?,
        }
    }
    Ok(if flags & raw::MSG_TRUNC != 0 { received.length } else { received.count })
}

fn send_message(process: &mut Process, fd: i32, header: u64, flags: u32) -> Answer {
    let description = process.files.get(fd)?;
    let socket = socket(&description)?;
    let [name, name_len, pieces, count, _, control_len]: [u64; 6] = user::read_value(header)?;
    if control_len != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let given = name != 0 && name_len as u32 != 0;
    let to = if given { Some(address::read(name, name_len)?) } else { None };
    let mut memory = Memory::vector(pieces, count)?;
    socket.send(process, &mut memory, to, flags, description.nonblocking())
}

fn receive_message(process: &mut Process, fd: i32, header: u64, flags: u32) -> Answer {
    let description = process.files.get(fd)?;
    let socket = socket(&description)?;
    let [name, name_len, pieces, count, ..]: [u64; 6] = user::read_value(header)?;
    let mut memory = Memory::vector(pieces, count)?;
    let received = socket.receive(process, &mut memory, flags, description.nonblocking())?;
    let written = match received.from {
        Some(from) if name != 0 => address::put(name, name_len as u32, from)?,
        _ => 0,
    };
    user::write_value(header + NAME_LENGTH, &written)?;
    user::write_value(header + CONTROL_LENGTH, &0_u64)?;
    let cut = received.length > received.count;
    let told = flags & raw::MSG_CMSG_CLOEXEC | if cut { raw::MSG_TRUNC } else { 0 };
    user::write_value(header + FLAGS, &told)?;
    Ok(if flags & raw::MSG_TRUNC != 0 { received.length } else { received.count })
}
