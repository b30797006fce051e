//! Pieces of entry code that not every processor needs: put into each copy as it is made.
//!
//! Assembly notes such a piece in a table: where it is, of which kind, and for some what stands
//! beside the way, to be jumped to. So a processor that needs none of it has no instruction more,
//! but for the padding that becomes `clac`.
//!
//! # Safety
//! The table is written by the assembler alone; a copy is changed before anything runs it.
#![allow(unsafe_code)]

use crate::entry;

/// Padding of three bytes that becomes `clac`.
pub const CLAC: u64 = 0;
/// A way out that begins with `verw` beside the way.
pub const VERW: u64 = 1;
/// A change of spaces that has a barrier beside the way, if it is one of users.
pub const BARRIER: u64 = 2;

/// The assembler's side, for each file of entry code: `{verw}` is [`VERW`].
macro_rules! macros {
    () => {
        r#"
    # A piece that not every processor needs (`patch`): label 901 is before it, 903 beside the way.
    .macro site kind, beside
    .pushsection .entry.sites, "a"
    .quad 901b, \kind, \beside
    .popsection
    .endm

    # The last two instructions of a way out to a program. Where buffers keep what the kernel has
    # loaded, a jump to `verw` and the same instructions stands in their place.
    .macro last_two one, two
901: \one
    \two
    .pushsection .entry.beside, "ax"
903: verw word ptr [rip + entry_selector]
    \one
    \two
    .popsection
    site {verw}, 903b
    .endm
        "#
    };
}
pub(crate) use macros;

/// Bytes of a jump with a distance of 32 bits.
const JUMP_BYTES: usize = 5;

/// A piece, as the assembler notes it.
#[repr(C)]
struct Site {
    place: u64,
    kind: u64,
    /// Where a jump from there goes.
    beside: u64,
}

unsafe extern "C" {
    static entry_sites: Site;
    static entry_sites_end: Site;
}

/// The jump from one place of entry code to another one; both are in the same copy.
pub fn jump(from: u64, to: u64) -> [u8; JUMP_BYTES] {
    let distance = (to.wrapping_sub(from) as u32).wrapping_sub(JUMP_BYTES as u32);
    let [a, b, c, d] = distance.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Changes the copy at this physical address: the pieces of each kind that is wanted.
pub fn put(copy: u64, wanted: impl Fn(u64) -> bool) {
    let (first, end) = (&raw const entry_sites, &raw const entry_sites_end);
    let count = (end as usize - first as usize) / size_of::<Site>();
    // SAFETY: the linker script puts both symbols around the table.
    let sites = unsafe { core::slice::from_raw_parts(first, count) };
    for site in sites.iter().filter(|site| wanted(site.kind)) {
        let at = copy + entry::offset_of_address(site.place);
        match site.kind {
            CLAC => crate::physical::fill(at, &[0x0f, 0x01, 0xca]),
            _ => crate::physical::fill(at, &jump(site.place, site.beside)),
        }
    }
}
