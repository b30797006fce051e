//! Supplementary groups (getgroups(2)): a set that the kernel and servers can look into.
//!
//! The set lies in regions, sorted, two numbers in a word, and the domain holds them as its groups
//! (`abi::domain::Property::Groups`): from then on nobody changes them, a fork child holds the same
//! ones, and what a process is told of its groups is read from there.
//!
//! ```text
//!   region 0: 4 24 27 30 …    17 frames of 1,024 numbers     region 1: …     up to 4 regions
//! ```

use crate::capabilities::{ALL_GROUPS_SLOT, USER_SLOT};
use crate::errno::{Answer, Errno, from_kernel};
use crate::fs::region::{self, Heritage, Region};
use crate::identity;
use crate::page;
use crate::process::Process;
use crate::user;
use abi::domain::{GROUP_REGIONS, Property};
use abi::id::{DomainId, RegionId};
use abi::limits::REGION_FRAMES;
use alloc::vec::Vec;
use xok::call;

/// Numbers there may be at most (`NGROUPS_MAX`).
const MOST: usize = 65_536;
/// Numbers in a frame, and in a region.
const IN_FRAME: usize = 1024;
const IN_REGION: usize = IN_FRAME * REGION_FRAMES;
/// Role in which the set is written, before it is one; and the one in which it is held.
const WRITER: u16 = 0;
const HOLDER: u16 = 2;

const PROPERTIES: [Property; GROUP_REGIONS] =
    [Property::Groups, Property::MoreGroups, Property::YetMoreGroups, Property::LastGroups];

/// The groups of a process beyond the three: where they lie, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Regions, in order.
    pub regions: [RegionId; GROUP_REGIONS],
    /// Numbers in all of them.
    pub count: u32,
}

impl Groups {
    fn used(&self) -> impl Iterator<Item = Region> + '_ {
        let there = self.regions.iter().filter(|id| !id.is_none());
        there.map(|&id| Region { id, role: HOLDER })
    }
}

/// All numbers, in ascending order.
pub fn numbers(groups: &Groups) -> Result<Vec<u32>, Errno> {
    let mut bytes = alloc::vec![0; 4 * groups.count as usize];
    for (region, piece) in groups.used().zip(bytes.chunks_mut(4 * IN_REGION)) {
        for (at, part) in piece.chunks_mut(4 * IN_FRAME).enumerate() {
            region.copy_out((4 * IN_FRAME * at) as u64, part, &[], &[])?;
        }
    }
    let number = |four: &[u8]| u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    Ok(bytes.chunks_exact(4).map(number).collect())
}

/// Is the process in this group by its list?
pub fn contains(process: &Process, group: u32) -> bool {
    numbers(&process.more_groups).is_ok_and(|numbers| numbers.binary_search(&group).is_ok())
}

/// `getgroups(size, list)`
pub fn get(process: &Process, size: u64, list: u64) -> Answer {
    let (size, count) = (size as i32, process.more_groups.count);
    if size < 0 || size != 0 && (size as u32) < count {
        return Err(Errno::EINVAL);
    }
    if size != 0 {
        for (at, number) in numbers(&process.more_groups)?.into_iter().enumerate() {
            user::write_value(list + 4 * at as u64, &number)?;
        }
    }
    Ok(count.into())
}

/// `setgroups(size, list)`
pub fn set(process: &mut Process, size: u64, list: u64) -> Answer {
    if process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    let size = size as u32 as usize;
    if size > MOST {
        return Err(Errno::EINVAL);
    }
    let mut numbers = Vec::new();
    numbers.try_reserve(size).map_err(|_| Errno::ENOMEM)?;
    for at in 0..size as u64 {
        numbers.push(user::read_value::<u32>(list + 4 * at)?);
    }
    if numbers.contains(&u32::MAX) {
        return Err(Errno::EINVAL);
    }
    numbers.sort_unstable();
    let new = make(&numbers)?;
    let ids = identity::for_files(process);
    process.files.seal_for(ids);
    // A vfork child's domain is its parent's, and so is what that holds: it holds its own with the
    // domain that it executes a program in.
    if !process.borrows_space {
        hold(DomainId::NONE, &new)?;
    }
    if !process.borrows_space || process.own_groups {
        process.more_groups.used().for_each(|region| region.detach());
    }
    process.own_groups = process.borrows_space;
    process.more_groups = new;
    page::own().show_groups(&numbers);
    identity::settle(process);
    if !process.borrows_space {
        process.files.adopt(ids);
    }
    process.files.forget();
    Ok(0)
}

/// Puts sorted numbers into regions of their own.
fn make(numbers: &[u32]) -> Result<Groups, Errno> {
    let mut groups = Groups { count: numbers.len() as u32, ..Groups::default() };
    for (at, piece) in numbers.chunks(IN_REGION).enumerate() {
        match fill(piece) {
            Ok(id) => groups.regions[at] = id,
            Err(errno) => {
                groups.used().for_each(|region| region.detach());
                return Err(errno);
            }
        }
    }
    Ok(groups)
}

fn fill(piece: &[u32]) -> Result<RegionId, Errno> {
    let id = region::make(piece.len().div_ceil(IN_FRAME))?;
    let writer = Region { id, role: WRITER };
    writer.attach()?;
    let filled = write(&writer, piece).and_then(|()| Region { id, role: HOLDER }.attach());
    writer.detach();
    filled.map(|()| id)
}

/// Writes whole frames: behind the last number all bits are set, and no group has that number.
fn write(region: &Region, piece: &[u32]) -> Result<(), Errno> {
    for (at, part) in piece.chunks(IN_FRAME).enumerate() {
        let mut bytes = [0xff; 4 * IN_FRAME];
        for (place, number) in bytes.chunks_exact_mut(4).zip(part) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        region.copy_in((4 * IN_FRAME * at) as u64, &bytes, &[], &[])?;
    }
    Ok(())
}

/// Has a domain hold these as its groups, and no others.
fn hold(domain: DomainId, groups: &Groups) -> Result<(), Errno> {
    for (property, id) in PROPERTIES.into_iter().zip(groups.regions) {
        call::domain_set(ALL_GROUPS_SLOT, domain, property, id.0)
            .map_err(|(error, _)| from_kernel(error))?;
    }
    Ok(())
}

/// Is what a process says of its groups what the kernel knows? They lie in the regions that its
/// domain holds as such, at each place the one that is named there and none where none is named.
/// How many numbers there are is counted.
pub fn confirm(process: &mut Process) -> Result<(), Errno> {
    let mut groups = Groups { regions: process.more_groups.regions, count: 0 };
    for (at, (property, id)) in PROPERTIES.into_iter().zip(groups.regions).enumerate() {
        // One that is held at two places would say each of its numbers twice.
        if !id.is_none() && groups.regions[..at].contains(&id) {
            return Err(Errno::EPERM);
        }
        // By a slot that gives no right over groups only what is so already is set.
        call::domain_set(USER_SLOT, DomainId::NONE, property, id.0)
            .map_err(|(error, _)| from_kernel(error))?;
    }
    let bytes = |held: Region| Some(region::record(held.id)?.bytes);
    groups.count = groups.used().map(bytes).sum::<Option<u32>>().ok_or(Errno::EPERM)? / 4;
    let known = numbers(&groups)?;
    groups.count = known.iter().filter(|&&number| number != u32::MAX).count() as u32;
    process.more_groups = groups;
    Ok(())
}

/// What a child's domain is attached to.
pub fn attach(process: &Process, heritage: &mut Heritage) -> Result<(), Errno> {
    process.more_groups.used().try_for_each(|region| heritage.add(&region))
}

/// Has a child's domain, which is attached, hold the same groups: it was made with those of the
/// domain that made it.
pub fn pass(process: &Process, domain: DomainId) -> Result<(), Errno> {
    if process.own_groups { hold(domain, &process.more_groups) } else { Ok(()) }
}

/// A vfork child leaves its parent's domain: what that was attached to for its groups goes.
pub fn leave(process: &mut Process) {
    if core::mem::take(&mut process.own_groups) {
        process.more_groups.used().for_each(|region| region.detach());
    }
}
