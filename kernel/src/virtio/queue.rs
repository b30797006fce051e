//! A split virtqueue with event index (virtio 1.2 §2.7).
//!
//! ```text
//!  page 0   descriptors: 256 of {address u64, len u32, flags u16, next u16}
//!  page 1   available: flags u16, index u16, ring u16[256], used_event u16
//!  page 2   used: flags u16, index u16, ring {id u32, len u32}[256], avail_event u16
//! ```
//! What the device may write (the used part) is read once; descriptors' links are kept in our own
//! array, so that a device that scribbles over them misleads nobody.
//!
//! Twice a word is stored that the device looks at, and then one is loaded that it stores: neither
//! side may miss the other's ([`store_before_load`]).
//!
//! # Safety
//! The three pages were taken for this queue alone; the device reads and writes them as the
//! specification says, we by volatile accesses with the fences it asks for.
#![allow(unsafe_code)]

use core::sync::atomic::{Ordering, fence};

use abi::layout::PAGE_SIZE;
use abi::published::Category;
use kernel_core::net::doorbell;

use super::transport::{Doorbell, QueueAddresses, Transport};
use crate::boot::memory_map::MemoryMap;
use crate::physical::virtual_address;
use crate::registers::rdtsc;

/// Entries of a queue at most.
pub const SIZE: usize = 256;
/// The descriptor goes on in another one.
const NEXT: u16 = 1;
/// The device writes.
const WRITE: u16 = 2;

/// One queue.
pub struct Queue {
    base: u64,
    index: u16,
    size: u16,
    doorbell: Doorbell,
    told: doorbell::Doorbell,
    event_index: bool,
    /// Next entry of the available ring (free-running).
    next_available: u16,
    /// Next entry of the used ring to look at (free-running).
    next_used: u16,
    /// First free descriptor and how many there are.
    free: u16,
    free_count: u16,
    links: [u16; SIZE],
}

/// A piece of memory for the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    pub address: u64,
    pub len: u32,
    pub device_writes: bool,
}

impl Queue {
    /// Sets queue `index` of a device up; `None` if it has no such queue.
    pub fn new(
        transport: &Transport,
        index: u16,
        event_index: bool,
        memory: &mut MemoryMap,
    ) -> Option<Self> {
        let size = transport.queue_size(index).min(SIZE as u16);
        if size == 0 || !size.is_power_of_two() {
            return None;
        }
        let base = memory.take(Category::Devices, 3 * PAGE_SIZE, PAGE_SIZE);
        let mut links = [0; SIZE];
        for (at, link) in links.iter_mut().enumerate() {
            *link = at as u16 + 1;
        }
        transport.set_queue(
            index,
            size,
            &QueueAddresses {
                descriptors: base,
                available: base + PAGE_SIZE,
                used: base + 2 * PAGE_SIZE,
            },
        );
        Some(Self {
            base,
            index,
            size,
            doorbell: transport.doorbell(index),
            told: doorbell::Doorbell::default(),
            event_index,
            next_available: 0,
            next_used: 0,
            free: 0,
            free_count: size,
            links,
        })
    }

    fn load16(&self, offset: u64) -> u16 {
        // SAFETY: see the file's head.
        unsafe { (virtual_address(self.base + offset) as *const u16).read_volatile() }
    }

    fn load32(&self, offset: u64) -> u32 {
        // SAFETY: see the file's head.
        unsafe { (virtual_address(self.base + offset) as *const u32).read_volatile() }
    }

    fn store16(&mut self, offset: u64, value: u16) {
        // SAFETY: see the file's head.
        unsafe { (virtual_address(self.base + offset) as *mut u16).write_volatile(value) }
    }

    fn store64(&mut self, offset: u64, value: u64) {
        // SAFETY: see the file's head.
        unsafe { (virtual_address(self.base + offset) as *mut u64).write_volatile(value) }
    }

    fn available_ring(&self, at: u16) -> u64 {
        PAGE_SIZE + 4 + 2 * u64::from(at & (self.size - 1))
    }

    /// Descriptors that are free.
    pub fn room(&self) -> usize {
        usize::from(self.free_count)
    }

    /// Hands the pieces over as one chain; its head names it in `take`. There is room.
    pub fn add(&mut self, pieces: impl ExactSizeIterator<Item = Piece>) -> u16 {
        let count = pieces.len() as u16;
        assert!(count > 0 && count <= self.free_count);
        let head = self.free;
        let mut at = head;
        for (position, piece) in pieces.enumerate() {
            let last = position as u16 + 1 == count;
            let mut flags = if last { 0 } else { NEXT };
            if piece.device_writes {
                flags |= WRITE;
            }
            let next = self.links[usize::from(at)];
            let offset = 16 * u64::from(at);
            let rest = u64::from(piece.len)
                | u64::from(flags) << 32
                | (if last { 0 } else { u64::from(next) }) << 48;
            self.store64(offset, piece.address);
            self.store64(offset + 8, rest);
            at = next;
        }
        self.free = at;
        self.free_count -= count;
        let ring = self.available_ring(self.next_available);
        self.store16(ring, head);
        self.next_available = self.next_available.wrapping_add(1);
        head
    }

    /// Shows the device what was added, and tells it if it asked to be told.
    pub fn publish(&mut self) {
        // The chains before the index (§2.7.13.3.1), the index before the question (§2.7.13.4.1).
        fence(Ordering::SeqCst);
        self.store16(PAGE_SIZE + 2, self.next_available);
        store_before_load();
        let tell = if self.event_index {
            let event = self.load16(2 * PAGE_SIZE + 4 + 8 * u64::from(self.size));
            self.told.wanted(event, self.next_available)
        } else {
            self.load16(2 * PAGE_SIZE) & 1 == 0
        };
        if tell {
            self.doorbell.ring(self.index);
        }
    }

    /// A chain that the device is done with: its head, and the bytes it wrote. Its descriptors
    /// are free again.
    pub fn take(&mut self) -> Option<(u16, u32)> {
        if self.load16(2 * PAGE_SIZE + 2) == self.next_used {
            return None;
        }
        fence(Ordering::SeqCst);
        let at = 2 * PAGE_SIZE + 4 + 8 * u64::from(self.next_used & (self.size - 1));
        let (head, len) = (self.load32(at) as u16, self.load32(at + 4));
        self.next_used = self.next_used.wrapping_add(1);
        (head < self.size).then_some((head, len))
    }

    /// Frees the `count` descriptors of the chain that begins at `head`.
    pub fn free(&mut self, head: u16, count: u16) {
        let mut last = head;
        for _ in 1..count {
            last = self.links[usize::from(last)];
        }
        self.links[usize::from(last)] = self.free;
        self.free = head;
        self.free_count += count;
    }

    /// Asks for an interrupt at the next chain; true: there is one already, look again.
    pub fn ask(&mut self) -> bool {
        self.ask_behind(0)
    }

    /// Asks for an interrupt when the device is done with three quarters of what it has: the rest
    /// is asked for then. True: it is already, look again.
    pub fn ask_late(&mut self) -> bool {
        let waiting = self.next_available.wrapping_sub(self.next_used);
        self.ask_behind((waiting - waiting / 4).saturating_sub(1))
    }

    /// Asks for an interrupt at the chain that follows so many others.
    fn ask_behind(&mut self, others: u16) -> bool {
        let others = if self.event_index { others } else { 0 };
        if self.event_index {
            let offset = PAGE_SIZE + 4 + 2 * u64::from(self.size);
            self.store16(offset, self.next_used.wrapping_add(others));
        } else {
            self.store16(PAGE_SIZE, 0);
        }
        store_before_load();
        self.load16(2 * PAGE_SIZE + 2).wrapping_sub(self.next_used) > others
    }
}

/// What was stored is seen by the device before anything that is loaded from now on was stored by
/// it.
///
/// The fence says so to processors. QEMU before 8.1 leaves fences of guests with one processor out
/// although its devices run on threads of their own (its commit c914d46d); reading the time-stamp
/// counter takes a lock there, which is a fence, and costs little anywhere else.
fn store_before_load() {
    fence(Ordering::SeqCst);
    rdtsc();
}
