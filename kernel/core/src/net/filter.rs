//! Packet filters: masks and values, overlap decided at insertion (xok97 XK-16, appnet K11–K14).
//!
//! ```text
//!   mask   00 00 ff ff 00 …   128 bytes as sixteen words
//!   value  00 00 08 06 00 …   no bit outside the mask
//! ```
//! A packet matches if it is long enough and equals the value under the mask. Two filters overlap
//! unless some bit that both test differs. A new filter may overlap an old one only as its proper
//! subset (more bits, the same values) or superset, and only with a right to the old one: so
//! of two filters that accept a packet one is always more specific, and gets it.

use super::{exists, hold, let_go};
use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::identity::{self, Serial};
use crate::index::DomainIndex;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, capability, domain};
use abi::capability::{DEVICE_NETWORK, NAME_DEVICE, Name, READ, WRITE};
use abi::error::Error;
use abi::filter::{COPY, FilterAtom, FilterProgram, SUBSETTABLE};
use abi::id::{DomainId, FilterId, RingId};
use abi::limits::{FILTER_ATOMS, FILTER_BYTES, Resource};
use abi::published::FilterRecord;
use core::ops::Range;

#[cfg(test)]
mod tests;

const WORDS: usize = FILTER_BYTES / 8;
/// Where a packet says that it is of IPv4, with a header of five words, and what it says then.
const TYPE: Range<usize> = 12..14;
const IPV4: [u8; 2] = [8, 0];
const VERSION: usize = 14;
const FIVE_WORDS: u8 = 0x45;
/// Where it says that it is a fragment, and the bits that say so.
const FRAGMENT: Range<usize> = 20..22;
const IS_FRAGMENT: [u8; 2] = [0x3f, 0xff];
/// Where its protocol stands; those of which source and destination port come first, TCP and UDP.
const PROTOCOL: usize = 23;
const HAVE_PORTS: [u8; 2] = [6, 17];
/// Where the addresses of sender and receiver lie, and their ports.
const ADDRESSES: usize = 26;
const PORTS: usize = 34;
/// Domains that may hold a reference to one filter.
pub const HOLDERS: usize = 4;

/// The private half of a filter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    mask: [u64; WORDS],
    value: [u64; WORDS],
    /// Bytes a packet must have.
    needs: u16,
    /// Bits tested.
    bits: u16,
    flags: u16,
    interface: u16,
    pub(crate) serial: Serial,
    guard: Name,
    /// Index of the account that pays.
    account: u16,
    /// Domains (index) with a reference; 0: none.
    holders: [u16; HOLDERS],
    ring: RingId,
}

/// The first bytes of a packet, as filters see them.
pub struct Head {
    words: [u64; WORDS],
    len: usize,
}

impl Head {
    /// Of this packet; what it does not have is zero, and `needs` keeps it from matching.
    pub fn of(packet: &[u8]) -> Self {
        let (whole, rest) = packet[..packet.len().min(FILTER_BYTES)].as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(whole.iter().chain([&last])) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self { words, len: packet.len() }
    }

    /// Of the packet that would answer this one: the addresses of sender and receiver change
    /// places, and their ports. `None`: the packet's protocol has no ports, or they lie elsewhere
    /// (IP options, fragments).
    pub fn of_answer_to(packet: &[u8]) -> Option<Self> {
        let (kind, version) = (packet.get(TYPE)?, packet.get(VERSION)?);
        let fragment =
            packet.get(FRAGMENT)?.iter().zip(IS_FRAGMENT).any(|(at, bits)| at & bits != 0);
        let is_ip = *kind == IPV4 && *version == FIVE_WORDS && !fragment;
        if !is_ip || !HAVE_PORTS.contains(packet.get(PROTOCOL)?) {
            return None;
        }
        let mut answer = [0; FILTER_BYTES];
        let len = packet.len().min(FILTER_BYTES);
        answer[..len].copy_from_slice(&packet[..len]);
        for (first, bytes) in [(0, 6), (ADDRESSES, 4), (PORTS, 2)] {
            packet.get(first..first + 2 * bytes)?;
            answer[first..first + 2 * bytes].rotate_left(bytes);
        }
        Some(Self { len: packet.len(), ..Self::of(&answer[..len]) })
    }
}

impl Filter {
    #[cfg(test)]
    pub(crate) fn payer(&self) -> crate::index::AccountIndex {
        self.account.into()
    }

    fn matches(&self, head: &Head) -> bool {
        head.len >= usize::from(self.needs)
            && (0..WORDS).all(|at| head.words[at] & self.mask[at] == self.value[at])
    }

    /// Is there a packet that both accept?
    fn overlaps(&self, other: &Filter) -> bool {
        let both = |at: usize| self.mask[at] & other.mask[at];
        (0..WORDS).all(|at| (self.value[at] ^ other.value[at]) & both(at) == 0)
    }

    /// Does this one, which overlaps `other`, test all that `other` tests?
    fn is_within(&self, other: &Filter) -> bool {
        (0..WORDS).all(|at| other.mask[at] & !self.mask[at] == 0)
    }

    /// Lays an atom down; refused where it contradicts what is there or leaves the bytes seen.
    fn add(&mut self, atom: &FilterAtom) -> Result<(), Error> {
        let end = usize::from(atom.offset) + 4;
        if end > FILTER_BYTES || atom.zero != 0 || atom.value & !atom.mask != 0 || atom.mask == 0 {
            return Err(Error::BadArgument);
        }
        let (mask, value) = (atom.mask.to_be_bytes(), atom.value.to_be_bytes());
        for (step, (mask, value)) in mask.into_iter().zip(value).enumerate() {
            let at = usize::from(atom.offset) + step;
            let shift = 8 * (at % 8);
            let (mask, value) = (u64::from(mask) << shift, u64::from(value) << shift);
            if (self.value[at / 8] ^ value) & self.mask[at / 8] & mask != 0 {
                return Err(Error::BadArgument);
            }
            self.mask[at / 8] |= mask;
            self.value[at / 8] |= value;
            if mask != 0 {
                self.needs = self.needs.max(at as u16 + 1);
            }
        }
        self.bits = self.mask.iter().map(|word| word.count_ones() as u16).sum();
        Ok(())
    }
}

/// May a filter be made at this index?
fn is_free(state: &State, index: usize) -> bool {
    state.published.filters[index].id == 0 && !state.net.filters[index].serial.is_spent()
}

/// The index of a live filter.
pub fn lookup(state: &State, id: FilterId) -> Result<usize, Error> {
    identity::find(state.published.filters, id).ok_or(Error::NoSuchFilter)
}

/// The first filter at or behind position `at` of the order that accepts the packet: its index,
/// and where to go on.
pub fn find(state: &State, interface: usize, head: &Head, at: usize) -> Option<(usize, usize)> {
    for position in at..state.net.ordered {
        let index = usize::from(state.net.order[position]);
        let filter = &state.net.filters[index];
        if usize::from(filter.interface) == interface && filter.matches(head) {
            return Some((index, position + 1));
        }
    }
    None
}

/// Is it a copy filter?
pub fn is_copy(state: &State, index: usize) -> bool {
    state.net.filters[index].flags & COPY != 0
}

/// May the domain send this interface a packet, of which the answer's head is this? If no filter
/// would get the answer, every domain may; else the domains that have a reference to the filter,
/// or a right over it.
pub fn may_speak(state: &State, domain: DomainIndex, interface: usize, answer: &Head) -> bool {
    let mut at = 0;
    while let Some((index, next)) = find(state, interface, answer, at) {
        at = next;
        if !is_copy(state, index) {
            let filter = &state.net.filters[index];
            return filter.holders.contains(&domain.link())
                || capability::holds(state, domain, &filter.guard, WRITE);
        }
    }
    true
}

/// The ring its packets go to.
pub fn ring(state: &State, index: usize) -> RingId {
    state.net.filters[index].ring
}

/// Counts a packet.
pub fn count(state: &mut State, index: usize) {
    state.published.filters[index].matched += 1;
}

/// An insertion that has been allowed.
struct Plan {
    index: usize,
    filter: Filter,
    atoms: u32,
}

/// Serves `FilterInsert`.
pub fn insert(
    state: &mut State,
    caller: DomainIndex,
    named: u8,
    program: &FilterProgram,
) -> Answer {
    work::spend(state, cost::FILTER * state.net.ordered as u32);
    let plan = check_insert(state, caller, named, program)?;
    account::charge(state, plan.filter.account.into(), Resource::Filters, 1)?;
    Ok(apply_insert(state, caller, plan))
}

fn check_insert(
    state: &State,
    caller: DomainIndex,
    named: u8,
    program: &FilterProgram,
) -> Result<Plan, Refusal> {
    let own = capability::get(state, caller, named)?;
    let copy = program.flags & COPY != 0;
    if program.flags & !(COPY | SUBSETTABLE) != 0 {
        return Err(Error::BadArgument.into());
    }
    // Is it of a size that is looked at, and (but for a copy filter) does it ask for anything?
    let count = program.count as usize;
    if count > FILTER_ATOMS {
        return Err(Refusal::new(Error::TooLarge, FILTER_ATOMS as u64));
    }
    if count == 0 && !copy {
        return Err(Error::BadArgument.into());
    }
    if !exists(state, program.interface) {
        return Err(Error::NoSuchDevice.into());
    }
    // Are its atoms well formed, and do they agree with each other?
    let mut filter = Filter {
        flags: program.flags,
        interface: program.interface,
        guard: own.name,
        account: domain::account(state, caller).link(),
        ring: RingId(program.ring),
        ..Filter::default()
    };
    for atom in &program.atoms[..count] {
        filter.add(atom)?;
    }
    // Is the ring the caller's own?
    super::ring::own(state, caller, filter.ring)?;
    // May the caller have packets at all? One without the network takes none, and claims none.
    let interface = Name::of(&[NAME_DEVICE, DEVICE_NETWORK, program.interface]);
    if !capability::holds(state, caller, &interface, WRITE) {
        return Err(Error::NotPermitted.into());
    }
    if copy {
        // May the caller listen to everyone? Who has the network to use it has WRITE alone.
        if !own.dominates(&interface, READ | WRITE) {
            return Err(Error::NotPermitted.into());
        }
    } else {
        check_overlaps(state, caller, named, &filter)?;
    }
    account::check(state, filter.account.into(), Resource::Filters, 1)?;
    let index = (1..state.net.filters.len())
        .find(|&index| is_free(state, index))
        .ok_or(Error::TableFull)?;
    if state.net.ordered == state.net.order.len() {
        return Err(Error::TableFull.into());
    }
    Ok(Plan { index, filter, atoms: count as u32 })
}

/// Would the new filter take a packet from one that the caller has no right to?
fn check_overlaps(
    state: &State,
    caller: DomainIndex,
    named: u8,
    filter: &Filter,
) -> Result<(), Refusal> {
    for &index in &state.net.order[..state.net.ordered] {
        let other = &state.net.filters[usize::from(index)];
        let apart = other.interface != filter.interface || other.flags & COPY != 0;
        if apart || !filter.overlaps(other) {
            continue;
        }
        let refusal = Refusal::new(Error::Overlap, state.published.filters[usize::from(index)].id);
        let (within, around) = (filter.is_within(other), other.is_within(filter));
        // Equal, or neither more specific: who gets the packet could not be said.
        if within == around {
            return Err(refusal);
        }
        let open = within && other.flags & SUBSETTABLE != 0;
        let right = capability::check(state, caller, named, &other.guard, WRITE).is_ok();
        if !open && !right {
            return Err(refusal);
        }
    }
    Ok(())
}

fn apply_insert(state: &mut State, caller: DomainIndex, plan: Plan) -> u64 {
    let Plan { index, mut filter, atoms } = plan;
    filter.serial = state.net.filters[index].serial;
    filter.holders[0] = caller.link();
    let id = FilterId::new(index as u16, filter.serial.number());
    state.published.filters[index] = FilterRecord {
        id: id.0,
        domain: domain::id(state, caller).0,
        ring: filter.ring.0,
        references: 1,
        flags: u32::from(filter.flags),
        interface: u32::from(filter.interface),
        atoms,
        ..FilterRecord::default()
    };
    let bits = filter.bits;
    state.net.filters[index] = filter;
    // Most specific first; copy filters have their place by the same rule.
    let net = &mut state.net;
    let position = net.order[..net.ordered]
        .iter()
        .position(|&other| net.filters[usize::from(other)].bits < bits)
        .unwrap_or(net.ordered);
    net.order.copy_within(position..net.ordered, position + 1);
    net.order[position] = index as u16;
    net.ordered += 1;
    hold(state, caller);
    id.0
}

/// Serves `FilterDrop`.
pub fn drop_reference(state: &mut State, caller: DomainIndex, id: FilterId) -> Answer {
    let index = lookup(state, id)?;
    let held = state.net.filters[index].holders.iter().position(|&one| one == caller.link());
    let slot = held.ok_or(Error::NoSuchFilter)?;
    drop_holder(state, index, slot);
    Ok(0)
}

/// Takes one holder's reference; the last one removes the filter.
fn drop_holder(state: &mut State, index: usize, slot: usize) {
    let holder = DomainIndex::from(state.net.filters[index].holders[slot]);
    state.net.filters[index].holders[slot] = 0;
    let_go(state, holder);
    state.published.filters[index].references.less(1);
    if state.published.filters[index].references != 0 {
        return;
    }
    let account = state.net.filters[index].account.into();
    account::uncharge(state, account, Resource::Filters, 1);
    let serial = state.net.filters[index].serial.next();
    state.net.filters[index] = Filter { serial, ..Filter::default() };
    state.published.filters[index] = FilterRecord::default();
    let net = &mut state.net;
    if let Some(at) = net.order[..net.ordered].iter().position(|&one| usize::from(one) == index) {
        net.order.copy_within(at + 1..net.ordered, at);
        net.ordered.less(1);
    }
}

/// Serves `FilterReference`.
pub fn reference(
    state: &mut State,
    caller: DomainIndex,
    named: u8,
    id: FilterId,
    for_domain: DomainId,
) -> Answer {
    let index = lookup(state, id)?;
    capability::check(state, caller, named, &state.net.filters[index].guard, WRITE)?;
    let holder = domain::find_or_own(state, caller, for_domain)?;
    let named = capability::get(state, caller, named)?;
    if !capability::reaches(state, caller, holder, &named) {
        return Err(Error::NotPermitted.into());
    }
    let slot = state.net.filters[index].holders.iter().position(|&one| one == 0);
    let slot = slot.ok_or(Refusal::new(Error::Exhausted, HOLDERS as u64))?;
    state.net.filters[index].holders[slot] = holder.link();
    state.published.filters[index].references += 1;
    hold(state, holder);
    Ok(0)
}

/// Serves `FilterRing`.
pub fn set_ring(
    state: &mut State,
    caller: DomainIndex,
    named: u8,
    id: FilterId,
    ring: RingId,
) -> Answer {
    let index = lookup(state, id)?;
    capability::check(state, caller, named, &state.net.filters[index].guard, WRITE)?;
    super::ring::own(state, caller, ring)?;
    state.net.filters[index].ring = ring;
    state.published.filters[index].ring = ring.0;
    Ok(0)
}

/// Drops the references of a domain, while there is room; are they all gone?
pub fn drop_all_of(state: &mut State, domain: DomainIndex) -> bool {
    for index in 1..state.net.filters.len() {
        for slot in 0..HOLDERS {
            if DomainIndex::from(state.net.filters[index].holders[slot]) == domain {
                if !work::room(state, cost::REFERENCE) {
                    return false;
                }
                work::spend(state, cost::REFERENCE);
                drop_holder(state, index, slot);
            }
        }
    }
    true
}
