//! What each processor has of its own: entry code, data, descriptors, stacks with guards.
//!
//! ```text
//!  area (256 KiB of addresses, aligned; all else unmapped, so that each stack has guards)
//!  0x00000  entry code, a copy for each processor, RX: a page, two at most
//!  0x02000  `Cpu`: what entry code needs, at fixed offsets, then what Rust needs
//!  0x04000  GDT and TSS          0x05000  IDT          0x06000  copied arguments
//!  0x0c000  the stack, 16 KiB, down from 0x10000
//!  0x14000  #DB   0x18000  NMI   0x1c000  #MC   0x20000  #DF       4 KiB each
//! ```
//!
//! # Safety
//! An area is built once, by `build`, and never unmapped; `Cpu` is used by its own processor only,
//! with interrupts off or in handlers that ran to their end, so its cells are not shared. What is
//! atomic in it others use, too.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::call::CALLS_MAX;
use abi::layout::PAGE_SIZE;
use abi::limits::CPUS;
use abi::memory::{NO_EXECUTE, WRITABLE};
use abi::published::Category;
use kernel_core::context::{Context, FIXED_FLAGS, FRAME_END, USER_CS, USER_SS};
use kernel_core::index::{CpuIndex, EnvIndex};
use kernel_core::speculation::Plan;
use kernel_core::timer::OneShot;

use crate::boot::memory_map::MemoryMap;
use crate::half::Half;
use crate::hardware;
use crate::paging::Tables;
use crate::patch;

/// Where the areas are.
pub const AREAS: u64 = 0xffff_ffff_c000_0000;
/// From one area to the next.
pub const STRIDE: u64 = 0x40000;

pub const CODE: u64 = 0;
pub const DATA: u64 = 0x2000;
pub const GDT: u64 = 0x4000;
/// So that RSP0, 4 bytes further, is aligned.
pub const TSS: u64 = 0x4104;
/// The frame of what runs ends where this word says (SDM 3A §8.7).
pub const RSP0: u64 = TSS + 4;
pub const IDT: u64 = 0x5000;
pub const BUFFER: u64 = 0x6000;
pub const STACK: u64 = 0xc000;
pub const STACK_BYTES: u64 = 0x4000;
/// Tops of the exception stacks, in the order of the IST.
pub const EXCEPTION_STACKS: [u64; 4] = [0x15000, 0x19000, 0x1d000, 0x21000];

/// What fills a stack that has not been used, or, on a machine that poisons, not since the kernel
/// was left last. As an address it is none (not canonical).
pub const UNUSED: u64 = 0x7573_756e_7573_756e;

/// The number that no call has: what is served is a trap, an interrupt, or refused by its number.
pub const NO_CALL: usize = CALLS_MAX;

/// A frame for `iretq`: where the program's stack pointer goes while `syscall` looks whose it is,
/// and what is the same for everybody who is entered.
#[repr(C)]
pub struct Entered {
    pub rip: Cell<u64>,
    cs: Cell<u64>,
    rflags: Cell<u64>,
    pub rsp: Cell<u64>,
    ss: Cell<u64>,
}

/// What one processor knows. The first words are `entry`'s.
#[repr(C)]
pub struct Cpu {
    /// A frame for `iretq`, of who is entered by the fast path of transfers.
    pub entered: Entered,
    /// The stack's first word.
    pub stack_top: Cell<u64>,
    /// Foreign calls since they were last counted.
    pub foreign_calls: Cell<u64>,
    /// The published record of this processor.
    pub cpu_record: Cell<u64>,
    /// Switches of the fast path that loaded no CR3. Others may take them, who have the lock.
    pub same_space: AtomicU64,
    /// Its half of the lock.
    pub half: Half,
    /// Whose turn the last one was, if turns of users have barriers between them (`mitigate`).
    pub user: Cell<u64>,
    /// Barriers so far.
    pub barriers: Cell<u32>,

    /// Which processor.
    pub index: Cell<usize>,
    /// The id of what runs, as the trace shows it; 0: nothing.
    pub traced: Cell<u32>,
    /// A timer interrupt has come, and has not been looked at.
    pub ticked: Cell<bool>,
    /// Another processor, or a device, wants the scheduler to look.
    pub look: Cell<bool>,
    /// When interrupts were switched off, in TSC ticks.
    pub entered_tsc: Cell<u64>,
    /// Number of the call served now, or `NO_CALL`.
    pub call: Cell<usize>,
    /// Longest stretch with interrupts off, in TSC ticks, and its call.
    pub longest: Cell<(u64, usize)>,
    /// The same by number of the call (the last: of what is none), and whether one has grown since
    /// it was published.
    pub stretches: [Cell<u64>; CALLS_MAX + 1],
    /// Each of these, [`crate::stretch::LONG`] at most: what a stretch is compared with.
    pub usual: [Cell<u64>; CALLS_MAX + 1],
    pub stretched: Cell<bool>,
    /// How many stretches there were, by the logarithm of their length in TSC ticks.
    pub classes: [Cell<u64>; 64],
    /// Interrupts are let in just now; elsewhere in the kernel none may come.
    pub open: Cell<bool>,
    /// Vector registers are switched off, and in the initial state.
    pub vectors_off: Cell<bool>,
    /// Vector areas stored or loaded at switches.
    pub vector_moves: Cell<u64>,
    /// Interrupts, kernel-mode exceptions and predicates since boot.
    pub interrupts: Cell<u64>,
    /// Kernel-mode exceptions that a fix-up answered.
    pub kernel_faults: Cell<u64>,
    /// Loads of CR3 since they were last noted, but for those of the fast path.
    pub cr3_loads: Cell<u64>,
    /// Shootdown interrupts sent.
    pub shootdowns: Cell<u64>,
    /// TSC ticks spent idle.
    pub idle: Cell<u64>,
    /// When the stack was last looked through, and bytes of it ever used then.
    pub measured_tsc: Cell<u64>,
    pub stack_bytes: Cell<u64>,
    /// When its counters were last published, in nanoseconds since boot.
    pub noted_ns: Cell<u64>,
    /// The code that was there when this processor last made sure that it runs what is.
    pub code_seen: Cell<u64>,
    /// What the timer is set for.
    pub timer: Cell<OneShot>,
    /// Where frames go while nothing is loaded.
    pub parking: Cell<Context>,
}

const _: () = assert!(core::mem::size_of::<Cpu>() <= PAGE_SIZE as usize);

/// How many have been built.
static BUILT: AtomicUsize = AtomicUsize::new(0);

/// The data of all processors.
pub fn all() -> impl Iterator<Item = &'static Cpu> {
    (0..BUILT.load(Ordering::Relaxed)).map(Cpu::of)
}

/// The first address of a processor's area.
pub const fn area(cpu: usize) -> u64 {
    AREAS + STRIDE * cpu as u64
}

/// How the copies of entry code differ from it.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// The stack is filled with poison whenever the kernel is left.
    pub poisons: bool,
    /// There is SMAP.
    pub smap: bool,
    /// What is done about running ahead.
    pub speculation: Plan,
}

/// Maps a processor's area, the next one, in the tables that are loaded.
pub fn build(tables: &mut Tables, memory: &mut MemoryMap, cpu: usize, changes: &Changes) {
    assert!(cpu < CPUS);
    let base = area(cpu);
    let mut piece = |category, at: u64, len: u64, flags: u64| {
        let frames = memory.take(category, len, PAGE_SIZE);
        tables.map(memory, base + at, frames, len, flags);
        frames
    };
    let data = NO_EXECUTE | WRITABLE;
    let template = crate::entry::template();
    let code =
        piece(Category::PerCpu, CODE, (template.len() as u64).next_multiple_of(PAGE_SIZE), 0);
    crate::physical::fill(code, template);
    patch::put(code, |kind| match kind {
        patch::CLAC => changes.smap,
        patch::VERW => changes.speculation.clears_buffers,
        patch::BARRIER => changes.speculation.has_barrier,
        _ => false,
    });
    if changes.poisons {
        let (at, jump) = crate::entry::poison();
        crate::physical::fill(code + at, &jump);
    }
    piece(Category::PerCpu, DATA, PAGE_SIZE, data);
    piece(Category::PerCpu, GDT, 3 * PAGE_SIZE, data);
    let stack = piece(Category::Stacks, STACK, STACK_BYTES, data);
    for at in (stack..stack + STACK_BYTES).step_by(8) {
        crate::physical::word(at).store(UNUSED, core::sync::atomic::Ordering::Relaxed);
    }
    for top in EXCEPTION_STACKS {
        piece(Category::ExceptionStacks, top - PAGE_SIZE, PAGE_SIZE, data);
    }
    Cpu::of(cpu).half.begin();
    BUILT.store(cpu + 1, Ordering::Relaxed);
}

impl Cpu {
    /// The same as the kernel's tables have it.
    #[inline(always)]
    pub fn place(&self) -> CpuIndex {
        CpuIndex::new(self.index.get())
    }

    /// The data of processor `index`, whose area has been built and loaded.
    pub fn of(index: usize) -> &'static Cpu {
        // SAFETY: see the file's head; zero is a valid `Cpu`.
        unsafe { &*((area(index) + DATA) as *const Cpu) }
    }

    /// The data of the processor this runs on, found by its stack.
    #[inline(always)]
    pub fn current() -> &'static Cpu {
        let base = crate::registers::read_rsp() & !(STRIDE - 1);
        // SAFETY: all stacks but the boot stack, which is left before this is used, lie in areas.
        unsafe { &*((base + DATA) as *const Cpu) }
    }

    /// Is this running on a processor's own stack already?
    pub fn has_area() -> bool {
        (AREAS..AREAS + STRIDE * CPUS as u64).contains(&crate::registers::read_rsp())
    }

    /// The end of the processor's own stack in which this address lies.
    pub fn stack_end(address: u64) -> Option<u64> {
        let stack = (address & !(STRIDE - 1)) + STACK;
        let is_there = Self::has_area() && (stack..stack + STACK_BYTES).contains(&address);
        is_there.then_some(stack + STACK_BYTES)
    }

    /// First words, before anything runs on the processor.
    pub fn initialize(&self, index: usize) {
        self.index.set(index);
        self.stack_top.set(area(index) + STACK + STACK_BYTES);
        self.entered.cs.set(USER_CS);
        self.entered.rflags.set(FIXED_FLAGS);
        self.entered.ss.set(USER_SS);
        self.park();
    }

    /// Nothing is loaded: frames go where nobody looks.
    pub fn park(&self) {
        self.set_frame_end(self.parking.as_ptr() as u64 + FRAME_END as u64);
    }

    /// Where the frame of what runs ends, in its context: what the processor calls RSP0. By it
    /// everything that is known of what runs is found, and nothing else says who that is.
    #[inline(always)]
    pub fn frame_end(&self) -> u64 {
        self.rsp0().load(Ordering::Relaxed)
    }

    /// From now on that one runs here.
    #[inline(always)]
    pub fn set_frame_end(&self, address: u64) {
        self.rsp0().store(address, Ordering::Relaxed);
    }

    #[inline(always)]
    fn rsp0(&self) -> &AtomicU64 {
        // The task state lies in the same area, so nothing wraps.
        let at = core::ptr::from_ref(self) as u64;
        let at = at.wrapping_add(RSP0 - DATA);
        // SAFETY: aligned, mapped with the area, and used as an atomic word only.
        unsafe { &*(at as *const AtomicU64) }
    }

    /// The context of what is loaded.
    #[inline(always)]
    pub fn context(&self) -> u64 {
        self.frame_end().wrapping_sub(FRAME_END as u64)
    }

    /// The environment that is loaded.
    #[inline(always)]
    pub fn loaded(&self) -> Option<EnvIndex> {
        hardware::index_of(self.context())
    }

    /// The same, where a call is served.
    #[inline(always)]
    pub fn loaded_now(&self) -> EnvIndex {
        let Some(index) = self.loaded() else { panic!("a call from nobody") };
        index
    }

    /// Bytes of the stack that were ever used.
    pub fn stack_used(&self) -> u64 {
        let bottom = (area(self.index.get()) + STACK) as *const u64;
        let words = (STACK_BYTES / 8) as usize;
        // SAFETY: the stack is mapped; words that change meanwhile are above the first used one.
        let unused = (0..words).find(|&n| unsafe { bottom.add(n).read_volatile() } != UNUSED);
        STACK_BYTES - 8 * unused.unwrap_or(words) as u64
    }

    /// The processor's buffer for arguments; one call uses it at a time.
    #[expect(clippy::mut_from_ref, reason = "the buffer is apart from the cells")]
    pub fn buffer(&self) -> &mut [u8; PAGE_SIZE as usize] {
        // SAFETY: mapped by `build`; only the system-call path borrows it, once for each entry.
        unsafe { &mut *((area(self.index.get()) + BUFFER) as *mut [u8; PAGE_SIZE as usize]) }
    }
}
