//! Predicates as compiled code: looked at in nobody's space, and saying what is written down.

use super::predicate::{setting, word_is};
use super::roles::{self, SPOT};
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use crate::random::Random;
use abi::error::Error;
use abi::id::{DomainId, RegionId};
use abi::limits::PREDICATE_ATOMS;
use abi::memory::{NO_EXECUTE, Operation};
use abi::predicate::{Atom, Operator, Source};
use abi::published::{Category, CensusRecord, CpuRecord, Table};
use abi::region::{RegionOperation, WordAt};
use abi::upcall::woken;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space, item};
use xok::published;

/// Sleeps until the first word of the region in its first word is 1, that of the page at `SPOT` is
/// 7, and the time in its second word has come; it sees the page no more meanwhile.
pub const SLEEP_OVER_STRUCTURES: u64 = 27;

/// Writes to the region, at least, while the sleeper is watched.
const WRITES: u64 = 200;

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

fn compiled() -> u64 {
    let line = Category::Code as usize;
    published::record::<CensusRecord>(Table::Census, line).map_or(0, |record| record.objects)
}

fn put(address: u64, value: u64) {
    for (at, byte) in value.to_le_bytes().iter().enumerate() {
        faults::store(address + at as u64, *byte);
    }
}

fn region_word_is(region: RegionId, offset: u64, value: u64, last: bool) -> Atom {
    let atom = word_is(offset, value, last);
    Atom { left: Source::Region as u8, region: region.0, ..atom }
}

fn write_region(region: RegionId, value: u64) -> Result<u64, Refused> {
    let mut operation =
        RegionOperation { region: region.0, writes: 1, ..RegionOperation::default() };
    operation.write[0] = WordAt { offset: 0, value };
    call::region_operate(&operation)
}

pub fn sleep_over_structures(region: RegionId, time: u64) -> u64 {
    let mut clock = word_is(0, time, true);
    (clock.operator, clock.left) = (Operator::AtLeast as u8, Source::Clock as u8);
    let atoms = [region_word_is(region, 0, 1, false), word_is(SPOT, 7, false), clock];
    if call::predicate_set(&atoms).is_err() || Space::own().unmap(SPOT, 1).is_err() {
        return 0xbad;
    }
    roles::count();
    call::sleep(0, 0, 0, 0).unwrap_or(0xbad)
}

/// Looks of the kernel's on this processor, and address spaces loaded, after so many writes that
/// are looked at; the latter is published once in a millisecond.
fn counters(region: RegionId) -> Result<(u64, u64), Failure> {
    let (end, mut writes) = (now_ns() + 3_000_000, 0);
    while now_ns() < end || writes < WRITES {
        write_region(region, 2).map_err(said)?;
        writes += 1;
    }
    let record: CpuRecord = published::record(Table::Cpus, 0).ok_or("no processor")?;
    Ok((record.predicates, record.cr3_loads))
}

/// xok97 T16: a predicate over a region, a page that has been unmapped and the clock. While it is
/// looked at, its sleeper is not scheduled and no address space is loaded; it is compiled; the
/// page's frame is nobody else's.
pub fn over_structures(ground: &Ground) -> Result<String, Failure> {
    let region = call::region_alloc(OWN, &[]).map_err(said)?;
    call::region_attach(OWN, region, 0, DomainId::NONE).map_err(said)?;
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(said)?;
    put(SCRATCH, 0);
    let frame = xok::own::frame(SCRATCH).ok_or("no frame")?;
    let time = now_ns() + 50_000_000;
    let words = [region.0, time, 0, 0, 0, 0];
    let sleeper = assistant::spawn(ground.image, SLEEP_OVER_STRUCTURES, words, &[])?;
    call::region_attach(OWN, region, 0, sleeper.domain).map_err(said)?;
    Space::of(sleeper.domain, OWN).map(SPOT, frame, 1, NO_EXECUTE).map_err(said)?;
    let before = compiled();
    assistant::start(sleeper)?;
    until(|| counter(sleeper.env) == 1, "the sleeper to fall asleep")?;
    until(|| now_ns() > time, "the time to come")?;
    expect!(compiled() == before + 1, "{} predicates were compiled", compiled() - before);
    let first = counters(region)?;
    let asleep = published::env(sleeper.env).ok_or("gone")?;
    let second = counters(region)?;
    let still = published::env(sleeper.env).ok_or("gone")?;
    let looks = second.0 - first.0;
    expect!(looks >= WRITES / 2, "only {looks} looks");
    expect!(second.1 == first.1, "{} address spaces were loaded", second.1 - first.1);
    expect!(still.switches == asleep.switches, "it was entered");
    expect!(still.run_ns == asleep.run_ns, "it used {} ns", still.run_ns - asleep.run_ns);
    // The page's last mapping goes, and its frame stays.
    put(SCRATCH, 7);
    own.unmap(SCRATCH, 1).map_err(said)?;
    let again = item(Operation::Allocate, 1, SCRATCH, frame.0, DATA);
    let again = call::table_update(OWN, DomainId::NONE, &[again]);
    expect!(matches!(again, Err((Error::Taken, _))), "its frame is given out: {again:?}");
    write_region(region, 1).map_err(said)?;
    let left = assistant::wait(sleeper.env)?;
    expect!(left == woken::PREDICATE, "woken by {left:#x}");
    expect!(compiled() == before, "a dead one's predicate is kept");
    call::region_detach(region, 0).map_err(said)?;
    Ok(format!("({looks} looks)"))
}

/// Words of the page and of the region, and what they hold.
struct World {
    region: RegionId,
    page: [u64; 8],
    words: [u64; 8],
}

impl World {
    /// A source, its value, and what it holds; the clock on the left only.
    fn side(&self, random: &mut Random, left: bool) -> (Source, u64, u64) {
        let at = random.below(8);
        match random.below(if left { 5 } else { 4 }) {
            0 => (Source::Memory, SCRATCH + 8 * at as u64, self.page[at]),
            1 => (Source::Region, 8 * at as u64, self.words[at]),
            2 => {
                let high = random.below(2) as u64;
                let half = self.page[at] >> (32 * high) & 0xffff_ffff;
                (Source::Memory32, SCRATCH + 8 * at as u64 + 4 * high, half)
            }
            3 => {
                let value = random.below(3) as u64;
                (Source::Constant, value, value)
            }
            _ => (Source::Clock, 0, 0),
        }
    }

    /// An atom, and whether it holds.
    fn atom(&self, random: &mut Random) -> (Atom, bool) {
        let operator = 1 + random.below(4) as u8;
        let (left, left_value, mut one) = self.side(random, true);
        let (mut right, mut right_value, mut other) = self.side(random, false);
        let mut mask = [0, 0, 1, 0xffff_ffff][random.below(4)];
        if left == Source::Clock {
            // With what it is above, or below, for long.
            mask = 0;
            (right, right_value) = (Source::Constant, [0, u64::MAX][random.below(2)]);
            (one, other) = (1 << 60, right_value);
        }
        let all = if mask == 0 { u64::MAX } else { mask };
        let (one, other) = (one & all, other & all);
        let holds = match operator {
            1 => one == other,
            2 => one != other,
            3 => one < other,
            _ => one >= other,
        };
        let last = u8::from(random.below(3) == 0);
        let (left, right, region) = (left as u8, right as u8, self.region.0);
        let zero = 0;
        (Atom { operator, left, right, last, zero, region, left_value, right_value, mask }, holds)
    }
}

/// xok97 XK-5: random predicates, compiled or too long for that, hold when their atoms say so.
pub fn as_written(_: &Ground) -> Result<String, Failure> {
    let rounds = setting("predicates=", 2_000);
    let mut random = Random(setting("seed=", 0x9e37_79b9_7f4a_7c15) | 1);
    let region = call::region_alloc(OWN, &[]).map_err(said)?;
    call::region_attach(OWN, region, 0, DomainId::NONE).map_err(said)?;
    let mut own = Space::own();
    own.allocate(SCRATCH, 1, DATA).map_err(said)?;
    let mut world = World { region, page: [0; 8], words: [0; 8] };
    let (mut held, mut were_compiled) = (0, 0);
    let none = compiled();
    for round in 0..rounds {
        let at = random.below(8);
        world.page[at] = random.below(3) as u64 | (random.below(3) as u64) << 32;
        put(SCRATCH + 8 * at as u64, world.page[at]);
        let mut operation =
            RegionOperation { region: region.0, writes: 1, ..RegionOperation::default() };
        let word = WordAt { offset: 8 * at as u64, value: random.below(3) as u64 };
        (operation.write[0], world.words[at]) = (word, word.value);
        call::region_operate(&operation).map_err(said)?;
        let count = random.below(PREDICATE_ATOMS + 1);
        let said_by: Vec<(Atom, bool)> = (0..count).map(|_| world.atom(&mut random)).collect();
        let atoms: Vec<Atom> = said_by.iter().map(|(atom, _)| *atom).collect();
        let mut products = said_by.split_inclusive(|(atom, _)| atom.last != 0);
        let expected = products.any(|product| {
            product.last().is_some_and(|(atom, _)| atom.last != 0)
                && product.iter().all(|(_, holds)| *holds)
        });
        call::predicate_set(&atoms).map_err(said)?;
        were_compiled += compiled() - none;
        let why = call::sleep(1, 0, 0, 0);
        expect!(why.is_ok() == expected, "predicate {round}: {why:?}, {said_by:?}");
        held += u64::from(expected);
    }
    expect!(were_compiled * 10 > rounds, "only {were_compiled} were compiled");
    expect!(were_compiled < rounds, "even the longest were compiled");
    expect!(held * 5 > rounds && held * 5 < rounds * 4, "{held} of {rounds} held");
    // A region that has ended counts as true.
    call::predicate_set(&[region_word_is(region, 0, 99, true)]).map_err(said)?;
    let why = call::sleep(1, 0, 0, 0);
    expect!(why.is_err(), "99 is in the region: {why:?}");
    call::region_detach(region, 0).map_err(said)?;
    let why = call::sleep(1, 0, 0, 0);
    expect!(why == Ok(woken::PREDICATE), "the region has ended: {why:?}");
    call::predicate_set(&[]).map_err(said)?;
    expect!(compiled() == none, "{} are left", compiled() - none);
    own.unmap(SCRATCH, 1).map_err(said)?;
    Ok(format!("({were_compiled} of {rounds} compiled, {held} held)"))
}
