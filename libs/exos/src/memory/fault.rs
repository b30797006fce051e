//! Page faults: zeros, the file's page, or a copy of a shared one; else a signal.
//!
//! Runs at the depth of the fault, also in the middle of a copy from or to the program, with the
//! lock of the space; for ExOS's own pages it does not even allocate from the heap.

use crate::errno::Errno;
use crate::layout::{HEAP, HEAP_END, IMAGE, PRIVATE, PRIVATE_END, SCRATCH, in_handler_stack};
use crate::library::TABLE_SPAN;
use crate::lock;
use crate::memory::areas::{Area, EXECUTE, Kind, READ, WRITE, page_down};
use crate::memory::frames;
use crate::memory::space::space;
use crate::memory::tables::Few;
use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::memory::{ADDRESS, KEEPS_WRITE, NO_EXECUTE, PRESENT, WRITABLE};
use abi::published::{FrameRecord, FrameType};
use xok::call::Refused;

/// The processor's error code: it was a store.
pub const ERROR_WRITE: u64 = 2;
/// It was an instruction fetch.
pub const ERROR_FETCH: u64 = 16;

/// Pages of a file entered around a fault, at most.
const AROUND: u64 = 16;
/// Pages of one table given back to a writer around a fault, at most.
const THAWED_AROUND: u64 = 16;
/// Anonymous pages that are made present at once, behind as many that are there.
const RUN: u64 = 8;

/// Why a fault stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was promised there (SEGV_MAPERR).
    Nothing,
    /// The area does not allow it (SEGV_ACCERR).
    Forbidden,
    /// Behind the end of the file (SIGBUS).
    BehindFile,
    /// No memory is left.
    NoMemory,
}

impl From<Refused> for Fault {
    fn from(_: Refused) -> Self {
        Fault::NoMemory
    }
}

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Self {
        if fault == Fault::NoMemory { Errno::ENOMEM } else { Errno::EFAULT }
    }
}

/// What the entry of a page of an area keeps besides. Shared pages are other processes', too, and
/// whose name guards them may be any one's: who has one mapped may write it whenever its own
/// protection says so.
pub fn keeps(kind: Kind) -> u64 {
    if kind == Kind::Shared { KEEPS_WRITE } else { 0 }
}

/// Choice bits of a page of an area, writable or not yet.
pub fn choice(protection: u8, writable: bool) -> u64 {
    let mut choice = 0;
    if writable && protection & WRITE != 0 {
        choice |= WRITABLE;
    }
    if protection & EXECUTE == 0 {
        choice |= NO_EXECUTE;
    }
    choice
}

/// Resolves a fault at `address` in the program's half.
pub fn program(address: u64, error: u64) -> Result<(), Fault> {
    let area = space().areas.find(address).ok_or(Fault::Nothing)?;
    let needed = if error & ERROR_FETCH != 0 {
        EXECUTE
    } else if error & ERROR_WRITE != 0 {
        WRITE
    } else {
        READ | WRITE | EXECUTE
    };
    if area.protection & needed == 0 {
        return Err(Fault::Forbidden);
    }
    allowed(*area, address, error)
}

/// Resolves a fault that `area` allows.
fn allowed(area: Area, address: u64, error: u64) -> Result<(), Fault> {
    let write = error & ERROR_WRITE != 0;
    let page = page_down(address);
    let (above, leaf) = match xok::own::walk(page) {
        Ok(found) => found,
        Err(missing) => return enter(&area, page, write, missing),
    };
    let present = leaf & PRESENT != 0;
    if present && (!write || (leaf & above & WRITABLE != 0)) {
        // Somebody was faster, or the processor remembered an old entry.
        return Ok(());
    }
    if above & WRITABLE == 0 {
        make_private(page)?;
    }
    if present { own_for_writing(&area, page, leaf) } else { enter(&area, page, write, 1) }
}

/// Takes one's own level-1 table for `page` back, or a copy of it; no entry is writable then.
pub fn make_private(page: u64) -> Result<(), Fault> {
    let Ok(entry) = xok::own::entry(page, 2) else { return Ok(()) };
    let table = Frame::containing(entry & ADDRESS);
    let is_single = || references(table) == 1;
    let thaw = || {
        let mut batch = Few::own();
        batch.push(abi::memory::Operation::Thaw, 2, page, 0, 0)?;
        batch.send()
    };
    if is_single() && thaw().is_ok() {
        return Ok(());
    }
    // Others have it, or gave it up, and a processor has still to forget it.
    let any = abi::memory::ANY_FRAME;
    let mut batch = Few::own();
    batch.push(abi::memory::Operation::Split, 2, page, any, u64::from(any))?;
    match batch.send() {
        // No memory: it may be ours alone by now.
        Err(_) if is_single() && thaw().is_ok() => Ok(()),
        sent => Ok(sent?),
    }
}

fn record(frame: Frame) -> FrameRecord {
    xok::published::frame(frame).unwrap_or_default()
}

fn references(frame: Frame) -> u32 {
    record(frame).references
}

/// A store to a present page that is not writable: ours alone, or to be copied.
fn own_for_writing(area: &Area, page: u64, leaf: u64) -> Result<(), Fault> {
    let record = record(Frame::containing(leaf & ADDRESS));
    let sole = record.kind == FrameType::Data as u8 && record.references == 1;
    if area.kind == Kind::Shared {
        // They keep the right to be written: a table that has some is never frozen (`fork`).
        let mut batch = Few::own();
        batch.protect(page, choice(area.protection, true) | keeps(area.kind))?;
        return Ok(batch.send()?);
    }
    if sole && take_back(area, page).is_ok() {
        return Ok(());
    }
    let mut batch = Few::own();
    batch.copy(page, page, choice(area.protection, true))?;
    match batch.send() {
        // No memory: it may be ours alone by now.
        Err(_) if sole && take_back(area, page).is_ok() => Ok(()),
        sent => Ok(sent?),
    }
}

/// Makes `page` writable, and its neighbours that are also ours alone.
fn take_back(area: &Area, page: u64) -> Result<(), Refused> {
    match take_back_around(area, page) {
        // A neighbour was refused: another space gave it up, and a processor has still to forget
        // it. Other threads may store in the page already: a copy would lose that.
        Err(_) if xok::own::leaf_below(page) & WRITABLE != 0 => Ok(()),
        taken => taken,
    }
}

/// In parts, of which the first has the page itself, and each may be refused.
fn take_back_around(area: &Area, page: u64) -> Result<(), Refused> {
    let mut batch = Few::own();
    let writable = choice(area.protection, true);
    batch.protect(page, writable)?;
    let first = area.start.max(page & !(THAWED_AROUND * PAGE_SIZE - 1));
    let last = area.end.min(first + THAWED_AROUND * PAGE_SIZE);
    let mut at = first;
    while at < last {
        if at != page && is_ours_alone(at) {
            batch.protect(at, writable)?;
        }
        at += PAGE_SIZE;
    }
    batch.send()
}

/// Is the page present, not writable, and nobody else's?
fn is_ours_alone(page: u64) -> bool {
    let leaf = xok::own::leaf_below(page);
    if leaf & (PRESENT | WRITABLE) != PRESENT {
        return false;
    }
    let record = record(Frame::containing(leaf & ADDRESS));
    record.kind == FrameType::Data as u8 && record.references == 1
}

/// Makes an absent page of `area` present; the entry of level `missing` is the first that is
/// absent.
fn enter(area: &Area, page: u64, write: bool, missing: u8) -> Result<(), Fault> {
    let mut batch = Few::own();
    for level in (2..=missing).rev() {
        batch.table(level, page)?;
    }
    let writable = choice(area.protection, true);
    match area.kind {
        Kind::Anonymous if missing == 1 && write => return Ok(enter_run(area, page)?),
        Kind::Anonymous | Kind::Shared => {
            batch.allocate_cleared(page, writable | keeps(area.kind))?;
            return Ok(batch.send()?);
        }
        Kind::Image { offset, bytes } => {
            let inside = page - area.start;
            let here = bytes.saturating_sub(inside);
            if !write && here >= PAGE_SIZE {
                batch.send()?;
                return Ok(enter_file_pages(area, page)?);
            }
            if lock::is_shared() {
                batch.send()?;
                let fill = |seen| frames::fill_from_image(seen, offset + inside, here);
                return enter_whole(page, writable, fill);
            }
            // Filled through the program's own address, so writable for a moment at least.
            batch.allocate(page, writable | WRITABLE)?;
            batch.send()?;
            frames::fill_from_image(page, offset + inside, here);
        }
    }
    if writable & WRITABLE == 0 {
        let mut batch = Few::own();
        batch.protect(page, writable)?;
        batch.send()?;
    }
    Ok(())
}

/// Fills a fresh page where nobody sees it, and enters it at `page`: other threads meet what was
/// there before, or all of it.
fn enter_whole(page: u64, choice: u64, fill: impl FnOnce(u64)) -> Result<(), Fault> {
    let mut batch = Few::own();
    batch.own_tables_to(SCRATCH)?;
    batch.allocate(SCRATCH, WRITABLE | NO_EXECUTE)?;
    batch.send()?;
    fill(SCRATCH);
    batch.map(page, SCRATCH, choice)?;
    batch.unmap(1, SCRATCH)?;
    Ok(batch.send()?)
}

/// Makes absent anonymous pages present from `page` on: one, or several where the pages before are
/// there, as then a program fills memory from its beginning on.
fn enter_run(area: &Area, page: u64) -> Result<(), Refused> {
    let absent = |at: u64| xok::own::leaf_below(at) & PRESENT == 0;
    // All in one table.
    let table = page & !(TABLE_SPAN - 1);
    let first = area.start.max(table);
    let filled =
        (1..=RUN).all(|back| page >= first + back * PAGE_SIZE && !absent(page - back * PAGE_SIZE));
    let most = if filled { RUN } else { 1 };
    let last = area.end.min(table + TABLE_SPAN).min(page + most * PAGE_SIZE);
    let run = (page..last).step_by(PAGE_SIZE as usize).take_while(|&at| at == page || absent(at));
    let writable = choice(area.protection, true);
    let mut batch = Few::own();
    for at in run {
        batch.allocate_cleared(at, writable)?;
    }
    match batch.send() {
        // Memory has run out, but behind the page that it is about.
        Err(_) if !absent(page) => Ok(()),
        sent => sent,
    }
}

/// Enters the image's frame at `page`, and those around it that are absent.
fn enter_file_pages(area: &Area, page: u64) -> Result<(), Refused> {
    let mut batch = Few::own();
    let Kind::Image { offset, bytes } = area.kind else { return Ok(()) };
    let readable = choice(area.protection, false);
    let first = area.start.max(page & !(AROUND * PAGE_SIZE - 1));
    let whole = area.start + (bytes & !(PAGE_SIZE - 1));
    let last = area.end.min(whole).min((page & !(AROUND * PAGE_SIZE - 1)) + AROUND * PAGE_SIZE);
    let mut at = first;
    while at < last {
        if xok::own::leaf_below(at) & PRESENT != 0 {
            at += PAGE_SIZE;
            continue;
        }
        let end = xok::own::absent_end(at, last);
        let from = IMAGE + offset + (at - area.start);
        batch.map_pages(at, from, (end - at) / PAGE_SIZE, readable)?;
        at = end;
    }
    batch.send()
}

/// Resolves a fault of ExOS itself: variables, heap and handler stacks come on touch.
pub fn library(address: u64) -> Result<(), Fault> {
    let on_touch = (PRIVATE..PRIVATE_END).contains(&address)
        || (HEAP..HEAP_END).contains(&address)
        || in_handler_stack(address);
    if !on_touch {
        return Err(Fault::Nothing);
    }
    own_page(page_down(address))
}

/// A page of zeros of ExOS's own.
fn own_page(page: u64) -> Result<(), Fault> {
    let mut batch = Few::own();
    batch.own_tables_to(page)?;
    batch.allocate_cleared(page, WRITABLE | NO_EXECUTE)?;
    Ok(batch.send()?)
}

/// Is the page at `address` there?
pub fn is_present(address: u64) -> bool {
    xok::own::leaf(address).is_some_and(|leaf| leaf & PRESENT != 0)
}
