//! Interrupts of devices: whose vector it is, and what is done at once.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel_core::state::State;

use crate::console;
use crate::cpu::Cpu;
use crate::entry::DEVICE_VECTOR;
use crate::hardware::Hardware;
use crate::virtio;

/// The serial line's vector.
pub const SERIAL_VECTOR: u8 = DEVICE_VECTOR + console::COM1_IRQ;

/// First vector of the virtio devices.
pub const VIRTIO_VECTOR: u8 = DEVICE_VECTOR + 0x20;

/// The serial line has bytes.
static SERIAL: AtomicBool = AtomicBool::new(false);
/// The serial line may have bytes that nobody had room for.
static STALLED: AtomicBool = AtomicBool::new(true);
/// The network device has something.
static NETWORK: AtomicBool = AtomicBool::new(false);

/// A device interrupted this processor.
pub fn interrupt(cpu: &'static Cpu, vector: u8) {
    if vector == SERIAL_VECTOR {
        // Bytes are taken under the lock, on the way out.
        SERIAL.store(true, Ordering::Relaxed);
        cpu.look.set(true);
    }
    if vector >= VIRTIO_VECTOR {
        virtio::net::acknowledge();
        NETWORK.store(true, Ordering::Relaxed);
        cpu.look.set(true);
    }
}

/// Takes what devices have for programs, under the lock.
pub fn poll(state: &mut State, hardware: &mut Hardware) {
    if NETWORK.swap(false, Ordering::Relaxed) {
        virtio::net::poll(state, hardware);
    }
    if SERIAL.swap(false, Ordering::Relaxed) {
        take_serial(state, hardware);
    }
}

/// Goes on with the serial line where it was left because nobody had room.
#[inline]
pub fn resume(state: &mut State, hardware: &mut Hardware) {
    if STALLED.load(Ordering::Relaxed) {
        take_serial(state, hardware);
    }
}

/// Hands on what arrived. What there is no room for stays in the UART, so that a sender that looks
/// at its line (a virtual machine's does) waits instead of being lost.
fn take_serial(state: &mut State, hardware: &mut Hardware) {
    while kernel_core::console::has_room(state, hardware) {
        let Some(byte) = console::serial_read() else {
            STALLED.store(false, Ordering::Relaxed);
            return;
        };
        kernel_core::console::input(state, hardware, byte);
    }
    STALLED.store(true, Ordering::Relaxed);
}
