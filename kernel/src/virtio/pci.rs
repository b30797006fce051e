//! Devices on PCI, by the configuration space in memory; base addresses as the firmware left them.

use super::Transport;
use super::transport::{read, write};
use crate::boot::memory_map::MemoryMap;
use crate::paging::Tables;
use crate::platform::Platform;

const VENDOR: u16 = 0x1af4;
/// Device numbers of version 1 devices are this plus the type; older numbers have the type apart.
const MODERN: u16 = 0x1040;
const TRANSITIONAL: u16 = 0x1000;
const BUS_BYTES: u64 = 1 << 20;
const FUNCTION_BYTES: u64 = 4096;

const CAPABILITY_VENDOR: u8 = 0x09;
const CAPABILITY_MESSAGES: u8 = 0x11;
/// Capabilities of one function that are looked at.
const CAPABILITIES_MAX: usize = 48;

/// Kinds of virtio capabilities (virtio 1.2 §4.1.4).
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;

/// Calls `each` for every virtio device of the first bus.
pub fn find(
    platform: &Platform,
    tables: &mut Tables,
    memory: &mut MemoryMap,
    each: &mut impl FnMut(Transport, &mut MemoryMap),
) {
    let Some(ecam) = platform.ecam else { return };
    let bus = tables.map_device(memory, ecam.address, BUS_BYTES);
    for function in 0..256 {
        // The first function of a slot is there, or none is.
        let at = bus + function * FUNCTION_BYTES;
        if read::<u16>(at) == VENDOR
            && let Some(transport) = transport(at, tables, memory)
        {
            each(transport, memory);
        }
    }
}

/// The device type of a function: from its number, or from the subsystem of an old one.
fn kind(at: u64) -> u32 {
    let device: u16 = read(at + 2);
    if device >= MODERN {
        return u32::from(device - MODERN);
    }
    match device - TRANSITIONAL {
        0 => super::NET,
        5 => super::ENTROPY,
        _ => u32::from(read::<u16>(at + 0x2e)),
    }
}

/// The address of base register `number`, with its upper half where it has one.
fn base(at: u64, number: u8) -> Option<u64> {
    if number > 5 {
        return None;
    }
    let low: u32 = read(at + 0x10 + 4 * u64::from(number));
    if low & 1 != 0 {
        return None;
    }
    let high =
        if low & 4 != 0 && number < 5 { read(at + 0x14 + 4 * u64::from(number)) } else { 0_u32 };
    let address = u64::from(high) << 32 | u64::from(low & !0xf);
    (address != 0).then_some(address)
}

fn transport(at: u64, tables: &mut Tables, memory: &mut MemoryMap) -> Option<Transport> {
    // Is there a list of capabilities at all?
    if read::<u16>(at + 6) & 0x10 == 0 {
        return None;
    }
    let (mut common, mut notify, mut config, mut messages) = (0, 0, 0, 0);
    let mut multiplier = 0;
    let mut next: u8 = read(at + 0x34);
    for _ in 0..CAPABILITIES_MAX {
        let here = at + u64::from(next & !3);
        if next & !3 == 0 {
            break;
        }
        let identity: u8 = read(here);
        next = read(here + 1);
        match identity {
            CAPABILITY_VENDOR => {
                let (which, bar): (u8, u8) = (read(here + 3), read(here + 4));
                let (offset, len): (u32, u32) = (read(here + 8), read(here + 12));
                let wanted = [COMMON, NOTIFY, DEVICE].contains(&which);
                let Some(from) = base(at, bar).filter(|_| wanted) else { continue };
                let mapped = tables.map_device(memory, from + u64::from(offset), u64::from(len));
                match which {
                    COMMON => common = mapped,
                    NOTIFY => {
                        notify = mapped;
                        multiplier = read(here + 16);
                    }
                    _ => config = mapped,
                }
            }
            CAPABILITY_MESSAGES => {
                let place: u32 = read(here + 4);
                if let Some(from) = base(at, (place & 7) as u8) {
                    messages = tables.map_device(memory, from + u64::from(place & !7), 16);
                    // Enabled, not masked as a whole.
                    let control: u16 = read(here + 2);
                    write(here + 2, control & !(1 << 14) | 1 << 15);
                }
            }
            _ => {}
        }
    }
    if common == 0 || notify == 0 || config == 0 {
        crate::log!("virtio on PCI: no version 1 capabilities, left alone");
        return None;
    }
    // Memory space and bus mastering.
    let command: u16 = read(at + 4);
    write(at + 4, command | 0b110);
    Some(Transport::Pci { common, notify, multiplier, config, messages, kind: kind(at) })
}
