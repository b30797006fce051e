//! The trace on this machine: whether it is on, and each processor's ring.
//!
//! Off, an event costs a load and a branch. On, it costs some twenty instructions of the processor
//! it happens on, and nobody's lock.
//!
//! # Safety
//! The rings lie in published frames taken for them alone at boot; of their words zero is a value,
//! and all are atomic.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::trace::{Event, Kind};
use kernel_core::trace::{Asked, CallCounters, Head, Ring, Slot, counters};

use crate::cpu::Cpu;
use crate::registers::rdtsc;

/// The kinds that are recorded.
pub static KINDS: AtomicU64 = AtomicU64::new(0);
/// Physical addresses of the heads, the records and the calls' counters.
static HEADS: AtomicU64 = AtomicU64::new(0);
static SLOTS: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Rings, and records of each.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static RECORDS: AtomicUsize = AtomicUsize::new(0);

/// What has been carved for the trace: physical addresses.
pub struct Places {
    /// Heads, one for each processor.
    pub heads: u64,
    /// Records, one ring behind the other.
    pub slots: u64,
    /// Calls' counters.
    pub calls: u64,
}

/// Where things are, once at boot; recording begins if the command line asks for it.
pub fn place(places: &Places, cpus: usize, asked: &Asked) {
    RECORDS.store(asked.records as usize, Ordering::Relaxed);
    HEADS.store(places.heads, Ordering::Relaxed);
    SLOTS.store(places.slots, Ordering::Relaxed);
    CALLS.store(places.calls, Ordering::Relaxed);
    COUNT.store(cpus, Ordering::Relaxed);
    set(asked.kinds);
}

/// Records these kinds from now on.
pub fn set(kinds: u64) {
    let records = RECORDS.load(Ordering::Relaxed) as u64;
    for cpu in 0..COUNT.load(Ordering::Relaxed) {
        ring(cpu).head.describe(records, kinds);
    }
    KINDS.store(kinds, Ordering::Release);
    crate::delay::note();
}

/// Records of a table: `count` from number `first` on.
fn table<T>(base: &AtomicU64, first: usize, count: usize) -> &'static [T] {
    let at = base.load(Ordering::Relaxed) + (first * size_of::<T>()) as u64;
    // SAFETY: see the file's head.
    unsafe { core::slice::from_raw_parts(crate::physical::virtual_address(at) as *const T, count) }
}

/// The ring of a processor that has one.
fn ring(cpu: usize) -> Ring<'static> {
    assert!(cpu < COUNT.load(Ordering::Relaxed), "processor {cpu} has no ring");
    let records = RECORDS.load(Ordering::Relaxed);
    Ring {
        head: &table::<Head>(&HEADS, cpu, 1)[0],
        slots: table::<Slot>(&SLOTS, cpu * records, records),
    }
}

/// Is this kind recorded?
#[inline]
pub fn on(kind: Kind) -> bool {
    KINDS.load(Ordering::Relaxed) & kind.bit() != 0
}

/// Records an event of this processor.
#[inline]
pub fn event(cpu: &Cpu, event: Event) {
    if on(event.kind) {
        record(cpu, &event);
    }
}

#[cold]
fn record(cpu: &Cpu, event: &Event) {
    ring(cpu.index.get()).record(rdtsc(), event);
}

/// Id of the environment whose registers are loaded, as entry and exit see it, without the lock.
fn loaded(cpu: &Cpu) -> u32 {
    cpu.traced.get()
}

/// Is anything recorded?
#[inline]
pub fn any() -> bool {
    KINDS.load(Ordering::Relaxed) != 0
}

/// A call begins.
#[inline]
pub fn call(cpu: &Cpu, number: u16) {
    if on(Kind::Call) {
        record(cpu, &Event::new(Kind::Call, number, loaded(cpu)));
    }
}

/// The processor leaves the kernel.
#[inline]
pub fn leave(cpu: &Cpu) {
    if any() {
        leave_on(cpu);
    }
}

#[cold]
fn leave_on(cpu: &Cpu) {
    event(cpu, Event::new(Kind::Leave, 0, loaded(cpu)));
    let number = cpu.call.get();
    if on(Kind::Call) && number < abi::call::CALLS_MAX {
        let of_call = &table::<CallCounters>(&CALLS, counters(cpu.index.get(), number), 1)[0];
        of_call.took(rdtsc() - cpu.entered_tsc.get());
    }
}

/// The processor is the environment's with this id; 0: nobody's.
#[inline(always)]
pub fn switch(cpu: &Cpu, env: u32) {
    let from = cpu.traced.replace(env);
    if on(Kind::Switch) && from != env {
        record(cpu, &Event::new(Kind::Switch, 0, env));
    }
}
