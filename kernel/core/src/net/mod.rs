//! Filters, rings and transmissions: who gets and who may send a packet (appnet K9–K14).
//!
//! ```text
//!   driver ── receive(frame) ──► filter: most specific match ──► ring: next buffer, or dropped
//!   NetTransmit ──► check, pin ──► driver ── sent(token) ──► word - 1, unpin
//!                     └── to the interface itself: distributed as what arrives, word - 1
//! ```
//! What has the interface's own address as its source comes from this machine, and nothing else
//! does: such a frame from the wire is nobody's, and so is one from here with another source. So
//! those who share the interface do not speak for the wire's stations to each other; nor for each
//! other, by their ports. Where these lie is all that is known of protocols here: a filter is a
//! mask and a value over the first bytes of a packet. The matcher is linear, most specific filter
//! first; it stands behind [`filter::find`] alone.

mod decode;
pub mod doorbell;
pub mod filter;
pub mod ring;
pub mod transmit;

use crate::answer::Answer;
use crate::count::Count;
use crate::env;
use crate::index::{DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use abi::call::Call;
use abi::error::Error;
use abi::id::{EnvId, RingId};
use abi::limits::{RING_ENTRIES, TRANSMIT_PIECES};
use abi::published::InterfaceRecord;
use abi::ring::{Piece, RingEntry};
use abi::trace::{Event, Kind};

/// Network interfaces.
pub const INTERFACES: usize = 4;

/// The private half of the tables.
#[derive(Default)]
pub struct Network {
    /// By index of filter.
    pub filters: &'static mut [filter::Filter],
    /// Indices of the filters in use, most specific first.
    pub order: &'static mut [u16],
    /// How many of `order` count.
    pub ordered: usize,
    /// By index of ring.
    pub rings: &'static mut [ring::Ring],
    /// Filters, references and rings of each domain, by its index: 0 lets its end be short.
    pub held: &'static mut [u16],
    /// Packets in the devices' queues, by their tokens.
    pub flights: &'static mut [transmit::Flight],
}

impl Network {
    /// Tables carved from memory: `order` as long as `filters`, `held` as long as the domains,
    /// `flights` of `transmit::TOKENS`.
    pub fn new(
        filters: &'static mut [filter::Filter],
        order: &'static mut [u16],
        rings: &'static mut [ring::Ring],
        held: &'static mut [u16],
        flights: &'static mut [transmit::Flight],
    ) -> Self {
        Self { filters, order, ordered: 0, rings, held, flights }
    }
}

/// The driver found an interface: `mac` with its first byte lowest.
pub fn attach(state: &mut State, interface: usize, mac: u64) {
    if let Some(record) = state.published.interfaces.get_mut(interface) {
        *record = InterfaceRecord { present: 1, mac, ..InterfaceRecord::default() };
    }
}

/// Does the interface exist?
fn exists(state: &State, interface: u16) -> bool {
    state.published.interfaces.get(usize::from(interface)).is_some_and(|record| record.present != 0)
}

/// A packet arrived: `packet` is the whole frame, in the driver's buffer.
pub fn receive<M: Machine>(state: &mut State, machine: &mut M, interface: usize, packet: &[u8]) {
    if interface >= state.published.interfaces.len() {
        return;
    }
    if is_from_here(state, interface, packet) {
        nobodys(state, machine, interface, packet);
    } else {
        distribute(state, machine, interface, packet);
    }
}

/// Does it say that it comes from the interface itself?
fn is_from_here(state: &State, interface: usize, packet: &[u8]) -> bool {
    let own = state.published.interfaces[interface].mac;
    packet.get(6..12).is_some_and(|source| address(source) == own)
}

/// Counts a packet that nobody gets, whatever filters say.
fn nobodys<M: Machine>(state: &mut State, machine: &mut M, interface: usize, packet: &[u8]) {
    let record = &mut state.published.interfaces[interface];
    record.received += 1;
    record.unclaimed += 1;
    machine.trace(packet_in(interface, packet, RingId::NONE, EnvId::NONE));
}

/// That a packet came, for the ring with this id that `env` made.
fn packet_in(interface: usize, packet: &[u8], ring: RingId, env: EnvId) -> Event {
    let argument = (interface as u64) << 56 | ring.0 << 8 >> 8;
    Event { argument, ..Event::new(Kind::PacketIn, packet.len() as u16, env.0) }
}

/// A link address as a word, its first byte lowest.
fn address(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Gives a packet to those whose filters want it; whether anybody's did.
fn distribute<M: Machine>(
    state: &mut State,
    machine: &mut M,
    interface: usize,
    packet: &[u8],
) -> bool {
    state.published.interfaces[interface].received += 1;
    let head = filter::Head::of(packet);
    let mut claimed = false;
    // Copy filters each for itself; then the one most specific of the others.
    let mut at = 0;
    while let Some((index, next)) = filter::find(state, interface, &head, at) {
        at = next;
        let copy = filter::is_copy(state, index);
        if copy || !claimed {
            claimed |= !copy;
            filter::count(state, index);
            ring::deliver(state, machine, interface, filter::ring(state, index), packet);
        }
    }
    if !claimed {
        state.published.interfaces[interface].unclaimed += 1;
        machine.trace(packet_in(interface, packet, RingId::NONE, EnvId::NONE));
    }
    claimed
}

/// A domain ends: its rings, filters and references go, while there is room; are they all gone?
pub fn end_domain(state: &mut State, domain: DomainIndex) -> bool {
    if state.net.held.get(domain.at()).copied().unwrap_or(0) == 0 {
        return true;
    }
    let looks = state.net.filters.len() + state.net.rings.len();
    if !work::room(state, cost::LOOK * looks as u32) {
        return false;
    }
    work::spend(state, cost::LOOK * looks as u32);
    filter::drop_all_of(state, domain) && ring::free_all_of(state, domain)
}

/// The calls on rings, filters and packets, for the environment at index `caller`.
#[inline(never)]
pub fn call<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    call: &Call,
    bytes: &[u8],
) -> Answer {
    let domain = DomainIndex::from(env::domain(state, caller));
    match *call {
        Call::RingAlloc { count, .. } => {
            let mut entries = [RingEntry::default(); RING_ENTRIES];
            let entries = decode::many(bytes, count, &mut entries, decode::ring_entry)?;
            ring::allocate(state, machine, domain, caller, entries)
        }
        Call::RingModify { ring, index, .. } => {
            ring::modify(state, machine, domain, ring, index, &decode::ring_entry(bytes))
        }
        Call::RingFree { ring } => ring::free(state, domain, ring),
        Call::FilterInsert { .. } => {
            filter::insert(state, domain, capability, &decode::program(bytes))
        }
        Call::FilterDrop { filter } => filter::drop_reference(state, domain, filter),
        Call::FilterReference { filter, domain: other } => {
            filter::reference(state, domain, capability, filter, other)
        }
        Call::FilterRing { filter, ring } => {
            filter::set_ring(state, domain, capability, filter, ring)
        }
        Call::NetTransmit { interface, count, pending, .. } => {
            let mut pieces = [Piece::default(); TRANSMIT_PIECES];
            let pieces = decode::many(bytes, count, &mut pieces, decode::piece)?;
            let who = (domain, caller);
            transmit::transmit(state, machine, who, capability, interface, pieces, pending.0)
        }
        _ => Err(Error::NoSuchCall.into()),
    }
}

/// Frames pinned by rings and flights, each with the account that pays for the pin.
#[cfg(test)]
pub(crate) fn pins(state: &State) -> Vec<(abi::id::Frame, crate::index::AccountIndex)> {
    let net = &state.net;
    let rings = net.rings.iter().flat_map(ring::Ring::pins);
    rings.chain(net.flights.iter().flat_map(transmit::Flight::pins)).collect()
}

/// The accounts that pay for packets in the queues, one for each, and for how many places.
#[cfg(test)]
pub(crate) fn senders(state: &State) -> Vec<(crate::index::AccountIndex, usize)> {
    state.net.flights.iter().filter_map(transmit::Flight::payer).collect()
}

/// The accounts that pay for rings and for filters, one for each.
#[cfg(test)]
pub(crate) fn payers(
    state: &State,
) -> (Vec<crate::index::AccountIndex>, Vec<crate::index::AccountIndex>) {
    let rings = state.published.rings.iter().zip(state.net.rings.iter());
    let filters = state.published.filters.iter().zip(state.net.filters.iter());
    (
        rings.filter(|(record, _)| record.id != 0).map(|(_, ring)| ring.payer()).collect(),
        filters.filter(|(record, _)| record.id != 0).map(|(_, filter)| filter.payer()).collect(),
    )
}

fn hold(state: &mut State, domain: DomainIndex) {
    state.net.held[domain.at()] += 1;
}

fn let_go(state: &mut State, domain: DomainIndex) {
    state.net.held[domain.at()].less(1);
}
