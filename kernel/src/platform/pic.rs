//! The two old interrupt controllers (8259A): all that is done with them is to silence them.
//!
//! Firmware leaves interrupts of theirs on, at the vectors of exceptions: the timer's at that of
//! the double fault. A local APIC whose LINT0 is masked does not keep them out everywhere: Bochs
//! wires the controllers to the processor beside it.

use crate::entry::DEVICE_VECTOR;
use crate::registers::outb;

/// What is written where: both begin anew, so that nothing waits in them; at vectors of devices,
/// where one that was taken back in the last moment does no harm; one behind the other; masked.
const ORDERS: [(u16, u8); 10] = [
    (0x20, 0x11),
    (0xa0, 0x11),
    (0x21, DEVICE_VECTOR),
    (0xa1, DEVICE_VECTOR + 8),
    (0x21, 1 << 2),
    (0xa1, 2),
    (0x21, 1),
    (0xa1, 1),
    (0x21, 0xff),
    (0xa1, 0xff),
];

/// Masks everything. Without such controllers nothing is there to take it.
pub fn silence() {
    for (port, value) in ORDERS {
        outb(port, value);
    }
}
