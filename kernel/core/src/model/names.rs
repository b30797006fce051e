//! No name has two objects, so that no reference is older than what it finds.

use super::Model;
use crate::identity::Serial;
use crate::index::AccountIndex;
use std::collections::HashSet;

/// Names by the number of their kind's table.
#[derive(Default)]
pub(super) struct Names {
    had: HashSet<(usize, u64)>,
    now: [Vec<u64>; KINDS],
}

const KINDS: usize = 6;

impl Model {
    /// Every other place is near its last serial: it is retired in the midst of the run. Not those
    /// of the accounts that the model asks for by number.
    pub(super) fn shorten_lives(&mut self) {
        let state = &mut self.state;
        let last = Serial::before_the_last(2);
        let every_other = |index: usize| index.is_multiple_of(2);
        let places = (state.regions.slots.iter_mut().map(|slot| &mut slot.serial))
            .enumerate()
            .chain(state.domains.records.iter_mut().map(|slot| &mut slot.serial).enumerate())
            .chain(state.net.rings.iter_mut().map(|slot| &mut slot.serial).enumerate())
            .chain(state.net.filters.iter_mut().map(|slot| &mut slot.serial).enumerate());
        places.filter(|(index, _)| every_other(*index)).for_each(|(_, place)| *place = last);
        for index in (4..state.accounts.records.len()).filter(|&index| every_other(index)) {
            state.accounts.records[AccountIndex::new(index)].serial = last;
        }
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
