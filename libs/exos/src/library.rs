//! Builds the library slot of another domain: fresh (`exec`, init) or as a copy (fork).
//!
//! ```text
//!  text, image      shared tables          save area, application page   copied from windows
//!  variables, heap  fork: eager copies     handler stacks                fresh, tops only
//! ```
//! Both makers have the text and the image mapped at their places: each ExOS process, and init.

use crate::layout::{
    APPLICATION_PAGE, CHILD_PAGES, FIRST_THREAD, HEAP, IMAGE, LARGE_BLOCK, PRIVATE, STACKS,
    START_BLOCK, START_BLOCK_BYTES, TEXT, WINDOW_COUNT, WINDOWS, in_handler_stack,
};
use crate::memory::frames;
use crate::memory::tables::{Batch, Few};
use abi::id::DomainId;
use abi::layout::{LIBRARY, PAGE_SIZE};
use abi::memory::{NO_EXECUTE, WRITABLE};
use abi::setup::{EnvSetup, FLAG_BORROW, field};
use alloc::vec::Vec;
use xok::call::Refused;

/// Bytes that one level-1 table maps.
pub const TABLE_SPAN: u64 = 512 * PAGE_SIZE;
/// Choice bits of ExOS's own data.
pub const DATA: u64 = WRITABLE | NO_EXECUTE;
/// Pages of each handler stack that are there from the start.
const STACK_PAGES: [u64; 4] = [2, 1, 1, 0];

/// Pages of variables, and of the heap's beginning, that a fresh life is given: it touches them all
/// before its program runs.
const FIRST_PAGES: [(u64, u64); 2] = [(PRIVATE, 2), (HEAP, 3)];

/// The window with this number.
pub fn window(number: u64) -> u64 {
    WINDOWS + number * PAGE_SIZE
}

/// Pages of somebody else's, seen in one's own windows while they are filled.
pub struct Windows {
    used: u64,
}

impl Windows {
    /// Allocates `count` fresh pages, at most [`WINDOW_COUNT`]. What is in them is arbitrary.
    pub fn open(count: u64) -> Result<Self, Refused> {
        let windows = Self { used: count.min(WINDOW_COUNT) };
        match windows.allocate() {
            Ok(()) => Ok(windows),
            Err(refused) => {
                // Those that are there go; the first refusal is the answer.
                let _ = windows.close();
                Err(refused)
            }
        }
    }

    fn allocate(&self) -> Result<(), Refused> {
        let mut batch = Batch::own();
        batch.own_tables_to(WINDOWS)?;
        for number in 0..self.used {
            batch.allocate(window(number), DATA)?;
        }
        batch.send()
    }

    /// Takes them out of one's own space.
    pub fn close(self) -> Result<(), Refused> {
        let mut batch = Batch::own();
        let there = |page: &u64| xok::own::leaf(*page).is_some();
        for page in (0..self.used).map(window).filter(there) {
            batch.unmap(1, page)?;
        }
        batch.send()
    }
}

/// Enters the tables of the library slot and shares text and image.
pub fn shared_parts(batch: &mut Batch) -> Result<(), Refused> {
    batch.table(4, LIBRARY)?;
    batch.table(3, LIBRARY)?;
    batch.share(TEXT)?;
    let bytes = xok::published::directory().image_bytes;
    let mut at = IMAGE;
    while at < IMAGE + bytes {
        batch.share(at)?;
        at += TABLE_SPAN;
    }
    batch.table(2, PRIVATE)
}

/// Makes the two pages of [`CHILD_PAGES`] present.
pub fn child_pages() -> Result<(), Refused> {
    let pages = [CHILD_PAGES, CHILD_PAGES + PAGE_SIZE];
    if pages.iter().all(|&page| xok::own::leaf(page).is_some()) {
        return Ok(());
    }
    let mut batch = Few::own();
    batch.own_tables_to(CHILD_PAGES)?;
    for page in pages {
        batch.allocate_cleared(page, DATA)?;
    }
    batch.send()
}

/// Enters the thread area of a child: copies of what is in [`CHILD_PAGES`], and fresh stacks.
pub fn child_area(batch: &mut Batch, area: u64) -> Result<(), Refused> {
    batch.copy(area, CHILD_PAGES, DATA)?;
    batch.copy(area + APPLICATION_PAGE, CHILD_PAGES + PAGE_SIZE, DATA)?;
    handler_stacks(batch, area)
}

/// Enters the thread area: an empty save area, a copy of window 0, and fresh stacks.
fn thread_area(batch: &mut Batch, area: u64) -> Result<(), Refused> {
    batch.allocate_cleared(area, DATA)?;
    batch.copy(area + APPLICATION_PAGE, window(0), DATA)?;
    handler_stacks(batch, area)
}

fn handler_stacks(batch: &mut Batch, area: u64) -> Result<(), Refused> {
    for ((top, _), pages) in STACKS.iter().zip(STACK_PAGES) {
        for page in (1..=pages).rev() {
            batch.allocate(area + top - page * PAGE_SIZE, DATA)?;
        }
    }
    Ok(())
}

/// A fresh library slot in `domain`, with this application page and start block. All that is
/// entered there is allocated there, for the domain's account: the maker's may be another one, and
/// the pages stay as long as the program does.
pub fn build_fresh(domain: DomainId, page: &[u8], block: &[u8]) -> Result<(), Refused> {
    let large = block.len() as u64 > START_BLOCK_BYTES;
    let near = if large { &[] } else { block };
    let block_pages = (near.len() as u64).div_ceil(PAGE_SIZE);
    let windows = Windows::open(1 + block_pages)?;
    let filled = fill_fresh(domain, page, near, block_pages);
    windows.close()?;
    filled?;
    if large { hand_over(domain, LARGE_BLOCK, block) } else { Ok(()) }
}

/// The same through windows that are open, `near` as the block.
fn fill_fresh(domain: DomainId, page: &[u8], near: &[u8], block_pages: u64) -> Result<(), Refused> {
    frames::zero(window(0));
    frames::put(window(0), 0, page);
    for (number, part) in near.chunks(PAGE_SIZE as usize).enumerate() {
        frames::put(window(1 + number as u64), 0, part);
    }
    let mut batch = Batch::of(domain);
    shared_parts(&mut batch)?;
    thread_area(&mut batch, FIRST_THREAD)?;
    for (first, pages) in FIRST_PAGES {
        batch.allocate_pages(first, pages, DATA)?;
    }
    for number in 0..block_pages {
        batch.copy(START_BLOCK + number * PAGE_SIZE, window(1 + number), DATA)?;
    }
    batch.send()
}

/// Puts bytes, in tables of their own, where the next life finds them.
pub fn hand_over(domain: DomainId, place: u64, bytes: &[u8]) -> Result<(), Refused> {
    const PAGE: usize = PAGE_SIZE as usize;
    let mut batch = Batch::of(domain);
    let mut at = place;
    for part in bytes.chunks(WINDOW_COUNT as usize * PAGE) {
        let windows = Windows::open(part.len().div_ceil(PAGE) as u64)?;
        for (number, page) in part.chunks(PAGE).enumerate() {
            let seen = window(number as u64);
            frames::zero(seen);
            frames::put(seen, 0, page);
            if at.is_multiple_of(TABLE_SPAN) {
                batch.table(2, at)?;
            }
            batch.map(at, seen, NO_EXECUTE)?;
            at += PAGE_SIZE;
        }
        batch.send()?;
        windows.close()?;
    }
    Ok(())
}

/// What every environment that starts in ExOS is told: what a setup leaves out is zero.
pub const START_FIELDS: u64 = field::RIP
    | field::RSP
    | field::ARGUMENT
    | field::FS_BASE
    | field::GS_BASE
    | field::FAULT_ENTRY
    | field::EVENT_ENTRY
    | field::FOREIGN_ENTRY
    | field::FLAGS
    | field::SAVE_AREA
    | field::APPLICATION_PAGE;

/// How an environment in a fresh library slot begins: ExOS's entry point, on the first stack.
pub fn fresh_setup(entry: u64, block_len: usize) -> (EnvSetup, u64) {
    let setup = EnvSetup {
        rip: entry,
        rsp: FIRST_THREAD + STACKS[0].0,
        argument: block_len as u64,
        gs_base: FIRST_THREAD,
        flags: FLAG_BORROW,
        save_area: FIRST_THREAD,
        application_page: FIRST_THREAD + APPLICATION_PAGE,
        ..EnvSetup::default()
    };
    (setup, START_FIELDS)
}

/// Bytes below a frame that what is called from there may use.
const NEAR: u64 = 1024;

/// Has the handler stack below the caller's frame hold zeros: nothing is left of earlier calls.
#[inline(never)]
pub fn wipe_stack() {
    wipe_far();
    wipe_near();
}

/// What lies just below, up to two pages.
#[inline(never)]
fn wipe_near() {
    let zeros = [0_u64; 2 * PAGE_SIZE as usize / 8];
    core::hint::black_box(&zeros);
}

/// The pages below that.
#[inline(never)]
fn wipe_far() {
    let here = 0_u64;
    let frame = core::ptr::from_ref(core::hint::black_box(&here)) as u64;
    let mut page = ((frame - NEAR) & !(PAGE_SIZE - 1)) - PAGE_SIZE;
    while in_handler_stack(page) && xok::own::leaf(page).is_some() {
        frames::zero(page);
        page -= PAGE_SIZE;
    }
}

/// Present pages of one's own in `[start, end)`.
pub fn present_pages(start: u64, end: u64) -> Vec<u64> {
    let mut pages = Vec::new();
    // It refuses nothing.
    let _ = each_present_page(start, end, |page| {
        pages.push(page);
        Ok::<(), ()>(())
    });
    pages
}

/// Does something with each present page of one's own in `[start, end)`, until it is refused.
/// Nothing is allocated here, so that the heap's pages can be copied as they are at one moment.
pub fn each_present_page<E>(
    start: u64,
    end: u64,
    mut act: impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = start;
    while at < end {
        let next = (at & !(TABLE_SPAN - 1)) + TABLE_SPAN;
        match xok::own::walk(at) {
            Ok(_) => {
                let last = next.min(end);
                at = xok::own::next_present(at, last);
                while at < last {
                    act(at)?;
                    at = xok::own::next_present(at + PAGE_SIZE, last);
                }
            }
            Err(2) => {
                // The level-2 table is there: on to its next entry that leads anywhere.
                let span = TABLE_SPAN << 9;
                let last = ((at & !(span - 1)) + span).min(end);
                at = xok::own::next_table(next.min(last), last);
            }
            Err(missing) => {
                // Nothing below a whole entry: on to the next one.
                let span = TABLE_SPAN << (9 * (u32::from(missing) - 2));
                at = (at & !(span - 1)).saturating_add(span);
            }
        }
    }
    Ok(())
}
