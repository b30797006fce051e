//! Every order in which the kernel and a program can meet at the buffers of packets.
//!
//! A packet is whole, in order, dropped only if its buffer was not given back; one that is sent is
//! read as it was, before its buffer is another's.

#[path = "tried/shared.rs"]
mod shared;
mod tried;

use abi::atomic::{Atomic, Ordering};
use abi::ring;
use loom::sync::{Arc, Mutex};
use loom::thread;
use shared::{Kernel, Page};
use tried::try_all;

/// Buffers, of two bytes each, behind their words.
const SLOTS: u64 = 2;
const BYTES: u64 = 2;

fn page() -> Arc<Page> {
    Arc::new(Page::new(SLOTS, |_| false, (SLOTS * BYTES) as usize))
}

fn buffer(slot: u64) -> u64 {
    8 * SLOTS + BYTES * slot
}

fn packet(number: u8) -> [u8; BYTES as usize] {
    [number, !number]
}

/// What lies in a buffer. Loom complains if it is not the caller's.
fn bytes(page: &Page, slot: u64) -> [u8; BYTES as usize] {
    std::array::from_fn(|at| page.byte(buffer(slot) + at as u64).load(Ordering::Relaxed))
}

fn receive(switches: usize, packets: u8, looks: u32) {
    try_all(switches, move || {
        let page = page();
        let there = page.clone();
        // `kernel_core::net::ring::deliver`, under the kernel's lock.
        let kernel = thread::spawn(move || {
            let (mut next, mut dropped) = (0, 0);
            for number in 1..=packets {
                let (mut memory, owner) = (Kernel(&there), 8 * next);
                if !ring::is_given_back(&memory, owner) {
                    dropped += 1;
                    continue;
                }
                ring::put(&mut memory, owner, buffer(next), &packet(number), number.into());
                next = (next + 1) % SLOTS;
            }
            dropped
        });
        let (mut current, mut last, mut count) = (0, 0, 0);
        let mut look = || {
            let word = page.word(8 * current);
            let length = ring::owner(word);
            if length == 0 {
                return false;
            }
            assert_eq!(bytes(&page, current), packet(length as u8), "not whole");
            assert!(length > last, "not in order");
            (last, count) = (length, count + 1);
            ring::hand_over(word, 0);
            current = (current + 1) % SLOTS;
            true
        };
        for _ in 0..looks {
            look();
        }
        let dropped = kernel.join().expect("the kernel");
        while look() {}
        assert_eq!(count + dropped, packets);
        assert!(count >= packets.min(SLOTS as u8), "there was room");
    });
}

#[test]
fn packets_come_whole_and_in_order() {
    receive(3, 3, 2);
    receive(2, 4, 3);
}

/// A program sends from both buffers, as often as it finds one that nothing is under way of.
#[test]
fn what_is_sent_is_read_as_it_was() {
    try_all(3, || {
        let (page, flights) = (page(), Arc::new(Mutex::new(Vec::new())));
        let (there, flying) = (page.clone(), flights.clone());
        // The device reads, and `kernel_core::net::transmit::sent` is told so.
        let device = thread::spawn(move || {
            for _ in 0..3 {
                let flight = flying.lock().expect("the kernel's lock").pop();
                if let Some((slot, number)) = flight {
                    assert_eq!(bytes(&there, slot), packet(number), "another packet");
                    ring::sent(&mut Kernel(&there), 8 * slot);
                }
                thread::yield_now();
            }
        });
        for number in 1..=3 {
            let free = (0..SLOTS).find(|&slot| ring::owner(page.word(8 * slot)) == 0);
            let Some(slot) = free else { continue };
            for (at, byte) in (buffer(slot)..).zip(packet(number)) {
                page.byte(at).store(byte, Ordering::Relaxed);
            }
            ring::hand_over(page.word(8 * slot), 1);
            flights.lock().expect("the kernel's lock").push((slot, number));
        }
        device.join().expect("the device");
    });
}
