//! Which places of a table are taken: the lowest free one is found in few steps.
//!
//! Places are counted by blocks. A look goes to the first block with a free one, and through that.
//! A place that is retired ([`crate::identity`]) stays taken.

use crate::count::Count;

/// Places that are counted together.
pub(crate) const BLOCK: usize = 64;

/// Of a table with so many blocks at most, how many places of each are taken; place 0 is nobody's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places<const BLOCKS: usize>([u8; BLOCKS]);

impl<const BLOCKS: usize> Places<BLOCKS> {
    /// All are free but place 0.
    pub(crate) fn new() -> Self {
        let mut taken = [0; BLOCKS];
        taken[0] = 1;
        Self(taken)
    }

    /// A free place has been taken.
    pub(crate) fn take(&mut self, at: usize) {
        if let Some(taken) = self.0.get_mut(at / BLOCK) {
            *taken += 1;
        }
    }

    /// A place is free again.
    pub(crate) fn give_back(&mut self, at: usize) {
        if let Some(taken) = self.0.get_mut(at / BLOCK) {
            taken.less(1);
        }
    }

    /// The lowest place below `count` that is free.
    pub(crate) fn lowest(&self, count: usize, is_free: impl Fn(usize) -> bool) -> Option<usize> {
        let blocks = self.0.iter().enumerate().filter(|&(_, &taken)| usize::from(taken) < BLOCK);
        let places = |block: usize| (block * BLOCK).max(1)..((block + 1) * BLOCK).min(count);
        blocks.flat_map(|(block, _)| places(block)).find(|&at| is_free(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::limits::DOMAINS;
    use std::cell::Cell;

    #[test]
    fn the_lowest_is_found_in_few_steps() {
        let mut places = Places::<{ DOMAINS / BLOCK }>::new();
        let mut free = vec![true; DOMAINS];
        free[0] = false;
        for at in 1..DOMAINS {
            assert_eq!(places.lowest(DOMAINS, |at| free[at]), Some(at));
            places.take(at);
            free[at] = false;
        }
        assert_eq!(places.lowest(DOMAINS, |at| free[at]), None);
        for given_back in [DOMAINS - 1, 1000, 1] {
            places.give_back(given_back);
            free[given_back] = true;
            let looks = Cell::new(0);
            let found = places.lowest(DOMAINS, |at| {
                looks.set(looks.get() + 1);
                free[at]
            });
            assert_eq!(found, Some(given_back));
            assert!(looks.get() <= BLOCK, "{} looks for {given_back}", looks.get());
        }
        assert_eq!(places.lowest(1, |at| free[at]), None, "behind the table's end");
    }
}
