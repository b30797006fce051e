//! Frames by name: the free list that everybody reads, and what choosing from it is good for.

use super::exposed::kernel_entries;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::id::{DomainId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Operation};
use abi::published::{FrameRecord, FrameType, Table};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::memory::{DATA, Space, item};
use xok::published;

/// Pages of the conflict workload, and colours: pages whose lines fall into the same sets of a
/// cache that looks at physical addresses.
const COLOURS: u32 = 64;
/// Bytes of a line.
const LINE: u64 = 64;
/// How often the workload goes over its pages.
const ROUNDS: u64 = 10;

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

fn kind(number: u32) -> Option<u8> {
    published::frame(Frame(number)).map(|record| record.kind)
}

fn free_list() -> Vec<u32> {
    let count = published::table(Table::Frames).count;
    (0..count).filter(|&number| kind(number) == Some(FrameType::Free as u8)).collect()
}

fn take(number: u32, page: u64) -> Result<u64, Refused> {
    let take = item(Operation::Allocate, 1, SCRATCH + page * PAGE_SIZE, number, DATA);
    call::table_update(OWN, DomainId::NONE, &[take])
}

/// aegis95 T4, its first half: the free list is there to be read, agrees with what is given out,
/// and is not there to be written.
pub fn free_list_agrees(_: &Ground) -> Result<String, Failure> {
    let free = free_list();
    let said = published::directory().frames_free;
    expect!(free.len() as u64 == said, "{} frames are free, the directory says {said}", free.len());
    let wanted = *free.get(free.len() / 2).ok_or("no frame is free")?;
    take(wanted, 0).map_err(refused)?;
    expect!(!free_list().contains(&wanted), "frame {wanted} is given out, and still free");
    let any = take(ANY_FRAME, 1).map(|_| xok::own::frame(SCRATCH + PAGE_SIZE)).map_err(refused)?;
    let any = any.ok_or("nothing was given")?;
    expect!(free.contains(&any.0), "{any:?} was given, which was not free");
    let now = published::directory().frames_free;
    expect!(now + 2 == said, "two were given out: free went from {said} to {now}");
    for number in [wanted, any.0] {
        let record = published::record_address(Table::Frames, number as usize);
        let stored = (0..size_of::<FrameRecord>() as u64).any(|at| faults::store(record + at, 0));
        expect!(!stored, "the record of frame {number} was written");
    }
    Space::own().unmap(SCRATCH, 2).map_err(refused)?;
    expect!(free_list().contains(&wanted), "frame {wanted} was given back, and is not free");
    Ok(format!("({} frames free)", free.len()))
}

/// A cache that looks at physical addresses, each set of one line: a model, as the emulator has
/// none. It counts what misses.
struct Cache {
    lines: Vec<u64>,
    misses: u64,
}

impl Cache {
    fn load(&mut self, address: u64) {
        let line = address / LINE;
        let place = (line % self.lines.len() as u64) as usize;
        self.misses += u64::from(core::mem::replace(&mut self.lines[place], line) != line);
    }
}

/// Goes over the pages at `SCRATCH` again and again, loading from each really, and from the model
/// of a cache by the physical address that one's own table says. What missed behind the first
/// round.
fn conflicts() -> Result<u64, Failure> {
    let lines = u64::from(COLOURS) * PAGE_SIZE / LINE;
    let mut cache = Cache { lines: vec![u64::MAX; lines as usize], misses: 0 };
    let mut cold = 0;
    for round in 0..ROUNDS {
        for page in 0..u64::from(COLOURS) {
            let address = SCRATCH + page * PAGE_SIZE;
            faults::load(address).ok_or("a page of the workload is missing")?;
            let frame = xok::own::frame(address).ok_or("no frame")?;
            (0..PAGE_SIZE).step_by(LINE as usize).for_each(|at| cache.load(frame.address() + at));
        }
        if round == 0 {
            cold = cache.misses;
        }
    }
    Ok(cache.misses - cold)
}

/// aegis95 T4, its second half: a working set of the size of a cache, one frame of each colour
/// asked for by number, has no conflicts; one of frames at random has.
pub fn coloured_beats_random(_: &Ground) -> Result<String, Failure> {
    let free = free_list();
    let mut own = Space::own();
    own.tables_to(SCRATCH, 1).map_err(refused)?;
    for colour in 0..COLOURS {
        let of_colour = free.iter().find(|&&number| number % COLOURS == colour);
        let number = *of_colour.ok_or("a colour has no free frame")?;
        take(number, colour.into()).map_err(|why| format!("frame {number}: {why:?}"))?;
    }
    let coloured = conflicts()?;
    own.unmap(SCRATCH, COLOURS.into()).map_err(refused)?;
    // xorshift64: the same frames each time, and no pattern in them.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut page = 0;
    while page < COLOURS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let number = free[(random % free.len() as u64) as usize];
        page += u32::from(take(number, page.into()).is_ok());
    }
    let at_random = conflicts()?;
    own.unmap(SCRATCH, COLOURS.into()).map_err(refused)?;
    expect!(coloured == 0, "a frame of each colour, and {coloured} lines missed");
    expect!(at_random > 0, "frames at random, and no line missed");
    Ok(format!("(modelled misses: coloured {coloured}, random {at_random})"))
}

/// aegis95 T35: whether a page is dirty is a look into one's own table, a million times.
pub fn dirty_without_calls(_: &Ground) -> Result<String, Failure> {
    const ASKED: u64 = 1_000_000;
    const PAGES: u64 = 8;
    let mut own = Space::own();
    own.allocate(SCRATCH, PAGES, DATA).map_err(refused)?;
    let stored = (0..PAGES).step_by(2).all(|page| faults::store(SCRATCH + page * PAGE_SIZE, 1));
    expect!(stored, "own pages");
    let calls = |made: u64| {
        let before = kernel_entries();
        for _ in 0..made {
            // There is no timer to stop: nothing changes but the count.
            let _ = call::timer_set(0);
        }
        kernel_entries() - before
    };
    // First, that the counter counts.
    expect!(calls(10) == 10, "ten calls, and the counter moved otherwise");
    let before = kernel_entries();
    let mut dirty = 0;
    for at in 0..ASKED {
        dirty += u64::from(xok::own::is_dirty(SCRATCH + at % PAGES * PAGE_SIZE));
    }
    let entered = kernel_entries() - before;
    own.unmap(SCRATCH, PAGES).map_err(refused)?;
    expect!(entered == 0, "{entered} kernel entries for {ASKED} questions");
    expect!(dirty == ASKED / 2, "{dirty} of {ASKED} answers said dirty");
    Ok(format!("({ASKED} asked, {entered} entries)"))
}
