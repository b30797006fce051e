//! Page-table entries and the items of a batched table update (decisions 8, xok97 XK-12, XK-15).
//!
//! Page tables are the cache of secure bindings: read by their owner through the recursive slot,
//! changed only by `TableUpdate`. What the application chooses in a present entry is
//! [`ENTRY_CHOICE`]; everything of a non-present entry but bit 0 and the address bits above
//! installed memory (forced to one against L1TF) is its own.

use crate::word::{UserAddress, Word};

/// The entry is in use by the processor.
pub const PRESENT: u64 = 1 << 0;
/// Stores are allowed (and-ed over the levels).
pub const WRITABLE: u64 = 1 << 1;
/// User mode may use it: always set by the kernel in what programs enter.
pub const USER: u64 = 1 << 2;
/// Write-through.
pub const WRITE_THROUGH: u64 = 1 << 3;
/// Not cached.
pub const CACHE_DISABLE: u64 = 1 << 4;
/// Of what memory type the page is: its frame's ([`Operation::Type`]), in every entry that maps it.
/// Neither bit: write-back; [`WRITE_THROUGH`]: that; both: uncacheable.
pub const TYPE: u64 = WRITE_THROUGH | CACHE_DISABLE;
/// Shift of [`TYPE`] in an entry.
pub const TYPE_SHIFT: u32 = 3;
/// The processor has used the entry.
pub const ACCESSED: u64 = 1 << 5;
/// The processor has stored through the entry.
pub const DIRTY: u64 = 1 << 6;
/// A large page (level 2: 2 MiB): a folded table ([`Operation::Fold`]).
pub const LARGE: u64 = 1 << 7;
/// Instruction fetch is refused.
pub const NO_EXECUTE: u64 = 1 << 63;
/// The entry keeps the right to be written, whether stores are allowed or not: what is protected
/// for a time is writable again without another right. It is asked for as [`WRITABLE`] is, and goes
/// where that is taken away by the kernel (copy-on-write).
pub const KEEPS_WRITE: u64 = 1 << 11;
/// Software bits: the application's own, in every leaf entry of a table. Of a folded table's large
/// entry they are the kernel's, with [`KEEPS_WRITE`].
pub const SOFTWARE: u64 = 0b11 << 9 | 0x7ff << 52;
/// The frame's address in a present entry.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// What an application chooses in a present leaf entry.
pub const ENTRY_CHOICE: u64 = WRITABLE | ACCESSED | DIRTY | NO_EXECUTE | KEEPS_WRITE | SOFTWARE;

/// One change to one entry.
///
/// `address` names the page; its low 12 bits are zero. `level` says which entry on the way to
/// it: 1 the leaf, 2..=4 the entry that points to the table of the level below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Item {
    /// What to do: [`Operation`] as a number.
    pub operation: u8,
    /// Level of the entry, 1..=4.
    pub level: u8,
    /// Pages behind the first one (level 1 only, all in its table) that the same is done to, one
    /// after the other; a frame that `frame` numbers and [`SOURCE`] go on with them.
    pub more: u16,
    /// A frame number, or [`ANY_FRAME`]; for `Table` the frame that becomes the table.
    pub frame: u32,
    /// The page.
    pub address: u64,
    /// Choice bits ([`ENTRY_CHOICE`]) or a payload; for `Share` the address in the caller's own
    /// space whose table is shared, and a count of frames in the low 12 bits; for `Table` and
    /// `Split` at level 2 the frame of links. For `Map` and `Protect` also [`SOURCE`].
    pub value: u64,
}

const _: () = assert!(core::mem::size_of::<Item>() == 24);

/// "Whichever is free" in [`Item::frame`]; for `Map` with a source: the frame found there.
pub const ANY_FRAME: u32 = u32::MAX;

/// Bits of [`Item::value`] for `Map` and `Protect`: bits 12..=47 of the address, in the caller's
/// own space, of the entry whose rights are copied (page 0 cannot be named: all zero is none); for
/// `Allocate` of the page whose contents are.
pub const SOURCE: u64 = 0x0000_ffff_ffff_f000;

/// Bit of [`Item::value`] for `Allocate`: the frame is zeroed, whoever had it last.
pub const CLEARED: u64 = 1 << 8;

/// The value of an item that copies the rights of the caller's own page at `address`.
pub const fn from_source(address: u64, choice: u64) -> u64 {
    address & SOURCE | choice
}

/// What an [`Item`] asks for. `old` is what `rdx` answers when the batch has one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Allocates `frame` (this one or any), guarded by the capability named in the call, and
    /// enters it at level 1. The frame is zeroed if its last holder was another account, or if
    /// [`CLEARED`] asks for it; it gets a copy of the caller's own page at [`SOURCE`], if one is
    /// named there.
    Allocate = 1,
    /// Enters an existing `frame` at level 1: the capability named dominates its guard for the
    /// rights asked, or an entry effective in the caller's own space, at [`SOURCE`], gives them.
    /// Replaces what was there.
    Map = 2,
    /// Removes the entry at `level`; what it held is dropped. At level 2..=4 the whole subtree's
    /// reference goes. The new entry is the payload in `value` (0: nothing).
    Unmap = 3,
    /// Changes the choice bits of a present leaf entry. Gaining `WRITABLE` or `KEEPS_WRITE`, where
    /// it has neither, is checked as `Map`, or the entry is the frame's only reference, the account
    /// of the target pays for it, and the capability named has WRITE: then its name becomes the
    /// frame's guard (copy-on-write's last holder). An only reference counts when all processors
    /// have forgotten the others: soon after the call that took the last of those, not in it.
    Protect = 4,
    /// Allocates `frame` as an empty table for the entry at `level` (2..=4); at level 2 the table
    /// comes with a second frame for its links (`value`: number or [`ANY_FRAME`]).
    Table = 5,
    /// Enters the level-1 table (`level` is 2) that the caller's own entry for address `value`
    /// points to. Both references are frozen: `WRITABLE` is taken from both entries. With a count
    /// (at most [`crate::limits::SHARE_COPIES`]) in the low 12 bits of `value`, a table that is not
    /// frozen and has at most so many writable leaves (and `SHARE_LEAVES` that are not the boot
    /// image's) is copied instead, if there are frames for it: as by `Split`, but what the writable
    /// leaves map is copied, too, and the copies are writable. The caller's table stays as it is.
    Share = 6,
    /// Replaces the frozen table at `level` 2 by a private copy in `frame`, with links in `value`,
    /// `WRITABLE` cleared in all 512 entries.
    Split = 7,
    /// The last reference to a frozen table (`level` 2) gets `WRITABLE` back, cleared in all 512
    /// entries; refused (`WrongState`) until all processors have forgotten the others, as for
    /// `Protect`.
    Thaw = 8,
    /// Folds the level-1 table that the entry at `level` 2 leads to: a 2 MiB leaf stands for its
    /// 512 entries from now on. They map 512 frames of program memory in a row, the first of a
    /// number that 512 divides, all with the same rights and without instruction fetch. The table
    /// stays behind the leaf, with what its entries say; accessed and dirty bits are the leaf's,
    /// set if any entry's was. Whatever changes one of the entries unfolds the table first. `value`
    /// is 0. Refused with the index of the first entry that is absent (`BadAddress`), not program
    /// memory (`WrongType`) or otherwise not as it must be (`Changed`).
    Fold = 9,
    /// Puts the table back in place of the 2 MiB leaf at `level` 2, whose accessed and dirty bits
    /// all its entries get. `value` is 0.
    Unfold = 10,
    /// Gives the frame that the entry at level 1 maps the memory type `value` (see [`TYPE`]): the
    /// entry has it, and so has every one entered later, until the frame is given back. The
    /// capability named has WRITE over the frame's guard, and the entry is the frame's only
    /// reference (else `Taken`): no two entries ever differ (Intel SDM 3A, 12.12.4). `NotPresent`:
    /// the processor does not keep the kernel's own, cached view of memory coherent with others
    /// ([`crate::published::FEATURE_SELF_SNOOP`]).
    Type = 11,
}

impl Operation {
    /// The operation with this number.
    pub const fn from_number(number: u8) -> Option<Operation> {
        Some(match number {
            1 => Operation::Allocate,
            2 => Operation::Map,
            3 => Operation::Unmap,
            4 => Operation::Protect,
            5 => Operation::Table,
            6 => Operation::Share,
            7 => Operation::Split,
            8 => Operation::Thaw,
            9 => Operation::Fold,
            10 => Operation::Unfold,
            11 => Operation::Type,
            _ => return None,
        })
    }
}

/// A page's address: aligned, in a part of the space that programs shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(pub u64);

impl Word for Page {
    fn from_word(word: u64) -> Option<Self> {
        if !word.is_multiple_of(crate::layout::PAGE_SIZE) {
            return None;
        }
        UserAddress::from_word(word).map(|address| Self(address.0))
    }
    fn to_word(self) -> u64 {
        self.0
    }
}
