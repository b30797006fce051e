//! From an IP packet to a frame: the next hop, its link address, and packets that wait for one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::Counters;
use super::link::{Neighbours, Transmit};
use super::sent::{Highest, carries};
use super::tcp;
use crate::ethernet::{self, Mac};
use crate::ipv4::Network;

/// Packets that wait for link addresses at one time.
pub const HELD_MAX: usize = 16;
/// Microseconds that a packet waits for one.
pub const HELD_US: u64 = 3_000_000;
/// Packets that wait for room on the link at one time: beyond one for each connection in the round
/// that found the link full, these are answers to what came in.
pub const OVERFLOW_MAX: usize = 1024;

/// A copy, if there is memory.
fn copy(packet: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(packet.len()).ok()?;
    copy.extend_from_slice(packet);
    Some(copy)
}

struct Held {
    next_hop: Ipv4Addr,
    until_us: u64,
    packet: Vec<u8>,
}

/// The way out of a station.
pub struct Path {
    pub network: Network,
    pub own: Mac,
    pub highest: Highest,
    /// Did the packet sent last carry anything but an acknowledgement?
    pub carried: bool,
    held: Vec<Held>,
    /// Packets that found the link full, oldest first. The engine takes a packet that was refused
    /// for sent in part, so none is refused; instead it isn't asked for more while these wait.
    overflow: VecDeque<Vec<u8>>,
}

/// Where a packet goes.
enum Way {
    Frame(Mac),
    Unresolved(Ipv4Addr),
    None,
}

impl Path {
    pub fn new(network: Network, own: Mac) -> Path {
        Path {
            network,
            own,
            highest: Highest::default(),
            carried: false,
            held: Vec::new(),
            overflow: VecDeque::new(),
        }
    }

    /// The stations whose link addresses packets wait for.
    pub fn unresolved(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.held.iter().enumerate().filter_map(|(at, held)| {
            let first = self.held.iter().position(|other| other.next_hop == held.next_hop);
            (first == Some(at)).then_some(held.next_hop)
        })
    }

    /// When the first of the packets that wait is given up, microseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        self.held.iter().map(|held| held.until_us).min()
    }

    /// Are there packets that wait for room on the link?
    pub fn is_full(&self) -> bool {
        !self.overflow.is_empty()
    }

    /// Sends what waited and can go now, and gives up what waited too long.
    pub fn flush(
        &mut self,
        now_us: u64,
        tx: &mut impl Transmit,
        neighbours: &impl Neighbours,
        counters: &mut Counters,
    ) {
        while !self.overflow.is_empty() && tx.buffer().is_some() {
            let Some(packet) = self.overflow.pop_front() else { break };
            let fill = |room: &mut [u8]| room.copy_from_slice(&packet);
            self.send(now_us, tx, neighbours, counters, (packet.len(), fill));
        }
        let mut at = 0;
        while at < self.held.len() {
            let held = &self.held[at];
            if let Some(mac) = neighbours.lookup(held.next_hop) {
                let length = ethernet::HEADER + held.packet.len();
                let Some(buffer) = tx.buffer() else { return };
                if let Some(payload) = buffer.get_mut(ethernet::HEADER..length) {
                    payload.copy_from_slice(&held.packet);
                    self.finish(mac, length, tx, counters);
                }
            } else if held.until_us > now_us {
                at += 1;
                continue;
            } else {
                counters.unresolved += 1;
            }
            self.held.remove(at);
        }
    }

    /// Lets `fill` write an IP packet of `length` bytes, and sends it or lets it wait.
    pub fn send<R>(
        &mut self,
        now_us: u64,
        tx: &mut impl Transmit,
        neighbours: &impl Neighbours,
        counters: &mut Counters,
        (length, fill): (usize, impl FnOnce(&mut [u8]) -> R),
    ) -> R {
        let total = ethernet::HEADER + length;
        let Some(payload) = tx.buffer().and_then(|buffer| buffer.get_mut(ethernet::HEADER..total))
        else {
            return self.keep(length, counters, fill);
        };
        let result = fill(payload);
        self.carried = carries(payload);
        self.highest.pass(payload);
        tcp::write_sum(payload);
        match self.way(payload, neighbours) {
            Way::Frame(mac) => self.finish(mac, total, tx, counters),
            Way::Unresolved(next_hop) if self.held.len() < HELD_MAX => {
                let until_us = now_us + HELD_US;
                match copy(payload).filter(|_| self.held.try_reserve(1).is_ok()) {
                    Some(packet) => self.held.push(Held { next_hop, until_us, packet }),
                    None => counters.unresolved += 1,
                }
            }
            Way::Unresolved(_) => counters.unresolved += 1,
            Way::None => counters.no_route += 1,
        }
        result
    }

    /// Lets `fill` write a packet that waits for room on the link, if there is memory for it.
    fn keep<R>(
        &mut self,
        length: usize,
        counters: &mut Counters,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        // The engine writes it in any case.
        let mut packet = [0; ethernet::PAYLOAD_MAX];
        let packet = &mut packet[..length.min(ethernet::PAYLOAD_MAX)];
        let result = fill(packet);
        self.carried = carries(packet);
        let has_room = self.overflow.len() < OVERFLOW_MAX && self.overflow.try_reserve(1).is_ok();
        match copy(packet).filter(|_| has_room) {
            Some(packet) => self.overflow.push_back(packet),
            None => counters.link_full += 1,
        }
        result
    }

    fn way(&self, packet: &[u8], neighbours: &impl Neighbours) -> Way {
        let Some(bytes) = packet.get(16..).and_then(|rest| rest.first_chunk::<4>()) else {
            return Way::None;
        };
        let destination = Ipv4Addr::from(*bytes);
        if self.network.is_own(destination) {
            return Way::Frame(self.own);
        }
        if self.network.is_broadcast(destination) {
            return Way::Frame(Mac::BROADCAST);
        }
        match self.network.next_hop(destination) {
            Some(next_hop) => match neighbours.lookup(next_hop) {
                Some(mac) => Way::Frame(mac),
                None => Way::Unresolved(next_hop),
            },
            None => Way::None,
        }
    }

    /// Writes the link header into the buffer whose payload is written, and sends it.
    fn finish(&self, mac: Mac, total: usize, tx: &mut impl Transmit, counters: &mut Counters) {
        let link =
            ethernet::Header { destination: mac, source: self.own, kind: ethernet::TYPE_IPV4 };
        if let Some(header) = tx.buffer().and_then(|buffer| buffer.first_chunk_mut()) {
            *header = link.to_bytes();
            tx.commit(total);
            counters.sent += 1;
        }
    }
}
