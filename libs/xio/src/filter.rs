//! Packet filters for the protocols spoken here, as the kernel takes them.
//!
//! An atom compares four bytes at a fixed offset, so an IP header must have a fixed length: each
//! filter above IP asks for version 4 and a header of five words, and for a packet that is no
//! fragment. A packet with IP options, or a fragment, is therefore nobody's (appnet 4.3).
//!
//! ```text
//!  offset 12        16        20               24        30        34          38
//!    │ type    │45 tos│ length id │ fragment ttl prot │ sum  src │ dst … │ ports / type │
//! ```

use core::net::{Ipv4Addr, SocketAddrV4};

use abi::filter::{FilterAtom, FilterProgram};
use abi::limits::FILTER_ATOMS;

use crate::{ethernet, ipv4};

const TYPE: u16 = 12;
const FRAGMENT_AND_PROTOCOL: u16 = 20;
const SOURCE: u16 = 26;
const DESTINATION: u16 = 30;
const PAYLOAD: u16 = 34;

/// Atoms that must all hold; built by one of the functions below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    atoms: [FilterAtom; FILTER_ATOMS],
    count: usize,
}

impl Filter {
    /// Every ARP packet.
    pub fn arp() -> Filter {
        Filter::default().and(TYPE, 0xffff_0000, u32::from(ethernet::TYPE_ARP) << 16)
    }

    /// ICMP echo requests (pings) to `address`.
    pub fn echo_request(address: Ipv4Addr) -> Filter {
        ip(ipv4::ICMP, address).and(PAYLOAD, 0xff00_0000, 8 << 24)
    }

    /// UDP datagrams to `local`, from anyone.
    pub fn udp(local: SocketAddrV4) -> Filter {
        ip(ipv4::UDP, *local.ip()).and(PAYLOAD, 0x0000_ffff, u32::from(local.port()))
    }

    /// TCP segments to `local`, from anyone: a listener's, its connections included.
    pub fn tcp_listen(local: SocketAddrV4) -> Filter {
        ip(ipv4::TCP, *local.ip()).and(PAYLOAD, 0x0000_ffff, u32::from(local.port()))
    }

    /// TCP segments of one connection: a strict subset of `tcp_listen(local)`.
    pub fn tcp_connection(local: SocketAddrV4, peer: SocketAddrV4) -> Filter {
        let ports = u32::from(peer.port()) << 16 | u32::from(local.port());
        ip(ipv4::TCP, *local.ip()).and(SOURCE, u32::MAX, peer.ip().to_bits()).and(
            PAYLOAD,
            u32::MAX,
            ports,
        )
    }

    /// Adds the comparison of the four bytes at `offset` under `mask`.
    ///
    /// # Panics
    /// With more than [`FILTER_ATOMS`] atoms, which only a mistake in the caller can bring about.
    #[must_use]
    pub fn and(mut self, offset: u16, mask: u32, value: u32) -> Filter {
        self.atoms[self.count] = FilterAtom { offset, zero: 0, mask, value: value & mask };
        self.count += 1;
        self
    }

    /// The atoms.
    pub fn atoms(&self) -> &[FilterAtom] {
        &self.atoms[..self.count]
    }

    /// The filter as `FilterInsert` takes it.
    pub fn program(&self, interface: u16, ring: u64) -> FilterProgram {
        FilterProgram {
            interface,
            flags: 0,
            count: self.count as u32,
            ring,
            parent: 0,
            atoms: self.atoms,
        }
    }

    /// Would the kernel give a frame to this filter? For tests and for demultiplexing a ring again.
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.atoms().iter().all(|atom| atom_matches(atom, frame))
    }
}

fn ip(protocol: u8, destination: Ipv4Addr) -> Filter {
    Filter::default()
        .and(TYPE, 0xffff_ff00, u32::from(ethernet::TYPE_IPV4) << 16 | 0x4500)
        .and(FRAGMENT_AND_PROTOCOL, 0x3fff_00ff, u32::from(protocol))
        .and(DESTINATION, u32::MAX, destination.to_bits())
}

/// Bytes beyond the frame's end match only where the mask does not look.
fn atom_matches(atom: &FilterAtom, frame: &[u8]) -> bool {
    let at = usize::from(atom.offset);
    let mask = atom.mask.to_be_bytes();
    let value = atom.value.to_be_bytes();
    (0..4).all(|byte| match frame.get(at + byte) {
        Some(found) => found & mask[byte] == value[byte],
        None => mask[byte] == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Header, Mac};
    use std::vec::Vec;

    const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 15), 80);
    const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 2), 40000);

    fn segment(protocol: u8, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
        let ethernet =
            Header { destination: Mac([2; 6]), source: Mac([4; 6]), kind: ethernet::TYPE_IPV4 };
        let ip = ipv4::Header { source: *from.ip(), destination: *to.ip(), protocol };
        let mut frame = Vec::from(ethernet.to_bytes());
        frame.extend_from_slice(&ip.to_bytes(20));
        frame.extend_from_slice(&from.port().to_be_bytes());
        frame.extend_from_slice(&to.port().to_be_bytes());
        frame.resize(frame.len() + 16, 0);
        frame
    }

    #[test]
    fn a_listener_gets_its_port_only() {
        let filter = Filter::tcp_listen(LOCAL);
        let frame = segment(ipv4::TCP, PEER, LOCAL);
        assert!(filter.matches(&frame));
        assert!(!filter.matches(&segment(ipv4::UDP, PEER, LOCAL)));
        assert!(!filter.matches(&segment(ipv4::TCP, LOCAL, PEER)));
        assert!(Filter::udp(LOCAL).matches(&segment(ipv4::UDP, PEER, LOCAL)));
        let other = SocketAddrV4::new(*LOCAL.ip(), 81);
        assert!(!filter.matches(&segment(ipv4::TCP, PEER, other)));
    }

    #[test]
    fn a_connection_is_a_subset_of_its_listener() {
        let connection = Filter::tcp_connection(LOCAL, PEER);
        assert!(connection.matches(&segment(ipv4::TCP, PEER, LOCAL)));
        let stranger = SocketAddrV4::new(*PEER.ip(), 40001);
        assert!(!connection.matches(&segment(ipv4::TCP, stranger, LOCAL)));
        for of_listener in Filter::tcp_listen(LOCAL).atoms() {
            assert!(connection.atoms().iter().any(|atom| {
                atom.offset == of_listener.offset
                    && atom.mask & of_listener.mask == of_listener.mask
                    && atom.value & of_listener.mask == of_listener.value
            }));
        }
    }

    #[test]
    fn options_fragments_and_runts_match_nothing() {
        let filter = Filter::tcp_listen(LOCAL);
        let good = segment(ipv4::TCP, PEER, LOCAL);
        let mut options = good.clone();
        options[14] = 0x46;
        assert!(!filter.matches(&options));
        let mut fragment = good.clone();
        fragment[20] |= 0x20;
        assert!(!filter.matches(&fragment));
        for len in 0..38 {
            assert!(!filter.matches(&good[..len]), "{len} bytes");
        }
        assert!(filter.matches(&good[..38]));
    }

    #[test]
    fn arp_and_pings() {
        let mut frame = segment(ipv4::ICMP, PEER, LOCAL);
        frame[34] = 8;
        assert!(Filter::echo_request(*LOCAL.ip()).matches(&frame));
        frame[34] = 0;
        assert!(!Filter::echo_request(*LOCAL.ip()).matches(&frame));
        frame[12..14].copy_from_slice(&ethernet::TYPE_ARP.to_be_bytes());
        assert!(Filter::arp().matches(&frame));
        assert!(Filter::arp().matches(&frame[..14]));
    }
}
