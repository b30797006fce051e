//! A table of things named by index and generation: a stale name finds nothing.

use alloc::vec::Vec;

/// A name: index in the low half, generation in the high half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u32, u32);

/// At most `limit` things.
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    used: usize,
    limit: usize,
}

impl<T> Slab<T> {
    pub fn new(limit: usize) -> Slab<T> {
        Slab { slots: Vec::new(), used: 0, limit }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Enters a thing; `None`: the table is full, or there is no memory for it.
    pub fn insert(&mut self, thing: T) -> Option<Name> {
        if self.is_full() {
            return None;
        }
        let index = match self.slots.iter().position(|(_, slot)| slot.is_none()) {
            Some(index) => index,
            None => {
                self.slots.try_reserve(1).ok()?;
                self.slots.push((0, None));
                self.slots.len() - 1
            }
        };
        let (generation, slot) = &mut self.slots[index];
        *generation = generation.wrapping_add(1);
        *slot = Some(thing);
        self.used += 1;
        Some(Name(u32::try_from(index).ok()?, *generation))
    }

    pub fn get(&self, name: Name) -> Option<&T> {
        let (generation, slot) = self.slots.get(name.0 as usize)?;
        if *generation == name.1 { slot.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, name: Name) -> Option<&mut T> {
        let (generation, slot) = self.slots.get_mut(name.0 as usize)?;
        if *generation == name.1 { slot.as_mut() } else { None }
    }

    pub fn remove(&mut self, name: Name) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(name.0 as usize)?;
        if *generation != name.1 {
            return None;
        }
        let thing = slot.take();
        self.used -= usize::from(thing.is_some());
        thing
    }

    /// Every thing with its name.
    pub fn iter(&self) -> impl Iterator<Item = (Name, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, slot))| {
            Some((Name(index as u32, *generation), slot.as_ref()?))
        })
    }

    /// The name in place `index`, for walks that change the table.
    pub fn name_at(&self, index: usize) -> Option<Name> {
        let (generation, slot) = self.slots.get(index)?;
        slot.is_some().then_some(Name(index as u32, *generation))
    }

    /// Places, used or not.
    pub fn places(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_finds_nothing() {
        let mut slab = Slab::new(2);
        let first = slab.insert('a').unwrap();
        let second = slab.insert('b').unwrap();
        assert!(slab.insert('c').is_none());
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!((slab.remove(first), slab.len()), (None, 1));
        let third = slab.insert('c').unwrap();
        assert_eq!((slab.get(first), slab.get(third)), (None, Some(&'c')));
        assert_eq!(slab.iter().map(|(_, thing)| *thing).collect::<Vec<_>>(), ['c', 'b']);
        assert_eq!(slab.name_at(1), Some(second));
    }
}
