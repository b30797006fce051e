//! `sockaddr_in` to and from the program.

use core::net::{Ipv4Addr, SocketAddrV4};
use linux_raw_sys::net as raw;
use unix::Errno;

use crate::user;

/// Bytes of a `sockaddr_in`.
const BYTES: usize = 16;

/// Reads an address of `len` bytes; its family must be IPv4's.
pub fn read(address: u64, len: u64) -> Result<SocketAddrV4, Errno> {
    if (len as u32 as usize) < BYTES {
        return Err(Errno::EINVAL);
    }
    let [f0, f1, p0, p1, a, b, c, d]: [u8; 8] = user::read_value(address)?;
    if u32::from(u16::from_le_bytes([f0, f1])) != raw::AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p0, p1])))
}

/// Is the family at `address` `AF_UNSPEC`, which takes a datagram socket's peer away?
pub fn is_unspecified(address: u64, len: u64) -> Result<bool, Errno> {
    if len < 2 {
        return Err(Errno::EINVAL);
    }
    let family: u16 = user::read_value(address)?;
    Ok(u32::from(family) == raw::AF_UNSPEC)
}

/// Writes an address into `room` bytes; answers its true length.
pub fn put(address: u64, room: u32, value: SocketAddrV4) -> Result<u32, Errno> {
    let mut bytes = [0; BYTES];
    bytes[..2].copy_from_slice(&(raw::AF_INET as u16).to_le_bytes());
    bytes[2..4].copy_from_slice(&value.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&value.ip().octets());
    user::write_bytes(address, &bytes[..BYTES.min(room as usize)])?;
    Ok(BYTES as u32)
}

/// Writes an address where the room for it is the word at `len`, which gets its true length.
pub fn write(address: u64, len: u64, value: SocketAddrV4) -> Result<(), Errno> {
    if address == 0 {
        return Ok(());
    }
    let room: u32 = user::read_value(len)?;
    if room > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    let true_len = put(address, room, value)?;
    user::write_value(len, &true_len)
}
