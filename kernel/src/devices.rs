//! Interrupts of devices: whose vector it is, and what is done at once.

use crate::console;
use crate::cpu::Cpu;
use crate::entry::DEVICE_VECTOR;

/// The serial line's vector.
pub const SERIAL_VECTOR: u8 = DEVICE_VECTOR + console::COM1_IRQ;

/// A device interrupted this processor.
pub fn interrupt(cpu: &'static Cpu, vector: u8) {
    if vector == SERIAL_VECTOR {
        // Bytes are taken by whoever leaves the kernel next, under the lock.
        cpu.look.set(true);
    }
}
