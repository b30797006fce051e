//! The MP table, where there is no ACPI (Intel MultiProcessor specification 1.4 §4).

use super::Platform;
use crate::physical::{read8, read16, read32};

/// Reads processors and I/O APICs, if there is a table.
pub fn read(found: &mut Platform) {
    let is_pointer = |at: &u64| {
        read32(*at) == u32::from_le_bytes(*b"_MP_")
            && (0..16).fold(0u8, |sum, n| sum.wrapping_add(read8(at + n))) == 0
    };
    let places = (0x9fc00..0xa0000).chain(0xf0000..0x10_0000);
    let Some(pointer) = places.step_by(16).find(is_pointer) else { return };
    let table = u64::from(read32(pointer + 4));
    if table == 0 || read32(table) != u32::from_le_bytes(*b"PCMP") {
        return;
    }
    found.local_apic = u64::from(read32(table + 36));
    // By the length: qboot leaves the count of entries at zero.
    let end = table + u64::from(read16(table + 4));
    let mut at = table + 44;
    while at < end {
        match read8(at) {
            0 => {
                if read8(at + 3) & 1 != 0 {
                    found.add_cpu(u32::from(read8(at + 1)));
                }
                at += 20;
            }
            kind => {
                if kind == 2 && read8(at + 3) & 1 != 0 {
                    found.add_io_apic(u64::from(read32(at + 4)), 0);
                }
                at += 8;
            }
        }
    }
}
