//! What the loader left: command line, memory map, the boot image.

pub mod memory_map;
pub mod sequence;
mod start;
mod start_info;
