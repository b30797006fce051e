//! The arithmetic of an access: which area an address names, and do its bytes lie inside?
//!
//! Written once for every width, so that all there is of a narrow one can be tried
//! (`tests/suite/bounds.rs`): nothing in the text depends on the width.

macro_rules! accesses {
    ($(
        $(#[doc = $split_doc:literal])+ $split:ident,
        $(#[doc = $within_doc:literal])+ $within:ident: $address:ty, twice $half:ty;
    )+) => { $(
        $(#[doc = $split_doc])+
        #[inline]
        pub fn $split(at: $address) -> ($half, $half) {
            ((at >> <$half>::BITS) as $half, at as $half)
        }

        $(#[doc = $within_doc])+
        #[inline]
        pub fn $within(offset: $half, bytes: $half, length: $half) -> bool {
            offset <= length && bytes <= length - offset
        }
    )+ };
}

accesses! {
    /// The halves of an address: the area's number, and the offset in it.
    split,
    /// Do so many bytes at an offset lie in an area of so many? Never a sum that could wrap.
    within: u64, twice u32;
    /// As [`split`], for the proof by enumeration.
    split_narrow,
    /// As [`within`], for the proof by enumeration.
    within_narrow: u16, twice u8;
}
