//! `execve` in the space that is there: the program's half goes, the library's stays.
//!
//! ```text
//!  program's half   tables that the next program has no use for, go; of the others, the pages,
//!                   but for those of a file that both have at the same place;
//!                   the top of the stack is emptied where it is
//!  library's half   as it is: files, connections, children, capabilities, what was looked up;
//!                   so who has given an id up begins in another (decision 0049)
//! ```
//! From the first thing that [`begin`] changes on, nothing is refused: as on Linux, who gets stuck
//! then is killed.

use crate::errno::{Answer, from_kernel};
use crate::layout::{HEAP, IMAGE};
use crate::library::TABLE_SPAN;
use crate::loader::{self, Begin};
use crate::memory::areas::{Area, Areas, EXECUTE, Kind, READ, WRITE, page_down};
use crate::memory::fault::choice;
use crate::memory::frames;
use crate::memory::space::{STACK_TOP, space};
use crate::memory::tables::Items;
use crate::parts::Parts;
use crate::posix_timers::Timers;
use crate::process::Process;
use crate::rewrite::{self, Rewrites};
use crate::start_block::Command;
use crate::{environment, exec, exit, identity, lock, machine, page, thread, threads, time, trace};
use abi::layout::PAGE_SIZE;
use abi::memory::{ADDRESS, NO_EXECUTE, PRESENT, WRITABLE};
use image::elf::Plan;
use linux_raw_sys::general::SIGKILL;
use xok::call::Refused;
use xok::upcall::Slot;

/// Bytes of the heap up to which it is kept: each fork copies what is there.
const HEAP_KEPT: u64 = 32 * PAGE_SIZE;
/// Bytes behind them where a heap that has grown shows.
const HEAP_LOOK: u64 = 64 * PAGE_SIZE;
/// Pages of the program's text entered with its first one, at most.
const AROUND: u64 = 16;

/// Most programs have few tables and a run of pages in each.
type Batch = Items<16>;

/// Can the next program have the space of this one? The process must be alone in it, the program be
/// one of the boot image's (others come through the heap), the library not have grown, and nothing
/// be left in it that the next program may not do.
pub fn is_possible(process: &Process, command: &Command) -> bool {
    !process.borrows_space
        && !lock::is_shared()
        && process.threads.count() == 1
        && thread::own().is_first()
        && command.image.is_some()
        && !heap_has_grown()
        && !leaves_others_data(process)
}

/// Is there anything in the space that the next program may not see? What a set-id or hidden
/// program has read is not its starter's, nor is what user 0 has read its next user's.
fn leaves_others_data(process: &Process) -> bool {
    process.files.is_stale()
        || process.private
        || process.closed
        || identity::gives_up_by_exec(process)
}

/// Memory is given out from the lowest address that has room, so little is behind a small heap.
fn heap_has_grown() -> bool {
    let behind = HEAP + HEAP_KEPT;
    let end = (behind + HEAP_LOOK).min((behind & !(TABLE_SPAN - 1)) + TABLE_SPAN);
    xok::own::walk(behind).is_ok() && xok::own::next_present(behind, end) < end
}

/// Puts the next program in the place of this one; what the call answers to it.
pub fn begin(process: &mut Process, slot: &mut Slot, command: &Command, plan: &Plan) -> Answer {
    let areas = loader::areas(process, command, plan)?;
    process.files.close_on_exec();
    process.hidden = false;
    // Its list has the effective ids: nothing is refused.
    let _ = identity::executed(process);
    process.signals.for_exec();
    process.timers = Timers::loaded(process.timers.saved());
    process.parts = Parts::default();
    time::set_timer(process);
    threads::leave_futexes(thread::own());
    thread::own().for_exec();
    process.executable.clone_from(&command.path);
    process.program = None;
    environment::hide();
    exec::fill_page(page::own(), command);
    space().rewrites = Rewrites::default();
    let before = core::mem::take(&mut space().areas);
    let loaded = match empty(&before, &areas) {
        Ok(()) => loader::load(process, command, plan, areas),
        Err((error, _)) => Err(from_kernel(error)),
    };
    match loaded {
        Ok(begin) => Ok(enter(process, slot, command, begin)),
        Err(_) => exit::by_signal(process, SIGKILL),
    }
}

/// The program's first registers.
fn enter(process: &mut Process, slot: &mut Slot, command: &Command, begin: Begin) -> u64 {
    enter_first_pages(begin.rip);
    trace::begin_life(process, &command.environment, begin.rsp);
    environment::show(&command.environment);
    page::own().virtual_bytes = space().areas.bytes();
    thread::set_sample(rewrite::SAMPLE);
    thread::reset_vector();
    // Refused only where it is no address.
    let _ = machine::set_fs_base(0);
    *slot = Slot { rip: begin.rip, rsp: begin.rsp, rflags: 0x202, ..Slot::default() };
    0
}

/// Takes the program's half, of these areas, out, but for what those of the next one go on with.
fn empty(before: &Areas, next: &Areas) -> Result<(), Refused> {
    let mut batch = Batch::own();
    let mut done = 0;
    let mut spared = None;
    for area in before.all() {
        let mut at = (area.start & !(TABLE_SPAN - 1)).max(done);
        while at < area.end {
            let end = at + TABLE_SPAN;
            match xok::own::entry(at, 2) {
                Ok(entry) if entry & PRESENT == 0 => {}
                Ok(entry) if entry & WRITABLE == 0 || next.is_free(at, end) => {
                    batch.unmap(2, at)?;
                }
                Ok(_) => {
                    spared = spared.or(stack_page(before, next, at));
                    empty_table(&mut batch, next, at, spared)?;
                }
                Err(missing) => {
                    // Nothing below a whole upper entry: on to the next one.
                    let span = TABLE_SPAN << (9 * (u32::from(missing) - 2));
                    at = (at & !(span - 1)) + span;
                    done = at;
                    continue;
                }
            }
            at = end;
            done = end;
        }
    }
    batch.send()?;
    spared.into_iter().for_each(frames::zero);
    Ok(())
}

/// The top page of the stack, if it lies in this table and is the program's own: the next program's
/// arguments go there.
fn stack_page(before: &Areas, next: &Areas, table: u64) -> Option<u64> {
    let page = STACK_TOP - PAGE_SIZE;
    let inside = (table..table + TABLE_SPAN).contains(&page);
    let area = before.find(page).filter(|area| inside && area.kind == Kind::Anonymous)?;
    let same = next.find(page).is_some_and(|next| next.protection == area.protection);
    let own = choice(area.protection, true) | PRESENT;
    let leaf = xok::own::leaf_below(page) & (PRESENT | WRITABLE | NO_EXECUTE);
    (same && own & WRITABLE != 0 && leaf == own).then_some(page)
}

/// Takes the pages of a table out, but for this one and those of a file that the next program has
/// there, too.
fn empty_table(
    batch: &mut Batch,
    next: &Areas,
    table: u64,
    spared: Option<u64>,
) -> Result<(), Refused> {
    let end = table + TABLE_SPAN;
    let mut at = xok::own::next_present(table, end);
    while at < end {
        let run = xok::own::run_end(at, end, 0);
        while at < run {
            let stays = stay_until(next, at, run);
            let goes = go_until(next, stays, run);
            let parts = match spared.filter(|page| (stays..goes).contains(page)) {
                Some(page) => [(stays, page), (page + PAGE_SIZE, goes)],
                None => [(stays, goes), (goes, goes)],
            };
            for (first, last) in parts {
                if first < last {
                    batch.unmap_pages(first, (last - first) / PAGE_SIZE)?;
                }
            }
            at = goes;
        }
        at = xok::own::next_present(run, end);
    }
    Ok(())
}

/// Where a page of this area that is its file's own has its twin in the mapping of the boot image,
/// how the leaf of one says so, and where such pages end. None, if it is to be written.
fn file_pages(area: &Area) -> Option<(u64, u64, u64)> {
    let Kind::Image { offset, bytes } = area.kind else { return None };
    let twin = (IMAGE + offset).wrapping_sub(area.start);
    let last = area.end.min(area.start + (bytes & !(PAGE_SIZE - 1)));
    let plain = area.protection & (READ | WRITE | EXECUTE);
    (plain != 0 && plain & WRITE == 0).then_some((twin, choice(plain, false), last))
}

/// Does the present page hold the file's own frame, with these rights?
fn is_the_files(page: u64, twin: u64, rights: u64) -> bool {
    let leaf = xok::own::leaf_below(page) & (ADDRESS | WRITABLE | NO_EXECUTE);
    leaf == xok::own::leaf_below(page.wrapping_add(twin)) & ADDRESS | rights
}

/// The end of the pages from `at` on, all present, that the next program has just so.
fn stay_until(next: &Areas, at: u64, end: u64) -> u64 {
    let Some((twin, rights, last)) = next.find(at).and_then(file_pages) else { return at };
    let pages = (at..end.min(last)).step_by(PAGE_SIZE as usize);
    let same = pages.take_while(|&page| is_the_files(page, twin, rights)).count() as u64;
    let stays = at + same * PAGE_SIZE;
    if same != 0 && stays < end { stay_until(next, stays, end) } else { stays }
}

/// The end of the pages from `at` on that it has not.
fn go_until(next: &Areas, at: u64, end: u64) -> u64 {
    let mut page = at;
    while page < end {
        let found = next.find(page).and_then(file_pages);
        match found.filter(|&(.., last)| page < last) {
            Some((twin, rights, _)) if is_the_files(page, twin, rights) => return page,
            Some(_) => page += PAGE_SIZE,
            None => page = next.start_behind(page).min(end),
        }
    }
    end
}

/// Enters the pages around the first instruction, whose absence would be the first fault.
fn enter_first_pages(entry: u64) {
    let page = page_down(entry);
    let Some(area) = space().areas.find(page) else { return };
    let Some((twin, rights, last)) = file_pages(area) else { return };
    let first = area.start.max(page & !(AROUND * PAGE_SIZE - 1));
    let last = last.min((page & !(AROUND * PAGE_SIZE - 1)) + AROUND * PAGE_SIZE);
    let mut batch = Batch::own();
    let entered = match xok::own::entry(page, 2) {
        Ok(above) if above & (PRESENT | WRITABLE) == PRESENT => return,
        Ok(above) if above & PRESENT != 0 => {
            let present = |at: &u64| xok::own::leaf_below(*at) & PRESENT != 0;
            if (first..last).step_by(PAGE_SIZE as usize).any(|at| present(&at)) {
                return;
            }
            Ok(())
        }
        _ => batch.own_tables_to(page),
    };
    // What is refused here is met by the program.
    let _ = entered.and_then(|()| {
        if page < last {
            let pages = (last - first) / PAGE_SIZE;
            batch.map_pages(first, first.wrapping_add(twin), pages, rights)?;
        }
        batch.send()
    });
}
