//! What the decisions ask of the machine, done: `kernel_core`'s `Machine`.
//!
//! # Safety
//! Contexts lie in slots carved for them at boot, `index` is checked against their number, and
//! the one `Hardware` of a hold of the lock is the only way to them.
#![allow(unsafe_code)]

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::id::{Frame, INDEX_BITS};
use abi::layout::{PAGE_SIZE, PROGRAM_SLOTS};
use abi::memory::{NO_EXECUTE, PRESENT, USER};
use abi::shared::{LOAD, STEP, STORE};
use abi::trace::Event;
use code::argument::{Argument, Outcome};
use code::signature::Signature;
use kernel_core::context::Context;
use kernel_core::env::{CONTEXT_BYTES, ENV_BYTES};
use kernel_core::index::{CpuIndex, EnvIndex};
use kernel_core::machine::{Flush, Machine, UserFault};
use kernel_core::net::transmit::Segment;

use crate::cpu::Cpu;
use crate::platform::{apic, clock};
use crate::registers::{flush_all, invlpg, rdtsc, read_cr3};
use crate::{
    bases, console, downloads, entropy, features, load, physical, shootdown, trace, user, vector,
    virtio,
};

/// Pages of one's own space that are forgotten one by one; of more, everything is.
const PAGES_ONE_BY_ONE: u64 = 32;

/// How many contexts there are.
static CONTEXT_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The kernel's own root.
static MASTER: AtomicU64 = AtomicU64::new(0);
/// The first level-1 table of the application pages; the others follow it.
static APPLICATION_TABLES: AtomicU64 = AtomicU64::new(0);
/// What an index without an application page shows.
static ZEROES: AtomicU64 = AtomicU64::new(0);

/// What the kernel keeps of an environment that does not run: its registers, and what `entry` needs
/// of it, ready to be copied to the processor's own data.
#[repr(C)]
pub struct Slot {
    /// Its registers.
    pub context: Context,
    /// As it should be if the environment is `prepared`.
    pub entry: EntryData,
}

/// What `entry` looks at, and what else a switch needs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EntryData {
    pub root: u64,
    /// First address of its native window.
    pub window: u64,
    /// First address behind it.
    pub window_end: u64,
    /// Where foreign calls go; 0: a fault.
    pub foreign_entry: u64,
    /// The save area, as the kernel sees it.
    pub save_area: u64,
    /// Where its vector registers are stored, if they are ([`vector::place`]).
    pub vector: u64,
    /// Its published record, whose counts of upcalls are its processor's while it runs, and
    /// perhaps [`FAULTS_AT_LENGTH`].
    pub record: u64,
    /// What the fast path knows a reply to it by (`kernel_core::gate`).
    pub reply_name: u32,
    /// Low half of the time stamps at which it left, less those at which it came, by the fast path.
    pub ticks: u32,
}

/// In `record`, the address of words otherwise: `entry` delivers no fault.
pub const FAULTS_AT_LENGTH: u64 = 1;

const _: () = assert!(size_of::<Slot>() == CONTEXT_BYTES);

/// Where slots are, by index, for `entry` as for Rust; behind them, as far from each slot, the
/// environments' private records.
pub const SLOTS: u64 = 0xffff_ffff_bf80_0000;
/// Room for either.
pub const BLOCKS_BYTES: u64 = (CONTEXT_BYTES as u64) << INDEX_BITS;
/// Where the records are.
pub const ENVS: u64 = SLOTS + BLOCKS_BYTES;

const _: () = assert!(CONTEXT_BYTES == ENV_BYTES && ENVS + BLOCKS_BYTES == crate::cpu::AREAS);

/// Where things are, once at boot.
pub fn place(count: usize, application_tables: u64, zeroes: u64) {
    CONTEXT_COUNT.store(count, Ordering::Relaxed);
    // A transfer to nobody is looked at as one to somebody who does not accept.
    // SAFETY: the slot has been carved; index 0 is no environment's.
    unsafe { (*(SLOTS as *mut Slot)).entry.save_area = physical::virtual_address(zeroes) };
    APPLICATION_TABLES.store(application_tables, Ordering::Relaxed);
    ZEROES.store(zeroes, Ordering::Relaxed);
}

/// Notes the kernel's own root.
pub fn set_master(root: u64) {
    MASTER.store(root, Ordering::Release);
}

/// The kernel's own root.
pub fn master() -> u64 {
    MASTER.load(Ordering::Acquire)
}

/// The address of a context, its slot's beginning.
#[inline(always)]
pub fn context_address(index: usize) -> u64 {
    assert!(index < CONTEXT_COUNT.load(Ordering::Relaxed));
    // Within what was carved, so nothing wraps.
    SLOTS.wrapping_add(index.wrapping_mul(size_of::<Slot>()) as u64)
}

/// The save area of what runs, as the kernel sees it; 0: it has none.
#[inline(always)]
pub fn save_area(cpu: &Cpu) -> u64 {
    assert!(cpu.loaded().is_some());
    // SAFETY: the address of its context is that of its slot.
    unsafe { (*(cpu.context() as *const Slot)).entry.save_area }
}

/// The index whose context is at this address; `None`: it is none of them.
#[inline(always)]
pub fn index_of(context: u64) -> Option<EnvIndex> {
    let distance = context.wrapping_sub(SLOTS);
    (distance < BLOCKS_BYTES).then_some(EnvIndex::new(distance as usize / size_of::<Slot>()))
}

/// The machine during one hold of the lock.
pub struct Hardware {
    cpu: &'static Cpu,
    /// Processors that must flush before what was given up may be used again.
    pub targets: u64,
    /// Asked to end: how, status.
    pub ending: Option<(u16, u16)>,
}

impl Hardware {
    /// For this processor.
    #[inline(always)]
    pub fn new(cpu: &'static Cpu) -> Self {
        Self { cpu, targets: 0, ending: None }
    }

    /// What is kept of the environment that is loaded.
    #[inline(always)]
    pub fn own_slot(&mut self) -> &mut Slot {
        assert!(self.cpu.loaded().is_some());
        // SAFETY: the address of its context is that of its slot.
        unsafe { &mut *(self.cpu.context() as *mut Slot) }
    }

    /// What is kept of the environment at `index`.
    #[inline(always)]
    pub fn slot(&mut self, index: usize) -> &mut Slot {
        // SAFETY: see the file's head.
        unsafe { &mut *(context_address(index) as *mut Slot) }
    }
}

impl Machine for Hardware {
    #[inline(always)]
    fn entry(&self, table: Frame, index: usize) -> u64 {
        self.word(table.address() + 8 * index as u64)
    }

    #[inline]
    fn eight_entries(&self, table: Frame, first: usize) -> [u64; 8] {
        let entries = physical::table(table.address());
        core::array::from_fn(|at| entries[(first & !7) % 512 + at].load(Ordering::Relaxed))
    }

    fn entry_swap(&mut self, table: Frame, index: usize, entry: u64) -> u64 {
        physical::word(table.address() + 8 * index as u64).swap(entry, Ordering::SeqCst)
    }

    fn kernel_entry(&self, slot: usize) -> u64 {
        self.word(master() + 8 * slot as u64)
    }

    fn kernel_entries(&mut self, root: Frame) {
        let offset = 8 * PROGRAM_SLOTS as u64;
        physical::copy(root.address() + offset, master() + offset, (PAGE_SIZE - offset) as usize);
    }

    #[inline(always)]
    fn opaque(&self, mut word: usize) -> usize {
        // SAFETY: no instruction at all.
        unsafe { asm!("/* {} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags)) }
        word
    }

    #[inline(always)]
    fn word(&self, address: u64) -> u64 {
        physical::word(address).load(LOAD)
    }

    #[inline(always)]
    fn word_set(&mut self, address: u64, value: u64) {
        physical::word(address).store(value, STORE);
    }

    #[inline]
    fn words_set(&mut self, address: u64, words: &[u64]) {
        let frame = physical::table(address);
        let first = (address % PAGE_SIZE / 8) as usize;
        for (place, &word) in frame[first..first + words.len()].iter().zip(words) {
            place.store(word, STORE);
        }
    }

    fn word_or(&mut self, address: u64, bits: u64) -> u64 {
        physical::word(address).fetch_or(bits, STEP)
    }

    fn word_and(&mut self, address: u64, bits: u64) -> u64 {
        physical::word(address).fetch_and(bits, STEP)
    }

    fn word_add(&mut self, address: u64, value: u64) -> u64 {
        physical::word(address).fetch_add(value, STEP)
    }

    fn zero(&mut self, frame: Frame) {
        assert!(frame.address() != read_cr3(), "the root in use is given out again");
        physical::zero(frame.address(), PAGE_SIZE);
    }

    #[inline(always)]
    fn copy(&mut self, to: u64, from: u64, len: usize) {
        physical::copy(to, from, len);
    }

    #[inline(always)]
    fn copy_out(&mut self, to: u64, from: u64, len: usize) -> Result<(), UserFault> {
        user::write_physical(to, from, len)
    }

    #[inline(always)]
    fn copy_over(&mut self, root: Frame, to: u64, from: u64, len: usize) -> Result<(), UserFault> {
        let before = read_cr3();
        load::load_root(self.cpu, root.address());
        let copied = user::write_physical(to, from, len);
        if copied.is_err() {
            load::load_root(self.cpu, before);
        }
        copied
    }

    #[inline(always)]
    fn copy_in(&mut self, to: u64, from: u64, len: usize) -> Result<(), UserFault> {
        user::read_physical(from, to, len)
    }

    fn fill(&mut self, to: u64, bytes: &[u8]) {
        physical::fill(to, bytes);
    }

    fn read(&self, from: u64, into: &mut [u8]) {
        physical::read(from, into);
    }

    #[inline(always)]
    fn context(&mut self, index: usize) -> &mut Context {
        // SAFETY: see the file's head.
        unsafe { &mut *(context_address(index) as *mut Context) }
    }

    #[inline(always)]
    fn two_contexts(&mut self, one: usize, other: usize) -> (&mut Context, &mut Context) {
        assert!(one != other);
        let (one, other) = (context_address(one), context_address(other));
        // SAFETY: as above, and these are two.
        unsafe { (&mut *(one as *mut Context), &mut *(other as *mut Context)) }
    }

    fn bases_store(&mut self, index: usize) {
        let (fs, gs) = bases::read();
        let context = self.context(index);
        (context.fs_base, context.gs_base) = (fs, gs);
    }

    fn registers_load(&mut self, index: usize) {
        let &mut Context { fs_base, gs_base, .. } = self.context(index);
        bases::write(fs_base, gs_base);
        vector::clear(self.cpu);
    }

    fn vector_init(&mut self, frame: Frame) {
        vector::initialize(frame.address());
    }

    fn vector_store(&mut self, frame: Frame) {
        vector::put(self.cpu, frame.address());
    }

    fn application_page(&mut self, index: usize, frame: Option<Frame>) {
        let shown = frame.map_or(ZEROES.load(Ordering::Relaxed), Frame::address);
        let entry = APPLICATION_TABLES.load(Ordering::Relaxed) + 8 * index as u64;
        physical::word(entry).store(shown | PRESENT | USER | NO_EXECUTE, Ordering::SeqCst);
        // Everybody may have looked at it.
        self.flush(Flush::Everything);
    }

    fn console_write(&mut self, stream: u16, bytes: &[u8]) -> usize {
        console::write(stream, bytes)
    }

    fn end(&mut self, how: u16, status: u16) {
        self.ending = Some((how, status));
    }

    fn flush(&mut self, what: Flush) {
        let own = self.cpu.index.get();
        let loaded = read_cr3();
        self.targets |= match what {
            Flush::Page(root, address) => {
                if root.address() == loaded {
                    invlpg(address);
                }
                shootdown::processors(own, |other| other == root.address())
            }
            Flush::Pages(root, first, count) => {
                if root.address() == loaded {
                    if count > PAGES_ONE_BY_ONE {
                        flush_all();
                    } else {
                        (0..count).for_each(|page| invlpg(first + page * PAGE_SIZE));
                    }
                }
                shootdown::processors(own, |other| other == root.address())
            }
            Flush::Space(root) => {
                if root.address() == loaded {
                    flush_all();
                }
                shootdown::processors(own, |other| other == root.address())
            }
            Flush::Own => {
                flush_all();
                0
            }
            Flush::Everything => {
                flush_all();
                let master = master();
                shootdown::processors(own, |other| other != 0 && other != master)
            }
        };
    }

    fn interrupt(&mut self, cpu: CpuIndex) -> bool {
        let is_another = cpu != self.cpu.place();
        if is_another {
            apic::interrupt(shootdown::apic_id(cpu.at()), crate::entry::LOOK_VECTOR);
        }
        is_another
    }

    #[inline]
    fn trace(&mut self, event: Event) {
        trace::event(self.cpu, event);
    }

    fn trace_set(&mut self, kinds: u64) {
        trace::set(kinds);
    }

    fn code_show(&mut self, page: usize, frames: &[Frame], _program: &[u8]) {
        downloads::show(page, frames);
    }

    fn code_hide(&mut self, pages: Range<usize>) {
        downloads::hide(pages);
    }

    fn code_run(
        &mut self,
        page: usize,
        signature: &Signature,
        arguments: &mut [Argument],
    ) -> Outcome {
        downloads::run(self.cpu, page, signature, arguments)
    }

    fn watch_key(&self) -> Option<u64> {
        Some(downloads::key())
    }

    #[inline(always)]
    fn address(&self, physical: u64) -> u64 {
        physical::virtual_address(physical)
    }

    fn watch_store(&mut self, cell: usize, code: &[u8]) {
        downloads::store(cell, code);
    }

    #[inline]
    fn watch_holds(&mut self, cell: usize, clock: bool) -> Option<bool> {
        Some(downloads::holds(self.cpu, cell, if clock { clock::now_ns() } else { 0 }))
    }

    fn has_fast_path(&self) -> bool {
        bases::have_instructions() && features::xcr0() != 0
    }

    fn ran(&mut self, index: usize, runs: bool) -> u64 {
        let now = if runs { rdtsc() as u32 } else { 0 };
        let ticks = &mut self.slot(index).entry.ticks;
        // Who runs has come later than it left, or has not left yet.
        let ran = core::mem::replace(ticks, now.wrapping_neg()).wrapping_add(now);
        clock::ticks_to_ns(ran.into())
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn random(&mut self) -> Option<u64> {
        entropy::random()
    }

    fn transmit_room(&self, _interface: usize) -> usize {
        virtio::net::room()
    }

    fn transmit_header(&self, _interface: usize, token: usize) -> u64 {
        virtio::net::header(token)
    }

    fn transmit(&mut self, _interface: usize, token: usize, header: usize, rest: &[Segment]) {
        virtio::net::transmit(token, header, rest);
    }
}
