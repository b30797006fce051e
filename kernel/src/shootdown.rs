//! Translations that other processors must forget (decisions 9).
//!
//! Who took rights away notes, under the lock, which processors have the space loaded; after
//! releasing the lock it asks them and waits for their answers, serving its own mailbox meanwhile.
//! A processor that waits for the lock serves it, too, so that nobody waits for ever. Answers are
//! full flushes: the tested path.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::limits::CPUS;
use lockfree::mailbox::Mailbox;

use crate::cpu::Cpu;
use crate::entry::FLUSH_VECTOR;
use crate::platform::apic;

static BOXES: [Mailbox<AtomicU64>; CPUS] =
    [const { Mailbox::new(AtomicU64::new(0), AtomicU64::new(0)) }; CPUS];
/// The root that each processor has loaded; the kernel's own while idle. Written under the lock.
static ROOTS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
static APIC_IDS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

/// Notes a processor's APIC id.
pub fn register(cpu: usize, apic: u32) {
    APIC_IDS[cpu].store(u64::from(apic), Ordering::Relaxed);
}

/// A processor's APIC id.
pub fn apic_id(cpu: usize) -> u32 {
    APIC_IDS[cpu].load(Ordering::Relaxed) as u32
}

/// Notes the root that a processor has loaded.
pub fn loaded(cpu: usize, root: u64) {
    ROOTS[cpu].store(root, Ordering::SeqCst);
}

/// The processors but `own` for which `is` holds of the root they have loaded, as bits.
pub fn processors(own: usize, is: impl Fn(u64) -> bool) -> u64 {
    (0..CPUS)
        .filter(|&cpu| cpu != own && is(ROOTS[cpu].load(Ordering::SeqCst)))
        .fold(0, |bits, cpu| bits | 1 << cpu)
}

/// Asks these processors to forget everything, and waits until they have.
pub fn ask(cpu: &Cpu, targets: u64) {
    crate::delay::point();
    let mut wanted = [0; CPUS];
    for target in (0..CPUS).filter(|target| targets >> target & 1 != 0) {
        wanted[target] = BOXES[target].ask();
        apic::interrupt(apic_id(target), FLUSH_VECTOR);
        cpu.shootdowns.set(cpu.shootdowns.get() + 1);
    }
    for target in (0..CPUS).filter(|target| targets >> target & 1 != 0) {
        while !BOXES[target].has_answered(wanted[target]) {
            serve(cpu);
            crate::registers::pause();
        }
    }
}

/// Answers what this processor has been asked.
pub fn serve(cpu: &Cpu) {
    BOXES[cpu.index.get()].serve(|| {
        crate::delay::point();
        crate::registers::flush_all();
    });
}
