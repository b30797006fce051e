//! What the loader left, where it left it: read once, before anything else is done to memory.
//!
//! ```text
//!  PVH: Xen's public headers, `hvm_start_info`, version 1
//!  start info            0 magic  4 version  8 flags  12 modules  16 module list  24 command line
//!                       32 RSDP  40 memory map  48 its entries
//!  module                0 address  8 bytes  16 command line  24 zero
//!  memory map entry      0 address  8 bytes  16 type  20 zero
//! ```
//! A multiboot2 loader's is `kernel_core::loader::multiboot`.

use abi::published::COMMAND_LINE;
use kernel_core::loader::{ENTRIES, Loaded, Malformed, Range, multiboot};

use crate::paging::EARLY_END;
use crate::physical::{bytes, read8, read32, read64};

const MAGIC: u32 = 0x336e_c578;

/// Reads what lies at `address`; `magic` is multiboot2's if that is what the entry was.
pub fn read(address: u64, magic: u32, loaded: &mut Loaded) -> Result<(), Malformed> {
    if magic == multiboot::MAGIC {
        let length = u64::from(multiboot::length(read32(address))?);
        if !address.is_multiple_of(8) || address + length > EARLY_END {
            return Err(Malformed::Length);
        }
        return multiboot::read(bytes(address, length), address, loaded);
    }
    if magic != 0 || read32(address) != MAGIC {
        return Err(Malformed::Protocol);
    }
    read_pvh(address, loaded)
}

fn read_pvh(at: u64, loaded: &mut Loaded) -> Result<(), Malformed> {
    let line = read64(at + 24);
    if line != 0 {
        let most = COMMAND_LINE as u64;
        let len = (0..most).find(|&n| read8(line + n) == 0).unwrap_or(most);
        loaded.set_command_line(bytes(line, len));
    }
    let list = read64(at + 16);
    if read32(at + 12) != 0 && list != 0 {
        loaded.image = Some(Range::of(read64(list), read64(list + 8)));
    }
    loaded.rsdp = read64(at + 32);
    let (map, count) =
        if read32(at + 4) >= 1 { (read64(at + 40), read32(at + 48)) } else { (0, 0) };
    for entry in (0..u64::from(count).min(ENTRIES as u64)).map(|n| map + n * 24) {
        loaded.add_entry(read32(entry + 16), read64(entry), read64(entry + 8))?;
    }
    Ok(())
}
