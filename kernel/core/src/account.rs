//! Accounts: limits and charges in a tree (decisions 10).
//!
//! A charge counts in the account and in those above it, and fails if any of them is at its limit.
//! Index 0 stands for the kernel and the boot image: charges to it are not counted. Depth is
//! bounded by [`DEPTH`], so a charge is a short loop.
//!
//! ```text
//!   the first: limit = the machine's table      used = own + ⌈10⌉ + ⌈25⌉
//!      ├── reserve 10, used 4    counts as 10: up to 10 it is asked nothing further
//!      └── reserve 10, used 25   counts as 25: beyond 10 each charge goes up
//! ```
//! What is kept for an account counts above it as if it were used, from when the reserve is set: a
//! charge goes up by what is beyond the reserve alone. So a charge within it can't fail, whatever
//! others have, as long as the first account's limit is no more than there is.

use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::identity::{self, Serial};
use crate::index::{AccountIndex, DomainIndex, Slots, kind};
use crate::left::{self, Left};
use crate::retract;
use crate::state::State;
use crate::turns::OnEach;
use crate::work::{self, cost};
use crate::workshop::Queued;
use abi::capability::{ALL, CONTROL, Capability, NAME_ACCOUNT, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId};
use abi::limits::{RESOURCES, Resource};
use abi::published::{AccountRecord, FEATURE_USERS};
use abi::word::Which;

/// Accounts on the way from one to the first, at most.
pub const DEPTH: u8 = 8;
/// Index of the first one.
pub(crate) const FIRST: AccountIndex = AccountIndex::new(1);
/// What [`keep_nothing`] costs at most.
pub(crate) const KEEP_COST: u32 = RESOURCES as u32 * (30 * DEPTH as u32 + 20);
/// What [`is_below`] costs at most, in instructions ([`crate::work`]).
pub(crate) const BELOW_COST: u32 = 10 * DEPTH as u32;
/// A charge checked and counted in one account more, or taken back there, as measured of pages that
/// are allocated below the first account (`guest/destruction_costs_its_causer`).
pub(crate) const LEVEL_COST: u32 = 110;

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
    /// What it has in the rounds of the processors.
    pub(crate) turns: OnEach,
    /// What of it is left to be worked off.
    pub(crate) left: Left,
    /// When it is due to have all processors forget again, nanoseconds since boot
    /// ([`crate::forgetting`]).
    pub(crate) forgets_ns: u64,
    /// Does it wait to bind a function?
    pub(crate) queued: Queued,
}

/// The private half of the table.
pub struct Accounts {
    pub(crate) records: Slots<kind::Account, Record>,
    /// How many are dying.
    pub(crate) dying: u16,
    /// What there is of each resource.
    pub(crate) machine: [u32; RESOURCES],
}

impl Accounts {
    /// An empty table.
    pub fn new(records: &'static mut [Record]) -> Self {
        Self { records: Slots::new(records), dying: 0, machine: [0; RESOURCES] }
    }

    /// The private half of the account at `index`.
    pub fn record(&self, index: AccountIndex) -> &Record {
        &self.records[index]
    }
}

/// The index of a live account.
pub fn find(state: &State, id: AccountId) -> Result<AccountIndex, Error> {
    identity::find(state.published.accounts, id)
        .map(AccountIndex::new)
        .filter(|&index| !state.accounts.records[index].dying)
        .ok_or(Error::NoSuchAccount)
}

/// Would [`charge`] succeed? To be asked before a table is looked at for room: what an account is
/// answered at its limit does not depend on what others have then, and where it is not at its limit
/// there is room.
pub fn check(
    state: &State,
    account: AccountIndex,
    resource: Resource,
    n: u32,
) -> Result<(), Refusal> {
    check_slot(state, account, resource as usize, n)
}

fn check_slot(state: &State, account: AccountIndex, slot: usize, n: u32) -> Result<(), Refusal> {
    let (mut at, mut n) = (account, n);
    while at != AccountIndex::NONE {
        if state.accounts.records[at].dying {
            return Err(Error::NoSuchAccount.into());
        }
        let record = &state.published.accounts[at];
        if record.limit[slot].saturating_sub(record.used[slot]) < n {
            let all = at == FIRST && record.limit[slot] == state.accounts.machine[slot];
            return Err(match all {
                true => Error::Exhausted.into(),
                false => Refusal::new(Error::OverQuota, slot as u64),
            });
        }
        let kept = record.reserve[slot].saturating_sub(record.used[slot]);
        n = n.saturating_sub(kept);
        if n == 0 {
            break;
        }
        at = state.accounts.records[at].parent.into();
    }
    Ok(())
}

/// What counts above an account of what it uses and what is kept for it.
fn counts(record: &AccountRecord, slot: usize) -> u32 {
    record.used[slot].max(record.reserve[slot])
}

/// Counts `n` of `resource` in `account` and all above, or refuses.
pub fn charge(
    state: &mut State,
    account: AccountIndex,
    resource: Resource,
    n: u32,
) -> Result<(), Refusal> {
    check(state, account, resource, n)?;
    count(state, account, resource, n);
    Ok(())
}

/// Counts what has been checked.
pub(crate) fn count(state: &mut State, account: AccountIndex, resource: Resource, n: u32) {
    count_slot(state, account, resource as usize, n);
}

fn count_slot(state: &mut State, account: AccountIndex, slot: usize, n: u32) {
    let (mut at, mut n) = (account, n);
    while at != AccountIndex::NONE && n != 0 {
        let record = &mut state.published.accounts[at];
        let before = counts(record, slot);
        record.used[slot] += n;
        n = counts(record, slot) - before;
        at = state.accounts.records[at].parent.into();
        reckon_level(state, at);
    }
}

/// Reckons one more account that a charge goes through: what costs tell is for the first alone.
#[inline]
fn reckon_level(state: &mut State, at: AccountIndex) {
    if at != AccountIndex::NONE {
        work::spend(state, LEVEL_COST);
    }
}

/// Takes a charge back.
pub fn uncharge(state: &mut State, account: AccountIndex, resource: Resource, n: u32) {
    uncharge_slot(state, account, resource as usize, n);
}

fn uncharge_slot(state: &mut State, account: AccountIndex, slot: usize, n: u32) {
    let (mut at, mut n) = (account, n);
    while at != AccountIndex::NONE && n != 0 {
        let record = &mut state.published.accounts[at];
        let before = counts(record, slot);
        record.used[slot].less(n);
        n = before - counts(record, slot);
        let &Record { dying, parent, .. } = &state.accounts.records[at];
        if dying {
            left::lighten(state, at);
        }
        at = parent.into();
        reckon_level(state, at);
    }
}

/// Takes charges back from one account and counts them in another, all or none: what both have
/// above them does not count twice meanwhile.
pub(crate) fn transfer(
    state: &mut State,
    (from, to): (AccountIndex, AccountIndex),
    charges: &[(Resource, u32)],
) -> Result<(), Refusal> {
    for &(resource, n) in charges {
        uncharge(state, from, resource, n);
    }
    let may = charges.iter().try_for_each(|&(resource, n)| check(state, to, resource, n));
    let payer = if may.is_ok() { to } else { from };
    for &(resource, n) in charges {
        count(state, payer, resource, n);
    }
    may
}

/// May the domain at index `caller` charge `account` with what it makes: its own, or one whose name
/// the capability dominates for CONTROL.
pub fn may_charge(
    state: &State,
    caller: DomainIndex,
    capability: &Capability,
    account: AccountIndex,
) -> Result<(), Error> {
    let own = crate::domain::account(state, caller) == account;
    if own || capability.dominates(&state.accounts.records[account].name, CONTROL) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Is the account at `index` the one at `above`, or below it?
pub fn is_below(state: &State, index: AccountIndex, above: AccountIndex) -> bool {
    let mut at = index;
    while at != AccountIndex::NONE && at != above {
        at = state.accounts.records[at].parent.into();
    }
    at == above
}

/// Marks an account as dying: from now on no call finds it, and frames it pays for are revoked.
pub(crate) fn condemn(state: &mut State, index: AccountIndex, killer: EnvId) {
    let record = &mut state.accounts.records[index];
    if !core::mem::replace(&mut record.dying, true) {
        record.killer = killer;
        state.accounts.dying += 1;
    }
    state.accounts.records[index].left.frames = state.published.frames.len() as u32;
    left::lighten(state, index);
}

/// Dying accounts may have lost what they waited for.
pub(crate) fn lighten_dying(state: &mut State) {
    if state.accounts.dying == 0 {
        return;
    }
    let count = state.accounts.records.len();
    work::spend(state, count as u32 * cost::LOOK);
    for index in (0..count).map(AccountIndex::new) {
        if state.accounts.records[index].dying {
            left::lighten(state, index);
        }
    }
}

/// Who destroys the account at `index`, if it is being destroyed.
pub(crate) fn killer(state: &State, index: AccountIndex) -> Option<EnvId> {
    let record = &state.accounts.records[index];
    record.dying.then_some(record.killer)
}

/// Is anything kept for the account at `index`, which dies?
pub(crate) fn keeps(state: &State, index: AccountIndex) -> bool {
    state.published.accounts[index].reserve != [0; RESOURCES]
}

/// What is kept for it is others' from now on. Nothing will be kept again, as no call finds it.
pub(crate) fn keep_nothing(state: &mut State, index: AccountIndex) {
    for slot in 0..RESOURCES {
        set_reserve(state, index, slot, 0);
    }
}

/// Forgets a dying account if nothing is charged to it and none is below it.
pub(crate) fn finish(state: &mut State, index: AccountIndex) {
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
        if check(state, FIRST, Resource::Retractions, 1).is_ok() {
            state.accounts.records[index].retracted = true;
            retract::begin(state, name, ALL, DomainId::NONE, (AccountIndex::NONE, index));
        }
        return;
    }
    if retract::is_ending(state, &name) {
        return;
    }
    // The one above may have waited for it: it is one lighter.
    state.accounts.records[parent.into()].below.less(1);
    uncharge(state, parent.into(), Resource::Accounts, 1);
    left::done(state, index);
    let serial = state.accounts.records[index].serial.next();
    let lives = state.accounts.records[index].lives.saturating_add(1);
    state.accounts.records[index] = Record { serial, lives, ..Record::default() };
    state.published.accounts[index] = AccountRecord::default();
    state.accounts.dying.less(1);
}

/// The tag that a freed frame keeps of the account at `index`: its index and how often that has
/// been used, so that a later account at the index is not taken for it. 0: no account is, as the
/// index has been used more often than is counted.
pub(crate) fn heir(state: &State, index: AccountIndex) -> u16 {
    match state.accounts.records[index].lives {
        u8::MAX => 0,
        lives => u16::from(lives) << 8 | index.link(),
    }
}

const _: () = assert!(abi::limits::ACCOUNTS <= 256);

/// Index of the last account on the way of `name`: 0 if its way leads through none.
pub(crate) fn keeper(state: &State, name: &Name) -> AccountIndex {
    let mut keeper = AccountIndex::NONE;
    for (at, &component) in name.components[..usize::from(name.length)].iter().enumerate() {
        let index = AccountIndex::from(component.wrapping_sub(NAME_ACCOUNT));
        let lives = state.published.accounts.get(index.at()).is_some_and(|record| record.id != 0);
        if lives && index != AccountIndex::NONE {
            let own = &state.accounts.records[index].name;
            if usize::from(own.length) == at + 1 && own.is_prefix_of(name) {
                keeper = index;
            }
        }
    }
    keeper
}

/// The first account, which may have all of the machine: so much of each resource, and what is
/// added to it at boot.
pub(crate) fn first(state: &mut State) {
    let net = &state.net;
    let mut machine = [0; RESOURCES];
    for (resource, count) in [
        // Index 0 is nobody's in these.
        (Resource::Envs, state.envs.slots.len() - 1),
        (Resource::Domains, state.published.domains.len() - 1),
        (Resource::Regions, state.published.regions.len() - 1),
        (Resource::Filters, net.filters.len() - 1),
        (Resource::Rings, net.rings.len() - 1),
        (Resource::Folds, state.folds.most()),
        (Resource::Attachments, state.regions.attachments.most()),
        // It is one itself.
        (Resource::Accounts, state.published.accounts.len() - 2),
        (Resource::Code, state.downloads.pages.len()),
        (Resource::Sends, net.flights.len()),
        (Resource::Retractions, retract::RETRACTIONS),
        (Resource::Cells, state.downloads.cells.count()),
        // In no table.
        (Resource::Pins, u32::MAX as usize),
    ] {
        machine[resource as usize] = count as u32;
    }
    state.accounts.machine = machine;
    state.accounts.records[FIRST] =
        Record { name: Name::of(&[NAME_ACCOUNT + 1]), ..Record::default() };
    state.published.accounts[FIRST] = AccountRecord {
        id: AccountId::new(FIRST.link(), 0).0,
        limit: machine,
        ..AccountRecord::default()
    };
}

/// At boot: there is so much more of a resource, for the first account.
pub(crate) fn add(state: &mut State, resource: Resource, count: u32) {
    state.accounts.machine[resource as usize] += count;
    state.published.accounts[FIRST].limit[resource as usize] += count;
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
    // The processor leaks data between accounts (decision 0035): there is one alone then.
    if state.published.directory.features & FEATURE_USERS == 0 {
        return Err(Error::NotPresent.into());
    }
    let depth = state.accounts.records[above].depth + 1;
    if depth >= DEPTH {
        return Err(Error::Exhausted.into());
    }
    check(state, above, Resource::Accounts, 1)?;
    let count = state.published.accounts.len();
    let index = match which {
        Which::This(index) => {
            let index = index as usize;
            if index == 0 || index >= count {
                return Err(Error::NoSuchAccount.into());
            }
            let index = AccountIndex::new(index);
            if !is_free(state, index) {
                return Err(Error::Taken.into());
            }
            index
        }
        Which::Any => {
            let mut all = (1..count).map(AccountIndex::new);
            all.find(|&index| is_free(state, index)).ok_or(Error::Exhausted)?
        }
    };
    let name = capability.name.child(NAME_ACCOUNT + index.link()).ok_or(Error::Exhausted)?;
    self::count(state, above, Resource::Accounts, 1);
    let Record { serial, lives, .. } = state.accounts.records[index];
    state.accounts.records[index] =
        Record { name, parent: above.link(), depth, serial, lives, ..Record::default() };
    state.accounts.records[above].below += 1;
    let id = AccountId::new(index.link(), serial.number());
    state.published.accounts[index] =
        AccountRecord { id: id.0, parent: parent.0, ..AccountRecord::default() };
    Ok(id.0)
}

/// May an account be made at this index?
fn is_free(state: &State, index: AccountIndex) -> bool {
    state.published.accounts[index].id == 0 && !state.accounts.records[index].serial.is_spent()
}

/// `AccountLimit`. A limit below what is in use only stops further charges.
pub fn limit(
    state: &mut State,
    capability: &Capability,
    account: AccountId,
    resource: u16,
    (limit, reserve): (u32, u32),
) -> Answer {
    let index = find(state, account)?;
    if !capability.dominates(&state.accounts.records[index].name, CONTROL) {
        return Err(Error::NotPermitted.into());
    }
    if usize::from(resource) >= RESOURCES {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    // The first has all there is: nothing need be kept for it.
    if reserve > limit || index == FIRST && reserve != 0 {
        return Err(Refusal::new(Error::BadArgument, 3));
    }
    let slot = usize::from(resource);
    let above = AccountIndex::from(state.accounts.records[index].parent);
    let record = &state.published.accounts[index];
    let more = record.used[slot].max(reserve).saturating_sub(counts(record, slot));
    check_slot(state, above, slot, more)?;
    set_reserve(state, index, slot, reserve);
    let most = if index == FIRST { state.accounts.machine[slot] } else { u32::MAX };
    state.published.accounts[index].limit[slot] = limit.min(most);
    Ok(0)
}

/// Keeps so much for an account; that the one above can pay for it has been checked.
fn set_reserve(state: &mut State, index: AccountIndex, slot: usize, reserve: u32) {
    let above = AccountIndex::from(state.accounts.records[index].parent);
    let record = &mut state.published.accounts[index];
    let before = counts(record, slot);
    record.reserve[slot] = reserve;
    let after = counts(record, slot);
    count_slot(state, above, slot, after.saturating_sub(before));
    uncharge_slot(state, above, slot, before.saturating_sub(after));
}
