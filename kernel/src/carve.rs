//! Every table of the kernel, cut out of memory at boot by `Sizes`' rule; nothing grows later.
//!
//! ```text
//!  published slot   directory, tables in the order of `Table` but the application pages:
//!                   page-aligned, zero-filled, 2 MiB pages; then application pages, 4 KiB pages
//!  private halves   contexts, environments, domains, accounts, frames, regions and their words
//! ```
//!
//! # Safety
//! Each slice lies in zeroed frames taken for it alone, and of each record type zero is a value.
#![allow(unsafe_code)]

use abi::call::CALLS_MAX;
use abi::layout::{PAGE_SIZE, PUBLISHED};
use abi::limits::{CPUS, REGION_INLINE_BYTES, SLICES};
use abi::memory::{NO_EXECUTE, PRESENT, USER, WRITABLE};
use abi::published::*;
use abi::trace::{TraceRecord, TraceRing};
use kernel_core::boot::{Parts, Sizes};
use kernel_core::compiled::{CELL_BYTES, Cells};
use kernel_core::env::{ENV_BYTES, Env};
use kernel_core::state::Published;
use kernel_core::trace::{Asked, CallCounters};
use kernel_core::window;
use kernel_core::workshop::{self, Downloads};

use crate::boot::memory_map::MemoryMap;
use crate::paging::{CELL_WINDOW, Tables};
use crate::physical::{slice, virtual_address, word};
use crate::trace::Places;
use crate::{downloads, hardware};

const LARGE: u64 = 2 << 20;
/// Network interfaces that have a record.
const INTERFACES: usize = 4;

/// Places the published tables one after the other.
struct Layout {
    /// Physical address of the directory.
    base: u64,
    /// Bytes used so far.
    used: u64,
    tables: [TableInfo; 24],
    census: [(Category, u64); TABLES],
}

impl Layout {
    /// Bytes of a table, whole pages.
    fn room<T>(count: usize) -> u64 {
        ((size_of::<T>() * count) as u64).next_multiple_of(PAGE_SIZE)
    }

    fn place<T>(&mut self, table: Table, count: usize, category: Category) -> &'static mut [T] {
        let at = self.used;
        self.used += Self::room::<T>(count);
        self.tables[table as usize] = TableInfo {
            address: PUBLISHED + at,
            stride: size_of::<T>() as u32,
            count: count as u32,
            version: 1,
            zero: 0,
        };
        self.census[table as usize] = (category, Self::room::<T>(count));
        // SAFETY: see the file's head.
        unsafe { slice(self.base + at, count) }
    }
}

/// The trace's rings.
pub struct Trace {
    /// One for each of so many processors.
    pub cpus: usize,
    /// So many records each, and what is recorded.
    pub asked: Asked,
}

impl Trace {
    fn records(&self) -> usize {
        self.cpus * self.asked.records as usize
    }
}

/// Bytes that the published tables take, application pages apart.
fn published_bytes(sizes: &Sizes, trace: &Trace) -> u64 {
    2 * PAGE_SIZE
        + Layout::room::<EnvRecord>(sizes.envs)
        + Layout::room::<DomainRecord>(sizes.domains)
        + Layout::room::<AccountRecord>(sizes.accounts)
        + Layout::room::<FrameRecord>(sizes.frames)
        + Layout::room::<AgeRecord>(sizes.frames)
        + Layout::room::<RegionRecord>(sizes.regions)
        + Layout::room::<FilterRecord>(sizes.filters)
        + Layout::room::<RingRecord>(sizes.rings)
        + Layout::room::<SliceRecord>(CPUS * SLICES)
        + Layout::room::<Clock>(1)
        + Layout::room::<CpuRecord>(CPUS)
        + Layout::room::<CallRecord>(CPUS * abi::call::CALLS_MAX)
        + Layout::room::<CensusRecord>(CATEGORIES)
        + Layout::room::<InterfaceRecord>(INTERFACES)
        + Layout::room::<TraceRing>(trace.cpus)
        + Layout::room::<TraceRecord>(trace.records())
}

/// Carves the published half and maps it for everybody.
fn published(
    memory: &mut MemoryMap,
    tables: &mut Tables,
    sizes: &Sizes,
    trace: &Trace,
) -> Published {
    let bytes = published_bytes(sizes, trace).next_multiple_of(LARGE);
    let base = memory.take(Category::Published, bytes, LARGE);
    let flags = USER | NO_EXECUTE;
    tables.map_large(memory, PUBLISHED, base, bytes, flags);

    let mut layout = Layout {
        base,
        used: 2 * PAGE_SIZE,
        tables: [TableInfo::default(); 24],
        census: [(Category::Published, 0); TABLES],
    };
    let place = &mut layout;
    // SAFETY: see the file's head; the directory is the first two pages.
    let directory = unsafe { &mut *(virtual_address(base) as *mut Directory) };
    let cpus = place.place::<CpuRecord>(Table::Cpus, CPUS, Category::Published);
    let calls = CPUS * CALLS_MAX;
    let calls = place.place::<CallCounters>(Table::Calls, calls, Category::Published);
    let published = Published {
        directory,
        envs: place.place(Table::Envs, sizes.envs, Category::Published),
        domains: place.place(Table::Domains, sizes.domains, Category::Domains),
        accounts: place.place(Table::Accounts, sizes.accounts, Category::Published),
        frames: place.place(Table::Frames, sizes.frames, Category::Frames),
        ages: place.place(Table::Ages, sizes.frames, Category::Frames),
        regions: place.place(Table::Regions, sizes.regions, Category::Regions),
        filters: place.place(Table::Filters, sizes.filters, Category::Network),
        rings: place.place(Table::Rings, sizes.rings, Category::Network),
        slices: place.place(Table::Slices, CPUS * SLICES, Category::Published),
        clock: &mut place.place::<Clock>(Table::Clock, 1, Category::Published)[0],
        cpus: cpus.first_chunk_mut().expect("as many as were placed"),
        calls: calls.as_chunks().0.first_chunk().expect("as many as were placed"),
        census: place.place(Table::Census, CATEGORIES, Category::Published),
        interfaces: place.place(Table::Interfaces, INTERFACES, Category::Published),
    };
    place.place::<TraceRing>(Table::Traces, trace.cpus, Category::Published);
    place.place::<TraceRecord>(Table::TraceRecords, trace.records(), Category::Published);
    let physical = |table: Table| base + (place.tables[table as usize].address - PUBLISHED);
    let places = Places {
        heads: physical(Table::Traces),
        slots: physical(Table::TraceRecords),
        calls: physical(Table::Calls),
    };
    crate::trace::place(&places, trace.cpus, &trace.asked);
    // What lies in the published pages but belongs to another category is counted there.
    let mut other = bytes - layout.used;
    memory.count_taken(Category::Slack, other);
    for (category, bytes) in layout.census {
        if category != Category::Published {
            memory.count_taken(category, bytes);
            other += bytes;
        }
    }
    memory.uncount(Category::Published, other);

    layout.tables[Table::ApplicationPages as usize] = TableInfo {
        address: PUBLISHED + bytes,
        stride: PAGE_SIZE as u32,
        count: sizes.envs as u32,
        version: 1,
        zero: 0,
    };
    published.directory.tables = layout.tables;
    published
}

/// The application pages' level-1 tables, one after the other in memory, each entry zeroes for now.
fn application_pages(
    memory: &mut MemoryMap,
    tables: &mut Tables,
    at: u64,
    envs: usize,
) -> (u64, u64) {
    let zeroes = memory.frame(Category::Published);
    let count = envs.div_ceil(512) as u64;
    let first = memory.take(Category::PageTables, count * PAGE_SIZE, PAGE_SIZE);
    for table in 0..count {
        tables.install(memory, at + table * LARGE, first + table * PAGE_SIZE);
    }
    for index in 0..envs as u64 {
        let entry = zeroes | PRESENT | USER | NO_EXECUTE;
        word(first + 8 * index).store(entry, core::sync::atomic::Ordering::Relaxed);
    }
    (first, zeroes)
}

/// A private table in frames of its own.
fn private<T>(memory: &mut MemoryMap, category: Category, count: usize) -> &'static mut [T] {
    let at = memory.take(category, (size_of::<T>() * count) as u64, PAGE_SIZE);
    // SAFETY: see the file's head; pages are aligned for every record.
    unsafe { slice(at, count) }
}

/// Filters, rings, and the packets in the devices' queues.
fn network(memory: &mut MemoryMap, sizes: &Sizes) -> kernel_core::net::Network {
    let category = Category::Network;
    kernel_core::net::Network::new(
        private(memory, category, sizes.filters),
        private(memory, category, sizes.filters),
        private(memory, category, sizes.rings),
        private(memory, category, sizes.domains),
        private(memory, category, kernel_core::net::transmit::TOKENS),
    )
}

/// The window for downloaded code, and where it is verified and compiled.
fn downloads(memory: &mut MemoryMap, tables: &mut Tables, sizes: &Sizes) -> Downloads {
    let bytes = ((sizes.cells * CELL_BYTES) as u64).next_multiple_of(PAGE_SIZE);
    let cells = memory.take(Category::Code, bytes, PAGE_SIZE);
    // To be run, and not written, from there.
    tables.map(memory, CELL_WINDOW, cells, bytes, 0);
    downloads::place(tables.code_window(memory), cells, sizes.cells);
    Downloads::new(
        private(memory, Category::Code, window::PAGES),
        Cells::new(private(memory, Category::Code, sizes.cells)),
        private(memory, Category::Code, workshop::POINTS),
        private(memory, Category::Code, workshop::BYTES),
    )
}

/// Carves everything.
pub fn carve(memory: &mut MemoryMap, tables: &mut Tables, sizes: &Sizes, trace: &Trace) -> Parts {
    let published = published(memory, tables, sizes, trace);
    let at = published.directory.tables[Table::ApplicationPages as usize].address;
    let (first, zeroes) = application_pages(memory, tables, at, sizes.envs);
    let contexts =
        memory.take(Category::Envs, (size_of::<hardware::Slot>() * sizes.envs) as u64, PAGE_SIZE);
    let envs = memory.take(Category::Envs, (ENV_BYTES * sizes.envs) as u64, PAGE_SIZE);
    let bytes = ((ENV_BYTES * sizes.envs) as u64).next_multiple_of(PAGE_SIZE);
    tables.map(memory, hardware::SLOTS, contexts, bytes, NO_EXECUTE | WRITABLE);
    tables.map(memory, hardware::ENVS, envs, bytes, NO_EXECUTE | WRITABLE);
    // What `entry` is asked for by an index beyond is nobody's (`gate::index_mask`).
    let asked = (ENV_BYTES * sizes.envs.next_power_of_two()) as u64;
    if bytes < asked {
        // It stores there what it has found.
        let nobodys = memory.frame(Category::Envs);
        for beyond in (bytes..asked).step_by(PAGE_SIZE as usize) {
            tables.map(memory, hardware::ENVS + beyond, nobodys, PAGE_SIZE, NO_EXECUTE | WRITABLE);
        }
    }
    hardware::place(sizes.envs, first, zeroes);
    // SAFETY: see the file's head; they are shown there and used nowhere else.
    let envs = unsafe { core::slice::from_raw_parts_mut(hardware::ENVS as *mut Env, sizes.envs) };
    let words =
        memory.take(Category::Regions, (REGION_INLINE_BYTES * sizes.regions) as u64, PAGE_SIZE);
    Parts {
        published,
        frames: kernel_core::frame::Frames::new(private(memory, Category::Frames, sizes.frames)),
        folds: kernel_core::fold::Folds::new(private(memory, Category::Frames, sizes.folds)),
        accounts: kernel_core::account::Accounts::new(private(
            memory,
            Category::Published,
            sizes.accounts,
        )),
        domains: kernel_core::domain::Domains::new(private(
            memory,
            Category::Domains,
            sizes.domains,
        )),
        envs: kernel_core::env::Envs::new(envs),
        sched: kernel_core::sched::Scheduler::default(),
        regions: kernel_core::region::Regions::new(
            private(memory, Category::Regions, sizes.regions),
            private(memory, Category::Regions, sizes.attachments),
            sizes.domains,
            words,
        ),
        downloads: downloads(memory, tables, sizes),
        net: network(memory, sizes),
        console: kernel_core::console::Console::default(),
    }
}
