//! Attachments of domains to regions, found in a bounded number of steps however many there are.
//!
//! Each domain has a digital search tree of what it is attached to: a record at depth `d` goes on
//! to one side or the other by bit `d` of the key that is looked for. No key is longer than
//! [`KEY_BITS`], so no way down is longer either, whatever a program attaches in whatever order,
//! and nothing is ever balanced. A region's attachments are a list besides: they go when it ends.
//!
//! ```text
//!   records  │ heads, one for each domain │ attachments, in a tree or free │
//!   head ─► root ─bit 0─► … ─bit 1─► …        key: role, index of the region
//! ```

use crate::identity::Serial;
use crate::index::DomainIndex;
use abi::limits::{DOMAINS, REGION_ROLES};

/// Bits of a region's index, which come first in a key: most domains attach in one role.
const REGION_BITS: u32 = DOMAINS.ilog2();
/// Bits of a key: those of a role and its mark are above those of the region.
const KEY_BITS: u32 = REGION_BITS + (2 * REGION_ROLES).ilog2();
/// Steps of one way down at most.
pub(crate) const DEPTH: u32 = KEY_BITS + 1;
const _: () = assert!(DOMAINS.is_power_of_two() && REGION_ROLES.is_power_of_two());

/// One domain's attachments to one region in one role; or the head of a domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attachment {
    /// What is below it in the domain's tree, on both sides (of a head: the root, and nothing; of a
    /// free record: the next free one, and nothing), 0: nothing.
    pub(crate) below: [u16; 2],
    /// The one before and the one after it in the region's list (of a head: the first region that
    /// the domain has made and nobody has attached to), 0: none.
    pub(crate) beside: [u16; 2],
    /// Index of the domain.
    pub(crate) domain: u16,
    /// Index of the region.
    pub(crate) region: u16,
    /// The role, with the mark of attachments to regions with methods.
    pub(crate) role: u8,
    /// The serial of the region.
    pub(crate) serial: Serial,
    /// How often.
    pub(crate) count: u32,
}

impl Attachment {
    fn is(&self, region: usize, role: u8, serial: Serial) -> bool {
        usize::from(self.region) == region && self.role == role && self.serial == serial
    }

    fn key(&self) -> usize {
        key(self.region.into(), self.role)
    }
}

fn key(region: usize, role: u8) -> usize {
    usize::from(role) << REGION_BITS | region
}

fn side(key: usize, depth: u32) -> usize {
    key >> depth & 1
}

/// All attachments.
pub(crate) struct Attachments {
    records: &'static mut [Attachment],
    /// How many of them are domains' heads.
    heads: usize,
    free: u16,
}

impl Attachments {
    /// None: `records` has a head for each index of a domain, and the others to share.
    pub(crate) fn new(records: &'static mut [Attachment], domains: usize) -> Self {
        let count = records.len();
        for (at, record) in records.iter_mut().enumerate().skip(domains) {
            record.below[0] = if at + 1 < count { at as u16 + 1 } else { 0 };
        }
        let free = if domains < count { domains as u16 } else { 0 };
        Self { records, heads: domains.min(count), free }
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.records.len() - self.heads
    }

    /// A domain's head.
    pub(crate) fn head(&mut self, domain: DomainIndex) -> &mut Attachment {
        &mut self.records[domain.at()]
    }

    /// The record at `at`.
    pub(crate) fn at(&mut self, at: usize) -> &mut Attachment {
        &mut self.records[at]
    }

    /// The attachment of a domain to a region with this serial in a role.
    pub(crate) fn find(
        &self,
        domain: DomainIndex,
        region: usize,
        role: u8,
        serial: Serial,
    ) -> Option<usize> {
        let key = key(region, role);
        let mut at = usize::from(self.records[domain.at()].below[0]);
        for depth in 0..DEPTH {
            if at == 0 {
                return None;
            }
            let record = &self.records[at];
            if record.is(region, role, serial) {
                return Some(at);
            }
            at = usize::from(record.below[side(key, depth)]);
        }
        None
    }

    /// Is the domain attached to the region in any role below `roles`, of which all or none of an
    /// attachment's are?
    pub(crate) fn any(
        &self,
        domain: DomainIndex,
        region: usize,
        roles: u8,
        serial: Serial,
    ) -> bool {
        let mut at = usize::from(self.records[domain.at()].below[0]);
        for depth in 0..REGION_BITS {
            if at == 0 {
                return false;
            }
            let record = &self.records[at];
            if record.role < roles && record.is(region, record.role, serial) {
                return true;
            }
            at = usize::from(record.below[side(region, depth)]);
        }
        // What is as deep as this differs in the role alone.
        let record = &self.records[at];
        at != 0 && record.role < roles && record.is(region, record.role, serial)
    }

    /// Some attachment of the domain, 0: it has none.
    pub(crate) fn some_of(&self, domain: DomainIndex) -> usize {
        self.records[domain.at()].below[0].into()
    }

    /// Is there room for one more?
    pub(crate) fn has_room(&self) -> bool {
        self.free != 0
    }

    /// Enters what is not there yet, at the head of the region's list; there is room.
    pub(crate) fn insert(&mut self, new: Attachment, first: &mut u16) {
        let at = self.free;
        let (mut above, mut way) = (usize::from(new.domain), 0);
        for depth in 0..DEPTH {
            let below = usize::from(self.records[above].below[way]);
            if below == 0 {
                break;
            }
            (above, way) = (below, side(new.key(), depth));
        }
        self.free = self.records[usize::from(at)].below[0];
        self.records[above].below[way] = at;
        let after = core::mem::replace(first, at);
        self.records[usize::from(at)] = Attachment { below: [0; 2], beside: [0, after], ..new };
        if after != 0 {
            self.records[usize::from(after)].beside[0] = at;
        }
    }

    /// Takes an attachment out of the tree and the region's list.
    pub(crate) fn remove(&mut self, at: usize, first: &mut u16) {
        let record = self.records[at];
        self.unlink(&record, at);
        let [before, after] = record.beside;
        match before {
            0 => *first = after,
            before => self.records[usize::from(before)].beside[1] = after,
        }
        if after != 0 {
            self.records[usize::from(after)].beside[0] = before;
        }
        self.records[at] = Attachment { below: [self.free, 0], ..Attachment::default() };
        self.free = at as u16;
    }

    /// Puts some leaf below the record at `at` in its place, which is right for it, too; the leaf
    /// itself, if it is one, goes.
    fn unlink(&mut self, record: &Attachment, at: usize) {
        let (mut above, mut way) = (usize::from(record.domain), 0);
        for depth in 0..DEPTH {
            let below = usize::from(self.records[above].below[way]);
            if below == at {
                break;
            }
            (above, way) = (below, side(record.key(), depth));
        }
        let place = (above, way);
        let mut leaf = at;
        for _ in 0..DEPTH {
            let [one, other] = self.records[leaf].below;
            if one == 0 && other == 0 {
                break;
            }
            (above, way) = (leaf, usize::from(one == 0));
            leaf = usize::from(if one == 0 { other } else { one });
        }
        self.records[above].below[way] = 0;
        if leaf != at {
            self.records[leaf].below = self.records[at].below;
            self.records[place.0].below[place.1] = leaf as u16;
        }
    }

    /// All attachments of a domain.
    #[cfg(test)]
    pub(crate) fn of(&self, domain: DomainIndex) -> Vec<Attachment> {
        let mut found = Vec::new();
        let mut left = std::vec![(self.some_of(domain), 0)];
        while let Some((at, depth)) = left.pop() {
            if at != 0 {
                assert!(depth < DEPTH, "as deep as that");
                let record = self.records[at];
                assert_eq!(record.domain, domain.link());
                left.extend(record.below.map(|below| (usize::from(below), depth + 1)));
                found.push(record);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// What random insertions and removals leave is what a map has, in few steps.
    #[test]
    fn the_tree_is_a_map() {
        let records = Vec::leak(std::vec![Attachment::default(); 4 + 600]);
        let mut all = Attachments::new(records, 4);
        let mut firsts = std::vec![0; DOMAINS];
        let mut known = BTreeMap::new();
        let mut random = 7_u64;
        for round in 0..20_000_usize {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bits = (random >> 33) as usize;
            // Regions that differ in their high bits, too.
            let (domain, region) = (1 + bits % 3, ((bits >> 4) % 64) << ((bits >> 10 & 1) * 6));
            let role = (bits >> 12 & 3) as u8;
            let found = all.find(DomainIndex::new(domain), region, role, Serial::after(5));
            assert_eq!(found.is_some(), known.contains_key(&(domain, region, role)), "{round}");
            match found {
                Some(at) => {
                    assert_eq!(known.remove(&(domain, region, role)), Some(all.at(at).count));
                    all.remove(at, &mut firsts[region]);
                }
                None if all.has_room() => {
                    let count = round as u32;
                    known.insert((domain, region, role), count);
                    let one = (domain as u16, region as u16);
                    let (domain, region) = one;
                    let new = Attachment {
                        domain,
                        region,
                        role,
                        serial: Serial::after(5),
                        count,
                        ..Default::default()
                    };
                    all.insert(new, &mut firsts[usize::from(region)]);
                }
                None => {}
            }
            let any = known.keys().any(|&(of, to, _)| (of, to) == (domain, region));
            assert_eq!(
                all.any(DomainIndex::new(domain), region, 4, Serial::after(5)),
                any,
                "{round}"
            );
            assert!(!all.any(DomainIndex::new(domain), region, 4, Serial::after(6)));
        }
        let total: usize = (1..4).map(|domain| all.of(DomainIndex::new(domain)).len()).sum();
        assert_eq!(total, known.len());
        for (region, &first) in firsts.iter().enumerate() {
            let mut listed = 0;
            let mut at = usize::from(first);
            while at != 0 {
                assert_eq!(usize::from(all.at(at).region), region);
                (listed, at) = (listed + 1, usize::from(all.at(at).beside[1]));
            }
            assert_eq!(listed, known.keys().filter(|key| key.1 == region).count());
        }
    }

    /// All that one domain can be attached to: no way down is longer than a key.
    #[test]
    fn no_way_down_is_longer_than_a_key() {
        let count = DOMAINS * REGION_ROLES;
        let records = Vec::leak(std::vec![Attachment::default(); 2 + count]);
        let mut all = Attachments::new(records, 2);
        let mut firsts = std::vec![0; DOMAINS];
        for (region, first) in firsts.iter_mut().enumerate() {
            for role in 0..REGION_ROLES as u8 {
                let (domain, to) = (1, region as u16);
                let new = Attachment { domain, region: to, role, count: 1, ..Default::default() };
                all.insert(new, first);
            }
        }
        assert!(!all.has_room());
        // Looks at each one's depth.
        assert_eq!(all.of(1.into()).len(), count);
        assert!(
            (0..DOMAINS).all(|region| all.find(1.into(), region, 3, Serial::default()).is_some())
        );
    }
}
