//! A map from 64-bit keys, in order, whose insertion may be refused for want of memory.
//!
//! A B+ tree. Each node is one allocation of a fixed size, so an insertion needs at most one node
//! for each level and one for a new root; they are had before anything changes, and without them
//! nothing has. Removal joins no nodes: an empty one goes, a nearly empty one stays.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::errno::Errno;

/// Levels below the root at most: as each split leaves half, this is more than memory holds.
const LEVELS_MAX: usize = 24;
/// Entries that the first leaf has room for at first.
const FIRST_ENTRIES: usize = 2;

#[derive(Debug)]
enum Node<V> {
    /// Keys and values, in order.
    Leaf(Vec<(u64, V)>),
    /// The least key that may lie in a child, and the child; the first one's counts as 0.
    Inner(Vec<(u64, Node<V>)>),
}

/// The map; `WIDTH`: entries of a leaf, and children of an inner node, at most.
#[derive(Debug)]
pub struct Map<V, const WIDTH: usize = 32> {
    root: Node<V>,
    len: usize,
}

impl<V, const WIDTH: usize> Default for Map<V, WIDTH> {
    fn default() -> Self {
        Self { root: Node::Leaf(Vec::new()), len: 0 }
    }
}

/// Nodes that were allocated before they are needed.
struct Spare<V> {
    leaf: Vec<(u64, V)>,
    inner: Vec<Vec<(u64, Node<V>)>>,
}

/// An empty vector with room for `count` elements.
pub fn vector<T>(count: usize) -> Result<Vec<T>, Errno> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count).map_err(|_| Errno::ENOSPC)?;
    Ok(vector)
}

/// What is made, for as long as the program lasts, if there is memory for it.
pub fn leaked<T>(make: impl FnOnce() -> Result<T, Errno>) -> Result<&'static mut T, Errno> {
    let mut place = vector(1)?;
    place.push(make()?);
    place.leak().first_mut().ok_or(Errno::ENOSPC)
}

/// A copy of these bytes.
pub fn copied(bytes: &[u8]) -> Result<Box<[u8]>, Errno> {
    let mut copy = vector(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

/// The child that `key` lies in.
fn child_of<V>(children: &[(u64, Node<V>)], key: u64) -> usize {
    children.partition_point(|(first, _)| *first <= key).saturating_sub(1)
}

/// Where in a leaf this key is or belongs. Keys that follow each other are where they are looked
/// for first.
#[inline]
fn place_of<V>(entries: &[(u64, V)], key: u64) -> usize {
    let Some((first, _)) = entries.first() else { return 0 };
    let at = key.wrapping_sub(*first) as usize;
    match entries.get(at) {
        Some((other, _)) if *other == key => at,
        _ => entries.partition_point(|(other, _)| *other < key),
    }
}

impl<V> Node<V> {
    fn get(&self, key: u64) -> Option<&V> {
        let mut node = self;
        loop {
            match node {
                Self::Inner(children) => node = &children.get(child_of(children, key))?.1,
                Self::Leaf(entries) => {
                    let at = place_of(entries, key);
                    return entries.get(at).filter(|(other, _)| *other == key).map(|(_, v)| v);
                }
            }
        }
    }

    /// The leaf in which this key is or belongs.
    #[inline]
    fn leaf_mut(&mut self, key: u64) -> Option<&mut Vec<(u64, V)>> {
        let mut node = self;
        loop {
            match node {
                Self::Inner(children) => {
                    let at = child_of(children, key);
                    node = &mut children.get_mut(at)?.1;
                }
                Self::Leaf(entries) => return Some(entries),
            }
        }
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let entries = self.leaf_mut(key)?;
        let at = place_of(entries, key);
        let entry = entries.get_mut(at).filter(|(other, _)| *other == key);
        entry.map(|(_, value)| value)
    }

    /// Adds a key that is not there. What no longer fits is a node to the right, with its least
    /// key.
    fn insert<const WIDTH: usize>(
        &mut self,
        key: u64,
        value: V,
        spare: &mut Spare<V>,
    ) -> Option<(u64, Self)> {
        match self {
            Self::Leaf(entries) => {
                let at = place_of(entries, key);
                if entries.len() < WIDTH {
                    entries.insert(at, (key, value));
                    return None;
                }
                let mut right = core::mem::take(&mut spare.leaf);
                // Keys that grow fill their leaves.
                let half = if at == WIDTH { WIDTH } else { WIDTH / 2 };
                right.extend(entries.drain(half..));
                match at.checked_sub(half) {
                    Some(at) => right.insert(at, (key, value)),
                    None => entries.insert(at, (key, value)),
                }
                right.first().map(|(first, _)| *first).map(|first| (first, Self::Leaf(right)))
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                let (first, node) = children.get_mut(at)?.1.insert::<WIDTH>(key, value, spare)?;
                let at = at + 1;
                if children.len() < WIDTH {
                    children.insert(at, (first, node));
                    return None;
                }
                let mut right = spare.inner.pop().unwrap_or_default();
                let half = if at == WIDTH { WIDTH } else { WIDTH / 2 };
                right.extend(children.drain(half..));
                match at.checked_sub(half) {
                    Some(at) => right.insert(at, (first, node)),
                    None => children.insert(at, (first, node)),
                }
                right.first().map(|(first, _)| *first).map(|first| (first, Self::Inner(right)))
            }
        }
    }

    /// Takes a key out; the second word: the node is empty now.
    fn remove(&mut self, key: u64) -> (Option<V>, bool) {
        match self {
            Self::Leaf(entries) => {
                let at = place_of(entries, key);
                let there = entries.get(at).is_some_and(|(other, _)| *other == key);
                let value = there.then(|| entries.remove(at).1);
                (value, entries.is_empty())
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                let Some((_, child)) = children.get_mut(at) else { return (None, true) };
                let (value, empty) = child.remove(key);
                if empty {
                    children.remove(at);
                }
                (value, children.is_empty())
            }
        }
    }

    /// The last entry; the second word: the node is empty now.
    fn pop(&mut self) -> (Option<(u64, V)>, bool) {
        match self {
            Self::Leaf(entries) => {
                let last = entries.pop();
                (last, entries.is_empty())
            }
            Self::Inner(children) => {
                let Some((_, child)) = children.last_mut() else { return (None, true) };
                let (last, empty) = child.pop();
                if empty {
                    children.pop();
                }
                (last, children.is_empty())
            }
        }
    }

    /// Moves what lies at `key` and above into a node of its own.
    fn split(&mut self, key: u64, spare: &mut Spare<V>) -> Self {
        match self {
            Self::Leaf(entries) => {
                let mut right = core::mem::take(&mut spare.leaf);
                let at = place_of(entries, key);
                right.extend(entries.drain(at..));
                Self::Leaf(right)
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                let mut right = spare.inner.pop().unwrap_or_default();
                right.extend(children.drain(at + 1..));
                if let Some((first, child)) = children.last_mut() {
                    right.insert(0, (*first, child.split(key, spare)));
                }
                Self::Inner(right)
            }
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.iter().map(|(_, child)| child.count()).sum(),
        }
    }

    /// Calls `visit` with the entries from `key` on until it says that it has enough; has it?
    fn visit<'a>(&'a self, key: u64, visit: &mut impl FnMut(u64, &'a V) -> bool) -> bool {
        match self {
            Self::Leaf(entries) => {
                let at = place_of(entries, key);
                entries.iter().skip(at).any(|(key, value)| !visit(*key, value))
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                children.iter().skip(at).any(|(_, child)| child.visit(key, visit))
            }
        }
    }
}

impl<V, const WIDTH: usize> Map<V, WIDTH> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What lies at `key`.
    pub fn get(&self, key: u64) -> Option<&V> {
        self.root.get(key)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.root.get_mut(key)
    }

    /// Nodes for one insertion at `key`, or for one split there (which needs one on each level).
    fn spare(&self, key: u64, splits: bool) -> Result<Spare<V>, Errno> {
        let mut path = [0; LEVELS_MAX];
        let (mut node, mut levels) = (&self.root, 0);
        while let Node::Inner(children) = node {
            let Some(place) = path.get_mut(levels) else { return Err(Errno::ENOSPC) };
            *place = children.len();
            levels += 1;
            match children.get(child_of(children, key)) {
                Some((_, child)) => node = child,
                None => break,
            }
        }
        let leaf_is_full = matches!(node, Node::Leaf(entries) if entries.len() >= WIDTH);
        let full = path[..levels].iter().rev().take_while(|&&count| count >= WIDTH).count();
        let mut spare = Spare { leaf: Vec::new(), inner: Vec::new() };
        if !splits && !leaf_is_full {
            return Ok(spare);
        }
        // One more for a new root.
        let inner = if splits { levels } else { full + usize::from(full == levels) };
        spare.leaf = vector(WIDTH)?;
        spare.inner = vector(inner)?;
        for _ in 0..inner {
            spare.inner.push(vector(WIDTH)?);
        }
        Ok(spare)
    }

    /// Adds a key that is not there; `ENOSPC`, and nothing has changed.
    pub fn insert(&mut self, key: u64, value: V) -> Result<(), Errno> {
        self.insert_new(key, value).map(|_| ())
    }

    /// Adds a key; the value comes back if the key is there. `ENOSPC`, and nothing has changed.
    pub fn insert_new(&mut self, key: u64, value: V) -> Result<Option<V>, Errno> {
        if let Some(entries) = self.root.leaf_mut(key) {
            let is_last = entries.last().is_none_or(|(last, _)| *last < key);
            let at = if is_last { entries.len() } else { place_of(entries, key) };
            if entries.get(at).is_some_and(|(other, _)| *other == key) {
                return Ok(Some(value));
            }
            // Most keys find room in their leaf.
            if entries.len() < entries.capacity().min(WIDTH) {
                entries.insert(at, (key, value));
                self.len += 1;
                return Ok(None);
            }
        }
        self.insert_and_grow(key, value).map(|()| None)
    }

    fn insert_and_grow(&mut self, key: u64, value: V) -> Result<(), Errno> {
        let mut spare = self.spare(key, false)?;
        // Other leaves have room for all that they hold at most; small maps are many.
        if let Node::Leaf(entries) = &mut self.root
            && entries.len() < WIDTH
            && entries.len() == entries.capacity()
        {
            let more = entries.len().max(FIRST_ENTRIES).min(WIDTH - entries.len());
            entries.try_reserve_exact(more).map_err(|_| Errno::ENOSPC)?;
        }
        self.len += 1;
        if let Some((first, right)) = self.root.insert::<WIDTH>(key, value, &mut spare) {
            let mut children = spare.inner.pop().unwrap_or_default();
            let left = core::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            children.extend([(0, left), (first, right)]);
            self.root = Node::Inner(children);
        }
        Ok(())
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        // Most leaves keep others.
        if let Some(entries) = self.root.leaf_mut(key)
            && entries.len() > 1
        {
            let at = place_of(entries, key);
            entries.get(at).filter(|(other, _)| *other == key)?;
            self.len -= 1;
            return Some(entries.remove(at).1);
        }
        let (value, empty) = self.root.remove(key);
        self.after_removal(usize::from(value.is_some()), empty);
        value
    }

    /// Takes the last entry out.
    pub fn pop_last(&mut self) -> Option<(u64, V)> {
        let (last, empty) = self.root.pop();
        self.after_removal(usize::from(last.is_some()), empty);
        last
    }

    fn after_removal(&mut self, count: usize, empty: bool) {
        self.len -= count;
        if empty {
            self.root = Node::Leaf(Vec::new());
        }
    }

    /// The last key.
    pub fn last_key(&self) -> Option<u64> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children.last()?.1,
                Node::Leaf(entries) => return entries.last().map(|(key, _)| *key),
            }
        }
    }

    /// Takes what lies at `key` and above out, all at once; `ENOSPC`, and nothing has changed.
    pub fn split_off(&mut self, key: u64) -> Result<Self, Errno> {
        if key == 0 {
            return Ok(core::mem::take(self));
        }
        let mut spare = self.spare(key, true)?;
        let mut right = Self { root: self.root.split(key, &mut spare), len: 0 };
        right.len = right.root.count();
        self.len -= right.len;
        // A split leaves empty nodes at the edge, which searches and removals pass over; without
        // an entry there must be none.
        for map in [&mut *self, &mut right] {
            if map.len == 0 {
                map.root = Node::Leaf(Vec::new());
            }
        }
        right.trim_left();
        self.trim_right();
        Ok(right)
    }

    /// Takes empty nodes off the right edge.
    fn trim_right(&mut self) {
        fn trim<V>(node: &mut Node<V>) -> bool {
            match node {
                Node::Leaf(entries) => entries.is_empty(),
                Node::Inner(children) => {
                    while children.last_mut().is_some_and(|(_, child)| trim(child)) {
                        children.pop();
                    }
                    children.is_empty()
                }
            }
        }
        if trim(&mut self.root) {
            self.root = Node::Leaf(Vec::new());
        }
    }

    /// Takes empty nodes off the left edge.
    fn trim_left(&mut self) {
        fn trim<V>(node: &mut Node<V>) -> bool {
            match node {
                Node::Leaf(entries) => entries.is_empty(),
                Node::Inner(children) => {
                    while children.first_mut().is_some_and(|(_, child)| trim(child)) {
                        children.remove(0);
                    }
                    children.is_empty()
                }
            }
        }
        if trim(&mut self.root) {
            self.root = Node::Leaf(Vec::new());
        }
    }

    /// Calls `visit` with the entries from `key` on, in order, until it says that it has enough.
    pub fn visit_from<'a>(&'a self, key: u64, mut visit: impl FnMut(u64, &'a V) -> bool) {
        self.root.visit(key, &mut visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// Every step as the standard library's map does it.
    #[test]
    fn does_what_a_tree_map_does() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut map, mut model) = (Map::<u64, 8>::default(), BTreeMap::new());
        for step in 0..60_000_u64 {
            let key = match step / 10_000 {
                0 => step,
                1 => random(50_000),
                2 => u64::MAX - random(1 << 20),
                _ => random(60_000),
            };
            let grows = step / 10_000 % 4 != 3;
            if grows && !model.contains_key(&key) {
                map.insert(key, step).unwrap();
                model.insert(key, step);
            } else if random(3) == 0 {
                assert_eq!(map.remove(key), model.remove(&key));
            } else if random(50) == 0 {
                assert_eq!(map.pop_last(), model.pop_last());
            }
            assert_eq!(map.get(key), model.get(&key));
            assert_eq!(map.get_mut(key), model.get_mut(&key));
            assert_eq!((map.len(), map.last_key()), (model.len(), model.keys().last().copied()));
            if random(2_000) == 0 {
                let at = random(60_000);
                let (right, other) = (map.split_off(at).unwrap(), model.split_off(&at));
                assert_eq!(list(&right, 0), other.into_iter().collect::<Vec<_>>());
                assert_eq!(map.len(), model.len());
            }
            if random(500) == 0 {
                let at = random(60_000);
                let rest = model.range(at..).map(|(key, value)| (*key, *value));
                assert_eq!(list(&map, at), rest.collect::<Vec<_>>());
            }
        }
        while let Some(last) = map.pop_last() {
            assert_eq!(Some(last), model.pop_last());
        }
        assert!(map.is_empty() && model.is_empty());
    }

    fn list(map: &Map<u64, 8>, from: u64) -> Vec<(u64, u64)> {
        let mut list = Vec::new();
        map.visit_from(from, |key, value| {
            list.push((key, *value));
            true
        });
        list
    }

    #[test]
    fn keys_that_grow_fill_their_leaves() {
        let mut map = Map::<_, 32>::default();
        (0..10_000).for_each(|key| map.insert(key, ()).unwrap());
        fn leaves<V>(node: &Node<V>) -> usize {
            match node {
                Node::Leaf(_) => 1,
                Node::Inner(children) => children.iter().map(|(_, child)| leaves(child)).sum(),
            }
        }
        assert!(leaves(&map.root) <= 10_000 / 32 + 2, "{}", leaves(&map.root));
    }
}
