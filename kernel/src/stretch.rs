//! Stretches without interrupts: how long each was, and what a long one leaves to others.

use crate::cpu::Cpu;
use crate::locked::STATE;
use crate::registers::rdtsc;

/// Cycles from an entry on after which a processor that waits for the lock goes first: some 5 µs,
/// a third of the longest hold, and many times what a short call takes.
pub const LONG: u64 = 1 << 14;

/// Interrupts were off from the entry until now.
#[inline]
pub fn note(cpu: &Cpu) {
    let stretch = rdtsc() - cpu.entered_tsc.get();
    let class = &cpu.classes[(stretch | 1).ilog2() as usize];
    class.set(class.get().wrapping_add(1));
    let call = cpu.call.get();
    if stretch > cpu.usual[call].get() {
        unusual(cpu, stretch, call);
    }
}

/// It was long, or longer than any of this call's.
#[cold]
fn unusual(cpu: &Cpu, stretch: u64, call: usize) {
    cpu.usual[call].set(stretch.min(LONG));
    if stretch > cpu.stretches[call].get() {
        cpu.stretches[call].set(stretch);
        cpu.stretched.set(true);
    }
    if stretch > cpu.longest.get().0 {
        cpu.longest.set((stretch, call));
    }
    if stretch > LONG {
        STATE.let_others_first();
    }
}
