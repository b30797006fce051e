//! Physical memory by number: allocation, references, guards, pins, limbo (decisions 2, 9, 16).
//!
//! A frame lives as long as something refers to it. When the last reference goes, a table joins the
//! dying ones, and anything else goes to *limbo*: other processors may still have a translation
//! to it. Each hold of the lock that gave something up ends with a ticket; the machine layer hands
//! the ticket back when every processor has flushed. Tickets can come back in any order, so a
//! frame is free when its own and all earlier ones have.
//!
//! ```text
//!            allocate                     last reference          ticket back
//!   Free ──────────────► Data, Vector, … ───────────────► Limbo ──────────────► Free
//!            allocate                     last reference          table::work
//!   Free ──────────────► Table1 … Table4 ───────────────► dying ──────────────► Limbo
//! ```
//! Numbers link the lists (0 ends one): frame 0 is never given out.

use crate::answer::Refusal;
use crate::count::Count;
use crate::index::{AccountIndex, bounded};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, alone, left, loader};
use abi::capability::Name;
use abi::error::Error;
use abi::id::Frame;
use abi::layout::PAGE_SIZE;
use abi::limits::{CPUS, Resource};
use abi::published::{Category, FrameRecord, FrameType};
use abi::word::Which;
use core::ops::Range;

/// The private half of a frame's record; 32 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Record {
    /// What guards it.
    pub guard: Name,
    /// The account that held it last ([`account::heir`]); 0: it must be zeroed in any case. Of data
    /// in use, [`SECRET`] if it must be zeroed then. Of a table in use, the groups of [`GROUP`]
    /// entries that may have others than 0, a bit for each.
    last: u16,
    /// Next in the list of free, limbo or dying frames, or of those being revoked. Of a table's
    /// links, which are in no list, the low half of [`Record::lines`]. Of data and level-1 tables
    /// in use, which are in no list, the low half of the ticket of [`alone::note`].
    next: u32,
    /// Previous in the free list; low half of the ticket in limbo; of a table in use its present
    /// entries; of a table's links the high half of [`Record::lines`].
    previous: u32,
    /// The links of a level-1 table; high half of the ticket in limbo.
    pub(crate) links: u32,
    /// Entries of a dying table of tables worked off; of a frame being revoked, those looked at who
    /// may hold it without an entry.
    pub(crate) position: u16,
    /// Being revoked: takes no new binding.
    pub(crate) revoking: bool,
    /// [`WANDERS`], [`WATCHED`].
    pub(crate) marks: u8,
}

const _: () = assert!(core::mem::size_of::<Record>() == 32);

/// In [`Record::marks`]: it is revoked by the accounts whose tables have its entries, one after the
/// other.
pub(crate) const WANDERS: u8 = 1;
/// In [`Record::marks`]: a predicate has named a word of it since it was taken.
pub(crate) const WATCHED: u8 = 2;

/// In [`Record::last`]: nobody reads what is in it when it is given up. No account's index.
const SECRET: u16 = u16::MAX;

/// Entries of a table that one bit of [`Record::groups`] speaks for.
pub(crate) const GROUP: usize = 512 / 16;
/// Entries of a table that one bit of [`Record::lines`] speaks for.
pub(crate) const LINE: usize = 512 / 64;

impl Record {
    /// Entries present in a table that is in use (a root's: of the program's slots).
    pub fn entries(&self) -> u32 {
        self.previous
    }

    /// Of the links of a level-1 table: lines of the table that may have entries which are in a
    /// reverse chain. All others have entries for the boot image and payloads only, which nobody
    /// counts.
    fn lines(&self) -> u64 {
        u64::from(self.previous) << 32 | u64::from(self.next)
    }

    fn set_lines(&mut self, lines: u64) {
        (self.next, self.previous) = (lines as u32, (lines >> 32) as u32);
    }

    /// Next in the list that the frame is in.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    pub(crate) fn set_next(&mut self, next: u32) {
        self.next = next;
    }

    /// Previous in the free list.
    #[cfg(test)]
    pub(crate) fn previous(&self) -> u32 {
        self.previous
    }

    /// Counts an entry at `index` that has become present.
    pub(crate) fn count_entry(&mut self, index: usize) {
        self.previous += 1;
        self.mark(index);
    }

    /// Says how many entries a table has that was empty, and in which groups.
    pub(crate) fn set_entries(&mut self, count: u32, groups: u16) {
        (self.previous, self.last) = (count, groups);
    }

    /// Notes that the entry at `index` is not 0 any more.
    pub(crate) fn mark(&mut self, index: usize) {
        self.last |= 1 << (index / GROUP % 16);
    }

    /// Groups of a table in use that may have entries that are not 0.
    pub(crate) fn groups(&self) -> u16 {
        self.last
    }

    pub(crate) fn discount_entry(&mut self) {
        self.previous.less(1);
    }

    pub(crate) fn discount_entries(&mut self, count: u32) {
        self.previous.less(count);
    }
}

/// Frames that have a number: an entry's place in a chain is 23 bits of its table's frame and 9 of
/// index ([`chain`](crate::chain)).
pub const FRAMES_MAX: u32 = 1 << 23;

/// The part of a range of memory whose frames have numbers: what lies higher is not used.
pub fn numbered(range: loader::Range) -> loader::Range {
    loader::Range { end: range.end.min(Frame(FRAMES_MAX).address()), ..range }
}

/// The private half of the table.
pub struct Frames {
    pub(crate) records: &'static mut [Record],
    free: u32,
    free_count: u32,
    limbo_first: u32,
    limbo_last: u32,
    limbo_count: u32,
    /// The frames of the boot image.
    image: Range<u32>,
    pub(crate) ticket: u64,
    /// The last ticket with which a frame was left with one reference ([`alone`]).
    pub(crate) alone: u64,
    /// Tickets not yet back; 0: none.
    pub(crate) open: [u64; CPUS * 2],
}

impl Frames {
    /// A table of frames that are all absent.
    pub fn new(records: &'static mut [Record]) -> Self {
        Self {
            records,
            free: 0,
            free_count: 0,
            limbo_first: 0,
            limbo_last: 0,
            limbo_count: 0,
            image: 0..0,
            ticket: 1,
            alone: 0,
            open: [0; CPUS * 2],
        }
    }

    /// The private half of a frame's record.
    pub fn record(&self, frame: Frame) -> &Record {
        &self.records[frame.0 as usize]
    }

    /// Lines of [`LINE`] entries of a level-1 table that may have entries in a reverse chain.
    #[inline(always)]
    pub(crate) fn chained(&self, table: Frame) -> u64 {
        let links = self.records[table.0 as usize].links;
        self.records[links as usize].lines()
    }

    /// Notes that the entry at `index` of the table with these links is in a reverse chain.
    #[inline(always)]
    pub(crate) fn mark_chained(&mut self, links: u32, index: usize) {
        let record = &mut self.records[links as usize];
        record.set_lines(record.lines() | 1 << (index / LINE % 64));
    }

    /// Notes so of all entries of these lines.
    pub(crate) fn set_chained(&mut self, links: u32, lines: u64) {
        self.records[links as usize].set_lines(lines);
    }

    /// The first free frame, which is given out next.
    pub(crate) fn free_head(&self) -> u32 {
        self.free
    }

    /// Frames that are free.
    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Frames in limbo.
    pub fn limbo_count(&self) -> u32 {
        self.limbo_count
    }
}

/// What a frame is used as; `None` beyond memory.
pub fn kind(state: &State, frame: Frame) -> Option<FrameType> {
    state.published.frames.get(frame.0 as usize).map(|record| kind_of(record.kind))
}

/// The type with this number; numbers come from the kernel only.
pub(crate) fn kind_of(number: u8) -> FrameType {
    match number {
        0 => FrameType::Free,
        1 => FrameType::Data,
        2 => FrameType::Table1,
        3 => FrameType::Table2,
        4 => FrameType::Table3,
        5 => FrameType::Table4,
        6 => FrameType::Links,
        7 => FrameType::Vector,
        8 => FrameType::Region,
        9 => FrameType::Image,
        10 => FrameType::Kernel,
        11 => FrameType::Limbo,
        13 => FrameType::Code,
        _ => FrameType::Absent,
    }
}

/// The guard of a frame.
pub fn guard(state: &State, frame: Frame) -> &Name {
    &state.frames.records[frame.0 as usize].guard
}

/// Is the frame being taken from everybody: revoked, or paid for by an account that dies? Then it
/// takes no new entry.
#[inline(always)]
pub(crate) fn is_leaving(state: &State, frame: Frame) -> bool {
    let payer = AccountIndex::from(state.published.frames[frame.0 as usize].account);
    state.frames.records[frame.0 as usize].revoking || state.accounts.records[payer].dying
}

/// At boot: these frames may be given out.
///
/// All in one pass: there are as many as memory has pages, and a machine starts in milliseconds.
pub fn donate(state: &mut State, range: Range<u32>) {
    if range.is_empty() {
        return;
    }
    let (first, end) = (range.start as usize, range.end as usize);
    let head = state.frames.free;
    state.published.frames[first..end].fill(FrameRecord::default());
    // Low numbers are given out first.
    for (record, number) in state.frames.records[first..end].iter_mut().zip(range.clone()) {
        (record.next, record.previous) = (number + 1, number.wrapping_sub(1));
    }
    state.frames.records[first].previous = 0;
    state.frames.records[end - 1].next = head;
    if head != 0 {
        state.frames.records[head as usize].previous = range.end - 1;
    }
    let count = range.end - range.start;
    state.frames.free = range.start;
    state.frames.free_count += count;
    state.published.directory.frames_free += u64::from(count);
    state.published.directory.frames_usable += u64::from(count);
    account::add(state, Resource::Frames, count);
}

/// At boot: these frames belong to the machine, the kernel or the boot image, which is one range.
pub fn claim(state: &mut State, range: Range<u32>, kind: FrameType, guard: Name) {
    if kind == FrameType::Image {
        assert!(state.frames.image.is_empty(), "there is one boot image");
        state.frames.image = range.clone();
    }
    for number in range {
        state.published.frames[number as usize] =
            FrameRecord { kind: kind as u8, ..FrameRecord::default() };
        state.frames.records[number as usize] = Record { guard, ..Record::default() };
    }
}

/// The frame of a number that a caller has said; of what is none, the first one, which is nobody's.
pub(crate) fn named(state: &State, number: u32) -> Frame {
    Frame(bounded(number as usize, state.published.frames.len()) as u32)
}

/// The free frame that `which` asks for.
pub(crate) fn check_free(state: &State, which: Which) -> Result<u32, Refusal> {
    match which {
        Which::Any if state.frames.free != 0 => Ok(state.frames.free),
        Which::Any => Err(Error::Exhausted.into()),
        Which::This(number) => match kind(state, named(state, number)) {
            Some(FrameType::Free) => Ok(number),
            None | Some(FrameType::Absent | FrameType::Kernel | FrameType::Image) => {
                Err(Error::NoSuchFrame.into())
            }
            Some(_) => Err(Error::Taken.into()),
        },
    }
}

/// Allocates a frame with one reference, charged to `account`, zeroed if it was another's last.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    which: Which,
    account: AccountIndex,
    guard: Name,
    kind: FrameType,
) -> Result<Frame, Refusal> {
    account::check(state, account, Resource::Frames, 1)?;
    let number = check_free(state, which)?;
    Ok(take(state, machine, number, account, guard, kind, Contents::Any))
}

/// The two free frames that a level-1 table and its links ask for, both payable, or neither.
pub(crate) fn check_pair(
    state: &State,
    table: Which,
    links: Which,
    account: AccountIndex,
) -> Result<(u32, u32), Refusal> {
    account::check(state, account, Resource::Frames, 2)?;
    let mut first = check_free(state, table)?;
    let mut second = check_free(state, links)?;
    if first == second {
        let other = state.frames.records[first as usize].next;
        match (table, links) {
            (Which::This(_), Which::This(_)) => return Err(Error::Taken.into()),
            // The one at the head of the list is taken: whichever asked for "any" gets the next.
            (Which::This(_), Which::Any) => second = other,
            (Which::Any, Which::This(_)) => first = other,
            (Which::Any, Which::Any) => second = other,
        }
        if other == 0 {
            return Err(Error::Exhausted.into());
        }
    }
    Ok((first, second))
}

/// What is to be in a frame that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Whatever its last account left there: zeros, if that was another one.
    Any,
    /// Zeros.
    Zeros,
    /// What the caller stores there, all of it, before anybody sees it.
    Given,
}

/// Takes a free frame that `account` can pay for: both have been checked.
pub(crate) fn take<M: Machine>(
    state: &mut State,
    machine: &mut M,
    number: u32,
    account: AccountIndex,
    guard: Name,
    kind: FrameType,
    contents: Contents,
) -> Frame {
    let frame = Frame(number);
    account::count(state, account, Resource::Frames, 1);
    let Record { next, previous, last, .. } = state.frames.records[number as usize];
    match previous {
        0 => state.frames.free = next,
        before => state.frames.records[before as usize].next = next,
    }
    if next != 0 {
        state.frames.records[next as usize].previous = previous;
    }
    state.frames.free_count.less(1);
    state.published.directory.frames_free.less(1);
    let foreign = kind != FrameType::Data || last == 0 || last != account::heir(state, account);
    let zeros = match contents {
        Contents::Any => foreign,
        Contents::Zeros => true,
        Contents::Given => false,
    };
    if zeros {
        work::spend(state, cost::ZERO);
        machine.zero(frame);
    }
    state.frames.records[number as usize] = Record { guard, ..Record::default() };
    state.published.frames[number as usize] = FrameRecord {
        account: account.link(),
        kind: kind as u8,
        references: 1,
        ..FrameRecord::default()
    };
    if is_donated(kind) {
        let line = &mut state.published.census[Category::Donated as usize];
        line.objects += 1;
        line.bytes += PAGE_SIZE;
    }
    frame
}

/// Is it a frame of the boot image? Nobody can revoke it and it is never free again, so neither its
/// references are counted nor is it known who maps it.
#[inline(always)]
pub(crate) fn is_image(state: &State, frame: Frame) -> bool {
    state.frames.image.contains(&frame.0)
}

/// What is in the frame, which is in use as data, is read by nobody that gets it next.
pub(crate) fn keep_secret(state: &mut State, frame: Frame) {
    state.frames.records[frame.0 as usize].last = SECRET;
}

/// Adds a reference.
pub fn reference(state: &mut State, frame: Frame) {
    if !is_image(state, frame) {
        state.published.frames[frame.0 as usize].references += 1;
    }
}

/// Drops a reference; the last one ends the frame's use.
pub fn release(state: &mut State, frame: Frame) {
    if is_image(state, frame) {
        return;
    }
    let record = &mut state.published.frames[frame.0 as usize];
    record.references.less(1);
    if record.references != 0 {
        if record.references == 1 {
            let kind = record.kind;
            alone::note(state, frame, kind);
        }
        return;
    }
    match kind_of(record.kind) {
        FrameType::Table1 | FrameType::Table2 | FrameType::Table3 | FrameType::Table4 => {
            state.frames.records[frame.0 as usize].position = 0;
            push_dying(state, frame);
        }
        _ => bury(state, frame),
    }
}

/// Puts a table at the front of the dying ones of the account that pays for it.
pub(crate) fn push_dying(state: &mut State, table: Frame) {
    let account = left::worker(state.published.frames[table.0 as usize].account.into());
    let first = core::mem::replace(&mut state.accounts.records[account].left.tables, table.0);
    state.frames.records[table.0 as usize].next = first;
    left::mark(state, account);
}

/// Takes the first dying table off an account's list.
pub(crate) fn pop_dying(state: &mut State, account: AccountIndex) -> Frame {
    let first = Frame(state.accounts.records[account].left.tables);
    state.accounts.records[account].left.tables = state.frames.records[first.0 as usize].next();
    first
}

/// Adds a reference that keeps tables that map the frame from being frozen: the kernel or a
/// device writes the frame. Who pays for it is the caller's matter.
pub fn pin(state: &mut State, frame: Frame) {
    reference(state, frame);
    state.published.frames[frame.0 as usize].pins += 1;
}

/// Takes a pin back.
pub fn unpin(state: &mut State, frame: Frame) {
    state.published.frames[frame.0 as usize].pins.less(1);
    release(state, frame);
}

/// Is it one of the frames by which programs pay for what the kernel keeps for them?
fn is_donated(kind: FrameType) -> bool {
    !matches!(
        kind,
        FrameType::Free
            | FrameType::Data
            | FrameType::Image
            | FrameType::Kernel
            | FrameType::Limbo
            | FrameType::Absent
    )
}

/// Puts a frame that nothing refers to in limbo.
pub(crate) fn bury(state: &mut State, frame: Frame) {
    let heir = account::heir(state, state.published.frames[frame.0 as usize].account.into());
    let is_secret = state.frames.records[frame.0 as usize].last == SECRET;
    let published = &mut state.published.frames[frame.0 as usize];
    // Registers and regions are not the account's to read, nor are tables, which say what a secret
    // domain has mapped and used; links are written in part, and between them is what was there
    // before. Zeroed whoever comes next.
    let kind = kind_of(published.kind);
    let last = match kind {
        FrameType::Data if is_secret => 0,
        FrameType::Vector | FrameType::Region | FrameType::Code | FrameType::Links => 0,
        FrameType::Table1 | FrameType::Table2 | FrameType::Table3 | FrameType::Table4 => 0,
        _ => heir,
    };
    published.kind = FrameType::Limbo as u8;
    published.pins = 0;
    // Of a table: its domain. Everything else has left its chain.
    published.chain = 0;
    if is_donated(kind) {
        let line = &mut state.published.census[Category::Donated as usize];
        line.objects.less(1);
        line.bytes.less(PAGE_SIZE);
    }
    let ticket = state.frames.ticket;
    state.frames.records[frame.0 as usize] =
        Record { last, previous: ticket as u32, links: (ticket >> 32) as u32, ..Record::default() };
    match state.frames.limbo_last {
        0 => state.frames.limbo_first = frame.0,
        before => state.frames.records[before as usize].next = frame.0,
    }
    state.frames.limbo_last = frame.0;
    state.frames.limbo_count += 1;
}

fn ticket_of(record: &Record) -> u64 {
    u64::from(record.links) << 32 | u64::from(record.previous)
}

/// Does anything given up in this hold of the lock wait for a ticket?
#[inline]
pub fn limbo_waiting(state: &State) -> bool {
    let last = state.frames.limbo_last;
    last != 0 && ticket_of(&state.frames.records[last as usize]) == state.frames.ticket
}

/// Ends this hold of the lock's collection: what it gave up and what it asked to be flushed hang on
/// the ticket, which must come back by [`limbo_release`]. Each processor has one open at most.
pub fn ticket(state: &mut State) -> u64 {
    let ticket = state.frames.ticket;
    let slot = state.frames.open.iter_mut().find(|slot| **slot == 0);
    *slot.expect("each processor has one ticket open at most") = ticket;
    state.frames.ticket += 1;
    ticket
}

/// Every processor has flushed what hung on `ticket`: frees what waited for it and for no earlier.
pub fn limbo_release<M: Machine>(state: &mut State, _machine: &mut M, ticket: u64) {
    let frames = &mut state.frames;
    for slot in frames.open.iter_mut().filter(|slot| **slot == ticket) {
        *slot = 0;
    }
    let open = frames.open.iter().copied().filter(|&slot| slot != 0).min();
    let horizon = open.unwrap_or(frames.ticket);
    // Mostly all are one account's.
    let (mut payer, mut frames) = (AccountIndex::NONE, 0);
    loop {
        let first = state.frames.limbo_first;
        if first == 0 || ticket_of(&state.frames.records[first as usize]) >= horizon {
            return account::uncharge(state, payer, Resource::Frames, frames);
        }
        let Record { next, last, .. } = state.frames.records[first as usize];
        state.frames.limbo_first = next;
        if next == 0 {
            state.frames.limbo_last = 0;
        }
        state.frames.limbo_count.less(1);
        let account = AccountIndex::from(state.published.frames[first as usize].account);
        if account != payer {
            account::uncharge(state, payer, Resource::Frames, frames);
            (payer, frames) = (account, 0);
        }
        frames += 1;
        state.published.frames[first as usize] = FrameRecord::default();
        state.frames.records[first as usize] = Record { last, ..Record::default() };
        push_free(state, first);
    }
}

fn push_free(state: &mut State, number: u32) {
    let head = state.frames.free;
    state.frames.records[number as usize].next = head;
    state.frames.records[number as usize].previous = 0;
    if head != 0 {
        state.frames.records[head as usize].previous = number;
    }
    state.frames.free = number;
    state.frames.free_count += 1;
    state.published.directory.frames_free += 1;
}
