//! Reading the kernel's state: loads from the published pages, no call.
//!
//! # Safety
//! The published slot is mapped, read-only, in every space before its first instruction runs, and
//! its directory gives table addresses inside it; the kernel alone writes there. Records are
//! copied by volatile loads, since they change under the reader; large ones by one instruction,
//! since a volatile load of a thousand words is a thousand loads at each place of use.
#![allow(unsafe_code)]

use abi::call::CALLS_MAX;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::layout::PUBLISHED;
use abi::predicate::{Atom, Operator, Source};
use abi::published::*;
use core::arch::asm;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{Ordering, fence};

/// Bytes of a record that is still copied word by word.
const SMALL: usize = 128;

/// Copies a record out of the published pages.
#[inline]
fn load<T: Copy>(address: u64) -> T {
    if size_of::<T>() > SMALL {
        return load_large(address);
    }
    // SAFETY: `address` comes from the directory (see the head of the file) and T is a record of
    // plain words there.
    unsafe { core::ptr::read_volatile(address as *const T) }
}

/// The same in a loop of the processor's own, for whole application pages.
fn load_large<T: Copy>(address: u64) -> T {
    const { assert!(size_of::<T>() <= SMALL || size_of::<T>().is_multiple_of(8)) };
    let mut copy = MaybeUninit::<T>::uninit();
    // SAFETY: as in `load`.
    unsafe {
        asm!("rep movsq", inout("rcx") size_of::<T>() / 8 => _, inout("rsi") address => _,
            inout("rdi") copy.as_mut_ptr() => _, options(nostack, preserves_flags));
        copy.assume_init()
    }
}

#[inline]
fn directory_word(offset: usize) -> u64 {
    load::<u64>(PUBLISHED + offset as u64)
}

/// Is this a kernel whose published pages this library can read?
pub fn is_known() -> bool {
    let version = load::<u32>(PUBLISHED + core::mem::offset_of!(Directory, version) as u64);
    directory_word(0) == MAGIC && version >> 16 == VERSION >> 16
}

/// What the directory says of the machine: its first words, without tables and command line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Facts {
    pub magic: u64,
    pub version: u32,
    pub cpus: u32,
    pub frames: u64,
    pub frames_usable: u64,
    pub image_frame: u64,
    pub image_bytes: u64,
    pub payload_forced: u64,
    pub vector_bytes: u32,
    pub vector_features: u32,
    pub features: u64,
    pub frames_free: u64,
}

const _: () = assert!(size_of::<Facts>() == offset_of!(Directory, zero));
const _: () = assert!(offset_of!(Facts, image_bytes) == offset_of!(Directory, image_bytes));
const _: () = assert!(offset_of!(Facts, vector_features) == offset_of!(Directory, vector_features));
const _: () = assert!(offset_of!(Facts, frames_free) == offset_of!(Directory, frames_free));

/// What the directory says of the machine.
#[inline]
pub fn directory() -> Facts {
    load(PUBLISHED)
}

/// Bytes of a program's vector state, and XCR0's low half; 0: FXSAVE is used.
#[inline]
pub fn vector_state() -> (u32, u32) {
    const BYTES: usize = offset_of!(Directory, vector_bytes);
    const { assert!(offset_of!(Directory, vector_features) == BYTES + 4) };
    let word = directory_word(BYTES);
    (word as u32, (word >> 32) as u32)
}

/// Where a table is.
#[inline]
pub fn table(table: Table) -> TableInfo {
    let base = PUBLISHED + core::mem::offset_of!(Directory, tables) as u64;
    load(base + (table as u64) * core::mem::size_of::<TableInfo>() as u64)
}

/// Where the record at `index` of `which` is, if there is one, of so many bytes at least: two loads
/// of what `table` says.
#[inline]
fn place(which: Table, index: usize, bytes: usize) -> Option<u64> {
    const { assert!(offset_of!(TableInfo, count) == offset_of!(TableInfo, stride) + 4) };
    let info = PUBLISHED
        + offset_of!(Directory, tables) as u64
        + which as u64 * size_of::<TableInfo>() as u64;
    let address: u64 = load(info + offset_of!(TableInfo, address) as u64);
    let both: u64 = load(info + offset_of!(TableInfo, stride) as u64);
    let (stride, count) = (u64::from(both as u32), both >> 32);
    // Of a table that lies within the published pages, as every one does.
    let record = address.wrapping_add((index as u64).wrapping_mul(stride));
    ((index as u64) < count && stride >= bytes as u64).then_some(record)
}

/// The record at `index` of `which`, if there is one.
#[inline]
pub fn record<T: Copy>(which: Table, index: usize) -> Option<T> {
    place(which, index, size_of::<T>()).map(load)
}

/// The word at `offset` of a region's record; 0 if there is no such region.
#[inline]
pub fn region_word(id: RegionId, offset: usize) -> u64 {
    const RECORD: u64 = core::mem::size_of::<RegionRecord>() as u64;
    let info = PUBLISHED
        + core::mem::offset_of!(Directory, tables) as u64
        + Table::Regions as u64 * core::mem::size_of::<TableInfo>() as u64;
    let count: u32 = load(info + core::mem::offset_of!(TableInfo, count) as u64);
    let stride: u32 = load(info + core::mem::offset_of!(TableInfo, stride) as u64);
    let index = id.index();
    if index >= count as usize || u64::from(stride) != RECORD || offset as u64 + 8 > RECORD {
        return 0;
    }
    let first: u64 = load(info + core::mem::offset_of!(TableInfo, address) as u64);
    let record = first.wrapping_add(index as u64 * RECORD);
    if load::<u64>(record) == id.0 { load(record.wrapping_add(offset as u64)) } else { 0 }
}

/// The region that is there now and whose id has this low half, as a region travels in a word that
/// has to hold more. Whose it is must be looked at, as with any id.
pub fn region_with(low: u32) -> Option<RegionId> {
    let record: RegionRecord = record(Table::Regions, RegionId(low.into()).index())?;
    (record.id as u32 == low && low != 0).then_some(RegionId(record.id))
}

/// A published word whose place is known: looking at it is one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// One that never changes.
    pub const CONSTANT: Self = Self(PUBLISHED);

    /// The word at `offset` of a region's record, whatever region is or will be there.
    pub fn of_region(id: RegionId, offset: usize) -> Option<Self> {
        let info = table(Table::Regions);
        let within = offset.is_multiple_of(8) && offset + 8 <= info.stride as usize;
        let known = id.index() < info.count as usize && within;
        known.then(|| Self(record_address(Table::Regions, id.index()) + offset as u64))
    }

    /// What it is now.
    #[inline(always)]
    pub fn load(self) -> u64 {
        load(self.0)
    }
}

/// A word of the published pages, by its address.
pub(crate) fn word_at(address: u64) -> u64 {
    load(address)
}

/// Address of the record at `index` (for predicates), without checking that it exists.
pub fn record_address(which: Table, index: usize) -> u64 {
    let info = table(which);
    info.address + index as u64 * u64::from(info.stride)
}

/// A term of a predicate: how a word, `offset` bytes into an environment's record, compares.
pub fn env_word_atom(env: EnvId, offset: usize, operator: Operator, value: u64) -> Atom {
    Atom {
        operator: operator as u8,
        left: Source::Memory as u8,
        left_value: record_address(Table::Envs, env.index()) + offset as u64,
        right_value: value,
        last: 1,
        ..Atom::default()
    }
}

/// The same of a word of 32 bits.
pub fn env_atom(env: EnvId, offset: usize, operator: Operator, value: u32) -> Atom {
    Atom {
        operator: operator as u8,
        left: Source::Memory32 as u8,
        left_value: record_address(Table::Envs, env.index()) + offset as u64,
        right_value: u64::from(value),
        last: 1,
        ..Atom::default()
    }
}

/// A call's counters, of all processors together; the longest stretch is the longest of any.
pub fn call_record(number: usize) -> CallRecord {
    let mut sum = CallRecord::default();
    for cpu in 0..directory().cpus as usize {
        let of_cpu = record::<CallRecord>(Table::Calls, cpu * CALLS_MAX + number);
        let CallRecord { count, errors, longest_ns, ticks } = of_cpu.unwrap_or_default();
        sum.count += count;
        sum.errors += errors;
        sum.longest_ns = sum.longest_ns.max(longest_ns);
        sum.ticks += ticks;
    }
    sum
}

/// The environment with this id, if its record still stands.
pub fn env(id: EnvId) -> Option<EnvRecord> {
    record::<EnvRecord>(Table::Envs, id.index()).filter(|record| record.id == id.0)
}

/// The id of the environment at this place of the table, if there is one.
#[inline]
pub fn env_at(index: usize) -> Option<EnvId> {
    let id = EnvId(load(place(Table::Envs, index, size_of::<EnvRecord>())?));
    (!id.is_none()).then_some(id)
}

/// The domain with this id, if its record still stands.
pub fn domain(id: DomainId) -> Option<DomainRecord> {
    record::<DomainRecord>(Table::Domains, id.index()).filter(|record| record.id == id.0)
}

/// The field at `offset` of an environment's record, if that still stands.
#[inline]
fn env_field<T: Copy>(id: EnvId, offset: usize) -> Option<T> {
    let record = place(Table::Envs, id.index(), size_of::<EnvRecord>())?;
    let field = load(record.wrapping_add(offset as u64));
    (load::<u32>(record) == id.0).then_some(field)
}

/// The domain of the environment with this id, if its record still stands.
#[inline]
pub fn env_domain(id: EnvId) -> Option<DomainId> {
    env_field(id, offset_of!(EnvRecord, domain)).map(DomainId)
}

/// Who holds the record of the environment with this id, if that still stands.
#[inline]
pub fn env_holder(id: EnvId) -> Option<EnvId> {
    env_field(id, offset_of!(EnvRecord, holder)).map(EnvId)
}

/// The domain that it is at home in, whichever it visits.
pub fn env_home(id: EnvId) -> Option<DomainId> {
    let record = env(id)?;
    Some(DomainId(if record.home == 0 { record.domain } else { record.home }))
}

/// Which environment the one with this id is of all that there have been, if its record still
/// stands: an id comes again when so many have had its place, this number does not.
#[inline]
pub fn env_serial(id: EnvId) -> Option<u64> {
    env_field(id, offset_of!(EnvRecord, serial))
}

/// The count of changes to the record of the environment with this id, if that still stands.
/// Looked at before what is to be seen of it, it tells of each change that comes behind.
#[inline]
pub fn env_sequence(id: EnvId) -> Option<u64> {
    env_field(id, offset_of!(EnvRecord, sequence))
}

/// The count of changes to whom the domain with this id acts for, if its record still stands.
#[inline]
pub fn domain_holdings(id: DomainId) -> Option<u64> {
    let record = place(Table::Domains, id.index(), size_of::<DomainRecord>())?;
    let holdings = load(record.wrapping_add(offset_of!(DomainRecord, holdings) as u64));
    (load::<u64>(record) == id.0).then_some(holdings)
}

/// The account that pays for the domain with this id, if its record still stands.
#[inline]
pub fn domain_account(id: DomainId) -> Option<AccountId> {
    let record = place(Table::Domains, id.index(), size_of::<DomainRecord>())?;
    let account = load(record.wrapping_add(offset_of!(DomainRecord, account) as u64));
    (load::<u64>(record) == id.0).then_some(AccountId(account))
}

/// Is there an environment with this id, and has it not died?
#[inline]
pub fn env_lives(id: EnvId) -> bool {
    env_field(id, offset_of!(EnvRecord, state))
        .is_some_and(|state: u32| state != EnvState::Dead as u32)
}

/// A frame's record.
#[inline]
pub fn frame(frame: abi::id::Frame) -> Option<FrameRecord> {
    record(Table::Frames, frame.0 as usize)
}

/// The clock, read under its sequence word.
pub fn clock() -> Clock {
    const { assert!(offset_of!(Clock, sequence) == 0) };
    let Some(place) = place(Table::Clock, 0, size_of::<Clock>()) else {
        return Clock::default();
    };
    loop {
        let sequence: u64 = load(place);
        fence(Ordering::Acquire);
        let clock: Clock = load(place);
        fence(Ordering::Acquire);
        if sequence == load::<u64>(place) && sequence.is_multiple_of(2) {
            return clock;
        }
        core::hint::spin_loop();
    }
}

/// The kernel's command line.
pub fn command_line(buffer: &mut [u8; COMMAND_LINE]) -> &[u8] {
    let base = PUBLISHED + core::mem::offset_of!(Directory, command_line) as u64;
    let len = directory_word(core::mem::offset_of!(Directory, command_line_len)) as usize;
    let len = len.min(COMMAND_LINE);
    for (at, byte) in buffer.iter_mut().enumerate().take(len) {
        *byte = load(base + at as u64);
    }
    &buffer[..len]
}

/// Address of the application page of the environment at `index`.
pub fn application_page(index: usize) -> Option<u64> {
    place(Table::ApplicationPages, index, 0)
}

/// The application page of an environment's index: whoever has the index writes there.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationPage(u64);

impl ApplicationPage {
    /// The word at byte `offset`; `offset` is taken as a multiple of 8 within the page.
    #[inline]
    pub fn word(self, offset: usize) -> u64 {
        load(self.0.wrapping_add(offset as u64 & 0xff8))
    }

    /// The 32-bit word at byte `offset`, which is taken as a multiple of 4 within the page.
    #[inline]
    pub fn half(self, offset: usize) -> u32 {
        (self.word(offset) >> (8 * (offset & 4))) as u32
    }
}

/// The application page of the environment at `index`, to look at often; `None` beyond the tables.
pub fn application(index: usize) -> Option<ApplicationPage> {
    application_page(index).map(ApplicationPage)
}

/// A word of the application page of the environment at `index`; `None` beyond the tables.
pub fn application_word(index: usize, offset: usize) -> Option<u64> {
    let page = application_page(index)?;
    (offset < 4096 - 7 && offset.is_multiple_of(8)).then(|| load(page + offset as u64))
}
