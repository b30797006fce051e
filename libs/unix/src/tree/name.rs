//! Names as directories keep them: in the order of a sum over their bytes, then of the bytes.
//!
//! Names in one directory often begin alike, so that comparing them byte by byte is most of the
//! work of a search. Who makes up names with equal sums gains nothing: they are compared as before.

use alloc::rc::Rc;
use core::borrow::Borrow;
use core::cmp::Ordering;

/// A name.
#[derive(Clone, Debug)]
pub struct Name {
    sum: u64,
    bytes: Rc<[u8]>,
}

/// A name that is looked for.
#[derive(Debug)]
pub struct Asked<'a> {
    sum: u64,
    bytes: &'a [u8],
}

/// What both are.
pub trait Sought {
    /// The sum.
    fn sum(&self) -> u64;
    /// The bytes, which are looked at only if the sums are equal.
    fn bytes(&self) -> &[u8];
}

/// The form in which a map takes a name that is looked for.
pub fn looked_for<'a>(asked: &'a Asked<'a>) -> &'a (dyn Sought + 'a) {
    asked
}

/// FNV-1a over words of eight bytes, then over the rest.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    let sum =
        words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, &byte| mix(sum, u64::from(byte)))
}

impl Name {
    /// A name of its own.
    pub fn new(bytes: &[u8]) -> Self {
        Self { sum: sum(bytes), bytes: bytes.into() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> Asked<'a> {
    /// To look for.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { sum: sum(bytes), bytes }
    }
}

impl Sought for Name {
    #[inline]
    fn sum(&self) -> u64 {
        self.sum
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Sought for Asked<'_> {
    #[inline]
    fn sum(&self) -> u64 {
        self.sum
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> Borrow<dyn Sought + 'a> for Name {
    fn borrow(&self) -> &(dyn Sought + 'a) {
        self
    }
}

impl Ord for dyn Sought + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sum().cmp(&other.sum()).then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl PartialOrd for dyn Sought + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Sought + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.sum() == other.sum() && self.bytes() == other.bytes()
    }
}

impl Eq for dyn Sought + '_ {}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sum().cmp(&other.sum()).then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.sum() == other.sum() && self.bytes() == other.bytes()
    }
}

impl Eq for Name {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn what_is_looked_for_is_found_where_the_name_stands() {
        let mut map = BTreeMap::new();
        let names = [&b"a"[..], b"ab", b"b", b"", b"bench-file-1", b"bench-file-2", &[b'x'; 255]];
        for (at, name) in names.iter().enumerate() {
            assert!(map.insert(Name::new(name), at).is_none());
        }
        for (at, name) in names.iter().enumerate() {
            assert_eq!(map.get(looked_for(&Asked::new(name))), Some(&at));
        }
        assert_eq!(map.get(looked_for(&Asked::new(b"c"))), None);
    }
}
