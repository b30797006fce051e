//! Calls for rings and filters, and the device that sends and receives.

use super::Model;
use super::calls::BUFFER;
use crate::net;
use abi::call::Call;
use abi::id::{FilterId, RingId};
use abi::word::UserAddress;

impl Model {
    pub(super) fn some_network_call(&mut self, caller: usize, word: u64) -> Call {
        let filter = FilterId(self.state.published.filters[1 + self.random.below(10)].id);
        let ring = self.some_ring();
        match self.random.below(10) {
            0..=1 => Call::RingAlloc { entries: BUFFER, count: word & 3 },
            2 => Call::RingModify { ring, index: word & 3, entry: BUFFER },
            3 if word & 1 != 0 => Call::RingFree { ring },
            4..=5 => Call::FilterInsert { program: BUFFER },
            6 if word & 1 != 0 => Call::FilterDrop { filter },
            7 => Call::FilterReference { filter, domain: self.some_domain_id() },
            8 => Call::FilterRing { filter, ring },
            _ => Call::NetTransmit {
                interface: u16::from(self.random.one_in(9)),
                pieces: BUFFER,
                count: word & 3,
                pending: UserAddress(self.some_own_page(caller)),
            },
        }
    }

    pub(super) fn some_ring(&mut self) -> RingId {
        RingId(self.state.published.rings[1 + self.random.below(6)].id)
    }

    /// The device has sent a packet, or received one.
    pub(super) fn network(&mut self) {
        if !self.machine.sending.is_empty() && self.random.one_in(2) {
            let at = self.random.below(self.machine.sending.len());
            let (interface, token) = self.machine.sending.swap_remove(at);
            net::transmit::sent(&mut self.state, &mut self.machine, interface, token);
        }
        let mut packet = [0; 100];
        packet[15] = self.random.below(3) as u8;
        packet[19] = self.random.below(3) as u8;
        net::receive(&mut self.state, &mut self.machine, 0, &packet);
    }
}
