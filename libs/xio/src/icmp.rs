//! Answers to pings (RFC 792, echo).

use crate::checksum;
use crate::ethernet::{self, Mac};
use crate::ipv4::{self, Network};

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// Bytes of the fixed part of an echo message.
const ECHO_HEADER: usize = 8;

/// Answers the echo request in `frame` into `out`; the length of the reply, or `None` if there is
/// nothing to answer: not an intact request to us from someone it can come from.
///
/// `out` should hold [`ethernet::FRAME_MAX`] bytes; a reply that doesn't fit isn't made.
pub fn reply_to_echo(network: &Network, own: Mac, frame: &[u8], out: &mut [u8]) -> Option<usize> {
    let (link, packet) = ethernet::Header::split(frame)?;
    if link.kind != ethernet::TYPE_IPV4 || link.destination != own || !link.source.is_unicast() {
        return None;
    }
    let (ip, message) = ipv4::Header::split(packet).ok()?;
    let for_us = ip.destination == network.address && network.is_believable(ip.source);
    if !for_us || ip.protocol != ipv4::ICMP || message.len() < ECHO_HEADER {
        return None;
    }
    // Code 0 is the only one there is for echo.
    if message[0] != ECHO_REQUEST || message[1] != 0 || !checksum::is_intact(message) {
        return None;
    }

    let total = ethernet::HEADER + ipv4::HEADER + message.len();
    let out = out.get_mut(..total)?;
    let link = ethernet::Header { destination: link.source, source: own, kind: link.kind };
    let ip = ipv4::Header { source: ip.destination, destination: ip.source, ..ip };
    let (link_out, rest) = out.split_at_mut(ethernet::HEADER);
    let (ip_out, message_out) = rest.split_at_mut(ipv4::HEADER);
    link_out.copy_from_slice(&link.to_bytes());
    ip_out.copy_from_slice(&ip.to_bytes(u16::try_from(message.len()).ok()?));
    message_out.copy_from_slice(message);
    message_out[0] = ECHO_REPLY;
    message_out[2..4].fill(0);
    let sum = !checksum::sum(message_out);
    message_out[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::vec::Vec;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const NET: Network = Network { address: Ipv4Addr::new(10, 0, 0, 1), prefix: 24, gateway: None };
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn request(payload: &[u8]) -> Vec<u8> {
        let mut message = Vec::from([ECHO_REQUEST, 0, 0, 0, 0x12, 0x34, 0, 1]);
        message.extend_from_slice(payload);
        let sum = !checksum::sum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let link = ethernet::Header { destination: OWN, source: THEIRS, kind: ethernet::TYPE_IPV4 };
        let ip = ipv4::Header { source: PEER, destination: NET.address, protocol: ipv4::ICMP };
        let mut frame = Vec::from(link.to_bytes());
        frame.extend_from_slice(&ip.to_bytes(message.len() as u16));
        frame.extend_from_slice(&message);
        frame
    }

    #[test]
    fn a_ping_comes_back() {
        let frame = request(b"hello");
        let mut out = [0xaa; ethernet::FRAME_MAX];
        let len = reply_to_echo(&NET, OWN, &frame, &mut out).unwrap();
        let (link, packet) = ethernet::Header::split(&out[..len]).unwrap();
        assert_eq!((link.destination, link.source), (THEIRS, OWN));
        let (ip, message) = ipv4::Header::split(packet).unwrap();
        assert_eq!((ip.source, ip.destination), (NET.address, PEER));
        assert_eq!((message[0], &message[4..]), (0, &b"\x12\x34\x00\x01hello"[..]));
        assert!(checksum::is_intact(message));
    }

    #[test]
    fn what_is_no_intact_request_to_us_gets_no_answer() {
        let mut out = [0; ethernet::FRAME_MAX];
        let good = request(b"hello");
        for at in 0..good.len() {
            // The link source is not protected by any sum; anything else changed must show.
            if (6..12).contains(&at) {
                continue;
            }
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert_eq!(reply_to_echo(&NET, OWN, &bad, &mut out), None, "byte {at}");
        }
        for len in 0..good.len() {
            assert_eq!(reply_to_echo(&NET, OWN, &good[..len], &mut out), None);
        }
        assert_eq!(reply_to_echo(&NET, OWN, &good, &mut out[..good.len() - 1]), None);
        let spoofed = Network { address: NET.address, prefix: 32, gateway: None };
        assert!(reply_to_echo(&spoofed, OWN, &good, &mut out).is_some());
    }
}
