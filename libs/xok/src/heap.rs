//! A heap for native programs: pages of its own, mapped as they are needed and given back.
//!
//! ```text
//!  BASE     group 0: 16,384 pages; its first one says which are in use, and which are mapped
//!           group 1, ...
//!  a page   a run's, handed out as it is; or a slab: a head, then objects of one size
//! ```
//! Pages that are free again stay mapped as long as they are few; the others go back to the kernel,
//! as do tables that lead to nothing. Without memory the answer is a null pointer, and nothing has
//! changed: who can go on without asks by `try_reserve`.
//!
//! # Safety
//! The allocator hands out memory of pages between `BASE` and the end of its last group, which only
//! this file maps; heads of groups and slabs are written by it alone. A native program has one
//! environment and takes no upcall that allocates while it allocates (handlers run with the heap
//! free or do not use it; where there are `threads`, critical sections see to that), so the cell is
//! never entered twice; entering it twice panics.
#![allow(unsafe_code)]

use crate::call::{self, OWN, Refused};
use crate::critical::Critical;
use crate::memory::{DATA, item};
use crate::own;
use abi::error::Error;
use abi::id::{DomainId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, Item, Operation, PRESENT};
use alloc::boxed::Box;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::RefCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

mod slabs;

use slabs::{CLASSES_COUNT, Slab, class_of};

/// Where the heap begins, in the lower half.
pub const BASE: u64 = 0x0000_1000_0000_0000;
/// Pages of a group; its first page has two bits for each.
const GROUP: usize = 16_384;
/// Words of bits for a group.
const WORDS: usize = GROUP / 64;
/// Groups at most: 64 GiB.
const GROUPS_MAX: usize = 1024;
/// Pages below one level-1 table.
const TABLE: usize = 512;
/// Pages mapped at a time for single ones.
const STEP: usize = 16;
/// Free pages that stay mapped at most.
const KEPT_MAX: usize = 64;
/// Fewer free pages stay mapped when some are given back.
const KEPT: usize = 32;
/// A page, by its place in the heap.
type Page = usize;

/// What a group's first page holds.
#[repr(C, align(4096))]
struct Head {
    /// In use: handed out, or the head itself.
    used: [u64; WORDS],
    /// There is a frame.
    mapped: [u64; WORDS],
}

const _: () = assert!(size_of::<Head>() == PAGE_SIZE as usize);

/// All that the allocator knows.
struct State {
    groups: usize,
    /// No page below is free.
    hint: Page,
    /// Free pages that are mapped; what is said of one may be out of date.
    ready: [u32; KEPT_MAX * 2],
    ready_count: usize,
    /// Free pages that are mapped, counted.
    kept: usize,
    /// So many may be.
    kept_max: usize,
    /// So many stay, whatever else there is no memory for ([`provide`]).
    provided: usize,
    /// Slabs with free objects, by class.
    slabs: [*mut Slab; CLASSES_COUNT],
}

struct Cell(RefCell<State>);
// SAFETY: one environment a domain (head of the file).
unsafe impl Sync for Cell {}
static STATE: Cell = Cell(RefCell::new(State {
    groups: 0,
    hint: 0,
    ready: [0; KEPT_MAX * 2],
    ready_count: 0,
    kept: 0,
    kept_max: KEPT_MAX,
    provided: 0,
    slabs: [null_mut(); CLASSES_COUNT],
}));

/// Upcalls may leave to a thread that allocates.
static IN_SECTIONS: AtomicBool = AtomicBool::new(false);

/// From now on no upcall comes while memory is allocated or given back.
pub fn share_by_sections() {
    IN_SECTIONS.store(true, Ordering::Relaxed);
}

fn section() -> Option<Critical> {
    IN_SECTIONS.load(Ordering::Relaxed).then(Critical::enter)
}

fn address(page: Page) -> u64 {
    BASE + page as u64 * PAGE_SIZE
}

fn page_of(address: u64) -> Page {
    ((address - BASE) / PAGE_SIZE) as Page
}

/// Sends one item; was it done?
fn update(item: Item) -> bool {
    call::table_update(OWN, DomainId::NONE, &[item]).is_ok()
}

/// Makes the tables that lead to a page.
fn tables_to(address: u64) -> bool {
    (2..=4).rev().all(|level| {
        matches!(own::entry(address, level), Ok(entry) if entry & PRESENT != 0)
            || update(item(Operation::Table, level, address, ANY_FRAME, u64::from(ANY_FRAME)))
    })
}

/// The kernel is not asked for memory: for tests of what a program does without.
static STARVES: AtomicBool = AtomicBool::new(false);

/// From now on there is no memory but what is in use or provided, or there is some again.
pub fn starve(starves: bool) {
    if starves {
        trim();
    }
    STARVES.store(starves, Ordering::Relaxed);
}

/// Maps pages that lie below one table.
fn map(first: Page, count: usize) -> bool {
    let at = address(first);
    if STARVES.load(Ordering::Relaxed) || !tables_to(at) {
        return false;
    }
    let more = count as u16 - 1;
    if update(Item { more, ..item(Operation::Allocate, 1, at, ANY_FRAME, DATA) }) {
        return true;
    }
    // Some may have been.
    let mapped = (0..count).map(|page| at + page as u64 * PAGE_SIZE);
    mapped.filter(|&at| own::leaf(at).is_some()).for_each(unmap_one);
    false
}

/// What cannot be unmapped stays: nobody uses it, and it is asked for again.
fn unmap_one(at: u64) {
    let _ = update(item(Operation::Unmap, 1, at, 0, 0));
}

impl State {
    fn head(&mut self, group: usize) -> Option<&mut Head> {
        // SAFETY: groups that are counted have their first page, which is this file's alone; the
        // reference lives no longer than that to the state, of which there is one.
        (group < self.groups).then(|| unsafe { &mut *(address(group * GROUP) as *mut Head) })
    }

    fn word(&mut self, page: Page) -> Option<(&mut u64, &mut u64, u64)> {
        let head = self.head(page / GROUP)?;
        let (at, bit) = (page % GROUP / 64, 1 << (page % 64));
        Some((head.used.get_mut(at)?, head.mapped.get_mut(at)?, bit))
    }

    /// Is the page free, and is it mapped?
    fn look(&mut self, page: Page) -> (bool, bool) {
        let Some((used, mapped, bit)) = self.word(page) else { return (false, false) };
        (*used & bit == 0, *mapped & bit != 0)
    }

    fn set_used(&mut self, page: Page, is: bool) {
        let Some((used, mapped, bit)) = self.word(page) else { return };
        *used = if is { *used | bit } else { *used & !bit };
        if *mapped & bit != 0 {
            self.kept = if is { self.kept - 1 } else { self.kept + 1 };
        }
    }

    /// Of a free page.
    fn set_mapped(&mut self, page: Page, is: bool) {
        let Some((_, mapped, bit)) = self.word(page) else { return };
        *mapped = if is { *mapped | bit } else { *mapped & !bit };
        self.kept = if is { self.kept + 1 } else { self.kept - 1 };
    }

    /// Makes another group.
    fn grow(&mut self) -> bool {
        let first = self.groups * GROUP;
        if self.groups == GROUPS_MAX || !map(first, 1) {
            return false;
        }
        self.groups += 1;
        if let Some(head) = self.head(first / GROUP) {
            head.used = [0; WORDS];
            head.mapped = [0; WORDS];
            head.used[0] = 1;
            head.mapped[0] = 1;
        }
        true
    }

    /// The first run of so many free pages in a group, the run of its first ones at least `from`.
    fn run_in(&mut self, group: usize, from: usize, count: usize) -> Option<Page> {
        let head = self.head(group)?;
        let (mut at, mut run) = (from, 0);
        while at < GROUP {
            let word = head.used[at / 64];
            if at.is_multiple_of(64) && word == u64::MAX {
                (at, run) = (at + 64, 0);
            } else if at.is_multiple_of(64) && word == 0 && run + 64 < count {
                (at, run) = (at + 64, run + 64);
            } else {
                run = if word >> (at % 64) & 1 == 0 { run + 1 } else { 0 };
                at += 1;
            }
            if run >= count {
                return Some(group * GROUP + at - run);
            }
        }
        None
    }

    /// A run of so many free pages, not mapped all of them.
    fn find(&mut self, count: usize) -> Option<Page> {
        if count >= GROUP {
            return None;
        }
        loop {
            let (first, from) = (self.hint / GROUP, self.hint % GROUP);
            for group in first..self.groups {
                let from = if group == first { from } else { 0 };
                if let Some(page) = self.run_in(group, from, count) {
                    return Some(page);
                }
            }
            if !self.grow() {
                return None;
            }
        }
    }

    /// Maps what of a run of free pages is not.
    fn map_run(&mut self, first: Page, count: usize) -> bool {
        let mut at = first;
        while at < first + count {
            if self.look(at).1 {
                at += 1;
                continue;
            }
            let mut end = at + 1;
            while end < first + count && !end.is_multiple_of(TABLE) && !self.look(end).1 {
                end += 1;
            }
            if !map(at, end - at) {
                return false;
            }
            (at..end).for_each(|page| self.set_mapped(page, true));
            at = end;
        }
        true
    }

    /// A page, mapped.
    fn page(&mut self) -> Option<Page> {
        while let Some(last) = self.ready_count.checked_sub(1) {
            self.ready_count = last;
            let page = self.ready[last] as Page;
            if self.look(page) == (true, true) {
                self.set_used(page, true);
                return Some(page);
            }
        }
        let page = self.find(1)?;
        self.hint = page;
        // Some behind it, as far as there is room below the same table, and memory.
        let room = (STEP - 1).min(TABLE - 1 - page % TABLE);
        let mut behind = 0;
        while behind < room && self.look(page + 1 + behind) == (true, false) {
            behind += 1;
        }
        if !self.look(page).1 {
            if behind == 0 || !map(page, behind + 1) {
                behind = 0;
                if !map(page, 1) {
                    return self.page_kept();
                }
            }
            (page..=page + behind).for_each(|page| self.set_mapped(page, true));
            (page + 1..=page + behind).rev().for_each(|page| self.make_ready(page));
        }
        self.set_used(page, true);
        Some(page)
    }

    /// Maps free pages until there are so many that are mapped.
    fn map_free(&mut self, count: usize) -> bool {
        while self.kept < count {
            if !self.map_some(count - self.kept) {
                return false;
            }
        }
        true
    }

    /// Maps a free page, and some behind it.
    fn map_some(&mut self, most: usize) -> bool {
        let mut words = (0..self.groups * GROUP).step_by(64);
        let found = words.find_map(|page| {
            let (used, mapped, _) = self.word(page)?;
            let bits = !*mapped & !*used;
            (bits != 0).then(|| page + bits.trailing_zeros() as usize)
        });
        let Some(page) = found else { return self.grow() };
        let room = most.min(STEP).min(TABLE - page % TABLE);
        let mut count = 1;
        while count < room && self.look(page + count) == (true, false) {
            count += 1;
        }
        if !map(page, count) {
            return false;
        }
        (page..page + count).for_each(|page| self.set_mapped(page, true));
        (page..page + count).rev().for_each(|page| self.make_ready(page));
        true
    }

    /// A free page that is mapped, wherever it is.
    fn page_kept(&mut self) -> Option<Page> {
        if self.kept == 0 {
            return None;
        }
        let mut words = (0..self.groups * GROUP).step_by(64);
        let page = words.find_map(|page| {
            let (used, mapped, _) = self.word(page)?;
            let bits = *mapped & !*used;
            (bits != 0).then(|| page + bits.trailing_zeros() as usize)
        })?;
        self.set_used(page, true);
        Some(page)
    }

    fn make_ready(&mut self, page: Page) {
        if let Some(place) = self.ready.get_mut(self.ready_count) {
            *place = page as u32;
            self.ready_count += 1;
        }
    }

    /// Pages in a row.
    fn run(&mut self, count: usize) -> Option<Page> {
        if count == 1 {
            return self.page();
        }
        let page = self.find(count)?;
        if !self.map_run(page, count) {
            // What is free may have frames that this run lacks; it keeps those that it has.
            (page..page + count).for_each(|page| self.set_used(page, true));
            self.shrink(0);
            (page..page + count).for_each(|page| self.set_used(page, false));
            if !self.map_run(page, count) {
                self.shrink(0);
                return None;
            }
        }
        // What is provided is for single pages.
        if !self.map_free(self.provided + count) {
            return None;
        }
        (page..page + count).for_each(|page| self.set_used(page, true));
        Some(page)
    }

    /// Takes pages back.
    fn free(&mut self, first: Page, count: usize) {
        for page in first..first + count {
            self.set_used(page, false);
            self.make_ready(page);
        }
        self.hint = self.hint.min(first);
        if self.kept <= self.kept_max {
            return;
        }
        if count > STEP {
            self.unmap(first, count);
        }
        if self.kept > self.kept_max {
            self.shrink(self.kept_max - KEPT);
        }
    }

    /// Gives frames of free pages back to the kernel, until `keep` are left.
    fn shrink(&mut self, keep: usize) {
        let keep = keep.max(self.provided);
        // Those that have been free for long lie lowest.
        let (count, mut done) = (self.ready_count, 0);
        while done < count && self.kept > keep {
            let page = self.ready[done] as Page;
            if self.look(page) == (true, true) {
                self.unmap(page, 1);
            }
            done += 1;
        }
        self.ready.copy_within(done..count, 0);
        self.ready_count = count - done;
        if self.kept <= keep {
            return;
        }
        // Some are not in the list, which has an end.
        for page in (0..self.groups * GROUP).step_by(64) {
            let Some((used, mapped, _)) = self.word(page) else { return };
            let mut bits = *mapped & !*used;
            while bits != 0 && self.kept > keep {
                self.unmap(page + bits.trailing_zeros() as usize, 1);
                bits &= bits - 1;
            }
        }
    }

    /// Gives the frames of free pages that are mapped back, and tables that lead to nothing.
    fn unmap(&mut self, first: Page, count: usize) {
        let mut at = first;
        while at < first + count {
            let end = (first + count).min((at / TABLE + 1) * TABLE);
            let more = (end - at) as u16 - 1;
            let pages = Item { more, ..item(Operation::Unmap, 1, address(at), 0, 0) };
            if update(pages) {
                for page in at..end {
                    if self.look(page).1 {
                        self.set_mapped(page, false);
                    }
                }
                self.drop_table(at / TABLE * TABLE);
            }
            at = end;
        }
    }

    /// Gives the table of these pages back if none of them is mapped.
    fn drop_table(&mut self, first: Page) {
        let Some(head) = self.head(first / GROUP) else { return };
        let at = first % GROUP / 64;
        if head.mapped[at..at + TABLE / 64].iter().all(|&word| word == 0) {
            let _ = update(item(Operation::Unmap, 2, address(first), 0, 0));
        }
    }
}

/// From now on so many pages, at least, stay mapped when nothing needs them.
pub fn keep(pages: usize) {
    let _section = section();
    STATE.0.borrow_mut().kept_max = KEPT_MAX.max(pages);
}

/// From now on so many free pages stay mapped, in case there is no memory when they are needed:
/// as many as that, one by one, are there before this is called again. `Exhausted`: they are not.
///
/// A server that takes memory without asking calls it before each turn of its loop, and takes no
/// more in a turn than it has provided; what is larger than a page it asks for.
pub fn provide(pages: usize) -> Result<(), Refused> {
    let _section = section();
    let mut state = STATE.0.borrow_mut();
    state.provided = pages;
    state.kept_max = state.kept_max.max(2 * pages);
    state.map_free(pages).then_some(()).ok_or((Error::Exhausted, 0))
}

/// Gives all frames that nothing needs back to the kernel.
pub fn trim() {
    let _section = section();
    STATE.0.borrow_mut().shrink(0);
}

/// Frees what is a page of its own and whose frame others may see: it is taken from everybody
/// first, which nobody waits for. What is answered is the page that is not free until
/// [`has_left`] says so; it is never handed out before.
pub fn free_everywhere<T>(page: Box<T>) -> Option<u64> {
    const {
        let is_page = size_of::<T>() == PAGE_SIZE as usize && align_of::<T>() == size_of::<T>();
        assert!(is_page && !core::mem::needs_drop::<T>());
    }
    let _section = section();
    let at = Box::into_raw(page) as u64;
    let frame = own::frame(at).unwrap_or(Frame(ANY_FRAME));
    match call::frame_revoke_later(OWN, frame) {
        Ok(0) => {
            forget(at);
            None
        }
        Ok(_) => Some(at),
        // Better to lose a page than to let others see what it becomes.
        Err(_) => None,
    }
}

/// Has the page been taken from everybody? Its own entry is the last to go. It is free then, and
/// must not be asked about again.
pub fn has_left(page: u64) -> bool {
    let left = own::leaf(page).is_none();
    if left {
        let _section = section();
        forget(page);
    }
    left
}

/// There is no frame behind this page any more, and nobody has it.
fn forget(at: u64) {
    let mut state = STATE.0.borrow_mut();
    let page = page_of(at);
    state.set_used(page, false);
    state.set_mapped(page, false);
    state.hint = state.hint.min(page);
    state.drop_table(page / TABLE * TABLE);
}

/// The allocator; a program declares it `#[global_allocator]`.
#[derive(Default)]
pub struct Growing;

impl Growing {
    /// The heap of this program.
    pub const fn new() -> Self {
        Self
    }
}

// SAFETY: objects and runs are disjoint, and stay mapped until they are given back.
unsafe impl GlobalAlloc for Growing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _section = section();
        let mut state = STATE.0.borrow_mut();
        if let Some(class) = class_of(&layout) {
            return state.object(class);
        }
        if layout.align() > PAGE_SIZE as usize {
            return null_mut();
        }
        let count = layout.size().div_ceil(PAGE_SIZE as usize);
        state.run(count).map_or(null_mut(), |page| address(page) as *mut u8)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let _section = section();
        let mut state = STATE.0.borrow_mut();
        if class_of(&layout).is_some() {
            // SAFETY: the caller gives back what `alloc` gave out with this layout.
            unsafe { state.free_object(place) }
        } else {
            let count = layout.size().div_ceil(PAGE_SIZE as usize);
            state.free(page_of(place as u64), count);
        }
    }
}
