//! Devices in memory: named on the command line, or in the slots of QEMU's microvm.

use super::Transport;
use super::transport::read;
use crate::boot::memory_map::MemoryMap;
use crate::paging::Tables;
use crate::platform::Platform;

const MAGIC: u32 = 0x7472_6976;
/// Where microvm has its slots (decisions 24), and their size.
const SLOTS: u64 = 0xfeb0_0000;
const SLOT_SIZE: u64 = 512;

/// Calls `each` for every device found.
pub fn find(
    platform: &Platform,
    command_line: &str,
    tables: &mut Tables,
    memory: &mut MemoryMap,
    each: &mut impl FnMut(Transport, &mut MemoryMap),
) {
    let mut named = false;
    for word in command_line.split_ascii_whitespace() {
        if let Some((address, global)) = word.strip_prefix("virtio_mmio.device=").and_then(parse) {
            named = true;
            let registers = tables.map_device(memory, address, SLOT_SIZE);
            device(registers, global, memory, each);
        }
    }
    // A machine with PCI has none of the slots.
    if named || platform.ecam.is_some() {
        return;
    }
    let (count, first) = match platform.io_apic_count {
        0 | 1 => (8, 5),
        _ => (24, 24),
    };
    let registers = tables.map_device(memory, SLOTS, count * SLOT_SIZE);
    for slot in 0..count {
        device(registers + slot * SLOT_SIZE, first + slot as u32, memory, each);
    }
}

/// `size@address:interrupt`, as Linux's documentation of the parameter has it.
fn parse(word: &str) -> Option<(u64, u32)> {
    let (address, global) = word.split_once('@')?.1.split_once(':')?;
    let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
    Some((address, global.parse().ok()?))
}

fn device(
    registers: u64,
    global: u32,
    memory: &mut MemoryMap,
    each: &mut impl FnMut(Transport, &mut MemoryMap),
) {
    if read::<u32>(registers) != MAGIC || read::<u32>(registers + 8) == 0 {
        return;
    }
    let version: u32 = read(registers + 4);
    if version != 2 {
        crate::log!("virtio-mmio: version {version} is not driven; use force-legacy=false");
        return;
    }
    each(Transport::Mmio { registers, global }, memory);
}
