//! `setsockopt` and `getsockopt` of local sockets.

use alloc::vec::Vec;
use linux_raw_sys::net as raw;
use unix::Errno;

use super::{Kind, UnixSocket};
use crate::errno::Answer;
use crate::user;

/// Options that are on or off, and remembered. Of these only `SO_PASSCRED` makes a difference.
const SWITCHES: [u32; 6] = [
    raw::SO_REUSEADDR,
    raw::SO_KEEPALIVE,
    raw::SO_BROADCAST,
    raw::SO_DONTROUTE,
    raw::SO_REUSEPORT,
    raw::SO_PASSCRED,
];

impl UnixSocket {
    fn switch(&self, bit: u32) -> bool {
        self.options.get() >> bit & 1 != 0
    }

    /// Is a receiver told who sent?
    pub(super) fn tells_sender(&self) -> bool {
        self.switch(raw::SO_PASSCRED)
    }

    fn option(&self, name: u32) -> Result<Vec<u8>, Errno> {
        let number = match name {
            name if SWITCHES.contains(&name) => u32::from(self.switch(name)),
            raw::SO_TYPE => self.kind as u32,
            raw::SO_DOMAIN => raw::AF_UNIX,
            raw::SO_PROTOCOL => 0,
            raw::SO_ACCEPTCONN => u32::from(self.listens.get()),
            raw::SO_ERROR => {
                let reset = self.is_reset()?;
                self.told.set(self.told.get() | reset);
                if reset { u32::from(Errno::ECONNRESET.0) } else { 0 }
            }
            raw::SO_SNDBUF | raw::SO_RCVBUF if self.kind == Kind::Datagrams => 64 << 10,
            raw::SO_SNDBUF | raw::SO_RCVBUF => 32 << 10,
            raw::SO_PEERCRED => {
                let owner = self.peer_owner.get();
                return Ok(owner.iter().flat_map(|word| word.to_le_bytes()).collect());
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(number.to_le_bytes().to_vec())
    }
}

/// `setsockopt(fd, level, name, value, length)`
pub fn set(socket: &UnixSocket, words: [u64; 6]) -> Answer {
    let [_, level, name, value, length, _] = words;
    if level as u32 != raw::SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    if (length as i32) < 4 {
        return Err(Errno::EINVAL);
    }
    let on = user::read_value::<u32>(value)? != 0;
    match name as u32 {
        name if SWITCHES.contains(&name) => {
            let others = socket.options.get() & !(1 << name);
            socket.options.set(others | u64::from(on) << name);
        }
        // How much is held is fixed, and nothing waits to be sent when it is closed.
        raw::SO_SNDBUF | raw::SO_RCVBUF | raw::SO_LINGER => {}
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}

/// `getsockopt(fd, level, name, value, length)`
pub fn get(socket: &UnixSocket, words: [u64; 6]) -> Answer {
    let [_, level, name, value, length, _] = words;
    if level as u32 != raw::SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    let room: u32 = user::read_value(length)?;
    if room > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    let answer = socket.option(name as u32)?;
    let count = (room as usize).min(answer.len());
    user::write_bytes(value, &answer[..count])?;
    user::write_value(length, &(count as u32))?;
    Ok(0)
}
