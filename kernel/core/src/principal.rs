//! Principals: the users and groups that a domain acts for, and what may be set of a domain.
//!
//! A user is a name `[NAME_USER, high, low]`, a group `[NAME_GROUP, high, low]`. A domain acts for
//! those that a capability of its list dominates with CONTROL, and for the groups in the regions
//! that it holds as such: a server asks by `DomainHolds`, and keeps the answer while the domain's
//! count of changes stands still.
//!
//! ```text
//!   list   [3, 0, 1000] CONTROL|SIGNAL   ─┐
//!   list   [4, 0, 100]  CONTROL          ─┼─► DomainHolds(user 1000, group 100, group 27): yes
//!   groups region: 4, 24, 27, 100, …     ─┘   DomainHolds(user 0): NotPermitted
//! ```
//! Nothing in a groups region changes once it is held as such: a domain that may write it can not
//! hold it, and no domain is let in to write it afterwards. It lasts while a domain holds it,
//! whoever detaches from it, and a domain that is made holds what its maker does: to be in fewer
//! groups is a right, too.

use crate::answer::{Answer, Refusal};
use crate::identity::Thread;
use crate::index::{DomainIndex, EnvIndex, RegionIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, capability, compiled, domain, env, exit, predicate, region, slice, sweep};
use abi::capability::{CONTROL, Capability, NAME_GROUP, NAME_USER, Name, SIGNAL};
use abi::domain::{GROUP_REGIONS, GROUPS_OF_LIST, NO_NAME, Property, SET_OF_GROUPS};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, RegionId};
use abi::limits::Resource;
use abi::published::EnvState;
use abi::word::Word;

/// What the record of a domain says of its principals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Principals {
    /// Names that SIGNAL over gives the right to signal its environments; the empty one is none.
    pub(crate) signals: [Name; 2],
    /// Regions of group numbers, in ascending order.
    groups: [RegionId; GROUP_REGIONS],
    /// The environment that may move in, and the one prepared for it.
    admits: (Thread, Thread),
}

/// Every group's name.
const ALL_GROUPS: Name = Name::of(&[NAME_GROUP]);
/// Group numbers in a word.
const IN_WORD: u64 = 2;

/// Does this capability give the right to signal the environments of the domain at `index`?
pub fn signals(state: &State, index: DomainIndex, held: &Capability) -> bool {
    let names = &state.domains.records[index].principals.signals;
    names.iter().any(|name| name.length != 0 && held.dominates(name, SIGNAL))
}

/// Does the domain at `index` act for the principal with this number?
pub fn holds<M: Machine>(
    state: &State,
    machine: &M,
    index: DomainIndex,
    kind: u16,
    number: u32,
) -> bool {
    in_list(state, index, kind, number)
        || kind == NAME_GROUP && in_groups(state, machine, index, number)
}

/// Does a capability of the domain's list dominate the principal with this number?
fn in_list(state: &State, index: DomainIndex, kind: u16, number: u32) -> bool {
    let name = Name::principal(kind, number);
    let slots = 0..state.domains.records[index].capabilities.len() as u8;
    let listed = |slot: u8| {
        capability::get(state, index, slot).is_ok_and(|held| held.dominates(&name, CONTROL))
    };
    slots.into_iter().any(listed)
}

/// Is the number in one of the domain's groups regions?
fn in_groups<M: Machine>(state: &State, machine: &M, index: DomainIndex, number: u32) -> bool {
    let regions = state.domains.records[index].principals.groups;
    regions.into_iter().any(|id| {
        region::find(state, id)
            .is_ok_and(|at| state.regions.slots[at].sealed && bisect(state, machine, at, number))
    })
}

/// Looks a number up in a region of ascending ones. In others it may be missed, never invented.
fn bisect<M: Machine>(state: &State, machine: &M, region: RegionIndex, number: u32) -> bool {
    let (mut low, mut high) = (0, u64::from(state.published.regions[region].bytes) / 4);
    while low < high {
        let middle = low + (high - low) / 2;
        let word = machine.word(region::physical(state, region, 8 * (middle / IN_WORD)));
        let found = (word >> (32 * (middle % IN_WORD))) as u32;
        if found == number {
            return number != u32::MAX;
        }
        if found < number {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    false
}

/// `DomainHolds`.
pub fn ask<M: Machine>(state: &State, machine: &M, id: DomainId, kind: u16, number: u32) -> Answer {
    let index = domain::find(state, id)?;
    let held = match kind {
        NAME_USER | NAME_GROUP => holds(state, machine, index, kind, number),
        SET_OF_GROUPS => in_groups(state, machine, index, number),
        GROUPS_OF_LIST => in_list(state, index, NAME_GROUP, number),
        _ => return Err(Refusal::new(Error::BadArgument, 1)),
    };
    if !held {
        return Err(Error::NotPermitted.into());
    }
    Ok(state.published.domains[index].holdings)
}

/// `DomainSet`, by the domain at `caller`.
pub fn set(
    state: &mut State,
    caller: DomainIndex,
    named: u8,
    (id, property, value): (DomainId, u16, u64),
) -> Answer {
    let index = domain::find_or_own(state, caller, id)?;
    let property = Property::from_number(property).ok_or(Refusal::new(Error::BadArgument, 1))?;
    // CONTROL over both accounts moves any domain from one to the other.
    let is_own = index == caller || domain::is_builder(state, caller, index);
    if !is_own && property != Property::Account {
        return Err(Error::NotPermitted.into());
    }
    match property {
        Property::Signals => set_signals(state, index, value),
        Property::Account => set_account(state, caller, index, named, value),
        Property::Admits => set_admitted(state, caller, index, value),
        Property::Groups => set_groups(state, caller, index, (named, 0), value),
        Property::MoreGroups => set_groups(state, caller, index, (named, 1), value),
        Property::YetMoreGroups => set_groups(state, caller, index, (named, 2), value),
        Property::LastGroups => set_groups(state, caller, index, (named, 3), value),
        Property::Entry => set_entry(state, index, value),
        Property::Ages => set_switch(&mut state.domains.records[index].tells_ages, value),
        Property::Secret => set_switch(&mut state.domains.records[index].is_secret, value),
        Property::OwnName => set_own_name(state, index, value),
        Property::Guard => set_guard(state, caller, index, value),
    }
}

fn set_switch(switch: &mut bool, value: u64) -> Answer {
    if value > 1 {
        return Err(Refusal::new(Error::BadArgument, 2));
    }
    *switch = value == 1;
    Ok(0)
}

fn set_signals(state: &mut State, index: DomainIndex, value: u64) -> Answer {
    let bad = Refusal::new(Error::BadArgument, 2);
    if value >> 16 != 0 {
        return Err(bad);
    }
    let mut names = [Name::ROOT; 2];
    for (name, slot) in names.iter_mut().zip([value & 0xff, value >> 8]) {
        if slot == NO_NAME {
            continue;
        }
        let held = capability::get(state, index, slot as u8)?;
        // The empty name would mean none; and a name without the right is for no one to give.
        if held.rights & SIGNAL == 0 || held.name.length == 0 {
            return Err(Error::NotPermitted.into());
        }
        *name = held.name;
    }
    state.domains.records[index].principals.signals = names;
    Ok(0)
}

fn set_own_name(state: &mut State, index: DomainIndex, value: u64) -> Answer {
    if value != 0 {
        return Err(Refusal::new(Error::BadArgument, 2));
    }
    domain::rename(state, index)
}

fn set_guard(state: &mut State, caller: DomainIndex, index: DomainIndex, value: u64) -> Answer {
    if value != 0 {
        return Err(Refusal::new(Error::BadArgument, 2));
    }
    if index == caller {
        return Err(Error::WrongState.into());
    }
    state.domains.records[index].guard = *domain::guard(state, caller);
    Ok(0)
}

fn set_entry(state: &mut State, index: DomainIndex, value: u64) -> Answer {
    if value != 0 && !exit::may_run_at(value) {
        return Err(Error::BadAddress.into());
    }
    state.domains.records[index].entry = value;
    Ok(0)
}

/// What is charged to others than the domain and its environments stays where it is: it is given
/// back there. The environments follow in pieces ([`follow`]).
fn set_account(
    state: &mut State,
    caller: DomainIndex,
    index: DomainIndex,
    named: u8,
    value: u64,
) -> Answer {
    let id = AccountId::from_word(value).ok_or(Refusal::new(Error::BadArgument, 2))?;
    let to = account::find(state, id)?;
    let held = capability::get(state, caller, named)?;
    let from = domain::account(state, index);
    for account in [from, to] {
        if !held.dominates(&state.accounts.record(account).name, CONTROL) {
            return Err(Error::NotPermitted.into());
        }
    }
    domain::move_charges(state, index, to)?;
    sweep::look_for_bereaved(state, to);
    Ok(0)
}

/// An environment of the domain at `from` is at home in the one at `to` now: that one's account
/// pays for it, if the other one's did.
pub(crate) fn moved(state: &mut State, from: DomainIndex, to: DomainIndex) {
    if domain::account(state, from) != domain::account(state, to) {
        sweep::look_for_bereaved(state, domain::account(state, to));
    }
}

/// The account of the domain that the environment at `index` is in may have changed. One that its
/// home paid for when it was made is the new one's from now on, if that can pay; else its record
/// and its turns stay where they are, as other charges do.
/// `false`: there is no room for that.
pub(crate) fn follow<M: Machine>(state: &mut State, machine: &mut M, index: EnvIndex) -> bool {
    let domains = [env::domain(state, index), env::home(state, index)].map(DomainIndex::from);
    let [user, home] = domains.map(|domain| domain::account(state, domain));
    let user = state.published.accounts[user].id;
    let changed = core::mem::replace(&mut state.published.envs[index].user, user) != user;
    let from = AccountId(state.published.envs[index].account).into();
    let follows = state.envs.slots[index].marks & env::FOLLOWS != 0 && from != home;
    if follows && !state.accounts.record(home).dying {
        let cost = cost::DEATH + slice::cost(state, index);
        if !work::room(state, cost) {
            return false;
        }
        work::spend(state, cost);
        let pins = predicate::pins(state, machine, index);
        let takes = slice::is_alone_at_home(state, index);
        let charges =
            [(Resource::Envs, 1), (Resource::Pins, pins), (Resource::Slices, takes.into())];
        if account::transfer(state, (from, home), &charges).is_ok() {
            compiled::change_account(state, index, home);
            slice::change_account(state, index, home, takes);
        } else {
            state.envs.slots[index].marks &= !env::FOLLOWS;
        }
    }
    if changed {
        env::changed(state, index);
    }
    true
}

fn set_admitted(state: &mut State, caller: DomainIndex, index: DomainIndex, value: u64) -> Answer {
    let (guest, prepared) = (EnvId(value as u32), EnvId((value >> 32) as u32));
    if index == caller {
        return Err(Error::WrongState.into());
    }
    let from = env::living(state, guest)?;
    let at = env::living(state, prepared)?;
    let own = DomainIndex::from(env::domain(state, at)) == index;
    if !own || state.envs.slots[at].state != EnvState::New || guest == prepared {
        return Err(Error::WrongState.into());
    }
    state.domains.records[index].principals.admits =
        (Thread::of(state, from), Thread::of(state, at));
    Ok(0)
}

/// The environment prepared in the domain at `index` for the one at `guest`, if that may move in.
pub fn admitted(state: &State, index: DomainIndex, guest: EnvIndex) -> Option<EnvIndex> {
    let (admitted, prepared) = state.domains.records[index].principals.admits;
    if admitted == Thread::NONE || admitted != Thread::of(state, guest) {
        return None;
    }
    let at = prepared.living(state)?;
    let is_there = DomainIndex::from(env::domain(state, at)) == index;
    (is_there && state.envs.slots[at].state == EnvState::New).then_some(at)
}

/// Does the domain at `index` wait for a guest from the one at `from`?
pub fn awaits(state: &State, index: DomainIndex, from: DomainIndex) -> bool {
    let guest = state.domains.records[index].principals.admits.0.living(state);
    guest.is_some_and(|guest| {
        DomainIndex::from(env::domain(state, guest)) == from
            && admitted(state, index, guest).is_some()
    })
}

/// May a guest of the domain at `from` bring its groups to the one at `to`? There, it has passed
/// the regions that they lie in, so that these last.
pub fn may_bring_groups(state: &State, from: DomainIndex, to: DomainIndex) -> Result<(), Refusal> {
    let groups = state.domains.records[from].principals.groups;
    let mut held = groups.into_iter().filter(|id| !id.is_none());
    if held.all(|id| region::has(state, to, id)) { Ok(()) } else { Err(Error::WrongState.into()) }
}

/// The domain at `to` holds the groups that the one at `from` does.
pub fn bring_groups(state: &mut State, from: DomainIndex, to: DomainIndex) {
    for place in 0..GROUP_REGIONS {
        let id = state.domains.records[from].principals.groups[place];
        hold(state, to, place, id);
    }
    domain::holdings_changed(state, to);
}

/// One group region less that the domain at `index`, which ends, holds; `false`: it holds none.
pub(crate) fn leave_one(state: &mut State, index: DomainIndex) -> bool {
    let groups = &state.domains.records[index].principals.groups;
    let Some(place) = groups.iter().position(|id| !id.is_none()) else { return false };
    hold(state, index, place, RegionId::NONE);
    true
}

/// Does the domain at `index` hold any group region?
pub(crate) fn has_groups(state: &State, index: DomainIndex) -> bool {
    state.domains.records[index].principals.groups.iter().any(|id| !id.is_none())
}

/// The domain at `index` holds this region at a place for groups, and no longer the one that it has
/// held there. A region lasts while it is held.
fn hold(state: &mut State, index: DomainIndex, place: usize, id: RegionId) {
    let groups = &mut state.domains.records[index].principals.groups;
    let had = core::mem::replace(&mut groups[place], id);
    if had == id {
        return;
    }
    // One that has ended with its account stays without effect: its id finds nothing.
    if let Ok(at) = region::find(state, id) {
        region::hold(state, at);
    }
    if let Ok(at) = region::find(state, had) {
        region::let_go(state, at);
    }
}

/// The place is taken: nobody else moves in.
pub fn admission_over(state: &mut State, index: DomainIndex) {
    state.domains.records[index].principals.admits = Default::default();
}

fn set_groups(
    state: &mut State,
    caller: DomainIndex,
    index: DomainIndex,
    (named, place): (u8, usize),
    value: u64,
) -> Answer {
    let id = RegionId::from_word(value).ok_or(Refusal::new(Error::BadArgument, 2))?;
    let inherited = state.domains.records[caller].principals.groups.contains(&id);
    let had = state.domains.records[index].principals.groups[place];
    // Also to be in fewer groups is a right: a file's mode may shut a group out.
    let gives_up = !had.is_none() && had != id;
    if gives_up || !id.is_none() && !inherited {
        capability::check(state, caller, named, &ALL_GROUPS, CONTROL)?;
    }
    if !id.is_none() {
        let at = region::find(state, id)?;
        region::seal(state, at, index)?;
    }
    hold(state, index, place, id);
    domain::holdings_changed(state, index);
    Ok(0)
}

/// What must hold of groups: a region counts the places where it is held, and is there as long as
/// any does, or somebody is attached, or nobody has been yet.
#[cfg(test)]
pub(crate) fn check(state: &State) {
    let mut held = std::vec![0; state.regions.slots.len()];
    let domains = (1..state.published.domains.len()).map(DomainIndex::new);
    for id in domains.flat_map(|at| state.domains.records[at].principals.groups) {
        if let Ok(at) = region::find(state, id) {
            held[at.at()] += 1;
        }
    }
    for (index, held) in held.into_iter().enumerate() {
        let region = &state.regions.slots[RegionIndex::new(index)];
        assert_eq!(region.holders, held, "holders of region {index}");
        let record = &state.published.regions[index];
        let attached = record.attached.iter().any(|&count| count != 0);
        let stays = attached || held != 0 || !region.used;
        assert!(stays || record.id == 0, "nobody uses region {index}");
    }
}
