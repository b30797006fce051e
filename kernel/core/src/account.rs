//! Accounts: limits and charges in a tree (decisions 10).
//!
//! A charge counts in the account and in every one above it, and fails if any of them is at its
//! limit. Index 0 is nobody: charging it costs nothing (the boot image, the kernel). Depth is
//! bounded by [`DEPTH`], so a charge is a short loop.

use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::identity::{self, Serial};
use crate::retract;
use crate::state::State;
use abi::capability::{ALL, CONTROL, Capability, NAME_ACCOUNT, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::{RESOURCES, Resource};
use abi::published::{AccountRecord, FEATURE_USERS};
use abi::word::Which;

/// Accounts on the way from one to the first, at most.
pub const DEPTH: u8 = 8;
/// What [`is_below`] costs at most, in instructions ([`crate::work`]).
pub(crate) const BELOW_COST: u32 = 10 * DEPTH as u32;

/// The private half of an account.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// What guards it.
    pub name: Name,
    /// Index of its parent; 0 for the first.
    pub parent: u16,
    /// Steps to the first.
    pub depth: u8,
    /// Which account of this place it is, or the next one will be.
    pub serial: Serial,
    /// How often the place has been used, as far as that can be counted here: who is whose heir
    /// ([`heir`]).
    lives: u8,
    /// Have all names below its own been taken back, as it ends?
    retracted: bool,
    /// Being destroyed: takes no more charges.
    pub dying: bool,
    /// By whom.
    pub(crate) killer: EnvId,
    /// Accounts whose parent it is.
    pub(crate) below: u16,
}

/// The private half of the table.
pub struct Accounts {
    pub(crate) records: &'static mut [Record],
    /// How many are dying.
    pub(crate) dying: u16,
    /// One of those may have lost the last of what it waits for. One that others hold something of
    /// costs nothing until they let go.
    pub(crate) lighter: bool,
    /// First frame that the sweep for dying accounts has not looked at; past the end: none is due.
    pub(crate) sweep: u32,
}

impl Accounts {
    /// An empty table.
    pub fn new(records: &'static mut [Record]) -> Self {
        Self { records, dying: 0, lighter: false, sweep: u32::MAX }
    }

    /// The private half of the account at `index`.
    pub fn record(&self, index: usize) -> &Record {
        &self.records[index]
    }
}

/// The index of a live account.
pub fn find(state: &State, id: AccountId) -> Result<usize, Error> {
    identity::find(state.published.accounts, id)
        .filter(|&index| !state.accounts.records[index].dying)
        .ok_or(Error::NoSuchAccount)
}

/// Would [`charge`] succeed?
pub fn check(state: &State, account: usize, resource: Resource, n: u32) -> Result<(), Refusal> {
    let mut at = account;
    while at != 0 {
        if state.accounts.records[at].dying {
            return Err(Error::NoSuchAccount.into());
        }
        let record = &state.published.accounts[at];
        let slot = resource as usize;
        if record.limit[slot].saturating_sub(record.used[slot]) < n {
            return Err(Refusal::new(Error::OverQuota, resource as u64));
        }
        at = usize::from(state.accounts.records[at].parent);
    }
    Ok(())
}

/// Counts `n` of `resource` in `account` and all above, or refuses.
pub fn charge(
    state: &mut State,
    account: usize,
    resource: Resource,
    n: u32,
) -> Result<(), Refusal> {
    check(state, account, resource, n)?;
    count(state, account, resource, n);
    Ok(())
}

/// Counts what has been checked.
pub(crate) fn count(state: &mut State, account: usize, resource: Resource, n: u32) {
    let mut at = account;
    while at != 0 {
        state.published.accounts[at].used[resource as usize] += n;
        at = usize::from(state.accounts.records[at].parent);
    }
}

/// Takes a charge back.
pub fn uncharge(state: &mut State, account: usize, resource: Resource, n: u32) {
    let mut at = account;
    while at != 0 {
        let account = &state.accounts.records[at];
        state.published.accounts[at].used[resource as usize].less(n);
        state.accounts.lighter |= account.dying;
        at = usize::from(account.parent);
    }
}

/// May the domain at index `caller` charge `account` with what it makes: its own, or one whose name
/// the capability dominates for CONTROL.
pub fn may_charge(
    state: &State,
    caller: usize,
    capability: &Capability,
    account: usize,
) -> Result<(), Error> {
    let own = crate::domain::account(state, caller) == account;
    if own || capability.dominates(&state.accounts.records[account].name, CONTROL) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Is the account at `index` the one at `above`, or below it?
pub fn is_below(state: &State, index: usize, above: usize) -> bool {
    let mut at = index;
    while at != 0 && at != above {
        at = usize::from(state.accounts.records[at].parent);
    }
    at == above
}

/// Marks an account as dying: from now on no call finds it, and frames it pays for are revoked.
pub(crate) fn condemn(state: &mut State, index: usize, killer: EnvId) {
    let record = &mut state.accounts.records[index];
    if !core::mem::replace(&mut record.dying, true) {
        record.killer = killer;
        state.accounts.dying += 1;
    }
    state.accounts.lighter = true;
    state.accounts.sweep = 0;
}

/// Who destroys the account at `index`, if it is being destroyed.
pub(crate) fn killer(state: &State, index: usize) -> Option<EnvId> {
    let record = &state.accounts.records[index];
    record.dying.then_some(record.killer)
}

/// Forgets a dying account if nothing is charged to it and none is below it.
pub(crate) fn finish(state: &mut State, index: usize) {
    let record = &state.published.accounts[index];
    let used = record.used.iter().any(|&used| used != 0);
    let Record { below, parent, .. } = state.accounts.records[index];
    if record.id == 0 || used || below != 0 {
        return;
    }
    // Its index, and so its name, may be given to another one: nobody may hold the old one then.
    let Record { name, retracted, .. } = state.accounts.records[index];
    if !retracted {
        // If there is no room, one of those under way ends first, and says so.
        if retract::has_room(state) {
            state.accounts.records[index].retracted = true;
            retract::begin(state, name, ALL, DomainId::NONE, 0);
        }
        return;
    }
    if retract::is_ending(state, &name) {
        return;
    }
    state.accounts.records[usize::from(parent)].below.less(1);
    let serial = state.accounts.records[index].serial.next();
    let lives = state.accounts.records[index].lives.saturating_add(1);
    state.accounts.records[index] = Record { serial, lives, ..Record::default() };
    state.published.accounts[index] = AccountRecord::default();
    state.accounts.dying.less(1);
    // The one above may have waited for it.
    state.accounts.lighter = state.accounts.dying != 0;
}

/// The mark of an account at `index`, which may find what it has left in its frames; an account
/// that has got its index since may not. 0: none may, as the index has been used more often than
/// is counted.
pub(crate) fn heir(state: &State, index: usize) -> u16 {
    match state.accounts.records[index].lives {
        u8::MAX => 0,
        lives => u16::from(lives) << 8 | index as u16,
    }
}

const _: () = assert!(abi::limits::ACCOUNTS <= 256);

/// Index of the last account on the way of `name`: 0 if its way leads through none.
pub(crate) fn keeper(state: &State, name: &Name) -> usize {
    let mut keeper = 0;
    for (at, &component) in name.components[..usize::from(name.length)].iter().enumerate() {
        let index = usize::from(component.wrapping_sub(NAME_ACCOUNT));
        let lives = state.published.accounts.get(index).is_some_and(|record| record.id != 0);
        if lives && index != 0 {
            let own = &state.accounts.records[index].name;
            if usize::from(own.length) == at + 1 && own.is_prefix_of(name) {
                keeper = index;
            }
        }
    }
    keeper
}

/// The first account, which may have all of the machine.
pub(crate) fn first(state: &mut State) {
    state.accounts.records[1] = Record { name: Name::of(&[NAME_ACCOUNT + 1]), ..Record::default() };
    state.published.accounts[1] = AccountRecord {
        id: AccountId::new(1, 0).0,
        limit: [u32::MAX; RESOURCES],
        ..AccountRecord::default()
    };
}

/// `AccountAlloc`.
pub fn allocate(
    state: &mut State,
    capability: &Capability,
    which: Which,
    parent: AccountId,
) -> Answer {
    let above = find(state, parent)?;
    if !capability.dominates(&state.accounts.records[above].name, CONTROL) {
        return Err(Error::NotPermitted.into());
    }
    // What the processor gives away one user would have of the other.
    if state.published.directory.features & FEATURE_USERS == 0 {
        return Err(Error::NotPresent.into());
    }
    let depth = state.accounts.records[above].depth + 1;
    if depth >= DEPTH {
        return Err(Error::Exhausted.into());
    }
    let count = state.published.accounts.len();
    let index = match which {
        Which::This(index) => {
            let index = index as usize;
            if index == 0 || index >= count {
                return Err(Error::NoSuchAccount.into());
            }
            if !is_free(state, index) {
                return Err(Error::Taken.into());
            }
            index
        }
        Which::Any => (1..count).find(|&index| is_free(state, index)).ok_or(Error::Exhausted)?,
    };
    let name = capability.name.child(NAME_ACCOUNT + index as u16).ok_or(Error::Exhausted)?;
    let Record { serial, lives, .. } = state.accounts.records[index];
    state.accounts.records[index] =
        Record { name, parent: above as u16, depth, serial, lives, ..Record::default() };
    state.accounts.records[above].below += 1;
    let id = AccountId::new(index as u16, serial.number());
    state.published.accounts[index] =
        AccountRecord { id: id.0, parent: parent.0, ..AccountRecord::default() };
    Ok(id.0)
}

/// May an account be made at this index?
fn is_free(state: &State, index: usize) -> bool {
    state.published.accounts[index].id == 0 && !state.accounts.records[index].serial.is_spent()
}

/// `AccountLimit`. A limit below what is in use only stops further charges.
pub fn limit(
    state: &mut State,
    capability: &Capability,
    account: AccountId,
    resource: u16,
    limit: u32,
) -> Answer {
    let index = find(state, account)?;
    if !capability.dominates(&state.accounts.records[index].name, CONTROL) {
        return Err(Error::NotPermitted.into());
    }
    if usize::from(resource) >= RESOURCES {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    state.published.accounts[index].limit[usize::from(resource)] = limit;
    Ok(0)
}
