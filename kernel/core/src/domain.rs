//! Protection domains: root table, capabilities, native window (decisions 1).
//!
//! A domain is made around an empty root table whose upper half the kernel builds. It ends when
//! its last environment has left: its root joins the dying tables ([`crate::table::work`]), which
//! are worked off in pieces, so that ending one is short whatever it holds.

use crate::answer::{Answer, Refusal};
use crate::identity::{self, Serial};
use crate::index::{AccountIndex, DomainIndex, Slots, kind};
use crate::machine::{Flush, Machine};
use crate::places::{BLOCK, Places};
use crate::principal::{self, Principals};
use crate::state::State;
use crate::{account, exit, frame};
use abi::capability::{ALL, CONTROL, Capability, NAME_FRESH, Name, WRITE};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::{LIBRARY_SLOT, OWN_TABLES_SLOT};
use abi::limits::{CAPABILITIES, DOMAINS, Resource};
use abi::memory::{ACCESSED, NO_EXECUTE, PRESENT, USER};
use abi::published::{DomainRecord, FrameType};
use abi::word::Which;

/// The private half of a domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// What guards it.
    pub guard: Name,
    /// Its list.
    pub capabilities: [Capability; CAPABILITIES],
    /// First address of the native window.
    pub window: u64,
    /// Its bytes; `u64::MAX` with window 0 is the whole lower half.
    pub window_bytes: u64,
    /// Where visitors arrive, 0: it admits none ([`crate::visit`]).
    pub(crate) entry: u64,
    /// Its root table.
    pub root: Frame,
    /// Index of the account that pays.
    pub account: u16,
    /// Which domain of this place it is, or the next one will be.
    pub serial: Serial,
    /// Is being destroyed: no call finds it.
    pub dying: bool,
    /// Is it told when its entries are used: [`crate::ages`]?
    pub(crate) tells_ages: bool,
    /// Are its frames cleared whoever gets them next?
    pub(crate) is_secret: bool,
    /// By whom.
    pub(crate) killer: EnvId,
    /// Index of the domain that made it, while no environment has been in it: it ends with its
    /// maker.
    pub(crate) maker: u16,
    /// The first domain it made that no environment has been in, 0: none.
    pub(crate) unborn: u16,
    /// The domain that made it, while no environment has been released in it: it may still change
    /// it.
    pub(crate) builder: DomainId,
    /// Whose processes it is, for those that would signal them: [`crate::principal`].
    pub(crate) principals: Principals,
    /// Its neighbours among such domains of its maker's.
    pub(crate) beside: [u16; 2],
    /// The number in its fresh name, which it was made with or has been given since; 0: there is no
    /// domain.
    made: u64,
    /// How often names at or below that one have been taken back ([`crate::voided`]).
    pub(crate) epoch: u64,
}

/// The private half of the table.
pub struct Domains {
    pub(crate) records: Slots<kind::Domain, Record>,
    /// Which indices are taken.
    places: Places<{ DOMAINS / BLOCK }>,
    /// Fresh names given out so far.
    serial: u64,
}

impl Domains {
    /// An empty table.
    pub fn new(records: &'static mut [Record]) -> Self {
        Self { records: Slots::new(records), places: Places::new(), serial: 1 }
    }

    /// The private half of the domain at `index`.
    pub fn record(&self, index: DomainIndex) -> &Record {
        &self.records[index]
    }
}

/// The index of a live domain.
pub fn find(state: &State, id: DomainId) -> Result<DomainIndex, Error> {
    identity::find(state.published.domains, id)
        .map(DomainIndex::new)
        .filter(|&index| !state.domains.records[index].dying)
        .ok_or(Error::NoSuchDomain)
}

/// The index of a live domain; 0 names the caller's own.
pub fn find_or_own(state: &State, caller: DomainIndex, id: DomainId) -> Result<DomainIndex, Error> {
    if id.is_none() { Ok(caller) } else { find(state, id) }
}

/// A domain that is being destroyed neither gets environments, nor lets its own go elsewhere: what
/// is in it ends with it.
pub fn is_to_stay(state: &State, index: DomainIndex) -> Result<(), Error> {
    if state.domains.records[index].dying { Err(Error::NoSuchDomain) } else { Ok(()) }
}

/// Its id.
pub fn id(state: &State, index: DomainIndex) -> DomainId {
    DomainId(state.published.domains[index].id)
}

/// Index of the account that pays for the domain at `index`.
pub fn account(state: &State, index: DomainIndex) -> AccountIndex {
    state.domains.records[index].account.into()
}

/// Its root table.
pub fn root(state: &State, index: DomainIndex) -> Frame {
    state.domains.records[index].root
}

/// Its native window, as far as calls are served there: the first address and the first behind it.
pub fn window(state: &State, index: DomainIndex) -> (u64, u64) {
    let record = &state.domains.records[index];
    exit::window(record.window, record.window_bytes)
}

/// The capability at `index` of a domain's list.
pub fn capability(state: &State, domain: DomainIndex, index: u8) -> Result<Capability, Error> {
    crate::capability::get(state, domain, index)
}

/// What guards the domain: a capability must dominate it for WRITE or CONTROL over the domain.
pub fn guard(state: &State, index: DomainIndex) -> &Name {
    &state.domains.records[index].guard
}

/// Does the capability admit an environment into the domain: CONTROL over its guard, or over the
/// fresh name that it was made with, which guards its root table?
pub fn may_enter(state: &State, index: DomainIndex, capability: &Capability) -> bool {
    let Record { guard, root, .. } = &state.domains.records[index];
    let own = frame::guard(state, *root);
    [guard, own].into_iter().any(|name| capability.dominates(name, CONTROL))
}

/// The arguments of `DomainAlloc`.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its index.
    pub which: Which,
    /// Who pays; 0: the caller's account.
    pub account: AccountId,
    /// The frame of its root table.
    pub root: Which,
    /// First address of its native window.
    pub window: u64,
    /// Bytes of it.
    pub bytes: u64,
}

/// `DomainAlloc`: a domain with an empty root table, guarded by the capability's name.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: DomainIndex,
    capability: &Capability,
    asked: &Request,
) -> Answer {
    let payer = if asked.account.is_none() {
        account(state, caller)
    } else {
        account::find(state, asked.account)?
    };
    is_to_stay(state, caller)?;
    account::may_charge(state, caller, capability, payer)?;
    let id = create(state, machine, payer, capability.name, asked)?;
    let (index, builder) = (DomainIndex::from(id), self::id(state, caller));
    let signals = state.domains.records[caller].principals.signals;
    let after = core::mem::replace(&mut state.domains.records[caller].unborn, index.link());
    let record = &mut state.domains.records[index];
    (record.maker, record.builder, record.beside) = (caller.link(), builder, [0, after]);
    record.principals.signals = signals;
    if after != 0 {
        state.domains.records[after.into()].beside[0] = index.link();
    }
    if principal::has_groups(state, caller) {
        principal::bring_groups(state, caller, index);
    }
    Ok(id.0)
}

/// A domain without asking who may.
pub(crate) fn create<M: Machine>(
    state: &mut State,
    machine: &mut M,
    payer: AccountIndex,
    guard: Name,
    asked: &Request,
) -> Result<DomainId, Refusal> {
    account::check(state, payer, Resource::Domains, 1)?;
    let index = free_index(state, asked.which)?;
    let own = fresh_name(state.domains.serial).ok_or(Error::Exhausted)?;
    let root = frame::allocate(state, machine, asked.root, payer, own, FrameType::Table4)?;
    account::count(state, payer, Resource::Domains, 1);
    state.domains.places.take(index.at());
    fill_root(machine, root);
    let made = state.domains.serial;
    state.domains.serial += 1;
    let serial = state.domains.records[index].serial;
    let id = DomainId::new(index.link(), serial.number());
    let mut capabilities = [Capability::default(); CAPABILITIES];
    capabilities[0] = Capability { rights: ALL, zero: 0, name: own };
    state.domains.records[index] = Record {
        guard,
        capabilities,
        window: asked.window,
        window_bytes: asked.bytes,
        root,
        account: payer.link(),
        serial,
        made,
        ..Record::default()
    };
    state.published.domains[index] = DomainRecord {
        id: id.0,
        account: state.published.accounts[payer].id,
        root: root.0,
        tables: 1,
        ..DomainRecord::default()
    };
    Ok(id)
}

/// Gives the domain at `index` another fresh name: for those that hold the former one, its tokens
/// among them, it is as if the domain had ended.
pub(crate) fn rename(state: &mut State, index: DomainIndex) -> Answer {
    let made = state.domains.serial;
    let own = fresh_name(made).ok_or(Error::Exhausted)?;
    state.domains.serial += 1;
    let record = &mut state.domains.records[index];
    (record.made, record.epoch) = (made, 0);
    record.capabilities[0] = Capability { rights: ALL, zero: 0, name: own };
    let root = record.root;
    state.frames.records[root.0 as usize].guard = own;
    holdings_changed(state, index);
    Ok(0)
}

/// The number in the fresh name that the domain at `index` has.
pub(crate) fn made(state: &State, index: DomainIndex) -> u64 {
    state.domains.records[index].made
}

/// Components of a fresh name.
const FRESH_COMPONENTS: usize = 4;

/// The name with this serial number, which is not used again: `None` when all have been.
fn fresh_name(serial: u64) -> Option<Name> {
    let part = |shift: u32| (serial >> shift) as u16;
    (serial >> 48 == 0).then(|| Name::of(&[NAME_FRESH, part(32), part(16), part(0)]))
}

/// May the domain at `caller` change the one at `index`, with what `capability` gives: is it itself
/// the one, does it build it, or does it have WRITE over its guard?
pub fn may_write(
    state: &State,
    caller: DomainIndex,
    index: DomainIndex,
    capability: &Capability,
) -> bool {
    let own = index == caller || is_builder(state, caller, index);
    own || capability.dominates(guard(state, index), WRITE)
}

/// What guards the frames that the domain at `caller` takes for the one at `index`: the name of the
/// capability that it names. Who only builds it keeps no way to what is in there.
#[inline(always)]
pub(crate) fn guard_of_frames(
    state: &State,
    caller: DomainIndex,
    index: DomainIndex,
    capability: &Capability,
) -> Name {
    if index == caller || capability.dominates(guard(state, index), WRITE) {
        capability.name
    } else {
        *frame::guard(state, root(state, index))
    }
}

/// Does the domain at `caller` build the one at `index`?
pub fn is_builder(state: &State, caller: DomainIndex, index: DomainIndex) -> bool {
    let builder = state.domains.records[index].builder;
    !builder.is_none() && builder == id(state, caller)
}

/// An environment of the domain runs: what its builder could change is no longer its builder's.
pub fn built(state: &mut State, index: DomainIndex) {
    state.domains.records[index].builder = DomainId::NONE;
}

/// Moves what is charged to the domain itself, it, its root and its attachments, to the account at
/// `to`, which pays for what is charged to it from now on.
pub fn move_charges(
    state: &mut State,
    index: DomainIndex,
    to: AccountIndex,
) -> Result<(), Refusal> {
    let from = account(state, index);
    let attachments = state.published.domains[index].attachments;
    let charges = [
        (Resource::Domains, 1),
        (Resource::Attachments, attachments),
        // The root is nobody's but the domain's, and is given back with it.
        (Resource::Frames, 1),
    ];
    account::transfer(state, (from, to), &charges)?;
    let root = root(state, index);
    state.published.frames[root.0 as usize].account = to.link();
    state.domains.records[index].account = to.link();
    state.published.domains[index].account = state.published.accounts[to].id;
    Ok(())
}

/// What the domain at `index` holds has changed: answers about it are no longer good.
pub(crate) fn holdings_changed(state: &mut State, index: DomainIndex) {
    let holdings = &mut state.published.domains[index].holdings;
    *holdings = holdings.wrapping_add(1);
}

/// The fresh name that `name` is, or lies below, if it lies below one.
pub(crate) fn fresh_part(name: &Name) -> Option<Name> {
    let components = &name.components[..usize::from(name.length)];
    let fresh = components.get(..FRESH_COMPONENTS)?;
    (components.first() == Some(&NAME_FRESH)).then(|| Name::of(fresh))
}

/// The domain that was made with this fresh name, while it lives.
pub(crate) fn made_with(state: &State, fresh: &Name) -> Option<DomainIndex> {
    let [_, high, middle, low, ..] = fresh.components.map(u64::from);
    let made = high << 32 | middle << 16 | low;
    let index = state.domains.records.iter().position(|record| record.made == made)?;
    (made != 0).then_some(DomainIndex::new(index))
}

/// The kernel's half of a root, which is empty: the kernel's own entries, and the one that shows
/// the table to its owner.
fn fill_root<M: Machine>(machine: &mut M, root: Frame) {
    machine.kernel_entries(root);
    machine.entry_swap(root, LIBRARY_SLOT, 0);
    let own = root.address() | PRESENT | USER | ACCESSED | NO_EXECUTE;
    machine.entry_swap(root, OWN_TABLES_SLOT, own);
}

fn free_index(state: &State, which: Which) -> Result<DomainIndex, Refusal> {
    let count = state.published.domains.len();
    let is_free = |index: DomainIndex| {
        let serial = state.domains.records[index].serial;
        state.published.domains[index].id == 0 && !serial.is_spent()
    };
    match which {
        Which::This(0) => Err(Error::Taken.into()),
        Which::This(index) if index as usize >= count => Err(Error::Exhausted.into()),
        Which::This(index) if is_free(DomainIndex::new(index as usize)) => {
            Ok(DomainIndex::new(index as usize))
        }
        Which::This(_) => Err(Error::Taken.into()),
        Which::Any => {
            let found = state.domains.places.lowest(count, |at| is_free(DomainIndex::new(at)));
            found.map(DomainIndex::new).ok_or(Error::Exhausted.into())
        }
    }
}

/// The domain is no longer its maker's to end: an environment is in it, or it ends.
pub(crate) fn born(state: &mut State, index: DomainIndex) {
    let record = &mut state.domains.records[index];
    let maker = DomainIndex::from(core::mem::take(&mut record.maker));
    if maker == DomainIndex::NONE {
        return;
    }
    let [before, after] = core::mem::take(&mut record.beside);
    match before {
        0 => state.domains.records[maker].unborn = after,
        before => state.domains.records[before.into()].beside[1] = after,
    }
    if after != 0 {
        state.domains.records[after.into()].beside[0] = before;
    }
}

/// Marks a domain as dying: from now on no call finds it, and it takes no new environment.
pub fn condemn(state: &mut State, index: DomainIndex, killer: EnvId) {
    let record = &mut state.domains.records[index];
    if !core::mem::replace(&mut record.dying, true) {
        record.killer = killer;
    }
}

/// Ends a domain that no environment is in and no processor will return to. What its tables hold
/// goes in pieces by [`crate::table::work`]; the index is free at once.
pub fn end<M: Machine>(state: &mut State, machine: &mut M, index: DomainIndex) {
    let record = state.domains.records[index];
    debug_assert_eq!(state.published.domains[index].envs, 0);
    machine.flush(Flush::Space(record.root));
    frame::release(state, record.root);
    account::uncharge(state, record.account.into(), Resource::Domains, 1);
    let serial = record.serial.next();
    state.domains.records[index] = Record { serial, ..Record::default() };
    state.published.domains[index] = DomainRecord::default();
    if !serial.is_spent() {
        state.domains.places.give_back(index.at());
    }
}
