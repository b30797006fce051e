//! The address space, drawn; the same in every domain.
//!
//! ```text
//!  0xffff_ffff_ffff_ffff ┌──────────────────────────────────┐
//!                        │ kernel image, per-CPU pages      │ slot 511   U=0
//!  0xffff_ff80_0000_0000 ├──────────────────────────────────┤
//!                        │ (unmapped)                       │
//!  0xffff_c180_0000_0000 ├──────────────────────────────────┤
//!                        │ own page tables, recursive       │ slot 386   U=1 W=0 NX
//!  0xffff_c100_0000_0000 ├──────────────────────────────────┤
//!                        │ library: the library OS          │ slot 385   U=1, donated tables
//!  0xffff_c080_0000_0000 ├──────────────────────────────────┤
//!                        │ published pages                  │ slot 384   U=1 W=0 NX, 2 MiB pages
//!  0xffff_c000_0000_0000 ├──────────────────────────────────┤
//!                        │ direct map of physical memory    │ slots 256… U=0 NX
//!  0xffff_8000_0000_0000 ├──────────────────────────────────┤
//!                        │ (not canonical)                  │
//!  0x0000_8000_0000_0000 ├──────────────────────────────────┤
//!                        │ the program's, wholly            │ slots 0–255, donated tables
//!  0x0000_0000_0000_0000 └──────────────────────────────────┘
//! ```

/// Bytes of a page and of a frame.
pub const PAGE_SIZE: u64 = 4096;
/// First address above the program's half.
pub const PROGRAM_END: u64 = 0x0000_8000_0000_0000;
/// The direct map of physical memory (kernel only).
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Where the published pages begin; the directory is the first of them.
pub const PUBLISHED: u64 = 0xffff_c000_0000_0000;
/// Where the library OS lives.
pub const LIBRARY: u64 = 0xffff_c080_0000_0000;
/// First address above the library slot.
pub const LIBRARY_END: u64 = 0xffff_c100_0000_0000;
/// Where a domain reads its own page tables.
pub const OWN_TABLES: u64 = 0xffff_c100_0000_0000;
/// Where the kernel is linked.
pub const KERNEL: u64 = 0xffff_ffff_8000_0000;

/// Root slots below this are the program's.
pub const PROGRAM_SLOTS: usize = 256;
/// Root slot of the published pages.
pub const PUBLISHED_SLOT: usize = 384;
/// Root slot of the library.
pub const LIBRARY_SLOT: usize = 385;
/// Root slot that points at its own table.
pub const OWN_TABLES_SLOT: usize = 386;

/// May a program name this address in a call: the lower half without its last page (so that
/// `rip` after a `syscall` there is canonical), or the library slot.
#[inline]
pub const fn is_user(address: u64) -> bool {
    address < PROGRAM_END - PAGE_SIZE || (address >= LIBRARY && address < LIBRARY_END)
}

/// May a program name all of these bytes?
#[inline]
pub const fn is_user_range(address: u64, len: u64) -> bool {
    let end = if address < PROGRAM_END - PAGE_SIZE {
        PROGRAM_END - PAGE_SIZE
    } else if address >= LIBRARY && address < LIBRARY_END {
        LIBRARY_END
    } else {
        return false;
    };
    crate::extent::within(address, len, end)
}

/// Index into a table of `level` (4 is the root, 1 holds leaves) for `address`.
#[inline(always)]
pub const fn table_index(address: u64, level: u8) -> usize {
    ((address >> (12 + 9 * (level as u32 - 1))) & 511) as usize
}

/// Where a domain reads the entry for `address` in its own table of `level`.
#[inline]
pub const fn own_entry_address(address: u64, level: u8) -> u64 {
    let mut at = (address & 0x0000_ffff_ffff_ffff) >> 12;
    let mut slots = OWN_TABLES_SLOT as u64;
    let mut step = 1;
    while step < level {
        at = (at >> 9) | (slots << 27);
        slots = OWN_TABLES_SLOT as u64;
        step += 1;
    }
    OWN_TABLES | (at << 3)
}

const _: () = assert!(PUBLISHED == 0xffff_0000_0000_0000 | (PUBLISHED_SLOT as u64) << 39);
const _: () = assert!(LIBRARY == 0xffff_0000_0000_0000 | (LIBRARY_SLOT as u64) << 39);
const _: () = assert!(OWN_TABLES == 0xffff_0000_0000_0000 | (OWN_TABLES_SLOT as u64) << 39);
const _: () = assert!(own_entry_address(0, 1) == OWN_TABLES);
