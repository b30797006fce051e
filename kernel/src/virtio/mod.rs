//! Virtio devices, version 1 only: found once at boot, on PCI or in memory (virtio 1.2).
//!
//! ```text
//!  find ──► transport (pci | mmio) ──► queue (split, event index) ──► net, rng
//! ```

mod mmio;
pub mod net;
mod pci;
mod queue;
pub mod rng;
mod transport;

use kernel_core::loader::Loaded;

use crate::boot::memory_map::MemoryMap;
use crate::devices::VIRTIO_VECTOR;
use crate::paging::Tables;
use crate::platform::Platform;
use crate::platform::io_apic::IoApics;

pub use transport::Transport;

/// Device types (virtio 1.2 §5).
const NET: u32 = 1;
const ENTROPY: u32 = 4;

/// Interrupts on a level, active high: how devices in memory signal.
const LEVEL_HIGH: u16 = 0b1101;

/// Devices that are used at most.
pub const DEVICES: usize = 4;

/// Finds every device, sets up those that the kernel drives, leaves the others alone.
pub fn probe(platform: &Platform, info: &Loaded, tables: &mut Tables, memory: &mut MemoryMap) {
    let mut used = 0;
    let mut each = |transport: Transport, memory: &mut MemoryMap| {
        if used == DEVICES {
            return;
        }
        let vector = VIRTIO_VECTOR + used as u8;
        let taken = match transport.device_type() {
            NET => net::start(transport, memory, vector),
            ENTROPY => rng::start(transport, memory),
            _ => false,
        };
        used += usize::from(taken);
    };
    pci::find(platform, info, tables, memory, &mut each);
    mmio::find(platform, info.command_line(), tables, memory, &mut each);
}

/// Sends the devices' interrupts to this processor.
pub fn route(io_apics: &IoApics, target: u32) {
    net::with(|device| {
        if let Some(global) = device.transport.interrupt_line() {
            io_apics.route(global, LEVEL_HIGH, target, device.vector);
        }
        device.transport.signal_to(target, device.vector);
        device.listen();
    });
}
