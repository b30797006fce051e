//! Frames taken back that a device or a ring still has (aegis95 T3, decisions 16).

use abi::error::Error;
use abi::id::{DomainId, FilterId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::Operation;
use abi::ring::Piece;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering};
use xio::filter::Filter;
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space, item};
use xok::{clock, published};

use crate::control::Control;
use crate::pages;
use crate::receive::{CANARY, PORT, TestRing, claim, let_go};
use crate::transmit::{EXPERIMENT, interface, settle};

/// Where the pages of these tests lie: the counter, what is revoked, the new owner's.
const COUNTER: u64 = 0x0000_3200_0000_0000;
const OLD: u64 = COUNTER + PAGE_SIZE;
const NEW: u64 = OLD + PAGE_SIZE;
/// How often it is tried to revoke a frame while a packet of it is on its way.
const TRIES: u64 = 50;
/// Packets of it that are sent at most until the device is behind and the queue full.
const BURST: u64 = 50_000;
/// What the new owner has.
const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;

fn refused(why: Refused) -> String {
    format!("{why:?}")
}

/// Asks for this frame and no other, at `NEW`.
fn take(frame: Frame) -> Result<u64, Refused> {
    let take = item(Operation::Allocate, 1, NEW, frame.0, DATA);
    call::table_update(OWN, DomainId::NONE, &[take])
}

/// Waits until the frame can be had, and has it.
fn take_when_free(frame: Frame) -> Result<(), String> {
    let end = clock::now_ns() + 10_000_000_000;
    while take(frame).is_err() {
        if clock::now_ns() > end {
            return Err(format!("{frame:?} never came back: {:?}", published::frame(frame)));
        }
        crate::control::nap(1_000_000);
    }
    Ok(())
}

/// A new owner's page, filled with what is not for others.
fn fill() -> &'static [AtomicU64] {
    let words = pages::words(NEW, 1);
    words.iter().for_each(|word| word.store(SECRET, Ordering::Relaxed));
    words
}

/// Packets from a frame of their own, which is revoked at once; was the device still at it? Then
/// nobody may have the frame until they have gone.
fn revoke_in_flight(counter: &AtomicU64) -> Result<bool, String> {
    let words = pages::map(OLD, 1).map_err(refused)?;
    let frame = xok::own::frame(OLD).ok_or("no frame")?;
    let mut head = [0xff; 16];
    head[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    head[12..14].copy_from_slice(&EXPERIMENT);
    for (word, bytes) in words.iter().zip(head.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    settle();
    counter.store(BURST, Ordering::Relaxed);
    let mut queued = 0;
    while queued < BURST {
        match call::net_transmit(OWN, 0, &[Piece { address: OLD, len: 1400 }], counter) {
            Ok(_) => queued += 1,
            Err((Error::WouldBlock, _)) => break,
            Err(why) => return Err(refused(why)),
        }
    }
    let left = BURST - queued;
    call::frame_revoke(OWN, frame).map_err(refused)?;
    let taken = take(frame);
    // Only after the question: if one is on its way now, it was so then.
    let flying = counter.load(Ordering::Acquire) != left;
    match (flying, taken) {
        (true, Ok(_)) => return Err(format!("{frame:?} was given out with a packet in it")),
        (true, Err((Error::Taken, _))) => {}
        (false, Ok(_)) => Space::own().unmap(NEW, 1).map_err(refused)?,
        (false, Err((Error::Taken, _))) => {}
        (_, Err(why)) => return Err(format!("{frame:?}: {why:?}")),
    }
    settle();
    let (word, queued) = (counter.load(Ordering::Acquire), interface().queued);
    if word != left || queued != 0 {
        return Err(format!("packets have never gone: {word} for {left}, {queued} queued"));
    }
    if xok::own::leaf(NEW).is_none() {
        take_when_free(frame)?;
        Space::own().unmap(NEW, 1).map_err(refused)?;
    }
    Ok(flying)
}

/// aegis95 T3: the device reads no frame of a new owner's, as there is none before it has done.
pub fn transmit(_: &mut Control) -> Result<String, String> {
    pages::map(COUNTER, 1).map_err(refused)?;
    // The table of these pages would take a frame that is looked for.
    Space::own().tables_to(NEW, 1).map_err(refused)?;
    let counter = pages::word_at(COUNTER);
    for tried in 1..=TRIES {
        if revoke_in_flight(counter)? {
            return Ok(format!("(on its way at try {tried})"));
        }
    }
    Err(format!("in {TRIES} tries no packet was on its way"))
}

/// aegis95 T3: what comes for a ring whose buffer was revoked lands nowhere.
pub fn ring(control: &mut Control) -> Result<String, String> {
    Space::own().tables_to(NEW, 1).map_err(refused)?;
    let ring = TestRing::new(5, 2, 1536)?;
    let filter = claim(&ring, &Filter::udp(control.local(PORT)), FilterId::NONE)?;
    let place = core::ptr::from_ref(&ring.words[0]) as u64;
    let frame = xok::own::frame(place).ok_or("no frame")?;
    call::frame_revoke(OWN, frame).map_err(refused)?;
    take_when_free(frame)?;
    let words = fill();
    control.send(PORT, 3, 1000, 0)?;
    let record = ring.record();
    let intact = words.iter().all(|word| word.load(Ordering::Relaxed) == SECRET);
    if !intact || record.dropped != 3 || record.delivered != 0 {
        return Err(format!("the new owner's page is whole: {intact}; {record:?}"));
    }
    let behind = &ring.words[pages::WORDS + 1..];
    if !behind.iter().all(|word| word.load(Ordering::Relaxed) == CANARY) {
        return Err("they landed in another buffer".into());
    }
    Space::own().unmap(NEW, 1).map_err(refused)?;
    let_go(ring, filter)?;
    Ok(format!("({} dropped)", record.dropped))
}
