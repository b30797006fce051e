//! The station's side of ARP: answers requests, learns from packets, asks for who is wanted.
//!
//! What is believed (RFC 826, RFC 1122 §2.3.2; ARP has no proof of anything): a packet changes the
//! table only if it is well formed, comes from the link address that it claims, from a single
//! station of our network that isn't us, and either is about someone already in the table, or is
//! addressed to us. A malformed packet changes nothing and is counted.

use core::net::Ipv4Addr;

use super::{FRAME, Operation, Packet, Writer};
use crate::ethernet::{self, Mac};
use crate::ipv4::Network;

/// Addresses asked for at one time.
pub const WANTED_MAX: usize = 16;
/// Of these, those that one asker may have.
pub const EACH_MAX: usize = WANTED_MAX / 2;
/// Requests sent for one address before it is given up.
pub const ATTEMPTS: u8 = 3;
/// Microseconds from one request to the next.
pub const RETRY_US: u64 = 1_000_000;
/// Microseconds from one look for old entries to the next.
const SWEEP_US: u64 = 60_000_000;

/// Why a packet changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No ARP packet for IPv4 on Ethernet, or cut short.
    Malformed,
    /// The frame's source and the sender's link address differ, or it is a group's.
    Sender,
    /// The sender claims our address.
    Conflict,
    /// The sender's address can't be on this link.
    Foreign,
    /// Nothing wrong, but of no concern to us.
    Unconcerned,
}

/// What came of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send this frame back; the sender was learned.
    Reply([u8; FRAME]),
    /// The table was changed or confirmed.
    Learned,
    /// Nothing.
    Refused(Refusal),
}

#[derive(Clone, Copy)]
struct Wanted {
    address: Ipv4Addr,
    asker: u64,
    next_us: u64,
    left: u8,
}

/// Owner of a table: what `arpd` is around its rings.
pub struct Resolver<'a> {
    network: Network,
    own: Mac,
    table: Writer<'a>,
    wanted: [Option<Wanted>; WANTED_MAX],
    swept_us: u64,
}

impl<'a> Resolver<'a> {
    /// A resolver for the station `own` in `network` that keeps `table`.
    pub fn new(network: Network, own: Mac, table: Writer<'a>) -> Resolver<'a> {
        Resolver { network, own, table, wanted: [None; WANTED_MAX], swept_us: 0 }
    }

    /// The table it keeps.
    pub fn table(&self) -> &Writer<'a> {
        &self.table
    }

    /// Takes in a frame.
    pub fn handle(&mut self, frame: &[u8], now_us: u64) -> Outcome {
        match self.judge(frame) {
            Ok(packet) => self.learn(&packet, now_us),
            Err(refusal) => {
                if refusal != Refusal::Unconcerned {
                    self.table.count_refused();
                }
                Outcome::Refused(refusal)
            }
        }
    }

    /// Asks for `address` until it is known or given up; `false`: too many are asked for, by
    /// `asker` or by all.
    pub fn want(&mut self, address: Ipv4Addr, asker: u64, now_us: u64) -> bool {
        if !self.network.is_local(address) || address == self.network.address {
            return true;
        }
        if self.wanted.iter().flatten().any(|wanted| wanted.address == address) {
            return true;
        }
        if self.wanted.iter().flatten().filter(|wanted| wanted.asker == asker).count() >= EACH_MAX {
            return false;
        }
        let Some(place) = self.wanted.iter_mut().find(|place| place.is_none()) else {
            return false;
        };
        *place = Some(Wanted { address, asker, next_us: now_us, left: ATTEMPTS });
        true
    }

    /// The next request that is due; call again until there is none.
    pub fn poll(&mut self, now_us: u64) -> Option<[u8; FRAME]> {
        if now_us.saturating_sub(self.swept_us) >= SWEEP_US {
            self.table.sweep(now_us);
            self.swept_us = now_us;
        }
        for place in &mut self.wanted {
            let Some(wanted) = place else { continue };
            if wanted.next_us > now_us {
                continue;
            }
            let address = wanted.address;
            if wanted.left == 0 {
                *place = None;
                continue;
            }
            wanted.left -= 1;
            wanted.next_us = now_us + RETRY_US;
            return Some(Packet::request(self.own, self.network.address, address));
        }
        None
    }

    /// When `poll` next has something to do, microseconds; `None`: when something is wanted.
    pub fn next_deadline(&self) -> Option<u64> {
        self.wanted.iter().flatten().map(|wanted| wanted.next_us).min()
    }

    fn judge(&self, frame: &[u8]) -> Result<Packet, Refusal> {
        let (link, payload) = ethernet::Header::split(frame).ok_or(Refusal::Malformed)?;
        if link.kind != ethernet::TYPE_ARP {
            return Err(Refusal::Malformed);
        }
        let packet = Packet::parse(payload).ok_or(Refusal::Malformed)?;
        if packet.sender_mac != link.source || !link.source.is_unicast() || link.source == self.own
        {
            return Err(Refusal::Sender);
        }
        if packet.sender == self.network.address {
            return Err(Refusal::Conflict);
        }
        // A probe for duplicates (RFC 5227) has no sender address: answered, never learned.
        let probe = packet.sender.is_unspecified() && packet.operation == Operation::Request;
        let believable =
            self.network.is_local(packet.sender) && self.network.is_believable(packet.sender);
        if !probe && !believable {
            return Err(Refusal::Foreign);
        }
        if packet.target != self.network.address && self.table.get(packet.sender).is_none() {
            return Err(Refusal::Unconcerned);
        }
        Ok(packet)
    }

    fn learn(&mut self, packet: &Packet, now_us: u64) -> Outcome {
        if !packet.sender.is_unspecified() {
            self.table.set(packet.sender, packet.sender_mac, now_us);
            for place in &mut self.wanted {
                if place.is_some_and(|wanted| wanted.address == packet.sender) {
                    *place = None;
                }
            }
        }
        if packet.operation == Operation::Request && packet.target == self.network.address {
            return Outcome::Reply(packet.reply(self.own));
        }
        Outcome::Learned
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const NET: Network = Network { address: US, prefix: 24, gateway: None };

    fn words() -> Vec<AtomicU64> {
        (0..512).map(|_| AtomicU64::new(0)).collect()
    }

    fn resolver(words: &[AtomicU64]) -> Resolver<'_> {
        Resolver::new(NET, OWN, Table::over(words).create())
    }

    #[test]
    fn a_request_for_us_is_answered_and_teaches() {
        let words = words();
        let mut resolver = resolver(&words);
        let outcome = resolver.handle(&Packet::request(THEIRS, THEM, US), 3);
        let Outcome::Reply(frame) = outcome else { panic!("{outcome:?}") };
        let reply = Packet::parse(&frame[ethernet::HEADER..]).unwrap();
        assert_eq!((reply.operation, reply.sender_mac), (Operation::Reply, OWN));
        assert_eq!((reply.sender, reply.target, reply.target_mac), (US, THEM, THEIRS));
        assert_eq!(resolver.table().get(THEM).unwrap().mac, THEIRS);
    }

    #[test]
    fn a_probe_is_answered_but_not_learned() {
        let words = words();
        let mut resolver = resolver(&words);
        let probe = Packet::request(THEIRS, Ipv4Addr::UNSPECIFIED, US);
        assert!(matches!(resolver.handle(&probe, 0), Outcome::Reply(_)));
        assert_eq!(resolver.table().reader().age().entries, 0);
    }

    #[test]
    fn requests_are_repeated_then_given_up() {
        let words = words();
        let mut resolver = resolver(&words);
        assert!(resolver.want(THEM, 1, 0));
        assert!(resolver.want(THEM, 1, 0));
        for attempt in 0..u64::from(ATTEMPTS) {
            let now = attempt * RETRY_US;
            assert_eq!(resolver.poll(now), Some(Packet::request(OWN, US, THEM)));
            assert_eq!(resolver.poll(now), None);
            assert_eq!(resolver.next_deadline(), Some(now + RETRY_US));
        }
        assert_eq!(resolver.poll(3 * RETRY_US), None);
        assert_eq!(resolver.next_deadline(), None);
    }

    #[test]
    fn one_asker_leaves_half_of_the_places() {
        let words = words();
        let mut resolver = resolver(&words);
        let mut want = |asker, last: usize| {
            resolver.want(Ipv4Addr::from_octets([10, 0, 0, 100 + last as u8]), asker, 0)
        };
        for last in 0..EACH_MAX {
            assert!(want(1, last));
        }
        assert!(!want(1, EACH_MAX) && want(1, 0) && want(2, EACH_MAX));
    }

    #[test]
    fn a_late_reply_ends_the_asking() {
        let words = words();
        let mut resolver = resolver(&words);
        resolver.want(THEM, 1, 0);
        let request = resolver.poll(0).unwrap();
        let asked = Packet::parse(&request[ethernet::HEADER..]).unwrap();
        assert_eq!(resolver.poll(RETRY_US), Some(request));
        assert_eq!(resolver.handle(&asked.reply(THEIRS), RETRY_US + 1), Outcome::Learned);
        assert_eq!(resolver.table().get(THEM).unwrap().mac, THEIRS);
        assert_eq!(resolver.poll(9 * RETRY_US), None);
    }

    #[test]
    fn what_is_malformed_or_forged_leaves_the_table_unchanged() {
        let words = words();
        let mut resolver = resolver(&words);
        resolver.handle(&Packet::request(THEIRS, THEM, US), 0);
        let good = Packet { sender_mac: THEIRS, ..parse(&Packet::request(OWN, THEM, US)) };
        let entries = |resolver: &Resolver| {
            let reader = resolver.table().reader();
            (0..reader.places()).map(|n| reader.place(n)).collect::<Vec<_>>()
        };
        let before = entries(&resolver);

        let mut wrong_source = good.to_frame(OWN);
        wrong_source[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        let from = |sender, sender_mac| Packet { sender, sender_mac, ..good }.to_frame(OWN);
        let cases = [
            (wrong_source, Refusal::Sender),
            (from(THEM, Mac::BROADCAST), Refusal::Sender),
            (from(THEM, OWN), Refusal::Sender),
            (from(US, THEIRS), Refusal::Conflict),
            (from(Ipv4Addr::new(192, 168, 0, 1), THEIRS), Refusal::Foreign),
            (from(Ipv4Addr::new(10, 0, 0, 255), THEIRS), Refusal::Foreign),
            (
                Packet { target: Ipv4Addr::new(10, 0, 0, 7), ..parse(&from(stranger(), THEIRS)) }
                    .to_frame(OWN),
                Refusal::Unconcerned,
            ),
        ];
        for (frame, refusal) in cases {
            assert_eq!(resolver.handle(&frame, 9), Outcome::Refused(refusal));
            assert_eq!(entries(&resolver), before);
        }
        let frame = good.to_frame(OWN);
        for len in 0..FRAME {
            let outcome = resolver.handle(&frame[..len], 9);
            assert_eq!(outcome, Outcome::Refused(Refusal::Malformed), "{len} bytes");
        }
        assert_eq!(entries(&resolver), before);
        assert_eq!(resolver.table().reader().age().refused, 6 + FRAME as u32);
    }

    fn stranger() -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, 66)
    }

    fn parse(frame: &[u8]) -> Packet {
        Packet::parse(&frame[ethernet::HEADER..]).unwrap()
    }
}
