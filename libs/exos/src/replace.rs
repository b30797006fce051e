//! `execve` in the space that is there: the program's half goes, the library's stays.
//!
//! ```text
//!  program's half   tables that the next program has no use for, go; of the others, the pages;
//!                   the top of the stack is emptied where it is
//!  library's half   as it is: files, connections, children, capabilities, what was looked up
//! ```
//! What [`begin`] does cannot be refused any more: as on Linux, who gets stuck here is killed.

use crate::errno::from_kernel;
use crate::layout::HEAP;
use crate::library::TABLE_SPAN;
use crate::loader::{self, Begin};
use crate::memory::areas::{Areas, Kind};
use crate::memory::fault::choice;
use crate::memory::frames;
use crate::memory::space::{STACK_TOP, space};
use crate::memory::tables::Items;
use crate::posix_timers::Timers;
use crate::process::Process;
use crate::rewrite::{self, Rewrites};
use crate::start_block::Command;
use crate::{environment, exec, exit, lock, machine, page, thread, time, trace};
use abi::layout::PAGE_SIZE;
use abi::memory::{NO_EXECUTE, PRESENT, WRITABLE};
use image::elf::Plan;
use linux_raw_sys::general::SIGKILL;
use xok::call::Refused;
use xok::upcall::Slot;

/// Bytes of the heap up to which it is kept: each fork copies what is there.
const HEAP_KEPT: u64 = 32 * PAGE_SIZE;
/// Bytes behind them where a heap that has grown shows.
const HEAP_LOOK: u64 = 64 * PAGE_SIZE;
/// Items sent at once: most programs have few tables and a run of pages in each.
const ITEMS: usize = 16;

/// Can the next program have the space of this one? The process must be alone in it, the program be
/// one of the boot image's (others come through the heap), and the library not have grown.
pub fn is_possible(process: &Process, command: &Command) -> bool {
    !process.borrows_space
        && !lock::is_shared()
        && process.threads.count() == 1
        && thread::own().is_first()
        && command.image.is_some()
        && !heap_has_grown()
}

/// Memory is given out from the lowest address that has room, so little is behind a small heap.
fn heap_has_grown() -> bool {
    let behind = HEAP + HEAP_KEPT;
    let end = (behind + HEAP_LOOK).min((behind & !(TABLE_SPAN - 1)) + TABLE_SPAN);
    xok::own::walk(behind).is_ok() && xok::own::next_present(behind, end) < end
}

/// Puts the next program in the place of this one; what the call answers to it.
pub fn begin(process: &mut Process, slot: &mut Slot, command: &Command, plan: &Plan) -> u64 {
    process.files.close_on_exec();
    process.signals.for_exec();
    process.timers = Timers::loaded(process.timers.saved());
    time::set_timer(process);
    thread::own().for_exec();
    process.executable.clone_from(&command.path);
    environment::hide();
    exec::fill_page(page::own(), command);
    let loaded = match empty(plan) {
        Ok(()) => loader::load(process, command, plan),
        Err((error, _)) => Err(from_kernel(error)),
    };
    match loaded {
        Ok(begin) => enter(process, slot, command, begin),
        Err(_) => exit::by_signal(process, SIGKILL),
    }
}

/// The program's first registers.
fn enter(process: &mut Process, slot: &mut Slot, command: &Command, begin: Begin) -> u64 {
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

/// Takes the program's half out, but for tables that `plan` goes on with.
fn empty(plan: &Plan) -> Result<(), Refused> {
    let areas = core::mem::take(&mut space().areas);
    space().rewrites = Rewrites::default();
    let mut batch = Items::<ITEMS>::own();
    let mut done = 0;
    let mut spared = None;
    for area in areas.all() {
        let mut at = (area.start & !(TABLE_SPAN - 1)).max(done);
        while at < area.end {
            let next = at + TABLE_SPAN;
            match xok::own::entry(at, 2) {
                Ok(entry) if entry & PRESENT == 0 => {}
                Ok(entry) if entry & WRITABLE == 0 || !goes_on_with(plan, at) => {
                    batch.unmap(2, at)?;
                }
                Ok(_) => {
                    if !plan.executable_stack {
                        spared = spared.or(stack_page(&areas, at));
                    }
                    empty_table(&mut batch, at, spared)?;
                }
                Err(missing) => {
                    // Nothing below a whole upper entry: on to the next one.
                    let span = TABLE_SPAN << (9 * (u32::from(missing) - 2));
                    at = (at & !(span - 1)) + span;
                    done = at;
                    continue;
                }
            }
            at = next;
            done = next;
        }
    }
    batch.send()?;
    spared.into_iter().for_each(frames::zero);
    Ok(())
}

/// Will there be pages of the next program in the table for `table`?
fn goes_on_with(plan: &Plan, table: u64) -> bool {
    let base = loader::base(plan);
    let end = table + TABLE_SPAN;
    let segments = || plan.segments().iter().map(|segment| segment.pages());
    end == STACK_TOP.next_multiple_of(TABLE_SPAN)
        || segments().any(|pages| base + pages.start < end && table < base + pages.end)
}

/// The top page of the stack, if it lies in this table and is the program's own: the next program's
/// arguments go there.
fn stack_page(areas: &Areas, table: u64) -> Option<u64> {
    let page = STACK_TOP - PAGE_SIZE;
    let area = areas.find(page).filter(|_| (table..table + TABLE_SPAN).contains(&page))?;
    let plain = choice(loader::STACK, true);
    let is_own = xok::own::leaf_below(page) & (PRESENT | WRITABLE | NO_EXECUTE) == PRESENT | plain;
    (area.kind == Kind::Anonymous && is_own).then_some(page)
}

/// Takes the pages of a table out, but for this one.
fn empty_table(batch: &mut Items<ITEMS>, table: u64, spared: Option<u64>) -> Result<(), Refused> {
    let end = table + TABLE_SPAN;
    let mut at = xok::own::next_present(table, end);
    while at < end {
        let run = xok::own::run_end(at, end, 0);
        let parts = match spared.filter(|page| (at..run).contains(page)) {
            Some(page) => [(at, page), (page + PAGE_SIZE, run)],
            None => [(at, run), (run, run)],
        };
        for (first, last) in parts {
            if first < last {
                batch.unmap_pages(first, (last - first) / PAGE_SIZE)?;
            }
        }
        at = xok::own::next_present(run, end);
    }
    Ok(())
}
