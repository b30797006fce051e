//! Programs that hold the end of their slice off, and that take what happened from a queue.

use super::mirror::set_application_word;
use super::{count, own_index};
use abi::id::EnvId;
use abi::queue::{ENTRIES, Entry, POST};
use abi::setup::{EnvSetup, field};
use abi::upcall::EVENT_TIMER;
use xok::call::{self, OWN};
use xok::clock::now_ns;
use xok::critical::Critical;
use xok::queue;

/// The report when all was as it should be.
pub const QUEUE_CONTENT: u64 = 0x600d;
/// Posts that find no room.
pub const TOO_MANY: u64 = 4;
/// Bit of the last post, which is sent when the queue has been read.
pub const LAST: u64 = 1 << 40;
/// How long it waits for anything, nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// Does its work in critical sections of so many nanoseconds, counting those in which the end of
/// its slice came.
pub fn work_in_sections(length: u64) -> u64 {
    xok::upcall::take_events();
    xok::upcall::set_mask(false);
    // Looked up before time counts.
    let _ = own_index();
    loop {
        let section = Critical::enter();
        let end = now_ns().saturating_add(length);
        while now_ns() < end {}
        if section.is_due() {
            count();
        }
        drop(section);
    }
}

/// Begins a section, says so, and never leaves it.
pub fn stay_in_section() -> u64 {
    let _section = Critical::enter();
    let _ = own_index();
    set_application_word(1);
    loop {
        core::hint::black_box(0);
    }
}

fn wait_for(bits: u64) -> bool {
    let end = now_ns() + PATIENCE;
    while xok::upcall::pending() & bits != bits {
        if now_ns() > end {
            return false;
        }
        let _ = call::yield_to(EnvId::NONE);
    }
    true
}

/// Lets its queue overflow by the posts of `sender`, and reads it then.
pub fn read_queue(sender: u32) -> u64 {
    xok::upcall::set_mask(true);
    let setup = EnvSetup { queue: queue::PLACE, ..EnvSetup::default() };
    if call::env_set(OWN, EnvId::NONE, field::QUEUE, &setup).is_err() {
        return 1;
    }
    set_application_word(1);
    if !wait_for(1 << (ENTRIES as u64 + TOO_MANY - 1)) {
        return 2;
    }
    for bit in 0..ENTRIES {
        if queue::take() != Some(Entry { kind: POST as u32, sender, value: 1 << bit }) {
            return 0x100 + bit as u64;
        }
    }
    if queue::take().is_some() || queue::take_overflow(POST) != TOO_MANY {
        return 3;
    }
    let before = now_ns();
    if call::timer_set(before).is_err() {
        return 4;
    }
    let _ = call::yield_to(EnvId::NONE);
    let kind = EVENT_TIMER.trailing_zeros();
    let timed = queue::take()
        .is_some_and(|entry| entry.kind == kind && entry.sender == 0 && entry.value >= before);
    if !timed {
        return 5;
    }
    set_application_word(2);
    if !wait_for(LAST) {
        return 6;
    }
    let last = Some(Entry { kind: POST as u32, sender, value: LAST });
    if queue::take() == last && queue::take_overflow(POST) == 0 { QUEUE_CONTENT } else { 7 }
}
