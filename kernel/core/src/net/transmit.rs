//! Gather transmission without copying (appnet K9, K10; decisions 16).
//!
//! What the pieces name is checked, pinned and given to the device by physical address; the first
//! bytes alone are copied, so that the headers that were sent are those that were there at the
//! call. When the device has sent the packet the caller's word is decremented, through the
//! frame it lay in at the call.
//!
//! A packet to the interface's own link address does not go to the device, which would not bring it
//! back: it is copied once and distributed by the filters within the call, if it says that it comes
//! from there, and from no port whose packets are another domain's.

use super::filter::{self, Head};
use super::{INTERFACES, exists};
use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::identity::Thread;
use crate::index::{AccountIndex, DomainIndex, EnvIndex};
use crate::machine::{Machine, Shared};
use crate::state::State;
use crate::{account, capability, domain, frame, sched, table};
use abi::capability::{DEVICE_NETWORK, NAME_DEVICE, Name, WRITE};
use abi::error::Error;
use abi::id::{EnvId, Frame};
use abi::layout::{PAGE_SIZE, is_user_range};
use abi::limits::{PACKET_BYTES, Resource, TRANSMIT_HEADER, TRANSMIT_PIECES};
use abi::ring::Piece;
use abi::trace::{Event, Kind};
use abi::upcall::EVENT_SENT;

/// Places in a device's queue, which accounts share (`Resource::Sends`): a packet takes one for its
/// copied head, and one for each physical piece of the rest. So many packets at most.
pub const TOKENS: usize = 256;
/// Physical pieces of one packet: each piece may cross into a second page.
pub const SEGMENTS: usize = 2 * TRANSMIT_PIECES;
/// Bytes of the shortest packet: an Ethernet header.
const SHORTEST: u64 = 14;

/// Bytes at a physical address, within a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where.
    pub address: u64,
    /// How many.
    pub len: u32,
}

/// A packet in a device's queue.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    used: bool,
    /// Physical address of the word to decrement.
    pending: u64,
    segments: [Segment; SEGMENTS],
    count: u8,
    /// Places of the queue that it takes.
    places: u8,
    account: u16,
    env: Thread,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            used: false,
            pending: 0,
            segments: [Segment::default(); SEGMENTS],
            count: 0,
            places: 0,
            account: 0,
            env: Thread::NONE,
        }
    }
}

#[cfg(test)]
impl Flight {
    pub(crate) fn payer(&self) -> Option<(AccountIndex, usize)> {
        self.used.then_some((self.account.into(), self.places.into()))
    }

    pub(crate) fn pins(&self) -> impl Iterator<Item = (Frame, AccountIndex)> {
        let segments = &self.segments[..usize::from(self.count)];
        let all = segments.iter().map(|segment| segment.address).chain([self.pending]);
        let account = AccountIndex::from(self.account);
        all.filter(|_| self.used).map(move |at| (Frame::containing(at), account))
    }
}

/// A transmission that has been allowed; its pieces stand beside it.
#[derive(Clone, Copy)]
struct Plan {
    token: usize,
    /// Physical address of the word to decrement.
    pending: u64,
    /// How many physical pieces.
    pieces: usize,
    /// How many places of the queue.
    places: u32,
    account: AccountIndex,
    env: Thread,
}

/// Serves `NetTransmit` for the environment at `who` of the domain at `caller`.
pub fn transmit<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (caller, who): (DomainIndex, EnvIndex),
    named: u8,
    interface: u16,
    pieces: &[Piece],
    pending: u64,
) -> Answer {
    // Of the whole packet, headers included. Not part of the plan, which is moved about.
    let mut place = [Segment::default(); SEGMENTS];
    let names = (named, interface);
    let checked = check(state, machine, (caller, who), names, pieces, pending, &mut place);
    if let Err(Refusal { error: Error::WouldBlock, .. }) = checked {
        state.published.interfaces[usize::from(interface)].full += 1;
    }
    let plan = checked?;
    let interface = usize::from(interface);
    let all = &mut place[..plan.pieces];
    machine.trace(packet_out(interface, plan.env.id(), all));
    if is_to_itself(state, machine, interface, all) {
        return Ok(turn(state, machine, (caller, interface), plan, all));
    }
    account::charge(state, plan.account, Resource::Pins, plan.pieces as u32 + 1)?;
    account::count(state, plan.account, Resource::Sends, plan.places);
    apply(state, machine, interface, plan, all);
    Ok(0)
}

fn check<M: Machine>(
    state: &State,
    machine: &M,
    (caller, who): (DomainIndex, EnvIndex),
    (named, interface): (u8, u16),
    pieces: &[Piece],
    pending: u64,
    all: &mut [Segment; SEGMENTS],
) -> Result<Plan, Refusal> {
    if usize::from(interface) >= INTERFACES || !exists(state, interface) {
        return Err(Error::NoSuchDevice.into());
    }
    let guard = Name::of(&[NAME_DEVICE, DEVICE_NETWORK, interface]);
    capability::check(state, caller, named, &guard, WRITE)?;
    if pieces.is_empty() || pieces.len() > TRANSMIT_PIECES {
        return Err(Refusal::new(Error::TooLarge, TRANSMIT_PIECES as u64));
    }
    let root = domain::root(state, caller);
    let (mut count, mut total) = (0, 0_u64);
    for piece in pieces {
        total = total.saturating_add(piece.len);
        if piece.len == 0 || total > PACKET_BYTES as u64 {
            return Err(Refusal::new(Error::TooLarge, PACKET_BYTES as u64));
        }
        if !is_user_range(piece.address, piece.len) {
            return Err(Refusal::new(Error::BadAddress, piece.address));
        }
        // A piece is shorter than a page: it lies in two at most.
        let first = piece.len.min(PAGE_SIZE - piece.address % PAGE_SIZE);
        for (address, len) in [(piece.address, first), (piece.address + first, piece.len - first)] {
            if len != 0 {
                let leaf = table::walk(state, machine, root, address, false)
                    .ok_or(Refusal::new(Error::BadAddress, address))?;
                let address = leaf.frame.address() + address % PAGE_SIZE;
                all[count] = Segment { address, len: len as u32 };
                count += 1;
            }
        }
    }
    if total < SHORTEST {
        return Err(Refusal::new(Error::TooLarge, SHORTEST));
    }
    if !pending.is_multiple_of(8) {
        return Err(Error::BadArgument.into());
    }
    let word = table::walk(state, machine, root, pending, true)
        .ok_or(Refusal::new(Error::BadAddress, pending))?;
    let account = domain::account(state, caller);
    account::check(state, account, Resource::Pins, count as u32 + 1)?;
    // Has the device room for the copied head and the rest?
    let places = places(&all[..count]);
    check_sends(state, account, places)?;
    let mut flights = state.net.flights.iter();
    let token = flights.position(|flight| !flight.used).ok_or(Error::WouldBlock)?;
    if machine.transmit_room(usize::from(interface)) < places as usize {
        return Err(Error::WouldBlock.into());
    }
    let pending = word.frame.address() + pending % PAGE_SIZE;
    Ok(Plan { token, pending, pieces: count, places, account, env: Thread::of(state, who) })
}

/// Places of the queue that a packet takes.
fn places(all: &[Segment]) -> u32 {
    let mut head = TRANSMIT_HEADER as u32;
    let rest = all.iter().filter(|segment| {
        let copied = head.min(segment.len);
        head -= copied;
        copied < segment.len
    });
    1 + rest.count() as u32
}

/// May the account have so many places more? If it may have so many at all, it may when packets
/// have been sent.
fn check_sends(state: &State, account: AccountIndex, places: u32) -> Result<(), Refusal> {
    let most = state.published.accounts[account].limit[Resource::Sends as usize];
    let checked = account::check(state, account, Resource::Sends, places);
    checked.map_err(|refusal| match refusal.error {
        Error::OverQuota | Error::Exhausted if places <= most => Error::WouldBlock.into(),
        _ => refusal,
    })
}

fn apply<M: Machine>(
    state: &mut State,
    machine: &mut M,
    interface: usize,
    plan: Plan,
    all: &mut [Segment],
) {
    let Plan { token, pending, pieces, places, account, env } = plan;
    let flight = &mut state.net.flights[token];
    (flight.used, flight.pending, flight.count) = (true, pending, pieces as u8);
    flight.places = places as u8;
    (flight.account, flight.env) = (account.link(), env);
    flight.segments[..pieces].copy_from_slice(all);
    let header = machine.transmit_header(interface, token);
    let (mut copied, mut rest) = (0_usize, 0);
    for at in 0..pieces {
        let segment = all[at];
        frame::pin(state, Frame::containing(segment.address));
        let head = (TRANSMIT_HEADER - copied).min(segment.len as usize);
        if head != 0 {
            machine.copy(header + copied as u64, segment.address, head);
            copied += head;
        }
        if head < segment.len as usize {
            // What is not copied, moved up to the front.
            all[rest] =
                Segment { address: segment.address + head as u64, len: segment.len - head as u32 };
            rest += 1;
        }
    }
    frame::pin(state, Frame::containing(pending));
    let record = &mut state.published.interfaces[interface];
    record.sent += 1;
    record.queued += 1;
    machine.transmit(interface, token, copied, &all[..rest]);
}

fn packet_out(interface: usize, env: EnvId, all: &[Segment]) -> Event {
    let len: u32 = all.iter().map(|segment| segment.len).sum();
    let event = Event::new(Kind::PacketOut, len as u16, env.0);
    Event { argument: (interface as u64) << 56, ..event }
}

/// Copies the packet's first bytes; how many.
fn gather<M: Machine>(machine: &M, all: &[Segment], into: &mut [u8]) -> usize {
    let mut done = 0;
    for segment in all {
        let len = (segment.len as usize).min(into.len() - done);
        machine.read(segment.address, &mut into[done..done + len]);
        done += len;
        if done == into.len() {
            break;
        }
    }
    done
}

fn is_to_itself<M: Machine>(state: &State, machine: &M, interface: usize, all: &[Segment]) -> bool {
    let mut destination = [0; 6];
    gather(machine, all, &mut destination);
    super::address(&destination) == state.published.interfaces[interface].mac
}

/// Distributes a packet to the interface itself: 1 if no filter wanted it. It is copied before it
/// is looked at, so what matched is what is delivered.
fn turn<M: Machine>(
    state: &mut State,
    machine: &mut M,
    (caller, interface): (DomainIndex, usize),
    plan: Plan,
    all: &[Segment],
) -> u64 {
    let mut packet = [0; PACKET_BYTES];
    let len = gather(machine, all, &mut packet);
    state.published.interfaces[interface].sent += 1;
    // A sender who changes the address meanwhile sends to whoever it says, on this machine.
    let packet = &packet[..len];
    let may_speak = |answer| filter::may_speak(state, caller, interface, &answer);
    let is_its_own = Head::of_answer_to(packet).is_none_or(may_speak);
    let claimed = if super::is_from_here(state, interface, packet) && is_its_own {
        super::distribute(state, machine, interface, packet)
    } else {
        super::nobodys(state, machine, interface, packet);
        false
    };
    abi::ring::sent(&mut Shared(machine), plan.pending);
    sched::written(state, Frame::containing(plan.pending));
    if let Some(who) = plan.env.living(state) {
        sched::event(state, machine, who, EVENT_SENT);
    }
    u64::from(!claimed)
}

/// The device has sent the packet with this token.
pub fn sent<M: Machine>(state: &mut State, machine: &mut M, interface: usize, token: usize) {
    let flight = &mut state.net.flights[token];
    if !core::mem::take(&mut flight.used) {
        return;
    }
    let Flight { pending, count, places, account, env, .. } = *flight;
    abi::ring::sent(&mut Shared(machine), pending);
    // Behind the word: a program elsewhere that sees the queue empty finds the words done.
    state.published.interfaces[interface].queued.less(1);
    let word = Frame::containing(pending);
    sched::written(state, word);
    for at in 0..usize::from(count) {
        let segment = state.net.flights[token].segments[at];
        frame::unpin(state, Frame::containing(segment.address));
    }
    frame::unpin(state, word);
    account::uncharge(state, account.into(), Resource::Pins, u32::from(count) + 1);
    account::uncharge(state, account.into(), Resource::Sends, places.into());
    if let Some(who) = env.living(state) {
        sched::event(state, machine, who, EVENT_SENT);
    }
}
