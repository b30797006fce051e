//! Do so many bytes at an offset lie inside? Never a sum that could wrap.
//!
//! Written once for every width, so that all there is of a narrow one can be tried
//! (`tests/enumerated.rs`): nothing in the text depends on the width.

macro_rules! extents {
    ($( $(#[doc = $doc:literal])+ $within:ident: $word:ty, )+) => { $(
        $(#[doc = $doc])+
        #[inline]
        pub const fn $within(offset: $word, length: $word, size: $word) -> bool {
            offset <= size && length <= size - offset
        }
    )+ };
}

extents! {
    /// Are bytes `offset` to `offset + length` of something that has `size` bytes?
    within: u64,
    /// As [`within`], for the proof by enumeration.
    within_narrow: u8,
}
