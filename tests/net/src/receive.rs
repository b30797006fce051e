//! Reception: rings, and filters that overlap (appnet 8, 9, 10, 11).

use abi::error::Error;
use abi::filter::FilterProgram;
use abi::id::{FilterId, RingId};
use abi::layout::PAGE_SIZE;
use abi::published::{CpuRecord, RingRecord, Table};
use abi::ring::RingEntry;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use xio::filter::Filter;
use xok::call::{self, OWN};
use xok::published;

use crate::control::{Control, HEADERS};
use crate::pages;

/// Where the rings of these tests lie, each test its own part.
const GROUND: u64 = 0x0000_3100_0000_0000;
const PART: u64 = 0x10_0000;
/// What lies where nobody should write.
pub const CANARY: u64 = 0xc0ff_ee00_c0ff_ee00;
/// The port that the host sends to.
pub const PORT: u16 = 9100;
/// A source port that a subset asks for.
const SPECIAL: u16 = 9200;

/// A ring of one buffer a page: the word at its start, the buffer behind 64 bytes.
pub struct TestRing {
    id: RingId,
    pub words: &'static [AtomicU64],
    count: usize,
}

impl TestRing {
    pub fn new(part: u64, count: usize, capacity: u32) -> Result<TestRing, String> {
        let base = GROUND + part * PART;
        let words = pages::map(base, count).map_err(|why| format!("pages: {why:?}"))?;
        for word in words {
            word.store(CANARY, Ordering::Relaxed);
        }
        let entries: Vec<RingEntry> = (0..count)
            .map(|at| {
                words[at * pages::WORDS].store(0, Ordering::Relaxed);
                let page = base + at as u64 * PAGE_SIZE;
                RingEntry { owner: page, buffer: page + 64, capacity, zero: 0 }
            })
            .collect();
        let id = call::ring_alloc(&entries).map_err(|why| format!("ring: {why:?}"))?;
        Ok(TestRing { id, words, count })
    }

    fn owner(&self, at: usize) -> &AtomicU64 {
        &self.words[at * pages::WORDS]
    }

    /// The number that the host gave the datagram in a buffer.
    fn number(&self, at: usize) -> u32 {
        let byte = |offset: usize| {
            let offset = 64 + HEADERS + offset;
            let word = self.words[at * pages::WORDS + offset / 8].load(Ordering::Relaxed);
            word.to_le_bytes()[offset % 8]
        };
        u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
    }

    /// Numbers of the datagrams that are there, in order.
    fn numbers(&self) -> Vec<u32> {
        let taken = |at: &usize| self.owner(*at).load(Ordering::Acquire) != 0;
        (0..self.count).take_while(taken).map(|at| self.number(at)).collect()
    }

    pub fn record(&self) -> RingRecord {
        published::record(Table::Rings, self.id.index()).unwrap_or_default()
    }

    fn recycle(&self) {
        (0..self.count).for_each(|at| self.owner(at).store(0, Ordering::Release));
    }
}

pub fn claim(ring: &TestRing, filter: &Filter, parent: FilterId) -> Result<FilterId, String> {
    let program = FilterProgram { parent: parent.0, ..filter.program(0, ring.id.0) };
    call::filter_insert(OWN, &program).map_err(|why| format!("filter: {why:?}"))
}

pub fn let_go(ring: TestRing, filter: FilterId) -> Result<(), String> {
    call::filter_drop(filter).map_err(|why| format!("drop: {why:?}"))?;
    call::ring_free(ring.id).map_err(|why| format!("free: {why:?}"))?;
    Ok(())
}

/// appnet 8: a long packet in a short buffer is cut, and says how long it was.
pub fn cut(control: &mut Control) -> Result<String, String> {
    let ring = TestRing::new(0, 2, 128)?;
    let filter = claim(&ring, &Filter::udp(control.local(PORT)), FilterId::NONE)?;
    control.send(PORT, 1, 1472, 0)?;
    let length = ring.owner(0).load(Ordering::Acquire);
    if length != 1514 || ring.record().cut != 1 {
        return Err(format!("length {length}, cut {}", ring.record().cut));
    }
    let canary = |word: &AtomicU64| word.load(Ordering::Relaxed) == CANARY;
    let (written, beyond) = (&ring.words[8..24], &ring.words[24..pages::WORDS]);
    if written.iter().any(canary)
        || !beyond.iter().all(canary)
        || !ring.words[1..8].iter().all(canary)
    {
        return Err("not the 128 bytes of the buffer were written".into());
    }
    let_go(ring, filter)?;
    Ok(String::new())
}

/// appnet 9: what finds no free buffer is dropped and counted; given back, buffers fill in order.
pub fn drops(control: &mut Control) -> Result<String, String> {
    let ring = TestRing::new(1, 8, 1536)?;
    let filter = claim(&ring, &Filter::udp(control.local(PORT)), FilterId::NONE)?;
    control.send(PORT, 20, 100, 0)?;
    let record = ring.record();
    if ring.numbers() != [0, 1, 2, 3, 4, 5, 6, 7] || (record.delivered, record.dropped) != (8, 12) {
        return Err(format!("{:?}, {record:?}", ring.numbers()));
    }
    ring.recycle();
    control.send(PORT, 5, 100, 0)?;
    if ring.numbers() != [0, 1, 2, 3, 4] || ring.record().delivered != 13 {
        return Err(format!("given back: {:?}, {:?}", ring.numbers(), ring.record()));
    }
    let_go(ring, filter)?;
    Ok(String::new())
}

fn kernel_faults() -> u64 {
    let records = (0..).map_while(|at| published::record::<CpuRecord>(Table::Cpus, at));
    records.map(|record| record.kernel_faults).sum()
}

/// appnet 10: an owner that scribbles over its words during reception harms only itself.
pub fn scribbled(control: &mut Control) -> Result<String, String> {
    let ring = TestRing::new(2, 16, 256)?;
    let filter = claim(&ring, &Filter::udp(control.local(PORT)), FilterId::NONE)?;
    let faults = kernel_faults();
    xok::log!(OWN, "net: send {PORT} 3000 200 0");
    let (mut state, mut rounds) = (1u64, 0u64);
    let end = xok::clock::now_ns() + 20_000_000_000;
    // The message that ends it comes through another ring.
    while !control.message().is_some_and(|message| message.starts_with(b"sent")) {
        for at in 0..16 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = if state >> 63 == 0 { 0 } else { state };
            ring.owner(at).store(word, Ordering::Relaxed);
        }
        rounds += 1;
        if rounds.is_multiple_of(64) {
            crate::control::nap(100_000);
        }
        if xok::clock::now_ns() > end {
            return Err("the host never said it was done".into());
        }
    }
    // 64 + 256 bytes of each page are the kernel's to write; the rest is not.
    let outside = |at: usize| ring.words[at * pages::WORDS + 40..(at + 1) * pages::WORDS].iter();
    let intact = (0..16).all(|at| outside(at).all(|word| word.load(Ordering::Relaxed) == CANARY));
    if !intact || kernel_faults() != faults {
        return Err(format!("intact: {intact}, kernel faults {faults} to {}", kernel_faults()));
    }
    let record = ring.record();
    if record.delivered == 0 {
        return Err("nothing was delivered".into());
    }
    let_go(ring, filter)?;
    Ok(format!("({} delivered, {} dropped)", record.delivered, record.dropped))
}

/// appnet 11: an equal filter is refused; a subset of one's own gets its packets, the rest stays.
pub fn subsets(control: &mut Control) -> Result<String, String> {
    let all = TestRing::new(3, 8, 1536)?;
    let special = TestRing::new(4, 8, 1536)?;
    let local = control.local(PORT);
    let listener = claim(&all, &Filter::udp(local), FilterId::NONE)?;
    let program = Filter::udp(local).program(0, special.id.0);
    match call::filter_insert(OWN, &program) {
        Err((Error::Overlap, id)) if id == listener.0 => {}
        other => return Err(format!("an equal filter: {other:?}")),
    }
    let subset = Filter::udp(local).and(34, 0xffff_0000, u32::from(SPECIAL) << 16);
    let subset = claim(&special, &subset, listener)?;
    control.send(PORT, 2, 100, SPECIAL)?;
    control.send(PORT, 3, 100, 0)?;
    if special.numbers() != [0, 1] || all.numbers() != [0, 1, 2] {
        return Err(format!("subset {:?}, rest {:?}", special.numbers(), all.numbers()));
    }
    call::filter_drop(subset).map_err(|why| format!("drop: {why:?}"))?;
    control.send(PORT, 1, 100, SPECIAL)?;
    if special.record().delivered != 2 || all.record().delivered != 4 {
        return Err("what the subset had did not go back to the listener".into());
    }
    call::ring_free(special.id).map_err(|why| format!("free: {why:?}"))?;
    let_go(all, listener)?;
    Ok(String::new())
}
