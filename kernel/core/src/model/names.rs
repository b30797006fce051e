//! No name has two objects, so that no reference is older than what it finds.
//!
//! Ids of environments come again, here after four uses: an id that is kept finds the environment
//! that it found at first, or none.

use super::Model;
use super::calls::BUFFER;
use crate::env;
use crate::identity::Serial;
use crate::index::EnvIndex;
use abi::call::Call;
use abi::id::{DomainId, EnvId, FilterId, RegionId, RingId};
use std::collections::{HashMap, HashSet};

/// Names by the number of their kind's table.
#[derive(Default)]
pub(super) struct Names {
    had: HashSet<(usize, u64)>,
    now: [Vec<u64>; KINDS],
}

const KINDS: usize = 6;
/// The number of the accounts' table.
const ACCOUNT: usize = 2;

/// How many of the tables have places that are retired.
pub(super) const PLACES: usize = 5;

/// How many objects a place has had when it is retired.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lives {
    /// At every other place three, at the rest more than there is time for.
    SomeShort,
    /// At every place four, as if serials had two bits.
    AllShort,
}

/// Ids of environments in published records, by where they are: with the number of the environment
/// that was found by the id, 0 if there was none.
pub(super) type Kept = HashMap<(&'static str, usize), (EnvId, u64)>;

impl Model {
    /// Places are near their last serials, so that they are retired in the midst of the run. If not
    /// all are, those of the accounts that the model asks for by number are not.
    pub(super) fn shorten_lives(&mut self, lives: Lives) {
        let all = lives == Lives::AllShort;
        let last = Serial::before_the_last(if all { 3 } else { 2 });
        // The first account is never another one.
        let chosen = |kind, index: usize| match all {
            true => kind != ACCOUNT || index > 1,
            false => index.is_multiple_of(2) && (kind != ACCOUNT || index > 3),
        };
        self.serials(|kind, index, serial| {
            if chosen(kind, index) {
                *serial = last;
            }
        });
    }

    /// How many places of each table are retired.
    pub(super) fn retired(&mut self) -> [usize; PLACES] {
        let mut retired = [0; PLACES];
        self.serials(|kind, _, serial| retired[kind] += usize::from(serial.is_spent()));
        retired
    }

    /// The serials of all places: the table, the index, the serial.
    fn serials(&mut self, mut each: impl FnMut(usize, usize, &mut Serial)) {
        let state = &mut self.state;
        let mut table = |kind, serials: &mut dyn Iterator<Item = &mut Serial>| {
            serials.enumerate().skip(1).for_each(|(index, serial)| each(kind, index, serial));
        };
        table(0, &mut state.regions.slots.iter_mut().map(|slot| &mut slot.serial));
        table(1, &mut state.domains.records.iter_mut().map(|slot| &mut slot.serial));
        table(ACCOUNT, &mut state.accounts.records.iter_mut().map(|slot| &mut slot.serial));
        table(3, &mut state.net.rings.iter_mut().map(|slot| &mut slot.serial));
        table(4, &mut state.net.filters.iter_mut().map(|slot| &mut slot.serial));
    }

    /// A call that makes an object whose place is retired some time, or ends one of the caller's.
    pub(super) fn some_turnover(&mut self, caller: usize) -> Call {
        let published = &self.state.published;
        let own = env::domain(&self.state, EnvIndex::new(caller)).0;
        // Rings seldom: when their places are used up, no filter can be inserted any more.
        let choice = self.random.below(16);
        let of_own = |(domain, id): (u64, u64)| (domain == own && id != 0).then_some(id);
        let rings = published.rings.iter().map(|record| (record.domain, record.id));
        let filters = published.filters.iter().map(|record| (record.domain, record.id));
        let regions = published.regions.iter().map(|record| (own, record.id));
        let mine: Vec<u64> = match choice {
            0 => rings.filter_map(of_own).collect(),
            1..=4 => filters.filter_map(of_own).collect(),
            _ => regions.filter_map(of_own).collect(),
        };
        let id = if mine.is_empty() { 0 } else { self.random.pick(&mine) };
        let role = self.random.below(3) as u16;
        match choice {
            _ if id == 0 && choice < 10 => Call::RegionAlloc { frames: BUFFER, count: 0 },
            0 => Call::RingFree { ring: RingId(id) },
            1..=4 => Call::FilterDrop { filter: FilterId(id) },
            5 => Call::RegionAttach { region: RegionId(id), role, domain: DomainId::NONE },
            6..=9 => Call::RegionDetach { region: RegionId(id), role },
            10 => Call::RingAlloc { entries: BUFFER, count: 1 },
            _ => Call::FilterInsert { program: BUFFER },
        }
    }

    /// An id that is kept finds the environment that it found when it was stored, or none.
    pub(super) fn check_kept(&mut self) {
        let published = &self.state.published;
        let envs = published.envs.iter().enumerate().filter(|(_, record)| record.id != 0);
        let in_records = envs.flat_map(|(index, record)| {
            [(("holder", index), record.holder), (("donated_to", index), record.donated_to)]
        });
        let slices = published.slices.iter().enumerate();
        let in_slices = slices.map(|(index, slice)| (("slice", index), slice.env));
        let number = |id| {
            let found = env::lookup(&self.state, id);
            found.map_or(0, |index| published.envs[index].serial)
        };
        let now = in_records.chain(in_slices).filter(|(_, id)| *id != 0);
        let now: Kept = now.map(|(place, id)| (place, (EnvId(id), number(EnvId(id))))).collect();
        for (place, (id, serial)) in &now {
            let same = self.kept.get(place).filter(|(before, _)| before == id);
            let older = same.is_some_and(|(_, before)| *serial != 0 && serial != before);
            assert!(!older, "{place:?}: {id:?} is older than the environment that it finds");
        }
        self.kept = now;
    }

    /// Who is new in a table has a name that nobody has had; of environments the serial is new.
    pub(super) fn check_names(&mut self) {
        let published = &self.state.published;
        let now: [Vec<u64>; KINDS] = [
            published.regions.iter().map(|record| record.id).collect(),
            published.domains.iter().map(|record| record.id).collect(),
            published.accounts.iter().map(|record| record.id).collect(),
            published.rings.iter().map(|record| record.id).collect(),
            published.filters.iter().map(|record| record.id).collect(),
            published.envs.iter().map(|record| record.serial).collect(),
        ];
        for (kind, (now, before)) in now.iter().zip(&self.names.now).enumerate() {
            let known = |index: usize| before.get(index).copied().unwrap_or(0);
            for (index, &name) in now.iter().enumerate() {
                if name != 0 && name != known(index) {
                    assert!(self.names.had.insert((kind, name)), "{kind}: {name:#x} comes again");
                }
            }
        }
        self.names.now = now;
    }
}
