//! ACPI's static tables: RSDP, XSDT or RSDT, MADT, MCFG, FADT. No AML (ACPI 6.5 §5.2).

use super::{Ecam, Override, Platform, Sleep};
use crate::paging::EARLY_END;
use crate::physical::{read8, read16, read32, read64};

const fn signature(text: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*text)
}

/// Bytes of a table's header.
const HEADER: u64 = 36;
/// Tables larger than this are not believed.
const TABLE_MAX: u64 = 1 << 20;

fn sums_to_zero(address: u64, len: u64) -> bool {
    (0..len).fold(0u8, |sum, n| sum.wrapping_add(read8(address + n))) == 0
}

fn find_rsdp(told: u64) -> Option<u64> {
    let is_rsdp =
        |at: &u64| read64(*at) == u64::from_le_bytes(*b"RSD PTR ") && sums_to_zero(*at, 20);
    if told != 0 && told < EARLY_END && is_rsdp(&told) {
        return Some(told);
    }
    (0xe0000..0x10_0000).step_by(16).find(is_rsdp)
}

/// A whole table with a good checksum.
fn table(address: u64) -> Option<(u64, u64)> {
    if address == 0 || address >= EARLY_END - TABLE_MAX {
        return None;
    }
    let len = u64::from(read32(address + 4));
    ((HEADER..=TABLE_MAX).contains(&len) && sums_to_zero(address, len)).then_some((address, len))
}

/// Reads what is there; false without ACPI.
pub fn read(found: &mut Platform, told: u64) -> bool {
    let Some(rsdp) = find_rsdp(told) else { return false };
    let revision = read8(rsdp + 15);
    let extended = if revision >= 2 { read64(rsdp + 24) } else { 0 };
    let (root, step) =
        if extended != 0 { (extended, 8) } else { (u64::from(read32(rsdp + 16)), 4) };
    let Some((root, len)) = table(root) else { return false };
    for at in (root + HEADER..root + len).step_by(step as usize) {
        let address = if step == 8 { read64(at) } else { u64::from(read32(at)) };
        let Some((address, len)) = table(address) else { continue };
        match read32(address) {
            name if name == signature(b"APIC") => read_madt(found, address, len),
            name if name == signature(b"MCFG") => read_mcfg(found, address, len),
            name if name == signature(b"FACP") => read_fadt(found, address, len),
            _ => {}
        }
    }
    true
}

/// Processors and interrupt controllers (§5.2.12).
fn read_madt(found: &mut Platform, madt: u64, len: u64) {
    found.local_apic = u64::from(read32(madt + 36));
    let mut at = madt + 44;
    while at + 2 <= madt + len {
        let size = u64::from(read8(at + 1));
        if size < 2 || at + size > madt + len {
            break;
        }
        match (read8(at), size) {
            (0, 8..) if read32(at + 4) & 1 != 0 => found.add_cpu(u32::from(read8(at + 3))),
            (9, 16..) if read32(at + 8) & 1 != 0 => found.add_cpu(read32(at + 4)),
            (1, 12..) => found.add_io_apic(u64::from(read32(at + 4)), read32(at + 8)),
            (2, 10..) => found.add_override(Override {
                isa: read8(at + 3),
                global: read32(at + 4),
                flags: read16(at + 8),
            }),
            (5, 12..) => found.local_apic = read64(at + 4),
            _ => {}
        }
        at += size;
    }
}

/// The first segment's configuration space (PCI firmware specification 3.3 §4.1.2).
fn read_mcfg(found: &mut Platform, mcfg: u64, len: u64) {
    if len >= 44 + 16 {
        found.ecam = Some(Ecam { address: read64(mcfg + 44) });
    }
}

/// How to switch off (§4.8.3.2, §4.8.3.7).
fn read_fadt(found: &mut Platform, fadt: u64, len: u64) {
    const REDUCED: u32 = 1 << 20;
    const SLEEP_ENABLE: u16 = 1 << 13;
    if read32(fadt + 112) & REDUCED != 0 && len >= 256 {
        // Sleep type 5, enable; QEMU's and Firecracker's value, which only AML would tell.
        let (space, address) = (read8(fadt + 244), read64(fadt + 248));
        let value = 5 << 2 | 1 << 5;
        found.sleep = match space {
            0 => Sleep::Memory(address, value),
            1 => Sleep::BytePort(address as u16, value),
            _ => Sleep::Unknown,
        };
        return;
    }
    // The power management timer (§4.8.2.1): there if it has a port and four bytes.
    if read8(fadt + 91) == 4 {
        found.timer_port = read32(fadt + 76) as u16;
    }
    let port = read32(fadt + 64);
    if port != 0 {
        // QEMU's chipsets have sleep type 0 for "off".
        found.sleep = Sleep::Port(port as u16, SLEEP_ENABLE);
    }
}
