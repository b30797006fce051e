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
use crate::{checksum, ipv4};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// The number behind the last byte ever sent, by connection.
#[derive(Default)]
pub struct Highest {
    numbers: BTreeMap<Key, u32>,
}

impl Highest {
    /// Looks at an IP packet about to leave, and corrects it if it is such an acknowledgement.
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
        let carried = tcp.len().saturating_sub(usize::from(header[12] >> 4) * 4) as u32;
        let after = number.wrapping_add(carried + u32::from(flags & (SYN | FIN) != 0));
        if flags & SYN != 0 {
            self.numbers.insert(key, after);
            return;
        }
        let Some(highest) = self.numbers.get_mut(&key) else { return };
        if precedes(*highest, after) {
            *highest = after;
        } else if after == number && flags & RST == 0 && precedes(number, *highest) {
            renumber(tcp, number, *highest);
        }
    }

    /// The connection is over.
    pub fn forget(&mut self, key: &Key) {
        self.numbers.remove(key);
    }
}

/// Does sequence number `first` come before `second`?
fn precedes(first: u32, second: u32) -> bool {
    (second.wrapping_sub(first) as i32) > 0
}

/// Replaces the sequence number and corrects the sum by the difference (RFC 1624).
fn renumber(tcp: &mut [u8], old: u32, new: u32) {
    tcp[4..8].copy_from_slice(&new.to_be_bytes());
    let without = checksum::combine(
        !u16::from_be_bytes([tcp[16], tcp[17]]),
        checksum::sum(&(!old).to_be_bytes()),
    );
    let sum = !checksum::combine(without, checksum::sum(&new.to_be_bytes()));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
}
