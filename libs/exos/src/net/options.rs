//! `setsockopt`, `getsockopt`: those that mean something here, and those that may be ignored.

use linux_raw_sys::net as raw;
use unix::Errno;

use super::BUFFER_BYTES;
use super::calls::socket;
use super::kept::Kind;
use super::socket::{Socket, State};
use crate::errno::Answer;
use crate::process::Process;
use crate::user;

/// Options of `SOL_SOCKET` that are on or off, and remembered. Of these only `SO_REUSEADDR` makes a
/// difference.
const SWITCHES: [u32; 6] = [
    raw::SO_REUSEADDR,
    raw::SO_KEEPALIVE,
    raw::SO_BROADCAST,
    raw::SO_DONTROUTE,
    raw::SO_OOBINLINE,
    raw::SO_REUSEPORT,
];
/// Where `TCP_NODELAY` is remembered among them.
const NO_DELAY: u32 = 63;
const TCP: u32 = raw::IPPROTO_TCP as u32;

impl Socket {
    fn set(&self, bit: u32, on: bool) {
        let others = self.options.get() & !(1 << bit);
        self.options.set(others | u64::from(on) << bit);
    }

    fn is_set(&self, bit: u32) -> u32 {
        (self.options.get() >> bit & 1) as u32
    }
}

/// `setsockopt(fd, level, name, value, length)`
pub fn set(process: &mut Process, words: [u64; 6]) -> Answer {
    let [fd, level, name, value, length, _] = words;
    let description = process.files.get(fd as i32)?;
    let socket = socket(&description)?;
    if (length as i32) < 4 {
        return Err(Errno::EINVAL);
    }
    let on = user::read_value::<u32>(value)? != 0;
    match (level as u32, name as u32) {
        (raw::SOL_SOCKET, name) if SWITCHES.contains(&name) => socket.set(name, on),
        // How much is held is fixed, and closing always waits in the background.
        (raw::SOL_SOCKET, raw::SO_SNDBUF | raw::SO_RCVBUF) => {}
        (raw::SOL_SOCKET, raw::SO_LINGER) if !on => {}
        (TCP, raw::TCP_NODELAY) if socket.stream => {
            socket.set(NO_DELAY, on);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}

/// `getsockopt(fd, level, name, value, length)`
pub fn get(process: &mut Process, words: [u64; 6]) -> Answer {
    let [fd, level, name, value, length, _] = words;
    let description = process.files.get(fd as i32)?;
    let socket = socket(&description)?;
    super::tend(process);
    let room: u32 = user::read_value(length)?;
    if room > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    let listens = match *socket.state.borrow() {
        State::Listening(..) => true,
        State::Kept(kept) => kept.kind == Kind::Listener,
        _ => false,
    };
    let answer = match (level as u32, name as u32) {
        (raw::SOL_SOCKET, name) if SWITCHES.contains(&name) => socket.is_set(name),
        (raw::SOL_SOCKET, raw::SO_ERROR) => {
            socket.take_error().map_or(0, |errno| u32::from(errno.0))
        }
        (raw::SOL_SOCKET, raw::SO_TYPE) if socket.stream => raw::SOCK_STREAM,
        (raw::SOL_SOCKET, raw::SO_TYPE) => raw::SOCK_DGRAM,
        (raw::SOL_SOCKET, raw::SO_DOMAIN) => raw::AF_INET,
        (raw::SOL_SOCKET, raw::SO_PROTOCOL) if socket.stream => TCP,
        (raw::SOL_SOCKET, raw::SO_PROTOCOL) => raw::IPPROTO_UDP as u32,
        (raw::SOL_SOCKET, raw::SO_ACCEPTCONN) => u32::from(listens),
        (raw::SOL_SOCKET, raw::SO_SNDBUF | raw::SO_RCVBUF) => BUFFER_BYTES as u32,
        (TCP, raw::TCP_NODELAY) if socket.stream => socket.is_set(NO_DELAY),
        _ => return Err(Errno::ENOPROTOOPT),
    };
    let count = room.min(4);
    user::write_bytes(value, &answer.to_le_bytes()[..count as usize])?;
    user::write_value(length, &count)?;
    Ok(0)
}
