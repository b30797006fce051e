//! ARP for IPv4 on Ethernet (RFC 826): packets, the table all may read, and who answers.

mod resolver;
mod table;

use core::net::Ipv4Addr;

use crate::ethernet::{self, Mac};

pub use resolver::{Outcome, Refusal, Resolver};
pub use table::{Age, Entry, Reader, Table, Writer};

/// Bytes of a packet, Ethernet header excluded.
pub const PACKET: usize = 28;
/// Bytes of the frame that carries one, not padded.
pub const FRAME: usize = ethernet::HEADER + PACKET;

/// What a packet asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target's protocol address?
    Request,
    /// The sender has.
    Reply,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Link address of who sent it.
    pub sender_mac: Mac,
    /// Protocol address of who sent it; unspecified in a probe for duplicates.
    pub sender: Ipv4Addr,
    /// Link address of who is asked; without meaning in a request.
    pub target_mac: Mac,
    /// Protocol address of who is asked.
    pub target: Ipv4Addr,
}

/// Hardware type Ethernet, protocol type IPv4, address lengths 6 and 4.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

impl Packet {
    /// Reads the payload of a frame of type [`ethernet::TYPE_ARP`]; padding behind it is ignored.
    pub fn parse(payload: &[u8]) -> Option<Packet> {
        let bytes = payload.first_chunk::<PACKET>()?;
        if bytes[..6] != KIND {
            return None;
        }
        let operation = match u16::from_be_bytes([bytes[6], bytes[7]]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return None,
        };
        let mac = |at: usize| {
            let mut mac = Mac::default();
            mac.0.copy_from_slice(&bytes[at..at + 6]);
            mac
        };
        let address =
            |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        Some(Packet {
            operation,
            sender_mac: mac(8),
            sender: address(14),
            target_mac: mac(18),
            target: address(24),
        })
    }

    /// The question who has `target`, as a frame to everyone.
    pub fn request(own: Mac, address: Ipv4Addr, target: Ipv4Addr) -> [u8; FRAME] {
        let packet = Packet {
            operation: Operation::Request,
            sender_mac: own,
            sender: address,
            target_mac: Mac::UNKNOWN,
            target,
        };
        packet.to_frame(Mac::BROADCAST)
    }

    /// The answer to this request from the station at `own` that has its target address.
    pub fn reply(&self, own: Mac) -> [u8; FRAME] {
        let packet = Packet {
            operation: Operation::Reply,
            sender_mac: own,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        };
        packet.to_frame(self.sender_mac)
    }

    /// The packet in a frame to `destination`.
    pub fn to_frame(&self, destination: Mac) -> [u8; FRAME] {
        let link =
            ethernet::Header { destination, source: self.sender_mac, kind: ethernet::TYPE_ARP };
        let mut frame = [0; FRAME];
        let (header, bytes) = frame.split_at_mut(ethernet::HEADER);
        header.copy_from_slice(&link.to_bytes());
        bytes[..6].copy_from_slice(&KIND);
        bytes[7] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target.octets());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_survives_its_bytes() {
        let own = Mac([2, 0, 0, 0, 0, 1]);
        let us = Ipv4Addr::new(10, 0, 0, 1);
        let them = Ipv4Addr::new(10, 0, 0, 2);
        let frame = Packet::request(own, us, them);
        let (link, payload) = ethernet::Header::split(&frame).unwrap();
        assert_eq!((link.destination, link.kind), (Mac::BROADCAST, ethernet::TYPE_ARP));
        let request = Packet::parse(payload).unwrap();
        assert_eq!((request.sender, request.target), (us, them));

        let theirs = Mac([2, 0, 0, 0, 0, 2]);
        let frame = request.reply(theirs);
        let (link, payload) = ethernet::Header::split(&frame).unwrap();
        assert_eq!(link.destination, own);
        let reply = Packet::parse(payload).unwrap();
        assert_eq!((reply.sender_mac, reply.sender), (theirs, them));
        assert_eq!((reply.target_mac, reply.target), (own, us));
    }

    #[test]
    fn other_protocols_and_short_packets_are_refused() {
        let frame = Packet::request(Mac([2; 6]), Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        let payload = &frame[ethernet::HEADER..];
        assert!(Packet::parse(payload).is_some());
        for len in 0..PACKET {
            assert_eq!(Packet::parse(&payload[..len]), None);
        }
        for at in 0..8 {
            let mut bad = [0; PACKET];
            bad.copy_from_slice(payload);
            bad[at] ^= 0x10;
            assert_eq!(Packet::parse(&bad), None, "byte {at}");
        }
    }
}
