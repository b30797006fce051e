//! Link addresses: read from arpd's page without a call; what is missing is asked for.
//!
//! `arpd` is asked by a control transfer of `[RESOLVE, address, 0…]`; its reply says in the first
//! word whether it asks the network ([`ASKING`]). When it can't be reached the question goes to the
//! network directly: whoever asks, the answer reaches arpd, which alone receives ARP packets.

use abi::id::EnvId;
use core::net::Ipv4Addr;
use xio::arp::{Entry, FRAME, Packet, Reader, Table};
use xio::ethernet::Mac;
use xio::ipv4::Network;
use xio::stack::Neighbours;
use xok::services::{self, Service};

use crate::memory;

/// First word of a request to arpd: find out a link address.
pub const RESOLVE: u64 = u64::from_le_bytes(*b"RESOLVE\0");
/// First word of its reply: it asks, or knows already.
pub const ASKING: u64 = 1;
/// First word of its reply: it can't ask for this one, or for no more now.
pub const NOT_ASKING: u64 = 0;
/// Microseconds between two requests for one address.
const RETRY_US: u64 = 1_000_000;
/// Addresses remembered as asked for.
const ASKED: usize = 16;

/// Who is where on the link.
#[derive(Default)]
pub struct AddressBook {
    asked: [Option<(Ipv4Addr, u64)>; ASKED],
    next: usize,
}

impl AddressBook {
    /// The entry of `address`.
    pub fn entry(&self, address: Ipv4Addr) -> Option<Entry> {
        table()?.get(address)
    }

    /// Has `address` found out, unless that was done a moment ago; what to send, if arpd can't.
    pub fn ask(
        &mut self,
        address: Ipv4Addr,
        (own, network): (Mac, &Network),
        now_us: u64,
    ) -> Option<[u8; FRAME]> {
        let recently = |asked: &(Ipv4Addr, u64)| asked.0 == address && now_us < asked.1 + RETRY_US;
        if self.asked.iter().flatten().any(recently) {
            return None;
        }
        self.asked[self.next] = Some((address, now_us));
        self.next = (self.next + 1) % ASKED;
        let arpd = EnvId(services::get(Service::Addresses) as u32);
        let message = [RESOLVE, u64::from(address.to_bits()), 0, 0, 0, 0];
        if !arpd.is_none()
            && let Ok([ASKING, ..]) = xok::call::transfer(arpd, message)
        {
            return None;
        }
        Some(Packet::request(own, network.address, address))
    }
}

impl Neighbours for AddressBook {
    fn lookup(&self, address: Ipv4Addr) -> Option<Mac> {
        self.entry(address).map(|entry| entry.mac)
    }
}

/// arpd's table, if arpd runs.
pub fn table() -> Option<Reader<'static>> {
    let arpd = EnvId(services::get(Service::Addresses) as u32);
    if arpd.is_none() {
        return None;
    }
    Table::over(memory::published_words(arpd.index())?).open()
}

/// Where arpd keeps its table: the caller's own application page.
pub fn own_table() -> Table<'static> {
    Table::over(memory::own_page())
}
