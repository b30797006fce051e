//! What /proc says of the machine: CPUID, version, the process's own map.

use crate::memory::areas::{Area, Kind, Name};
use crate::memory::space;
use crate::user;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::x86_64::{__cpuid, CpuidResult};
use unix::Errno;
use unix::proc_text::{CpuModel, MapRecord};

/// Entries of an auxiliary vector that are looked at.
const VECTOR_MOST: u64 = 64;

fn leaf(number: u32) -> CpuidResult {
    __cpuid(number)
}

fn letters(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().into()
}

/// The auxiliary vector of the program, as it stands on its stack, with the two zeros at its end.
pub fn vector() -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    // A program may have overwritten its end.
    for at in 0..VECTOR_MOST {
        let entry: [u64; 2] = user::read_value(space().vector + 16 * at)?;
        bytes.extend(entry.iter().flat_map(|word| word.to_le_bytes()));
        if entry[0] == 0 {
            break;
        }
    }
    Ok(bytes)
}

/// The processor.
pub fn model() -> CpuModel {
    let vendor = leaf(0);
    let version = leaf(1).eax;
    let family =
        (version >> 8 & 15) + if version >> 8 & 15 == 15 { version >> 20 & 255 } else { 0 };
    let number = version >> 4 & 15 | (version >> 16 & 15) << 4;
    let mut name = Vec::new();
    let mut address_bits = [36, 48];
    let highest = leaf(0x8000_0000).eax;
    if highest >= 0x8000_0004 {
        for at in 0x8000_0002..=0x8000_0004 {
            let part = leaf(at);
            name.extend([part.eax, part.ebx, part.ecx, part.edx]);
        }
    }
    if highest >= 0x8000_0008 {
        let bits = leaf(0x8000_0008).eax;
        address_bits = [bits & 255, bits >> 8 & 255];
    }
    CpuModel {
        vendor: letters(&[vendor.ebx, vendor.edx, vendor.ecx]),
        name: letters(&name),
        numbers: [family, number, version & 15],
        mhz: xok::published::clock().tsc_mhz,
        address_bits,
    }
}

/// `/proc/version`
pub fn version() -> String {
    "Linux version 6.1.0-xok (xok) #1 Xok/ExOS\n".into()
}

/// The process's own map.
pub fn maps() -> Vec<MapRecord> {
    let executable = &crate::thread::process().executable;
    let record = |area: &Area| MapRecord {
        start: area.start,
        end: area.end,
        protection: u32::from(area.protection),
        shared: area.kind == Kind::Shared,
        offset: 0,
        name: match area.name {
            Name::None | Name::SharedFile | Name::CopiedFile => String::new(),
            Name::Program => executable.clone(),
            Name::Heap => "[heap]".into(),
            Name::Stack => "[stack]".into(),
            Name::Vdso => "[vdso]".into(),
            Name::Stubs => "[stubs]".into(),
        },
    };
    crate::memory::space().areas.all().iter().map(record).collect()
}
