//! The order in which memory was last used, as the kernel publishes it.

use super::roles;
use super::sched::counter;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::domain::Property;
use abi::id::{DomainId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::NO_EXECUTE;
use abi::published::AGE_SHIFT;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space};
use xok::reader::Reader;

/// Pages that are touched.
const PAGES: usize = 6;
/// In which order; the first time that `SHARED` comes by another space's entry.
const TOUCHES: [usize; 7] = [3, 0, 5, SHARED, 4, SHARED, 2];
/// In which order each was touched last.
const ORDER: [usize; PAGES] = [3, 0, 5, 4, SHARED, 2];
/// The page that another space has, too, by an entry made later.
const SHARED: usize = 1;
/// How long a round of the kernel's over all memory may take.
const ROUND_NS: u64 = 30_000_000_000;

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

fn address(page: usize) -> u64 {
    SCRATCH + page as u64 * PAGE_SIZE
}

/// The hand goes on while somebody runs: we do.
fn until(mut holds: impl FnMut() -> bool, what: &str) -> Result<(), Failure> {
    let end = now_ns() + ROUND_NS;
    while !holds() {
        expect!(now_ns() < end, "waited in vain for {what}");
    }
    Ok(())
}

/// thesis98 P-8, PR-8; xok97 XK-14: frames in the order of their age are in the order in which
/// they were touched, whoever did it by whatever entry; what nobody touches only becomes older.
/// Reading the order takes no kernel entry.
pub fn agree_with_touches(ground: &Ground) -> Result<String, Failure> {
    let reader = Reader::open().map_err(|unknown| format!("{unknown:?}"))?;
    let mut own = Space::own();
    own.allocate(SCRATCH, PAGES as u64, DATA).map_err(refused)?;
    let frames: Option<Vec<Frame>> =
        (0..PAGES).map(|page| xok::own::frame(address(page))).collect();
    let frames = frames.ok_or("no frame")?;
    let words = [address(SHARED), 0, 0, 0, 0, 0];
    let other = assistant::spawn(ground.image, roles::TOUCH, words, &[])?;
    Space::of(other.domain, OWN)
        .map(address(SHARED), frames[SHARED], 1, NO_EXECUTE)
        .map_err(refused)?;
    for domain in [DomainId::NONE, other.domain] {
        call::domain_set(OWN, domain, Property::Ages, 1).map_err(refused)?;
    }
    assistant::start(other)?;

    until(|| frames.iter().all(|&frame| reader.seen(frame) != 0), "all frames to be looked at")?;
    let began = now_ns();
    let mut by_other = true;
    for page in TOUCHES {
        let before: Vec<u32> = frames.iter().map(|&frame| reader.seen(frame)).collect();
        // So that its age differs from all others.
        until(
            || (now_ns() >> AGE_SHIFT) as u32 > before.iter().copied().max().unwrap_or(0),
            "time",
        )?;
        if page == SHARED && core::mem::take(&mut by_other) {
            call::post(OWN, other.env, 1).map_err(refused)?;
            until(|| counter(other.env) > 0 || call::yield_to(other.env).is_err(), "the other")?;
        } else {
            faults::load(address(page));
        }
        until(|| reader.seen(frames[page]) > before[page], "a touch to be seen")?;
        let after: Vec<u32> = frames.iter().map(|&frame| reader.seen(frame)).collect();
        let moved: Vec<usize> = (0..PAGES).filter(|&at| after[at] != before[at]).collect();
        expect!(moved == [page], "page {page} was touched, {moved:?} became young");
    }
    let rounds_ms = (now_ns() - began) / 1_000_000;

    let mut oldest = [Frame(0); PAGES];
    let entries = || xok::published::env(abi::id::EnvId(1)).map_or(0, |env| env.entries);
    let before = entries();
    let found = reader.oldest(|frame| frames.contains(&frame), &mut oldest);
    let entered = entries() - before;
    call::env_destroy(OWN, other.env, 0).map_err(refused)?;
    assistant::wait(other.env)?;
    own.unmap(SCRATCH, PAGES as u64).map_err(refused)?;
    call::domain_set(OWN, DomainId::NONE, Property::Ages, 0).map_err(refused)?;
    let touched = ORDER.map(|page| frames[page]);
    expect!(found == PAGES && oldest == touched, "{oldest:?}, touched were {touched:?}");
    expect!(entered == 0, "{entered} kernel entries while reading");
    Ok(format!("(seven touches seen in {rounds_ms} ms)"))
}
