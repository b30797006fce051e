//! Indices that callers name, kept inside their tables without a branch.
//!
//! A processor that runs ahead may pass a comparison with a table's length before it is made, and
//! load from behind the table what the next load then shows by the cache line that it touches. So
//! a number of a caller's goes through [`bounded`] before it indexes anything; the comparison that
//! refuses it stays where it is. Index 0 is nobody's in every table but the processors'.

use crate::machine::Machine;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::limits::CPUS;
use abi::published::{AccountRecord, DomainRecord, EnvRecord, RegionRecord};
use core::hint::black_box;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

/// What there are tables of.
pub mod kind {
    /// Accounts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Account;
    /// Processors.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Cpu;
    /// Domains.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Domain;
    /// Environments.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Env;
    /// Regions.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Region;
}

/// Where an account's records are.
pub type AccountIndex = Place<kind::Account>;
/// Which processor, from 0.
pub type CpuIndex = Place<kind::Cpu>;
/// Where a domain's records are.
pub type DomainIndex = Place<kind::Domain>;
/// Where an environment's records are.
pub type EnvIndex = Place<kind::Env>;
/// Where a region's records are.
pub type RegionIndex = Place<kind::Region>;

/// Where the records of something are: what indexes a table of such things is this, and neither
/// another kind's place nor a number.
///
/// ```
/// use kernel_core::index::{AccountIndex, Slots, kind};
/// let accounts = Slots::<kind::Account, u8>::new(Box::leak(Box::new([3, 5])));
/// assert_eq!(accounts[AccountIndex::new(1)], 5);
/// ```
/// ```compile_fail
/// use kernel_core::index::{DomainIndex, Slots, kind};
/// let accounts = Slots::<kind::Account, u8>::new(Box::leak(Box::new([3, 5])));
/// assert_eq!(accounts[DomainIndex::new(1)], 5);
/// ```
/// ```compile_fail
/// use kernel_core::index::{Slots, kind};
/// let accounts = Slots::<kind::Account, u8>::new(Box::leak(Box::new([3, 5])));
/// assert_eq!(accounts[1], 5);
/// ```
///
/// An environment's is neither its domain's nor a number, and its id says it:
///
/// ```
/// use abi::id::EnvId;
/// use kernel_core::index::{EnvIndex, Slots, kind};
/// let envs = Slots::<kind::Env, u8>::new(Box::leak(Box::new([3, 5])));
/// assert_eq!(envs[EnvIndex::from(EnvId::new(1, 7))], 5);
/// ```
/// ```compile_fail
/// use abi::id::DomainId;
/// use kernel_core::index::{DomainIndex, Slots, kind};
/// let envs = Slots::<kind::Env, u8>::new(Box::leak(Box::new([3, 5])));
/// assert_eq!(envs[DomainIndex::from(DomainId::new(1, 7))], 5);
/// ```
/// ```compile_fail
/// use abi::id::EnvId;
/// use kernel_core::index::{Slots, kind};
/// let envs = Slots::<kind::Env, u8>::new(Box::leak(Box::new([3, 5])));
/// assert_eq!(envs[EnvId::new(1, 7).index()], 5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<Kind>(usize, PhantomData<Kind>);

impl<Kind: Copy> Place<Kind> {
    /// The one with this number.
    #[inline(always)]
    pub const fn new(at: usize) -> Self {
        Self(at, PhantomData)
    }

    /// Its number, for a table that is of more than such things, or published.
    #[inline(always)]
    pub const fn at(self) -> usize {
        self.0
    }

    /// The same as links say it.
    #[inline(always)]
    pub const fn link(self) -> u16 {
        self.0 as u16
    }
}

impl CpuIndex {
    /// All there may be.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CPUS).map(Self::new)
    }
}

impl From<u8> for CpuIndex {
    #[inline(always)]
    fn from(cpu: u8) -> Self {
        Self::new(cpu.into())
    }
}

impl From<u32> for CpuIndex {
    #[inline(always)]
    fn from(cpu: u32) -> Self {
        Self::new(cpu as usize)
    }
}

/// The index, or 0 if the table has no such entry.
#[inline(always)]
pub fn bounded(index: usize, len: usize) -> usize {
    index & black_box(below(index, len))
}

/// The same where each instruction counts: the machine keeps the mask in its register.
#[inline(always)]
pub fn bounded_by<M: Machine>(machine: &M, index: usize, len: usize) -> usize {
    index & machine.opaque(below(index, len))
}

/// The sign of the difference, in every bit: all ones if the index is below the length. That the
/// compiler does not know this keeps it from comparing instead.
#[inline(always)]
fn below(index: usize, len: usize) -> usize {
    (index.wrapping_sub(len) as isize >> (usize::BITS - 1)) as usize
}

/// The private halves of things of one kind, which only its [`Place`] finds.
pub struct Slots<Kind, Record: 'static>(&'static mut [Record], PhantomData<Kind>);

impl<Kind: Copy, Record> Slots<Kind, Record> {
    /// A table of these.
    pub fn new(slots: &'static mut [Record]) -> Self {
        Self(slots, PhantomData)
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The one at `place`, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, place: Place<Kind>) -> Option<&Record> {
        self.0.get(place.at())
    }

    /// The same, to change it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, place: Place<Kind>) -> Option<&mut Record> {
        self.0.get_mut(place.at())
    }

    /// Those at two places, to change both, if there are two.
    #[inline(always)]
    pub(crate) fn two_mut(&mut self, places: [Place<Kind>; 2]) -> Option<[&mut Record; 2]> {
        self.0.get_disjoint_mut(places.map(Place::at)).ok()
    }

    /// All of them, in order.
    #[inline(always)]
    pub fn iter(&self) -> core::slice::Iter<'_, Record> {
        self.0.iter()
    }

    /// The same, to change them.
    #[cfg(test)]
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Record> {
        self.0.iter_mut()
    }
}

impl<Kind: Copy, Record> Index<Place<Kind>> for Slots<Kind, Record> {
    type Output = Record;
    #[inline(always)]
    fn index(&self, place: Place<Kind>) -> &Record {
        &self.0[place.at()]
    }
}

impl<Kind: Copy, Record> IndexMut<Place<Kind>> for Slots<Kind, Record> {
    #[inline(always)]
    fn index_mut(&mut self, place: Place<Kind>) -> &mut Record {
        &mut self.0[place.at()]
    }
}

/// Something for each processor, which only a [`CpuIndex`] finds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Each<Record>([Record; CPUS]);

impl<Record> Each<Record> {
    /// These, in order.
    pub const fn new(all: [Record; CPUS]) -> Self {
        Self(all)
    }

    /// That of `cpu`, if there may be such a one.
    #[inline(always)]
    pub(crate) fn get(&self, cpu: CpuIndex) -> Option<&Record> {
        self.0.get(cpu.at())
    }

    /// The same, to change it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, cpu: CpuIndex) -> Option<&mut Record> {
        self.0.get_mut(cpu.at())
    }

    /// All of them, in order.
    #[inline(always)]
    pub fn iter(&self) -> core::slice::Iter<'_, Record> {
        self.0.iter()
    }
}

impl<Record> Index<CpuIndex> for Each<Record> {
    type Output = Record;
    #[inline(always)]
    fn index(&self, cpu: CpuIndex) -> &Record {
        &self.0[cpu.at()]
    }
}

impl<Record> IndexMut<CpuIndex> for Each<Record> {
    #[inline(always)]
    fn index_mut(&mut self, cpu: CpuIndex) -> &mut Record {
        &mut self.0[cpu.at()]
    }
}

/// Published tables of them are arrays.
impl<Record> Index<CpuIndex> for [Record; CPUS] {
    type Output = Record;
    #[inline(always)]
    fn index(&self, cpu: CpuIndex) -> &Record {
        &self[cpu.at()]
    }
}

impl<Record> IndexMut<CpuIndex> for [Record; CPUS] {
    #[inline(always)]
    fn index_mut(&mut self, cpu: CpuIndex) -> &mut Record {
        &mut self[cpu.at()]
    }
}

/// An id says the place of what it names. A published table is a slice; its kind's [`Place`] finds
/// the records in it too, and no other's.
macro_rules! tables {
    ($( $kind:ident $id:ident $record:ident; )+) => { $(
        impl Place<kind::$kind> {
            /// Nobody's.
            pub const NONE: Self = Self::new(0);
        }

        impl From<u16> for Place<kind::$kind> {
            #[inline(always)]
            fn from(link: u16) -> Self {
                Self::new(link.into())
            }
        }

        impl From<$id> for Place<kind::$kind> {
            #[inline(always)]
            fn from(id: $id) -> Self {
                Self::new(id.index())
            }
        }

        impl Index<Place<kind::$kind>> for [$record] {
            type Output = $record;
            #[inline(always)]
            fn index(&self, place: Place<kind::$kind>) -> &$record {
                &self[place.at()]
            }
        }

        impl IndexMut<Place<kind::$kind>> for [$record] {
            #[inline(always)]
            fn index_mut(&mut self, place: Place<kind::$kind>) -> &mut $record {
                &mut self[place.at()]
            }
        }
    )+ };
}

tables! {
    Account AccountId AccountRecord;
    Domain DomainId DomainRecord;
    Env EnvId EnvRecord;
    Region RegionId RegionRecord;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_nobodys() {
        let machine = crate::fake::FakeMachine::new(1, 1);
        for len in [0, 1, 2, 16, 1000, 1 << 32] {
            for index in [0, 1, 2, 15, 16, 999, 1000, 1001, u32::MAX as usize, 1 << 32, 1 << 62] {
                let expected = if index < len { index } else { 0 };
                assert_eq!(bounded(index, len), expected, "{index} of {len}");
                assert_eq!(bounded_by(&machine, index, len), expected, "{index} of {len}");
            }
        }
    }
}
