//! Software regions: operations, roles, attachments.

use abi::capability::Name;
use abi::id::Frame;
use abi::limits::REGION_FRAMES;

/// The private half of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// Generation of the id that is in use or comes next.
    pub generation: u32,
    /// Who may attach.
    pub guard: Name,
    /// Frames that count, 0: the region is the 64 bytes in the kernel's table.
    pub count: u8,
    /// Its frames.
    pub frames: [Frame; REGION_FRAMES],
}

/// The private half of the table.
pub struct Regions {
    /// By index; index 0 is never used.
    pub slots: &'static mut [Region],
    /// Physical address of the inline words, `limits::REGION_INLINE_BYTES` for each index, in frames of
    /// the kernel's that only `Machine::word` and its kin reach.
    pub words: u64,
}

impl Regions {
    /// An empty table.
    pub fn new(slots: &'static mut [Region], words: u64) -> Self {
        Self { slots, words }
    }
}
