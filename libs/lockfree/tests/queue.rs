//! Every order in which the kernel's entries into a queue of events meet the owner who takes them.
//!
//! Entries are whole, in order, what is not there was counted, and who takes a bit finds its entry.

#[path = "tried/shared.rs"]
mod shared;
mod tried;

use abi::queue::{self, Entry, POST, offset};
use abi::upcall;
use loom::sync::Arc;
use loom::thread;
use shared::{Kernel, Page};
use tried::try_all;

/// Entries that there is room for here.
const ROOM: usize = 2;
/// Where in memory the queue is.
const QUEUE: u64 = 16;
/// And the bits that say that something is in it.
const BITS: u64 = 8;

fn entry(number: u64) -> Entry {
    let number = number as u32;
    Entry { kind: POST as u32, sender: number, value: !u64::from(number) }
}

fn page() -> Arc<Page> {
    let words = (QUEUE + offset::ENTRIES) / 8 + 2 * ROOM as u64;
    Arc::new(Page::new(words, |at| at >= QUEUE + offset::ENTRIES, 0))
}

/// The kernel, which has its lock, puts in so many entries while the owner looks so often.
fn meet(switches: usize, entries: u64, looks: u32) {
    try_all(switches, move || {
        let page = page();
        let there = page.clone();
        let kernel = thread::spawn(move || {
            let mut memory = Kernel(&there);
            (1..=entries).for_each(|one| queue::put::<ROOM>(&mut memory, QUEUE, &entry(one)));
        });
        let word = |at| page.word(QUEUE + at);
        let (mut taken, mut lost, mut last) = (0, 0, 0);
        let mut take = || {
            let Some(found) = queue::take::<ROOM, _>(word) else { return false };
            assert_eq!(found, entry(u64::from(found.sender)), "not whole");
            assert!(found.sender > last, "not in order");
            (taken, last) = (taken + 1, found.sender);
            true
        };
        for _ in 0..looks {
            take();
            lost += queue::take_overflow(word, POST);
        }
        kernel.join().expect("the kernel");
        while take() {}
        lost += queue::take_overflow(word, POST);
        assert_eq!(taken + lost, entries);
        assert!(taken >= entries.min(ROOM as u64), "there was room");
    });
}

#[test]
fn entries_are_taken_whole_and_in_order() {
    meet(3, 3, 2);
    meet(2, 4, 3);
}

/// Who has taken a bit may sleep when it has looked into the queue: nothing tells it of more.
#[test]
fn who_takes_a_bit_finds_its_entry() {
    try_all(3, || {
        let page = page();
        let there = page.clone();
        let kernel = thread::spawn(move || {
            for one in 1..=2 {
                // As `kernel_core::sleep::{event, post}`.
                upcall::tell(&mut Kernel(&there), BITS, one, |memory| {
                    queue::put::<ROOM>(memory, QUEUE, &entry(one));
                });
            }
        });
        let (mut bits, mut entries) = (0, 0);
        while bits != 3 {
            let taken = upcall::take_all(page.word(BITS));
            assert_eq!(taken & bits, 0, "taken twice");
            bits |= taken;
            while let Some(found) = queue::take::<ROOM, _>(|at| page.word(QUEUE + at)) {
                entries |= u64::from(found.sender);
            }
            assert_eq!(bits & !entries, 0, "a bit without an entry");
            thread::yield_now();
        }
        kernel.join().expect("the kernel");
    });
}
