//! Names as directories keep them: found by a sum over their bytes.
//!
//! Names in one directory often begin alike, so that comparing them byte by byte is most of the
//! work of a search. Who makes up names with equal sums gains nothing: those are kept in order.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;

use super::Id;

/// Where a name stands in listings, and what it leads to.
pub type Target = (u64, Id);

/// The names of a directory.
#[derive(Debug, Default)]
pub struct Names {
    by_sum: BTreeMap<u64, Entry>,
    count: usize,
}

/// The names with one sum, which are hardly ever more than one.
#[derive(Debug)]
struct Entry {
    name: Rc<[u8]>,
    target: Target,
    #[expect(clippy::box_collection, reason = "one word of an entry, not three")]
    others: Option<Box<BTreeMap<Rc<[u8]>, Target>>>,
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

impl Names {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What a name leads to.
    pub fn get(&self, name: &[u8]) -> Option<Target> {
        self.get_of(sum(name), name)
    }

    fn get_of(&self, sum: u64, name: &[u8]) -> Option<Target> {
        let entry = self.by_sum.get(&sum)?;
        if *entry.name == *name {
            return Some(entry.target);
        }
        entry.others.as_ref()?.get(name).copied()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut Target> {
        let entry = self.by_sum.get_mut(&sum(name))?;
        if *entry.name == *name {
            return Some(&mut entry.target);
        }
        entry.others.as_mut()?.get_mut(name)
    }

    /// Adds a name that is not there.
    pub fn insert(&mut self, name: Rc<[u8]>, target: Target) {
        self.insert_of(sum(&name), name, target);
    }

    fn insert_of(&mut self, sum: u64, name: Rc<[u8]>, target: Target) {
        self.count += 1;
        match self.by_sum.get_mut(&sum) {
            None => drop(self.by_sum.insert(sum, Entry { name, target, others: None })),
            Some(entry) => {
                entry.others.get_or_insert_default().insert(name, target);
            }
        }
    }

    /// Takes a name out; what it led to.
    pub fn remove(&mut self, name: &[u8]) -> Option<Target> {
        self.remove_of(sum(name), name)
    }

    fn remove_of(&mut self, sum: u64, name: &[u8]) -> Option<Target> {
        use alloc::collections::btree_map::Entry::Occupied;
        let Occupied(mut place) = self.by_sum.entry(sum) else { return None };
        let entry = place.get_mut();
        let is_first = *entry.name == *name;
        let target = match &mut entry.others {
            None if is_first => place.remove().target,
            None => return None,
            Some(others) => {
                let target = if is_first {
                    // The next one takes its place.
                    let (name, next) = others.pop_first()?;
                    entry.name = name;
                    core::mem::replace(&mut entry.target, next)
                } else {
                    others.remove(name)?
                };
                if others.is_empty() {
                    entry.others = None;
                }
                target
            }
        };
        self.count -= 1;
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_is_found_where_the_name_stands() {
        let mut names = Names::default();
        let all = [&b"a"[..], b"ab", b"b", b"", b"bench-file-1", b"bench-file-2", &[b'x'; 255]];
        for (at, name) in all.iter().enumerate() {
            assert_eq!(names.get(name), None);
            names.insert((*name).into(), (at as u64, 7));
        }
        for (at, name) in all.iter().enumerate() {
            assert_eq!(names.get(name), Some((at as u64, 7)));
        }
        assert_eq!(names.get(b"c"), None);
        for (at, name) in all.iter().enumerate() {
            names.get_mut(name).unwrap().1 = 8;
            assert_eq!(names.remove(name), Some((at as u64, 8)));
            assert_eq!((names.remove(name), names.len()), (None, all.len() - 1 - at));
        }
        assert!(names.is_empty());
    }

    #[test]
    fn equal_sums_are_different_names() {
        let all = [&b"one"[..], b"two", b"three", b"four"];
        // Whichever goes first, the others stay.
        for first in 0..all.len() {
            let mut names = Names::default();
            for (at, name) in all.iter().enumerate() {
                names.insert_of(5, (*name).into(), (at as u64, 1));
            }
            assert_eq!(names.remove_of(5, b"none"), None);
            for step in 0..all.len() {
                let at = (first + step) % all.len();
                assert_eq!(names.get_of(5, all[at]), Some((at as u64, 1)));
                assert_eq!(names.remove_of(5, all[at]), Some((at as u64, 1)));
                assert_eq!(names.get_of(5, all[at]), None);
                assert_eq!(names.len(), all.len() - 1 - step);
            }
            assert!(names.by_sum.is_empty());
        }
    }
}
