//! IPv4 headers as far as demultiplexing needs them, and where a packet goes next (RFC 791, 1122).

use core::net::Ipv4Addr;

use crate::checksum;

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than it says or than a header is.
    Short,
    /// Not version 4, or a header length that cannot be.
    Version,
    /// The header's sum is wrong.
    Checksum,
    /// A fragment: they are not put together here.
    Fragment,
}

/// A packet's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// [`TCP`], [`UDP`], [`ICMP`], …
    pub protocol: u8,
}

impl Header {
    /// Checks a packet's header and splits off its payload, link padding removed.
    pub fn split(packet: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let fixed = packet.first_chunk::<HEADER>().ok_or(Malformed::Short)?;
        let header_len = usize::from(fixed[0] & 15) * 4;
        if fixed[0] >> 4 != 4 || header_len < HEADER {
            return Err(Malformed::Version);
        }
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let whole = packet.get(..total).ok_or(Malformed::Short)?;
        let header = whole.get(..header_len).ok_or(Malformed::Short)?;
        if !checksum::is_intact(header) {
            return Err(Malformed::Checksum);
        }
        // More fragments to come, or not the first one.
        if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
            return Err(Malformed::Fragment);
        }
        let address =
            |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
        let parsed = Header { source: address(12), destination: address(16), protocol: fixed[9] };
        Ok((parsed, &whole[header_len..]))
    }

    /// The bytes of a header without options before `payload_len` bytes.
    pub fn to_bytes(self, payload_len: u16) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&(HEADER as u16 + payload_len).to_be_bytes());
        bytes[6] = 0x40; // Don't fragment.
        bytes[8] = 64;
        bytes[9] = self.protocol;
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..20].copy_from_slice(&self.destination.octets());
        let sum = !checksum::sum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// A station's static place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of the network's prefix, 0..=32.
    pub prefix: u8,
    /// The router for everything else.
    pub gateway: Option<Ipv4Addr>,
}

impl Network {
    /// The mask of the prefix.
    pub fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0)
    }

    /// Is `address` on the same link?
    pub fn is_local(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & self.mask() == 0
    }

    /// Does it name this station, on the link or to itself?
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        address == self.address || address == Ipv4Addr::LOCALHOST
    }

    /// This station's address for packets to `peer`.
    pub fn source_for(&self, peer: Ipv4Addr) -> Ipv4Addr {
        if peer.is_loopback() { Ipv4Addr::LOCALHOST } else { self.address }
    }

    /// Is there a way to one station at `address`?
    pub fn reaches(&self, address: Ipv4Addr) -> bool {
        let group = address.is_multicast() || self.is_broadcast(address);
        let looped = address.is_loopback() && address != Ipv4Addr::LOCALHOST;
        let none = address.is_unspecified() || group || looped;
        !none && (self.is_own(address) || self.next_hop(address).is_some())
    }

    /// Does it name all stations of the link?
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let all_hosts = self.address.to_bits() | !self.mask();
        address.is_broadcast() || (self.prefix < 31 && address.to_bits() == all_hosts)
    }

    /// The station that a packet to `destination` is handed to; `None`: there is no way.
    pub fn next_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.is_local(destination) { Some(destination) } else { self.gateway }
    }

    /// Can a packet that comes in from the link truly be from `source`?
    ///
    /// Own, loopback, multicast and broadcast addresses can't (RFC 1122 §3.2.1.3).
    pub fn is_believable(&self, source: Ipv4Addr) -> bool {
        source != self.address
            && !source.is_loopback()
            && !source.is_multicast()
            && !source.is_unspecified()
            && !self.is_broadcast(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET: Network = Network {
        address: Ipv4Addr::new(10, 0, 2, 15),
        prefix: 24,
        gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
    };

    #[test]
    fn a_header_survives_its_bytes() {
        let header =
            Header { source: Ipv4Addr::new(1, 2, 3, 4), destination: NET.address, protocol: UDP };
        let mut packet = std::vec::Vec::from(header.to_bytes(3));
        packet.extend_from_slice(&[7, 8, 9, 0, 0, 0]);
        assert_eq!(Header::split(&packet), Ok((header, &[7u8, 8, 9][..])));

        assert_eq!(Header::split(&packet[..22]), Err(Malformed::Short));
        packet[6] = 0x20;
        packet[10..12].fill(0);
        let sum = !checksum::sum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Header::split(&packet), Err(Malformed::Fragment));
        packet[8] ^= 1;
        assert_eq!(Header::split(&packet), Err(Malformed::Checksum));
        packet[0] = 0x44;
        assert_eq!(Header::split(&packet), Err(Malformed::Version));
    }

    #[test]
    fn the_next_hop_is_the_gateway_beyond_the_link() {
        let near = Ipv4Addr::new(10, 0, 2, 99);
        assert_eq!(NET.next_hop(near), Some(near));
        assert_eq!(NET.next_hop(Ipv4Addr::new(10, 0, 3, 1)), NET.gateway);
        assert_eq!(Network { gateway: None, ..NET }.next_hop(Ipv4Addr::new(9, 9, 9, 9)), None);
        let everywhere = Network { prefix: 0, ..NET };
        assert!(everywhere.is_local(Ipv4Addr::new(9, 9, 9, 9)));
    }

    #[test]
    fn own_and_group_sources_are_not_believed() {
        assert!(!NET.is_believable(NET.address));
        assert!(!NET.is_believable(Ipv4Addr::new(10, 0, 2, 255)));
        assert!(!NET.is_believable(Ipv4Addr::LOCALHOST));
        assert!(!NET.is_believable(Ipv4Addr::new(224, 0, 0, 1)));
        assert!(NET.is_believable(Ipv4Addr::new(10, 0, 2, 2)));
        assert!(NET.is_believable(Ipv4Addr::new(8, 8, 8, 8)));
    }
}
