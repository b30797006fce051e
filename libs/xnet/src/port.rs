//! A port: one ring to receive into, one queue to send from, on one interface.

use abi::error::Error;
use abi::id::{FilterId, RingId};
use abi::limits::RING_ENTRIES;
use abi::published::{InterfaceRecord, Table};
use abi::ring::{self, Piece, RingEntry};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use xio::ethernet::Mac;
use xio::filter::Filter;
use xio::stack::{Receive, Transmit};
use xok::call::{self, Refused};

use crate::memory::{BUFFER, Slots};

/// Packets that can be under way to the device.
const SEND_SLOTS: usize = 64;
/// Packets that nobody wanted that are remembered.
const UNCLAIMED_MAX: usize = 16;

/// Received packets, in the order of their arrival.
pub struct Ring {
    id: RingId,
    slots: Slots,
    current: usize,
}

/// Packets to send.
pub struct Transmitter {
    slots: Slots,
    next: usize,
    interface: u16,
    capability: u8,
    /// A packet in the next slot that the device's queue had no room for, by its length.
    refused: Option<usize>,
    /// Packets that the kernel refused for good, with the last reason.
    lost: (u64, Option<Refused>),
    /// Packets to this machine that nobody's filter wanted; the last ones, at most `UNCLAIMED_MAX`.
    unclaimed: VecDeque<Vec<u8>>,
}

/// Both, and the station's link address.
pub struct Port {
    /// The interface.
    pub interface: u16,
    /// Its link address.
    pub mac: Mac,
    /// Index of the capability whose name guards the filters: who has it may redirect them.
    pub guard: u8,
    /// What arrives.
    pub ring: Ring,
    /// What leaves.
    pub transmitter: Transmitter,
}

const NO_MEMORY: Refused = (Error::Exhausted, 0);

impl Port {
    /// Opens a port; `capability` is the index of one with WRITE over the interface.
    pub fn open(capability: u8, interface: u16) -> Result<Port, Refused> {
        let record = xok::published::record::<InterfaceRecord>(Table::Interfaces, interface.into());
        let record = record.filter(|record| record.present == 1);
        let record = record.ok_or((Error::NoSuchDevice, u64::from(interface)))?;
        Ok(Port {
            interface,
            mac: Mac::from_word(record.mac),
            guard: call::OWN,
            ring: Ring::new()?,
            transmitter: Transmitter::new(capability, interface)?,
        })
    }

    /// Has the kernel put packets that match `filter` into the ring. `Overlap`: they are another's.
    pub fn claim(&self, filter: &Filter) -> Result<FilterId, Refused> {
        call::filter_insert(self.guard, &filter.program(self.interface, self.ring.id.0))
    }
}

impl Port {
    /// In a copy of the program that opened the port (a fork child's): a ring and a queue of the
    /// copy's own over the same places. Packets that had arrived are still there to be taken.
    pub fn renew(&mut self) -> Result<(), Refused> {
        self.transmitter.forget();
        self.ring.renew()
    }

    /// Gives ring and buffers back; the filters are the caller's to drop.
    pub fn close(self) {
        let Port { ring, transmitter, .. } = self;
        // Refused in a copy, where the ring is not ours and no memory is pinned either.
        let _ = call::ring_free(ring.id);
        ring.slots.free();
        let Transmitter { slots, .. } = transmitter;
        // What is still under way is read by the device: then its memory stays.
        if (0..slots.count()).all(|slot| ring::owner(slots.word(slot)) == 0) {
            slots.free();
        }
    }
}

/// A ring of the kernel's over `slots`, filled from `first` on.
fn make_ring(slots: &Slots, first: usize) -> Result<RingId, Refused> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(slots.count()).map_err(|_| NO_MEMORY)?;
    let order = (0..slots.count()).map(|at| (first + at) % slots.count());
    entries.extend(order.map(|slot| RingEntry {
        owner: slots.word(slot).as_ptr() as u64,
        buffer: slots.address(slot),
        capacity: BUFFER as u32,
        zero: 0,
    }));
    call::ring_alloc(&entries)
}

impl Ring {
    fn new() -> Result<Ring, Refused> {
        let slots = Slots::new(RING_ENTRIES).ok_or(NO_MEMORY)?;
        let id = make_ring(&slots, 0)?;
        Ok(Ring { id, slots, current: 0 })
    }

    fn renew(&mut self) -> Result<(), Refused> {
        let count = self.slots.count();
        let order = (0..count).map(|at| (self.current + at) % count);
        let free = order.into_iter().find(|&slot| self.slots.arrived(slot).is_none());
        self.id = make_ring(&self.slots, free.unwrap_or(self.current))?;
        Ok(())
    }

    /// Its id.
    pub fn id(&self) -> RingId {
        self.id
    }
}

impl Receive for Ring {
    fn peek(&mut self) -> Option<&[u8]> {
        self.slots.arrived(self.current)
    }

    fn release(&mut self) {
        self.slots.hand_over(self.current, 0);
        self.current = (self.current + 1) % self.slots.count();
    }
}

impl Transmitter {
    fn new(capability: u8, interface: u16) -> Result<Transmitter, Refused> {
        let slots = Slots::new(SEND_SLOTS).ok_or(NO_MEMORY)?;
        Ok(Transmitter {
            slots,
            next: 0,
            interface,
            capability,
            refused: None,
            lost: (0, None),
            unclaimed: VecDeque::new(),
        })
    }

    /// Sends a copy of `frame`; `false`: there is no room now.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let Some(buffer) = self.buffer().and_then(|buffer| buffer.get_mut(..frame.len())) else {
            return false;
        };
        buffer.copy_from_slice(frame);
        self.commit(frame.len());
        true
    }

    /// Forgets what is under way: in a copy nothing is.
    fn forget(&mut self) {
        for slot in 0..self.slots.count() {
            self.slots.hand_over(slot, 0);
        }
        (self.next, self.refused) = (0, None);
    }

    /// Packets that the kernel refused for good (no permission, say), with the last reason.
    pub fn lost(&self) -> (u64, Option<Refused>) {
        self.lost
    }

    /// Is there one that nobody's filter wanted?
    pub fn has_unclaimed(&self) -> bool {
        !self.unclaimed.is_empty()
    }

    /// The next packet to this machine that nobody's filter wanted.
    pub fn take_unclaimed(&mut self) -> Option<Vec<u8>> {
        self.unclaimed.pop_front()
    }

    /// Keeps the packet in the next slot, which has come back already.
    fn note_unclaimed(&mut self, length: usize) {
        if self.unclaimed.len() == UNCLAIMED_MAX {
            self.unclaimed.pop_front();
        }
        let Some(packet) = self.slots.vacant(self.next).and_then(|place| place.get(..length))
        else {
            return;
        };
        // Without memory it is as if the network had lost it.
        let mut copy = Vec::new();
        if copy.try_reserve_exact(length).is_ok() && self.unclaimed.try_reserve(1).is_ok() {
            copy.extend_from_slice(packet);
            self.unclaimed.push_back(copy);
        }
    }

    fn transmit(&mut self, length: usize) {
        let slot = self.next;
        // The kernel decrements the word when the device has read the packet.
        self.slots.hand_over(slot, 1);
        let piece = Piece { address: self.slots.address(slot), len: length as u64 };
        let pending = self.slots.word(slot);
        match call::net_transmit(self.capability, self.interface, &[piece], pending) {
            Ok(unclaimed) => {
                if unclaimed != 0 {
                    self.note_unclaimed(length);
                }
                self.refused = None;
                self.next = (slot + 1) % self.slots.count();
            }
            Err((Error::WouldBlock, _)) => {
                self.slots.hand_over(slot, 0);
                self.refused = Some(length);
            }
            Err(refused) => {
                self.slots.hand_over(slot, 0);
                self.refused = None;
                self.lost = (self.lost.0 + 1, Some(refused));
            }
        }
    }
}

impl Transmit for Transmitter {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        if let Some(length) = self.refused {
            self.transmit(length);
        }
        if self.refused.is_some() {
            return None;
        }
        self.slots.vacant(self.next)
    }

    fn commit(&mut self, length: usize) {
        self.transmit(length.min(BUFFER));
    }
}
