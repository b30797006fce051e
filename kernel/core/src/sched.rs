//! Slice vectors, the running order, directed yield, wake-ups.

use crate::machine::Machine;
use crate::state::State;
use abi::id::Frame;
use abi::limits::{CPUS, SLICES};

/// One processor.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// Who runs, 0: nobody.
    pub current: u16,
    /// Position in turn.
    pub position: u8,
    /// Is the processor there and started?
    pub online: bool,
    /// When the slice in turn ends, nanoseconds since boot.
    pub slice_end_ns: u64,
    /// When `current` got the processor.
    pub since_ns: u64,
    /// First environment of each position's ring, 0: none.
    pub rings: [u16; SLICES],
    /// Sole owners of positions that are nobody's home.
    pub owners: [u16; SLICES],
}

/// The private half of the table.
pub struct Scheduler {
    /// By processor.
    pub cpus: [Cpu; CPUS],
}

impl Default for Scheduler {
    fn default() -> Self {
        let cpu = Cpu {
            current: 0,
            position: 0,
            online: false,
            slice_end_ns: 0,
            since_ns: 0,
            rings: [0; SLICES],
            owners: [0; SLICES],
        };
        Self { cpus: [cpu; CPUS] }
    }
}

/// Tells the scheduler that a processor has started.
pub fn start_cpu(state: &mut State, cpu: usize) {
    state.sched.cpus[cpu].online = true;
}

/// Says which environment `cpu` runs on its way out of the kernel: the current one if nothing
/// speaks against it. Its events have been delivered to its context. `None`: idle, until an interrupt.
pub fn pick<M: Machine>(state: &mut State, machine: &mut M, cpu: usize) -> Option<usize> {
    let _ = (state, machine, cpu);
    None
}

/// A timer or processor interrupt arrived on `cpu`: deadlines pass, slices end. Then `pick`.
pub fn tick<M: Machine>(state: &mut State, machine: &mut M, cpu: usize) {
    let _ = (state, machine, cpu);
}

/// Nanoseconds since boot at which `cpu` wants its next timer interrupt.
pub fn next_deadline(state: &State, cpu: usize) -> Option<u64> {
    let _ = (state, cpu);
    None
}

/// Sets event bits (`upcall::EVENT_…`) of the environment at `index`; wakes or interrupts it.
pub fn event<M: Machine>(state: &mut State, machine: &mut M, index: usize, bits: u64) {
    let _ = (state, machine, index, bits);
}

/// The kernel wrote a word of this frame that sleepers may watch; they are looked at in `pick`.
pub fn written(state: &mut State, frame: Frame) {
    let _ = (state, frame);
}
