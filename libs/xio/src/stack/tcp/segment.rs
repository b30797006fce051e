//! The segments that aren't the engine's: an acknowledgement and a reset without a connection.

use core::net::Ipv4Addr;

use crate::stack::ingress::Segment;
use crate::{checksum, ipv4};

/// Flags of TCP.
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A bare acknowledgement of a FIN, its numbers taken from the FIN itself.
pub fn acknowledgement(segment: &Segment) -> [u8; 40] {
    bare(segment, segment.acknowledges, segment.after, ACK)
}

/// The reset that answers a segment to nobody (RFC 9293 §3.10.7.1).
pub fn reset(segment: &Segment) -> [u8; 40] {
    if segment.acknowledges_anything() {
        bare(segment, segment.acknowledges, 0, RST)
    } else {
        bare(segment, 0, segment.after, RST | ACK)
    }
}

/// The SYN of a handshake as if it were part of the connection that its sender has here, of which
/// `sent` have been sent: the engine drops a SYN that acknowledges nothing, and answers this one.
pub fn of_a_connection(segment: &Segment, sent: u32) -> [u8; 40] {
    let (to, from) = ((segment.local, segment.port), (*segment.peer.ip(), segment.peer.port()));
    between(from, to, (segment.after.wrapping_sub(1), sent), SYN | ACK)
}

/// A segment without bytes or options that goes back to where `segment` came from.
fn bare(segment: &Segment, sequence: u32, acknowledges: u32, flags: u8) -> [u8; 40] {
    let (from, to) = ((segment.local, segment.port), (*segment.peer.ip(), segment.peer.port()));
    between(from, to, (sequence, acknowledges), flags)
}

fn between(
    (source, from): (Ipv4Addr, u16),
    (destination, to): (Ipv4Addr, u16),
    (sequence, acknowledges): (u32, u32),
    flags: u8,
) -> [u8; 40] {
    let ip = ipv4::Header { source, destination, protocol: ipv4::TCP };
    let mut packet = [0; 40];
    let (header, tcp) = packet.split_at_mut(ipv4::HEADER);
    header.copy_from_slice(&ip.to_bytes(20));
    tcp[0..2].copy_from_slice(&from.to_be_bytes());
    tcp[2..4].copy_from_slice(&to.to_be_bytes());
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledges.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = flags;
    write_sum(&mut packet);
    packet
}

/// Is the sum of the segment behind this header right?
pub fn sum_is_right(ip: &ipv4::Header, segment: &[u8]) -> bool {
    checksum::combine(pseudo_header(ip, segment.len()), checksum::sum(segment)) == 0xffff
}

/// Writes its sum into the segment of a packet of ours, which has no options in its IP header.
pub fn write_sum(packet: &mut [u8]) {
    let Some((header, segment)) = packet.split_first_chunk_mut::<{ ipv4::HEADER }>() else {
        return;
    };
    if header[9] != ipv4::TCP || segment.len() < 20 {
        return;
    }
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let ip = ipv4::Header { source: address(12), destination: address(16), protocol: ipv4::TCP };
    segment[16..18].fill(0);
    let sum = !checksum::combine(pseudo_header(&ip, segment.len()), checksum::sum(segment));
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of what TCP's checksum covers beside the segment (RFC 9293 §3.1).
fn pseudo_header(ip: &ipv4::Header, length: usize) -> u16 {
    let mut bytes = [0; 12];
    bytes[0..4].copy_from_slice(&ip.source.octets());
    bytes[4..8].copy_from_slice(&ip.destination.octets());
    bytes[9] = ip.protocol;
    bytes[10..12].copy_from_slice(&(length as u16).to_be_bytes());
    checksum::sum(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A segment of 21 bytes whose sum was worked out by hand: every word that the sum covers is 0
    /// but the addresses, the protocol, the length and the last byte.
    #[test]
    fn a_sum_covers_addresses_protocol_length_and_an_odd_byte() {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let ip = ipv4::Header { source, destination, protocol: ipv4::TCP };
        let mut packet = Vec::from(ip.to_bytes(21));
        packet.resize(40, 0);
        packet.push(0x80);
        write_sum(&mut packet);
        // 0a00 + 0001 + 0a00 + 0002 + 0006 + 0015 + 8000 = 941e
        assert_eq!(packet[36..38], (!0x941e_u16).to_be_bytes());
        assert!(sum_is_right(&ip, &packet[20..]));
        for at in 20..packet.len() {
            packet[at] ^= 1;
            assert!(!sum_is_right(&ip, &packet[20..]), "byte {at}");
            packet[at] ^= 1;
        }
    }
}
