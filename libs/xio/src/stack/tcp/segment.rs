//! The segments that aren't the engine's: an acknowledgement and a reset without a connection.

use crate::stack::ingress::Segment;
use crate::{checksum, ethernet, ipv4};

/// Flags of TCP.
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

/// A segment without bytes or options that goes back to where `segment` came from.
fn bare(segment: &Segment, sequence: u32, acknowledges: u32, flags: u8) -> [u8; 40] {
    let (source, destination) = (segment.local, *segment.peer.ip());
    let ip = ipv4::Header { source, destination, protocol: ipv4::TCP };
    let mut packet = [0; 40];
    let (header, tcp) = packet.split_at_mut(ipv4::HEADER);
    header.copy_from_slice(&ip.to_bytes(20));
    tcp[0..2].copy_from_slice(&segment.port.to_be_bytes());
    tcp[2..4].copy_from_slice(&segment.peer.port().to_be_bytes());
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledges.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = flags;
    let sum = !checksum::combine(pseudo_header(&ip, 20), checksum::sum(tcp));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Is the sum of the segment in this frame right?
pub fn sum_is_right(frame: &[u8]) -> bool {
    let Some(packet) = frame.get(ethernet::HEADER..) else { return false };
    let Ok((ip, segment)) = ipv4::Header::split(packet) else { return false };
    checksum::combine(pseudo_header(&ip, segment.len()), checksum::sum(segment)) == 0xffff
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
