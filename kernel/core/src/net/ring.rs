//! Receive rings: buffers in the owner's memory, filled in order or dropped (appnet K13).
//!
//! The kernel follows its own list of entries, by physical address, and reads nothing of shared
//! memory but owner words: an owner that scribbles over its ring loses its own packets only.

use super::{hold, let_go, packet_in};
use crate::answer::{Answer, Refusal};
use crate::identity::{self, Serial, Thread};
use crate::index::{AccountIndex, DomainIndex, EnvIndex};
use crate::machine::{Machine, Shared};
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, domain, env, frame, sched, table};
use abi::error::Error;
use abi::id::{Frame, RingId};
use abi::layout::PAGE_SIZE;
use abi::limits::{RING_ENTRIES, Resource};
use abi::published::RingRecord;
use abi::ring::{RingEntry, is_given_back};
use abi::trace::{Event, Kind};
use abi::upcall::EVENT_PACKET;

/// A buffer by physical address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffer {
    /// 0: its memory has been revoked, and what would go there is dropped.
    owner: u64,
    place: u64,
    capacity: u32,
}

/// The private half of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    buffers: [Buffer; RING_ENTRIES],
    count: u8,
    next: u8,
    domain: u16,
    account: u16,
    pub(crate) serial: Serial,
    /// Who is told of packets: the environment that made the ring.
    env: Thread,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            buffers: [Buffer::default(); RING_ENTRIES],
            count: 0,
            next: 0,
            domain: 0,
            account: 0,
            serial: Serial::default(),
            env: Thread::NONE,
        }
    }
}

#[cfg(test)]
impl Ring {
    pub(crate) fn payer(&self) -> AccountIndex {
        self.account.into()
    }

    pub(crate) fn pins(&self) -> impl Iterator<Item = (Frame, AccountIndex)> {
        let buffers = &self.buffers[..usize::from(self.count)];
        let whole = buffers.iter().filter(|buffer| buffer.owner != 0);
        let both = whole.flat_map(|buffer| [buffer.owner, buffer.place]);
        both.map(|at| (Frame::containing(at), self.payer()))
    }
}

/// May a ring be made at this index?
fn is_free(state: &State, index: usize) -> bool {
    state.published.rings[index].id == 0 && !state.net.rings[index].serial.is_spent()
}

fn lookup(state: &State, id: RingId) -> Option<usize> {
    identity::find(state.published.rings, id)
}

/// The index of a live ring of the domain's own.
pub fn own(state: &State, caller: DomainIndex, id: RingId) -> Result<usize, Error> {
    lookup(state, id)
        .filter(|&index| DomainIndex::from(state.net.rings[index].domain) == caller)
        .ok_or(Error::NoSuchRing)
}

/// Checks one entry: both places writable by the caller, the buffer within a page.
fn check_entry<M: Machine>(
    state: &State,
    machine: &M,
    caller: DomainIndex,
    entry: &RingEntry,
) -> Result<Buffer, Refusal> {
    if entry.zero != 0 || entry.capacity == 0 || u64::from(entry.capacity) > PAGE_SIZE {
        return Err(Refusal::new(Error::TooLarge, PAGE_SIZE));
    }
    let offset = entry.buffer % PAGE_SIZE;
    if !entry.owner.is_multiple_of(8) || offset + u64::from(entry.capacity) > PAGE_SIZE {
        return Err(Error::BadArgument.into());
    }
    let root = domain::root(state, caller);
    let writable = |address: u64| {
        table::walk(state, machine, root, address, true)
            .ok_or(Refusal::new(Error::BadAddress, address))
    };
    let (owner, place) = (writable(entry.owner)?, writable(entry.buffer)?);
    Ok(Buffer {
        owner: owner.frame.address() + entry.owner % PAGE_SIZE,
        place: place.frame.address() + offset,
        capacity: entry.capacity,
    })
}

fn pin(state: &mut State, buffer: &Buffer) {
    frame::pin(state, Frame::containing(buffer.owner));
    frame::pin(state, Frame::containing(buffer.place));
}

/// Unpins and uncharges a buffer, if it has not been revoked.
fn give_up(state: &mut State, payer: AccountIndex, buffer: &Buffer) {
    if buffer.owner == 0 {
        return;
    }
    account::uncharge(state, payer, Resource::Pins, 2);
    frame::unpin(state, Frame::containing(buffer.owner));
    frame::unpin(state, Frame::containing(buffer.place));
}

/// Serves `RingAlloc` for the environment at `who` of the domain at `caller`.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: DomainIndex,
    who: EnvIndex,
    entries: &[RingEntry],
) -> Answer {
    if entries.is_empty() || entries.len() > RING_ENTRIES {
        return Err(Refusal::new(Error::TooLarge, RING_ENTRIES as u64));
    }
    work::spend(state, cost::BUFFER * entries.len() as u32);
    let mut buffers = [Buffer::default(); RING_ENTRIES];
    for (buffer, entry) in buffers.iter_mut().zip(entries) {
        *buffer = check_entry(state, machine, caller, entry)?;
    }
    let payer = domain::account(state, caller);
    let pins = 2 * entries.len() as u32;
    account::check(state, payer, Resource::Rings, 1)?;
    account::check(state, payer, Resource::Pins, pins)?;
    let index =
        (1..state.net.rings.len()).find(|&index| is_free(state, index)).ok_or(Error::Exhausted)?;
    account::charge(state, payer, Resource::Rings, 1)?;
    account::charge(state, payer, Resource::Pins, pins)?;
    for buffer in &buffers[..entries.len()] {
        pin(state, buffer);
    }
    let serial = state.net.rings[index].serial;
    state.net.rings[index] = Ring {
        buffers,
        count: entries.len() as u8,
        next: 0,
        domain: caller.link(),
        account: payer.link(),
        serial,
        env: Thread::of(state, who),
    };
    let id = RingId::new(index as u16, serial.number());
    state.published.rings[index] = RingRecord {
        id: id.0,
        domain: domain::id(state, caller).0,
        entries: entries.len() as u32,
        ..RingRecord::default()
    };
    hold(state, caller);
    Ok(id.0)
}

/// Serves `RingModify`.
pub fn modify<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: DomainIndex,
    id: RingId,
    position: u64,
    entry: &RingEntry,
) -> Answer {
    let index = own(state, caller, id)?;
    let count = u64::from(state.net.rings[index].count);
    if position >= count {
        return Err(Refusal::new(Error::TooLarge, count));
    }
    let buffer = check_entry(state, machine, caller, entry)?;
    let old = state.net.rings[index].buffers[position as usize];
    let payer = AccountIndex::from(state.net.rings[index].account);
    if old.owner == 0 {
        account::check(state, payer, Resource::Pins, 2)?;
    }
    // The new one first: it may be the only reference to the same frame.
    pin(state, &buffer);
    give_up(state, payer, &old);
    account::count(state, payer, Resource::Pins, 2);
    state.net.rings[index].buffers[position as usize] = buffer;
    Ok(0)
}

/// Serves `RingFree`.
pub fn free(state: &mut State, caller: DomainIndex, id: RingId) -> Answer {
    let index = own(state, caller, id)?;
    end(state, index);
    Ok(0)
}

fn end(state: &mut State, index: usize) {
    let ring = state.net.rings[index];
    let payer = AccountIndex::from(ring.account);
    for buffer in &ring.buffers[..usize::from(ring.count)] {
        give_up(state, payer, buffer);
    }
    account::uncharge(state, payer, Resource::Rings, 1);
    let serial = ring.serial.next();
    state.net.rings[index] = Ring { serial, ..Ring::default() };
    state.published.rings[index] = RingRecord::default();
    let_go(state, ring.domain.into());
}

/// A frame is revoked: the buffers of the ring at `index` that lie there, or whose entry does, go.
pub fn revoke(state: &mut State, index: usize, frame: Frame) {
    work::spend(state, cost::LOOK);
    let ring = state.net.rings[index];
    if ring.count != 0 {
        work::spend(state, cost::HOLDER);
    }
    for (at, buffer) in ring.buffers[..usize::from(ring.count)].iter().enumerate() {
        let lies = [buffer.owner, buffer.place].map(Frame::containing).contains(&frame);
        if buffer.owner != 0 && lies {
            state.net.rings[index].buffers[at] = Buffer::default();
            give_up(state, ring.account.into(), buffer);
        }
    }
}

/// Ends every ring of a domain, while there is room; are they all gone?
pub fn free_all_of(state: &mut State, domain: DomainIndex) -> bool {
    for index in 1..state.net.rings.len() {
        let used = state.published.rings[index].id != 0;
        if used && DomainIndex::from(state.net.rings[index].domain) == domain {
            if !work::room(state, cost::REGION) {
                return false;
            }
            work::spend(state, cost::REGION);
            end(state, index);
        }
    }
    true
}

/// Puts a packet into the ring's next buffer if its owner has given it back, else drops it.
pub fn deliver<M: Machine>(
    state: &mut State,
    machine: &mut M,
    interface: usize,
    id: RingId,
    packet: &[u8],
) {
    let Some(index) = lookup(state, id) else { return };
    let ring = &mut state.net.rings[index];
    let buffer = ring.buffers[usize::from(ring.next)];
    let record = &mut state.published.rings[index];
    let event = packet_in(interface, packet, id, ring.env.id());
    if buffer.owner == 0 || !is_given_back(&Shared(machine), buffer.owner) {
        record.dropped += 1;
        machine.trace(Event { kind: Kind::PacketDropped, ..event });
        return;
    }
    machine.trace(event);
    let len = packet.len().min(buffer.capacity as usize);
    record.cut += u64::from(len < packet.len());
    record.delivered += 1;
    ring.next = (ring.next + 1) % ring.count;
    let (told, in_domain) = (ring.env, ring.domain);
    let (place, fits) = (buffer.place, &packet[..len]);
    abi::ring::put(&mut Shared(machine), buffer.owner, place, fits, packet.len());
    sched::written(state, Frame::containing(buffer.owner));
    if let Some(who) = told.living(state)
        && env::belongs_to(state, who, in_domain.into())
    {
        sched::event(state, machine, who, EVENT_PACKET);
    }
}
