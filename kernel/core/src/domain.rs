//! Protection domains: root table, capabilities, native window (decisions 1).
//!
//! A domain is made around an empty root table whose upper half the kernel builds. It ends when
//! its last environment has left: its root joins the dying tables ([`crate::table::work`]), which
//! are worked off in pieces, so that ending one is short whatever it holds.

use crate::answer::{Answer, Refusal};
use crate::machine::{Flush, Machine};
use crate::state::State;
use crate::{account, frame};
use abi::capability::{ALL, CONTROL, Capability, Name};
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::{LIBRARY_SLOT, OWN_TABLES_SLOT};
use abi::limits::{CAPABILITIES, Resource};
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
    /// Its bytes; `u64::MAX` with window 0 is the whole space.
    pub window_bytes: u64,
    /// Its root table.
    pub root: Frame,
    /// Index of the account that pays.
    pub account: u16,
    /// How often the index has been used.
    pub generation: u32,
    /// Is being destroyed: no call finds it.
    pub dying: bool,
    /// By whom.
    pub(crate) killer: EnvId,
    /// Index of the domain that made it, while no environment has been in it: it ends with its
    /// maker.
    pub(crate) maker: u16,
    /// Domains it made that no environment has been in.
    pub(crate) unborn: u16,
}

/// The private half of the table.
pub struct Domains {
    pub(crate) records: &'static mut [Record],
    /// No index below this one is free.
    lowest: usize,
    /// Domains made so far.
    serial: u32,
}

impl Domains {
    /// An empty table.
    pub fn new(records: &'static mut [Record]) -> Self {
        Self { records, lowest: 1, serial: 1 }
    }

    /// The private half of the domain at `index`.
    pub fn record(&self, index: usize) -> &Record {
        &self.records[index]
    }
}

/// The index of a live domain.
pub fn find(state: &State, id: DomainId) -> Result<usize, Error> {
    let index = id.index();
    match state.published.domains.get(index) {
        Some(record) if index != 0 && record.id == id.0 && !state.domains.records[index].dying => {
            Ok(index)
        }
        _ => Err(Error::NoSuchDomain),
    }
}

/// The index of a live domain; 0 names the caller's own.
pub fn find_or_own(state: &State, caller: usize, id: DomainId) -> Result<usize, Error> {
    if id.is_none() { Ok(caller) } else { find(state, id) }
}

/// Its id.
pub fn id(state: &State, index: usize) -> DomainId {
    DomainId(state.published.domains[index].id)
}

/// Index of the account that pays for the domain at `index`.
pub fn account(state: &State, index: usize) -> usize {
    usize::from(state.domains.records[index].account)
}

/// Its root table.
pub fn root(state: &State, index: usize) -> Frame {
    state.domains.records[index].root
}

/// Its native window: first address and bytes.
pub fn window(state: &State, index: usize) -> (u64, u64) {
    let record = &state.domains.records[index];
    (record.window, record.window_bytes)
}

/// The capability at `index` of a domain's list.
pub fn capability(state: &State, domain: usize, index: u8) -> Result<Capability, Error> {
    crate::capability::get(state, domain, index)
}

/// What guards the domain: a capability must dominate it for WRITE or CONTROL over the domain.
pub fn guard(state: &State, index: usize) -> &Name {
    &state.domains.records[index].guard
}

/// May who has this capability bring itself into the domain? So may whom it has given the fresh
/// name that it was made with, which guards its root table.
pub fn may_enter(state: &State, index: usize, capability: &Capability) -> bool {
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
    caller: usize,
    capability: &Capability,
    asked: &Request,
) -> Answer {
    let payer = if asked.account.is_none() {
        account(state, caller)
    } else {
        account::find(state, asked.account)?
    };
    account::may_charge(state, caller, capability, payer)?;
    let id = create(state, machine, payer, capability.name, asked)?;
    state.domains.records[id.index()].maker = caller as u16;
    state.domains.records[caller].unborn += 1;
    Ok(u64::from(id.0))
}

/// A domain without asking who may.
pub(crate) fn create<M: Machine>(
    state: &mut State,
    machine: &mut M,
    payer: usize,
    guard: Name,
    asked: &Request,
) -> Result<DomainId, Refusal> {
    let index = free_index(state, asked.which)?;
    let own = fresh_name(state, payer).ok_or(Error::Exhausted)?;
    account::check(state, payer, Resource::Domains, 1)?;
    let root = frame::allocate(state, machine, asked.root, payer, own, FrameType::Table4)?;
    account::count(state, payer, Resource::Domains, 1);
    fill_root(machine, root);
    state.domains.serial += 1;
    let generation = state.domains.records[index].generation;
    let id = DomainId::new(index as u16, generation);
    let mut capabilities = [Capability::default(); CAPABILITIES];
    capabilities[0] = Capability { rights: ALL, zero: 0, name: own };
    state.domains.records[index] = Record {
        guard,
        capabilities,
        window: asked.window,
        window_bytes: asked.bytes,
        root,
        account: payer as u16,
        generation,
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

/// [account, serial high, serial low], which only the account dominates. The high half has its
/// first bit set: numbers of accounts below and names that libraries choose keep clear of it.
fn fresh_name(state: &State, payer: usize) -> Option<Name> {
    let serial = state.domains.serial;
    if serial >= 1 << 31 {
        return None;
    }
    let account = &state.accounts.record(payer).name;
    account.child(0x8000 | (serial >> 16) as u16)?.child(serial as u16)
}

/// The kernel's half of a root, which is empty: the kernel's own entries, and the one that shows
/// the table to its owner.
fn fill_root<M: Machine>(machine: &mut M, root: Frame) {
    machine.kernel_entries(root);
    machine.entry_swap(root, LIBRARY_SLOT, 0);
    let own = root.address() | PRESENT | USER | ACCESSED | NO_EXECUTE;
    machine.entry_swap(root, OWN_TABLES_SLOT, own);
}

fn free_index(state: &mut State, which: Which) -> Result<usize, Refusal> {
    let table = &state.published.domains;
    match which {
        Which::This(0) => Err(Error::Taken.into()),
        Which::This(index) => match table.get(index as usize) {
            Some(record) if record.id == 0 => Ok(index as usize),
            Some(_) => Err(Error::Taken.into()),
            None => Err(Error::Exhausted.into()),
        },
        Which::Any => {
            let lowest = state.domains.lowest;
            let found = (lowest..table.len()).find(|&index| table[index].id == 0);
            state.domains.lowest = found.unwrap_or(table.len());
            found.ok_or(Error::Exhausted.into())
        }
    }
}

/// The domain is no longer its maker's to end: an environment is in it, or it ends.
pub(crate) fn born(state: &mut State, index: usize) {
    let maker = usize::from(core::mem::take(&mut state.domains.records[index].maker));
    if maker != 0 {
        state.domains.records[maker].unborn -= 1;
    }
}

/// A domain made by the one at `index` that no environment has been in.
pub(crate) fn an_unborn_of(state: &State, index: usize) -> Option<usize> {
    if state.domains.records[index].unborn == 0 {
        return None;
    }
    state.domains.records.iter().position(|record| usize::from(record.maker) == index)
}

/// Marks a domain as dying: from now on no call finds it, and it takes no new environment.
pub fn condemn(state: &mut State, index: usize, killer: EnvId) {
    let record = &mut state.domains.records[index];
    if !core::mem::replace(&mut record.dying, true) {
        record.killer = killer;
    }
}

/// Ends a domain that no environment is in and no processor will return to. What its tables hold
/// goes in pieces by [`crate::table::work`]; the index is free at once.
pub fn end<M: Machine>(state: &mut State, machine: &mut M, index: usize) {
    let record = state.domains.records[index];
    debug_assert_eq!(state.published.domains[index].envs, 0);
    machine.flush(Flush::Space(record.root));
    frame::release(state, record.root);
    account::uncharge(state, usize::from(record.account), Resource::Domains, 1);
    let generation = record.generation.wrapping_add(1);
    state.domains.records[index] = Record { generation, ..Record::default() };
    state.published.domains[index] = DomainRecord::default();
    state.domains.lowest = state.domains.lowest.min(index);
}
