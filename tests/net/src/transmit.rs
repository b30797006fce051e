//! Transmission: what the kernel refuses, and what a full queue does (appnet 3, 4, 7).

use abi::error::Error;
use abi::layout::{KERNEL, OWN_TABLES, PAGE_SIZE, PUBLISHED};
use abi::limits::{PACKET_BYTES, Resource, TRANSMIT_PIECES};
use abi::published::{AccountRecord, InterfaceRecord, Table};
use abi::ring::Piece;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering};
use xok::call::{self, OWN};
use xok::{clock, published};

use crate::control::{Control, nap};
use crate::pages;

/// Where the pages of these tests lie.
const GROUND: u64 = 0x0000_3000_0000_0000;
/// Type of experimental frames (IEEE 802, local experiments): nobody takes them.
pub const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// Packets tried at most until the queue is full.
const FLOOD: u64 = 1_000_000;
/// Packets through the full queue.
const STREAM: u64 = 200_000;
/// The queue stands still when nothing has gone for so long, nanoseconds.
const STANDSTILL: u64 = 5_000_000_000;

pub fn interface() -> InterfaceRecord {
    published::record(Table::Interfaces, 0).unwrap_or_default()
}

fn pins() -> u32 {
    let account: AccountRecord = published::record(Table::Accounts, 1).unwrap_or_default();
    account.used[Resource::Pins as usize]
}

/// Waits until all that was queued has been sent; the host may be busy with other things meanwhile.
pub fn settle() {
    let end = clock::now_ns() + 10_000_000_000;
    while interface().queued > 0 && clock::now_ns() < end {
        nap(1_000_000);
    }
}

/// One page mapped, the next one not; the page begins with an experimental frame's header.
fn ground() -> Result<&'static [AtomicU64], String> {
    let words = pages::map(GROUND, 1).map_err(|why| format!("ground: {why:?}"))?;
    let mut frame = [0xff; 16];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&EXPERIMENT);
    for (word, bytes) in words.iter().zip(frame.chunks_exact(8)) {
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        word.store(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    Ok(words)
}

/// appnet 3 and 4: pieces that can't be read, a counter that can't be written.
pub fn refusals(_: &mut Control) -> Result<String, String> {
    let words = ground()?;
    let counter = &words[pages::WORDS - 1];
    counter.store(7, Ordering::Relaxed);
    settle();
    let before = (interface().sent, pins());
    let piece = |address, len| Piece { address, len };
    let good = piece(GROUND, 64);
    let beyond = GROUND + PAGE_SIZE;
    let wrong_pieces: [(&str, &[Piece], Error); 8] = [
        ("unmapped", &[piece(beyond, 64)], Error::BadAddress),
        ("the kernel's", &[piece(KERNEL + 0x20_0000, 64)], Error::BadAddress),
        ("good to bad", &[piece(beyond - 32, 64)], Error::BadAddress),
        ("second bad", &[good, piece(beyond, 64)], Error::BadAddress),
        ("wrapping", &[piece(u64::MAX - 8, 64)], Error::BadAddress),
        ("not canonical", &[piece(0x8000_0000_0000, 64)], Error::BadAddress),
        ("too long", &[piece(GROUND, PACKET_BYTES as u64 + 1)], Error::TooLarge),
        ("too many", &[piece(GROUND, 8); TRANSMIT_PIECES + 1], Error::TooLarge),
    ];
    for (what, pieces, expected) in wrong_pieces {
        match call::net_transmit(OWN, 0, pieces, counter) {
            Err((error, _)) if error == expected => {}
            other => return Err(format!("{what}: {other:?}")),
        }
    }
    let wrong_counters = [
        // Outside of what a call may name at all: refused by its form.
        ("published", PUBLISHED, Error::BadArgument),
        ("own tables", OWN_TABLES, Error::BadArgument),
        ("unmapped", beyond, Error::BadAddress),
        ("read-only", 0x40_0000, Error::BadAddress),
    ];
    for (what, address, expected) in wrong_counters {
        match call::net_transmit(OWN, 0, &[good], pages::word_at(address)) {
            Err((error, _)) if error == expected => {}
            other => return Err(format!("counter {what}: {other:?}")),
        }
    }
    match call::net_transmit(OWN, 99, &[good], counter) {
        Err((Error::NoSuchDevice, _)) => {}
        other => return Err(format!("interface 99: {other:?}")),
    }
    settle();
    let after = (interface().sent, pins());
    if after != before || counter.load(Ordering::Relaxed) != 7 {
        return Err(format!("(sent, pins) went from {before:?} to {after:?}"));
    }
    Ok(String::new())
}

/// appnet 7: a flood gets `WouldBlock`, and the counter falls by one for each packet accepted.
pub fn flood(_: &mut Control) -> Result<String, String> {
    let counter = pages::word_at(GROUND + PAGE_SIZE - 8);
    settle();
    let (sent, copied, pins_before) = (interface().sent, interface().copied, pins());
    counter.store(FLOOD, Ordering::Relaxed);
    // Of as many pieces as there may be: a device that keeps up with small packets for as long as
    // one looks has few of these in its queue.
    let pieces = [Piece { address: GROUND, len: 90 }; TRANSMIT_PIECES];
    let (mut accepted, mut blocked) = (0, 0);
    while accepted < FLOOD && blocked < 10 {
        match call::net_transmit(OWN, 0, &pieces, counter) {
            Ok(_) => accepted += 1,
            Err((Error::WouldBlock, _)) => blocked += 1,
            Err(why) => return Err(format!("after {accepted}: {why:?}")),
        }
    }
    settle();
    let left = counter.load(Ordering::Relaxed);
    let expected = FLOOD - accepted;
    let now = interface();
    if left != expected || now.sent != sent + accepted || now.copied != copied {
        let (sent, copied) = (now.sent - sent, now.copied - copied);
        return Err(format!("{accepted} accepted, {sent} sent, {copied} copied, {left} left"));
    }
    if pins() != pins_before {
        return Err(format!("pins went from {pins_before} to {}", pins()));
    }
    if blocked == 0 {
        return Err(format!("{accepted} packets, and the queue was never full"));
    }
    Ok(format!("({accepted} accepted before it was full)"))
}

/// The queue is kept full: no doorbell and no interrupt gets lost on the way.
pub fn stream(_: &mut Control) -> Result<String, String> {
    let counter = pages::word_at(GROUND + PAGE_SIZE - 8);
    let piece = Piece { address: GROUND, len: 60 };
    settle();
    counter.store(STREAM, Ordering::Relaxed);
    let (mut accepted, mut last) = (0, clock::now_ns());
    while accepted < STREAM {
        match call::net_transmit(OWN, 0, &[piece], counter) {
            Ok(_) => {
                accepted += 1;
                last = clock::now_ns();
            }
            Err((Error::WouldBlock, _)) if clock::now_ns() - last < STANDSTILL => {}
            Err(why) => return Err(format!("after {accepted}: {why:?}")),
        }
    }
    settle();
    match counter.load(Ordering::Relaxed) {
        0 => Ok(String::new()),
        left => Err(format!("{left} have not gone")),
    }
}
