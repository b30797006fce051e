//! Published pages: kernel bookkeeping, read-only in every space (xok97 XK-13, thesis98 M-8).
//!
//! One writer, the kernel; no secret; reading costs no call. The directory at
//! [`PUBLISHED`](crate::layout::PUBLISHED) says where each table is; readers use its stride, fields
//! are only appended. A record is written as whole 64-bit words, or under a sequence word.
//!
//! ```text
//!  PUBLISHED + 0x0000  Directory (2 pages)
//!            + …       tables in the order of `Table`, each page-aligned
//!            + …       application pages: one 4 KiB page per environment index
//! ```

use crate::atomic::{Atomic, Ordering};

/// First word of the directory: "XOKPUBL1", little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"XOKPUBL1");
/// The layout's version; the upper 16 bits change when a reader must refuse.
pub const VERSION: u32 = 2 << 16;
/// Bytes of the command line the directory holds.
pub const COMMAND_LINE: usize = 2048;

/// The tables, by position in [`Directory::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// [`EnvRecord`] by index.
    Envs = 0,
    /// Application pages by index of environment; stride 4096.
    ApplicationPages = 1,
    /// [`DomainRecord`] by index.
    Domains = 2,
    /// [`AccountRecord`] by index.
    Accounts = 3,
    /// [`FrameRecord`] by number.
    Frames = 4,
    /// [`RegionRecord`] by index.
    Regions = 5,
    /// [`FilterRecord`] by index.
    Filters = 6,
    /// [`RingRecord`] by index.
    Rings = 7,
    /// [`SliceRecord`], `limits::SLICES` for each processor in turn.
    Slices = 8,
    /// [`Clock`], one.
    Clock = 9,
    /// [`CpuRecord`] by processor.
    Cpus = 10,
    /// [`CallRecord`] by number of the call, `call::CALLS_MAX` for each processor in turn.
    Calls = 11,
    /// [`CensusRecord`] by [`Category`].
    Census = 12,
    /// [`InterfaceRecord`] by network interface.
    Interfaces = 13,
    /// [`TraceRing`](crate::trace::TraceRing) by processor.
    Traces = 14,
    /// [`TraceRecord`](crate::trace::TraceRecord), `TraceRing::records` for each processor in turn.
    TraceRecords = 15,
    /// [`AgeRecord`] by number of the frame.
    Ages = 16,
}

/// Tables there are.
pub const TABLES: usize = 17;

/// Where a table is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TableInfo {
    /// Address of the first record, the same in every space.
    pub address: u64,
    /// Bytes from one record to the next.
    pub stride: u32,
    /// Records.
    pub count: u32,
    /// Version of the record's layout.
    pub version: u32,
    /// Zero.
    pub zero: u32,
}

/// The first two pages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Directory {
    /// [`MAGIC`]
    pub magic: u64,
    /// [`VERSION`]
    pub version: u32,
    /// Processors running.
    pub cpus: u32,
    /// Frame numbers there are (highest + 1).
    pub frames: u64,
    /// Frames that programs may have: those given out at boot plus the free ones.
    pub frames_usable: u64,
    /// First frame of the boot image.
    pub image_frame: u64,
    /// Bytes of the boot image.
    pub image_bytes: u64,
    /// Address bits that the kernel forces to one in non-present entries.
    pub payload_forced: u64,
    /// Bytes of vector state saved for each environment.
    pub vector_bytes: u32,
    /// XCR0, low half; 0: FXSAVE is used.
    pub vector_features: u32,
    /// Feature bits: `FEATURE_…`.
    pub features: u64,
    /// Free frames now.
    pub frames_free: u64,
    /// Zero.
    pub zero: [u64; 6],
    /// The tables.
    pub tables: [TableInfo; 24],
    /// Bytes of the command line.
    pub command_line_len: u64,
    /// The kernel's command line.
    pub command_line: [u8; COMMAND_LINE],
}

/// SMAP and SMEP are on.
pub const FEATURE_SMAP: u64 = 1;
/// RDFSBASE and its kin work in user mode.
pub const FEATURE_FSGSBASE: u64 = 2;
/// A random source was found.
pub const FEATURE_ENTROPY: u64 = 4;
/// XSAVE is used.
pub const FEATURE_XSAVE: u64 = 8;
/// The processor keeps mappings of one frame coherent that differ in memory type.
pub const FEATURE_SELF_SNOOP: u64 = 16;
/// Users can be kept apart, or shall not be (`mitigations=off`): accounts can be made.
pub const FEATURE_USERS: u64 = 32;

/// States of an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EnvState {
    /// The index is unused.
    #[default]
    Free = 0,
    /// Made, not yet released for the first time.
    New = 1,
    /// Wants a processor.
    Ready = 2,
    /// Has one.
    Running = 3,
    /// Waits for its predicate, posts or events.
    Sleeping = 4,
    /// Waits for the reply to a synchronous transfer.
    Donating = 5,
    /// Taken off the processors by `EnvHold`.
    Held = 6,
    /// Faulted where no handler could be entered; its last frame is in its save area.
    Stopped = 7,
    /// Dead; the record stays until its holder forgets it.
    Dead = 8,
}

/// An environment, public half.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EnvRecord {
    /// Its id, 0 when the index is unused.
    pub id: u32,
    /// [`EnvState`] as a number.
    pub state: u32,
    /// The domain it is in.
    pub domain: u64,
    /// Its account.
    pub account: u64,
    /// The environment that holds the record and hears of its death.
    pub holder: u32,
    /// Processor it last ran on.
    pub cpu: u32,
    /// The word it died with (64 bits, the killer's or its own choice).
    pub word: u64,
    /// Who destroyed it (itself: exit).
    pub killer: u32,
    /// Cause of the fault that stopped it.
    pub cause: u32,
    /// Times it was given a processor.
    pub switches: u64,
    /// Nanoseconds it has run.
    pub run_ns: u64,
    /// Upcalls delivered to it (faults and events).
    pub upcalls: u64,
    /// Kernel entries it made: calls, faults.
    pub entries: u64,
    /// When it was made, nanoseconds since boot.
    pub born_ns: u64,
    /// Whom its slices run now, 0: itself.
    pub donated_to: u32,
    /// Slices forfeited for excess time, still to pay.
    pub excess: u32,
    /// Changes whenever `state`, `word` or `holder` changes; a predicate can name it.
    pub sequence: u64,
    /// The domain it is at home in while it visits another; else 0.
    pub home: u64,
    /// Which environment it is of all that there have been: no other has this number, whatever its
    /// id is.
    pub serial: u64,
    /// Account of its domain (of a dead one: of its home). Between turns of two predictors forget.
    pub user: u64,
}

/// A domain.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DomainRecord {
    /// Its id.
    pub id: u64,
    /// Its account.
    pub account: u64,
    /// Environments in it, and those at home in it that visit another.
    pub envs: u32,
    /// Frame of its root table.
    pub root: u32,
    /// Table frames (links included) reached by its own tree when they were entered.
    pub tables: u32,
    /// Leaf entries entered less removed, by calls on this domain.
    pub entries: u32,
    /// Regions it is attached to.
    pub attachments: u32,
    /// Zero.
    pub zero: u32,
    /// Moves whenever a capability or group enters or leaves what it holds (`DomainHolds`).
    pub holdings: u64,
    /// Zero.
    pub more: [u64; 2],
}

/// An account.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AccountRecord {
    /// Its id.
    pub id: u64,
    /// Its parent, 0 for the first.
    pub parent: u64,
    /// In use, by `limits::Resource`: its own, and what those below use or, if more, reserve.
    pub used: [u32; crate::limits::RESOURCES],
    /// May be in use.
    pub limit: [u32; crate::limits::RESOURCES],
    /// Kept for it and those below.
    pub reserve: [u32; crate::limits::RESOURCES],
    /// Zero.
    pub zero: [u32; 15],
}

/// What a frame is used as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameType {
    /// Nobody's.
    #[default]
    Free = 0,
    /// Program memory.
    Data = 1,
    /// A page table of level 1..=4: `Table1`…
    Table1 = 2,
    /// See `Table1`.
    Table2 = 3,
    /// See `Table1`.
    Table3 = 4,
    /// See `Table1`.
    Table4 = 5,
    /// The links of a level-1 table.
    Links = 6,
    /// Vector state and predicate of an environment.
    Vector = 7,
    /// A region's.
    Region = 8,
    /// The boot image's.
    Image = 9,
    /// The kernel's own.
    Kernel = 10,
    /// Given up, but a device or processor may still hold it.
    Limbo = 11,
    /// Not memory.
    Absent = 12,
    /// Downloaded code, compiled, and what a region keeps of its methods.
    Code = 13,
}

/// A frame; 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct FrameRecord {
    /// Index of the account that pays.
    pub account: u16,
    /// [`FrameType`] as a number.
    pub kind: u8,
    /// Its memory type: [`TYPE`](crate::memory::TYPE) of each entry that maps it, shifted right by
    /// `TYPE_SHIFT`; 0: write-back.
    pub memory_type: u8,
    /// References: entries, tables' uses, pins.
    pub references: u32,
    /// Pins for writing or by devices.
    pub pins: u32,
    /// The first entry of the reverse chain: table frame's number << 9 | index, 0: none. Of a table
    /// of level 1 to 3, which is in no chain: the low half of the id of the domain that it was made
    /// for.
    pub chain: u32,
}

/// When a frame was last seen in use. Sorted by it, frames are in order of their last use, as far
/// as the kernel's rounds tell: it looks at each some times in a minute of a busy machine.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AgeRecord {
    /// Nanoseconds since boot, shifted right by [`AGE_SHIFT`], when an entry that maps it, of a
    /// domain that has asked for that (`Property::Ages`), was last found accessed, or when it was
    /// first looked at; 0: not looked at since it was given out, or mapped by no such entry.
    pub seen: u32,
}

/// From nanoseconds to ages: 8.4 ms.
pub const AGE_SHIFT: u32 = 23;

/// A region.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RegionRecord {
    /// Its id.
    pub id: u64,
    /// Its account.
    pub account: u64,
    /// The domain that made it.
    pub domain: u64,
    /// Bytes.
    pub bytes: u32,
    /// Zero.
    pub zero: u32,
    /// Attachments in each role; words a predicate can name.
    pub attached: [u64; 4],
    /// Operations done.
    pub operations: u64,
    /// Zero.
    pub more: [u64; 7],
}

/// A packet filter.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct FilterRecord {
    /// Its id.
    pub id: u64,
    /// The domain that inserted it.
    pub domain: u64,
    /// The ring its packets go to.
    pub ring: u64,
    /// References.
    pub references: u32,
    /// `filter::COPY`, `filter::SUBSETTABLE`.
    pub flags: u32,
    /// Interface.
    pub interface: u32,
    /// Atoms.
    pub atoms: u32,
    /// Packets accepted.
    pub matched: u64,
    /// Zero.
    pub zero: [u64; 2],
}

/// A ring.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RingRecord {
    /// Its id.
    pub id: u64,
    /// Its domain.
    pub domain: u64,
    /// Buffers.
    pub entries: u32,
    /// Zero.
    pub zero: u32,
    /// Packets put in.
    pub delivered: u64,
    /// Packets dropped because the next buffer was not given back.
    pub dropped: u64,
    /// Packets cut to the buffer's capacity.
    pub cut: u64,
    /// Zero.
    pub more: [u64; 2],
}

/// A slice position.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SliceRecord {
    /// The environment that owns it (the first of those sharing it), 0: free.
    pub env: u32,
    /// Environments sharing it.
    pub sharers: u32,
    /// Times it came round and was used.
    pub used: u64,
}

/// How the clock may be read.
pub mod clock_source {
    /// Only `tick_ns` is good.
    pub const TICK: u32 = 0;
    /// rdtsc with multiplier and shift.
    pub const TSC: u32 = 1;
}

/// The clock: `ns = base_ns + ((rdtsc - base_tsc) * multiplier >> shift)`, under the sequence word.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Clock {
    /// Odd while it is written.
    pub sequence: u64,
    /// TSC at the base.
    pub base_tsc: u64,
    /// Nanoseconds since boot at the base.
    pub base_ns: u64,
    /// See above.
    pub multiplier: u32,
    /// See above.
    pub shift: u32,
    /// Add to nanoseconds since boot for nanoseconds since 1970; 0: unknown.
    pub wall_ns: u64,
    /// [`clock_source`]
    pub source: u32,
    /// TSC ticks in a microsecond.
    pub tsc_mhz: u32,
    /// Nanoseconds since boot at the last kernel exit of processor 0.
    pub tick_ns: u64,
    /// Zero.
    pub zero: u64,
}

/// A processor.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CpuRecord {
    /// Environment that runs, 0: idle.
    pub current: u32,
    /// Local APIC id.
    pub apic: u32,
    /// Slice position in turn.
    pub position: u32,
    /// Barriers between turns of different users.
    pub barriers: u32,
    /// Nanoseconds idle.
    pub idle_ns: u64,
    /// Switches between environments.
    pub switches: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Calls served.
    pub calls: u64,
    /// Faults delivered.
    pub faults: u64,
    /// Foreign calls sent back.
    pub foreign: u64,
    /// Events delivered.
    pub events: u64,
    /// Loads of CR3.
    pub cr3_loads: u64,
    /// Shootdown interrupts sent.
    pub shootdowns: u64,
    /// Predicates evaluated.
    pub predicates: u64,
    /// Exceptions in kernel mode (user copies that faulted).
    pub kernel_faults: u64,
    /// Longest stretch with interrupts off, in nanoseconds.
    pub longest_ns: u64,
    /// The call that took it.
    pub longest_call: u64,
    /// High-water mark of the stack, in bytes.
    pub stack_bytes: u64,
    /// Areas of vector registers stored or loaded at switches.
    pub vector_moves: u64,
    /// Yields and transfers that went the short way; of the others, those refused among them, the
    /// calls' own counters tell ([`CallRecord::count`]).
    pub short_ways: u64,
    /// Stretches with interrupts off, but for those of the short ways: how many took less than
    /// 256 TSC ticks, then less than twice that and so on; the last: any longer.
    pub stretches: [u64; STRETCHES],
}

/// Classes of stretches that are counted apart.
pub const STRETCHES: usize = 14;

/// Adds to a counter. One at a time does so; who reads it sees it late, and never go back.
#[inline]
pub fn count<W: Atomic<Value = u64>>(counter: &W, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Raises a counter, likewise, to what is the most so far.
#[inline]
pub fn raise<W: Atomic<Value = u64>>(counter: &W, to: u64) {
    counter.store(counter.load(Ordering::Relaxed).max(to), Ordering::Relaxed);
}

/// A call's counters on one processor.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CallRecord {
    /// Times made.
    pub count: u64,
    /// Times answered by an error.
    pub errors: u64,
    /// Longest stretch with interrupts off that began with it, in nanoseconds.
    pub longest_ns: u64,
    /// TSC ticks from the entry until the processor left the kernel or let interrupts in, in all;
    /// counted while calls are traced.
    pub ticks: u64,
}

/// What the kernel's memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Category {
    /// The kernel's image: text, constants, data.
    Image = 0,
    /// Stacks of the processors, guard pages not counted.
    Stacks = 1,
    /// Exception stacks (NMI, #MC, #DF, #DB).
    ExceptionStacks = 2,
    /// Entry pages, task states, descriptor tables of the processors.
    PerCpu = 3,
    /// The kernel's own page tables.
    PageTables = 4,
    /// Environment slots (kernel half).
    Envs = 5,
    /// Domain slots.
    Domains = 6,
    /// Frame records and their private half.
    Frames = 7,
    /// Region table.
    Regions = 8,
    /// Filters and rings.
    Network = 9,
    /// Device queues and buffers.
    Devices = 10,
    /// Published pages that are in no other category.
    Published = 11,
    /// What is left of pages partly used.
    Slack = 12,
    /// Frames donated by applications: tables, links, vector state, regions, code (not the
    /// kernel's).
    Donated = 13,
    /// Where downloaded code is verified and compiled; the objects are functions bound to
    /// regions, and compiled predicates.
    Code = 14,
}

/// Categories there are.
pub const CATEGORIES: usize = 15;

/// A line of the census.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CensusRecord {
    /// Bytes held.
    pub bytes: u64,
    /// Objects in use. Those of environments, domains, regions and the network are told again at
    /// each tick; `used` of the first account has them at once.
    pub objects: u64,
}

/// A network interface.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct InterfaceRecord {
    /// 1 when it exists.
    pub present: u32,
    /// Zero.
    pub zero: u32,
    /// Ethernet address, first byte lowest.
    pub mac: u64,
    /// Packets received from the device.
    pub received: u64,
    /// Packets no filter wanted.
    pub unclaimed: u64,
    /// Packets handed to the device.
    pub sent: u64,
    /// Bytes of payload copied by the kernel for transmission beyond the header.
    pub copied: u64,
    /// Transmissions refused because the queue was full.
    pub full: u64,
    /// Packets in the device's send queue now.
    pub queued: u64,
}

const _: () = assert!(core::mem::size_of::<Directory>() <= 8192);
const _: () = assert!(core::mem::size_of::<EnvRecord>() == 128);
const _: () = assert!(core::mem::size_of::<DomainRecord>() == 64);
const _: () = assert!(core::mem::size_of::<AccountRecord>() == 256);
const _: () = assert!(core::mem::size_of::<FrameRecord>() == 16);
const _: () = assert!(core::mem::size_of::<RegionRecord>() == 128);
const _: () = assert!(core::mem::size_of::<FilterRecord>() == 64);
const _: () = assert!(core::mem::size_of::<RingRecord>() == 64);
const _: () = assert!(core::mem::size_of::<SliceRecord>() == 16);
const _: () = assert!(core::mem::size_of::<Clock>() == 64);
const _: () = assert!(core::mem::size_of::<CpuRecord>() == 256);
const _: () = assert!(core::mem::size_of::<CallRecord>() == 32);
const _: () = assert!(core::mem::size_of::<InterfaceRecord>() == 64);
