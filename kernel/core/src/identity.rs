//! Which object of a place is meant: names that find their object or nothing.
//!
//! ```text
//!   place of a table     serial 0        serial 1        serial 2          the last one: retired
//!   ────────────────────┤ object ├──────┤ object ├──────┤ object ├─ … ────┤ object ├─────────►
//!   a name has both: place and serial
//! ```
//! Serials count on, and a place whose serials are used up holds nothing any more: so whatever is
//! kept of an object, by programs or by the kernel, is a name that [`find`] looks up, and when the
//! object has ended it finds nothing, for ever. Nothing has to be told of an object's end but what
//! it counts for.
//!
//! An environment's id is a Linux thread id, too, and comes again after 65,536 uses of its place.
//! What the kernel keeps of an environment for longer than a call is a [`Thread`], whose number no
//! other environment ever has. An environment's holder and the one that it waits for are kept as
//! ids: a dead record keeps its place, and so its id, while others name it.

use crate::env;
use crate::index::{EnvIndex, bounded};
use crate::state::State;
use abi::id::{AccountId, DomainId, EnvId, FilterId, Id, RegionId, RingId, SERIALS};
use abi::published::{
    AccountRecord, DomainRecord, EnvRecord, FilterRecord, RegionRecord, RingRecord,
};

/// The number of the object that a place holds, or of the next one that it will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(u64);

impl Serial {
    /// That of the place's next object.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1).min(SERIALS))
    }

    /// The place has had all the objects that it may: it is retired.
    #[inline]
    pub fn is_spent(self) -> bool {
        self.0 >= SERIALS
    }

    /// As it stands in a name.
    pub fn number(self) -> u64 {
        self.0
    }

    /// That of a place that has been used so often.
    #[cfg(test)]
    pub(crate) fn after(uses: u64) -> Self {
        Self(uses)
    }

    /// The serial that has so many behind it.
    #[cfg(test)]
    pub(crate) fn before_the_last(count: u64) -> Self {
        Self(SERIALS - 1 - count)
    }
}

/// A record of a table, which says whose place it is.
pub(crate) trait Place {
    /// Names of such objects.
    type Name: Id;
    /// The name of the object that is here, or no name.
    fn name(&self) -> Self::Name;
}

macro_rules! places {
    ($( $record:ident $name:ident; )+) => { $(
        impl Place for $record {
            type Name = $name;
            #[inline(always)]
            fn name(&self) -> $name {
                $name(self.id)
            }
        }
    )+ };
}

places! {
    EnvRecord EnvId;
    DomainRecord DomainId;
    AccountRecord AccountId;
    RegionRecord RegionId;
    FilterRecord FilterId;
    RingRecord RingId;
}

/// The index of the object with this name in its table: every name that a program sends, or that
/// the kernel keeps, is looked up here.
#[inline(always)]
pub(crate) fn find<R: Place>(table: &[R], name: R::Name) -> Option<usize> {
    let index = bounded(name.index(), table.len());
    (index != 0 && table.get(index)?.name() == name).then_some(index)
}

/// An environment, for longer than its id is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    id: EnvId,
    serial: u64,
}

impl Thread {
    /// Nobody.
    pub const NONE: Self = Self { id: EnvId::NONE, serial: 0 };

    /// The environment at `index`.
    pub fn of(state: &State, index: EnvIndex) -> Self {
        let EnvRecord { id, serial, .. } = state.published.envs[index];
        Self { id: EnvId(id), serial }
    }

    /// Its id, which may be another one's by now: to be told, not to be looked up.
    pub fn id(self) -> EnvId {
        self.id
    }

    /// Its index while it lives.
    pub fn living(self, state: &State) -> Option<EnvIndex> {
        let index = env::living(state, self.id).ok()?;
        (state.published.envs[index].serial == self.serial).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_retired_after_its_last_serial() {
        let mut serial = Serial::before_the_last(2);
        let mut names = vec![];
        while !serial.is_spent() {
            names.push(RegionId::new(5, serial.number()));
            serial = serial.next();
        }
        assert_eq!(names.len(), 3);
        assert!(names.windows(2).all(|two| two[0] != two[1]));
        assert!(names.iter().all(|name| (name.0 as i64) > 0 && name.index() == 5));
        assert!(serial.next().is_spent());
    }
}
