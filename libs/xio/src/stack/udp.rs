//! UDP sockets by name, around the engine's.

use alloc::vec;
use core::net::SocketAddrV4;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, RecvError, SendError, Socket};
use smoltcp::wire::{IpAddress, IpEndpoint};

use super::slab::{Name, Slab};
use super::{Error, Stack};
use crate::{ethernet, ipv4};

/// UDP sockets of one stack.
const SOCKETS_MAX: usize = 64;
/// Datagrams queued in each direction of one socket.
const DATAGRAMS: usize = 32;
/// Bytes queued in each direction of one socket.
const BYTES: usize = 32 << 10;
/// Bytes of the largest datagram: they are not cut into fragments.
pub const DATAGRAM_MAX: usize = ethernet::PAYLOAD_MAX - ipv4::HEADER - 8;

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpId(Name);

/// What a stack has of UDP.
pub struct Tables {
    sockets: Slab<(SocketHandle, u16)>,
    /// May there be datagrams to send?
    pub queued: bool,
}

impl Tables {
    pub fn new() -> Tables {
        Tables { sockets: Slab::new(SOCKETS_MAX), queued: false }
    }
}

impl Stack {
    /// Opens a socket at `port`; the caller has a filter for it.
    pub fn udp_bind(&mut self, port: u16) -> Result<UdpId, Error> {
        if port == 0 {
            return Err(Error::BadAddress);
        }
        if self.udp.sockets.iter().any(|(_, (_, other))| *other == port) {
            return Err(Error::PortTaken);
        }
        if self.udp.sockets.is_full() {
            return Err(Error::TooMany);
        }
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; DATAGRAMS], vec![0; BYTES]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.bind(port).map_err(|_| Error::BadAddress)?;
        let handle = self.sockets.add(socket);
        self.udp.sockets.insert((handle, port)).map(UdpId).ok_or(Error::TooMany)
    }

    /// Closes a socket; what is queued is lost.
    pub fn udp_close(&mut self, id: UdpId) -> Result<(), Error> {
        let (handle, _) = self.udp.sockets.remove(id.0).ok_or(Error::NoSuchSocket)?;
        self.sockets.remove(handle);
        Ok(())
    }

    /// Queues a datagram.
    pub fn udp_send(&mut self, id: UdpId, bytes: &[u8], to: SocketAddrV4) -> Result<(), Error> {
        if bytes.len() > DATAGRAM_MAX {
            return Err(Error::TooLarge);
        }
        let looped = to.ip().is_loopback() && !self.config.network.is_own(*to.ip());
        if to.ip().is_unspecified() || looped || to.port() == 0 {
            return Err(Error::BadAddress);
        }
        self.udp.queued = true;
        let socket = self.udp_socket(id)?;
        let to = IpEndpoint::new(IpAddress::Ipv4(*to.ip()), to.port());
        socket.send_slice(bytes, to).map_err(|error| match error {
            SendError::BufferFull => Error::WouldBlock,
            SendError::Unaddressable => Error::BadAddress,
        })
    }

    /// Takes a datagram: its true length, which may be more than fits, and who sent it.
    pub fn udp_receive(
        &mut self,
        id: UdpId,
        bytes: &mut [u8],
    ) -> Result<(usize, SocketAddrV4), Error> {
        let socket = self.udp_socket(id)?;
        let (datagram, from) = match socket.recv() {
            Ok(received) => received,
            Err(RecvError::Exhausted | RecvError::Truncated) => return Err(Error::WouldBlock),
        };
        let taken = datagram.len().min(bytes.len());
        bytes[..taken].copy_from_slice(&datagram[..taken]);
        let IpAddress::Ipv4(address) = from.endpoint.addr;
        Ok((datagram.len(), SocketAddrV4::new(address, from.endpoint.port)))
    }

    /// As `udp_receive`, but the datagram stays.
    pub fn udp_peek(
        &mut self,
        id: UdpId,
        bytes: &mut [u8],
    ) -> Result<(usize, SocketAddrV4), Error> {
        let socket = self.udp_socket(id)?;
        let (datagram, from) = socket.peek().map_err(|_| Error::WouldBlock)?;
        let taken = datagram.len().min(bytes.len());
        bytes[..taken].copy_from_slice(&datagram[..taken]);
        let IpAddress::Ipv4(address) = from.endpoint.addr;
        Ok((datagram.len(), SocketAddrV4::new(address, from.endpoint.port)))
    }

    /// Is there a datagram to take?
    pub fn udp_readable(&self, id: UdpId) -> bool {
        let entry = self.udp.sockets.get(id.0);
        entry.is_some_and(|(handle, _)| self.sockets.get::<Socket>(*handle).can_recv())
    }

    /// Is there room for a datagram?
    pub fn udp_writable(&self, id: UdpId) -> bool {
        let entry = self.udp.sockets.get(id.0);
        entry.is_some_and(|(handle, _)| self.sockets.get::<Socket>(*handle).can_send())
    }

    fn udp_socket(&mut self, id: UdpId) -> Result<&mut Socket<'static>, Error> {
        let (handle, _) = self.udp.sockets.get(id.0).ok_or(Error::NoSuchSocket)?;
        Ok(self.sockets.get_mut(*handle))
    }
}
