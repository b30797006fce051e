//! Names as directories keep them: found by a sum over their bytes.
//!
//! Names in one directory often begin alike, so that comparing them byte by byte is most of the
//! work of a search. Who makes up names with equal sums can make a few: a directory takes no more
//! of them than a search may look at one after the other.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Id;
use crate::errno::Errno;
use crate::map::{self, Map};

/// Where a name stands in listings, what it leads to, and the user that it is charged to.
pub type Target = (u64, Id, u32);

/// Names with one sum at most, behind the first.
const OTHERS_MAX: usize = 32;
/// Bytes of a name that needs no memory of its own.
const SHORT: usize = 22;
/// Entries of a node: they are large, and an insertion moves half of them.
const WIDTH: usize = 12;

/// The bytes of a name.
#[derive(Debug)]
enum Name {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Name {
    fn new(name: &[u8]) -> Result<Self, Errno> {
        let mut bytes = [0; SHORT];
        if let Some(place) = bytes.get_mut(..name.len()) {
            place.copy_from_slice(name);
            return Ok(Self::Short { len: name.len() as u8, bytes });
        }
        Ok(Self::Long(map::copied(name)?))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Self::Long(bytes) => bytes,
        }
    }
}

/// The names of a directory.
#[derive(Debug, Default)]
pub struct Names {
    by_sum: Map<Entry, WIDTH>,
    by_position: Map<u64>,
}

/// The names with one sum, which are hardly ever more than one.
#[derive(Debug)]
struct Entry {
    name: Name,
    target: Target,
    others: Vec<(Name, Target)>,
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
        self.by_position.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.by_position.is_empty()
    }

    /// What a name leads to.
    pub fn get(&self, name: &[u8]) -> Option<Target> {
        self.get_of(sum(name), name)
    }

    fn get_of(&self, sum: u64, name: &[u8]) -> Option<Target> {
        let entry = self.by_sum.get(sum)?;
        if entry.name.bytes() == name {
            return Some(entry.target);
        }
        let other = entry.others.iter().find(|(other, _)| other.bytes() == name);
        other.map(|(_, target)| *target)
    }

    /// The same, to be changed (not where it stands).
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut Target> {
        let entry = self.by_sum.get_mut(sum(name))?;
        if entry.name.bytes() == name {
            return Some(&mut entry.target);
        }
        let other = entry.others.iter_mut().find(|(other, _)| other.bytes() == name);
        other.map(|(_, target)| target)
    }

    /// Adds a name that is not there; `ENOSPC`, and nothing has changed.
    pub fn insert(&mut self, name: &[u8], target: Target) -> Result<(), Errno> {
        self.insert_of(sum(name), name, target)
    }

    fn insert_of(&mut self, sum: u64, name: &[u8], target: Target) -> Result<(), Errno> {
        let name = Name::new(name)?;
        self.by_position.insert(target.0, sum)?;
        let added = match self.by_sum.insert_new(sum, Entry { name, target, others: Vec::new() }) {
            Ok(None) => Ok(()),
            Ok(Some(entry)) => self.add_to_others(sum, entry),
            Err(errno) => Err(errno),
        };
        if added.is_err() {
            self.by_position.remove(target.0);
        }
        added
    }

    fn add_to_others(&mut self, sum: u64, entry: Entry) -> Result<(), Errno> {
        let others = self.by_sum.get_mut(sum).map(|first| &mut first.others);
        let others = others.filter(|others| others.len() < OTHERS_MAX).ok_or(Errno::ENOSPC)?;
        others.try_reserve(1).map_err(|_| Errno::ENOSPC)?;
        others.push((entry.name, entry.target));
        Ok(())
    }

    /// Takes a name out; what it led to.
    pub fn remove(&mut self, name: &[u8]) -> Option<Target> {
        self.remove_of(sum(name), name)
    }

    fn remove_of(&mut self, sum: u64, name: &[u8]) -> Option<Target> {
        let entry = self.by_sum.get_mut(sum)?;
        let target = if entry.name.bytes() != name {
            let at = entry.others.iter().position(|(other, _)| other.bytes() == name)?;
            entry.others.swap_remove(at).1
        } else if let Some((name, next)) = entry.others.pop() {
            // Another one takes its place.
            entry.name = name;
            core::mem::replace(&mut entry.target, next)
        } else {
            self.by_sum.remove(sum)?.target
        };
        self.by_position.remove(target.0);
        Some(target)
    }

    /// Calls `visit` with the names from `position` on until it says that it has enough.
    pub fn visit_from(&self, position: u64, mut visit: impl FnMut(u64, &[u8], Id) -> bool) {
        self.by_position.visit_from(position, |at, &sum| {
            let Some(entry) = self.by_sum.get(sum) else { return true };
            let first = core::iter::once((&entry.name, &entry.target));
            let mut all = first.chain(entry.others.iter().map(|(name, target)| (name, target)));
            match all.find(|(_, target)| target.0 == at) {
                Some((name, target)) => visit(at, name.bytes(), target.1),
                None => true,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_is_found_where_the_name_stands() {
        let mut names = Names::default();
        let all = [
            &b"a"[..],
            b"ab",
            b"b",
            b"",
            b"bench-file-1",
            b"bench-file-2",
            &[b'y'; SHORT],
            &[b'y'; SHORT + 1],
            &[b'x'; 255],
        ];
        for (at, name) in all.iter().enumerate() {
            assert_eq!(names.get(name), None);
            names.insert(name, (at as u64, 7, 1)).unwrap();
        }
        for (at, name) in all.iter().enumerate() {
            assert_eq!(names.get(name), Some((at as u64, 7, 1)));
        }
        let mut listed = Vec::new();
        names.visit_from(2, |at, name, _| {
            listed.push((at, name.to_vec()));
            at < 6
        });
        let expected = (2..7).map(|at| (at as u64, all[at].to_vec()));
        assert_eq!(listed, expected.collect::<Vec<_>>());
        assert_eq!(names.get(b"c"), None);
        for (at, name) in all.iter().enumerate() {
            names.get_mut(name).unwrap().1 = 8;
            assert_eq!(names.remove(name), Some((at as u64, 8, 1)));
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
                names.insert_of(5, name, (at as u64, 1, 0)).unwrap();
            }
            let mut listed = 0;
            names.visit_from(0, |at, name, _| {
                listed += 1;
                name == all[at as usize]
            });
            assert_eq!(listed, all.len());
            assert_eq!(names.remove_of(5, b"none"), None);
            for step in 0..all.len() {
                let at = (first + step) % all.len();
                assert_eq!(names.get_of(5, all[at]), Some((at as u64, 1, 0)));
                assert_eq!(names.remove_of(5, all[at]), Some((at as u64, 1, 0)));
                assert_eq!(names.get_of(5, all[at]), None);
                assert_eq!(names.len(), all.len() - 1 - step);
            }
            assert!(names.by_sum.is_empty());
        }
    }

    /// Who makes up names with one sum makes searches no longer than so many names.
    #[test]
    fn a_crowd_of_equal_sums_ends() {
        let mut names = Names::default();
        let mut made = 0;
        while names.insert_of(5, &[made as u8; 3], (made, 1, 0)).is_ok() {
            made += 1;
        }
        assert_eq!((made as usize, names.len()), (OTHERS_MAX + 1, OTHERS_MAX + 1));
        names.insert_of(6, b"another", (100, 1, 0)).unwrap();
        assert_eq!(names.remove_of(5, &[0; 3]), Some((0, 1, 0)));
        names.insert_of(5, b"again", (101, 1, 0)).unwrap();
    }
}
