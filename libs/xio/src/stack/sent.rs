//! Bare acknowledgements carry the highest sequence number sent, not the one sent next.
//!
//! After a time-out the engine goes back to the first byte that nobody acknowledged, and its
//! acknowledgements then carry that number. The peer must ignore them, acknowledgement and all, if
//! it lies below its window (RFC 9293 §3.10.7.4). When both ends have gone back neither hears the
//! other ever again. BSD's rule ends that: what carries neither data nor FIN carries SND.MAX. It
//! is applied here, on the way out.

use alloc::collections::BTreeMap;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::time_wait::Key;
use crate::ipv4;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// The number behind the last byte ever sent, by connection.
#[derive(Default)]
pub struct Highest {
    numbers: BTreeMap<Key, u32>,
}

impl Highest {
    /// Looks at an IP packet about to leave, and corrects it if it is such an acknowledgement; its
    /// sum is written afterwards.
    pub fn pass(&mut self, packet: &mut [u8]) {
        // The engine wrote it: no options in the IP header.
        let Some((ip, tcp)) = packet.split_first_chunk_mut::<{ ipv4::HEADER }>() else { return };
        let Some(header) = tcp.first_chunk::<20>() else { return };
        if ip[9] != ipv4::TCP {
            return;
        }
        let peer = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let key = (SocketAddrV4::new(peer, short(2)), short(0));
        let number = u32::from(short(4)) << 16 | u32::from(short(6));
        let flags = header[13];
        let after = number.wrapping_add(carried(header, tcp.len()));
        if flags & SYN != 0 {
            self.numbers.insert(key, after);
            return;
        }
        let Some(highest) = self.numbers.get_mut(&key) else { return };
        if precedes(*highest, after) {
            *highest = after;
        } else if after == number && flags & RST == 0 && precedes(number, *highest) {
            tcp[4..8].copy_from_slice(&highest.to_be_bytes());
        }
    }

    /// The number behind the last byte that was ever sent on a connection.
    pub fn of(&self, key: &Key) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// Was what this number acknowledges never sent on a connection? Then its number.
    pub fn short_of(&self, key: &Key, acknowledged: u32) -> Option<u32> {
        self.of(key).filter(|highest| precedes(*highest, acknowledged))
    }

    /// The connection is over.
    pub fn forget(&mut self, key: &Key) {
        self.numbers.remove(key);
    }
}

/// Does an IP packet of ours carry anything that takes a sequence number? What isn't TCP's does.
pub fn carries(packet: &[u8]) -> bool {
    let Some((ip, tcp)) = packet.split_first_chunk::<{ ipv4::HEADER }>() else { return true };
    let Some(header) = tcp.first_chunk::<20>().filter(|_| ip[9] == ipv4::TCP) else { return true };
    carried(header, tcp.len()) > 0
}

/// How many sequence numbers a segment of so many bytes takes.
fn carried(header: &[u8; 20], length: usize) -> u32 {
    let bytes = length.saturating_sub(usize::from(header[12] >> 4) * 4) as u32;
    bytes + u32::from(header[13] & (SYN | FIN) != 0)
}

/// Does sequence number `first` come before `second`?
fn precedes(first: u32, second: u32) -> bool {
    (second.wrapping_sub(first) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// An IP packet with a TCP segment, as the engine writes it.
    fn packet(number: u32, flags: u8, payload: usize) -> Vec<u8> {
        let (own, peer) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let ip = ipv4::Header { source: own, destination: peer, protocol: ipv4::TCP };
        let mut packet = Vec::from(ip.to_bytes(20 + payload as u16));
        packet.extend_from_slice(&[0, 80, 0x9c, 0x40]);
        packet.extend_from_slice(&number.to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 9, 5 << 4, flags, 1, 0, 0, 0, 0, 0]);
        packet.resize(40 + payload, 7);
        packet
    }

    fn number(packet: &[u8]) -> u32 {
        u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]])
    }

    #[test]
    fn acknowledgements_carry_the_highest_number() {
        for first in [5_u32, 0xffff_fff0, 0x7fff_ffff] {
            let mut highest = Highest::default();
            highest.pass(&mut packet(first, SYN, 0));
            highest.pass(&mut packet(first.wrapping_add(1), 16, 1000));
            let mut late = packet(first.wrapping_add(1), 16, 0);
            highest.pass(&mut late);
            assert_eq!(number(&late), first.wrapping_add(1001));
        }
    }

    #[test]
    fn what_carries_something_or_resets_keeps_its_number() {
        let mut highest = Highest::default();
        highest.pass(&mut packet(0, SYN, 0));
        highest.pass(&mut packet(1, 16, 1000));
        for (flags, payload) in [(16, 10), (FIN | 16, 0), (RST | 16, 0)] {
            let mut again = packet(1, flags, payload);
            let before = again.clone();
            highest.pass(&mut again);
            assert_eq!(again, before);
        }
        highest.forget(&(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 40_000), 80));
        let mut unknown = packet(1, 16, 0);
        highest.pass(&mut unknown);
        assert_eq!(number(&unknown), 1);
    }

    #[test]
    fn what_was_never_sent_is_told() {
        for first in [5_u32, 0xffff_fff0, 0x7fff_ffff] {
            let mut highest = Highest::default();
            let key = (SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 40_000), 80);
            assert_eq!(highest.short_of(&key, first), None);
            highest.pass(&mut packet(first, SYN, 0));
            highest.pass(&mut packet(first.wrapping_add(1), 16, 1000));
            let sent = first.wrapping_add(1001);
            assert_eq!(highest.short_of(&key, sent), None);
            assert_eq!(highest.short_of(&key, first), None);
            assert_eq!(highest.short_of(&key, sent.wrapping_add(1)), Some(sent));
        }
    }

    #[test]
    fn bytes_and_ends_take_numbers() {
        let cases = [(16, 0, false), (RST, 0, false), (16, 1, true), (FIN | 16, 0, true)];
        for (flags, payload, takes) in cases {
            assert_eq!(carries(&packet(1, flags, payload)), takes, "{flags} {payload}");
        }
        let mut datagram = packet(1, 16, 0);
        datagram[9] = ipv4::UDP;
        assert!(carries(&datagram));
    }
}
