//! Devices on PCI, by the configuration space in memory, placed where the firmware did not.

use kernel_core::loader::Loaded;
use kernel_core::pci::{self, Window};

use super::Transport;
use super::transport::{read, write};
use crate::boot::memory_map::MemoryMap;
use crate::paging::Tables;
use crate::platform::{Ecam, Platform};

const VENDOR: u16 = 0x1af4;
/// Device numbers of version 1 devices are this plus the type; older numbers have the type apart.
const MODERN: u16 = 0x1040;
const TRANSITIONAL: u16 = 0x1000;
const BUS_BYTES: u64 = 1 << 20;
const FUNCTION_BYTES: u64 = 4096;
/// What reads as the vendor where there is no function.
const NOBODY: u16 = 0xffff;
/// Functions of a bus, and buses of the configuration space.
const FUNCTIONS: usize = 256;
const BUSES: u64 = 256;
/// The base address registers of a device; a bridge has two.
const BASES: u8 = 6;
const BRIDGE_BASES: u8 = 2;
/// In a base address register: of ports, not memory; 64 bits, the next register has the upper half.
const IS_PORTS: u32 = 1;
const IS_WIDE: u32 = 4;
/// The command register: the function answers to its addresses in memory; it may send by itself.
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;

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
    info: &Loaded,
    tables: &mut Tables,
    memory: &mut MemoryMap,
    each: &mut impl FnMut(Transport, &mut MemoryMap),
) {
    let Some(ecam) = platform.ecam else { return };
    let bus = tables.map_device(memory, ecam.address, BUS_BYTES);
    let function = |number: u8| bus + u64::from(number) * FUNCTION_BYTES;
    let mut found = [0; FUNCTIONS];
    let mut count = 0;
    for number in 0..=u8::MAX {
        if read::<u16>(function(number)) != NOBODY {
            found[count] = number;
            count += 1;
        }
    }
    let present = found[..count].iter().map(|number| function(*number));
    let virtio = present.clone().filter(|at| read::<u16>(*at) == VENDOR);
    if virtio.clone().any(|at| unplaced(at).next().is_some()) {
        let mut window = window(info, ecam, present);
        virtio.clone().for_each(|at| place(at, &mut window));
    }
    for at in virtio {
        if let Some(transport) = transport(at, tables, memory) {
            each(transport, memory);
        }
    }
}

/// What is free for registers: not memory, nor what the firmware gave to functions of this bus.
fn window(info: &Loaded, ecam: Ecam, present: impl Iterator<Item = u64>) -> Window {
    let mut window = Window::default();
    for (_, range) in info.map() {
        window.take(range.start, range.end.saturating_sub(range.start));
    }
    window.take(ecam.address, BUSES * BUS_BYTES);
    for at in present {
        for (number, low) in memory_bases(at) {
            if let Some(start) = base(at, number) {
                window.take(start, length(at, number, low).unwrap_or(0));
            }
        }
    }
    window
}

/// Gives the registers of a function addresses that have none; who finds no room is left alone.
fn place(at: u64, window: &mut Window) {
    for (number, len) in unplaced(at) {
        if let Some(start) = window.place(len) {
            while_silent(at, || write(register(at, number), start as u32));
        }
    }
}

/// Does `what` while a function does not answer to its addresses in memory.
fn while_silent<T>(at: u64, what: impl FnOnce() -> T) -> T {
    let command: u16 = read(at + 4);
    write(at + 4, command & !MEMORY_SPACE);
    let answer = what();
    write(at + 4, command);
    answer
}

/// The base address registers of a function that have no address, and the bytes they ask for.
fn unplaced(at: u64) -> impl Iterator<Item = (u8, u64)> {
    let without = memory_bases(at).filter(move |(number, _)| base(at, *number).is_none());
    without.filter_map(move |(number, low)| Some((number, length(at, number, low)?)))
}

/// The base address registers of a function that are of memory: number and lower half.
fn memory_bases(at: u64) -> impl Iterator<Item = (u8, u32)> {
    let is_bridge = read::<u8>(at + 0x0e) & 0x7f != 0;
    let mut upper_half = false;
    (0..if is_bridge { BRIDGE_BASES } else { BASES }).filter_map(move |number| {
        let low: u32 = read(register(at, number));
        let is_one = !upper_half && low & IS_PORTS == 0;
        upper_half = is_one && low & IS_WIDE != 0;
        is_one.then_some((number, low))
    })
}

/// Where base address register `number` is.
fn register(at: u64, number: u8) -> u64 {
    at + 0x10 + 4 * u64::from(number)
}

/// The bytes that base address register `number` asks for, if there is one.
fn length(at: u64, number: u8, low: u32) -> Option<u64> {
    let ask = |register: u64| {
        let was: u32 = read(register);
        write(register, u32::MAX);
        let answer: u32 = read(register);
        write(register, was);
        answer
    };
    let is_wide = low & IS_WIDE != 0 && number + 1 < BASES;
    while_silent(at, || {
        pci::length(ask(register(at, number)), is_wide.then(|| ask(register(at, number + 1))))
    })
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
    if number >= BASES {
        return None;
    }
    let low: u32 = read(register(at, number));
    if low & IS_PORTS != 0 {
        return None;
    }
    let is_wide = low & IS_WIDE != 0 && number + 1 < BASES;
    let high = if is_wide { read(register(at, number + 1)) } else { 0_u32 };
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
    if messages == 0 && kind(at) == super::NET {
        // Packets would come and nobody would hear of them: lines are not driven here.
        crate::log!("virtio on PCI: a network device without MSI-X, left alone");
        return None;
    }
    let command: u16 = read(at + 4);
    write(at + 4, command | MEMORY_SPACE | BUS_MASTER);
    Some(Transport::Pci { common, notify, multiplier, config, messages, kind: kind(at) })
}
